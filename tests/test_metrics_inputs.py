"""Judgments and rankings as dictionaries, frames and files: the same scores, and clear errors."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from metrics import Judgments, LabelScale, evaluate, evaluate_many, judgments_of, rank

QRELS = {"q1": {"a": 4, "b": 2, "c": 1, "d": 0}, "q2": {"x": 1}}
RUN = {"q1": {"b": 0.9, "x": 0.8, "a": 0.7, "d": 0.1}, "q2": {"x": 2.0}}
MEASURES = ["ndcg@3", "fidelity", "holes"]
ROWS = [(query, document, label) for query, row in QRELS.items() for document, label in row.items()]
HITS = [(query, document, score) for query, row in RUN.items() for document, score in row.items()]


def means(judgments: Any, rankings: Any) -> list[float]:
    scores = evaluate(judgments, rankings, MEASURES)
    return [scores.mean(measure) for measure in scores.values]


EXPECTED = means(QRELS, RUN)


@pytest.mark.parametrize("columns", [("query_id", "document_id", "label"), ("query_id", "doc_id", "relevance")])
def test_frames(columns: tuple[str, ...]) -> None:
    frame, hits = pd.DataFrame(ROWS, columns=columns), pd.DataFrame(HITS, columns=[*columns[:2], "score"])
    assert means(frame, hits) == EXPECTED == means(frame.assign(rank=1).sample(frac=1, random_state=1), hits)
    assert means(frame.astype({columns[2]: float}), hits.astype({"score": "float32"})) == EXPECTED


def test_files(tmp_path: Path) -> None:
    qrels, run = tmp_path / "qrels.txt", tmp_path / "run.txt"
    qrels.write_text("".join(f"{q} 0 {d} {label}\n" for q, d, label in ROWS))
    run.write_text("".join(f"{q} Q0 {d} 1 {score} tag\n" for q, d, score in HITS))
    assert means(qrels, str(run)) == EXPECTED
    assert judgments_of(qrels, LabelScale(0, 5)).scale == LabelScale(0, 5)


def test_codes() -> None:
    judgments = Judgments.from_dict(QRELS)
    code = {document: at for at, document in enumerate(judgments.documents)}
    items = [[code[d] for d in row] + [-1] * (4 - len(row)) for row in RUN.values()]
    ranked = rank(items, np.tile(-np.arange(4), (2, 1)))
    assert means(judgments, ranked) == EXPECTED
    many = evaluate_many(judgments, [RUN, ranked, {}], MEASURES)
    assert [values[:2].mean(axis=1).tolist() for values in many.values()] == [[m, m] for m in EXPECTED]
    assert [values[2].tolist() for values in many.values()] == [[0, 0]] * 3


def test_a_frame_judges_a_pair_once() -> None:
    twice = pd.DataFrame([("q", "a", 4), ("q", "a", 4), ("q", "b", 2)], columns=["query_id", "document_id", "label"])
    assert judgments_of(twice).by_id == ({"a": 4, "b": 2},)  # S03: identical repeats collapse
    with pytest.raises(ValueError, match="query 'q', document 'a': judged twice, with labels 4 and 1; keep one"):
        judgments_of(pd.concat([twice, pd.DataFrame([("q", "a", 1)], columns=twice.columns)]))


def test_a_frame_ranks_a_document_once_at_its_best_score() -> None:
    hits = pd.DataFrame(
        [("q", "b", 0.5), ("q", "a", np.nan), ("q", "a", 0.9), ("q", "a", 0.1)],
        columns=["query_id", "document_id", "score"],
    )
    assert evaluate({"q": {"a": 1}}, hits, ["mrr"]).mean("mrr") == 1


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"query": ["q"], "document_id": ["a"], "label": [1]}), "no column 'query_id'; it has 'query',"),
        (pd.DataFrame({"query_id": ["q"], "document_id": ["a"]}), "no column 'label' or 'relevance'"),
        (
            pd.DataFrame({"query_id": [7], "document_id": ["a"], "label": [1]}),
            "a query id must be text, got 7 .int.; read the",
        ),
        (pd.DataFrame({"query_id": ["q"], "document_id": [None], "label": [1]}), "a document id must be text, got"),
        (pd.DataFrame({"query_id": ["q"], "document_id": ["a"], "label": [2.5]}), "query 'q', document 'a': .*2.5"),
        (pd.DataFrame({"query_id": ["q"], "document_id": ["a"], "label": [True]}), "query 'q', document 'a': .*True"),
        (pd.DataFrame({"query_id": ["q"], "document_id": ["a"], "label": [np.nan]}), "query 'q', document 'a': .*nan"),
        (pd.DataFrame({"query_id": ["q"], "document_id": ["a"], "label": [""]}), "query 'q', document 'a': .*''"),
    ],
)
def test_bad_frames_say_what_is_wrong(frame: pd.DataFrame, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        judgments_of(frame)


def test_scores_of_a_frame_are_numbers() -> None:
    hits = pd.DataFrame([("q", "a", "high")], columns=["query_id", "document_id", "score"])
    with pytest.raises(ValueError, match="query 'q', document 'a': a score must be a number, got 'high'"):
        evaluate({"q": {"a": 1}}, hits, ["mrr"])


def test_other_things_are_no_judgments_or_rankings() -> None:
    with pytest.raises(TypeError, match="a dictionary, a frame or a path, got list"):
        evaluate([1], RUN, ["mrr"])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a dictionary, a frame or a path, got list"):
        evaluate(QRELS, [1], ["mrr"])  # type: ignore[arg-type]
