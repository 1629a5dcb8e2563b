"""The rankings of keyword and vector search → one, by ranks or by scores."""

__all__ = ["fuse", "normalized"]

import numpy as np
import numpy.typing as npt

from metrics import Rankings, rank

Doubles = npt.NDArray[np.float64]
_LOW = 0xFFFFFFFF


def fuse(
    keyword: Rankings,
    vector: Rankings,
    *,
    method: str = "rrf",
    vector_weight: float = 0.5,
    constant: int = 60,
    normalization: str = "min-max",
) -> Rankings:
    """Return the chunks of both rankings by (1 − w) · keyword's part + w · vector's; ties in ascending chunk code.

    "rrf": a part is 1 / (constant + rank), rank from 1. Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion
    outperforms Condorcet and individual rank learning methods" (2009), who use the constant 60. "convex": a part is the
    score, `normalized` over the ranking. Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval"
    (2023). A chunk that a ranking lacks gets nothing from it. A weight of 0 or 1 gives the one ranking alone, scores
    and all.
    """
    if vector_weight in (0, 1):
        return vector if vector_weight else keyword
    parts = [
        np.broadcast_to(weight / (constant + np.arange(1, r.items.shape[1] + 1)), r.items.shape)
        if method == "rrf"
        else weight * normalized(r, normalization)
        for r, weight in ((keyword, 1 - vector_weight), (vector, vector_weight))
    ]
    return _added(np.hstack([keyword.items, vector.items]), np.hstack(parts))


def _added(items: npt.NDArray[np.int32], parts: Doubles) -> Rankings:
    """Rank (Q, N) items by the sum of their parts, where a row holds an item at most twice."""
    keys = items.astype(np.int64) << 32 | np.arange(items.shape[1])
    keys.sort(axis=1)  # the two places of an item become neighbours
    codes = keys >> 32
    total = np.take_along_axis(parts, keys & _LOW, axis=1)
    twice = codes[:, 1:] == codes[:, :-1]
    total[:, :-1] += np.where(twice, total[:, 1:], 0.0)
    codes[:, 1:][twice] = -1  # `rank` would keep the greater, the sum, and take longer
    fused = rank(codes, total)
    return fused.cut(int(fused.counts.max(initial=0)))


def normalized(ranking: Rankings, method: str = "min-max") -> Doubles:
    """Return the scores (Q, K) on one scale for all searches, float64, finite, from 0; 0 where there is no chunk.

    "min-max": 0…1 between the least and the greatest of the query's list. "z-score": how many standard deviations above
    the least of the list. That orders a fusion as plain z-scores do when a chunk absent from a list has the list's
    least: both differ by one constant a list. 1 for all where they are equal, as one lone hit is, so that it still
    counts for more than being absent. A score that is not finite counts as absent.
    """
    there = (ranking.items >= 0) & np.isfinite(ranking.scores)
    scores = np.where(there, ranking.scores, 0).astype(np.float64)
    most = np.where(there, scores, -np.inf).max(axis=1, initial=-np.inf, keepdims=True)
    least = np.where(there, scores, np.inf).min(axis=1, initial=np.inf, keepdims=True)
    apart = most > least
    if method == "min-max":
        width = np.where(apart, most - least, 1.0)
    else:
        count = np.maximum(there.sum(axis=1, keepdims=True), 1)
        mean = scores.sum(axis=1, keepdims=True) / count
        spread = np.sqrt(np.where(there, (scores - mean) ** 2, 0).sum(axis=1, keepdims=True) / count)
        width = np.where(apart & (spread > 0), spread, 1.0)
    above = scores - np.where(np.isfinite(least), least, 0.0)
    return np.where(there, np.where(apart, above / width, 1.0), 0.0)
