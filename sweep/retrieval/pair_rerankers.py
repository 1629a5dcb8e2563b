"""Rerankers that score a query and a passage together: cross-encoder and late interaction.

Scores are kept by (query, passage) text, so that no pair is scored twice whatever the chunk size, pool or top_k.
"""

__all__ = ["CrossEncoderReranker", "LateInteractionReranker", "PairReranker"]

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.artifacts import Rows, digest_texts, fingerprint
from sweep.errors import ModelError
from sweep.retrieval.embedding import SentenceTransformerEncoder, batches, batches_under_way, several_at_once
from sweep.retrieval.models import Model, load, precision
from sweep.retrieval.reranking import DECIMALS, Advance, Codes, Pairs, Scored
from sweep.retrieval.vectors import Floats

_SAVE_EVERY = 256  # pairs
PAIR_SPECIAL = 3  # [CLS] query [SEP] passage [SEP]


class PairReranker(ABC):
    """A reranker whose model gives a score to a query and a passage together; the scores are kept by pair."""

    reads_apart = False  # whether it reads a passage by itself, so that one more query for it costs little

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Changes whenever the scores would."""

    @property
    @abstractmethod
    def parallel(self) -> int:
        """How many batches to have under way at once."""

    @abstractmethod
    def plan(self, queries: Sequence[str], passages: Sequence[str], pairs: Pairs) -> list[Codes]:
        """Split the positions of `pairs` (m, 2: query, passage) into batches that `score` takes."""

    @abstractmethod
    def score(self, queries: Sequence[str], passages: Sequence[str], pairs: Pairs) -> Floats:
        """Return one score a pair of one batch, float32 (m,); greater is more relevant."""

    @property
    def table(self) -> tuple[str, str]:
        """One row a pair."""
        return "pairs", self.fingerprint

    def score_pairs(
        self,
        rows: Rows,
        queries: Sequence[str],
        passages: Sequence[str],
        pairs: Pairs,
        ahead: Callable[[], Pairs],
        advance: Advance,
    ) -> Scored:
        """Score the pairs that the table lacks, and those ahead whose passage is read for one of them."""
        asked, read = digest_texts(queries, "query\0"), digest_texts(passages, "passage\0")
        wanted = len(pairs)
        if self.reads_apart:
            lacking = pairs[~rows.contains(_digests(asked, read, pairs)), 1]
            more = ahead() if len(lacking) else pairs[:0]
            pairs = np.concatenate([pairs, more[np.isin(more[:, 1], lacking)]])

        def compute(missing: Codes) -> Iterator[tuple[Codes, Floats]]:
            plan = self.plan(queries, passages, pairs[missing])
            done: list[Codes] = []
            scores: list[Floats] = []

            def score(batch: Codes) -> Floats:
                return self.score(queries, passages, pairs[missing[batch]])

            for number, (batch, found) in enumerate(several_at_once(score, plan, self.parallel), 1):
                done.append(missing[batch])
                scores.append(_finite(np.round(found, DECIMALS)))
                advance(int((done[-1] < wanted).sum()))
                if sum(map(len, done)) >= _SAVE_EVERY or number == len(plan):
                    yield np.concatenate(done), np.concatenate(scores)[:, None]
                    done, scores = [], []

        values, missing = rows.fill(_digests(asked, read, pairs), compute)
        return Scored(values[:wanted].reshape(-1), len(missing), len(np.unique(pairs[missing, 1])))

    def fresh(self, query: str, passages: Sequence[str]) -> Floats:
        """Return the scores float32 (n,) of one query's passages, with nothing read from a table or kept."""
        pairs = np.stack([np.zeros(len(passages), np.int64), np.arange(len(passages))], axis=1)
        scores = np.empty(len(passages), np.float32)
        for batch in self.plan([query], passages, pairs):
            scores[batch] = self.score([query], passages, pairs[batch])
        return scores


class LateInteractionReranker(PairReranker):
    """MaxSim over an encoder's token vectors: for each query token its best passage token, averaged over the query.

    Khattab and Zaharia, "ColBERT" (2020), here over the vectors of an ordinary encoder, without training.
    """

    reads_apart = True

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

    def plan(self, queries: Sequence[str], passages: Sequence[str], pairs: Pairs) -> list[Codes]:
        """Return the pairs of passages of equal length together, so that a passage is read once for all its queries."""
        used, where = np.unique(pairs[:, 1], return_inverse=True)
        prompt = self._encoder.prompt("passage")
        tokens = self._encoder.count_tokens([prompt + passages[i] for i in used])
        order = np.argsort(where, kind="stable")
        ends = np.searchsorted(where[order], np.arange(len(used) + 1))
        plan = []
        for batch in self._encoder.batches(tokens):
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


class CrossEncoderReranker(PairReranker):
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

    def plan(self, queries: Sequence[str], passages: Sequence[str], pairs: Pairs) -> list[Codes]:
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
        return load(self._model, "CrossEncoder", precision())


def _digests(queries: npt.NDArray[Any], passages: npt.NDArray[Any], pairs: Pairs) -> npt.NDArray[Any]:
    """Return the 16-byte digest of each pair, V16 (m,), from those of its query and its passage."""
    words = queries.view(np.uint64).reshape(-1, 2)[pairs[:, 0]] ^ passages.view(np.uint64).reshape(-1, 2)[pairs[:, 1]]
    return np.ascontiguousarray(words).view("V16").reshape(-1)


def _finite(scores: Floats) -> Floats:
    if not np.isfinite(scores).all():
        raise ModelError("the reranker gave a score that is not finite")
    return scores
