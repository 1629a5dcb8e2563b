"""Fusion of keyword and vector search: worked by hand, then against direct sums of fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics import Rankings, rank
from sweep.retrieval.fusion import fuse, normalized


def rankings(*rows: list[int]) -> Rankings:
    """Lists of chunk codes, best first, as Rankings; their scores play no part."""
    width = max(map(len, rows), default=0)
    items = np.array([row + [-1] * (width - len(row)) for row in rows], np.int32).reshape(len(rows), width)
    return Rankings(items, np.where(items >= 0, -np.arange(width), -np.inf).astype(np.float32))


def scored(*rows: dict[int, float]) -> Rankings:
    """{chunk: score} of each query as Rankings."""
    width = max(map(len, rows), default=0)
    items = [[*row, *[-1] * (width - len(row))] for row in rows]
    scores = [[*row.values(), *[0.0] * (width - len(row))] for row in rows]
    return rank(np.array(items).reshape(len(rows), width), np.array(scores).reshape(len(rows), width))


def lists(fused: Rankings) -> list[list[int]]:
    return [[i for i in row if i >= 0] for row in fused.items.tolist()]


def test_ranks_worked_by_hand() -> None:
    # half of 1/61 + 1/62 for chunk 5, of 1/62 + 1/61 for chunk 2: a tie, so the smaller code; 1/63 each for 9 and 7
    fused = fuse(rankings([5, 2, 9]), rankings([2, 5, 7]), constant=60)
    assert fused.items.tolist() == [[2, 5, 7, 9]]
    expected = [1 / 61 + 1 / 62, 1 / 61 + 1 / 62, 1 / 63, 1 / 63]
    np.testing.assert_allclose(2 * fused.scores[0], expected, rtol=1e-6)
    assert fused.scores.dtype == np.float32


def test_the_constant_weighs_agreement_against_a_first_place() -> None:
    one, two = rankings([1, 2, 3]), rankings([4, 5, 3])
    assert lists(fuse(one, two, constant=60))[0][0] == 3  # 2/63 > 1/61
    assert lists(fuse(one, two, constant=1))[0][0] == 1  # 2/4 = 1/2: the smaller code


def test_a_weight_moves_the_order() -> None:
    one, two = rankings([1, 2]), rankings([3, 2])
    assert lists(fuse(one, two, vector_weight=0.1))[0] == [2, 1, 3]  # 1/62 > .9/61 > .1/61
    assert lists(fuse(one, two, vector_weight=0.9))[0] == [2, 3, 1]


BOTH = pytest.mark.parametrize("method", ["rrf", "convex"])
NORMALIZATIONS = pytest.mark.parametrize("normalization", ["min-max", "z-score"])


@BOTH
@NORMALIZATIONS
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_a_weight_of_0_or_1_is_one_list_alone(method: str, normalization: str, weight: float) -> None:  # CASES S25
    sides = scored({7: 3.0, 2: 1.0}, {}), scored({1: 0.9, 2: 0.8, 9: 0.1}, {4: 0.5})
    fused = fuse(*sides, method=method, vector_weight=weight, normalization=normalization)
    assert lists(fused) == lists(sides[int(weight)])


@BOTH
def test_a_list_that_is_empty_leaves_the_other_in_its_order(method: str) -> None:
    one, none = scored({3: 3.0, 1: 2.0, 2: 1.0}, {7: 5.0}), scored({}, {})
    for pair in ((one, none), (none, one)):
        assert lists(fuse(*pair, method=method)) == [[3, 1, 2], [7]]


@BOTH
@NORMALIZATIONS
def test_two_empty_lists_are_an_empty_list(method: str, normalization: str) -> None:  # CASES S25
    fused = fuse(rankings([], []), rankings([], []), method=method, normalization=normalization)
    assert fused.items.shape == (2, 0)


def test_a_lone_keyword_hit_does_not_sink() -> None:  # CASES S25: its list has one score, so min = max
    keyword, vector = scored({1: 7.2}), scored({2: 0.9, 3: 0.5})
    assert lists(fuse(keyword, vector)) == [[1, 2, 3]]
    fused = fuse(keyword, vector, method="convex")
    assert (fused.items.tolist(), fused.scores.tolist()) == ([[1, 2, 3]], [[0.5, 0.5, 0.0]])
    # z-score: .9 lies two standard deviations (.2) above .5, a lone hit counts 1
    fused = fuse(keyword, vector, method="convex", normalization="z-score")
    assert (fused.items.tolist(), fused.scores.tolist()) == ([[2, 1, 3]], [[1.0, 0.5, 0.0]])


def test_scores_on_one_scale_worked_by_hand() -> None:
    ranking = scored({1: 6.0, 2: 3.0, 3: 2.0, 4: 1.0}, {5: 4.0, 6: 4.0}, {})
    np.testing.assert_allclose(normalized(ranking)[0], [1, 0.4, 0.2, 0])
    assert normalized(ranking)[1].tolist() == [1, 1, 0, 0]  # equal scores; then no chunk
    # mean 3, variance (9 + 0 + 1 + 4) / 4 = 3.5: (score − 1) / √3.5
    np.testing.assert_allclose(normalized(ranking, "z-score")[0], np.array([5, 2, 1, 0]) / 3.5**0.5)
    assert normalized(ranking, "z-score")[1:].tolist() == [[1, 1, 0, 0], [0, 0, 0, 0]]


def test_a_score_that_is_not_finite_counts_as_absent() -> None:
    keyword, vector = scored({1: 3.0, 2: 1.0, 3: -np.inf}, {1: -np.inf}), scored({3: 0.5}, {2: 0.5})
    assert normalized(keyword).tolist() == [[1, 0, 0], [0, 0, 0]]
    for normalization in ("min-max", "z-score"):
        fused = fuse(keyword, vector, method="convex", normalization=normalization)
        assert lists(fused)[1] == [2, 1]
        assert np.isfinite(fused.scores[fused.items >= 0]).all()


@pytest.mark.parametrize("weight", [0.2, 0.5, 0.7])
def test_z_scores_order_as_where_the_absent_have_the_least(weight: float) -> None:
    lists_of = {3: 9.0, 1: 7.0, 4: 6.5, 2: 1.0}, {2: 0.9, 5: 0.8, 1: 0.2, 6: 0.1}
    totals = dict.fromkeys(range(1, 7), 0.0)
    for scores_of, part in zip(lists_of, (1 - weight, weight), strict=True):
        values = np.array(list(scores_of.values()))
        z = {item: (score - values.mean()) / values.std() for item, score in scores_of.items()}
        for item in totals:
            totals[item] += part * z.get(item, min(z.values()))
    sides = [scored(one) for one in lists_of]
    fused = fuse(*sides, method="convex", normalization="z-score", vector_weight=weight)
    assert lists(fused) == [sorted(totals, key=lambda item: -totals[item])]
    # one constant lower, whatever the chunk
    apart = fused.scores[0] - np.array([totals[item] for item in lists(fused)[0]])
    np.testing.assert_allclose(apart, apart[0], atol=1e-6)


def test_equal_sums_are_ties_though_they_add_up_otherwise() -> None:
    # .9 · 5/20 = .9 · 3/20 + .1 · 18/20 = .225, and not in float64
    keyword, vector = scored({10: 20.0, 5: 5.0, 4: 3.0, 11: 0.0}), scored({10: 20.0, 4: 18.0, 11: 0.0})
    assert 0.9 * (5 / 20) != 0.9 * (3 / 20) + 0.1 * (18 / 20)
    fused = fuse(keyword, vector, method="convex", vector_weight=0.1)
    assert lists(fused) == [[10, 4, 5, 11]]
    assert fused.scores[0, 1] == fused.scores[0, 2]


def test_queries_do_not_mix() -> None:
    fused = fuse(rankings([1], [], [2, 3]), rankings([4], [5], []))
    assert lists(fused) == [[1, 4], [5], [2, 3]]
    assert fused.counts.tolist() == [2, 1, 2]


row = st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 9), unique=True, max_size=8)


@given(st.data())
def test_ranks_equal_a_direct_sum(data: st.DataObject) -> None:
    queries, constant = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 200))
    part = data.draw(st.integers(1, 9))
    weights = Fraction(10 - part, 10), Fraction(part, 10)
    given_lists = [[data.draw(row) for _ in range(queries)] for _ in range(2)]
    fused = fuse(*(rankings(*rows) for rows in given_lists), constant=constant, vector_weight=part / 10)
    for query, found in enumerate(lists(fused)):
        total: dict[int, Fraction] = {}
        for rows, weight in zip(given_lists, weights, strict=True):
            for place, item in enumerate(rows[query], 1):
                total[item] = total.get(item, Fraction(0)) + weight * Fraction(1, constant + place)
        assert sorted(found) == sorted(total)
        gains = [float(total[item]) for item in found]
        np.testing.assert_allclose(fused.scores[query, : len(found)], gains, rtol=1e-6)


scores = st.dictionaries(st.integers(0, 30), st.floats(-1e6, 1e6, width=32), max_size=8)


@NORMALIZATIONS
@given(st.lists(st.tuples(scores, scores), min_size=1, max_size=4), st.integers(1, 9))
def test_scores_equal_a_direct_sum(normalization: str, pairs: list[tuple[dict[int, float], ...]], part: int) -> None:
    sides = [scored(*(pair[side] for pair in pairs)) for side in (0, 1)]
    fused = fuse(*sides, method="convex", vector_weight=part / 10, normalization=normalization)
    assert np.isfinite(fused.scores[fused.items >= 0]).all()
    for query, pair in enumerate(pairs):
        total = dict.fromkeys([*pair[0], *pair[1]], 0.0)
        for side, weight in zip(pair, (1 - part / 10, part / 10), strict=True):
            values = np.array(list(side.values()))
            for item, score in side.items():
                width = np.ptp(values) if normalization == "min-max" else values.std()
                total[item] += weight * ((score - values.min()) / width if np.ptp(values) > 0 and width > 0 else 1.0)
        found = lists(fused)[query]
        assert sorted(found) == sorted(total)
        np.testing.assert_allclose(fused.scores[query, : len(found)], [total[i] for i in found], rtol=1e-4, atol=1e-5)
