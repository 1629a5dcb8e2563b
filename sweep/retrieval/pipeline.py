"""Configuration + collection → rankings: searches ─► fusion ─► reranking ─► diversity ─► top_k ─► documents."""

__all__ = ["Pipeline", "Result"]

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from metrics import Rankings, collapse
from sweep.artifacts import Artifact, Store, fingerprint
from sweep.collection.collection import Collection
from sweep.errors import ModelError
from sweep.retrieval.calls import Calls
from sweep.retrieval.chunking import context_tokens
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.diversity import at_most_per_document, maximal_marginal_relevance
from sweep.retrieval.embedding import SentenceTransformerEncoder
from sweep.retrieval.encoders import EncoderSpec, Models
from sweep.retrieval.fusion import fuse, normalized
from sweep.retrieval.pair_rerankers import CrossEncoderReranker, LateInteractionReranker, PairReranker
from sweep.retrieval.progress import Progress, Silent
from sweep.retrieval.reranking import EncoderReranker, rerank
from sweep.retrieval.retriever import RetrieverSpec
from sweep.retrieval.stages import Stages, Work, median_ms
from sweep.retrieval.vectors import Floats, prepare

_SILENT = Silent()
_TIMED_RERANKS = 2


@dataclass(frozen=True, slots=True)
class Result:
    """What one configuration returned for every query of the collection.

    chunks: Rankings of chunk codes (Q, top_k). documents: the same collapsed to document codes. pool: documents that a
    reranker saw, None without one. context_tokens: int64 (Q,). latency_ms: median time of one query, encoding included.
    index_bytes, rerank_pairs (a query) and truncated (share of chunks) describe its cost, ann_recall the index. notes:
    what was done otherwise than asked, and why.
    """

    chunks: Rankings
    documents: Rankings
    pool: Rankings | None
    context_tokens: npt.NDArray[np.int64]
    latency_ms: float
    index_bytes: int
    rerank_pairs: int
    truncated: float
    ann_recall: float
    notes: tuple[str, ...]


class Pipeline:
    """Runs configurations on one collection; `stages` holds what they share.

    store: where results are kept. tokenizer: the model whose tokens chunk sizes count. encoders, retrievers: what the
    study declares by name. folder: what paths of models are relative to.
    """

    def __init__(
        self,
        collection: Collection,
        store: Store,
        tokenizer: str,
        *,
        encoders: Mapping[str, EncoderSpec] | None = None,
        retrievers: Mapping[str, RetrieverSpec] | None = None,
        allow_truncation: bool = False,
        folder: Path = Path(),
        progress: Progress = _SILENT,
    ) -> None:
        self.collection, self.progress = collection, progress
        self.models = Models(encoders or {}, folder, store.root)
        self.stages = Stages(
            collection, store, tokenizer, self.models, allow_truncation=allow_truncation, progress=progress
        )
        self.calls = Calls(self.stages, retrievers or {}, folder)
        self._rerankers = lru_cache(maxsize=4)(self._make_reranker)

    @property
    def work(self) -> Work:
        """What was asked for so far, and what had to be computed."""
        return self.stages.work

    def run(self, c: Configuration) -> Result:
        """Search every query as the configuration says.

        Raises SettingsError for chunks that the encoder would cut short, unless that is allowed, and CallsFailedError
        where a person's own retriever did not answer every query.
        """
        if c.retriever is not None:
            return self._called(c)
        stages, chunks = self.stages, self.stages.chunks(c.chunking)
        truncated = self.truncated(c)
        parts = {kind: stages.search(c, kind) for kind in c.searches}
        ranking = self._fused(c, [part for part, _ in parts.values()])
        latency = sum(float(facts["ms"]) for _, facts in parts.values())
        pool = None
        if c.pool is not None:
            seen = ranking.cut(c.pool)
            pool = collapse(seen, chunks.doc)
            ranking, more = self._reranked(c, seen, [part for part, _ in parts.values()])
            latency += more
        ranking = self._diverse(c, ranking).cut(c.top_k)
        return Result(
            chunks=ranking,
            documents=collapse(ranking, chunks.doc),
            pool=pool,
            context_tokens=context_tokens(chunks, ranking.items),
            latency_ms=latency,
            index_bytes=sum(int(facts["index_bytes"]) for _, facts in parts.values()),
            rerank_pairs=c.pool or 0,
            truncated=truncated,
            ann_recall=stages.ann_recall(c),
            notes=(*(str(facts["note"]) for _, facts in parts.values() if facts["note"]), *self._cut_queries(c)),
        )

    def truncated(self, c: Configuration) -> float:
        """Return the greatest share of chunks of which a model of the configuration does not read the end.

        Raises SettingsError where that is more than none and not allowed.
        """
        readers = dict.fromkeys(c.models, 0)
        if c.reranker == "cross-encoder":  # it reads the query too, and one special token more
            tokens = self.models.encoder(str(c.reranker_model)).count_tokens(self.collection.query_texts)
            readers[str(c.reranker_model)] = int(tokens.max(initial=0)) + 1
        shares = [self.stages.truncated(m, c.chunking, taken) for m, taken in readers.items()]
        return max(shares, default=0.0)

    def units(self, configurations: Iterable[Configuration]) -> int:
        """Return about how many tokens models have to read for these configurations; stored texts aside."""
        wanted = list(configurations)
        sets = dict.fromkeys((c.encoder, c.chunking) for c in wanted if c.encoder)
        pools = dict.fromkeys((c.chunking, c.first_stage, c.pool) for c in wanted if c.pool and c.reranker != "encoder")
        reranked = sum(self._rerank_units(g.size, len(self.collection.queries) * (n or 0)) for g, _, n in pools)
        return self.stages.missing_tokens((str(e), chunking) for e, chunking in sets) + reranked

    def _called(self, c: Configuration) -> Result:
        """Ask a person's own retriever."""
        documents, tokens, latency = self.calls.find(c)
        return Result(documents, documents, None, tokens, latency, 0, 0, 0.0, 1.0, ())

    def _fused(self, c: Configuration, parts: list[Rankings]) -> Rankings:
        if len(parts) == 1:
            return parts[0]
        keyword, vector = (part.cut(c.fusion_depth or 0) for part in parts)
        return fuse(
            keyword,
            vector,
            method=str(c.fusion),
            vector_weight=float(c.vector_weight or 0.0),
            constant=c.rrf_k or 0,
            normalization=str(c.normalization),
        )

    def _diverse(self, c: Configuration, ranking: Rankings) -> Rankings:
        """Choose less of the same, where the configuration says so."""
        if c.max_per_document:
            ranking = at_most_per_document(ranking, self.stages.chunks(c.chunking).doc, c.max_per_document)
        if c.mmr_pool is None or c.mmr_lambda is None:
            return ranking
        plain = c.algorithm == "vector" and c.similarity == "cosine"
        ranking = ranking.cut(c.mmr_pool)
        relevance = ranking.scores if plain else normalized(ranking)
        vectors = self.stages.vectors(str(c.encoder), c.chunking)

        def unit_vectors(codes: npt.NDArray[np.int64]) -> Floats:
            return prepare(vectors[codes], similarity="cosine", dimensions=c.dimensions)

        return maximal_marginal_relevance(
            ranking, relevance, unit_vectors, balance=c.mmr_lambda, pool=c.mmr_pool, top_k=c.top_k
        )

    def _reranked(self, c: Configuration, pool: Rankings, ahead: list[Rankings]) -> tuple[Rankings, float]:
        """Return the reranked pool and the time of one query's reranking in ms, pairs scored anew."""
        self.progress.stage(f"reranking {c.pool} chunks a query, {c.reranker}")
        stages, queries = self.stages, self.collection.query_texts
        encode_ms = stages.encode_ms(str(c.reranker_model)) if c.reranker == "encoder" else 0.0
        reranker = self._rerankers(str(c.reranker), str(c.reranker_model))

        def texts(codes: npt.NDArray[np.int64]) -> list[str]:
            return stages.texts(c.chunking, codes)

        def advance(done: int) -> None:
            self.progress.advance(done if c.reranker == "encoder" else self._rerank_units(c.chunk_size, done))

        table = stages.table(*reranker.table)
        reranked, new, read = rerank(reranker, table, queries, texts, pool, ahead, advance)
        stages.work.pairs += int(pool.counts.sum())
        stages.work.pairs_scored += new
        stages.work.passages_read += read
        if isinstance(reranker, EncoderReranker):  # its passages' vectors are stored, as the first stage's are
            return reranked, encode_ms
        pairs = reranker

        def one_query(i: int) -> None:
            pairs.fresh(queries[i], texts(pool.items[i][pool.items[i] >= 0].astype(np.int64)))

        def time_it() -> Artifact:
            return Artifact({}, {"ms": median_ms(one_query, min(_TIMED_RERANKS, len(queries)), warm=False)})

        key = fingerprint(*reranker.table, stages.texts_key(c.chunking), self.collection.queries_fingerprint, c.pool)
        timed, _ = stages.store.get_or_build("latency", key, time_it)
        return reranked, float(timed.meta["ms"])

    def _make_reranker(self, kind: str, model: str) -> EncoderReranker | PairReranker:
        if kind == "cross-encoder":
            return CrossEncoderReranker(self.models.model(model))
        encoder = self.models.encoder(model)
        if kind == "encoder":
            return EncoderReranker(encoder)
        if not isinstance(encoder, SentenceTransformerEncoder) or not encoder.model.contextual:
            raise ModelError(f"reranker_model {model!r}: late interaction needs a local transformer's token vectors")
        return LateInteractionReranker(encoder)

    def _cut_queries(self, c: Configuration) -> list[str]:
        cut = {model: self.stages.queries_cut(model) for model in c.models if c.reranker != "cross-encoder"}
        total = len(self.collection.queries)
        return [f"{n} of {total} queries are longer than {model} reads" for model, n in cut.items() if n]

    def _rerank_units(self, size: int | None, pairs: int) -> int:
        """Tokens read for so many pairs: about half of them share their passage with another query."""
        texts = self.stages.tokens.indptr
        return pairs * (size or int(texts[-1]) // max(1, len(texts) - 1)) // 2
