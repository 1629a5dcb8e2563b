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

NONE = np.iinfo(np.int32).max
"""The rank of what is not there."""

_SMALL = 1 << 14  # hits: fewer are added before SciPy is imported


class Chosen(NamedTuple):
    """Some of the hits. counts: int32 (n,), how many of each hit's list up to and with itself. firsts: int32 (lists,),
    the rank of the first of each list, `NONE` where there is none.
    """

    counts: NDArray[np.int32]
    firsts: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Hits:
    """The hits of many ranked lists, in compressed rows.

    indptr: int32 (lists + 1,); list i owns the entries indptr[i]:indptr[i + 1], ascending by rank. rank: int32 (n,),
    from 0. level: int32 (n,), the label's level, which is label − min + 1.
    """

    indptr: NDArray[np.int32]
    rank: NDArray[np.int32]
    level: NDArray[np.int32]

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
        firsts = np.full(self.lists, NONE)
        some = np.flatnonzero(before[self.indptr[1:]] > before[self.indptr[:-1]])
        firsts[some] = self.rank[np.flatnonzero(chosen)[before[self.indptr[some]]]]
        return Chosen(counts, firsts)

    def sums(self, weights: Float, cutoffs: Sequence[int], times: NDArray[np.integer] | None = None) -> Iterator[Float]:
        """Add up weights[rank, level], float64 (depth, levels), of each list's first k; one array for each cutoff.

        times: multiplies the weight of each hit. Yields float64 (lists,); it may be the same array, going on changing.
        """
        if len(cutoffs) > 1:
            return self._running(np.add, weights, cutoffs, 0.0, times)
        return iter([self._sum(weights, cutoffs[0], times)])

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
    def _by_rank(self) -> tuple[Codes, Codes, NDArray[np.int32], NDArray[np.int32]]:
        """The order that sorts the hits by rank, and their row, rank and index in that order."""
        ranks = self.rank.astype(np.uint16) if self.depth <= 1 << 16 else self.rank  # uint16 sorts by radix
        order = np.argsort(ranks, kind="stable")
        return order, self.row[order], self.rank[order], self._index[order]

    def _running(
        self,
        combine: np.ufunc,
        weights: Float,
        cutoffs: Sequence[int],
        start: float,
        times: NDArray[np.integer] | None = None,
    ) -> Iterator[Float]:
        """Go down the ranks once, from cutoff to cutoff."""
        order, row, rank, index = self._by_rank
        ends = np.searchsorted(rank, cutoffs)
        terms = self._table(weights).take(index[: ends[-1]])
        if times is not None:
            terms *= times[order[: ends[-1]]]
        values, done = np.full(self.lists, start), 0
        for end in ends.tolist():
            combine.at(values, row[done:end], terms[done:end])
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


def ordinal(groups: NDArray[np.integer]) -> Codes:
    """Return each entry's place within its run of equal neighbours, from 0: intp (n,)."""
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]])[: len(groups)])
    return np.arange(len(groups)) - np.repeat(starts, np.diff(starts, append=len(groups)))
