"""The join of rankings and judgments: by codes, by ids, and both against a plain look-up."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics import Judgments, Rankings, evaluate, rank
from metrics.hits import Hits
from metrics.lookup import by_codes, by_ids

Run = dict[str, dict[str, float]]


def found(hits: Hits) -> list[tuple[int, int, int]]:
    """The hits as (list, rank, level), sorted."""
    return sorted(zip(hits.row.tolist(), hits.rank.tolist(), hits.level.tolist(), strict=True))


def plainly(judgments: Judgments, run: Run) -> list[tuple[int, int, int]]:
    """Look each ranked document up, the tie rule by sorting on (−score, id)."""
    result = []
    for row, query in enumerate(judgments.queries):
        scores = {document: np.float32(score) for document, score in run.get(query, {}).items()}
        for place, document in enumerate(sorted(scores, key=lambda d: (-scores[d], d))):
            if document in judgments.by_id[row]:
                result.append((row, place, judgments.by_id[row][document] - judgments.scale.min + 1))
    return result


IDS = st.sampled_from(["a", "b", "B", "aa", "é", "07", "7", "z"])
QUERIES = st.sampled_from(["q1", "q2", "q3"])
SCORES = st.sampled_from([0.0, -0.0, 1.0, 2.0, -1.5, 1e300, 1e-300, 0.1, 0.1 + 1e-12])


@given(
    qrels=st.dictionaries(QUERIES, st.dictionaries(IDS, st.integers(0, 4))),
    run=st.dictionaries(QUERIES, st.dictionaries(IDS, SCORES)),
)
def test_ids_are_looked_up_and_ties_fall_by_id(qrels: dict[str, dict[str, int]], run: Run) -> None:
    judgments = Judgments.from_dict(qrels)
    joined = by_ids(judgments, run)
    clipped = {query: {d: min(s, 3e38) for d, s in row.items()} for query, row in run.items()}
    assert found(joined.retrieved.found) == plainly(judgments, clipped)
    assert joined.retrieved.counts.tolist() == [len(run.get(query, {})) for query in judgments.queries]
    assert joined.unknown == tuple(sorted(set(run) - set(qrels)))


def test_equal_scores_fall_by_id_whatever_the_order_of_input() -> None:  # S08
    for order in ("ab", "ba"):
        scores = evaluate({"q": {"a": 4, "b": 0}}, {"q": dict.fromkeys(order, 0.5)}, ["ndcg@3", "xdcg@3"])
        assert [scores.mean(m) for m in scores.values] == pytest.approx([1, 51.020408], abs=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_scores_that_are_not_finite_come_last_and_are_named(bad: float) -> None:  # S12
    run = {"p": {"a": 1.0}, "q": {"c": bad, "b": 0.1, "a": 0.9}}
    scores = evaluate({"p": {"a": 1}, "q": {"a": 4, "b": 2, "c": 0}}, run, ["ndcg@3", "xdcg@3"])
    assert [values[1] for values in scores.values.values()] == pytest.approx([1, 66.326531], abs=1e-6)
    assert scores.not_finite == ("q",)
    coded = Judgments.from_arrays(["p", "q"], ["a", "b"], [0, 1], [0, 0], [1, 1])
    ranked = rank([[0, -1], [1, 0]], [[1.0, 0.0], [bad, 1.0]])
    assert evaluate(coded, ranked, ["ndcg@3"]).not_finite == ("q",)
    assert evaluate(coded, ranked, ["ndcg@1"]).not_finite == ("q",)  # also below the last cutoff


@pytest.mark.parametrize("score", ["0.5", None, True, [1.0], 10**400])
def test_a_score_that_is_no_number_is_named(score: Any) -> None:
    with pytest.raises(ValueError, match="query 'q', document 'a': a score must be a number"):
        evaluate({"p": {"a": 1}, "q": {"a": 1}}, {"p": {"a": 1.0}, "q": {"a": score}}, ["mrr"])


def test_numpy_scores_and_whole_ones_are_numbers() -> None:
    run: Any = {"q": {"a": np.float32(1.5), "b": np.int64(2), "c": 1}}
    assert evaluate({"q": {"b": 1}}, run, ["mrr"]).mean("mrr") == 1


def test_ids_and_rows_of_other_types_are_named() -> None:
    with pytest.raises(ValueError, match=r"a document id must be text, got 7 \(int\)"):
        evaluate({"q": {"a": 1}}, {"q": {7: 1.0}}, ["mrr"])  # type: ignore[dict-item]
    with pytest.raises(ValueError, match=r"query .q.: .document id: score. is needed, got list"):
        evaluate({"q": {"a": 1}}, {"q": ["a"]}, ["mrr"])  # type: ignore[dict-item]


def codes(labels: npt.NDArray[np.int64], documents: int) -> Judgments:
    """Query q judges document d with labels[q, d]; −1 is no judgment."""
    ids = [f"{code:06d}" for code in range(documents)]
    rows, items = np.nonzero(labels >= 0)
    return Judgments.from_arrays([f"q{row}" for row in range(len(labels))], ids, rows, items, labels[rows, items])


@pytest.mark.parametrize("scratch", [1, 50, 1 << 21])
@pytest.mark.parametrize("configurations", [1, 3])
def test_codes_are_looked_up_in_blocks(monkeypatch: pytest.MonkeyPatch, scratch: int, configurations: int) -> None:
    monkeypatch.setattr("metrics.lookup._SCRATCH", scratch)
    rng = np.random.default_rng(1)
    labels = rng.integers(-3, 5, (7, 20)).clip(-1)
    items = np.array([[rng.permutation(20)[:9] for _ in range(7)] for _ in range(configurations)], np.int32)
    items[:, 2, 4:], items[:, 5] = -1, -1
    expected = [
        (q * configurations + c, r, int(labels[q, item]) + 1)
        for (c, q, r), item in np.ndenumerate(items)
        if item >= 0 and labels[q, item] >= 0
    ]
    joined = by_codes(codes(labels, 20), items)
    assert found(joined.found) == sorted(expected)
    assert joined.counts.tolist() == np.repeat([9, 9, 4, 9, 9, 0, 9], configurations).tolist()


def test_codes_refuse_what_does_not_belong() -> None:
    judgments = Judgments.from_dict({"q": {"a": 1}})
    with pytest.raises(ValueError, match="1 queries but 2 rankings"):
        evaluate(judgments, rank([[0], [0]], [[1.0], [1.0]]), ["mrr"])
    with pytest.raises(ValueError, match="item 1 is ranked, but document codes end at 0"):
        evaluate(judgments, rank([[1]], [[1.0]]), ["mrr"])


def test_ids_and_codes_give_the_same_scores_on_a_wide_scale() -> None:
    from metrics import LabelScale

    scale = LabelScale(-200, 200)  # levels beyond a byte
    judgments = Judgments.from_dict({"q": {"a": 200, "b": -200, "c": 7}}, scale)
    by_code = evaluate(
        judgments,
        Rankings(np.array([[2, 0, 1]], np.int32), np.zeros((1, 3), np.float32)),
        ["max_relevance@1", "xdcg@3"],
    )
    by_id = evaluate(judgments, {"q": {"c": 3.0, "a": 2.0, "b": 1.0}}, ["max_relevance@1", "xdcg@3"])
    assert by_code.mean("max_relevance@1") == 7
    assert [v.tolist() for v in by_code.values.values()] == [v.tolist() for v in by_id.values.values()]
