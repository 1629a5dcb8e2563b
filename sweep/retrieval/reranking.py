"""Semantic reranking: a candidate pool, scored by a model that reads query and passage together.

Scores are kept by (query, passage) text, so that no pair is scored twice whatever the chunk size, pool or top_k.
"""

__all__ = ["CrossEncoderReranker", "LateInteractionReranker", "Reranker", "rerank"]

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from metrics import Rankings, rank
from sweep.artifacts import Rows, digest_texts, fingerprint
from sweep.errors import ModelError
from sweep.retrieval.embedding import SentenceTransformerEncoder, batches, batches_under_way, precision, several_at_once
from sweep.retrieval.models import Model, without_loading_bar

Floats = npt.NDArray[np.float32]
Pairs = npt.NDArray[np.int64]
DECIMALS = 5
_SAVE_EVERY = 256  # pairs
PAIR_SPECIAL = 3  # [CLS] query [SEP] passage [SEP]


class Reranker(Protocol):
    """What scores pairs of a query and a passage."""

    @property
    def fingerprint(self) -> str:
        """Changes whenever the scores would."""

    @property
    def parallel(self) -> int:
        """How many batches to have under way at once."""

    def plan(self, queries: Sequence[str], passages: Sequence[str], pairs: Pairs) -> list[npt.NDArray[np.int64]]:
        """Split the positions of `pairs` (m, 2: query, passage) into batches that `score` takes."""

    def score(self, queries: Sequence[str], passages: Sequence[str], pairs: Pairs) -> Floats:
        """Return one score a pair of one batch, float32 (m,); greater is more relevant."""


class LateInteractionReranker:
    """MaxSim over an encoder's token vectors: for each query token its best passage token, averaged over the query.

    Khattab and Zaharia, "ColBERT" (2020), here over the vectors of an ordinary encoder, without training.
    """

    def __init__(self, encoder: SentenceTransformerEncoder) -> None:
        self._encoder = encoder
        self._queries: dict[str, Floats] = {}

    @property
    def fingerprint(self) -> str:
        """Hash of the encoder and this way of scoring."""
        return fingerprint("late-interaction", self._encoder.fingerprint)

    @property
    def parallel(self) -> int:
        """As the encoder's."""
        return self._encoder.parallel

    def plan(self, queries: Sequence[str], passages: Sequence[str], pairs: Pairs) -> list[npt.NDArray[np.int64]]:
        """Return the pairs of passages of equal length together, so that a passage is read once for all its queries."""
        used, where = np.unique(pairs[:, 1], return_inverse=True)
        tokens = self._encoder.count_tokens([passages[i] for i in used])
        limit = self._encoder.limit
        order = np.argsort(where, kind="stable")
        ends = np.searchsorted(where[order], np.arange(len(used) + 1))
        plan = []
        for batch in batches(tokens if limit is None else np.minimum(tokens, limit)):
            plan.append(np.concatenate([order[ends[i] : ends[i + 1]] for i in batch]))
        return plan

    def score(self, queries: Sequence[str], passages: Sequence[str], pairs: Pairs) -> Floats:
        """Return the mean over query tokens of the greatest cosine with a passage token, float32 (m,)."""
        used, where = np.unique(pairs[:, 1], return_inverse=True)
        read = self._encoder.token_vectors([passages[i] for i in used], "passage")
        scores = np.empty(len(pairs), np.float32)
        for at, (query, passage) in enumerate(zip(pairs[:, 0].tolist(), where.tolist(), strict=True)):
            scores[at] = (self._query(queries[query]) @ read[passage].T).max(axis=1).mean()
        return scores

    def _query(self, text: str) -> Floats:
        if text not in self._queries:
            self._queries[text] = self._encoder.token_vectors([text], "query")[0]
        return self._queries[text]


class CrossEncoderReranker:
    """A sentence-transformers cross-encoder, loaded when the first pair needs it."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def fingerprint(self) -> str:
        """Hash of the model's files and the precision."""
        return fingerprint("cross-encoder", self._model.fingerprint, precision())

    @property
    def parallel(self) -> int:
        """One batch a core, as an encoder's."""
        return batches_under_way(self._loaded)

    def plan(self, queries: Sequence[str], passages: Sequence[str], pairs: Pairs) -> list[npt.NDArray[np.int64]]:
        """Return pairs of equal token length together, so that a pair's score does not depend on its batch."""
        encoded = self._model.tokenizer.encode_batch([(queries[q], passages[p]) for q, p in pairs.tolist()])
        tokens = np.array([len(e.ids) for e in encoded], np.int32)
        limit = self._model.limit
        return list(map(np.array, batches(tokens if limit is None else np.minimum(tokens, limit + PAIR_SPECIAL))))

    def score(self, queries: Sequence[str], passages: Sequence[str], pairs: Pairs) -> Floats:
        """Return the model's relevance scores, float32 (m,)."""
        inputs = [(queries[q], passages[p]) for q, p in pairs.tolist()]
        scores = self._loaded.predict(inputs, batch_size=len(inputs), show_progress_bar=False, convert_to_tensor=True)
        if scores.ndim != 1:
            raise ModelError(f"{self._model.name}: gives {scores.shape[1]} scores a pair; a reranker gives one")
        return np.asarray(scores.float().cpu().numpy(), np.float32)

    @cached_property
    def _loaded(self) -> Any:
        import torch
        from sentence_transformers import CrossEncoder

        options = {"dtype": getattr(torch, precision()), "use_safetensors": True}
        try:
            with without_loading_bar():
                return CrossEncoder(str(self._model.folder), model_kwargs=options, local_files_only=True)
        except Exception as fault:
            raise ModelError(f"{self._model.name}: cannot be loaded as a cross-encoder: {fault}") from fault


def rerank(
    reranker: Reranker,
    rows: Rows,
    queries: Sequence[str],
    texts: Callable[[npt.NDArray[np.int64]], list[str]],
    pool: Rankings,
    advance: Callable[[int], None] = lambda pairs: None,
) -> tuple[Rankings, int, int]:
    """Return (the pool in the reranker's order, pairs scored now, distinct passages read for them).

    `texts` gives the texts of chunk codes. `advance` is told the pairs of each batch. Raises ModelError for a score
    that is not finite.
    """
    query, place = np.nonzero(pool.items >= 0)
    chunks, passage = np.unique(pool.items[query, place].astype(np.int64), return_inverse=True)
    passages = texts(chunks)
    pairs = np.stack([query, passage], axis=1)
    digests = digest_texts([f"{len(queries[q])} {queries[q]}{passages[p]}" for q, p in pairs.tolist()])

    def compute(missing: npt.NDArray[np.int64]) -> Iterator[tuple[npt.NDArray[np.int64], Floats]]:
        plan = reranker.plan(queries, passages, pairs[missing])
        done: list[npt.NDArray[np.int64]] = []
        scores: list[Floats] = []

        def score(batch: npt.NDArray[np.int64]) -> Floats:
            return reranker.score(queries, passages, pairs[missing[batch]])

        scored = several_at_once(score, plan, reranker.parallel)
        for number, (batch, found) in enumerate(zip(plan, scored, strict=True), 1):
            done.append(missing[batch])
            scores.append(_finite(np.round(found, DECIMALS)))
            advance(len(batch))
            if sum(map(len, done)) >= _SAVE_EVERY or number == len(plan):
                yield np.concatenate(done), np.concatenate(scores)[:, None]
                done, scores = [], []

    scores, missing = rows.fill(digests, compute)
    reranked = np.full(pool.items.shape, -np.inf, np.float32)
    if len(pairs):
        reranked[query, place] = scores[:, 0]
    return rank(pool.items, reranked), len(missing), len(np.unique(pairs[missing, 1]))


def _finite(scores: Floats) -> Floats:
    if not np.isfinite(scores).all():
        raise ModelError("the reranker gave a score that is not finite")
    return scores
