"""Vectors → a FAISS index, built from its factory string; search-time parameters need no rebuild."""

__all__ = ["VectorIndex"]

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from metrics import Rankings, rank
from sweep.artifacts import Artifact

Floats = npt.NDArray[np.float32]
DECIMALS = 6  # of a cosine: what float32 sums keep whatever the order in which they are added


class VectorIndex:
    """Unit vectors under inner product, which is their cosine."""

    def __init__(self, index: Any, factory: str) -> None:
        self._index = index
        self.factory = factory

    @classmethod
    def build(cls, vectors: Floats, factory: str) -> "VectorIndex":
        """Build the index of `factory`, as "Flat" or "HNSW32", from float32 C-contiguous vectors (n, d)."""
        import faiss

        index = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
        with one_thread():  # links of a graph depend on the order of insertion
            index.add(vectors)
        return cls(index, factory)

    @classmethod
    def load(cls, artifact: Artifact) -> "VectorIndex":
        """Return the index that `dump` gave."""
        import faiss

        return cls(faiss.deserialize_index(artifact["index"]), str(artifact.meta["factory"]))

    def dump(self) -> Artifact:
        """Return the index as bytes."""
        import faiss

        return Artifact({"index": faiss.serialize_index(self._index)}, {"factory": self.factory})

    @property
    def exact(self) -> bool:
        """Whether its result for k is a prefix of its result for any larger k."""
        return self.factory == "Flat"

    @property
    def bytes(self) -> int:
        """Size of the index as it is stored; of the vectors where it holds nothing else."""
        if self.exact:
            return int(self._index.ntotal * self._index.d * 4)
        return int(self.dump()["index"].nbytes)

    def search(self, queries: Floats, k: int, ef_search: int | None = None) -> Rankings:
        """Return the nearest chunks of each query (Q, ≤ k) by cosine, ties in ascending chunk code.

        `ef_search` is the width of an HNSW search; k where it is smaller. A query or chunk whose cosine is not finite
        is never a result.
        """
        k = min(k, self._index.ntotal)
        if k == 0 or not len(queries):
            return rank(np.empty((len(queries), 0), np.int32), np.empty((len(queries), 0), np.float32))
        fetch = min(k + 16, self._index.ntotal) if self.exact else k
        while True:
            items, scores = self._fetch(queries, fetch, ef_search)
            cut_through_ties = self.exact and fetch < self._index.ntotal and (scores[:, k - 1] == scores[:, -1]).any()
            if not cut_through_ties:
                return rank(items, scores, k)
            fetch = min(2 * fetch, self._index.ntotal)

    def _fetch(self, queries: Floats, k: int, ef_search: int | None) -> tuple[npt.NDArray[np.int32], Floats]:
        import faiss

        parameters = None if self.exact else faiss.SearchParametersHNSW(efSearch=max(ef_search or k, k))  # type: ignore[attr-defined]
        scores, items = self._index.search(queries, k, params=parameters)
        items = np.where(np.isfinite(scores) & (items >= 0), items, -1).astype(np.int32)
        scores = np.where(items >= 0, scores, -np.inf)
        return items, np.round(scores, DECIMALS).astype(np.float32)


@contextmanager
def one_thread() -> Iterator[None]:
    """Run FAISS on one thread within the block."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
