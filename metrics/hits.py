"""Judged documents and the ranks where they stand: all that a measure reads of a ranking.

Most ranked documents are unjudged and earn nothing, so measures work on the hits alone. The hits of a list are added in
rank order and by themselves, so a value is the same bit for bit whatever else is computed beside it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy import sparse

Float = NDArray[np.float64]
Codes = NDArray[np.intp]

_SMALL = 1 << 15  # hits: fewer are added before SciPy is imported
_TINY = np.finfo(np.float64).tiny


class Chosen(NamedTuple):
    """Some of the hits. counts: int32 (n,), how many of each hit's list up to and with itself. first: the first of each
    list.
    """

    counts: NDArray[np.int32]
    first: "Hits"


class _Columns(NamedTuple):
    """The hits by their place in their list: the first of each, the second …; lists with more hits come before others.

    So each column goes with the beginning of the one before it. entry, row, weight: (n,), a hit, its list and its place
    in a table of weights. edges: of the columns.
    """

    entry: Codes
    row: Codes
    weight: Codes
    edges: list[int]

    def steps(self) -> Iterator[tuple[slice, slice]]:
        """Each column from the second on, after those hits of the column before it that stand in the same lists."""
        for before, first, end in zip(self.edges, self.edges[1:], self.edges[2:], strict=False):
            yield slice(before, before + end - first), slice(first, end)


class _Changes(NamedTuple):
    """The last hit of each list before each cutoff and not before an earlier one.

    row, cell: (m,), its list and where it is in `_Columns`, cutoff by cutoff. ends: where those of each cutoff end.
    """

    row: Codes
    cell: Codes
    ends: list[int]


@dataclass(frozen=True, eq=False)
class Hits:
    """The hits of many ranked lists, in compressed rows.

    indptr: int32 (lists + 1,); list i owns the entries indptr[i]:indptr[i + 1], ascending by rank. rank: int32 (n,),
    from 0. level: int32 (n,), the label's level, which is label − min + 1.
    """

    indptr: NDArray[np.int32]
    rank: NDArray[np.int32]
    level: NDArray[np.int32]
    _kept: dict[tuple[int, ...], _Changes] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, counts: NDArray[np.integer], rank: NDArray[np.integer], level: NDArray[np.integer]) -> "Hits":
        """Build from the number of hits in each list and the columns of the hits, list after list."""
        indptr = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=indptr[1:])
        return cls(indptr, rank.astype(np.int32, copy=False), level.astype(np.int32, copy=False))

    @property
    def lists(self) -> int:
        """Number of lists."""
        return len(self.indptr) - 1

    @cached_property
    def depth(self) -> int:
        """The greatest rank plus 1, at least 1."""
        return int(self.rank.max(initial=0)) + 1

    @cached_property
    def row(self) -> Codes:
        """The list of each hit: intp (n,)."""
        return np.repeat(np.arange(self.lists), np.diff(self.indptr))

    @cached_property
    def nth(self) -> Codes:
        """The place of each hit among the hits of its list, from 0: intp (n,)."""
        return np.arange(len(self.rank)) - np.repeat(self.indptr[:-1], np.diff(self.indptr))

    def part(self, start: int, stop: int) -> "Hits":
        """Return the lists start…stop−1."""
        entries = slice(self.indptr[start], self.indptr[stop])
        return Hits(self.indptr[start : stop + 1] - self.indptr[start], self.rank[entries], self.level[entries])

    def from_level(self, level: int) -> "Chosen":
        """Choose the hits of a level or above."""
        chosen = self.level >= level
        before = np.zeros(len(chosen) + 1, np.int32)
        np.cumsum(chosen, out=before[1:])
        counts = before[1:] - np.repeat(before[self.indptr[:-1]], np.diff(self.indptr))
        some = before[self.indptr[1:]] > before[self.indptr[:-1]]
        first = np.flatnonzero(chosen)[before[self.indptr[:-1][some]]]
        return Chosen(counts, Hits.of(some.astype(np.int32), self.rank[first], self.level[first]))

    def sums(
        self,
        weights: Float,
        cutoffs: Sequence[int],
        times: NDArray[np.integer] | None = None,
        over: Sequence[Float] | None = None,
    ) -> Iterator[Float]:
        """Add up weights[rank, level], float64 (depth, levels), of each list's first k; one array for each cutoff.

        times: multiplies the weight of each hit. over: divides the sums, float64 (Q,) for each cutoff, the same object
        from the cutoff on from which it stays the same; a query has lists / Q lists, one after the other. What is
        divided by 0 is 0. Yields float64 (lists,); it may be the same array, going on changing.
        """
        if len(cutoffs) > 1:
            return self._running(np.add, weights, cutoffs, 0.0, times, over)
        sums = self._sum(weights, cutoffs[0], times)
        return iter([_divided(sums, over[0]) if over else sums])

    def largest(self, weights: Float, cutoffs: Sequence[int], start: float) -> Iterator[Float]:
        """Take the greatest of `start` and weights[rank, level] of each list's first k; otherwise as `sums`."""
        if len(cutoffs) > 1:
            return self._running(np.maximum, weights, cutoffs, start)
        terms = self._table(weights).take(self._index)
        if cutoffs[0] < self.depth:
            terms[self.rank >= cutoffs[0]] = start
        some = np.flatnonzero(self.indptr[1:] > self.indptr[:-1])
        greatest = np.full(self.lists, start)
        if some.size:
            greatest[some] = np.maximum(np.maximum.reduceat(terms, self.indptr[some]), start)
        return iter([greatest])

    @cached_property
    def _index(self) -> NDArray[np.int32]:
        return self.rank * np.int32(self.level.max(initial=0) + 1) + self.level

    def _table(self, weights: Float) -> Float:
        """Cut a table of weights to the levels that occur, as `_index` counts them: float64 (depth · levels,)."""
        levels = int(self.level.max(initial=0)) + 1
        return np.broadcast_to(weights[..., :levels], (self.depth, levels)).ravel()

    def _sum(self, weights: Float, cutoff: int, times: NDArray[np.integer] | None) -> Float:
        """Add up one cutoff by the product of a sparse matrix, (lists, rank and level), and the weights."""
        within = np.arange(self.depth)[:, None] < cutoff
        column = np.where(within, self._table(weights).reshape(self.depth, -1), 0.0).ravel()
        if len(self.rank) < _SMALL:  # both ways add in the order of the entries
            terms = column.take(self._index)
            terms = terms if times is None else terms * times
            return np.bincount(self.row, terms, minlength=self.lists).astype(np.float64)
        matrix = self._matrix if times is None else self._sparse(times.astype(np.float64))
        sums: Float = matrix @ column
        return sums

    @cached_property
    def _matrix(self) -> "sparse.csr_array":
        return self._sparse(np.ones(len(self.rank)))

    def _sparse(self, data: Float) -> "sparse.csr_array":
        from scipy import sparse

        width = self.depth * (int(self.level.max(initial=0)) + 1)
        return sparse.csr_array((data, self._index, self.indptr), shape=(self.lists, width))

    @cached_property
    def _columns(self) -> _Columns:
        lengths = np.diff(self.indptr)
        lists = np.argsort(-lengths, kind="stable")
        starts, sizes = self.indptr[lists], self.lists - np.cumsum(np.bincount(lengths, minlength=1))
        entry = np.concatenate([starts[:size] + nth for nth, size in enumerate(sizes.tolist())], dtype=np.intp)
        row = np.concatenate([lists[:size] for size in sizes.tolist()])
        return _Columns(entry, row, self._index.take(entry).astype(np.intp), [0, *np.cumsum(sizes).tolist()])

    def _changes(self, cutoffs: Sequence[int]) -> _Changes:
        """Find what changes at each cutoff; the last answer is kept, for the measures share it."""
        key = tuple(cutoffs)
        changes = self._kept.get(key)
        if changes is None:
            columns = self._columns
            interval = np.searchsorted(key, np.arange(self.depth), side="right")
            interval = interval.astype(np.min_scalar_type(len(key))).take(self.rank)  # small: sorted by radix
            interval = interval.take(columns.entry)
            last = interval < len(key)
            for before, here in columns.steps():
                last[before] &= interval[before] != interval[here]
            cell = np.flatnonzero(last)
            interval = interval.take(cell)
            order = np.argsort(interval, kind="stable")
            ends = np.searchsorted(interval, np.arange(len(key)), side="right", sorter=order).tolist()
            cell = cell.take(order)
            changes = _Changes(columns.row.take(cell), cell, ends)
            self._kept.clear()
            self._kept[key] = changes
        return changes

    def _running(
        self,
        combine: np.ufunc,
        weights: Float,
        cutoffs: Sequence[int],
        start: float,
        times: NDArray[np.integer] | None = None,
        over: Sequence[Float] | None = None,
    ) -> Iterator[Float]:
        """Work out what each list comes to at each hit, then go from cutoff to cutoff and set what changes."""
        columns, (row, cell, ends) = self._columns, self._changes(cutoffs)
        run = combine(start, self._table(weights)).take(columns.weight)
        if times is not None:
            run *= times.take(columns.entry)
        for before, here in columns.steps():
            combine(run[before], run[here], out=run[here])
        run, values, done, over = run.take(cell), np.full(self.lists, start), 0, over or []
        changing = sum(whole is not over[-1] for whole in over)
        for end, whole in zip(ends, over[:changing], strict=False):
            values[row[done:end]] = run[done:end]
            done = end
            yield _divided(values, whole)
        if over:  # from here on the whole stays as it is: a share changes only where a hit is, and each is divided once
            values = _divided(values, over[-1])
            run[done:] /= _spread(over[-1], self.lists).take(row[done:])
        for end in ends[changing:]:
            values[row[done:end]] = run[done:end]
            done = end
            yield values


@dataclass(frozen=True, eq=False)
class Ideal:
    """Hits of the best possible rankings, and the sums that were asked of them: all configurations share them."""

    hits: Hits
    _sums: dict[tuple[bytes, int], Float] = field(default_factory=dict, repr=False)

    @property
    def lists(self) -> int:
        """Number of lists."""
        return self.hits.lists

    def sums(self, weights: Float, cutoffs: Sequence[int]) -> list[Float]:
        """Add up as `Hits.sums`: float64 (lists,) for each cutoff, to be left as they are."""
        name, depth = weights.tobytes(), self.hits.depth
        wanted = [min(cutoff, depth) for cutoff in cutoffs]
        new = sorted({cutoff for cutoff in wanted if (name, cutoff) not in self._sums})
        if new:
            for cutoff, values in zip(new, self.hits.sums(weights, new), strict=True):
                self._sums[name, cutoff] = values.copy()
        return [self._sums[name, cutoff] for cutoff in wanted]


def _divided(parts: Float, whole: Float) -> Float:
    """Divide (lists,) by (Q,) as `Hits.sums` says."""
    return parts / _spread(whole, len(parts))


def _spread(whole: Float, lists: int) -> Float:
    """Give each list what divides it: its query's whole, not 0."""
    whole = np.maximum(whole, _TINY)
    if len(whole) == lists:
        return whole
    return np.broadcast_to(whole[:, None], (len(whole), lists // len(whole))).ravel()


def ordinal(groups: NDArray[np.integer]) -> Codes:
    """Return each entry's place within its run of equal neighbours, from 0: intp (n,)."""
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]])[: len(groups)])
    return np.arange(len(groups)) - np.repeat(starts, np.diff(starts, append=len(groups)))
