"""Sums over hits: the ways to add agree bit for bit, and each with a plain loop."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.hits import NONE, Hits, Ideal, ordinal


@st.composite
def hits(draw: st.DrawFn) -> Hits:
    ranks = draw(st.lists(st.sets(st.integers(0, 12), max_size=6), max_size=5))
    flat = [rank for row in ranks for rank in sorted(row)]
    levels = draw(st.lists(st.integers(1, 5), min_size=len(flat), max_size=len(flat)))
    return Hits.of(np.array([len(row) for row in ranks], int), np.array(flat, int), np.array(levels, int))


WEIGHTS = np.random.default_rng(1).random((13, 6))
CUTOFFS = [1, 2, 5, 9, 1 << 40]


def plainly(found: Hits, cutoff: int, times: npt.NDArray[np.int64]) -> list[float]:
    """Add list by list, rank by rank."""
    sums = [0.0] * found.lists
    for row, rank, level, factor in zip(found.row, found.rank, found.level, times, strict=True):
        if rank < cutoff:
            sums[row] += WEIGHTS[rank, level] * factor
    return sums


@given(found=hits(), sparse=st.booleans())
def test_every_way_to_add_gives_the_same_bits(found: Hits, sparse: bool) -> None:
    times = np.arange(len(found.rank)) % 3
    weights = WEIGHTS[: found.depth]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metrics.hits._SMALL", 0 if sparse else 1 << 30)
        fresh = Hits(found.indptr, found.rank, found.level)
        together = [values.copy() for values in fresh.sums(weights, CUTOFFS, times)]
        for cutoff, values in zip(CUTOFFS, together, strict=True):
            (alone,) = fresh.sums(weights, [cutoff], times)
            assert values.tolist() == alone.tolist() == plainly(found, cutoff, times)
            assert next(fresh.sums(weights, [cutoff])).tolist() == plainly(found, cutoff, np.ones_like(times))


@given(found=hits())
def test_the_greatest_is_that_of_the_first_k(found: Hits) -> None:
    weights = WEIGHTS[: found.depth]
    for cutoff, values in zip(CUTOFFS, found.largest(weights, CUTOFFS, 0.5), strict=True):
        expected = [0.5] * found.lists
        for row, rank, level in zip(found.row, found.rank, found.level, strict=True):
            if rank < cutoff:
                expected[row] = max(expected[row], weights[rank, level])
        (alone,) = found.largest(weights, [cutoff], 0.5)
        assert values.tolist() == alone.tolist() == expected


@given(found=hits(), level=st.integers(1, 6))
def test_hits_from_a_level_are_counted_and_the_first_is_found(found: Hits, level: int) -> None:
    counts, firsts = found.from_level(level)
    seen: dict[int, int] = {}
    first: dict[int, int] = {}
    expected = []
    for row, rank, of in zip(found.row.tolist(), found.rank.tolist(), found.level.tolist(), strict=True):
        if of >= level:
            seen[row] = seen.get(row, 0) + 1
            first.setdefault(row, rank)
        expected.append(seen.get(row, 0))
    assert counts.tolist() == expected
    assert firsts.tolist() == [first.get(row, NONE) for row in range(found.lists)]


@given(found=hits(), data=st.data())
def test_a_part_holds_the_hits_of_its_lists(found: Hits, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, found.lists))
    stop = data.draw(st.integers(start, found.lists))
    part, chosen = found.part(start, stop), (found.row >= start) & (found.row < stop)
    assert part.lists == stop - start
    assert part.row.tolist() == (found.row[chosen] - start).tolist()
    assert part.rank.tolist() == found.rank[chosen].tolist()
    assert part.nth.tolist() == found.nth[chosen].tolist() == ordinal(found.row[chosen]).tolist()


def test_ideal_sums_are_worked_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Hits.of(np.array([2, 1]), np.array([0, 1, 0]), np.array([2, 1, 5]))
    ideal, weights = Ideal(found), WEIGHTS[:2]
    first = ideal.sums(weights, [1, 2, 99])
    assert [values.tolist() for values in first] == [plainly(found, k, np.ones(3, int)) for k in (1, 2, 2)]
    monkeypatch.setattr(Hits, "sums", None)  # any further sum would fail
    assert [values.tolist() for values in ideal.sums(weights, [2, 1])] == [first[1].tolist(), first[0].tolist()]


def test_ranks_beyond_two_bytes_keep_their_order() -> None:
    found = Hits.of(np.array([1, 1]), np.array([1 << 16, 3]), np.array([1, 1]))  # 65,536 is 0 in two bytes
    ten, all_of_them = (values.copy() for values in found.sums(np.ones(2), [10, 1 << 17]))
    assert (ten.tolist(), all_of_them.tolist()) == ([0, 1], [1, 1])
