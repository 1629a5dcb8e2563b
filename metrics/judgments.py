"""Relevance judgments (qrels): labels of documents for queries.

Ids are strings at the edge and codes inside: row `q` is `queries[q]`, document code `d` is `documents[d]`. Codes follow
the ids' ascending order as text, so that the tie rule of `metrics.rankings` is an integer comparison. Judgments are
made from ids or from codes; the other form is worked out when it is first asked for.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metrics.hits import Hits, Ideal

WIDEST = 1000  # 2^1001 times any number of documents is still a finite float64

ById = tuple[Mapping[str, int], ...]
Coded = tuple[tuple[str, ...], NDArray[np.int32]]


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


@dataclass(frozen=True, eq=False)
class Judgments:
    """Labels of documents for queries, in compressed rows; made by `from_dict` or `from_arrays`.

    indptr: int64 (Q+1,); query `q` owns the entries `indptr[q]:indptr[q+1]`, which may be none.
    labels: int16 (nnz,), within `scale`. relevant_from: labels of at least this are relevant to recall, precision, hit,
    mrr, map and rbp.
    """

    scale: LabelScale
    relevant_from: int
    queries: tuple[str, ...] = field(repr=False)
    indptr: NDArray[np.int64] = field(repr=False)
    labels: NDArray[np.int16] = field(repr=False)
    _ids: ById | None = field(default=None, repr=False)
    _codes: Coded | None = field(default=None, repr=False)
    _corpus: tuple[str, ...] = field(default=(), repr=False)

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

        relevant_from: default scale.min + 1. Raises ValueError for an id that is repeated or not text, documents not in
        ascending order, a code without an id, a label that is not whole or outside the scale, two labels for one pair,
        and a relevant_from outside min+1…max.
        """
        scale = scale or LabelScale()
        relevant_from = _relevant_from(relevant_from, scale)
        _check_ids(queries, "query")
        _check_documents(documents)
        rows, items = np.asarray(query_codes, dtype=np.int64), np.asarray(document_codes, dtype=np.int64)
        _check_codes(rows, len(queries), "query")
        _check_codes(items, len(documents), "document")
        pairs = rows * len(documents) + items
        order = np.argsort(pairs, kind="stable")
        pairs, rows, items = pairs[order], rows[order], items[order]

        def pair(at: int) -> str:
            return _pair(queries[rows[at]], documents[items[at]])

        column = _on_scale(np.asarray(labels)[order], scale, pair)
        repeat = np.concatenate([[False], pairs[1:] == pairs[:-1]]) if len(pairs) else np.zeros(0, dtype=bool)
        conflict = np.flatnonzero(repeat[1:] & (column[1:] != column[:-1]))
        if conflict.size:
            first = int(conflict[0])
            both = f"{column[first]} and {column[first + 1]}"
            raise ValueError(f"{pair(first)}: judged twice, with labels {both}; keep one of them")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(rows[~repeat], minlength=len(queries)))])
        codes = (tuple(documents), items[~repeat].astype(np.int32))
        return cls(scale, relevant_from, tuple(queries), indptr.astype(np.int64), column[~repeat], _codes=codes)

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

        Raises ValueError as `from_arrays`, and for judgments of an unlisted query.
        """
        scale = scale or LabelScale()
        relevant_from = _relevant_from(relevant_from, scale)
        queries = tuple(qrels) if queries is None else tuple(queries)
        corpus = () if documents is None else tuple(documents)
        _check_ids(queries, "query")
        _check_documents(corpus)
        known = set(queries)
        strange = next((query for query in qrels if query not in known), None)
        if strange is not None:
            raise ValueError(f"query {strange!r} is judged but is not among the queries; leave its judgments out")
        rows = tuple(_row(query, qrels.get(query, {})) for query in queries)
        for row in rows:
            check_text(row, "document")
        indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)

        def pair(at: int) -> str:
            row = int(np.searchsorted(indptr, at, side="right")) - 1
            return _pair(queries[row], list(rows[row])[at - int(indptr[row])])

        values = list(chain.from_iterable(row.values() for row in rows))
        whole = set(map(type, values)) <= {int}
        labels = _on_scale(np.array(values, dtype=None if whole else object), scale, pair)
        if not whole:  # 3.0 is 3 from here on
            flat = iter(labels.tolist())
            rows = tuple(dict(zip(row, flat, strict=False)) for row in rows)
        return cls(scale, relevant_from, queries, indptr, labels, _ids=rows, _corpus=corpus)

    @cached_property
    def by_id(self) -> ById:
        """The labels of each query: {document id: label}."""
        if self._ids is not None:
            return self._ids
        documents, items = self._coded
        ids, labels, ends = [documents[item] for item in items.tolist()], self.labels.tolist(), self.indptr.tolist()
        return tuple(dict(zip(ids[a:b], labels[a:b], strict=True)) for a, b in pairwise(ends))

    @cached_property
    def _coded(self) -> Coded:
        if self._codes is not None:
            return self._codes
        ids = self.by_id
        documents = self._corpus + tuple(sorted(set(chain.from_iterable(ids)).difference(self._corpus)))
        code_of = {document: code for code, document in enumerate(documents)}
        items = map(code_of.__getitem__, chain.from_iterable(ids))
        return documents, np.fromiter(items, np.int32, count=len(self.labels))

    @property
    def documents(self) -> tuple[str, ...]:
        """The id of each document code, ascending; dangling ids follow the corpus."""
        return self._coded[0]

    @property
    def items(self) -> NDArray[np.int32]:
        """The document code of each entry: int32 (nnz,)."""
        return self._coded[1]

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The query code of each entry: int64 (nnz,)."""
        return np.repeat(np.arange(len(self.queries)), np.diff(self.indptr))

    @cached_property
    def judged(self) -> NDArray[np.bool_]:
        """Whether a query has any judgment: bool (Q,)."""
        return np.diff(self.indptr) > 0

    @cached_property
    def answerable(self) -> NDArray[np.bool_]:
        """Whether a query has a relevant judged document: bool (Q,)."""
        return np.bincount(self.rows[self.labels >= self.relevant_from], minlength=len(self.queries)) > 0

    @property
    def levels(self) -> NDArray[np.int64]:
        """The label of each entry as its place on the scale, from 1: int64 (nnz,)."""
        return self.labels.astype(np.int64) - (self.scale.min - 1)

    @cached_property
    def ideal(self) -> Ideal:
        """The best possible rankings: all judged documents of each query, by falling label."""
        return best_order(self.rows, self.levels, len(self.queries))

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """The place of each entry in a table of queries and documents with one spare column: int64 (nnz,)."""
        return self.rows * (len(self.documents) + 1) + self.items


def best_order(rows: NDArray[np.integer], levels: NDArray[np.integer], lists: int) -> Ideal:
    """Rank documents, given by list and level in any order, by falling level: only how many have each level matters."""
    top = int(levels.max(initial=0)) + 1
    counts = np.bincount(rows * top + (top - 1 - levels), minlength=lists * top).reshape(lists, top)
    level = np.repeat(np.tile(np.arange(top - 1, -1, -1), lists), counts.ravel())
    lengths = counts.sum(axis=1)
    rank = np.arange(len(level)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return Ideal(Hits.of(lengths, rank, level))


def check_text(ids: Collection[object], kind: str) -> None:
    """Raise ValueError for the first id that is not text."""
    if not set(map(type, ids)) <= {str}:
        for value in ids:
            if not isinstance(value, str):
                raise ValueError(f"a {kind} id must be text, got {value!r} ({type(value).__name__})")


def _pair(query: str, document: str) -> str:
    return f"query {query!r}, document {document!r}"


def _row(query: str, labels: Mapping[str, int]) -> dict[str, int]:
    if not isinstance(labels, Mapping):
        raise ValueError(f"query {query!r}: {{document id: label}} is needed, got {type(labels).__name__}")
    return dict(labels)


def _relevant_from(given: int | None, scale: LabelScale) -> int:
    chosen = scale.min + 1 if given is None else check_label(given)
    if not scale.min < chosen <= scale.max:
        raise ValueError(f"relevant_from must be within {scale.min + 1}…{scale.max}, got {given}")
    return chosen


def _on_scale(column: NDArray[Any], scale: LabelScale, pair: Callable[[int], str]) -> NDArray[np.int16]:
    """Return the labels as int16; name the pair of the first one that is not whole or outside the scale."""
    if column.dtype.kind not in "iuf":
        for at, value in enumerate(column.tolist()):
            _checked(value, pair, at)
        column = column.astype(np.float64)
    wrong = np.flatnonzero(~((column >= scale.min) & (column <= scale.max) & (column == np.floor(column))))
    if wrong.size:
        at = int(wrong[0])
        label = _checked(column[at].item(), pair, at)
        raise ValueError(f"{pair(at)}: label {label} is outside the scale {scale.min}…{scale.max}")
    return column.astype(np.int16)


def _checked(value: object, pair: Callable[[int], str], at: int) -> int:
    try:
        return check_label(value)
    except ValueError as error:
        raise ValueError(f"{pair(at)}: {error}") from None


def _check_ids(ids: Sequence[str], kind: str) -> None:
    check_text(ids, kind)
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = next(value for value in ids if value in seen or seen.add(value))  # type: ignore[func-returns-value]
        raise ValueError(f"{kind} id {twice!r} is used twice; ids must be unique")


def _check_documents(ids: Sequence[str]) -> None:
    _check_ids(ids, "document")
    fall = next(((a, b) for a, b in pairwise(ids) if a > b), None)
    if fall:
        raise ValueError(f"documents must be in ascending order, but {fall[1]!r} follows {fall[0]!r}; sort them")


def _check_codes(codes: NDArray[np.int64], count: int, kind: str) -> None:
    if codes.size and not 0 <= codes.min() <= codes.max() < count:
        raise ValueError(f"{kind} codes must be within 0…{count - 1}, got {codes.min()}…{codes.max()}")
