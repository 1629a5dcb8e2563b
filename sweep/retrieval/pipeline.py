"""Configuration + collection → rankings, through the store: what two configurations share is computed once.

    documents ─► tokens ─► chunks ─► vectors ─► index ─┐
                              └────► terms ────────────┴► searches ─► fusion ─► reranking ─► top_k ─► result

Each step is kept under the fingerprint of all that it depends on and nothing else. An exact search goes to one of the
`DEPTHS` whatever top_k asks for, and every smaller top_k, pool and fusion depth is read from it.
"""

__all__ = ["Pipeline", "Result", "Work"]

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metrics import Rankings, collapse
from sweep.artifacts import Artifact, Rows, Store, digest_texts, fingerprint
from sweep.collection import Collection
from sweep.errors import SettingsError
from sweep.retrieval.chunking import Chunks, Tokens, context_tokens, cut, tokenize
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.embedding import Encoder, SentenceTransformerEncoder, embed
from sweep.retrieval.fusion import reciprocal_rank_fusion
from sweep.retrieval.keyword_index import KeywordIndex
from sweep.retrieval.models import find_model
from sweep.retrieval.progress import Progress, Silent
from sweep.retrieval.reranking import CrossEncoderReranker, LateInteractionReranker, Reranker, rerank
from sweep.retrieval.vector_index import VectorIndex, one_thread

DEPTHS = (100, 1000, 10_000)
CODE = 1  # raise when the same inputs give other results, so that nothing stale is read
_TIMED_QUERIES = 16


@dataclass(slots=True)
class Work:
    """What was asked for and what had to be computed."""

    texts: int = 0
    distinct: int = 0
    embedded: int = 0
    pairs: int = 0
    pairs_scored: int = 0
    indexes_built: int = 0
    indexes_reused: int = 0
    searches_run: int = 0
    searches_reused: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)


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


@dataclass
class Pipeline:
    """Runs configurations on one collection; holds what they share."""

    collection: Collection
    store: Store
    tokenizer: str
    allow_truncation: bool = False
    folder: Path = field(default_factory=Path)
    progress: Progress = field(default_factory=Silent)
    work: Work = field(default_factory=Work)

    def __post_init__(self) -> None:
        self._texts_seen: set[bytes] = set()
        self._pairs_seen: set[bytes] = set()
        self._chunk_sets_seen: set[tuple[Any, ...]] = set()
        self._encoders: dict[str, Encoder] = {}
        self._rows: dict[str, Rows] = {}
        self._rankings: dict[str, tuple[Rankings, dict[str, Any]]] = {}
        self._chunks = lru_cache(maxsize=8)(self._cut)
        self._vectors = lru_cache(maxsize=2)(self._embed_chunks)
        self._vector_index = lru_cache(maxsize=2)(self._build_vector_index)
        self._keyword_index = lru_cache(maxsize=2)(self._build_keyword_index)
        self._weights = lru_cache(maxsize=4)(self._weigh)
        self._rerankers = lru_cache(maxsize=4)(self._make_reranker)

    def encoder(self, name: str) -> Encoder:
        """Return the encoder of a name; its model is loaded when a text needs it."""
        if name not in self._encoders:
            self._encoders[name] = SentenceTransformerEncoder(find_model(name, self.folder))
        return self._encoders[name]

    def run(self, c: Configuration) -> Result:
        """Search every query as the configuration says.

        Raises SettingsError for chunks that the encoder would cut short, unless that is allowed.
        """
        chunks = self._chunks(c.chunk_size, c.chunk_overlap)
        parts = [self._search(c, search) for search in c.searches]
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
            truncated=self.truncated(c.encoder, c.chunk_size, c.chunk_overlap) if c.encoder else 0.0,
        )

    def chunks(self, size: int, overlap: float) -> Chunks:
        """Return the chunks of a size and overlap."""
        return self._chunks(size, overlap)

    def truncated(self, encoder: str, size: int, overlap: float) -> float:
        """Return the share of chunks of which the encoder does not read the end.

        Raises SettingsError where that is more than none and not allowed.
        """
        model, chunks = self.encoder(encoder), self._chunks(size, overlap)
        if model.limit is None or not len(chunks):
            return 0.0
        limit = model.limit
        self.progress.stage(f"checking chunks of {size} tokens against {encoder}")

        def count() -> Artifact:
            return Artifact({"tokens": model.count_tokens(chunks.texts(self.collection.texts))})

        tokenizer = tokenizer_fingerprint(encoder, self.folder)
        lengths, _ = self.store.get_or_build("lengths", fingerprint(self._chunks_key(size, overlap), tokenizer), count)
        share = float((lengths["tokens"] > limit).mean())
        if share and not self.allow_truncation:
            raise SettingsError(
                f"chunk_size {size}: {share:.1%} of the chunks have more than the {limit} tokens that {encoder} reads; "
                f"use sizes up to {limit}, or say allow_truncation: true"
            )
        return share

    def missing_tokens(self, sets: Iterable[tuple[str, int, float]]) -> int:
        """Return the tokens that (encoder, chunk size, overlap) sets still have to be embedded, each text once."""
        total, seen = 0, set[tuple[str, bytes]]()
        for encoder, size, overlap in sets:
            chunks = self._chunks(size, overlap)
            digests = digest_texts(chunks.texts(self.collection.texts), self.encoder(encoder).prompt("passage") + "\0")
            found = self._table(encoder).find(digests) >= 0
            for key, tokens in zip(digests[~found].tolist(), chunks.tokens[~found].tolist(), strict=True):
                if (encoder, key) not in seen:
                    seen.add((encoder, key))
                    total += tokens
        return total

    # Stages; those that many configurations share stay in memory behind a small cache.

    @property
    def _tokens(self) -> Tokens:
        def build() -> Artifact:
            self.progress.stage(f"tokenising {len(self.collection.texts)} documents")
            tokens = tokenize(find_model(self.tokenizer, self.folder).tokenizer, self.collection.texts)
            return Artifact({"indptr": tokens.indptr, "start": tokens.start, "first": tokens.first})

        found, _ = self.store.get_or_build("tokens", self._tokens_key, build)
        return Tokens(found["indptr"], found["start"], found["first"])

    @property
    def _tokens_key(self) -> str:
        return fingerprint(
            CODE, self.collection.documents_fingerprint, tokenizer_fingerprint(self.tokenizer, self.folder)
        )

    def _chunks_key(self, size: int, overlap: float) -> str:
        return fingerprint(self._tokens_key, size, int(size * overlap))

    def _cut(self, size: int, overlap: float) -> Chunks:
        names = ("doc", "start", "end", "tokens", "first_token")

        def build() -> Artifact:
            self.progress.stage(f"cutting chunks of {size} tokens")
            made = cut(self._tokens, self.collection.texts, size, overlap)
            return Artifact({n: getattr(made, n) for n in names})

        found, _ = self.store.get_or_build("chunks", self._chunks_key(size, overlap), build)
        return Chunks(*(found[n] for n in names))

    def _table(self, encoder: str) -> Rows:
        if encoder not in self._rows:
            self._rows[encoder] = self.store.rows("vectors", self.encoder(encoder).fingerprint)
        return self._rows[encoder]

    def _embed_chunks(self, encoder: str, size: int, overlap: float) -> npt.NDArray[np.float32]:
        self.truncated(encoder, size, overlap)
        texts = self._chunks(size, overlap).texts(self.collection.texts)
        return self._embed(encoder, texts, "passage", f"embedding chunks of {size} tokens, overlap {overlap:g}")

    def _embed(self, encoder: str, texts: Sequence[str], role: Any, stage: str) -> npt.NDArray[np.float32]:
        self.progress.stage(stage)
        model = self.encoder(encoder)
        vectors, new = embed(model, self._table(encoder), texts, role, self.progress.advance)
        self.work.embedded += new
        self._count_texts(encoder, model.prompt(role), texts)
        return vectors

    def _count_texts(self, encoder: str, prompt: str, texts: Sequence[str]) -> None:
        key = (encoder, digest_texts(["\n".join(texts)], prompt).tobytes())
        if key not in self._chunk_sets_seen:
            self._chunk_sets_seen.add(key)
            self._texts_seen.update(encoder.encode() + d for d in digest_texts(texts, prompt + "\0").tolist())
            self.work.texts += len(texts)
            self.work.distinct = len(self._texts_seen)

    def _build_vector_index(self, encoder: str, size: int, overlap: float, factory: str) -> VectorIndex:
        vectors = self._vectors(encoder, size, overlap)
        if factory == "Flat":
            return VectorIndex.build(vectors, factory)

        def build() -> Artifact:
            self.progress.stage(f"building {factory} over {len(vectors)} chunks")
            return VectorIndex.build(vectors, factory).dump()

        key = fingerprint(self._chunks_key(size, overlap), self.encoder(encoder).fingerprint, factory)
        found, built = self.store.get_or_build("index", key, build)
        self.work.indexes_built += built
        self.work.indexes_reused += not built
        return VectorIndex.load(found)

    def _build_keyword_index(self, size: int, overlap: float, analyzer: str) -> KeywordIndex:
        def build() -> Artifact:
            self.progress.stage(f"counting terms of chunks of {size} tokens")
            return KeywordIndex.build(self._chunks(size, overlap).texts(self.collection.texts), analyzer).dump()

        found, built = self.store.get_or_build("terms", fingerprint(self._chunks_key(size, overlap), analyzer), build)
        self.work.indexes_built += built
        self.work.indexes_reused += not built
        return KeywordIndex.load(found)

    def _weigh(self, size: int, overlap: float, analyzer: str, k1: float, b: float) -> Any:
        return self._keyword_index(size, overlap, analyzer).weights(k1, b)

    def _search(self, c: Configuration, kind: str) -> tuple[Rankings, dict[str, Any]]:
        """Return the ranking of one plain search, at least as deep as `c` needs, and its facts."""
        need = c.fusion_depth or c.pool or c.top_k
        exact = kind == "keyword" or c.index == "Flat"
        depth = next((d for d in DEPTHS if d >= need), need) if exact else need
        key = fingerprint(
            self._chunks_key(c.chunk_size, c.chunk_overlap), self.collection.queries_fingerprint, depth, kind
        )
        if kind == "keyword":
            key = fingerprint(key, c.analyzer, c.k1, c.b)
        else:
            key = fingerprint(key, self.encoder(str(c.encoder)).fingerprint, c.index, c.ef_search)
        if key not in self._rankings:
            run = self._keyword_search if kind == "keyword" else self._vector_search
            found, new = self.store.get_or_build("search", key, lambda: run(c, depth))
            self.work.searches_run += new
            self.work.searches_reused += not new
            self._rankings[key] = Rankings(found["items"], found["scores"]), dict(found.meta)
        return self._rankings[key]

    def _keyword_search(self, c: Configuration, depth: int) -> Artifact:
        index = self._keyword_index(c.chunk_size, c.chunk_overlap, str(c.analyzer))
        weights = self._weights(c.chunk_size, c.chunk_overlap, str(c.analyzer), c.k1, c.b)
        self.progress.stage(f"keyword search, chunks of {c.chunk_size} tokens")
        queries = self.collection.query_texts
        ranking = index.search(queries, depth, weights)
        ms = median_ms(lambda i: index.search(queries[i : i + 1], depth, weights), len(queries))
        return _search_artifact(ranking, ms, index.bytes)

    def _vector_search(self, c: Configuration, depth: int) -> Artifact:
        encoder = str(c.encoder)
        queries = self._embed(encoder, self.collection.query_texts, "query", "embedding queries")
        index = self._vector_index(encoder, c.chunk_size, c.chunk_overlap, str(c.index))
        self.progress.stage(f"vector search, chunks of {c.chunk_size} tokens, {c.index}")
        ranking = index.search(queries, depth, c.ef_search)
        with one_thread():
            ms = median_ms(lambda i: index.search(queries[i : i + 1], depth, c.ef_search), len(queries))
        return _search_artifact(ranking, ms + self._encode_ms(encoder), index.bytes)

    def _encode_ms(self, encoder: str) -> float:
        def build() -> Artifact:
            texts, model = self.collection.query_texts, self.encoder(encoder)
            return Artifact({}, {"ms": median_ms(lambda i: model.encode(texts[i : i + 1], "query"), len(texts))})

        key = fingerprint(self.encoder(encoder).fingerprint, self.collection.queries_fingerprint)
        return float(self.store.get_or_build("latency", key, build)[0].meta["ms"])

    def _reranked(self, c: Configuration, pool: Rankings) -> tuple[Rankings, float]:
        reranker = self._rerankers(str(c.reranker), str(c.reranker_model))
        documents, chunks = self.collection.texts, self._chunks(c.chunk_size, c.chunk_overlap)
        queries = self.collection.query_texts
        pool = pool.cut(c.pool or 0)
        self.progress.stage(f"reranking {c.pool} chunks of {c.chunk_size} tokens a query, {c.reranker}")
        if reranker.fingerprint not in self._rows:
            self._rows[reranker.fingerprint] = self.store.rows("pairs", reranker.fingerprint)

        def texts(codes: npt.NDArray[np.int64]) -> list[str]:
            return chunks.take(codes).texts(documents)

        ranking, new = rerank(
            reranker,
            self._rows[reranker.fingerprint],
            queries,
            texts,
            pool,
            lambda n: self.progress.advance(n * c.chunk_size),
        )
        self.work.pairs += int((pool.items >= 0).sum())
        self.work.pairs_scored += new

        def build() -> Artifact:
            def one(i: int) -> None:
                passages = texts(pool.items[i][pool.items[i] >= 0].astype(np.int64))
                pairs = np.stack([np.zeros(len(passages), np.int64), np.arange(len(passages))], axis=1)
                for batch in reranker.plan(queries[i : i + 1], passages, pairs):
                    reranker.score(queries[i : i + 1], passages, pairs[batch])

            return Artifact({}, {"ms": median_ms(one, min(2, len(queries)), warm=False)})

        key = fingerprint(
            reranker.fingerprint,
            self._chunks_key(c.chunk_size, c.chunk_overlap),
            c.pool,
            self.collection.queries_fingerprint,
        )
        return ranking, float(self.store.get_or_build("latency", key, build)[0].meta["ms"])

    def _make_reranker(self, kind: str, model: str) -> Reranker:
        if kind == "cross-encoder":
            return CrossEncoderReranker(find_model(model, self.folder))
        return LateInteractionReranker(SentenceTransformerEncoder(find_model(model, self.folder)))


@lru_cache(maxsize=16)
def tokenizer_fingerprint(name: str, folder: Path) -> str:
    """Return the hash of a model's tokenizer alone: models that share one share its chunks."""
    return fingerprint(find_model(name, folder).tokenizer.to_str())


def median_ms(one: Callable[[int], object], count: int, warm: bool = True) -> float:
    """Return the median time in ms of `one(i)` over up to 16 queries, after one that is not counted."""
    times = []
    for i in [0] * warm + list(range(min(count, _TIMED_QUERIES))):
        start = time.perf_counter()
        one(i)
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times[warm:]))


def _search_artifact(ranking: Rankings, ms: float, size: int) -> Artifact:
    return Artifact({"items": ranking.items, "scores": ranking.scores}, {"ms": ms, "index_bytes": size})
