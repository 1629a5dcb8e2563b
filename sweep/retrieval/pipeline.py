"""Configuration + collection → rankings: searches ─► fusion ─► reranking ─► top_k ─► documents."""

__all__ = ["Pipeline", "Result"]

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from metrics import Rankings, collapse
from sweep.artifacts import Artifact, Store, fingerprint
from sweep.collection.collection import Collection
from sweep.retrieval.chunking import context_tokens
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.fusion import reciprocal_rank_fusion
from sweep.retrieval.models import find_model
from sweep.retrieval.progress import Progress, Silent
from sweep.retrieval.reranking import CrossEncoderReranker, LateInteractionReranker, Reranker, rerank
from sweep.retrieval.stages import Stages, Work, median_ms

_SILENT = Silent()
_TIMED_RERANKS = 2


@dataclass(frozen=True, slots=True)
class Result:
    """What one configuration returned for every query of the collection.

    chunks: Rankings of chunk codes (Q, top_k). documents: the same collapsed to document codes. context_tokens:
    int64 (Q,). latency_ms: median time of one query, encoding included. index_bytes, rerank_pairs (a query) and
    truncated (share of chunks) describe its cost.
    """

    chunks: Rankings
    documents: Rankings
    context_tokens: npt.NDArray[np.int64]
    latency_ms: float
    index_bytes: int
    rerank_pairs: int
    truncated: float


class Pipeline:
    """Runs configurations on one collection; `stages` holds what they share.

    store: where results are kept. tokenizer: the model whose tokens chunk sizes count. folder: what paths of models
    are relative to.
    """

    def __init__(
        self,
        collection: Collection,
        store: Store,
        tokenizer: str,
        *,
        allow_truncation: bool = False,
        folder: Path = Path(),
        progress: Progress = _SILENT,
    ) -> None:
        self.collection, self.folder, self.progress = collection, folder, progress
        self.stages = Stages(
            collection, store, tokenizer, allow_truncation=allow_truncation, folder=folder, progress=progress
        )
        self._rerankers = lru_cache(maxsize=4)(self._make_reranker)

    @property
    def work(self) -> Work:
        """What was asked for so far, and what had to be computed."""
        return self.stages.work

    def run(self, c: Configuration) -> Result:
        """Search every query as the configuration says.

        Raises SettingsError for chunks that the encoder would cut short, unless that is allowed.
        """
        chunks = self.stages.chunks(c.chunk_size, c.chunk_overlap)
        parts = [self.stages.search(c, search) for search in c.searches]
        ranking = parts[0][0]
        if c.rrf_k is not None:
            ranking = reciprocal_rank_fusion(tuple(part.cut(c.fusion_depth or 0) for part, _ in parts), c.rrf_k)
        latency = sum(float(facts["ms"]) for _, facts in parts)
        if c.algorithm == "semantic":
            ranking, more = self._reranked(c, ranking)
            latency += more
        ranking = ranking.cut(c.top_k)
        return Result(
            chunks=ranking,
            documents=collapse(ranking, chunks.doc),
            context_tokens=context_tokens(chunks, ranking.items),
            latency_ms=latency,
            index_bytes=sum(int(facts["index_bytes"]) for _, facts in parts),
            rerank_pairs=c.pool or 0,
            truncated=self.truncated(c),
        )

    def truncated(self, c: Configuration) -> float:
        """Return the greatest share of chunks of which a model of the configuration does not read the end.

        Raises SettingsError where that is more than none and not allowed.
        """
        readers = dict.fromkeys(c.models, 0)
        if c.reranker == "cross-encoder":  # it reads the query too, and one special token more
            tokens = self.stages.encoder(str(c.reranker_model)).count_tokens(self.collection.query_texts)
            readers[str(c.reranker_model)] = int(tokens.max(initial=0)) + 1
        shares = [self.stages.truncated(m, c.chunk_size, c.chunk_overlap, taken) for m, taken in readers.items()]
        return max(shares, default=0.0)

    def units(self, configurations: Iterable[Configuration]) -> int:
        """Return about how many tokens models have to read for these configurations; stored texts aside."""
        wanted = list(configurations)
        sets = dict.fromkeys((c.encoder, c.chunk_size, c.chunk_overlap) for c in wanted if c.encoder)
        pools = dict.fromkeys((c.chunk_size, c.chunk_overlap, c.first_stage, c.pool) for c in wanted if c.pool)
        reranked = sum(_rerank_units(size, len(self.collection.queries) * (pool or 0)) for size, _, _, pool in pools)
        return self.stages.missing_tokens((str(e), s, o) for e, s, o in sets) + reranked

    def _reranked(self, c: Configuration, ranking: Rankings) -> tuple[Rankings, float]:
        """Return the reranked pool and the time of one query's reranking in ms, passages read anew."""
        reranker, stages = self._rerankers(str(c.reranker), str(c.reranker_model)), self.stages
        chunks, queries = stages.chunks(c.chunk_size, c.chunk_overlap), self.collection.query_texts
        pool = ranking.cut(c.pool or 0)

        def texts(codes: npt.NDArray[np.int64]) -> list[str]:
            return chunks.take(codes).texts(self.collection.texts)

        def one_query(i: int) -> None:
            passages = texts(pool.items[i][pool.items[i] >= 0].astype(np.int64))
            pairs = np.stack([np.zeros(len(passages), np.int64), np.arange(len(passages))], axis=1)
            for batch in reranker.plan(queries[i : i + 1], passages, pairs):
                reranker.score(queries[i : i + 1], passages, pairs[batch])

        def time_it() -> Artifact:
            return Artifact({}, {"ms": median_ms(one_query, min(_TIMED_RERANKS, len(queries)), warm=False)})

        self.progress.stage(f"reranking {c.pool} chunks a query, {c.reranker}")
        reranked, new, read = rerank(
            reranker,
            stages.table("pairs", reranker.fingerprint),
            queries,
            texts,
            pool,
            lambda pairs: self.progress.advance(_rerank_units(c.chunk_size, pairs)),
        )
        stages.work.pairs += int(pool.counts.sum())
        stages.work.pairs_scored += new
        stages.work.passages_read += read
        place = fingerprint(stages.chunks_key(c.chunk_size, c.chunk_overlap), self.collection.queries_fingerprint)
        timed, _ = stages.store.get_or_build("latency", fingerprint(reranker.fingerprint, place, c.pool), time_it)
        return reranked, float(timed.meta["ms"])

    def _make_reranker(self, kind: str, model: str) -> Reranker:
        if kind == "cross-encoder":
            return CrossEncoderReranker(find_model(model, self.folder))
        return LateInteractionReranker(self.stages.encoder(model))


def _rerank_units(size: int, pairs: int) -> int:
    """Tokens read for so many pairs: about half of them share their passage with another query."""
    return pairs * size // 2
