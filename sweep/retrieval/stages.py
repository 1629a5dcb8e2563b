"""What configurations share, each computed once and kept in the store: chunks, vectors, indexes, searches.

    documents ─► tokens ─► chunks ─► vectors ─► index ─┐
                              └────► terms ────────────┴► searches

Each step is kept under the fingerprint of all that it depends on and nothing else. An exact search goes to one of the
`DEPTHS` whatever top_k asks for, and every smaller top_k, pool and fusion depth is read from it; an approximate index
is searched for each k, since its result for k is no prefix of a deeper one.
"""

__all__ = ["Stages", "Work", "median_ms"]

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metrics import Rankings
from sweep.artifacts import Artifact, Rows, Store, digest_texts, fingerprint
from sweep.collection.collection import Collection
from sweep.errors import SettingsError
from sweep.retrieval.chunking import Chunks, Tokens, cut, overlap_tokens, tokenize
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.embedding import Role, SentenceTransformerEncoder, embed
from sweep.retrieval.keyword_index import KeywordIndex
from sweep.retrieval.models import find_model
from sweep.retrieval.progress import Progress
from sweep.retrieval.vector_index import VectorIndex, one_thread

DEPTHS = (100, 1000, 10_000)
KEPT_RANKINGS = 64  # in memory; the others are read again
_TIMED_QUERIES = 16


@dataclass(slots=True)
class Work:
    """What was asked for and what had to be computed."""

    texts: int = 0
    distinct: int = 0
    embedded: int = 0
    pairs: int = 0
    pairs_scored: int = 0
    passages_read: int = 0
    indexes_built: int = 0
    indexes_reused: int = 0
    searches_run: int = 0
    searches_reused: int = 0

    def to_dict(self) -> dict[str, int]:
        """Return the counts by name."""
        return asdict(self)


class Stages:
    """The stages over one collection; those that many configurations share also stay in memory."""

    def __init__(
        self,
        collection: Collection,
        store: Store,
        tokenizer: str,
        *,
        allow_truncation: bool,
        folder: Path,
        progress: Progress,
    ) -> None:
        self.collection, self.store, self.tokenizer, self.folder = collection, store, tokenizer, folder
        self.allow_truncation, self.progress = allow_truncation, progress
        self.work = Work()
        self._encoders: dict[str, SentenceTransformerEncoder] = {}
        self._tables: dict[str, Rows] = {}
        self._rankings: dict[str, tuple[Rankings, dict[str, Any]]] = {}
        self.chunks = lru_cache(maxsize=8)(self._cut)
        self.vectors = lru_cache(maxsize=2)(self._embed_chunks)
        self.vector_index = lru_cache(maxsize=2)(self._build_vector_index)
        self.keyword_index = lru_cache(maxsize=2)(self._build_keyword_index)
        self._weights = lru_cache(maxsize=4)(self._weigh)

    def encoder(self, name: str) -> SentenceTransformerEncoder:
        """Return the encoder of a name; its model is loaded when a text needs it."""
        if name not in self._encoders:
            self._encoders[name] = SentenceTransformerEncoder(find_model(name, self.folder))
        return self._encoders[name]

    def truncated(self, model: str, size: int, overlap: float, beside: int = 0) -> float:
        """Return the share of chunks of which a model does not read the end, `beside` tokens of its limit being taken.

        Raises SettingsError where that is more than none and not allowed.
        """
        reader, chunks = self.encoder(model), self.chunks(size, overlap)
        if reader.limit is None or not len(chunks):
            return 0.0
        limit = reader.limit - beside
        self.progress.stage(f"counting tokens of chunks of {size} for {model}")

        def count() -> Artifact:
            return Artifact({"tokens": reader.count_tokens(chunks.texts(self.collection.texts))})

        tokenizer = tokenizer_fingerprint(model, self.folder)
        lengths, _ = self.store.get_or_build("lengths", fingerprint(self.chunks_key(size, overlap), tokenizer), count)
        share = float((lengths["tokens"] > limit).mean())
        if share and not self.allow_truncation:
            raise SettingsError(
                f"chunk_size {size}: {share:.1%} of the chunks have more than the {limit} tokens that {model} reads; "
                f"use sizes up to {limit}, or say allow_truncation: true"
            )
        return share

    def count_texts(self, sets: Iterable[tuple[str, int, float]]) -> None:
        """Count into `work` the texts of (encoder, chunk size, overlap) sets and of the queries, and the distinct."""
        seen: set[tuple[str, bytes]] = set()
        lists: dict[tuple[str, Role], list[str]] = {}
        for encoder, size, overlap in dict.fromkeys(sets):
            lists.setdefault((encoder, "query"), list(self.collection.query_texts))
            lists.setdefault((encoder, "passage"), []).extend(self.chunks(size, overlap).texts(self.collection.texts))
        for (encoder, role), texts in lists.items():
            seen.update((encoder, d) for d in digest_texts(texts, self.encoder(encoder).prompt(role) + "\0").tolist())
        self.work.texts, self.work.distinct = sum(map(len, lists.values())), len(seen)

    def missing_tokens(self, sets: Iterable[tuple[str, int, float]]) -> int:
        """Return the tokens that (encoder, chunk size, overlap) sets still have to be embedded, each text once."""
        total, seen = 0, set[tuple[str, bytes]]()
        for encoder, size, overlap in sets:
            chunks = self.chunks(size, overlap)
            digests = digest_texts(chunks.texts(self.collection.texts), self.encoder(encoder).prompt("passage") + "\0")
            found = self.table("vectors", self.encoder(encoder).fingerprint).find(digests) >= 0
            for key, tokens in zip(digests[~found].tolist(), chunks.tokens[~found].tolist(), strict=True):
                if (encoder, key) not in seen:
                    seen.add((encoder, key))
                    total += tokens
        return total

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
        return fingerprint(self.collection.documents_fingerprint, tokenizer_fingerprint(self.tokenizer, self.folder))

    def chunks_key(self, size: int, overlap: float) -> str:
        """Return the fingerprint of the chunks of a size and overlap."""
        return fingerprint(self._tokens_key, size, overlap_tokens(size, overlap))

    def _cut(self, size: int, overlap: float) -> Chunks:
        names = ("doc", "start", "end", "tokens", "first_token")

        def build() -> Artifact:
            self.progress.stage(f"cutting chunks of {size} tokens")
            made = cut(self._tokens, self.collection.texts, size, overlap)
            return Artifact({n: getattr(made, n) for n in names})

        found, _ = self.store.get_or_build("chunks", self.chunks_key(size, overlap), build)
        return Chunks(*(found[n] for n in names))

    def table(self, stage: str, key: str) -> Rows:
        """Return the growing table of a model's results: "vectors" by text, "pairs" by query and passage."""
        if key not in self._tables:
            self._tables[key] = self.store.rows(stage, key)
        return self._tables[key]

    def _embed_chunks(self, encoder: str, size: int, overlap: float) -> npt.NDArray[np.float32]:
        self.truncated(encoder, size, overlap)
        texts = self.chunks(size, overlap).texts(self.collection.texts)
        return self._embed(encoder, texts, "passage", "embedding chunks")

    def _embed(self, encoder: str, texts: Sequence[str], role: Role, stage: str) -> npt.NDArray[np.float32]:
        self.progress.stage(stage)
        model = self.encoder(encoder)
        vectors, new = embed(
            model, self.table("vectors", self.encoder(encoder).fingerprint), texts, role, self.progress.advance
        )
        self.work.embedded += new
        return vectors

    def _build_vector_index(self, encoder: str, size: int, overlap: float, factory: str) -> VectorIndex:
        vectors = self.vectors(encoder, size, overlap)
        if factory == "Flat":
            return VectorIndex.build(vectors, factory)

        def build() -> Artifact:
            self.progress.stage(f"building {factory}")
            return VectorIndex.build(vectors, factory).dump()

        key = fingerprint(self.chunks_key(size, overlap), self.encoder(encoder).fingerprint, factory)
        found, built = self.store.get_or_build("index", key, build)
        self.work.indexes_built += built
        self.work.indexes_reused += not built
        return VectorIndex.load(found)

    def _build_keyword_index(self, size: int, overlap: float, analyzer: str) -> KeywordIndex:
        def build() -> Artifact:
            self.progress.stage("counting terms")
            return KeywordIndex.build(self.chunks(size, overlap).texts(self.collection.texts), analyzer).dump()

        found, built = self.store.get_or_build("terms", fingerprint(self.chunks_key(size, overlap), analyzer), build)
        self.work.indexes_built += built
        self.work.indexes_reused += not built
        return KeywordIndex.load(found)

    def _weigh(self, size: int, overlap: float, analyzer: str, k1: float, b: float) -> Any:
        return self.keyword_index(size, overlap, analyzer).weights(k1, b)

    def search(self, c: Configuration, kind: str) -> tuple[Rankings, dict[str, Any]]:
        """Return the ranking of one plain search, at least as deep as `c` needs, and its facts."""
        need = c.fusion_depth or c.pool or c.top_k
        exact = kind == "keyword" or c.index == "Flat"
        depth = next((d for d in DEPTHS if d >= need), need) if exact else need
        key = fingerprint(
            self.chunks_key(c.chunk_size, c.chunk_overlap), self.collection.queries_fingerprint, depth, kind
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
            if len(self._rankings) >= KEPT_RANKINGS:
                del self._rankings[next(iter(self._rankings))]
            self._rankings[key] = Rankings(found["items"], found["scores"]), dict(found.meta)
        return self._rankings[key]

    def _keyword_search(self, c: Configuration, depth: int) -> Artifact:
        index = self.keyword_index(c.chunk_size, c.chunk_overlap, str(c.analyzer))
        weights = self._weights(c.chunk_size, c.chunk_overlap, str(c.analyzer), c.k1, c.b)
        self.progress.stage("keyword search")
        queries = self.collection.query_texts
        ranking = index.search(queries, depth, weights)
        ms = median_ms(lambda i: index.search(queries[i : i + 1], depth, weights), len(queries))
        return _search_artifact(ranking, ms, index.bytes)

    def _vector_search(self, c: Configuration, depth: int) -> Artifact:
        encoder = str(c.encoder)
        queries = self._embed(encoder, self.collection.query_texts, "query", "embedding queries")
        index = self.vector_index(encoder, c.chunk_size, c.chunk_overlap, str(c.index))
        self.progress.stage(f"vector search, {c.index}")
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
