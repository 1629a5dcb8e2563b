"""The tie rule (cases S08, S12), the collapse of chunks (S10), and the join of a run with judgments."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from metrics import Judgments, Rankings, collapse, evaluate, rank
from metrics.rankings import from_columns

INF, NAN = float("inf"), float("nan")
BIG = float(np.finfo(np.float32).max)
results = st.lists(
    st.tuples(st.integers(-1, 6), st.sampled_from([-INF, -BIG, -1.5, -0.0, 0.0, 1e-45, 0.5, 2.0, BIG, INF, NAN])),
    max_size=9,
)


def ranked(found: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    """Sort by the tie rule in plain Python: the reference."""
    best: dict[int, float] = {}
    for item, score in found:
        value = float(np.float32(score)) if np.isfinite(score) else -INF
        if item >= 0:
            best[item] = max(best.get(item, -INF), value)
    order = sorted(best, key=lambda item: (-best[item], item))
    pad = len(found) - len(order)
    return order + [-1] * pad, [best[item] for item in order] + [-INF] * pad


@given(results)
@example([(-1, 2.0), (0, 0.5), (1, -0.0), (2, 0.0)])
def test_rank_follows_the_rule(found: list[tuple[int, float]]) -> None:
    items = np.array([[item for item, _ in found]], dtype=np.int64)
    scores = np.array([[score for _, score in found]], dtype=np.float32)
    result = rank(items, scores)
    assert (result.items[0].tolist(), result.scores[0].tolist()) == ranked(found)
    assert [str(array.dtype) for array in (result.items, result.scores)] == ["int32", "float32"]
    assert result.counts.tolist() == [len({item for item, _ in found if item >= 0})]


@given(results, st.integers(0, 9))
def test_a_smaller_k_is_a_prefix(found: list[tuple[int, float]], k: int) -> None:
    items, scores = [[item for item, _ in found]], [[score for _, score in found]]
    assert rank(items, scores, k).items.tolist() == rank(items, scores).items[:, :k].tolist()


def test_rows_do_not_mix() -> None:
    result = rank([[1, 2, 1], [0, -1, 3]], [[0.1, 0.2, 0.9], [0.5, 9.0, 0.5]])
    assert result.items.tolist() == [[1, 2, -1], [0, 3, -1]]
    assert result.counts.tolist() == [2, 2]


def test_scores_beyond_float32_stay_finite() -> None:
    assert rank([[0, 1, 2]], [[INF, 1e300, 1.0]]).items.tolist() == [[1, 2, 0]]


def test_ties_are_decided_on_float32() -> None:
    assert rank([[1, 0]], np.array([[0.1 + 1e-12, 0.1]])).items.tolist() == [[0, 1]]


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="one shape"):
        rank([[0, 1]], [[0.5]])
    with pytest.raises(ValueError, match="got -2"):
        rank([[-2]], [[0.5]])
    with pytest.raises(ValueError, match="k must be 0 or more"):
        rank([[0]], [[0.5]], k=-1)
    with pytest.raises(ValueError, match="query codes must be within 0…1, got 2…2"):
        from_columns(2, [2], [0], [0.5])
    with pytest.raises(ValueError, match="only 2 chunks"):
        collapse(rank([[2]], [[0.5]]), np.array([0, 0], dtype=np.int32))


def test_tie_is_the_same_for_every_input_order() -> None:
    judgments = Judgments.from_dict({"q": {"a": 4, "b": 0}})
    for run in ({"a": 0.5, "b": 0.5}, {"b": 0.5, "a": 0.5}):
        scores = evaluate(judgments, {"q": run}, ["ndcg@3", "xdcg@3"])
        assert [scores.mean(m) for m in scores.values] == pytest.approx([1, 51.020408])  # S08


def test_nan_is_last_for_every_input_order() -> None:
    judgments = Judgments.from_dict({"q": {"a": 4, "b": 2, "c": 0}})
    for order in permutations([("a", 0.9), ("b", 0.1), ("c", NAN)]):
        scores = evaluate(judgments, {"q": dict(order)}, ["ndcg@3", "xdcg@3"])
        assert [scores.mean(m) for m in scores.values] == pytest.approx([1, 66.326531])  # S12


def chunks(names: str, *scores: float) -> Rankings:
    """Rank chunks that are named by their documents and collapse them; A, B, C are documents 0, 1, 2."""
    group = np.array(["ABC".index(name) for name in names], dtype=np.int32)
    return collapse(rank([list(range(len(names)))], [list(scores)]), group)


def test_collapse_keeps_the_best_chunk() -> None:
    result = chunks("AABAB", 0.9, 0.8, 0.7, 0.6, 0.5)
    assert result.items.tolist() == [[0, 1, -1, -1, -1]]
    np.testing.assert_array_equal(result.scores, np.array([[0.9, 0.7, -INF, -INF, -INF]], dtype=np.float32))


@pytest.mark.parametrize(
    ("found", "labels", "k", "expected"),
    [
        (chunks("AAAB", 0.9, 0.8, 0.7, 0.6), {"A": 4, "B": 2, "C": 1}, 9, [0.971252, 66.326531, 0.926829, 0]),
        (chunks("ABA", 0.9, 0.8, 0.1), {"A": 4, "B": 2, "C": 0}, 9, [1, 66.326531, 1, 0]),
        (chunks("AAABC", 0.9, 0.88, 0.86, 0.5, 0.4), {"A": 0, "B": 3, "C": 2}, 3, [0.665315, 32.142857, 1, 0]),
    ],
)
def test_several_chunks_of_one_document(
    found: Rankings, labels: dict[str, int], k: int, expected: list[float]
) -> None:  # S10 a, b, c
    scores = evaluate(Judgments.from_dict({"q": labels}), found.cut(k), ["ndcg@3", "xdcg@3", "fidelity", "holes"])
    assert [scores.mean(m) for m in scores.values] == pytest.approx(expected, abs=1e-6)


def test_collapse_of_nothing() -> None:
    empty = rank(np.full((2, 3), -1), np.zeros((2, 3)))
    assert collapse(empty, np.zeros(0, dtype=np.int32)).counts.tolist() == [0, 0]
