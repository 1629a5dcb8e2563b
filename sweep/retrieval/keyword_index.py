"""BM25 over chunks: terms counted once, weights for any variant, k1, b and delta a cheap transform of the counts.

    tf    occurrences of a term in a chunk         df   chunks that hold the term
    dl    terms of a chunk                         N    chunks
    c     tf / (1 − b + b · dl / mean dl)

| variant   | inverse document frequency                | times, if the chunk holds the term      | and if not      |
|-----------|-------------------------------------------|-----------------------------------------|-----------------|
| lucene    | ln(1 + (N − df + .5) / (df + .5))         | c / (c + k1)                            | 0               |
| robertson | ln((N − df + .5) / (df + .5)), at least 0 | c / (c + k1)                            | 0               |
| atire     | ln(N / df)                                | (k1 + 1) c / (c + k1)                   | 0               |
| bm25l     | ln((N + 1) / (df + .5))                   | (k1 + 1) (c + delta) / (c + delta + k1) | the same, c = 0 |
| bm25+     | ln((N + 1) / df)                          | (k1 + 1) c / (c + k1) + delta           | delta           |

Kamphuis, de Vries, Boytsov and Lin, "Which BM25 Do You Mean?" (ECIR 2020); the names and values are those of bm25s.
"""

__all__ = ["VARIANTS", "KeywordIndex", "Weights"]

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from metrics import Rankings
from metrics.rankings import from_columns
from sweep.artifacts import Artifact
from sweep.retrieval.analyzers import analyze

Array = npt.NDArray[np.float64]

_IDF: dict[str, Callable[[int, Array], Array]] = {
    "lucene": lambda n, df: np.log1p((n - df + 0.5) / (df + 0.5)),
    "robertson": lambda n, df: np.log(np.maximum(1, (n - df + 0.5) / (df + 0.5))),
    "atire": lambda n, df: np.log(n / df),
    "bm25l": lambda n, df: np.log((n + 1) / (df + 0.5)),
    "bm25+": lambda n, df: np.log((n + 1) / df),
}
VARIANTS = tuple(_IDF)
_BLOCK = 1 << 24  # scores held at a time


class Weights(NamedTuple):
    """What terms add to scores.

    held: float32 (terms, n), what a chunk earns for a term it holds, beyond `absent`: float32 (terms,), what any chunk
    earns for the term, 0 but in "bm25l" and "bm25+".
    """

    held: sparse.csr_array
    absent: npt.NDArray[np.float32]


class KeywordIndex:
    """Term counts of the chunks and the terms that name them.

    counts: int32 (terms, n), the chunks of each term in ascending order.
    """

    def __init__(self, counts: sparse.csr_array, terms: Sequence[str], analyzer: str) -> None:
        self._counts = counts
        self._lengths = np.bincount(counts.indices, weights=counts.data, minlength=counts.shape[1])
        self._codes = {term: code for code, term in enumerate(terms)}
        self.analyzer = analyzer

    @classmethod
    def build(cls, texts: Sequence[str], analyzer: str) -> "KeywordIndex":
        """Count the terms of every chunk."""
        counts, terms = analyze(texts, analyzer)
        return cls(counts.T.tocsr(), terms, analyzer)

    @classmethod
    def load(cls, artifact: Artifact) -> "KeywordIndex":
        """Return the index that `dump` gave."""
        shape = (len(artifact["indptr"]) - 1, int(artifact.meta["chunks"]))
        counts = sparse.csr_array((artifact["data"], artifact["indices"], artifact["indptr"]), shape=shape)
        terms = artifact["terms"].tobytes().decode("utf-8", "surrogatepass").split("\n")
        return cls(counts, terms[: shape[0]], str(artifact.meta["analyzer"]))

    def dump(self) -> Artifact:
        """Return the counts and terms as arrays, the terms one a line: only word characters and marks are in terms."""
        terms = np.frombuffer("\n".join(self._codes).encode("utf-8", "surrogatepass"), np.uint8)
        c = self._counts
        arrays = {"data": c.data, "indices": c.indices, "indptr": c.indptr, "terms": terms}
        return Artifact(arrays, {"chunks": c.shape[1], "analyzer": self.analyzer})

    @property
    def bytes(self) -> int:
        """Size of the counts and the vocabulary."""
        c = self._counts
        return int(c.data.nbytes + c.indices.nbytes + c.indptr.nbytes + sum(map(len, self._codes)))

    def weights(self, k1: float, b: float, variant: str = "lucene", delta: float = 0.5) -> Weights:
        """Return what each term adds to the score of a query that holds it once.

        k1 ≥ 0; b in 0…1; variant one of `VARIANTS`; delta ≥ 0, of "bm25l" and "bm25+" alone.
        """
        scale, shift, least = 1.0 if variant in ("lucene", "robertson") else k1 + 1, 0.0, 0.0
        if variant == "bm25l":
            part = delta / (k1 + delta) if delta else 0.0
            scale, shift, least = scale * (1 - part), delta, scale * part
        elif variant == "bm25+":
            least = delta
        counts, n = self._counts, self._counts.shape[1]
        df = np.diff(counts.indptr)
        idf = _IDF[variant](n, df)
        lengths = np.maximum(1, self._lengths)  # a chunk without terms has no weight; this keeps 0 from below the line
        norm = 1 - b + b * lengths * n / max(1, self._lengths.sum())
        c = counts.data.astype(np.float32) * (1 / norm).astype(np.float32)[counts.indices]
        held = np.repeat((idf * scale).astype(np.float32), df) * (c / (c + np.float32(k1 + shift)))
        weights = sparse.csr_array((held, counts.indices, counts.indptr), shape=counts.shape)
        return Weights(weights, (idf * least).astype(np.float32))

    def search(self, queries: Sequence[str], k: int, weights: Weights) -> Rankings:
        """Return the best chunks of each query (Q, ≤ k), ties in ascending chunk code. k ≥ 1.

        A term counts as often as the query holds it. A chunk that earns nothing by the terms it holds is no result.
        """
        wanted = self._wanted(queries)
        absent = wanted @ weights.absent
        step = max(1, _BLOCK // max(1, self._counts.shape[1]))
        parts = []
        for at in range(0, max(1, len(queries)), step):
            row, item, score = _best(wanted[at : at + step] @ weights.held, absent[at : at + step], k)
            parts.append((row + at, item, score))
        row, item, score = map(np.concatenate, zip(*parts, strict=True))
        return from_columns(len(queries), row, item, score).cut(k)

    def _wanted(self, queries: Sequence[str]) -> sparse.csr_array:
        """Return how often each query holds each term: float32 (Q, terms), in the order of the terms.

        Scores are added in that order, so a query's are the same in whatever batch.
        """
        counts, terms = analyze(queries, self.analyzer)
        asked = counts.tocoo()
        code = np.array([self._codes.get(term, -1) for term in terms], np.int32)[asked.col]
        known = code >= 0
        entries = asked.data[known].astype(np.float32), (asked.row[known], code[known])
        return sparse.csr_array(entries, shape=(len(queries), len(self._codes)))


def _best(
    scores: sparse.csr_array, absent: npt.NDArray[np.float32], k: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Return (query, chunk, score) of the k best of each query and what ties with the last of them, in any order."""
    total = scores.data + np.repeat(absent, np.diff(scores.indptr))
    kept = np.ones(len(total), np.bool_)
    for begin, end in pairwise(scores.indptr.tolist()):
        if end - begin > k:
            own = total[begin:end]
            kept[begin:end] = own >= np.partition(own, -k)[-k]
    at = np.flatnonzero(kept)
    return np.searchsorted(scores.indptr, at, "right") - 1, scores.indices[at], total[at]
