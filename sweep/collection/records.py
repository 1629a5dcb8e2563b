"""Lines, JSON records, ids and texts as read from a file, with the place of each for error messages.

Ids are opaque strings: nothing is inferred from how one looks, so "007", "7", "NA" and "1e5" stay four ids. One rule
joins JSON numbers to text: an integral number is its decimal digits, so 1 equals "1"; other types are no ids.
"""

__all__ = ["Record", "identifier", "place", "read_json_lines", "read_lines", "string"]

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from sweep.errors import CollectionError, nearest

GZIP_MAGIC = b"\x1f\x8b"


class Record(NamedTuple):
    """One JSON object of a file and where it stands."""

    fields: dict[str, Any]
    path: Path
    line: int

    @property
    def where(self) -> str:
        """The place of the record, as error messages name it."""
        return place(self.path, self.line)


def place(path: Path, line: int) -> str:
    """Name a line of a file, the first being 1."""
    return f"{path}, line {line}"


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, text without its line end) for every line of `path` that is not blank.

    UTF-8 with or without a byte order mark, LF or CRLF line ends, plain or gzip (told from the content).
    Raises CollectionError for a file that is missing, unreadable, a torn gzip file, or not UTF-8.
    """
    content = _read_bytes(path)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise CollectionError(f"{place(path, line)}: not UTF-8 ({error.reason}); save the file as UTF-8") from None
    for number, line_text in enumerate(text.split("\n"), start=1):
        if line_text and not line_text.isspace():
            yield number, line_text.removesuffix("\r")


def _read_bytes(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise CollectionError(f"{path}: no such file") from None
    except OSError as error:
        raise CollectionError(f"{path}: cannot be read ({error.strerror})") from None
    if not content.startswith(GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise CollectionError(f"{path}: damaged gzip file ({error}); copy or download it again") from None


def read_json_lines(path: Path) -> Iterator[Record]:
    """Yield the JSON object of every line of `path` that is not blank.

    Raises CollectionError as `read_lines` does, and for a line that is not one JSON object.
    """
    for number, line in read_lines(path):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = f"{error.msg}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else error
            raise CollectionError(
                f"{place(path, number)}: not JSON ({reason}); one object a line is expected"
            ) from None
        if not isinstance(value, dict):
            raise CollectionError(f"{place(path, number)}: got a JSON {type(value).__name__}, expected an object")
        yield Record(value, path, number)


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
