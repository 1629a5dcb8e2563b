"""The row evaluator against the published one, called row by row: equal figures, and what is said of the differences.

`metrics.foundry` lists the deliberate differences; here each of its rows is checked for what the published one does.
"""

import json
import math
import random
import re
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from metrics import document_retrieval, foundry, score_rows
from metrics.foundry import METRICS, TOTALS

azure = pytest.importorskip("azure.ai.evaluation", reason="azure-ai-evaluation is not installed; make .venv/installed")

Documents = list[dict[str, Any]]
SCALES = list(combinations(range(10), 2))
ROWS_OF_A_SCALE = 100
THRESHOLDS = {"ndcg@3": 0.71, "xdcg@3": 33.3, "fidelity": 0.43}
OF_HOLES = {"holes": 0, "holes_ratio": 0}  # fixed in the published one


def truth(**labels: Any) -> Documents:
    return [{"document_id": document, "query_relevance_label": label} for document, label in labels.items()]


def results(**scores: Any) -> Documents:
    return [{"document_id": document, "relevance_score": score} for document, score in scores.items()]


def evaluator(low: int, high: int, thresholds: dict[str, float] | None = None) -> Any:
    options = {f"{name.removesuffix('@3')}_threshold": value for name, value in (thresholds or {}).items()}
    return azure.DocumentRetrievalEvaluator(ground_truth_label_min=low, ground_truth_label_max=high, **options)


def published(judged: Documents, retrieved: Documents, low: int = 0, high: int = 4) -> dict[str, Any]:
    found = evaluator(low, high)(retrieval_ground_truth=judged, retrieved_documents=retrieved)
    properties: dict[str, Any] = found["document_retrieval_properties"]
    return properties


def random_rows(low: int, high: int) -> list[dict[str, Documents]]:
    """Rows of all sizes, without the deliberate differences: some label above the minimum, scores distinct in float32.

    A document may be judged and not retrieved, retrieved and not judged (a hole), or both.
    """
    rng = random.Random(low * 10 + high)
    rows = []
    for number in range(ROWS_OF_A_SCALE):
        documents = [f"d{code}" for code in range(rng.choice((3, 8, 40)))]
        judged = {name: rng.randint(low, high) for name in rng.sample(documents, rng.randint(1, len(documents)))}
        judged[rng.choice(list(judged))] = rng.randint(low + 1, high)
        found = rng.sample(documents, number % 4 if number % 2 else rng.randint(0, len(documents)))
        scores = [place / 1000 for place in rng.sample(range(-5000, 5000), len(found))]
        assert len(set(np.float32(scores).tolist())) == len(found)
        retrieved = results(**dict(zip(found, scores, strict=True)))
        rows.append({"retrieval_ground_truth": truth(**judged), "retrieved_documents": retrieved})
    return rows


@pytest.mark.parametrize(("low", "high"), SCALES)
def test_equal_to_the_published_evaluator(low: int, high: int) -> None:
    thresholds = {**THRESHOLDS, "top1_relevance": (low + high + 1) // 2, "top3_max_relevance": high}
    theirs = evaluator(low, high, thresholds)
    rows = random_rows(low, high)
    scored = list(
        score_rows(rows, ground_truth_label_min=low, ground_truth_label_max=high, thresholds=thresholds | OF_HOLES)
    )
    assert len(scored) == len(rows)
    for row, result in zip(rows, scored, strict=True):
        expected = theirs(**row)["document_retrieval_properties"]
        ours = {entry["metric"]: entry["score"] for entry in result.results}
        figures = {metric: expected[metric] for metric in (*METRICS, *TOTALS)}
        # Python's sum() of floats is compensated from 3.12 on, which moves the published figures by a last bit
        assert ours == (figures if sys.version_info < (3, 12) else pytest.approx(figures, rel=1e-12, abs=1e-12))
        if not row["retrieved_documents"]:  # a deliberate difference in holes
            continue
        verdicts = {entry["metric"]: (entry["label"], entry["passed"]) for entry in result.results if "label" in entry}
        assert verdicts == {metric: (expected[f"{metric}_result"], expected[f"{metric}_passed"]) for metric in METRICS}
    assert list(scored[0].results) == document_retrieval(
        *rows[0].values(), ground_truth_label_min=low, ground_truth_label_max=high, thresholds=thresholds
    )


def test_the_random_rows_are_varied() -> None:
    rows = [row for scale in SCALES for row in random_rows(*scale)]
    assert len(rows) == 4500
    judged = [{document["document_id"] for document in row["retrieval_ground_truth"]} for row in rows]
    found = [{document["document_id"] for document in row["retrieved_documents"]} for row in rows]
    assert {len(ids) for ids in judged} == set(range(1, 41))
    assert {len(ids) for ids in found} == set(range(41))
    pairs = list(zip(judged, found, strict=True))
    for some in (
        [truths - ids for truths, ids in pairs],  # judged, not retrieved
        [ids - truths for truths, ids in pairs],  # holes
        [ids & truths for truths, ids in pairs],
    ):
        assert sum(map(bool, some)) > 2000


def test_each_listed_difference_is_checked_here() -> None:
    named = set(re.findall(r"\btest_(\w+) *\|", foundry.__doc__ or ""))
    assert named
    assert {f"test_published_{name}" for name in named} <= set(globals())


def test_published_labels_from_10() -> None:
    # labels as text sort 1, 10, 2: label 10 weighs 7, the weight of 2, and label 2 weighs 15, the weight of 3
    found = published(truth(a=10, b=2), results(b=1.0), 0, 10)
    assert found["fidelity"] == 15 / 22


def test_published_minimum_below_0() -> None:
    # the holes x and y count as label 0, above the minimum: (3 + 1 + 1) / 3
    assert published(truth(a=1, c=-1), results(a=3.0, x=2.0, y=1.0), -1, 1)["fidelity"] == 5 / 3
    # label -1 of a minimum of -2 weighs 2^0 − 1
    assert math.isnan(published(truth(a=-1), results(a=1.0), -2, 1)["fidelity"])


def test_published_all_at_minimum() -> None:
    found = published(truth(a=1), results(a=1.0), 1, 5)
    assert math.isnan(found["fidelity"])
    assert found["ndcg@3"] == 1


def test_published_retrieved_twice() -> None:
    found = published(truth(A=4, B=2), results(A=0.9, B=0.8) + results(A=0.1))
    assert found["top1_relevance"] == 2  # A counts at .1, below B
    assert found["total_retrieved_documents"] == 3


def test_published_judged_twice() -> None:
    found = published(truth(a=4, b=2) + truth(a=1), results(a=0.9, b=0.8))
    assert (found["top1_relevance"], found["total_ground_truth_documents"]) == (1, 3)


def test_published_equal_scores() -> None:
    assert published(truth(a=4, b=0), results(a=0.5, b=0.5))["top1_relevance"] == 4
    assert published(truth(a=4, b=0), results(b=0.5, a=0.5))["top1_relevance"] == 0


def test_published_not_finite() -> None:
    judged = truth(a=4, b=2, c=0)
    # NaN keeps its place in the input, and what stands on either side of it is not compared
    assert published(judged, results(c=math.nan, b=0.1, a=0.9))["top1_relevance"] == 0
    assert published(judged, results(b=0.1, c=math.nan, a=0.9))["top1_relevance"] == 2
    assert published(judged, results(a=0.9, b=0.1, c=math.nan))["top1_relevance"] == 4
    # infinities are not by order of the input: above and below every finite score
    for retrieved in (results(c=math.inf, a=0.9), results(a=0.9, c=math.inf)):
        assert published(judged, retrieved)["top1_relevance"] == 0
    for retrieved in (results(c=-math.inf, a=0.9), results(a=0.9, c=-math.inf)):
        assert published(judged, retrieved)["top1_relevance"] == 4


def test_published_float32() -> None:
    assert published(truth(a=4, b=0), results(a=0.1, b=0.1 + 1e-12))["top1_relevance"] == 0


@pytest.mark.parametrize(
    ("label", "score", "message"),
    [
        (np.int64(3), 0.5, "labels must be integer"),
        (3.0, 0.5, "labels must be integer"),
        (3, np.float32(0.5), "score must be a numerical value"),
        (3, np.int64(1), "score must be a numerical value"),
    ],
)
def test_published_number_types(label: Any, score: Any, message: str) -> None:
    with pytest.raises(Exception, match=message):
        published(truth(a=label), results(a=score))


def test_published_true_is_no_number() -> None:
    with pytest.raises(KeyError, match="True"):
        published(truth(a=True), results(a=0.5))
    assert published(truth(a=True), results(a=0.5), 1, 4)["top1_relevance"] == 1
    assert published(truth(a=3, b=1), results(a=True, b=0.7))["top1_relevance"] == 3
    assert published(truth(a=3, b=1), results(a=True, b=1.1))["top1_relevance"] == 1


def test_published_default_thresholds() -> None:
    found = published(truth(a=4), results(a=1.0))
    for metric in ("top1_relevance", "top3_max_relevance"):
        assert (found[metric], found[f"{metric}_threshold"], found[f"{metric}_result"]) == (4, 50, "fail")
    others = [found[f"{metric}_threshold"] for metric in ("ndcg@3", "xdcg@3", "fidelity", "holes", "holes_ratio")]
    assert others == [0.5, 50, 0.5, 0, 0]  # as here


def test_published_nothing_retrieved() -> None:
    found = published(truth(a=4), [])
    assert [found[f"{metric}_result"] for metric in METRICS] == ["fail"] * 5 + ["pass"] * 2


def test_published_totals_are_not_judged() -> None:
    found = published(truth(a=4), results(a=1.0))
    assert [(found[f"{total}_result"], found[f"{total}_threshold"]) for total in TOTALS] == [("fail", 50)] * 2


def test_published_large_row() -> None:
    many = {f"d{code}": 1 for code in range(10_001)}
    for judged, retrieved in ((truth(**many), results(a=1.0)), (truth(a=1), results(**many))):
        with pytest.raises(Exception, match="no more than 10000 items"):
            published(judged, retrieved)
        assert published(judged[:10_000], retrieved[:10_000])["total_ground_truth_documents"] == len(judged[:10_000])


def test_published_row_without_ground_truth() -> None:
    with pytest.raises(Exception, match="must contain at least one item"):
        published([], results(a=1.0))


@pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame")  # its use of pandas 3
def test_published_row_without_relevant(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    rows = [{"retrieval_ground_truth": truth(a=label), "retrieved_documents": results(a=1.0)} for label in (4, 0)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = azure.evaluate(data=str(data), evaluators={"it": evaluator(0, 4)})
    assert found["metrics"]["it.document_retrieval"] == (1 + 0) / 2
