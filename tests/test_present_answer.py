"""What `sweep run` prints: complete, within 160 columns, and the same numbers as `--json`."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_workspace import BASELINE, DOCUMENTS, KEYWORD, LABELS, QUERIES, Ran, Workspace

from sweep.optimize.outcome import Outcome
from sweep.present.answer import _searches
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.pipeline import Pipeline, Result

HOLES = {"d13": "apple cider recipe", "d14": "stars in the night sky", "d15": "tyre shop"}
LEFT_OUT = {"q9": "nothing judged", "q10": "only bad ones bread"}


@pytest.fixture
def answered(workspace: Workspace) -> tuple[Ran, dict[str, Any]]:
    """The answer as text and as values, of a study with holes, queries that do not count, and a limit."""
    workspace.write({**DOCUMENTS, **HOLES}, {**QUERIES, **LEFT_OUT}, {**LABELS, "q10": {"d05": 0}})
    study = workspace.study({**KEYWORD, "top_k": [1, 2, 3, 5]}, constraints={"context_tokens": "<= 20"})
    text, values = workspace.cli("run", study), workspace.cli("run", study, "--json")
    assert (text.code, text.err, values.code, values.err) == (0, "", 0, "")
    return text, strict(values.out)


def strict(text: str) -> Any:
    def never(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=never)


def test_lines_are_clean_when_piped(answered: tuple[Ran, dict[str, Any]]) -> None:
    lines = answered[0].out.splitlines()
    assert max(map(len, lines)) <= 160
    assert [line for line in lines if line != line.rstrip()] == []
    assert "\x1b" not in answered[0].out
    assert "nan" not in answered[0].out


def test_the_answer_holds_what_is_needed_to_believe_it(answered: tuple[Ran, dict[str, Any]]) -> None:
    out, values = answered[0].out, answered[1]
    best = values["recommended"]
    assert out.startswith(f"Recommended: {best['id']}\n")
    off = {"chunker": "tokens", "chunk_context": "none", "max_per_document": 0}  # nothing is done, nothing is said
    for name, value in best["settings"].items():
        assert bool(name in out) != (off.get(name) == value), name
        assert name in off or re.search(rf"^  {name} +{value}\b", out, re.M), name
    assert "tokens" in out.split("\n\n")[0]  # the unit of chunk_size
    assert re.search(r"^  analyzer +auto: english$", out, re.M)
    assert values["reason"] in " ".join(out.split())
    assert f"{values['may_be_best']} configurations may be the best at 95 %" in " ".join(out.split())
    assert "Holes: retrieved documents without a label count as irrelevant" in out
    assert "Queries: 8 scored." in out
    assert re.search(r"^Data: .*without judgments.*q9", out, re.M)
    assert re.search(r"^Data: .*without a relevant document.*q10", out, re.M)
    assert "Run: 8 of 8 configurations finished, 8 of them now." in out
    assert "embedded now 0" in out
    assert "searches" in out
    assert re.search(r"^Next: +sweep export \S*s\.yaml --target json", out, re.M)
    assert ".sweep/s/" in out


def number(text: str) -> float:
    return float(text.replace(",", "").removesuffix("%"))


def test_the_table_has_the_numbers_of_the_json(answered: tuple[Ran, dict[str, Any]]) -> None:
    out, values = answered[0].out, answered[1]
    best, base, gap = values["recommended"], values["baseline"], values["difference_to_baseline"]
    assert base["settings"]["top_k"] == BASELINE["top_k"]
    for name in best["scores"]:
        row = re.search(rf"^{re.escape(name)} +(.*)$", out, re.M)
        assert row, name
        shown = [number(x) for x in re.findall(r"[-+]?[\d.]+", row[1])]
        expected = [best["scores"][name], *best["intervals"][name], base["scores"][name], *base["intervals"][name]]
        expected += [gap[name]["mean"], *gap[name]["interval"]]
        digits = 0.051 if name.startswith("xdcg") else 0.00051
        assert shown == pytest.approx(expected, abs=digits), name
        d = gap[name]
        if name == "ndcg@10":
            assert f"better on {d['wins']} queries, equal on {d['ties']}, worse on {d['losses']}." in out
        assert d["mean"] == pytest.approx(best["scores"][name] - base["scores"][name])
        assert d["wins"] + d["ties"] + d["losses"] == 8
        low, high = best["intervals"][name]
        assert low <= best["scores"][name] <= high
    tokens = re.search(r"^context tokens +(\S+) +(\S+)", out, re.M)
    assert tokens
    assert number(tokens[1]) == pytest.approx(best["costs"]["context_tokens"], abs=0.51)


def test_runners_up_are_within_the_limit_and_in_order(answered: tuple[Ran, dict[str, Any]]) -> None:
    out, values = answered[0].out, answered[1]
    estimates = [line["estimate"] for line in values["runners_up"]]
    assert estimates == sorted(estimates, reverse=True)
    block = out[out.index("Runners-up") :].split("\n\n")[0]
    for line in [values["recommended"], *values["runners_up"]]:
        assert line["costs"]["context_tokens"] <= 20
        row = next(row for row in block.splitlines() if f" {line['id']} " in row)
        assert f"{line['scores']['ndcg@10']:.3f}" in row
        assert f"{line['scores']['holes_ratio']:.0%}" in row
        assert ("•" in row) == line["may_be_best"]
        assert ("→" in row) == (line is values["recommended"])
        assert Configuration.of(line["settings"]).id == line["id"]
    assert values["recommended"]["id"] not in [line["id"] for line in values["runners_up"]]


def test_the_baseline_is_marked_in_the_json_even_when_it_is_recommended(workspace: Workspace) -> None:
    values = strict(workspace.cli("run", workspace.study({**KEYWORD, "chunk_size": 16, "top_k": 3}), "--json").out)
    assert values["baseline"]["id"] == values["recommended"]["id"]
    assert values["reason"] == "the only feasible configuration"
    assert values["difference_to_baseline"]["ndcg@10"]["ties"] == 8


def test_what_was_reused_is_said_on_a_second_run(workspace: Workspace) -> None:
    study = workspace.study()
    first, second = workspace.cli("run", study).out, workspace.cli("run", study).out
    assert "6 of 6 configurations finished, 0 of them now" in second
    assert "indexes built now 0, searches run now 0" in second
    kept = [[line for line in out.splitlines() if "now" not in line] for out in (first, second)]
    assert kept[0] == kept[1]


def test_fewer_trials_than_the_space_has(workspace: Workspace) -> None:
    study = workspace.study()
    out = workspace.cli("run", study, "--trials", 3).out
    assert "Run: 3 of 3 configurations finished, 3 of them now." in out
    values = strict(workspace.cli("run", study, "--json").out)["configurations"]
    assert (values["finished"], values["ran_now"], values["planned"]) == (6, 3, 6)
    assert values["invalid"] == values["failed"] == {}


def test_an_unfinished_study_says_how_to_go_on(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Pipeline.run

    def failing(pipeline: Pipeline, c: Configuration) -> Result:
        if c.top_k == 1:
            raise ZeroDivisionError("made to fail")
        return run(pipeline, c)

    monkeypatch.setattr(Pipeline, "run", failing)
    study = workspace.study()
    out = workspace.cli("run", study).out
    assert "Run: 4 of 6 configurations finished, 4 of them now." in out
    assert out.count("failed: keyword ") == 2
    assert re.search(r"^ +sweep run \S*s\.yaml +\(runs what is left\)", out, re.M)


def test_combinations_that_cannot_run_are_counted(workspace: Workspace) -> None:
    space = {"algorithm": "keyword", "chunk_size": 16, "top_k": [1, 3]}
    out = workspace.cli("run", workspace.study(space)).out
    assert "cannot run" not in out
    semantic = {"algorithm": ["keyword", "semantic"], "chunk_size": 16, "top_k": 30, "pool": 20}
    out = workspace.cli("run", workspace.study(semantic, study="other", baseline={**BASELINE, "top_k": 30})).out
    assert "1 combination cannot run: pool 20 is smaller than top_k 30" in " ".join(out.split())


def test_a_single_query_is_answered_without_nan(workspace: Workspace) -> None:
    """One query shows no spread: no interval can be given, and the text must say so in a word, not with nan."""
    workspace.write(queries={"q1": "apple recipe"}, labels={"q1": LABELS["q1"]})
    ran = workspace.cli("run", workspace.study())
    assert (ran.code, ran.err) == (0, "")
    assert "nan" not in ran.out
    values = strict(workspace.cli("run", workspace.folder / "s.yaml", "--json").out)
    assert values["recommended"]["intervals"]["ndcg@10"] == [None, None]


# ------------------------------------------------------------------ S33: the same answer, whatever the hash seed


def stable(text: str) -> str:
    """Drop what time alone decides."""

    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: cut(v) for k, v in value.items() if k not in ("latency_ms", "work")}
        return [cut(v) for v in value] if isinstance(value, list) else value

    return json.dumps(cut(json.loads(text)), indent=2)


def test_three_runs_give_one_answer(workspace: Workspace) -> None:
    """The space is larger than the budget, so that a sampler chooses."""
    processes = []
    for seed in "123":
        study = workspace.parts(workspace.study(budget={"trials": 4}, seed=7))
        path = workspace.folder / f"run{seed}" / "s.yaml"
        path.parent.mkdir()
        path.write_text(json.dumps({**study, "collection": {**study["collection"], "path": "../data"}}))
        before = f"import os; os.chdir({str(path.parent)!r})\n"
        processes.append(workspace.start("run", "s.yaml", "--json", before=before, PYTHONHASHSEED=seed))
    answers = [process.communicate(timeout=60) for process in processes]
    assert [err for _, err in answers] == ["", "", ""]
    assert len({stable(out) for out, _ in answers}) == 1
    assert answers[0][0].count('"id"') >= 4


@pytest.mark.parametrize("top_k", [[3, 1, 2], [2, 3, 1]])
def test_a_constant_objective_gives_the_fewest_results(workspace: Workspace, top_k: list[int]) -> None:
    """Each query has one result, whatever the top_k, so that nothing but the number asked for tells them apart."""
    workspace.write(queries={"q6": "egg", "q9": "pump"}, labels={"q6": {"d12": 3}, "q9": {"d09": 3}})
    values = strict(workspace.cli("run", workspace.study({**KEYWORD, "chunk_size": 16, "top_k": top_k}), "--json").out)
    assert values["recommended"]["settings"]["top_k"] == 1
    assert values["argmax"]["settings"]["top_k"] == 1


def test_what_an_index_and_a_pool_miss_is_said() -> None:
    settings = {"algorithm": "semantic", "first_stage": "vector", "index": "HNSW32", "pool": 20}
    best = Outcome(
        configuration=Configuration.of(settings),
        scores={}, documents=np.zeros((3, 1), np.int32), chunks=np.zeros((3, 1), np.int32),
        context_tokens=np.zeros(3, np.int64), latency_ms=1.0, index_bytes=1, rerank_pairs=20, truncated=0.0,
        ann_recall=0.973, pool_recall=np.array([1.0, 0.5, 0.0]), notes=(),
    )  # fmt: skip
    scored = SimpleNamespace(answerable=np.array([True, True, False]))  # the third query does not count
    study = SimpleNamespace(collection=SimpleNamespace(judgments=scored))
    results = SimpleNamespace(outcome=lambda name: best, study=study)
    assert list(_searches(results)) == [  # type: ignore[arg-type]
        "Index: HNSW32 finds 97.3% of the chunks that an exact search would (ann_recall).",
        "Pool: 20 chunks hold 75.0% of the relevant documents; no reranker finds more (pool_recall).",
    ]
    best = replace(best, configuration=Configuration.of({"algorithm": "keyword"}), pool_recall=np.empty(0))
    assert list(_searches(results)) == []  # type: ignore[arg-type]
