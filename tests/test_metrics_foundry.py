"""The row evaluator: its shape, and a test for each deliberate difference from the published one.

For equality with the published one, and its side of each difference, see test_metrics_azure.py.
"""

import re
from typing import Any

import numpy as np
import pytest

from metrics import Aggregate, document_retrieval, foundry, score_rows
from metrics.foundry import METRICS, TOTALS, LeftOut

Documents = list[dict[str, Any]]


def truth(**labels: Any) -> Documents:
    return [{"document_id": document, "query_relevance_label": label} for document, label in labels.items()]


def results(**scores: Any) -> Documents:
    return [{"document_id": document, "relevance_score": score} for document, score in scores.items()]


def row(judged: Documents, retrieved: Documents) -> dict[str, Any]:
    return {"retrieval_ground_truth": judged, "retrieved_documents": retrieved}


def figures(judged: Documents, retrieved: Documents, **options: Any) -> dict[str, Any]:
    return {entry["metric"]: entry["score"] for entry in document_retrieval(judged, retrieved, **options)}


BASE = truth(a=4, b=2, c=1, d=0), results(b=0.9, x=0.8, a=0.7, d=0.1)


def test_base_check_and_shape() -> None:
    found = document_retrieval(*BASE)
    assert [entry["metric"] for entry in found] == [*METRICS, *TOTALS]
    scores = [entry["score"] for entry in found]
    assert scores == pytest.approx([0.603698, 43.877551, 0.926829, 2, 4, 1, 0.25, 4, 4], abs=1e-6)
    assert found[0] == {
        "type": "azure_ai_evaluator",
        "name": "Document Retrieval",
        "metric": "ndcg@3",
        "score": pytest.approx(0.603698, abs=1e-6),
        "label": "pass",
        "passed": True,
        "threshold": 0.5,
    }
    verdicts = {entry["metric"]: entry["label"] for entry in found if "label" in entry}
    assert list(verdicts.values()) == ["pass", "fail", "pass", "pass", "pass", "fail", "fail"]
    assert [type(scores[at]) for at in (3, 4, 5, 7, 8)] == [int] * 5


def test_scaled_convention_on_request() -> None:
    # label 5 of 5: 125 by raw labels, 100 on the scale
    assert figures(truth(a=5), results(a=1.0), ground_truth_label_max=5)["xdcg@3"] == pytest.approx(125 / 1.96)
    scaled = figures(truth(a=5), results(a=1.0), ground_truth_label_max=5, convention="scaled")
    assert scaled["xdcg@3"] == pytest.approx(100 / 1.96)


def test_each_listed_difference_has_its_test() -> None:
    named = set(re.findall(r"test_\w+", foundry.__doc__ or "")) - {"test_metrics_foundry", "test_metrics_azure"}
    assert named
    assert named <= set(globals())


def test_labels_from_10() -> None:
    # b earns 2^3 − 1 of 2^11 − 1 + 2^3 − 1; published: label counts sorted as text, fidelity 15/22
    found = figures(truth(a=10, b=2), results(b=1.0), ground_truth_label_max=10)
    assert found["fidelity"] == pytest.approx(7 / 2054)


def test_minimum_below_0() -> None:
    # published: unjudged x counts as 0 and so as relevant, fidelity .5
    judged, found = truth(a=1, b=0, c=-1), results(b=3.0, x=2.0, c=1.0)
    ours = figures(judged, found, ground_truth_label_min=-1, ground_truth_label_max=1)
    assert ours["fidelity"] == pytest.approx(3 / 10)  # x = 1 of x = 2, 1: (2^2 − 1) / (2^3 − 1 + 2^2 − 1)
    assert ours == figures(judged, found, ground_truth_label_min=-1, ground_truth_label_max=1, convention="scaled")


def test_all_at_minimum() -> None:
    found = figures(truth(a=1), results(a=1.0), ground_truth_label_min=1, ground_truth_label_max=5)
    assert (found["fidelity"], found["ndcg@3"]) == (0, 1)


def test_retrieved_twice() -> None:
    # A .9, B .8, A .1: S10 b; published .737826 and 56.122449
    found = figures(truth(A=4, B=2), results(A=0.9, B=0.8) + results(A=0.1))
    assert (found["ndcg@3"], found["total_retrieved_documents"]) == (1, 2)
    assert found["xdcg@3"] == pytest.approx(66.326531)


def test_judged_twice() -> None:
    assert figures(truth(a=4, b=2) + truth(a=4), results(a=1.0))["total_ground_truth_documents"] == 2
    with pytest.raises(ValueError, match=r"row 1.*document 'a'.*4 and 1"):
        figures(truth(a=4, b=2) + truth(a=1), results(a=0.9, b=0.8))


def test_equal_scores() -> None:
    for found in (results(a=0.5, b=0.5), results(b=0.5, a=0.5)):
        assert figures(truth(a=4, b=0), found)["ndcg@3"] == 1


def test_not_finite() -> None:
    for bad in (float("nan"), float("inf"), -float("inf")):
        found = figures(truth(a=4, b=2, c=0), results(c=bad, b=0.1, a=0.9))
        assert found["ndcg@3"] == 1


def test_float32() -> None:
    assert figures(truth(a=4, b=0), results(a=0.1, b=0.1 + 1e-12))["ndcg@3"] == 1


def test_number_types() -> None:
    plain = figures(truth(a=3, b=1), results(a=0.5, b=1))
    assert figures(truth(a=np.int64(3), b=1.0), results(a=np.float32(0.5), b=np.int64(1))) == plain


def test_true_is_no_number() -> None:
    with pytest.raises(ValueError, match="row 1, document 'a': a label must be a whole number, got True"):
        figures(truth(a=True), results(a=0.5))
    with pytest.raises(ValueError, match="row 1, document 'a': a score must be a number, got True"):
        figures(truth(a=1), results(a=True))


def test_default_thresholds() -> None:
    found = document_retrieval(
        truth(a=5, b=5, c=5), results(a=3, b=2, c=1), ground_truth_label_min=1, ground_truth_label_max=5
    )
    assert [entry["threshold"] for entry in found[:7]] == [0.5, 50, 0.5, 3, 3, 0, 0]
    assert all(entry["passed"] for entry in found[:7])
    changed = document_retrieval(*BASE, thresholds={"xdcg@3": 43, "holes": 1})
    assert [entry["passed"] for entry in changed[:7]] == [True, True, True, True, True, True, False]
    with pytest.raises(ValueError, match="did you mean 'ndcg@3'"):
        document_retrieval(*BASE, thresholds={"ndcg3": 0.5})


def test_nothing_retrieved() -> None:
    found = document_retrieval(truth(a=4), [])
    assert [entry["score"] for entry in found] == [0] * 8 + [1]
    assert [entry["label"] for entry in found[:7]] == ["fail"] * 7


def test_totals_are_not_judged() -> None:
    assert [sorted(entry) for entry in document_retrieval(*BASE)[7:]] == [["metric", "name", "score", "type"]] * 2


def test_large_row() -> None:
    many = {f"d{code}": code % 5 for code in range(10_001)}
    found = figures(truth(**many), results(**many))
    assert (found["ndcg@3"], found["fidelity"], found["total_retrieved_documents"]) == (1, 1, 10_001)


def test_row_without_ground_truth() -> None:
    rows = [row(*BASE), row([], results(a=1.0)), row(None, results(a=1.0))]
    found = list(score_rows(rows))
    assert [(result.row, len(result.results), result.left_out) for result in found] == [
        (1, 9, None),
        (2, 0, "no ground truth"),
        (3, 0, "no ground truth"),
    ]
    with pytest.raises(ValueError, match="retrieval_ground_truth is empty"):
        document_retrieval([], results(a=1.0))


def test_row_without_relevant() -> None:
    total = Aggregate()
    for result in score_rows([row(truth(a=0), results(a=1.0)), row(*BASE), row(truth(a=4), [])]):
        total.add(result)
    assert total.left_out == {"no relevant document": LeftOut(1, [1])}
    assert total.rows == 2
    assert total.means["ndcg@3"] == pytest.approx(0.603698 / 2, abs=1e-6)
    assert total.means["total_retrieved_documents"] == 2
    assert total.pass_rates == {**dict.fromkeys(METRICS, 0), "ndcg@3": 0.5, "fidelity": 0.5} | {
        "top1_relevance": 0.5,
        "top3_max_relevance": 0.5,
    }


def test_aggregate_of_nothing() -> None:
    assert (Aggregate().means, Aggregate().pass_rates) == ({}, {})


def test_batches_are_read_as_they_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foundry, "_BATCH", 2)
    read: list[int] = []

    def rows() -> Any:
        for number in range(5):
            read.append(number)
            yield row(truth(a=number), results(a=1.0))

    scored = score_rows(rows())
    assert read == []
    assert (next(scored).row, read) == (1, [0, 1])
    rest = list(scored)
    assert [result.row for result in rest] == [2, 3, 4, 5]
    assert [result.results[3]["score"] for result in rest] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (row(truth(a=5), []), "row 2, document 'a': label 5 is outside the scale 0…4"),
        (row(truth(a=-1), []), "row 2, document 'a': label -1 is outside"),
        (row(truth(a=2.5), []), "row 2, document 'a': a label must be a whole number, got 2.5"),
        (row(truth(a=1), results(a="0.5")), "row 2, document 'a': a score must be a number, got '0.5'"),
        (row([{"document_id": "a"}], []), "row 2: each item of retrieval_ground_truth needs"),
        (row(truth(a=1), [{"relevance_score": 1}]), "row 2: each item of retrieved_documents needs"),
        (row(truth(a=1), [{"document_id": 7, "relevance_score": 1}]), "row 2: a document_id must be text, got 7"),
        (row("a", []), "row 2: retrieval_ground_truth must be a list, got str"),  # type: ignore[arg-type]
        ([], "row 2: an object with retrieval_ground_truth and retrieved_documents is needed, got list"),
    ],
)
def test_errors_name_row_and_document(bad: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(score_rows([row(*BASE), bad]))


def test_rows_left_out_are_counted_and_the_first_ones_named() -> None:
    total = Aggregate()
    for result in score_rows([row([], [])] * 1234):
        total.add(result)
    assert total.left_out == {"no ground truth": LeftOut(1234, list(range(1, 21)))}


def test_further_measures_stand_after_the_published_ones() -> None:
    found = document_retrieval(
        *BASE, measures=["ndcg_linear@3", "judged(ndcg@3)", "ndcg@3"], thresholds={"judged(ndcg@3)": 0.7}
    )
    assert [entry["metric"] for entry in found] == [*METRICS, "ndcg_linear@3", "judged(ndcg@3)", *TOTALS]
    assert found[7] == {**HEAD, "metric": "ndcg_linear@3", "score": pytest.approx(0.694220, abs=1e-6)}  # S13
    # without x the ranking is b, a, d: (3 + 15 / log2 3) / (15 + 3 / log2 3 + 1 / 2)
    judged = (3 + 15 / np.log2(3)) / (15 + 3 / np.log2(3) + 1 / 2)
    assert found[8]["score"] == pytest.approx(judged)
    assert (found[8]["passed"], found[8]["threshold"]) == (True, 0.7)
    with pytest.raises(ValueError, match="unknown measure 'ndgc'; did you mean 'ndcg'"):
        document_retrieval(*BASE, measures=["ndgc@3"])


HEAD = {"type": "azure_ai_evaluator", "name": "Document Retrieval"}


def test_a_mapping_finds_fields_of_other_names() -> None:
    mapped = {"labels": BASE[0], "search": {"hits": BASE[1]}}
    mapping = {"retrieval_ground_truth": "{{item.labels}}", "retrieved_documents": "{{ item.search.hits }}"}
    (found,) = score_rows([mapped], data_mapping=mapping)
    assert list(found.results) == document_retrieval(*BASE)
    (found,) = score_rows(
        [{**row(*BASE), "retrieved_documents": None, "hits": BASE[1]}],
        data_mapping={"retrieved_documents": "{{item.hits}}"},
    )
    assert list(found.results) == document_retrieval(*BASE)


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        (
            {"retrieved": "{{item.hits}}"},
            "unknown field 'retrieved' in the data mapping; fields: retrieval_ground_truth, retrieved",
        ),
        (
            {"retrieved_documents": "hits"},
            "retrieved_documents: 'hits' cannot be read; give the field's place as {{item.name}}",
        ),
        ({"retrieved_documents": "{{item.}}"}, "cannot be read"),
        ({"retrieved_documents": "{{item.a..b}}"}, "cannot be read"),
        ({"retrieved_documents": "{{item.hit}}"}, r"row 1: there is no hit \(is 'hits' meant\?\)"),
        ({"retrieved_documents": "{{item.hits.all}}"}, "row 1: an object with hits.all is needed, got list"),
    ],
)
def test_a_mapping_that_leads_nowhere_says_so(mapping: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        list(score_rows([{**row(*BASE), "hits": BASE[1]}], data_mapping=mapping))
