"""Relevance judgments (qrels) as integer codes.

Ids are strings at the edge and codes inside: row `q` is `queries[q]`, document code `d` is `documents[d]`. Codes follow
the ids' ascending order as text, so that the tie rule of `metrics.rankings` is an integer comparison.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

WIDEST = 1000  # 2^1001 times any number of documents is still a finite float64


def check_label(value: object) -> int:
    """Return `value` as an int: Python and NumPy integers and integral floats pass.

    Raises ValueError for everything else: True, 2.5, NaN, "" and other text.
    """
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float | np.floating) and value.is_integer():
        return int(value)
    raise ValueError(f"a label must be a whole number, got {value!r}")


@dataclass(frozen=True, slots=True)
class LabelScale:
    """The labels that judgments may have: the whole numbers `min`…`max`.

    Raises ValueError unless −1000 ≤ min < max ≤ 1000 and max − min ≤ 1000 (gains are powers of two).
    """

    min: int = 0
    max: int = 4

    def __post_init__(self) -> None:
        if not -WIDEST <= self.min < self.max <= WIDEST or self.max - self.min > WIDEST:
            raise ValueError(
                f"label scale {self.min}…{self.max}: the minimum must be below the maximum, "
                f"and both within ±{WIDEST} and at most {WIDEST} apart"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Judgments:
    """Labels of documents for queries, in compressed rows.

    indptr: int64 (Q+1,); query `q` owns the entries `indptr[q]:indptr[q+1]`, which may be none.
    items: int32 (nnz,), document codes, ascending within a query. labels: int16 (nnz,), within `scale`.
    relevant_from: labels of at least this are relevant to recall, precision, hit, mrr and map.
    """

    scale: LabelScale
    relevant_from: int
    queries: tuple[str, ...]
    documents: tuple[str, ...] = field(repr=False)
    indptr: NDArray[np.int64] = field(repr=False)
    items: NDArray[np.int32] = field(repr=False)
    labels: NDArray[np.int16] = field(repr=False)

    @classmethod
    def from_arrays(
        cls,
        queries: Sequence[str],
        documents: Sequence[str],
        query_codes: ArrayLike,
        document_codes: ArrayLike,
        labels: ArrayLike,
        scale: LabelScale | None = None,
        *,
        relevant_from: int | None = None,
    ) -> "Judgments":
        """Build from three columns of equal length, in any order; identical repeats collapse.

        relevant_from: default scale.min + 1. Raises ValueError for an id that is repeated or not text, a code without
        an id, a label that is not whole or outside the scale, two labels for one pair, and a relevant_from outside
        min+1…max.
        """
        scale = scale or LabelScale()
        relevant_from = scale.min + 1 if relevant_from is None else relevant_from
        if not scale.min < relevant_from <= scale.max:
            raise ValueError(f"relevant_from must be within {scale.min + 1}…{scale.max}, got {relevant_from}")
        _check_ids(queries, "query")
        _check_ids(documents, "document")
        rows, items = np.asarray(query_codes, dtype=np.int64), np.asarray(document_codes, dtype=np.int64)
        _check_codes(rows, len(queries), "query")
        _check_codes(items, len(documents), "document")
        pairs = rows * len(documents) + items
        order = np.argsort(pairs, kind="stable")
        pairs, rows, items = pairs[order], rows[order], items[order]

        def pair(at: int) -> str:
            return f"query {queries[rows[at]]!r}, document {documents[items[at]]!r}"

        column = np.asarray(labels)[order]
        if column.dtype.kind not in "iuf":
            for at, value in enumerate(column.tolist()):
                _checked(value, pair(at))
            column = column.astype(np.float64)
        wrong = np.flatnonzero(~((column >= scale.min) & (column <= scale.max) & (column == np.floor(column))))
        if wrong.size:
            value = column[wrong[0]].item()
            label = _checked(value, pair(wrong[0]))
            raise ValueError(f"{pair(wrong[0])}: label {label} is outside the scale {scale.min}…{scale.max}")
        repeat = np.concatenate([[False], pairs[1:] == pairs[:-1]]) if len(pairs) else np.zeros(0, dtype=bool)
        conflict = np.flatnonzero(repeat[1:] & (column[1:] != column[:-1]))
        if conflict.size:
            first = int(conflict[0])
            both = f"{int(column[first])} and {int(column[first + 1])}"
            raise ValueError(f"{pair(first)}: judged twice, with labels {both}; keep one of them")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[~repeat], minlength=len(queries)))])
        return cls(
            scale,
            relevant_from,
            tuple(queries),
            tuple(documents),
            indptr.astype(np.int64),
            items[~repeat].astype(np.int32),
            column[~repeat].astype(np.int16),
        )

    @classmethod
    def from_dict(
        cls,
        qrels: Mapping[str, Mapping[str, int]],
        scale: LabelScale | None = None,
        *,
        relevant_from: int | None = None,
        queries: Sequence[str] | None = None,
        documents: Sequence[str] | None = None,
    ) -> "Judgments":
        """Build from {query id: {document id: label}}.

        queries: ids in row order, default the keys of qrels as they come; those without judgments become empty rows.
        documents: the corpus, ascending; default all judged ids, ascending. Judged ids that are not among them
        ("dangling") get the codes after them, ascending, and stay in the ideal ranking.

        Raises ValueError as `from_arrays`, and for documents not in ascending order or judgments of an unlisted query.
        """
        queries = tuple(qrels) if queries is None else tuple(queries)
        corpus = () if documents is None else tuple(documents)
        _check_ids(corpus, "document")
        fall = next(((a, b) for a, b in pairwise(corpus) if a > b), None)
        if fall:
            raise ValueError(f"documents must be in ascending order, but {fall[1]!r} follows {fall[0]!r}; sort them")
        row_of = {query: row for row, query in enumerate(queries)}
        strange = next((query for query in qrels if query not in row_of), None)
        if strange is not None:
            raise ValueError(f"query {strange!r} is judged but is not among the queries; leave its judgments out")
        judged = {document for row in qrels.values() for document in row}
        _check_ids(judged, "document")
        everything = corpus + tuple(sorted(judged.difference(corpus)))
        code_of = {document: code for code, document in enumerate(everything)}
        rows = [row_of[query] for query, row in qrels.items() for _ in row]
        items = [code_of[document] for row in qrels.values() for document in row]
        labels = [
            _checked(label, f"query {query!r}, document {document!r}")
            for query, row in qrels.items()
            for document, label in row.items()
        ]
        return cls.from_arrays(queries, everything, rows, items, labels, scale, relevant_from=relevant_from)

    @property
    def rows(self) -> NDArray[np.int64]:
        """The query code of each entry: int64 (nnz,)."""
        return np.repeat(np.arange(len(self.queries)), np.diff(self.indptr))

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Whether a query has any judgment: bool (Q,)."""
        return np.diff(self.indptr) > 0

    @property
    def answerable(self) -> NDArray[np.bool_]:
        """Whether a query has a relevant judged document: bool (Q,)."""
        return np.bincount(self.rows[self.labels >= self.relevant_from], minlength=len(self.queries)) > 0


def _checked(value: object, pair: str) -> int:
    try:
        return check_label(value)
    except ValueError as error:
        raise ValueError(f"{pair}: {error}") from None


def _check_ids(ids: Sequence[str] | set[str], kind: str) -> None:
    for value in ids:
        if not isinstance(value, str):
            raise ValueError(f"a {kind} id must be text, got {value!r} ({type(value).__name__})")
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = next(value for value in ids if value in seen or seen.add(value))  # type: ignore[func-returns-value]
        raise ValueError(f"{kind} id {twice!r} is used twice; ids must be unique")


def _check_codes(codes: NDArray[np.int64], count: int, kind: str) -> None:
    if codes.size and not 0 <= codes.min() <= codes.max() < count:
        raise ValueError(f"{kind} codes must be within 0…{count - 1}, got {codes.min()}…{codes.max()}")
