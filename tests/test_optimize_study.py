"""Running, stopping, resuming and extending a study; cases S27 to S33 of the fault list, on keyword search."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from small_workspace import BASELINE, DOCUMENTS, KEYWORD, LABELS, Workspace

from metrics import evaluate
from sweep.errors import NothingFeasibleError, StudyChangedError
from sweep.optimize.objective import ATTEMPTS
from sweep.optimize.study import Study
from sweep.optimize.study_file import load_study
from sweep.present.results import StudyResults
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.models import find_model
from sweep.retrieval.parameters import DEFAULT_ENCODER
from sweep.retrieval.pipeline import Pipeline, Result

FOUR: dict[str, Any] = {"algorithm": "keyword", "chunk_size": 16, "top_k": [1, 2, 3, 4]}
TWELVE: dict[str, Any] = {"algorithm": "keyword", "chunk_size": [4, 8, 16], "top_k": [1, 2, 3, 4]}


def trials(folder: Path, name: str = "s") -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=name, storage=f"sqlite:///{folder / '.sweep/s/study.db'}").get_trials()


def states(folder: Path, name: str = "s") -> Counter[str]:
    return Counter(t.state.name for t in trials(folder, name))


def ids(results: StudyResults) -> list[str]:
    return [o.configuration.id for o in results.completed.outcomes]


class Counted:
    """Counts what `Pipeline.run` is asked for; `fate` may raise for a configuration."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **fates: BaseException) -> None:
        self.asked: Counter[str] = Counter()
        run = Pipeline.run

        def counted(pipeline: Pipeline, c: Configuration) -> Result:
            self.asked[c.id] += 1
            if (fate := fates.get(f"k{c.top_k}")) is not None:
                raise fate
            return run(pipeline, c)

        monkeypatch.setattr(Pipeline, "run", counted)


# ------------------------------------------------------------------ S27: values that are none


def spoil(monkeypatch: pytest.MonkeyPatch, values: dict[int, float]) -> None:
    """Make the scores of the ranking with so many results a query be this value; q1 has its result at every top_k."""

    def spoilt(judgments: Any, rankings: Any, *args: Any, **named: Any) -> Any:
        scores = evaluate(judgments, rankings, *args, **named)
        value = values[int(rankings.counts.max())]
        scores.values.update({m: np.full_like(v, value) for m, v in scores.values.items()})
        return scores

    monkeypatch.setattr("sweep.optimize.outcome.evaluate", spoilt)


def test_the_best_is_taken_from_finite_values(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = {**DOCUMENTS, "d13": "apple cider recipe", "d14": "apple tree"}  # so that q1 has four results
    workspace.write(documents)
    spoil(monkeypatch, {1: np.nan, 2: 0.2, 3: np.inf})
    counted = Counted(monkeypatch, k4=ZeroDivisionError("made to fail"))
    study = workspace.study(FOUR, baseline={**BASELINE, "top_k": 2})
    results = workspace.run(study)
    assert [o.configuration.top_k for o in results.completed.outcomes] == [2]
    assert results.best.top_k == 2
    assert results.recommendation.recommended.scores["ndcg@10"] == pytest.approx(0.2)
    failed = results.completed.failures
    reasons = {1: "ndcg@10 is nan", 3: "ndcg@10 is inf", 4: "ZeroDivisionError: made to fail"}
    assert failed == {Configuration.of({**BASELINE, "top_k": k}).short: why for k, why in reasons.items()}
    assert states(workspace.folder)["COMPLETE"] == 1
    assert states(workspace.folder)["RUNNING"] == 0
    assert max(counted.asked.values()) <= ATTEMPTS
    ran = workspace.cli("run", study)
    assert (ran.code, ran.err) == (0, "")
    assert all(f"failed: {what}: {why}" in ran.out for what, why in failed.items())


@pytest.mark.parametrize("sampler", ["auto", "tpe", "random"])
def test_a_point_that_always_fails_is_tried_a_few_times(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    counted = Counted(monkeypatch, k2=MemoryError("too large"))
    results = workspace.run(workspace.study(FOUR, sampler=sampler))
    assert sorted(o.configuration.top_k for o in results.completed.outcomes) == [1, 3, 4]
    failing = Configuration.of({**BASELINE, "top_k": 2})
    assert results.completed.failures == {failing.short: "MemoryError: too large"}
    assert counted.asked[failing.id] <= ATTEMPTS


def test_a_point_that_fails_once_by_accident_is_tried_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, seen = Pipeline.run, set[str]()

    def first_time(pipeline: Pipeline, c: Configuration) -> Result:
        if c.top_k == 2 and c.id not in seen:
            seen.add(c.id)
            raise OSError("no memory just now")
        return run(pipeline, c)

    monkeypatch.setattr(Pipeline, "run", first_time)
    results = workspace.run(workspace.study(FOUR))
    assert sorted(o.configuration.top_k for o in results.completed.outcomes) == [1, 2, 3, 4]
    assert not results.completed.failures


def test_when_all_fail_the_reasons_are_said(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    Counted(monkeypatch, **{f"k{k}": RuntimeError(f"bad {k}") for k in (1, 2, 3, 4)})
    study = workspace.study(FOUR)
    with pytest.raises(NothingFeasibleError, match="RuntimeError: bad"):
        workspace.run(study).recommendation  # noqa: B018
    ran = workspace.cli("run", study)
    assert (ran.code, ran.out) == (3, "")
    assert len(ran.err.splitlines()) == 1
    assert "keyword 16/0 top_k" in ran.err
    assert "RuntimeError: bad 1" in ran.err


# ------------------------------------------------------------------ S28: another space, other data


def test_a_grown_list_runs_the_new_points_only(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"context_tokens": "<= 1000"}
    first = workspace.run(workspace.study(KEYWORD, constraints=limits))
    counted = Counted(monkeypatch)
    grown = workspace.run(workspace.study({**KEYWORD, "top_k": [1, 2, 3, 5]}, constraints=limits))
    new = [Configuration.of({**BASELINE, "chunk_size": s, "top_k": 5}).id for s in (8, 16)]
    assert dict(counted.asked) == dict.fromkeys(new, 1)
    assert grown.completed.ran == 2
    assert sorted(ids(grown)) == sorted(ids(first) + new)
    assert states(workspace.folder, "s 2") == {"COMPLETE": 8}
    assert {i: row for i, row in workspace.table(grown).items() if i not in new} == workspace.table(first)
    old, copied = trials(workspace.folder)[0], trials(workspace.folder, "s 2")[0]
    assert (old.params, old.value, old.user_attrs) == (copied.params, copied.value, copied.user_attrs)
    assert old.constraints == copied.constraints != {}
    assert workspace.run(workspace.folder / "s.yaml").completed.ran == 0


def test_a_study_grows_twice(workspace: Workspace) -> None:
    for most in (2, 3, 4):
        study = workspace.study({**FOUR, "top_k": list(range(1, most + 1))}, baseline={**BASELINE, "top_k": 1})
        assert workspace.run(study).completed.ran == (2 if most == 2 else 1)
    assert states(workspace.folder, "s 3") == {"COMPLETE": 4}


def test_a_list_of_encoders_may_grow_too(workspace: Workspace, copy_model: Any) -> None:
    """Keyword points do not even use the encoder, so that nothing finished is touched by a new one."""
    copy_model("other")
    space = {**FOUR, "encoder": ["all-MiniLM-L6-v2"]}
    workspace.run(workspace.study(space))
    space = {**FOUR, "encoder": ["all-MiniLM-L6-v2", "./other"]}
    assert workspace.run(workspace.study(space)).completed.ran == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"objective": {"maximize": "recall@2"}}, "objective: was ndcg@10, is recall@2"),
        ({"space": {**KEYWORD, "top_k": [1, 2]}, "baseline": {**BASELINE, "top_k": 1}}, "top_k: 3 removed"),
        ({"convention": "foundry"}, "convention: was scaled, is foundry"),
        ({"labels": {**LABELS, "q6": {"d12": 2}}}, "the labels are not the ones"),
        ({"documents": {**DOCUMENTS, "d03": "blue sky at dawn"}}, "the documents are not the ones"),
    ],
)
def test_what_changed_is_named_and_nothing_runs(workspace: Workspace, change: dict[str, Any], said: str) -> None:
    workspace.run(workspace.study())
    before = states(workspace.folder)
    data = {name: change.pop(name) for name in ("labels", "documents") if name in change}
    workspace.write(**data)
    study = workspace.study(**{"space": KEYWORD, **change})
    with pytest.raises(StudyChangedError, match=said):
        workspace.run(study)
    ran = workspace.cli("run", study)
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert said in ran.err
    assert states(workspace.folder) == before


def test_lists_keep_the_order_of_the_user(workspace: Workspace) -> None:
    results = workspace.run(workspace.study({**FOUR, "top_k": [3, 1, 4, 2]}))
    assert [o.configuration.top_k for o in results.completed.outcomes] == [3, 1, 4, 2]
    assert [t.params["top_k"] for t in trials(workspace.folder)] == [3, 1, 4, 2]  # the baseline, 3, is the first
    assert trials(workspace.folder)[0].distributions["top_k"].choices == (3, 1, 4, 2)  # type: ignore[attr-defined]


# ------------------------------------------------------------------ S29, S32: budgets, seeds, repeats


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_resumed_budget_is_a_total_and_repeats_nothing(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, sampler: str
) -> None:
    counted = Counted(monkeypatch)
    study = workspace.study(TWELVE, sampler=sampler, budget={"trials": 8})
    assert len(workspace.run(study, trials=4).completed.outcomes) == 4
    assert len(counted.asked) == 4
    results = workspace.run(study)
    assert len(set(ids(results))) == len(ids(results)) == 8
    assert list(counted.asked.values()) == [1] * 8
    assert results.completed.finished
    assert workspace.run(study).completed.ran == 0


@pytest.mark.parametrize("sampler", ["auto", "tpe"])
def test_a_larger_space_runs_as_many_as_the_budget(workspace: Workspace, sampler: str) -> None:
    results = workspace.run(workspace.study(TWELVE, sampler=sampler, budget={"trials": 7}, seed=3))
    assert len(set(ids(results))) == len(ids(results)) == 7
    assert results.study.baseline.id in ids(results)


def test_a_small_space_ends_when_it_is_exhausted(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    results = workspace.run(workspace.study(FOUR, sampler="tpe", budget={"trials": 20}))
    assert sorted(o.configuration.top_k for o in results.completed.outcomes) == [1, 2, 3, 4]
    assert list(counted.asked.values()) == [1] * 4
    assert results.completed.finished
    assert results.completed.planned == 4


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_continuous_range_is_sampled_and_a_resumed_sampler_goes_on(workspace: Workspace, sampler: str) -> None:
    """Without an end to the points nothing but the seed keeps a resumed run from drawing the first ones again."""
    space = {"algorithm": "keyword", "chunk_size": 16, "top_k": 3, "k1": {"low": 0.5, "high": 2.0}}
    study = workspace.study(space, sampler=sampler, budget={"trials": 6}, seed=5)
    workspace.run(study, trials=3)
    results = workspace.run(study)
    assert len({o.configuration.k1 for o in results.completed.outcomes}) == 6
    assert all(0.5 <= (o.configuration.k1 or 0) <= 2.0 for o in results.completed.outcomes)
    assert states(workspace.folder) == {"COMPLETE": 6}


def test_a_baseline_outside_the_space_is_run_too(workspace: Workspace) -> None:
    results = workspace.run(workspace.study({**FOUR, "top_k": [1, 2]}))
    assert [o.configuration.top_k for o in results.completed.outcomes] == [3, 1, 2]
    assert results.completed.baseline == 0
    assert workspace.run(workspace.folder / "s.yaml").completed.ran == 0


def test_a_timeout_of_no_time_runs_nothing(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted(monkeypatch)
    workspace.run(workspace.study(), timeout=0.0)
    assert not counted.asked


def test_values_that_do_not_fit_a_model_are_that_configurations_failure(workspace: Workspace) -> None:
    space = {"algorithm": "vector", "dimensions": [384, 512], "index": ["Flat", "PQ5x4"], "chunk_size": 16, "top_k": 1}
    study = workspace.study(space, baseline=None)
    ran = workspace.cli("run", study, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    reasons = sorted(found["configurations"]["failed"].values())
    assert len(reasons) == 3
    assert reasons[0].startswith("dimensions")
    assert reasons[-1].startswith("index PQ5x4: 5 parts do not divide 384 dimensions; allowed: 1, 2, 3")
    assert len(found["configurations"]["all"]) == 2  # the one that fits, and the baseline


def test_an_endpoints_tokenizer_is_part_of_what_results_depend_on(workspace: Workspace) -> None:
    def made(tokenizer: str) -> Study:
        remote = {"endpoint": "http://127.0.0.1:9/v1", "model": "m", "tokenizer": tokenizer}
        return Study(load_study(workspace.study(encoders={"remote": remote}, tokenizer="remote")))

    other = workspace.folder / "other"
    other.mkdir()
    model = find_model(DEFAULT_ENCODER)
    text = (model.folder / "tokenizer.json").read_text(encoding="utf-8")
    (other / "tokenizer.json").write_text(text.replace('"lowercase":true', '"lowercase":false'), encoding="utf-8")
    one, two = made(DEFAULT_ENCODER), made(str(other))
    assert one.result_key(one.baseline) != two.result_key(two.baseline)
    assert one.identity["tokenizer"] != two.identity["tokenizer"]
