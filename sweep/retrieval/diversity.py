"""Less of the same among the results: maximal marginal relevance, and at most so many chunks of a document."""

__all__ = ["at_most_per_document", "maximal_marginal_relevance"]

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from metrics import Rankings
from metrics.hits import ordinal
from sweep.retrieval.vectors import Floats

_BLOCK = 1 << 14  # chunks whose vectors are held at a time
_DECIMALS = 6  # so that the order of additions in a product decides nothing


def maximal_marginal_relevance(
    ranking: Rankings,
    relevance: npt.NDArray[np.floating],
    vectors_of: Callable[[npt.NDArray[np.int64]], Floats],
    *,
    balance: float,
    pool: int,
    top_k: int,
) -> Rankings:
    """Choose `top_k` of the first `pool` chunks of each query, one after the other.

    Each time the chunk with the greatest balance · relevance − (1 − balance) · its greatest cosine with a chunk chosen
    before; the first by relevance alone; of equals the one ranked first. relevance: of the chunk at each place, on a
    scale like the cosine's, (Q, as wide as the pool or wider); it should depend on the pool alone. vectors_of: chunk
    codes (m,) → unit vectors (m, d). The scores of the result are 1, 1/2, 1/3, …: they say the order and nothing else.
    Carbonell and Goldstein, "The Use of MMR, Diversity-Based Reranking for Reordering Documents and Producing
    Summaries" (SIGIR 1998).
    """
    items = ranking.items[:, :pool]
    gains = np.where(items >= 0, relevance[:, : items.shape[1]], 0)
    rows, width = items.shape
    chosen = np.full((rows, min(top_k, width)), -1, np.int32)
    step = max(1, _BLOCK // max(1, width))
    for part in (slice(at, at + step) for at in range(0, rows, step)):
        if (items[part] >= 0).any():
            chosen[part] = _choose(items[part], gains[part], vectors_of, balance, chosen.shape[1])
    places = 1 / np.arange(1, chosen.shape[1] + 1, dtype=np.float32)
    return Rankings(chosen, np.where(chosen >= 0, places, np.float32(-np.inf)))


def _choose(
    items: npt.NDArray[np.int32],
    gains: npt.NDArray[np.floating],
    vectors_of: Callable[[npt.NDArray[np.int64]], Floats],
    balance: float,
    count: int,
) -> npt.NDArray[np.int32]:
    """Choose `count` for each query of a block, a place at a time: int32 (Q, count)."""
    left = items >= 0
    codes, where = np.unique(np.where(left, items, items.max()), return_inverse=True)
    vectors = vectors_of(codes.astype(np.int64))[where.reshape(items.shape)]
    rows = np.arange(len(items))
    chosen = np.full((len(items), count), -1, np.int32)
    likest = np.full(items.shape, -np.inf, np.float32)  # the greatest cosine with what was chosen
    for place in range(count):
        worth = np.round(balance * gains - (1 - balance) * likest if place else gains, _DECIMALS)
        best = np.where(left, worth, -np.inf).argmax(axis=1)
        chosen[:, place] = np.where(left[rows, best], items[rows, best], -1)
        left[rows, best] = False
        cosine = np.matmul(vectors, vectors[rows, best][:, :, None])[:, :, 0]
        likest = np.maximum(likest, cosine)
    return chosen


def at_most_per_document(ranking: Rankings, document: npt.NDArray[np.int32], n: int) -> Rankings:
    """Leave out the chunks of a document after its first `n` in each list; the order stays.

    document: int32 (chunks,), the document of each chunk.
    """
    row, place = np.nonzero(ranking.items >= 0)
    group = row.astype(np.int64) << 32 | document[ranking.items[row, place]]
    order = np.argsort(group, kind="stable")
    kept = np.sort(order[ordinal(group[order]) < n])
    row, place = row[kept], place[kept]
    result = np.full(ranking.items.shape, -1, np.int32), np.full(ranking.items.shape, -np.inf, np.float32)
    result[0][row, ordinal(row)] = ranking.items[row, place]
    result[1][row, ordinal(row)] = ranking.scores[row, place]
    return Rankings(*result)
