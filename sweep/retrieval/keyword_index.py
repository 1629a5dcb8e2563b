"""BM25 over chunks: terms counted once, weights for any k1 and b a cheap transform of the counts.

    tf    occurrences of a term in a chunk         df   chunks that hold the term
    dl    terms of a chunk                         N    chunks
    score(q, c) = Σ_t∈q  ln(1 + (N − df + .5) / (df + .5)) · tf / (tf + k1 · (1 − b + b · dl / mean dl))

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), in the form that Lucene
computes: without the constant factor k1 + 1, and with an inverse document frequency that is never negative.
"""

__all__ = ["KeywordIndex", "analyze"]

import unicodedata
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import regex
from scipy import sparse

from metrics import Rankings
from metrics.rankings import from_columns
from sweep.artifacts import Artifact

WORD = regex.compile(r"[\w\p{M}]+")  # vowel signs and other marks belong to their word
ENGLISH_STOP_WORDS = frozenset(
    [
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "be",
        "but",
        "by",
        "for",
        "if",
        "in",
        "into",
        "is",
        "it",
        "no",
        "not",
        "of",
        "on",
        "or",
        "such",
        "that",
        "the",
        "their",
        "then",
        "there",
        "these",
        "they",
        "this",
        "to",
        "was",
        "will",
        "with",
    ]
)  # the set of Lucene's EnglishAnalyzer
_BLOCK = 1 << 24  # scores held at a time


def analyze(texts: Sequence[str], analyzer: str) -> tuple[sparse.csr_array, list[str]]:
    """Return (term counts int32 (n, terms), the terms) of the texts.

    "plain": words in lower case, accents in their composed form (NFC). "english": the same, stop words dropped, and
    Porter2 stems.
    """
    codes: dict[str, int] = {}
    columns: list[int] = []
    ends: list[int] = [0]
    for text in texts:
        found = WORD.findall(unicodedata.normalize("NFC", text.lower()))
        columns += [codes.setdefault(word, len(codes)) for word in found]
        ends.append(len(columns))
    words = list(codes)
    counts = sparse.csr_array(
        (np.ones(len(columns), np.int32), np.array(columns, np.int32), np.array(ends, np.int64)),
        shape=(len(texts), len(words)),
    )
    if analyzer == "english":
        counts, words = _stemmed(counts, words)
    counts.sum_duplicates()
    return counts, words


def _stemmed(counts: sparse.csr_array, words: list[str]) -> tuple[sparse.csr_array, list[str]]:
    """Join the columns of words with one stem and drop those of stop words: the vocabulary is stemmed, not the text."""
    import Stemmer

    kept = [i for i, word in enumerate(words) if word not in ENGLISH_STOP_WORDS]
    stems = Stemmer.Stemmer("english").stemWords([words[i] for i in kept])
    codes: dict[str, int] = {}
    columns = np.array([codes.setdefault(stem, len(codes)) for stem in stems], np.int32)
    shape = (len(words), len(codes))
    to_stem = sparse.csr_array((np.ones(len(kept), np.int32), (np.array(kept, np.int32), columns)), shape=shape)
    return sparse.csr_array(counts @ to_stem), list(codes)


class KeywordIndex:
    """Term counts of the chunks and the vocabulary that names their columns."""

    def __init__(self, counts: sparse.csr_array, terms: Sequence[str], analyzer: str) -> None:
        self._counts = counts
        self._codes = {term: code for code, term in enumerate(terms)}
        self.analyzer = analyzer

    @classmethod
    def build(cls, texts: Sequence[str], analyzer: str) -> "KeywordIndex":
        """Count the terms of every chunk."""
        return cls(*analyze(texts, analyzer), analyzer)

    @classmethod
    def load(cls, artifact: Artifact) -> "KeywordIndex":
        """Return the index that `dump` gave."""
        terms = artifact["terms"].tobytes().decode("utf-8", "surrogatepass").split("\n")
        shape = (len(artifact["indptr"]) - 1, int(artifact.meta["terms"]))
        counts = sparse.csr_array((artifact["data"], artifact["indices"], artifact["indptr"]), shape=shape)
        return cls(counts, terms[: shape[1]], str(artifact.meta["analyzer"]))

    def dump(self) -> Artifact:
        """Return the counts and terms as arrays."""
        terms = np.frombuffer("\n".join(self._codes).encode("utf-8", "surrogatepass"), np.uint8)
        c = self._counts
        arrays = {"data": c.data, "indices": c.indices, "indptr": c.indptr, "terms": terms}
        return Artifact(arrays, {"terms": len(self._codes), "analyzer": self.analyzer})

    @property
    def bytes(self) -> int:
        """Size of the counts and the vocabulary."""
        c = self._counts
        return int(c.data.nbytes + c.indices.nbytes + c.indptr.nbytes + sum(map(len, self._codes)))

    def weights(self, k1: float, b: float) -> sparse.csc_array:
        """Return what each term of each chunk adds to the score of a query that holds it once, float32 (terms, n)."""
        c = self._counts
        tf = c.data.astype(np.float64)
        dl = np.asarray(c.sum(axis=1), np.float64).ravel()
        df = np.bincount(c.indices, minlength=c.shape[1])
        idf = np.log1p((c.shape[0] - df + 0.5) / (df + 0.5))
        norm = k1 * (1 - b + b * dl / ((dl.mean() if len(dl) else 0) or 1.0))
        gain = idf[c.indices] * tf / (tf + np.repeat(norm, np.diff(c.indptr)))
        return sparse.csr_array((gain.astype(np.float32), c.indices, c.indptr), shape=c.shape).T

    def search(self, queries: Sequence[str], k: int, weights: sparse.csc_array) -> Rankings:
        """Return the best chunks of each query (Q, ≤ k), ties in ascending chunk code; none scores 0."""
        asked, terms = analyze(queries, self.analyzer)
        known = [(i, self._codes[t]) for i, t in enumerate(terms) if t in self._codes]
        ours = sparse.csr_array(
            (np.ones(len(known), np.int32), ([i for i, _ in known], [j for _, j in known])),
            shape=(len(terms), self._counts.shape[1]),
        )
        wanted = sparse.csr_array(asked @ ours).astype(np.float32)
        n = self._counts.shape[0]
        rows: list[npt.NDArray[np.int64]] = []
        items: list[npt.NDArray[np.int64]] = []
        scores: list[npt.NDArray[np.float32]] = []
        step = max(1, _BLOCK // max(1, n))
        for at in range(0, len(queries), step):
            block = np.asarray((wanted[at : at + step] @ weights).toarray(), np.float32)
            least = np.zeros(len(block), np.float32)
            if k < n:
                least = np.partition(block, n - k, axis=1)[:, n - k]
            row, item = np.nonzero((block > 0) & (block >= least[:, None]))
            rows.append(row + at)
            items.append(item)
            scores.append(block[row, item])
        return from_columns(len(queries), np.concatenate(rows), np.concatenate(items), np.concatenate(scores)).cut(k)
