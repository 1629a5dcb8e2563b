"""JSON records, ids and texts as read from a file, with the place of each for error messages.

Ids are opaque strings: nothing is inferred from how one looks, so "007", "7", "NA" and "1e5" stay four ids. One rule
joins JSON numbers to text: an integral number is its decimal digits, so 1 equals "1"; other types are no ids.
"""

__all__ = ["Record", "identifier", "naming", "read_json_lines", "string"]

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from metrics.files import decoded, place, read_lines
from sweep.errors import CollectionError, nearest


class Record(NamedTuple):
    """One JSON object of a file and where it stands."""

    fields: dict[str, Any]
    path: Path
    line: int

    @property
    def where(self) -> str:
        """The place of the record, as error messages name it."""
        return place(self.path, self.line)


def read_json_lines(path: Path) -> Iterator[Record]:
    """Yield the JSON object of every line of `path` that is not blank, as it is read.

    UTF-8 with or without a byte order mark, plain or gzip. Raises CollectionError for a file that is missing,
    unreadable or torn, and for a line that is not UTF-8 or not one JSON object.
    """
    with naming():
        for number, line in read_lines(path):
            yield Record(_object(path, number, line), path, number)


@contextmanager
def naming() -> Iterator[None]:
    """Turn what `metrics` says of a file into a CollectionError."""
    try:
        yield
    except ValueError as error:
        raise CollectionError(str(error)) from None


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:  # the standard library also reads NaN and long integers, and says what is wrong
        text = decoded(path, number, line)
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            reason = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
            raise ValueError(f"{place(path, number)}: not JSON ({reason}); one object a line is expected") from None
    if not isinstance(value, dict):
        raise ValueError(f"{place(path, number)}: got a JSON {type(value).__name__}, expected an object")
    return value


def identifier(record: Record, key: str) -> str:
    """Return the id under `key`: a string that is not blank, or the decimal digits of an integral number.

    Raises CollectionError, with the record's place, for an id that is absent, blank or of another type.
    """
    value = _value(record, key)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str) or not value.strip():
        raise CollectionError(f"{record.where}: {key!r} is {_shown(value)}; an id is a string or an integer")
    return _whole(record, key, value)


def string(record: Record, key: str) -> str:
    """Return the text under `key`, which may be blank.

    Raises CollectionError, with the record's place, for a text that is absent or of another type.
    """
    value = _value(record, key)
    if not isinstance(value, str):
        raise CollectionError(f"{record.where}: {key!r} is {_shown(value)}; a string is expected")
    return _whole(record, key, value)


def _value(record: Record, key: str) -> object:
    if key not in record.fields:
        names = ", ".join(map(repr, record.fields)) or "none"
        raise CollectionError(f"{record.where}: no {key!r}{nearest(key, record.fields)}; fields found: {names}")
    return record.fields[key]


def _whole(record: Record, key: str, value: str) -> str:
    """JSON can spell half of a surrogate pair, which is no character and which no tokenizer accepts."""
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise CollectionError(f"{record.where}: {key!r} holds half a character ({error}); repair it") from None
    return value


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:40]}…"
