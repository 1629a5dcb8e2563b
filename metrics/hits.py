"""Judged documents and the ranks where they stand: all that a measure reads of a ranking.

Most ranked documents are unjudged and earn nothing, so measures work on the hits alone. The hits of a list are added in
rank order and by themselves, so a value is the same bit for bit whatever else is computed beside it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Codes = NDArray[np.intp]

NONE = np.iinfo(np.int32).max
"""The rank of what is not there."""

_FEW = 16  # cutoffs: more are faster in one pass down the ranks
_SMALL = 1 << 16  # hits: fewer are added before SciPy is imported


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

    def count(self, chosen: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Count the chosen hits, bool (n,), of each hit's list up to and with itself: int32 (n,)."""
        before = np.zeros(len(chosen) + 1, np.int32)
        np.cumsum(chosen, out=before[1:])
        return before[1:] - np.repeat(before[self.indptr[:-1]], np.diff(self.indptr))

    def first(self, chosen: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Return the rank of the first chosen hit, bool (n,), of each list, `NONE` where there is none: int32 (lists,)."""
        return self._reduced(np.minimum, np.where(chosen, self.rank, NONE), NONE)

    def sums(self, weights: Float, cutoffs: Sequence[int], times: NDArray[np.integer] | None = None) -> Iterator[Float]:
        """Add up weights[rank, level], float64 (depth, levels), of each list's first k; one array for each cutoff.

        times: multiplies the weight of each hit. Yields float64 (lists,); it may be the same array, going on changing.
        """
        if len(cutoffs) > _FEW:
            return self._running(np.add, self._terms(weights, times), cutoffs, 0.0)
        return self._products(weights, cutoffs, times)

    def largest(self, weights: Float, cutoffs: Sequence[int], start: float) -> Iterator[Float]:
        """Take the greatest of `start` and weights[rank, level] of each list's first k; otherwise as `sums`."""
        terms = self._terms(weights, None)
        if len(cutoffs) > _FEW:
            return self._running(np.maximum, terms, cutoffs, start)
        kept = (np.where(self.rank < cutoff, terms, start) for cutoff in cutoffs)
        return (np.maximum(self._reduced(np.maximum, of, start), start) for of in kept)

    def _reduced(self, combine: np.ufunc, values: NDArray[Any], empty: float) -> NDArray[Any]:
        """Combine the values (n,) of each list; `empty` for a list without hits."""
        result = np.full(self.lists, empty, values.dtype)
        some = np.flatnonzero(self.indptr[1:] > self.indptr[:-1])
        if some.size:
            result[some] = combine.reduceat(values, self.indptr[some])
        return result

    @cached_property
    def _index(self) -> NDArray[np.int32]:
        return self.rank * np.int32(self.level.max(initial=0) + 1) + self.level

    def _table(self, weights: Float) -> Float:
        """Cut a table of weights to the levels that occur, as `_index` counts them: float64 (depth · levels,)."""
        levels = int(self.level.max(initial=0)) + 1
        return np.broadcast_to(weights[..., :levels], (self.depth, levels)).ravel()

    def _terms(self, weights: Float, times: NDArray[np.integer] | None) -> Float:
        terms: Float = self._table(weights).take(self._index)
        return terms if times is None else terms * times

    def _products(self, weights: Float, cutoffs: Sequence[int], times: NDArray[np.integer] | None) -> Iterator[Float]:
        table, within = self._table(weights).reshape(self.depth, -1, 1), np.arange(self.depth)[:, None, None]
        columns = np.where(within < cutoffs, table, 0.0).reshape(-1, len(cutoffs))
        if len(self.rank) < _SMALL:  # both ways add in the order of the entries
            terms = columns.take(self._index, axis=0) * (1 if times is None else times[:, None])
            return (np.bincount(self.row, of, minlength=self.lists).astype(np.float64) for of in terms.T)
        from scipy import sparse

        data = self._ones if times is None else times.astype(np.float64)
        matrix = sparse.csr_array((data, self._index, self.indptr), shape=(self.lists, len(columns)))
        return iter(np.ascontiguousarray((matrix @ columns).T))

    @cached_property
    def _ones(self) -> Float:
        return np.ones(len(self.rank))

    @cached_property
    def _by_rank(self) -> tuple[Codes, Codes, NDArray[np.int32]]:
        """The order that sorts the hits by rank, and row and rank in that order."""
        ranks = self.rank.astype(np.uint16) if self.depth <= 1 << 16 else self.rank  # uint16 sorts by radix
        order = np.argsort(ranks, kind="stable")
        return order, self.row[order], self.rank[order]

    def _running(self, combine: np.ufunc, terms: Float, cutoffs: Sequence[int], start: float) -> Iterator[Float]:
        order, row, rank = self._by_rank
        terms, values, done = terms[order], np.full(self.lists, start), 0
        for end in np.searchsorted(rank, cutoffs):
            combine.at(values, row[done:end], terms[done:end])
            done = end
            yield values


def ordinal(groups: NDArray[np.integer]) -> Codes:
    """Return each entry's place within its run of equal neighbours, from 0: intp (n,)."""
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]])[: len(groups)])
    return np.arange(len(groups)) - np.repeat(starts, np.diff(starts, append=len(groups)))
