"""Reading lines and JSON records: encodings, gzip, ids as opaque strings, and places in error messages."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metrics.files import read_qrels, read_run
from sweep.collection.beir import Documents, Queries, read_documents, read_queries
from sweep.collection.records import Record, identifier, naming, read_json_lines, string
from sweep.errors import CollectionError, InputError

T = TypeVar("T")
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def record(**fields: object) -> Record:
    return Record(fields, Path("corpus.jsonl"), 7)


def test_only_line_feeds_end_a_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"_id": "1", "text": "one\u2028two\x85three"}\n', encoding="utf-8")  # str.splitlines makes 3
    assert [r.fields["text"] for r in read_json_lines(path)] == ["one\u2028two\x85three"]


def test_half_a_gzip_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps({"_id": "1", "text": "x" * 999}).encode())[:-12])
    with pytest.raises(CollectionError, match=r"corpus\.jsonl\.gz: damaged gzip file"):
        list(read_json_lines(path))


def test_bytes_that_are_not_utf8_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\n\n{"a": "na\xefve"}\n')
    with pytest.raises(CollectionError, match=r"x\.jsonl, line 3: not UTF-8"):
        list(read_json_lines(path))


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match=r"none\.jsonl: no such file"):
        list(read_json_lines(tmp_path / "none.jsonl"))
    with pytest.raises(CollectionError, match="cannot be read"):
        list(read_json_lines(tmp_path))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"_id": "1"', "line 2: not JSON"),
        ("[1, 2]", "line 2: got a JSON list, expected an object"),
        ("[" * 100_000, "line 2: not JSON"),
        ('{"_id": ' + "1" * 5000 + "}", "line 2: not JSON"),
    ],
    ids=["torn", "list", "deep", "huge number"],
)
def test_a_line_that_is_not_an_object_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"_id": "0"}\n' + line + "\n")
    with pytest.raises(CollectionError, match=message):
        list(read_json_lines(path))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("007", "007"),
        ("7", "7"),
        ("NA", "NA"),
        ("1e5", "1e5"),
        (" a b ", " a b "),
        ("né", "né"),
        (1, "1"),
        (-3, "-3"),
        (9007199254740993, "9007199254740993"),  # 2^53 + 1: a float would lose the last digit
    ],
)
def test_ids_are_opaque_and_integers_are_their_digits(value: object, expected: str) -> None:
    assert identifier(record(_id=value), "_id") == expected


@pytest.mark.parametrize("value", [1.0, 1.5, float("nan"), True, None, "", "  ", [], {}])
def test_other_ids_are_refused_with_their_place(value: object) -> None:
    with pytest.raises(CollectionError, match=r"corpus\.jsonl, line 7: '_id' is .*; an id is a string or an integer"):
        identifier(record(_id=value), "_id")


def test_an_absent_key_names_those_found_and_the_nearest() -> None:
    with pytest.raises(CollectionError, match=r"line 7: no '_id'; did you mean 'id'\?; fields found: 'id', 'text'"):
        identifier(record(id="1", text="x"), "_id")


@pytest.mark.parametrize("value", [None, 3, ["a"]])
def test_a_text_must_be_a_string(value: object) -> None:
    with pytest.raises(CollectionError, match=r"line 7: 'text' is .*; a string is expected"):
        string(record(text=value), "text")


def test_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(CollectionError, match="line 7: 'text' holds half a character"):
        string(record(text=json.loads('"\\ud83d"')), "text")
    assert string(record(text=json.loads('"\\ud83d\\ude00"')), "text") == "😀"


VALUES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]))
OBJECTS = st.dictionaries(st.sampled_from(["_id", "text", "title", "x"]), VALUES)
JSON_LINES = st.lists(OBJECTS.map(json.dumps)).map(lambda lines: "\n".join(lines).encode())
CELLS = st.sampled_from(["q", "d", "0", "3", "3.0", "2.5", "-1", "NaN", "score", "", " "])
ROWS = st.lists(st.lists(CELLS, max_size=7).map("\t".join)).map(lambda rows: "\n".join(rows).encode())


@FUZZ
@given(content=st.one_of(st.binary(max_size=200), JSON_LINES, ROWS, JSON_LINES.map(gzip.compress)))
def test_any_bytes_give_records_or_one_input_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fuzz"
    path.write_bytes(content)
    readers: tuple[Callable[[Path], Documents | Queries], ...] = (read_documents, read_queries)
    for read in readers:
        found = attempt(read, path)
        if isinstance(found, str):
            assert found.startswith(str(path))
        else:
            assert all(key.strip() and isinstance(text, str) for key, text in found.texts.items())
    labels = attempt(lambda path: named(read_qrels, path), path)
    if isinstance(labels, str):
        assert labels.startswith(str(path))
    else:
        assert all(0 <= label <= 4 for row in labels.by_query.values() for label in row.values())
    results = attempt(lambda path: named(read_run, path), path)
    if isinstance(results, str):
        assert results.startswith(str(path))
    else:
        assert all(isinstance(score, float) for row in results.by_query.values() for score in row.values())


def named(read: Callable[[Path], T], path: Path) -> T:
    with naming():
        return read(path)


def attempt(read: Callable[[Path], T], path: Path) -> T | str:
    """Return what is read, or the message of an InputError; any other exception passes."""
    try:
        return read(path)
    except InputError as error:
        return str(error)
