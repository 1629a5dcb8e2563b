"""What configurations share, each computed once and kept in the store: chunks, vectors, indexes, searches.

    documents ─► tokens ─► chunks ─► vectors ─► index ─┐
                              └────► terms ────────────┴► searches

Each step is kept under the fingerprint of all that it depends on and nothing else. An exact search goes to one of the
`DEPTHS` whatever top_k asks for, and every smaller top_k, pool and fusion depth is read from it; an approximate index
is searched for each k, since its result for k is no prefix of a deeper one.
"""

__all__ = ["Stages", "Work", "embedding", "median_ms"]

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from metrics import Rankings
from sweep.artifacts import Artifact, Rows, digest_texts, fingerprint
from sweep.retrieval.analyzers import choose_analyzer
from sweep.retrieval.chunk_stages import ChunkStages
from sweep.retrieval.configuration import Chunking, Configuration
from sweep.retrieval.embedding import Role, count_cut, embed
from sweep.retrieval.index_factory import Factory
from sweep.retrieval.keyword_index import KeywordIndex, Weights
from sweep.retrieval.vector_index import VectorIndex, ann_recall, one_thread
from sweep.retrieval.vectors import Floats, bytes_each, prepare

DEPTHS = (100, 1000, 10_000)
KEPT_BYTES = 1 << 27  # of rankings in memory; the others are read again
_TIMED_QUERIES = 16


@dataclass(slots=True)
class Work:
    """What was asked for and what had to be computed."""

    texts: int = 0
    distinct: int = 0
    embedded: int = 0
    tokens_embedded: int = 0
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


class Embedding(NamedTuple):
    """The vectors of a set of chunks, as an index takes them."""

    encoder: str
    chunking: Chunking
    dimensions: int | None
    similarity: str
    quantization: str


@dataclass(eq=False)
class Stages(ChunkStages):
    """The stages over one collection; those that many configurations share also stay in memory."""

    work: Work = field(init=False, default_factory=Work)
    _tables: dict[str, Rows] = field(init=False, default_factory=dict)
    _rankings: dict[str, tuple[Rankings, dict[str, Any]]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.queries_cut = lru_cache(maxsize=None)(self._count_cut_queries)
        self.vectors = lru_cache(maxsize=1)(self._embed_chunks)
        self.vector_index = lru_cache(maxsize=1)(self._build_vector_index)
        self.keyword_index = lru_cache(maxsize=2)(self._build_keyword_index)
        self._weights = lru_cache(maxsize=4)(self._weigh)

    def _count_cut_queries(self, model: str) -> int:
        """Return how many queries have more tokens than an encoder reads."""
        return count_cut(self.models.encoder(model), self.collection.query_texts, "query")

    def count_texts(self, sets: Iterable[tuple[str, Chunking]]) -> None:
        """Count into `work` the texts of (encoder, chunking) sets and of the queries, and the distinct."""
        seen: set[tuple[str, bytes]] = set()
        lists: dict[tuple[str, Role], list[str]] = {}
        for encoder, chunking in dict.fromkeys(sets):
            lists.setdefault((encoder, "query"), list(self.collection.query_texts))
            lists.setdefault((encoder, "passage"), []).extend(self.texts(chunking))
        for (encoder, role), texts in lists.items():
            seen.update((encoder, digest) for digest in self._digests(encoder, texts, role).tolist())
        self.work.texts, self.work.distinct = sum(map(len, lists.values())), len(seen)

    def missing_tokens(self, sets: Iterable[tuple[str, Chunking]]) -> int:
        """Return the tokens that (encoder, chunking) sets still have to be embedded, each text once."""
        total, seen = 0, set[tuple[str, bytes]]()
        for encoder, chunking in sets:
            digests = self._digests(encoder, self.texts(chunking), "passage")
            found = self.table("vectors", self.models.encoder(encoder).fingerprint).contains(digests)
            tokens = self.chunks(chunking).tokens
            for key, count in zip(digests[~found].tolist(), tokens[~found].tolist(), strict=True):
                if (encoder, key) not in seen:
                    seen.add((encoder, key))
                    total += count
        return total

    def _digests(self, encoder: str, texts: Sequence[str], role: Role) -> npt.NDArray[Any]:
        return digest_texts(texts, self.models.encoder(encoder).prompt(role) + "\0")

    def table(self, stage: str, key: str) -> Rows:
        """Return the growing table of a model's results: "vectors" by text, "pairs" by query and passage."""
        if key not in self._tables:
            self._tables[key] = self.store.rows(stage, key)
        return self._tables[key]

    def _embed_chunks(self, encoder: str, chunking: Chunking) -> Floats:
        self.truncated(encoder, chunking)
        return self.embed(encoder, self.texts(chunking), "passage", f"embedding chunks {chunking}")

    def embed(self, encoder: str, texts: Sequence[str], role: Role, stage: str) -> Floats:
        """Return the vectors of texts, as the encoder gives them."""
        self.progress.stage(stage)
        model = self.models.encoder(encoder)
        vectors, new, tokens = embed(
            model, self.table("vectors", model.fingerprint), texts, role, self.progress.advance
        )
        self.work.embedded += new
        self.work.tokens_embedded += tokens
        return vectors

    def asked(self, e: Embedding) -> Floats:
        """Return the queries' vectors as an index takes them."""
        vectors = self.embed(e.encoder, self.collection.query_texts, "query", "embedding queries")
        return prepare(vectors, similarity=e.similarity, dimensions=e.dimensions)

    def _build_vector_index(self, e: Embedding, factory: str, ef_construction: int | None) -> VectorIndex:
        def make() -> VectorIndex:
            given = self.vectors(e.encoder, e.chunking)
            vectors = prepare(given, similarity=e.similarity, dimensions=e.dimensions, quantization=e.quantization)
            self.progress.stage(f"building {factory}")
            return VectorIndex.build(
                vectors,
                factory,
                similarity=e.similarity,
                ef_construction=ef_construction,
                bytes_each=bytes_each(vectors.shape[1], e.quantization),
            )

        if factory == "Flat":
            return make()
        key = fingerprint(self._embedding_key(e), factory, ef_construction)
        found, built = self.store.get_or_build("index", key, lambda: make().dump(), mapped=True)
        self.work.indexes_built += built
        self.work.indexes_reused += not built
        return VectorIndex.load(found)

    def _embedding_key(self, e: Embedding) -> str:
        encoder = self.models.encoder(e.encoder).fingerprint
        return fingerprint(self.texts_key(e.chunking), encoder, e.dimensions, e.similarity, e.quantization)

    @cached_property
    def _chosen_analyzer(self) -> str:
        def build() -> Artifact:
            return Artifact({}, {"analyzer": choose_analyzer(self.collection.texts)})

        found, _ = self.store.get_or_build("analyzer", self.collection.documents_fingerprint, build)
        return str(found.meta["analyzer"])

    def analyzer(self, name: str) -> str:
        """Return an analyzer's name, the one that "auto" stands for on this collection."""
        return self._chosen_analyzer if name == "auto" else name

    def _build_keyword_index(self, chunking: Chunking, analyzer: str) -> KeywordIndex:
        def build() -> Artifact:
            self.progress.stage("counting terms")
            return KeywordIndex.build(self.texts(chunking), analyzer).dump()

        found, built = self.store.get_or_build("terms", fingerprint(self.texts_key(chunking), analyzer), build)
        self.work.indexes_built += built
        self.work.indexes_reused += not built
        return KeywordIndex.load(found)

    def _weigh(self, chunking: Chunking, analyzer: str, *setting: Any) -> Weights:
        return self.keyword_index(chunking, analyzer).weights(*setting)

    def search(self, c: Configuration, kind: str) -> tuple[Rankings, dict[str, Any]]:
        """Return the ranking of one plain search, at least as deep as `c` needs, and its facts."""
        if kind == "keyword":
            key = fingerprint(self.texts_key(c.chunking), self.analyzer(str(c.analyzer)), c.bm25_variant)
            key, run, scans = fingerprint(key, c.k1, c.b, c.delta), self._keyword_search, True
        else:
            factory = Factory.parse(str(c.index))
            key = fingerprint(self._embedding_key(embedding(c)), c.index, c.ef_construction)
            key = fingerprint(key, c.ef_search, c.nprobe, c.refine_factor)
            run, scans = self._vector_search, factory is not None and factory.scans
        depth = next((d for d in DEPTHS if d >= c.depth), c.depth) if scans else c.depth
        key = fingerprint(key, self.collection.queries_fingerprint, depth, kind)
        if key not in self._rankings:
            found, new = self.store.get_or_build("search", key, lambda: run(c, depth))
            self.work.searches_run += new
            self.work.searches_reused += not new
            self._rankings[key] = Rankings(found["items"], found["scores"]), dict(found.meta)
            while (
                len(self._rankings) > 2
                and sum(r.items.nbytes + r.scores.nbytes for r, _ in self._rankings.values()) > KEPT_BYTES
            ):
                del self._rankings[next(iter(self._rankings))]
        return self._rankings[key]

    def _keyword_search(self, c: Configuration, depth: int) -> Artifact:
        analyzer = self.analyzer(str(c.analyzer))
        index = self.keyword_index(c.chunking, analyzer)
        weights = self._weights(c.chunking, analyzer, c.k1, c.b, c.bm25_variant, c.delta or 0.0)
        self.progress.stage("keyword search")
        queries = self.collection.query_texts
        ranking = index.search(queries, depth, weights)
        ms = median_ms(lambda i: index.search(queries[i : i + 1], depth, weights), len(queries))
        return _search_artifact(ranking, ms, index.bytes)

    def _vector_search(self, c: Configuration, depth: int) -> Artifact:
        e = embedding(c)
        encode_ms = self.encode_ms(e.encoder)
        queries = self.asked(e)
        index = self.vector_index(e, str(c.index), c.ef_construction)
        self.progress.stage(f"vector search, {c.index}")
        settings = {"ef_search": c.ef_search, "nprobe": c.nprobe, "refine_factor": c.refine_factor}
        ranking = index.search(queries, depth, **settings)
        with one_thread():
            ms = median_ms(lambda i: index.search(queries[i : i + 1], depth, **settings), len(queries))
        return _search_artifact(ranking, ms + encode_ms, index.bytes, index.note)

    def ann_recall(self, c: Configuration) -> float:
        """Return the share of the exact first top_k that the index finds, over all queries; 1 for an exact index."""
        if c.index in (None, "Flat") or "vector" not in c.searches:
            return 1.0
        found, _ = self.search(c, "vector")
        exact, _ = self.search(replace(c, index="Flat", ef_construction=None, ef_search=None, nprobe=None,
                                       refine_factor=None), "vector")  # fmt: skip
        return float(ann_recall(found, exact, c.depth).mean()) if len(found.items) else 1.0

    def encode_ms(self, encoder: str) -> float:
        """Return the median time of one query's embedding; the vectors are kept, and those not known yet come first."""

        def build() -> Artifact:
            self.progress.stage("embedding queries one by one")
            texts, model = list(dict.fromkeys(self.collection.query_texts)), self.models.encoder(encoder)
            digests, rows = self._digests(encoder, texts, "query"), self.table("vectors", model.fingerprint)
            order, times, made = np.argsort(rows.contains(digests), kind="stable")[: _TIMED_QUERIES + 1], [], []
            for at in order.tolist():
                start, waited = time.perf_counter(), model.waited
                made.append(model.encode([texts[at]], "query")[0])
                times.append(time.perf_counter() - start - (model.waited - waited))
            vectors = np.array(made, np.float32)
            if np.isfinite(vectors).all():  # else the error comes where they are needed
                self.work.embedded += len(rows.fill(digests[order], lambda new: [(new, vectors[new])])[1])
            return Artifact({}, {"ms": 1e3 * float(np.median(times[1:] or times or [0.0]))})

        key = fingerprint(self.models.encoder(encoder).fingerprint, self.collection.queries_fingerprint)
        return float(self.store.get_or_build("latency", key, build)[0].meta["ms"])


def embedding(c: Configuration) -> Embedding:
    """Return what the vectors of a configuration depend on."""
    return Embedding(str(c.encoder), c.chunking, c.dimensions, str(c.similarity), str(c.quantization))


def median_ms(one: Callable[[int], object], count: int, warm: bool = True) -> float:
    """Return the median time in ms of `one(i)` over up to 16 queries, after one that is not counted."""
    times = []
    for i in [0] * warm + list(range(min(count, _TIMED_QUERIES))):
        start = time.perf_counter()
        one(i)
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times[warm:]))


def _search_artifact(ranking: Rankings, ms: float, size: int, note: str = "") -> Artifact:
    return Artifact({"items": ranking.items, "scores": ranking.scores}, {"ms": ms, "index_bytes": size, "note": note})
