"""A study from Python: run, load, look; and its numbers against ones that this file computes by itself."""

import json
import math
import shutil
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from small_workspace import BASELINE, DOCUMENTS, KEYWORD, LABELS, QUERIES, Workspace

import sweep
from metrics import Judgments, LabelScale, evaluate
from sweep.errors import InputError, StudyFileError
from sweep.present.results import StudyResults
from sweep.retrieval.configuration import Chunking
from sweep.retrieval.embedding import SentenceTransformerEncoder
from sweep.retrieval.encoders import Models

PLAIN = {**KEYWORD, "analyzer": "plain", "k1": [0.9, 1.5], "b": 0.4}


@pytest.fixture
def results(workspace: Workspace) -> StudyResults:
    return workspace.run(workspace.study(measures=["ndcg@10", "recall@10", "xdcg@3", "holes_ratio"]))


def bm25(query: str, k1: float, b: float) -> dict[str, float]:
    """Score whole documents, words as they stand: the formula of `sweep.retrieval.keyword_index`, written again."""
    words = {d: text.lower().split() for d, text in DOCUMENTS.items()}
    mean = sum(map(len, words.values())) / len(words)
    scores: Counter[str] = Counter()
    for term in query.lower().split():
        holders = [d for d in words if term in words[d]]
        idf = math.log(1 + (len(words) - len(holders) + 0.5) / (len(holders) + 0.5))
        for d in holders:
            tf = words[d].count(term)
            scores[d] += idf * tf / (tf + k1 * (1 - b + b * len(words[d]) / mean))  # type: ignore[assignment]
    return dict(scores)


def test_scores_are_those_of_rankings_made_without_the_package(workspace: Workspace) -> None:
    results = workspace.run(workspace.study(PLAIN))
    judgments = Judgments.from_dict(LABELS, LabelScale(0, 3), queries=tuple(QUERIES), documents=sorted(DOCUMENTS))
    assert len(results.completed.outcomes) == 12  # the baseline is one of them: it takes what it leaves out from these
    for outcome in results.completed.outcomes:
        c = outcome.configuration
        assert c.k1 is not None
        assert c.b is not None
        run = {}
        for query, text in QUERIES.items():
            found = sorted(bm25(text, c.k1, c.b).items(), key=lambda item: (-round(item[1], 6), item[0]))
            run[query] = dict(found[: c.top_k])
        expected = evaluate(judgments, run, list(outcome.scores))
        row = results.trials().loc[c.id]
        for measure in outcome.scores:
            assert row[str(measure)] == pytest.approx(expected.mean(measure), abs=1e-12)


def test_trials_have_a_row_a_configuration(results: StudyResults) -> None:
    trials = results.trials()
    assert trials.index.name == "id"
    assert list(trials.index) == [o.configuration.id for o in results.completed.outcomes]
    assert set(trials.columns) >= {"chunk_size", "top_k", "ndcg@10", "context_tokens", "latency_ms", "index_bytes"}
    assert sorted(zip(trials["chunk_size"], trials["top_k"], strict=True)) == [
        (s, k) for s in (8, 16) for k in (1, 2, 3)
    ]


def test_scores_have_a_row_for_each_configuration_query_and_measure(results: StudyResults) -> None:
    scores = results.scores()
    assert list(scores.columns) == ["id", "query", "measure", "score"]
    assert len(scores) == 6 * len(QUERIES) * 4
    assert not scores.duplicated(["id", "query", "measure"]).any()
    means = scores[scores["measure"] == "ndcg@10"].groupby("id")["score"].mean()
    assert means.to_dict() == pytest.approx(results.trials()["ndcg@10"].to_dict())


def test_means_are_over_the_queries_that_count(workspace: Workspace) -> None:
    queries = {**QUERIES, "q9": "nothing judged", "q10": "only bad ones bread"}
    workspace.write(queries=queries, labels={**LABELS, "q10": {"d05": 0}})
    results = workspace.run(workspace.study())
    best = results.recommendation.recommended
    for measure, score in best.scores.items():
        assert results.trials().loc[best.configuration.id, measure] == pytest.approx(score, abs=1e-15)
    assert set(results.scores()["query"]) == set(QUERIES)


def test_names_of_outcomes(results: StudyResults) -> None:
    assert results.outcome("best").configuration == results.best
    assert results.outcome("baseline").configuration.settings["top_k"] == BASELINE["top_k"]
    known = results.best.id
    assert results.outcome(known).configuration == results.best
    near = known[:-1] + ("0" if known[-1] != "0" else "1")
    with pytest.raises(InputError, match=f"'{near}' is not in this study; did you mean '{known}'"):
        results.outcome(near)


def test_a_study_that_is_declared_in_python(workspace: Workspace) -> None:
    mapping = {**workspace.parts(workspace.study()), "study": "mine"}
    results = workspace.run(mapping)
    assert results.study.folder == Path(".sweep/mine")
    assert sweep.load(mapping).best == results.best
    with pytest.raises(StudyFileError, match="unknown key"):
        sweep.run({**mapping, "spaces": {}})


def test_what_to_do_about_a_declared_study_without_results(workspace: Workspace) -> None:
    mapping = workspace.parts(workspace.study())
    with pytest.raises(InputError) as error:
        sweep.load(mapping)
    assert "has no results" in str(error.value)
    assert "'space'" not in str(error.value)  # the whole mapping says nothing to a reader
    with pytest.raises(InputError, match=r"sweep run .*s\.yaml"):
        sweep.load(workspace.folder / "s.yaml")


def test_the_libraries_below_give_no_warnings(workspace: Workspace) -> None:
    """Nobody who calls `sweep.run` can do anything about what Optuna deprecates."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sweep.run(workspace.study())
    assert [f"{w.category.__name__}: {w.message}" for w in caught if w.category is not ResourceWarning] == []


def test_the_cache_may_be_deleted_at_any_time(workspace: Workspace, results: StudyResults) -> None:
    before = results.trials()
    shutil.rmtree(workspace.folder / ".sweep/cache")
    again = workspace.run(workspace.folder / "s.yaml")
    assert again.completed.ran == 0
    assert again.trials().equals(before)
    grown = workspace.run(workspace.study({**KEYWORD, "top_k": [1, 2, 3, 4]}))
    assert grown.completed.ran == 2
    columns = ["ndcg@10", "recall@10", "xdcg@3", "context_tokens"]
    assert grown.trials().loc[before.index, columns].equals(before[columns])


def test_more_trials_than_the_budget_are_not_more_than_planned(workspace: Workspace) -> None:
    results = workspace.run(workspace.study(sampler="tpe", budget={"trials": 3}), trials=5)
    done = results.completed
    assert len(done.outcomes) == 5
    assert done.finished
    assert done.planned >= 5


LIGHT = """
import sys
sys.argv = ["sweep", *{arguments!r}]
heavy = {{"torch", "faiss", "optuna", "sentence_transformers", "transformers", "plotly"}}
{code}
print("HEAVY", sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
RUN_MAIN = (
    "from sweep.cli import main\ntry:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code"
)


def heavy(folder: Path, arguments: list[str], code: str) -> str:
    script = LIGHT.format(arguments=arguments, code=code)
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=60)
    return done.stderr.strip()


@pytest.mark.parametrize("extra", [[], ["--json"]])
def test_a_finished_study_answers_without_heavy_imports(workspace: Workspace, extra: list[str]) -> None:
    study = workspace.study()
    workspace.run(study)
    assert heavy(workspace.folder, ["run", str(study), *extra], RUN_MAIN) == "HEAVY []"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], "import sweep"),
        ([], "import sweep.cli"),
        (["--help"], RUN_MAIN),
        (["run", "--help"], RUN_MAIN),
        (["score", "--help"], RUN_MAIN),
    ],
)
def test_help_and_import_are_light(tmp_path: Path, arguments: list[str], code: str) -> None:
    assert heavy(tmp_path, arguments, code) == "HEAVY []"


def test_a_vector_study_that_is_finished_loads_no_model(
    workspace: Workspace, minilm: SentenceTransformerEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one test here with the real encoder: vectors, both indexes, fusion, reranking; then again, and grown."""
    space: dict[str, Any] = {
        "algorithm": ["vector", "hybrid", "semantic"],
        "chunk_size": [16],
        "index": {"choices": ["Flat", "HNSW32"], "when": {"algorithm": "vector"}},
        "pool": 4,
        "top_k": 3,
    }
    baseline = {"algorithm": "vector", "chunk_size": 16, "top_k": 3}
    study = workspace.study(space, baseline=baseline)
    ran = workspace.command("run", study, "--json")
    assert (ran.code, ran.err) == (0, "")  # no bar of a library either
    answer = json.loads(ran.out)
    assert answer["configurations"]["ran_now"] == 4
    assert (answer["work"]["texts"], answer["work"]["embedded"]) == (20, 20)  # twelve documents, eight queries
    assert answer["recommended"]["scores"]["ndcg@10"] > 0.5
    assert heavy(workspace.folder, ["run", str(study)], RUN_MAIN) == "HEAVY []"
    monkeypatch.setattr(Models, "_encoder", lambda models, name: minilm)  # loaded once for all tests
    grown = workspace.run(workspace.study({**space, "chunk_size": [16, 3]}, baseline=baseline))
    assert grown.completed.ran == 4
    stages = grown.study.pipeline().stages
    old, new = (set(stages.texts(Chunking("tokens", size, 0.0, "none"))) for size in (16, 3))
    assert grown.completed.work["embedded"] == len(new - old - set(QUERIES.values())) > 0
