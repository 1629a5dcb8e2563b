"""Judged documents and the ranks where they stand: all that a measure reads of a ranking.

Most ranked documents are unjudged and earn nothing, so measures work on the hits alone. Hits are added in rank order,
list by list, so a value depends on its own list only and is the same bit for bit in whatever company it is computed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Codes = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Hits:
    """The hits of many ranked lists, ascending by rank; made by `of`.

    lists: number of lists. row, rank, level: intp (n,): the list of each hit, its rank from 0, and its label's level,
    which is label − min + 1. order: intp (n,), where each hit stood when those of one list stood together.
    """

    lists: int
    row: Codes
    rank: Codes
    level: Codes
    order: Codes

    @classmethod
    def of(cls, lists: int, row: Codes, rank: Codes, level: NDArray[np.integer]) -> "Hits":
        """Sort hits by rank; those of one list are given together, themselves by rank."""
        short = len(rank) == 0 or int(rank.max()) < 1 << 16  # then NumPy sorts by radix
        order = np.argsort(rank.astype(np.uint16) if short else rank, kind="stable")
        return cls(lists, row[order], rank[order], level[order].astype(np.intp), order)

    @property
    def depth(self) -> int:
        """The greatest rank plus 1, at least 1."""
        return int(self.rank[-1]) + 1 if len(self.rank) else 1

    def within(self, depth: int) -> "Hits":
        """Return the hits among the first `depth` ranks."""
        return self._part(slice(int(np.searchsorted(self.rank, depth))))

    def only(self, chosen: NDArray[np.bool_]) -> "Hits":
        """Return the chosen hits, bool (n,), alone."""
        return self._part(np.flatnonzero(chosen))

    def _part(self, at: slice | Codes) -> "Hits":
        return Hits(self.lists, self.row[at], self.rank[at], self.level[at], self.order[at])

    def condensed(self) -> "Hits":
        """Return the same hits moved up until the gaps between them are closed."""
        at = self._together
        return Hits.of(self.lists, self.row[at], self.nth[at], self.level[at])

    @cached_property
    def nth(self) -> Codes:
        """The place of each hit among the hits of its list, from 0: intp (n,)."""
        at = self._together
        places = np.empty_like(at)
        places[at] = ordinal(self.row[at])
        return places

    @cached_property
    def _together(self) -> Codes:
        """The order in which the hits of one list stand together: intp (n,)."""
        places = np.full(int(self.order.max(initial=-1)) + 1, -1)
        places[self.order] = np.arange(len(self.order))
        return places[places >= 0]

    def running(
        self, terms: Float, cutoffs: Sequence[int], combine: np.ufunc = np.add, start: float = 0.0
    ) -> Iterator[Float]:
        """Combine the terms (n,) of each list's hits down the ranks; yield float64 (lists,) at each ascending cutoff.

        The array that is yielded is the same one each time and goes on changing.
        """
        values, done = np.full(self.lists, start), 0
        for end in np.searchsorted(self.rank, cutoffs):
            combine.at(values, self.row[done:end], terms[done:end])
            done = end
            yield values

    def total(self, terms: Float) -> Float:
        """Sum the terms (n,) of each list: float64 (lists,)."""
        return np.bincount(self.row, terms, minlength=self.lists).astype(np.float64)


def ordinal(groups: NDArray[np.integer]) -> Codes:
    """Return each entry's place within its run of equal neighbours, from 0: intp (n,)."""
    starts = np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]])[: len(groups)])
    return np.arange(len(groups)) - np.repeat(starts, np.diff(starts, append=len(groups)))
