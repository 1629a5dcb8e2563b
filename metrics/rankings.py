"""Ranked lists as arrays, the one tie rule, and the collapse of chunks to documents.

Tie rule: score descending, compared as float32; then item code ascending, which is document id ascending as text (then
chunk start). Scores that are not finite come after every finite score. It is applied in `rank` and nowhere else.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

_SIGN = np.uint32(1 << 31)
_LOW = np.uint64((1 << 32) - 1)
_LAST = np.uint64((1 << 64) - 1)


@dataclass(frozen=True, slots=True, eq=False)
class Rankings:
    """One ranked list a query, best first; −1 and −inf pad the end of short lists.

    items: int32 (Q, K), document or chunk codes, each at most once a row. scores: float32 (Q, K), non-increasing;
    −inf also stands for a score that was not finite.
    """

    items: NDArray[np.int32]
    scores: NDArray[np.float32]

    def cut(self, k: int) -> "Rankings":
        """Return the first `k` of each list. Raises ValueError for a negative k."""
        if k < 0:
            raise ValueError(f"k must be 0 or more, got {k}")
        return Rankings(self.items[:, :k], self.scores[:, :k])

    @property
    def counts(self) -> NDArray[np.int64]:
        """Items in each list: int64 (Q,)."""
        counts: NDArray[np.int64] = np.sum(self.items >= 0, axis=1, dtype=np.int64)
        return counts


def check_score(value: object) -> float:
    """Return `value` as a float: Python and NumPy numbers pass, NaN and infinity too.

    Raises ValueError for everything else: True, text, and integers beyond a float.
    """
    if isinstance(value, float | int | np.floating | np.integer) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise ValueError(f"a score must be a number, got {value!r}")


def rank(items: ArrayLike, scores: ArrayLike, k: int | None = None) -> Rankings:
    """Order search results by the tie rule and cut them to `k` (default: keep all).

    items: integer (Q, N), −1 where there is none; it is dropped whatever its score. scores: real (Q, N), any order.
    A repeated item keeps its best score. Finite scores beyond float32 are held at its largest value.
    Raises ValueError for shapes that differ or are not two-dimensional, item codes below −1 and a negative k.
    """
    codes, values = np.asarray(items), np.asarray(scores)
    if codes.ndim != 2 or codes.shape != values.shape:
        raise ValueError(f"items and scores must have one shape (Q, N), got {codes.shape} and {values.shape}")
    if codes.size and codes.min() < -1:
        raise ValueError(f"item codes must be −1 (none) or more, got {codes.min()}")
    codes = codes.astype(np.int32, copy=False)
    keys = descending(values).astype(np.uint64) << np.uint64(32) | codes.view(np.uint32)
    keys[codes < 0] = _LAST
    keys.sort(axis=1)
    ranked = (keys & _LOW).astype(np.uint32).view(np.int32)
    ordered = _ascending((keys >> np.uint64(32)).astype(np.uint32))
    ordered[ranked < 0] = -np.inf
    result = _first_places(Rankings(ranked, ordered))
    return result if k is None else result.cut(k)


def collapse(rankings: Rankings, group: NDArray[np.int32]) -> Rankings:
    """Turn ranked chunks into ranked documents, each at the place and with the score of its best chunk.

    group: int32 (n,), the document code of each chunk code. The shape (Q, K) stays; freed places become padding.
    """
    if rankings.items.size and rankings.items.max() >= len(group):
        raise ValueError(f"chunk code {rankings.items.max()} is ranked, but only {len(group)} chunks have a document")
    if not len(group):
        return rankings
    documents = np.where(rankings.items >= 0, group[rankings.items], -1).astype(np.int32)
    return _first_places(Rankings(documents, rankings.scores))


def from_columns(count: int, rows: ArrayLike, items: ArrayLike, scores: ArrayLike) -> Rankings:
    """Build the rankings of `count` queries from columns (query code, item code, score), in any order.

    Raises ValueError for a query code outside 0…count−1 and as `rank`.
    """
    row = np.asarray(rows, dtype=np.int64)
    if row.size and not 0 <= row.min() <= row.max() < count:
        raise ValueError(f"query codes must be within 0…{count - 1}, got {row.min()}…{row.max()}")
    lengths = np.bincount(row, minlength=count)
    order = np.argsort(row, kind="stable")
    place = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    shape = (count, int(lengths.max(initial=0)))
    padded, values = np.full(shape, -1, dtype=np.int32), np.full(shape, -np.inf)
    padded[row[order], place] = np.asarray(items)[order]
    values[row[order], place] = np.asarray(scores)[order]
    return rank(padded, values)


def descending(scores: NDArray[np.floating]) -> NDArray[np.uint32]:
    """Map scores to uint32 that ascend as the scores descend; what is not finite counts as −inf."""
    finite = np.isfinite(scores)
    largest = np.finfo(np.float32).max
    values = np.where(finite, np.clip(scores, -largest, largest), -np.inf).astype(np.float32) + np.float32(0)  # no −0
    bits = values.view(np.uint32)
    return np.where(bits & _SIGN, bits, ~(bits | _SIGN))


def _ascending(keys: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Undo `descending`."""
    return np.where(keys & _SIGN, keys, ~keys & ~_SIGN).view(np.float32)


def _first_places(rankings: Rankings) -> Rankings:
    """Keep the first place of each item, close the gaps, pad the end."""
    items = rankings.items
    keys = items.astype(np.int64) << 32 | np.arange(items.shape[1])
    keys.sort(axis=1)
    row, at = np.nonzero((keys[:, 1:] >> 32 == keys[:, :-1] >> 32) & (keys[:, 1:] >= 0))
    if not row.size:  # padding is at the end already
        return rankings
    keep = items >= 0
    keep[row, keys[row, at + 1] & 0xFFFFFFFF] = False
    order = np.argsort(~keep, axis=1, kind="stable")
    return Rankings(
        np.take_along_axis(np.where(keep, items, np.int32(-1)), order, axis=1),
        np.take_along_axis(np.where(keep, rankings.scores, np.float32(-np.inf)), order, axis=1),
    )
