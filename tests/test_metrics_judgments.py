"""Label checks (case S07), repeats and conflicts (S03), dangling ids (S04), codes."""

from typing import Any

import numpy as np
import pytest

from metrics import Judgments, LabelScale, check_label, evaluate


@pytest.mark.parametrize("value", [3, 3.0, np.int64(3), np.int8(3), np.uint16(3), np.float32(3)])
def test_whole_numbers_are_labels(value: object) -> None:
    label = check_label(value)
    assert label == 3
    assert type(label) is int


@pytest.mark.parametrize("value", [True, np.True_, 2.5, float("nan"), float("inf"), "", "3", None, np.float32(2.5)])
def test_everything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="whole number"):
        check_label(value)


@pytest.mark.parametrize(("low", "high"), [(1, 1), (4, 0), (0, 1001), (-1001, 0), (-600, 600)])
def test_impossible_scales(low: int, high: int) -> None:
    with pytest.raises(ValueError, match="label scale"):
        LabelScale(low, high)


@pytest.mark.parametrize("label", [5, -1, 2.5, True, "", float("nan"), 10**30])
def test_bad_label_names_the_pair(label: int) -> None:
    with pytest.raises(ValueError, match="query 'q2', document 'b'"):
        Judgments.from_dict({"q1": {"a": 1}, "q2": {"a": 4, "b": label}})


def test_numpy_label_and_score_are_used() -> None:
    qrels: Any = {"q": {"a": np.int64(3)}}
    run: Any = {"q": {"a": np.float32(0.9)}}
    scores = evaluate(qrels, run, ["ndcg@3", "xdcg@3", "fidelity"])
    assert [scores.mean(m) for m in scores.values] == pytest.approx([1, 38.265306, 1])  # S07


def test_conflict_is_an_error_that_names_both_labels() -> None:
    with pytest.raises(ValueError, match=r"query 'q1', document 'a'.*4 and 1"):
        Judgments.from_arrays(["q1"], ["a", "b"], [0, 0, 0], [0, 1, 0], [4, 2, 1])


@pytest.mark.parametrize(
    "labels", [[1, 2.5], [1.0, float("nan")], [1, "2"], np.array([False, True]), [1, 5], [1, -1.0]]
)
def test_bad_label_in_a_column_names_the_pair(labels: Any) -> None:
    with pytest.raises(ValueError, match="query 'q', document"):
        Judgments.from_arrays(["q"], ["a", "b"], [0, 0], [0, 1], labels)


def test_identical_repeats_collapse() -> None:
    judgments = Judgments.from_arrays(["q"], ["a", "b"], [0, 0, 0, 0], [1, 0, 1, 0], [2, 4, 2, 4])
    assert judgments.items.tolist() == [0, 1]
    assert judgments.labels.tolist() == [4, 2]
    assert judgments.indptr.tolist() == [0, 2]


def test_rows_codes_and_types() -> None:
    judgments = Judgments.from_dict({"q2": {"c": 1, "a": 2}, "q1": {"b": 0}}, queries=["q1", "q0", "q2"])
    assert judgments.documents == ("a", "b", "c")
    assert judgments.indptr.tolist() == [0, 1, 1, 3]
    assert judgments.items.tolist() == [1, 2, 0]
    assert judgments.labels.tolist() == [0, 1, 2]
    assert [a.dtype for a in (judgments.indptr, judgments.items, judgments.labels)] == [np.int64, np.int32, np.int16]
    assert judgments.judged.tolist() == [True, False, True]
    assert judgments.answerable.tolist() == [False, False, True]


def test_dangling_documents_come_after_the_corpus_and_stay_in_the_ideal() -> None:
    judgments = Judgments.from_dict({"q1": {"a": 4, "0": 4}}, documents=["a", "b"])
    assert judgments.documents == ("a", "b", "0")
    scores = evaluate(judgments, {"q1": {"a": 1.0}}, ["ndcg@3", "fidelity"])
    assert [scores.mean(m) for m in scores.values] == pytest.approx([0.613147, 0.5], abs=1e-6)  # S04


def test_bad_ids() -> None:
    with pytest.raises(ValueError, match="'a' follows 'b'"):
        Judgments.from_dict({}, documents=["b", "a"])
    with pytest.raises(ValueError, match="'a' is used twice"):
        Judgments.from_dict({}, documents=["a", "a"])
    with pytest.raises(ValueError, match="'q' is used twice"):
        Judgments.from_dict({}, queries=["q", "q"])
    with pytest.raises(ValueError, match="'q' is judged but"):
        Judgments.from_dict({"q": {"a": 1}}, queries=["p"])
    with pytest.raises(ValueError, match=r"must be text, got 7 \(int\)"):
        Judgments.from_dict({"q": {7: 1}})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="document codes must be within 0…0, got 1…1"):
        Judgments.from_arrays(["q"], ["a"], [0], [1], [1])


@pytest.mark.parametrize("relevant_from", [0, 5])
def test_relevant_from_is_within_the_scale(relevant_from: int) -> None:
    with pytest.raises(ValueError, match="within 1…4"):
        Judgments.from_dict({}, relevant_from=relevant_from)


def test_ids_and_codes_are_two_forms_of_the_same() -> None:
    by_id = Judgments.from_dict({"q2": {"c": 1, "a": 2}, "q1": {}})
    coded = Judgments.from_arrays(["q2", "q1"], ["a", "b", "c"], [0, 0], [2, 0], [1, 2])
    assert coded.by_id == by_id.by_id == ({"c": 1, "a": 2}, {})
    again = Judgments.from_arrays(by_id.queries, by_id.documents, by_id.rows, by_id.items, by_id.labels)
    assert again.by_id == by_id.by_id


def test_whole_numbers_of_any_type_become_integers() -> None:
    qrels: Any = {"q": {"a": 3.0, "b": np.int64(2), "c": np.float32(1)}}
    (labels,) = Judgments.from_dict(qrels).by_id
    assert [(label, type(label)) for label in labels.values()] == [(3, int), (2, int), (1, int)]


def test_what_is_judged_is_not_changed_by_what_the_caller_does_later() -> None:
    qrels = {"q": {"a": 1}}
    judgments = Judgments.from_dict(qrels)
    qrels["q"]["a"] = 4
    assert evaluate(judgments, {"q": {"a": 1.0}}, ["max_relevance@1"]).mean("max_relevance@1") == 1


def test_documents_are_given_in_order() -> None:
    with pytest.raises(ValueError, match="'a' follows 'b'"):
        Judgments.from_arrays(["q"], ["b", "a"], [0], [0], [1])


def test_labels_are_needed_for_each_document() -> None:
    with pytest.raises(ValueError, match=r"query 'q': .document id: label. is needed, got list"):
        Judgments.from_dict({"q": ["a"]})  # type: ignore[dict-item]
