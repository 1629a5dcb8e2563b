"""What a person brings: documents, queries and relevance labels, joined and checked once."""

__all__ = ["Collection", "Dirt"]

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from metrics.judgments import Judgments, LabelScale
from sweep.errors import CollectionError


@dataclass(frozen=True, slots=True, kw_only=True)
class Dirt:
    """What loading cleaned up and a Collection no longer shows.

    repeated_*: rows that said again what an earlier row of the same id (or pair) had said.
    dangling_queries: judged query ids that are not among the queries, ascending; dangling_query_pairs: their labels.
    """

    repeated_documents: int = 0
    repeated_queries: int = 0
    repeated_labels: int = 0
    dangling_queries: tuple[str, ...] = ()
    dangling_query_pairs: int = 0


@dataclass(frozen=True, kw_only=True)
class Collection:
    """Documents, queries and judgments; build one with `load`, or with `Collection.of` from dictionaries.

    documents: ids, ascending as text; the position is the document's code. texts: the text of each, to which all
    offsets refer. titles: the title of each, "" where it has none. queries: ids in file order; the position is the
    query's code. query_groups: field name → its text for each query, "" where a query lacks it. judgments: rows are
    `queries`; documents are the corpus followed by the judged ids that are absent from it. source: where the data came
    from, such as {"format": "python-docs"}.
    """

    documents: tuple[str, ...] = field(repr=False)
    texts: tuple[str, ...] = field(repr=False)
    titles: tuple[str, ...] = field(repr=False)
    queries: tuple[str, ...] = field(repr=False)
    query_texts: tuple[str, ...] = field(repr=False)
    judgments: Judgments = field(repr=False)
    query_groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    source: Mapping[str, str] = field(default_factory=dict)
    dirt: Dirt = field(default_factory=Dirt)

    @classmethod
    def of(
        cls,
        documents: Mapping[str, str],
        queries: Mapping[str, str],
        qrels: Mapping[str, Mapping[str, int]],
        *,
        scale: LabelScale | None = None,
        relevant_from: int | None = None,
        titles: Mapping[str, str] | None = None,
        query_groups: Mapping[str, tuple[str, ...]] | None = None,
        source: Mapping[str, str] | None = None,
        repeats: tuple[int, int, int] = (0, 0, 0),
    ) -> "Collection":
        """Join {document id: text}, {query id: text} and {query id: {document id: label}}.

        Judged documents that are absent stay in the judgments; labels of unknown queries are dropped and counted.
        repeats: rows of documents, queries and labels that loading collapsed.
        Raises CollectionError when all documents are blank, a query is blank, or the ids of the labels meet none of the
        documents or none of the queries; ValueError for labels that `Judgments.from_dict` refuses.
        """
        if not any(map(str.strip, documents.values())):
            raise CollectionError(f"empty collection: {len(documents)} documents, none with text")
        blank = next((query for query, text in queries.items() if not text.strip()), None)
        if blank is not None:
            raise CollectionError(f"query {blank!r} is blank; give it a text or remove it")
        _check_overlap("query", qrels, queries)
        _check_overlap("document", [document for row in qrels.values() for document in row], documents)
        ids = sorted(documents)
        dangling = sorted(set(qrels).difference(queries))
        return cls(
            documents=tuple(ids),
            texts=tuple(documents[document] for document in ids),
            titles=tuple((titles or {}).get(document, "").strip() for document in ids),
            queries=tuple(queries),
            query_texts=tuple(queries.values()),
            judgments=Judgments.from_dict(
                {query: row for query, row in qrels.items() if query in queries},
                scale,
                relevant_from=relevant_from,
                queries=tuple(queries),
                documents=ids,
            ),
            query_groups=dict(query_groups or {}),
            source=dict(source or {}),
            dirt=Dirt(
                repeated_documents=repeats[0],
                repeated_queries=repeats[1],
                repeated_labels=repeats[2],
                dangling_queries=tuple(dangling),
                dangling_query_pairs=sum(len(qrels[query]) for query in dangling),
            ),
        )

    @property
    def dangling_documents(self) -> tuple[str, ...]:
        """Ids that are judged but absent from the corpus, ascending."""
        return self.judgments.documents[len(self.documents) :]

    @cached_property
    def documents_fingerprint(self) -> str:
        """Hex digest of the document ids, titles and texts, and of nothing else."""
        return _digest([*self.documents, *self.titles, *self.texts])

    @cached_property
    def queries_fingerprint(self) -> str:
        """Hex digest of the query ids and texts in order, and of nothing else."""
        return _digest([*self.queries, *self.query_texts])

    @cached_property
    def labels_fingerprint(self) -> str:
        """Hex digest of the (query id, document id, label) triples in any order, the scale and `relevant_from`."""
        judged, cells = self.judgments, []
        for row, item, label in zip(judged.rows.tolist(), judged.items.tolist(), judged.labels.tolist(), strict=True):
            cells.append((judged.queries[row], judged.documents[item], str(label)))
        scale = (str(judged.scale.min), str(judged.scale.max), str(judged.relevant_from))
        return _digest([*scale, *(part for cell in sorted(cells) for part in cell)])

    @cached_property
    def fingerprint(self) -> str:
        """Hex digest of all of it: documents, queries with their groups, labels and source."""
        groups = [part for name in sorted(self.query_groups) for part in (name, *self.query_groups[name])]
        source = [part for pair in sorted(self.source.items()) for part in pair]
        parts = [self.documents_fingerprint, self.queries_fingerprint, self.labels_fingerprint]
        return _digest([*parts, _digest(groups), _digest(source)])


def _check_overlap(kind: str, judged: Iterable[str], known: Mapping[str, str]) -> None:
    """Refuse labels of which no id is known: the two files belong to different collections."""
    example = None
    for value in judged:
        if value in known:
            return
        example = value if example is None else example
    there = f"the collection has ids such as {next(iter(known))!r}" if known else f"there is no {kind}"
    here = "there are no labels" if example is None else f"the labels name ids such as {example!r}"
    raise CollectionError(
        f"no judged {kind} is in the collection: {here}, {there}; check that the files belong together"
    )


def _digest(parts: Iterable[str]) -> str:
    """Hash texts so that no two different lists give the same bytes: each is preceded by its length."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()
