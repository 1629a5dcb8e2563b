"""Judged spans of documents, and how much of their text ranked chunks retrieve.

A span is a range of a document's characters with a label for a query. Chunks come from any chunking, so the judgments
outlive it. All ranges count characters from 0, the end exclusive. `evaluate_spans` measures text, whatever the lengths
of spans and chunks: of the positions that the first k chunks hold, how many are relevant. A position is counted once,
however many chunks or spans hold it, so the order of the chunks matters only through the cutoff, and overlap between
them is neither rewarded nor punished. `metrics.passages` ranks the spans that the chunks cover.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metrics.evaluate import Scores, distinct
from metrics.hits import Codes, Float
from metrics.judgments import Judgments, LabelScale, check_label
from metrics.measures import SPAN_REGISTRY, Measure
from metrics.rankings import Rankings

_LONGEST = np.iinfo(np.int32).max

Ints = NDArray[np.int32]
Positions = NDArray[np.int64]
Record = tuple[str, str, int, int, int]


@dataclass(frozen=True, eq=False)
class Spans:
    """Labels of character ranges for queries, ascending by query, document, start and end; made by `from_records`.

    query, document: int32 (n,), codes. start, end: int32 (n,), characters. label: int16 (n,), within `scale`.
    relevant_from: labels of at least this are relevant. queries, documents: the id of each code, documents ascending.
    """

    scale: LabelScale
    relevant_from: int
    queries: tuple[str, ...] = field(repr=False)
    documents: tuple[str, ...] = field(repr=False)
    query: Ints = field(repr=False)
    document: Ints = field(repr=False)
    start: Ints = field(repr=False)
    end: Ints = field(repr=False)
    label: NDArray[np.int16] = field(repr=False)

    @classmethod
    def from_records(
        cls,
        records: Iterable[Record],
        queries: Sequence[str],
        documents: Sequence[str],
        scale: LabelScale | None = None,
        *,
        relevant_from: int | None = None,
    ) -> "Spans":
        """Build from (query id, document id, start, end, label) in any order; identical repeats collapse.

        relevant_from: default scale.min + 1. Raises ValueError for an id that is unknown, repeated or not text,
        documents not in ascending order, positions that are not whole or not 0 ≤ start < end, a label that is not whole
        or outside the scale, two labels of one range for a query, and a relevant_from outside min+1…max.
        """
        frame = Judgments.from_dict({}, scale, relevant_from=relevant_from, queries=queries, documents=documents)
        query_code = {query: code for code, query in enumerate(frame.queries)}
        document_code = {document: code for code, document in enumerate(frame.documents)}
        found: dict[tuple[int, int, int, int], int] = {}
        for query, document, start, end, label in records:
            where = f"query {query!r}, document {document!r}, {start}…{end}"
            for kind, one, known in (("query", query, query_code), ("document", document, document_code)):
                if one not in known:
                    raise ValueError(f"{where}: there is no {kind} {one!r}; list it, or leave its spans out")
            first, last = _whole(start, where), _whole(end, where)
            if not 0 <= first < last <= _LONGEST:
                raise ValueError(f"{where}: a span needs 0 ≤ start < end ≤ {_LONGEST}")
            value = _on_scale(label, frame.scale, where)
            first_label = found.setdefault((query_code[query], document_code[document], first, last), value)
            if first_label != value:
                raise ValueError(f"{where}: judged twice, with labels {first_label} and {value}; keep one of them")
        rows = sorted((*place, value) for place, value in found.items())
        q, d, starts, ends, labels = np.array(rows, dtype=np.int32).reshape(-1, 5).T.copy()
        ids = frame.queries, frame.documents
        return cls(frame.scale, frame.relevant_from, *ids, q, d, starts, ends, labels.astype(np.int16))

    @property
    def relevant(self) -> NDArray[np.bool_]:
        """Whether a span is relevant to its query: bool (n,)."""
        return self.label >= self.relevant_from


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """Where the chunks lie: document code and character range of each chunk code, int32 (n,) each, in any order.

    Raises ValueError for columns of other shapes and ranges that are not 0 ≤ start ≤ end.
    """

    document: Ints
    start: Ints
    end: Ints

    def __post_init__(self) -> None:
        _check_ranges("chunk", self.document, self.start, self.end)


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Where the tokens of all documents lie: document d owns the entries indptr[d]:indptr[d + 1].

    indptr: int64 (D + 1,). start, end: int32 (t,), characters; both never fall within a document. Empty tokens may be
    among them and belong to no range. Raises ValueError for other arrays.
    """

    indptr: NDArray[np.int64]
    start: Ints
    end: Ints

    def __post_init__(self) -> None:
        _check_ranges("token", self.start, self.start, self.end)
        edges = np.asarray(self.indptr)
        if edges.ndim != 1 or not len(edges) or edges[0] or edges[-1] != len(self.start) or np.any(np.diff(edges) < 0):
            raise ValueError(f"indptr must rise from 0 to the {len(self.start)} tokens, one entry more than documents")
        document = self.document
        for column in (self.start, self.end):
            falls = np.flatnonzero((np.diff(column) < 0) & (np.diff(document) == 0))
            if falls.size:
                at = int(falls[0]) + 1
                raise ValueError(
                    f"token {at}, of document {document[at]}, lies before the one that it follows; "
                    "give the tokens of each document in the order of its text"
                )

    @property
    def document(self) -> Codes:
        """The document code of each token: intp (t,)."""
        return np.repeat(np.arange(len(self.indptr) - 1), np.diff(self.indptr))


class Found(NamedTuple):
    """Positions among the first k chunks of each query, counted once: float64 (Q,) each.

    common: those that are relevant too. retrieved: all of them. relevant: those of the relevant spans, whatever k.
    """

    common: Float
    retrieved: Float
    relevant: Float


def token_recall(found: Found) -> Float:
    """Share of the relevant positions that was retrieved, |E ∩ R| / |E|; 0…1."""
    return found.common / np.maximum(found.relevant, 1)


def token_precision(found: Found) -> Float:
    """Share of the retrieved positions that is relevant, |E ∩ R| / |R|; 0…1, 0 where nothing was retrieved."""
    return found.common / np.maximum(found.retrieved, 1)


def token_iou(found: Found) -> Float:
    """Intersection over union, |E ∩ R| / |E ∪ R|; 0…1."""
    return found.common / np.maximum(found.relevant + found.retrieved - found.common, 1)


_FUNCTIONS: Mapping[str, Callable[[Found], Float]] = MappingProxyType(
    {"token_iou": token_iou, "token_precision": token_precision, "token_recall": token_recall}
)


def evaluate_spans(
    spans: Spans,
    chunks: Chunks,
    rankings: Rankings,
    measures: Iterable[Measure | str],
    *,
    tokens: Tokens | None = None,
) -> Scores:
    """Score the text of each query's ranked chunks by token_recall, token_precision and token_iou, cut or not.

    E is the positions of the relevant spans, R those of the first k chunks. Positions are characters, or with `tokens`
    the tokens: a range holds those of which it holds a character. rankings: chunk codes, with rows as spans.queries. A
    query is judged if it has a span, scored if it has a relevant position.

    Smith and Troynikov, "Evaluating Chunking Strategies for Retrieval", Chroma technical report, 2024. In their
    precision and IoU a position counts as often as chunks hold it; here R is a set, so overlap alone costs nothing.
    Their published program counts characters.

    Raises ValueError for another measure, another number of rows than queries, tokens of another number of documents,
    and chunks that are ranked or lie where there is none.
    """
    wanted = distinct(measures)
    strange = next((measure for measure in wanted if measure.name not in SPAN_REGISTRY), None)
    if strange is not None:
        raise ValueError(f"{strange.name} needs judged documents; use evaluate, on passages(…) if they are spans")
    check_codes(spans, chunks, rankings)
    relevant, retrieved, common = _count(spans, chunks, rankings, tokens)
    depth = rankings.items.shape[1]
    values = {}
    for measure in wanted:
        k = depth if measure.cutoff is None else min(measure.cutoff, depth)
        values[measure] = _FUNCTIONS[measure.name](Found(common[:, k], retrieved[:, k], relevant))
    return Scores(
        spans.queries,
        values,
        judged=np.bincount(spans.query, minlength=len(spans.queries)) > 0,
        scored=relevant > 0,
        retrieved=rankings.counts > 0,
        odd=np.count_nonzero(np.isneginf(rankings.scores) & (rankings.items >= 0), axis=1) > 0,
    )


def _count(spans: Spans, chunks: Chunks, rankings: Rankings, tokens: Tokens | None) -> tuple[Float, Float, Float]:
    """Count positions: float64 (Q,), the relevant ones; (Q, K + 1) twice, of the first k chunks all and the relevant.

    The ends of a query's ranges cut its documents into segments that each range holds whole or not at all. A segment
    belongs to the first chunk that holds it, so sums down the ranks give every cutoff, overlaps counted once.
    """
    (span_low, span_high), (chunk_low, chunk_high), size = _on_axis(spans, chunks, tokens)
    (queries, depth), width = rankings.items.shape, size + 1  # one apart, so that queries do not touch
    row, rank = np.nonzero(rankings.items >= 0)
    chunk = rankings.items[row, rank]
    wanted = np.flatnonzero(spans.relevant)
    shift = spans.query[wanted].astype(np.int64) * width
    ends = (
        chunk_low[chunk] + row * width,
        chunk_high[chunk] + row * width,
        span_low[wanted] + shift,
        span_high[wanted] + shift,
    )
    borders, at = np.unique(np.concatenate(ends), return_inverse=True)
    low, high, opens, closes = np.split(at, np.cumsum([len(end) for end in ends[:-1]]))
    lengths = np.diff(borders, append=borders[-1:]).astype(np.float64)
    owner = borders // width

    first = np.full(len(borders), depth)
    nth, segment = runs(low, high)
    np.minimum.at(first, segment, rank[nth])
    change = np.bincount(opens, minlength=len(borders)) - np.bincount(closes, minlength=len(borders))
    is_relevant, is_retrieved = np.cumsum(change) > 0, first < depth

    def down_the_ranks(chosen: NDArray[np.bool_]) -> Float:
        cells = owner[chosen] * (depth + 1) + first[chosen] + 1
        sums = np.bincount(cells, lengths[chosen], minlength=queries * (depth + 1))
        return np.cumsum(sums.reshape(queries, depth + 1), axis=1, dtype=np.float64)

    relevant = np.bincount(owner[is_relevant], lengths[is_relevant], minlength=queries).astype(np.float64)
    return relevant, down_the_ranks(is_retrieved), down_the_ranks(is_retrieved & is_relevant)


def _on_axis(
    spans: Spans, chunks: Chunks, tokens: Tokens | None
) -> tuple[tuple[Positions, Positions], tuple[Positions, Positions], int]:
    """Put all documents on one axis, one after the other: starts and ends of spans and of chunks there; its length."""
    parts = (spans, chunks) if tokens is None else (spans, chunks, tokens)
    lengths = np.zeros(len(spans.documents), np.int64)
    if tokens is not None and len(tokens.indptr) - 1 != len(lengths):
        raise ValueError(f"there are {len(lengths)} documents, but tokens of {len(tokens.indptr) - 1}")
    for part in parts:
        np.maximum.at(lengths, part.document, part.end)
    base = np.cumsum(lengths) - lengths
    of_spans, of_chunks, *others = ((base[p.document] + p.start, base[p.document] + p.end) for p in parts)
    if tokens is None:
        return of_spans, of_chunks, int(lengths.sum())
    starts, ends = (column[tokens.end > tokens.start] for column in others[0])

    def in_tokens(ranges: tuple[Positions, Positions]) -> tuple[Positions, Positions]:
        # from the first token that ends after the range's start, to the first that starts at its end or later
        low, high = np.searchsorted(ends, ranges[0], side="right"), np.searchsorted(starts, ranges[1])
        high = np.where(ranges[1] > ranges[0], high, low)  # an empty range holds nothing, also within a token
        return low.astype(np.int64), high.astype(np.int64)

    return in_tokens(of_spans), in_tokens(of_chunks), len(starts)


def runs(low: NDArray[np.integer], high: NDArray[np.integer]) -> tuple[Codes, Codes]:
    """Spell out the ranges low…high−1: which range each entry belongs to, and the entry; intp (m,) each."""
    counts = high - low
    nth = np.repeat(np.arange(len(counts)), counts)
    return nth, np.arange(len(nth)) + (low - np.cumsum(counts) + counts)[nth]


def check_codes(spans: Spans, chunks: Chunks, rankings: Rankings) -> None:
    """Raise ValueError for other rows than queries, chunks that there are not, and documents that there are not."""
    rows, items = len(rankings.items), rankings.items
    if rows != len(spans.queries):
        raise ValueError(f"there are {len(spans.queries)} queries but {rows} rankings; give one row a query")
    if items.size and items.max() >= len(chunks.start):
        raise ValueError(f"item {items.max()} is ranked, but chunk codes end at {len(chunks.start) - 1}")
    documents = chunks.document
    if documents.size and not 0 <= documents.min() <= documents.max() < len(spans.documents):
        found = f"{documents.min()}…{documents.max()}"
        raise ValueError(f"document codes of chunks must be within 0…{len(spans.documents) - 1}, got {found}")


def _check_ranges(kind: str, document: ArrayLike, start: ArrayLike, end: ArrayLike) -> None:
    columns = [np.asarray(column) for column in (document, start, end)]
    shapes = {column.shape for column in columns}
    if len(shapes) > 1 or columns[0].ndim != 1 or any(column.dtype.kind not in "iu" for column in columns):
        raise ValueError(f"{kind}s need whole numbers in columns of one length, got {[c.shape for c in columns]}")
    wrong = np.flatnonzero((columns[1] < 0) | (columns[2] < columns[1]))
    if wrong.size:
        at = int(wrong[0])
        raise ValueError(f"{kind} {at}: 0 ≤ start ≤ end is needed, got {columns[1][at]}…{columns[2][at]}")


def _whole(position: object, where: str) -> int:
    try:
        return check_label(position)
    except ValueError:
        raise ValueError(f"{where}: positions must be whole numbers, got {position!r}") from None


def _on_scale(label: object, scale: LabelScale, where: str) -> int:
    try:
        value = check_label(label)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    if not scale.min <= value <= scale.max:
        raise ValueError(f"{where}: label {value} is outside the scale {scale.min}…{scale.max}")
    return value
