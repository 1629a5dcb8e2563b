"""Vectors → a FAISS index, built from its factory string; search-time parameters need no rebuild."""

__all__ = ["VectorIndex", "ann_recall", "one_thread"]

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from metrics import Rankings, rank
from sweep.artifacts import Artifact
from sweep.retrieval.index_factory import Factory, check
from sweep.retrieval.vectors import Floats

DIGITS = 6  # of a score: what float32 sums keep whatever the order in which they are added
_SPARE = 16  # results fetched beyond k, so that ties at the cut are seen
_QUERIES = 128  # searched at a time, whatever k is: the last bits of a score depend on what is multiplied with it


class VectorIndex:
    """An index under inner product (which is the cosine of unit vectors) or squared Euclidean distance.

    note: what was built instead of what was asked, and why; "" where it is what was asked. bytes: what it holds.
    """

    def __init__(self, index: Any, codes: npt.NDArray[np.int32], factory: Factory, **facts: Any) -> None:
        self._index, self.factory = index, factory
        self._codes = codes  # of the chunks that the index holds, where it does not hold all of them
        self._reach = float(facts["reach"])  # the length of the longest vector
        self.note, self.bytes = str(facts["note"]), int(facts["bytes"])

    @classmethod
    def build(
        cls,
        vectors: Floats,
        factory: str,
        *,
        similarity: str = "cosine",
        ef_construction: int | None = None,
        bytes_each: int | None = None,
    ) -> "VectorIndex":
        """Build the index of `factory` from prepared vectors, float32 C-contiguous (n, d).

        A vector that is not finite is left out. bytes_each: what a vector takes where it is held as it is given;
        default 4 d. Where the vectors are too few for a factory's lists or centroids, fewer lists or Flat are built.
        Raises SettingsError for a factory that is not allowed, or whose parts do not divide the dimensions.
        """
        faiss = _faiss()
        d = vectors.shape[1]
        asked = check(factory, d)
        lengths = _lengths(vectors)
        finite = np.isfinite(lengths)
        held = vectors if finite.all() else vectors[finite]
        n = len(held)
        made = asked.for_vectors(n)
        metric = faiss.METRIC_L2 if similarity == "l2" else faiss.METRIC_INNER_PRODUCT
        index = faiss.index_factory(d, str(made), metric)
        with one_thread():  # links of a graph depend on the order of insertion
            for inner in _layers(index):
                _prepare_training(inner, ef_construction)
            if n:
                index.train(held)
                index.add(held)
        size = n * d * 4 if made.exact else int(faiss.serialize_index(index).nbytes)
        if bytes_each is not None:
            size += n * (bytes_each - 4 * d) * ((made.code == "Flat") + (made.refine == "Flat"))
        note = "" if made == asked else f"{n:,} vectors are too few for {asked}; {made} was built"
        codes = np.flatnonzero(finite).astype(np.int32) if n < len(vectors) else np.empty(0, np.int32)
        return cls(index, codes, made, note=note, bytes=size, reach=lengths[finite].max(initial=0))

    @classmethod
    def load(cls, artifact: Artifact) -> "VectorIndex":
        """Return the index that `dump` gave."""
        faiss = _faiss()
        meta = artifact.meta
        factory = Factory.parse(str(meta["factory"]))
        if factory is None:
            raise ValueError(f"the artifact holds an index of an unknown factory {meta['factory']!r}")
        index = faiss.deserialize_index(artifact["index"])
        return cls(index, artifact["codes"], factory, note=meta["note"], bytes=meta["bytes"], reach=meta["reach"])

    def dump(self) -> Artifact:
        """Return the index as bytes."""
        faiss = _faiss()
        meta = {"factory": str(self.factory), "note": self.note, "bytes": self.bytes, "reach": self._reach}
        return Artifact({"index": faiss.serialize_index(self._index), "codes": self._codes}, meta)

    def search(
        self,
        queries: Floats,
        k: int,
        *,
        ef_search: int | None = None,
        nprobe: int | None = None,
        refine_factor: int | None = None,
    ) -> Rankings:
        """Return the nearest chunks of each query (Q, ≤ k), ties in ascending chunk code.

        A score is the inner product, or minus the squared distance. ef_search: width of a graph's search; k where it is
        smaller. nprobe: lists looked at. refine_factor: candidates for each result, whose exact scores decide. A query
        or chunk whose score is not finite is never a result.
        """
        k = min(k, self._index.ntotal)
        if k == 0 or not len(queries):
            return rank(np.empty((len(queries), 0), np.int32), np.empty((len(queries), 0), np.float32))
        settings = ef_search, nprobe, refine_factor
        blocks = np.array_split(queries, -(-len(queries) // _QUERIES))
        found = [self._ranked(block, k, settings) for block in blocks]
        return Rankings(np.concatenate([f.items for f in found]), np.concatenate([f.scores for f in found]))

    def _ranked(self, queries: Floats, k: int, settings: tuple[int | None, ...]) -> Rankings:
        """Return the first k of what is fetched, and of more for the queries whose ties go on beyond it."""
        n, fetch = self._index.ntotal, k
        if self.factory.scans:
            fetch = min(k + _SPARE, n)
        items, scores = self._fetch(queries, fetch, settings)
        found, cut = rank(items, scores, k), _ties_are_cut(items, scores, k)
        while self.factory.scans and fetch < n and cut.any():
            fetch = min(4 * fetch, n)
            items, scores = self._fetch(queries, fetch, settings)
            items, scores = items[cut], scores[cut]
            deeper = rank(items, scores, k)
            found.items[cut], found.scores[cut] = deeper.items, deeper.scores
            cut[cut] = _ties_are_cut(items, scores, k)
        return found

    def _parameters(self, k: int, ef_search: int | None, nprobe: int | None, refine_factor: int | None) -> Any:
        """Return FAISS's parameters; one of the wrong class would be ignored without a word.

        FAISS takes an nprobe above the lists for all of them, but an efSearch below k as it is.
        """
        faiss = _faiss()
        factor = (refine_factor or 1) if self.factory.refine else 1
        inner = None
        if self.factory.links:
            inner = faiss.SearchParametersHNSW(efSearch=max(ef_search or 0, k * factor))
        elif self.factory.lists:
            inner = faiss.SearchParametersIVF(nprobe=nprobe or 1)
        if not self.factory.refine:
            return inner
        return faiss.IndexRefineSearchParameters(k_factor=factor, base_index_params=inner)

    def _fetch(self, queries: Floats, k: int, settings: tuple[int | None, ...]) -> tuple[npt.NDArray[np.int32], Floats]:
        faiss = _faiss()
        scores, items = self._index.search(queries, k, params=self._parameters(k, *settings))
        far = self._index.metric_type == faiss.METRIC_L2
        lengths = _lengths(queries)[:, None]
        with np.errstate(all="ignore"):  # of what is not found
            most = np.maximum((lengths + self._reach) ** 2 if far else lengths * self._reach, 1)
            places = np.float32(10) ** (DIGITS - np.ceil(np.log10(most) - 1e-3))  # 1e-3: 1.000001 is 1
            scores = np.rint((-scores if far else scores) * places) / places
        found = np.isfinite(scores) & (items >= 0)
        items = np.where(found, self._codes[items] if len(self._codes) else items, -1).astype(np.int32)
        return items, np.where(found, scores, np.float32(-np.inf))


def ann_recall(approximate: Rankings, exact: Rankings, k: int) -> npt.NDArray[np.float64]:
    """Return the share of the exact first k that are among the approximate first k, float64 (Q,); 1 where none is.

    Any chunk whose exact score is that of the k-th counts as one of them, so `exact` is better deeper than k.
    """
    wanted = np.minimum(k, exact.counts)
    if not exact.items.size:
        return np.ones(len(exact.items))
    last = np.take_along_axis(exact.scores, np.maximum(wanted - 1, 0)[:, None], axis=1)
    good = (exact.items >= 0) & (exact.scores >= last)
    row = np.arange(len(exact.items))[:, None] << 32
    found = approximate.items[:, :k]
    hits = np.isin(row | found, (row | exact.items)[good]).sum(axis=1)  # −1 stays −1, which is none
    return np.where(wanted > 0, hits / np.maximum(wanted, 1), 1.0)


def _faiss() -> Any:
    """Import FAISS, with products of matrices from 20 queries on: left alone, 1.15 takes them from some 300, and a
    search of fewer takes three times as long.
    """
    import faiss

    faiss.cvar.distance_compute_blas_threshold = 20
    return faiss


def _lengths(vectors: Floats) -> Floats:
    """Return the length of each; not finite where a number is not."""
    with np.errstate(all="ignore"):
        lengths: Floats = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    return lengths


def _ties_are_cut(items: npt.NDArray[np.int32], scores: Floats, k: int) -> npt.NDArray[np.bool_]:
    """Tell for which queries the last that was fetched has the score of the k-th."""
    cut: npt.NDArray[np.bool_] = (items[:, k - 1] >= 0) & (scores[:, k - 1] == scores[:, -1])
    return cut


def _prepare_training(index: Any, ef_construction: int | None) -> None:
    if hasattr(index, "hnsw"):
        index.hnsw.efConstruction = ef_construction or index.hnsw.efConstruction
    if hasattr(index, "pq"):
        index.pq.cp.min_points_per_centroid = 1  # for_vectors has seen to what is enough
    if hasattr(index, "do_polysemous_training"):
        index.do_polysemous_training = False  # most of the time of a build, for a kind of search that is not used


def _layers(index: Any) -> Iterator[Any]:
    """Yield an index and those that it is made of."""
    faiss = _faiss()
    yield index
    for name in ("base_index", "storage"):
        if getattr(index, name, None) is not None:
            yield from _layers(faiss.downcast_index(getattr(index, name)))


@contextmanager
def one_thread() -> Iterator[None]:
    """Run FAISS on one thread within the block."""
    faiss = _faiss()
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
