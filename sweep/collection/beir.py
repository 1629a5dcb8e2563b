"""The BEIR layout: corpus.jsonl, queries.jsonl, and qrels.tsv or qrels/<split>.tsv, each plain or gzip.

A document is {"_id", "title", "text"}, its title optional; a query is {"_id", "text"} and any further text fields, by
which results can be grouped.
"""

__all__ = ["Documents", "Queries", "find", "find_qrels", "read_documents", "read_queries"]

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sweep.collection.records import Record, identifier, read_json_lines, string
from sweep.errors import CollectionError

FIELDS = ("_id", "text")


class Documents(NamedTuple):
    """{document id: text} in file order, the title of each that has one, and how many rows only repeated one."""

    texts: dict[str, str]
    titles: dict[str, str]
    repeats: int


class Queries(NamedTuple):
    """{query id: text} in file order, the further text fields of each query, and how many rows only repeated one."""

    texts: dict[str, str]
    groups: dict[str, tuple[str, ...]]
    repeats: int


def read_documents(path: Path) -> Documents:
    """Read a corpus; a document's text is its title, a line break and its text, or its text alone where no title is.

    Raises CollectionError, with file and line, for a malformed record and for one id with two texts.
    """
    records, repeats = _distinct(path, _document_text)
    titles = {key: record.fields["title"] for key, (_, record) in records.items() if record.fields.get("title")}
    return Documents({key: text for key, (text, _) in records.items()}, titles, repeats)


def read_queries(path: Path) -> Queries:
    """Read queries.

    Raises CollectionError, with file and line, for a malformed record, a blank query and one id with two texts.
    """
    records, repeats = _distinct(path, _query_text)
    extra = {
        key: {name: value for name, value in record.fields.items() if isinstance(value, str) and name not in FIELDS}
        for key, (_, record) in records.items()
    }
    names = sorted({name for fields in extra.values() for name in fields})
    groups = {name: tuple(fields.get(name, "") for fields in extra.values()) for name in names}
    return Queries({key: text for key, (text, _) in records.items()}, groups, repeats)


def find(folder: Path, name: str) -> Path:
    """Return the file `name` of `folder`, or its gzip form.

    Raises CollectionError when the folder or both are missing.
    """
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    if not folder.is_dir():
        raise CollectionError(f"{folder}: no such folder")
    raise CollectionError(f"{folder}: no {name}; a BEIR folder holds corpus.jsonl, queries.jsonl and qrels")


def find_qrels(folder: Path, split: str | None) -> Path:
    """Return the labels of `split`; without one, qrels.tsv where it is there, else those of "test".

    Raises CollectionError when the file is missing, naming the splits that are there.
    """
    names = ["qrels.tsv", "qrels/test.tsv"] if split is None else [f"qrels/{split}.tsv"]
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    splits = sorted({path.name.split(".tsv")[0] for path in (folder / "qrels").glob("*.tsv*")})
    there = f"; splits found: {', '.join(splits)} (set split)" if splits else ""
    raise CollectionError(f"{folder}: no {' or '.join(names)}{there}")


def _document_text(record: Record) -> str:
    title = "" if record.fields.get("title") is None else string(record, "title")
    text = string(record, "text")
    return f"{title}\n{text}" if title.strip() else text


def _query_text(record: Record) -> str:
    text = string(record, "text")
    if not text.strip():
        raise CollectionError(
            f"{record.where}: query {identifier(record, '_id')!r} is blank; give it a text or remove it"
        )
    return text


def _distinct(path: Path, text_of: Callable[[Record], str]) -> tuple[dict[str, tuple[str, Record]], int]:
    """Read the records of `path` by id, and count those that only repeat one."""
    records: dict[str, tuple[str, Record]] = {}
    repeats = 0
    for record in read_json_lines(path):
        key, text = identifier(record, "_id"), text_of(record)
        known = records.setdefault(key, (text, record))
        if known[0] != text:
            raise CollectionError(
                f"{record.where}: id {key!r} has another text than in line {known[1].line}; ids must be unique"
            )
        repeats += known[1] is not record
    return records, repeats
