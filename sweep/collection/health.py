"""What is odd about a collection, so that it is seen before hours are spent on it."""

__all__ = ["Health", "health"]

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from metrics.evaluate import evaluate
from metrics.rankings import from_columns
from sweep.collection.collection import Collection, Dirt

MEASURE = "ndcg@10"
NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Counts and ids; ids are in the collection's order.

    identical_documents: groups of ids with one and the same text, blank ones aside. queries_without_relevant: judged,
    but no label reaches `relevant_from`. dangling_documents: judged but absent; `dangling_pairs` counts their labels.
    label_counts: label → pairs. words: whitespace-separated. best_reachable: the mean ndcg@10 of the best ranking that
    the documents allow (0…1); below 1 where judged documents are absent or blank, None where no query can be scored.
    """

    documents: int
    blank_documents: tuple[str, ...]
    identical_documents: tuple[tuple[str, ...], ...]
    mean_words: float
    most_words: int
    queries: int
    blank_queries: tuple[str, ...]
    labelled_queries: int
    queries_without_judgments: tuple[str, ...]
    queries_without_relevant: tuple[str, ...]
    judged_pairs: int
    label_counts: dict[int, int]
    dangling_documents: tuple[str, ...]
    dangling_pairs: int
    best_reachable: float | None
    dirt: Dirt

    def lines(self) -> list[str]:
        """Say it in short sentences, the worst first and the sizes last."""
        return [*self.warnings(), *self._about_texts(), *self._sizes()]

    def warnings(self) -> list[str]:
        """Say what keeps labels from counting, in short sentences; empty when all of them count."""
        return list(self._about_labels())

    def to_dict(self) -> dict[str, Any]:
        """Return it as values that JSON knows, under the names of the fields."""
        return asdict(self)

    def _about_labels(self) -> Iterator[str]:
        lost = _count(self.dirt.dangling_query_pairs, "label")
        if self.best_reachable is None:
            yield "No query has a relevant document, so no configuration can be scored."
        yield from _named(self.dangling_documents, "judged document", "not in the collection")
        yield from _named(self.dirt.dangling_queries, "judged query", f"not among the queries ({lost} dropped)")
        if self.best_reachable is not None and round(self.best_reachable, 6) < 1:
            best = f"{self.best_reachable:.6f}"
            yield f"The best reachable mean {MEASURE} is {best}: relevant documents are absent or blank."
        yield from _named(self.queries_without_judgments, "query", "without judgments, left out of means")
        yield from _named(self.queries_without_relevant, "query", "without a relevant document, left out of means")

    def _about_texts(self) -> Iterator[str]:
        yield from _named(self.blank_queries, "query", "without text")
        yield from _named(self.blank_documents, "document", "without text, never retrieved")
        same = tuple(" = ".join(ids[:NAMED]) for ids in self.identical_documents)
        yield from _named(same, "group", "of documents with identical text")
        dirt = self.dirt
        rows = {"document": dirt.repeated_documents, "query": dirt.repeated_queries, "label": dirt.repeated_labels}
        yield from (f"{_count(n, f'repeated {kind} row')} counted once." for kind, n in rows.items() if n)

    def _sizes(self) -> Iterator[str]:
        words = f"{self.mean_words:.0f} words on average, {self.most_words} at most"
        yield f"{_count(self.documents, 'document')} of {words}."
        labels = ", ".join(f"{count} × {label}" for label, count in self.label_counts.items())
        pairs = f"{_count(self.judged_pairs, 'judged pair')} ({labels})"
        yield f"{_count(self.queries, 'query')}, {self.labelled_queries} with judgments; {pairs}."


def health(collection: Collection) -> Health:
    """Look at every document, query and label of `collection` once."""
    judged = collection.judgments
    words = [len(text.split()) for text in collection.texts]
    same = defaultdict(list)
    for document, text, count in zip(collection.documents, collection.texts, words, strict=True):
        if count:
            same[text].append(document)
    labels, counts = np.unique(judged.labels, return_counts=True)
    blank = np.flatnonzero(np.array(words) == 0)
    return Health(
        documents=len(words),
        blank_documents=tuple(collection.documents[code] for code in blank),
        identical_documents=tuple(tuple(ids) for ids in same.values() if len(ids) > 1),
        mean_words=float(np.mean(words)),
        most_words=max(words),
        queries=len(collection.queries),
        blank_queries=_pick(collection.queries, [not text.strip() for text in collection.query_texts]),
        labelled_queries=int(judged.judged.sum()),
        queries_without_judgments=_pick(collection.queries, ~judged.judged),
        queries_without_relevant=_pick(collection.queries, judged.judged & ~judged.answerable),
        judged_pairs=len(judged.labels),
        label_counts=dict(zip(labels.tolist(), counts.tolist(), strict=True)),
        dangling_documents=collection.dangling_documents,
        dangling_pairs=int((judged.items >= len(words)).sum()),
        best_reachable=_best_reachable(collection, blank),
        dirt=collection.dirt,
    )


def _best_reachable(collection: Collection, blank: NDArray[np.intp]) -> float | None:
    """Score the ranking by label of the documents that are there and have text."""
    judged = collection.judgments
    if not judged.answerable.any():
        return None
    there = (judged.items < len(collection.documents)) & ~np.isin(judged.items, blank)
    best = from_columns(len(judged.queries), judged.rows[there], judged.items[there], judged.labels[there])
    return evaluate(judged, best, [MEASURE]).mean(MEASURE)


def _pick(ids: tuple[str, ...], mask: ArrayLike) -> tuple[str, ...]:
    return tuple(ids[code] for code in np.flatnonzero(mask))


def _named(ids: tuple[str, ...], noun: str, what: str) -> Iterator[str]:
    """One sentence with the number of `ids` and the first of them, or none."""
    if ids:
        more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
        yield f"{_count(len(ids), noun)} {what}: {', '.join(ids[:NAMED])}{more}."


def _count(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun[:-1]}ies" if noun.endswith("query") else f"{count} {noun}s"
