"""Reciprocal rank fusion: worked by hand, then against a direct sum of fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics import Rankings
from sweep.retrieval.fusion import reciprocal_rank_fusion


def rankings(*rows: list[int]) -> Rankings:
    """Lists of chunk codes, best first, as Rankings; their scores play no part."""
    width = max(map(len, rows), default=0)
    items = np.array([row + [-1] * (width - len(row)) for row in rows], np.int32).reshape(len(rows), width)
    return Rankings(items, np.where(items >= 0, -np.arange(width), -np.inf).astype(np.float32))


def lists(fused: Rankings) -> list[list[int]]:
    return [[i for i in row if i >= 0] for row in fused.items.tolist()]


def test_worked_by_hand() -> None:
    # 1/61 + 1/62 for chunk 5, 1/62 + 1/61 for chunk 2: a tie, so the smaller code; 1/63 each for 9 and 7
    fused = reciprocal_rank_fusion((rankings([5, 2, 9]), rankings([2, 5, 7])), 60)
    assert fused.items.tolist() == [[2, 5, 7, 9]]
    expected = [1 / 61 + 1 / 62, 1 / 61 + 1 / 62, 1 / 63, 1 / 63]
    np.testing.assert_allclose(fused.scores[0], expected, rtol=1e-6)
    assert fused.scores.dtype == np.float32


def test_the_constant_weighs_agreement_against_a_first_place() -> None:
    one, two = rankings([1, 2, 3]), rankings([4, 5, 3])
    assert lists(reciprocal_rank_fusion((one, two), 60))[0][0] == 3  # 2/63 > 1/61
    assert lists(reciprocal_rank_fusion((one, two), 0 + 1))[0][0] == 1  # 2/4 = 1/2: the smaller code


def test_a_list_that_is_empty_leaves_the_other_as_it_is() -> None:
    one, none = rankings([3, 1, 2], [7]), rankings([], [])
    for pair in ((one, none), (none, one)):
        assert lists(reciprocal_rank_fusion(pair, 60)) == [[3, 1, 2], [7]]


def test_two_empty_lists_are_an_empty_list() -> None:  # CASES S25
    fused = reciprocal_rank_fusion((rankings([], []), rankings([], [])), 60)
    assert fused.items.shape == (2, 0)


def test_a_lone_keyword_hit_does_not_sink() -> None:  # CASES S25: its list has one score, so min = max
    fused = reciprocal_rank_fusion((rankings([1]), rankings([2, 3])), 60)
    assert lists(fused) == [[1, 2, 3]]
    assert np.isfinite(fused.scores).all()


def test_queries_do_not_mix() -> None:
    fused = reciprocal_rank_fusion((rankings([1], [], [2, 3]), rankings([4], [5], [])), 60)
    assert lists(fused) == [[1, 4], [5], [2, 3]]
    assert fused.counts.tolist() == [2, 1, 2]


row = st.lists(st.integers(0, 2**31 - 1) | st.integers(0, 9), unique=True, max_size=8)


@pytest.mark.parametrize("sides", [1, 2, 3])
@given(st.data())
def test_equal_to_a_direct_sum(sides: int, data: st.DataObject) -> None:
    queries, constant = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 200))
    given_lists = [[data.draw(row) for _ in range(queries)] for _ in range(sides)]
    fused = reciprocal_rank_fusion(tuple(rankings(*rows) for rows in given_lists), constant)
    for query, found in enumerate(lists(fused)):
        total: dict[int, Fraction] = {}
        for rows in given_lists:
            for place, item in enumerate(rows[query], 1):
                total[item] = total.get(item, Fraction(0)) + Fraction(1, constant + place)
        value = {item: np.float32(float(gain)) for item, gain in total.items()}
        assert found == sorted(value, key=lambda item: (-value[item], item))
        np.testing.assert_allclose(fused.scores[query, : len(found)], [value[i] for i in found], rtol=1e-6)
