"""What a configuration scored: kept beside the study, and never mistaken for the scores of other data."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_workspace import DOCUMENTS, KEYWORD, LABELS, QUERIES, Workspace

from metrics import Judgments, Measure, Rankings, evaluate
from metrics.judgments import LabelScale
from sweep.optimize.outcome import Outcome, OutcomeStore
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.pipeline import Result

C = Configuration.of({"algorithm": "keyword", "top_k": 3})
NDCG, HOLES = Measure("ndcg", 3), Measure.parse("holes_ratio")


def judgments(labels: Mapping[str, Mapping[str, int]]) -> Judgments:
    queries = ("q1", "q2")
    return Judgments.from_dict(labels, LabelScale(0, 4), queries=queries, documents=["a", "b", "c", "x"])


BASE = judgments({"q1": {"a": 4, "b": 2, "c": 1}, "q2": {"a": 0, "b": 3}})


def result(*rows: list[int]) -> Result:
    items = np.array(rows, np.int32)
    scores = np.where(items < 0, -np.inf, -np.arange(items.shape[1])).astype(np.float32)
    ranking = Rankings(items, scores)
    pool = Rankings(np.array([[0, 3], [0, 2]], np.int32), np.zeros((2, 2), np.float32))
    return Result(ranking, ranking, pool, np.array([30, 11]), 1.5, 1000, 7, 0.25, 0.9, ("Flat was built",))


def opened(folder: Path, judged: Judgments = BASE, measures: tuple[Measure, ...] = (NDCG, HOLES)) -> OutcomeStore:
    labels = str(judged.labels.tolist())
    return OutcomeStore(folder, judged, labels, measures, "scaled", key=lambda c: c.id)


def test_scores_holes_and_costs_by_hand(tmp_path: Path) -> None:
    outcome = opened(tmp_path).put(C, result([3, 0, -1], [1, -1, -1]))  # q1: a hole, then a; q2: b
    ideal = 15 + 3 / np.log2(3) + 1 / 2
    assert outcome.scores[NDCG].tolist() == pytest.approx([15 / np.log2(3) / ideal, 1.0])
    assert outcome.scores[HOLES].tolist() == [0.5, 0.0]
    assert outcome.quantity("context_tokens") == 20.5  # the mean of 30 and 11
    assert [outcome.quantity(n) for n in ("latency_ms", "index_bytes", "rerank_pairs")] == [1.5, 1000.0, 7.0]
    assert (outcome.truncated, outcome.ann_recall, outcome.notes) == (0.25, 0.9, ("Flat was built",))
    assert outcome.pool_recall.tolist() == [1 / 3, 0.0]  # a of a, b and c; b is missing
    assert outcome.value("ann_recall", np.array([True, True])) == 0.9


def same(a: Outcome, b: Outcome) -> bool:
    arrays: list[tuple[Any, Any]] = [(a.scores[m], b.scores[m]) for m in a.scores]
    arrays += [(a.documents, b.documents), (a.chunks, b.chunks), (a.context_tokens, b.context_tokens)]
    arrays += [(a.pool_recall, b.pool_recall)]
    facts = [(o.latency_ms, o.index_bytes, o.rerank_pairs, o.truncated, o.ann_recall, o.notes) for o in (a, b)]
    return facts[0] == facts[1] and all(np.array_equal(x, y) and x.dtype == y.dtype for x, y in arrays)


def test_an_outcome_is_read_back_whole(tmp_path: Path) -> None:
    assert opened(tmp_path).get(C) is None
    put = opened(tmp_path).put(C, result([3, 0, -1], [1, -1, -1]))
    read = opened(tmp_path).get(C)
    assert read is not None
    assert same(put, read)


def test_another_measure_is_scored_from_the_stored_ranking(tmp_path: Path) -> None:
    opened(tmp_path).put(C, result([3, 0, -1], [1, -1, -1]))
    recall = Measure.parse("recall@2")
    read = opened(tmp_path, measures=(recall,)).get(C)
    assert read is not None
    assert read.scores[recall].tolist() == pytest.approx([1 / 3, 1.0])  # a of a, b, c; b of b
    assert opened(tmp_path, measures=(recall,)).get(C) is not None


def test_a_damaged_outcome_is_set_aside_and_missing(tmp_path: Path) -> None:
    opened(tmp_path).put(C, result([0, 1, 2], [1, -1, -1]))
    (path,) = tmp_path.rglob("*.safetensors")
    path.write_bytes(path.read_bytes()[:200])
    assert opened(tmp_path).get(C) is None
    assert [p.suffix for p in path.parent.iterdir()] == [".bad"]


def test_other_labels_are_never_answered_from_an_old_score(tmp_path: Path) -> None:
    opened(tmp_path).put(C, result([0, 1, 2], [1, -1, -1]))
    other = judgments({"q1": {"a": 0, "b": 2, "c": 4}, "q2": {"b": 3}})
    read = opened(tmp_path, other).get(C)
    assert read is None or read.scores[NDCG][0] < 1


@pytest.mark.parametrize("change", ["label", "document"])
def test_a_new_storage_does_not_answer_from_other_data(workspace: Workspace, change: str) -> None:
    """One label or one document differs; Optuna's storage is new, and so the study is new: S20's kind of fault."""
    study = workspace.study()
    workspace.run(study)
    if change == "label":
        workspace.write(labels={**LABELS, "q6": {"d12": 1, "d01": 3}})
    else:
        workspace.write(documents={**DOCUMENTS, "d12": "nothing of the kind"})
    again = workspace.run(study, storage="sqlite:///other.db")
    fresh = workspace.run({**json.loads(study.read_text()), "study": "fresh"})
    assert again.trials()["ndcg@10"].to_dict() == pytest.approx(fresh.trials()["ndcg@10"].to_dict())


def test_the_scores_are_those_of_the_stored_rankings(workspace: Workspace) -> None:
    results = workspace.run(workspace.study())
    judged = results.study.collection.judgments
    assert len(results.completed.outcomes) == len(KEYWORD["chunk_size"]) * len(KEYWORD["top_k"])
    for outcome in results.completed.outcomes:
        scores = np.where(outcome.documents < 0, -np.inf, -np.arange(outcome.documents.shape[1])).astype(np.float32)
        again = evaluate(judged, Rankings(outcome.documents, scores), list(outcome.scores))
        for measure, values in outcome.scores.items():
            assert values.shape == (len(QUERIES),)
            np.testing.assert_array_equal(values, again.values[measure])
