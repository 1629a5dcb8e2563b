"""Semantic reranking: a candidate pool, put into another order by a stronger model.

`pair_rerankers` has the models that score pairs, which are kept by (query, passage) text. Another encoder needs no
pairs: its vectors are kept by text, as all are.
"""

__all__ = ["EncoderReranker", "Reranker", "Scored", "rerank"]

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from metrics import Rankings, rank
from sweep.artifacts import Rows
from sweep.retrieval.embedding import Encoder, embed
from sweep.retrieval.vectors import Floats, unit

Codes = npt.NDArray[np.int64]
Pairs = npt.NDArray[np.int64]
Advance = Callable[[int], None]
DECIMALS = 5
_BLOCK = 1 << 12  # pairs whose vectors are held at a time
_LOW = 0xFFFFFFFF


class Scored(NamedTuple):
    """The scores of pairs, float32 (m,), greater is more relevant, and what had to be computed for them."""

    scores: Floats
    pairs: int  # that a model scored now
    passages: int  # distinct ones that a model read now


class Reranker(Protocol):
    """What scores pairs of a query and a passage, keeping what it computes."""

    @property
    def table(self) -> tuple[str, str]:
        """The stage and the key of the table that keeps its results; the key changes whenever the scores would."""

    def score_pairs(
        self,
        rows: Rows,
        queries: Sequence[str],
        passages: Sequence[str],
        pairs: Pairs,
        ahead: Callable[[], Pairs],
        advance: Advance,
    ) -> Scored:
        """Score `pairs` (m, 2: query, passage), reading from and adding to its table.

        ahead: gives further pairs, which may be scored and kept where that costs little. advance: see `rerank`. Raises
        ModelError for what is not finite.
        """


class EncoderReranker:
    """The cosine of another encoder's query and passage vectors, which stand in that encoder's own table.

    So a passage is embedded once for it, whether a reranker or a vector search asks first.
    """

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    @property
    def table(self) -> tuple[str, str]:
        """The encoder's vectors, one row a text."""
        return "vectors", self._encoder.fingerprint

    def score_pairs(
        self,
        rows: Rows,
        queries: Sequence[str],
        passages: Sequence[str],
        pairs: Pairs,
        ahead: Callable[[], Pairs],
        advance: Advance,
    ) -> Scored:
        """Embed what the table lacks; nothing is done ahead."""
        read, new, _ = embed(self._encoder, rows, passages, "passage", advance)
        asked, _, _ = embed(self._encoder, rows, queries, "query", advance)
        return Scored(_cosines(unit(asked), unit(read), pairs), 0, new)


def rerank(
    reranker: Reranker,
    rows: Rows,
    queries: Sequence[str],
    texts: Callable[[Codes], list[str]],
    pool: Rankings,
    ahead: Sequence[Rankings] = (),
    advance: Advance = lambda done: None,
) -> tuple[Rankings, int, int]:
    """Return (the pool in the reranker's order, pairs that a model scored now, distinct passages that it read now).

    rows: the reranker's table. texts: chunk codes → their texts. ahead: rankings of the same chunks and queries that
    later pools may be taken from. Where a passage has to be read anyway, late interaction scores it for their queries
    too, and so reads each passage once for all of them; it does not change the result. advance: told the pairs of the
    pool in each batch that is done; by an `EncoderReranker`, the tokens. Raises ModelError for a score that is not
    finite.
    """
    query, place = np.nonzero(pool.items >= 0)
    chunks, passage = np.unique(pool.items[query, place].astype(np.int64), return_inverse=True)
    pairs = np.stack([query, passage], axis=1)
    result = reranker.score_pairs(rows, queries, texts(chunks), pairs, lambda: _later(ahead, chunks), advance)
    reranked = np.full(pool.items.shape, -np.inf, np.float32)
    reranked[query, place] = result.scores
    return rank(pool.items, reranked), result.pairs, result.passages


def _later(rankings: Sequence[Rankings], chunks: Codes) -> Pairs:
    """Return the pairs (m, 2: query, place in `chunks`) that rankings hold, of these chunks alone."""
    keys = [np.empty(0, np.int64)]
    for ranking in rankings:
        query, place = np.nonzero(ranking.items >= 0)
        keys.append(query.astype(np.int64) << 32 | ranking.items[query, place])
    distinct = np.unique(np.concatenate(keys))
    distinct = distinct[np.isin(distinct & _LOW, chunks)]
    return np.stack([distinct >> 32, np.searchsorted(chunks, distinct & _LOW)], axis=1)


def _cosines(queries: Floats, passages: Floats, pairs: Pairs) -> Floats:
    """Return the inner product of each pair's unit vectors, float32 (m,)."""
    cosines = np.empty(len(pairs), np.float32)
    for at in range(0, len(pairs), _BLOCK):
        query, passage = pairs[at : at + _BLOCK].T
        cosines[at : at + _BLOCK] = np.einsum("md,md->m", queries[query], passages[passage])
    return np.round(cosines, DECIMALS)
