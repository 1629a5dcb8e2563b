"""Sums over hits: the ways to add agree bit for bit, and each with a plain loop."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metrics.hits import Hits, Ideal, ordinal


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


@st.composite
def cutoff_sets(draw: st.DrawFn) -> list[int]:
    return sorted(draw(st.sets(st.integers(1, 16) | st.just(1 << 40), min_size=2)))


@given(found=hits(), cutoffs=cutoff_sets(), others=cutoff_sets())
def test_any_cutoffs_give_the_bits_of_one_alone(found: Hits, cutoffs: list[int], others: list[int]) -> None:
    weights = WEIGHTS[: found.depth]
    for wanted in (cutoffs, others, cutoffs):  # what is kept of some cutoffs is not taken for that of others
        for cutoff, values in zip(wanted, found.sums(weights, wanted), strict=True):
            assert values.tolist() == plainly(found, cutoff, np.ones(len(found.rank), np.int64))


@given(found=hits(), cutoffs=cutoff_sets(), queries=st.integers(1, 4), data=st.data())
def test_sums_are_divided_by_what_their_query_has_at_that_cutoff(
    found: Hits, cutoffs: list[int], queries: int, data: st.DataObject
) -> None:
    indptr = np.concatenate([np.repeat(found.indptr[:1], (-found.lists) % queries), found.indptr])  # empty lists first
    found, weights = Hits(indptr.astype(np.int32), found.rank, found.level), WEIGHTS[: found.depth]
    settled = data.draw(st.integers(0, len(cutoffs) - 1))
    wholes = [np.random.default_rng(min(at, settled)).random(queries) for at in range(settled + 1)]
    over = wholes + [wholes[-1]] * (len(cutoffs) - settled - 1)
    of_list = np.arange(found.lists) * queries // max(1, found.lists)
    for cutoff, whole, values in zip(cutoffs, over, found.sums(weights, cutoffs, over=over), strict=True):
        parts = plainly(found, cutoff, np.ones(len(found.rank), np.int64))
        (alone,) = found.sums(weights, [cutoff], over=[whole])
        assert values.tolist() == alone.tolist() == [p / w for p, w in zip(parts, whole[of_list], strict=True)]


@pytest.mark.parametrize("cutoffs", [[1], [1, 2]])
def test_what_is_divided_by_nothing_is_nothing(cutoffs: list[int]) -> None:
    found = Hits.of(np.array([1, 2]), np.array([0, 0, 1]), np.array([0, 1, 1]))
    weights = np.array([0.0, 1.0])
    shares = [values.tolist() for values in found.sums(weights, cutoffs, over=[np.array([0.0, 4.0])] * len(cutoffs))]
    assert shares == [[0, 0.25], [0, 0.5]][: len(cutoffs)]


@given(found=hits(), level=st.integers(1, 6))
def test_hits_from_a_level_are_counted_and_the_first_is_found(found: Hits, level: int) -> None:
    counts, first = found.from_level(level)
    seen: dict[int, int] = {}
    firsts: dict[int, tuple[int, int]] = {}
    expected = []
    for row, rank, of in zip(found.row.tolist(), found.rank.tolist(), found.level.tolist(), strict=True):
        if of >= level:
            seen[row] = seen.get(row, 0) + 1
            firsts.setdefault(row, (rank, of))
        expected.append(seen.get(row, 0))
    assert counts.tolist() == expected
    assert first.lists == found.lists
    ranked = zip(first.row.tolist(), first.rank.tolist(), first.level.tolist(), strict=True)
    assert [(row, (rank, of)) for row, rank, of in ranked] == sorted(firsts.items())


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
