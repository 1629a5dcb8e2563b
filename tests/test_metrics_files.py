"""Labels and runs from text files: ids untouched (S01), repeats and conflicts (S03), types and range (S07)."""

import gzip
from pathlib import Path

import pytest

from metrics.files import Qrels, RunFile, decoded, read_lines, read_qrels, read_run
from metrics.judgments import LabelScale


def read(folder: Path, text: str, scale: LabelScale | None = None) -> Qrels:
    path = folder / "qrels.tsv"
    path.write_text(text, encoding="utf-8")
    return read_qrels(path, scale)


@pytest.mark.parametrize("separator", ["\t", " ", "   "])
@pytest.mark.parametrize("header", ["", "query-id corpus-id score\n", "QUERY DOCUMENT Relevance\n"])
def test_three_columns_with_and_without_a_header(tmp_path: Path, header: str, separator: str) -> None:
    text = (header + "007 0012 3\n7 12 1\n").replace(" ", separator)
    assert read(tmp_path, text).by_query == {"007": {"0012": 3}, "7": {"12": 1}}  # S01: two queries, two documents


def test_four_columns_are_trec(tmp_path: Path) -> None:
    assert read(tmp_path, "q1 0 d1 2\nq1 Q0 d2 0\n").by_query == {"q1": {"d1": 2, "d2": 0}}


def test_ids_that_look_like_numbers_or_nothing_stay_text(tmp_path: Path) -> None:
    text = "1e5\tNA\t1\n100000\tnull\t1\n9007199254740993\tan id\t1\n9007199254740992\té\t1\n"
    assert read(tmp_path, text).by_query == {
        "1e5": {"NA": 1},
        "100000": {"null": 1},
        "9007199254740993": {"an id": 1},
        "9007199254740992": {"é": 1},
    }


def test_repeats_collapse_and_are_counted(tmp_path: Path) -> None:
    labels = read(tmp_path, "q1 a 4\nq1 b 2\nq1 a 4.0\nq1 b 2\n")
    assert labels.by_query == {"q1": {"a": 4, "b": 2}}
    assert labels.repeats == 2


def test_a_conflict_names_pair_labels_and_both_lines(tmp_path: Path) -> None:
    message = r"qrels\.tsv, line 3: query 'q1', document 'a' has label 1 here and 4 in line 1; keep one"
    with pytest.raises(ValueError, match=message):
        read(tmp_path, "q1 a 4\nq1 b 2\nq1 a 1\n")


@pytest.mark.parametrize(("text", "label"), [("3", 3), ("+3", 3), ("3.0", 3), ("3.", 3), ("003", 3), ("-0", 0)])
def test_integral_labels_pass(tmp_path: Path, text: str, label: int) -> None:
    assert read(tmp_path, f"q1\ta\t{text}\n").by_query["q1"]["a"] == label


@pytest.mark.parametrize("text", ["2.5", "", "NaN", "True", "1e0", "high", "٣", "1_0"])
def test_other_labels_are_refused_with_their_place(tmp_path: Path, text: str) -> None:
    message = rf"qrels\.tsv, line 2: query 'q1', document 'b': label '{text}' is not an integer"
    with pytest.raises(ValueError, match=message):
        read(tmp_path, f"q1\ta\t1\nq1\tb\t{text}\n")


@pytest.mark.parametrize("label", [-1, 5, 10**17])
def test_a_label_outside_the_scale_names_the_pair_and_the_scale(tmp_path: Path, label: int) -> None:
    message = rf"qrels\.tsv, line 1: query 'q1', document 'a': label {label} is outside the scale 0…4"
    with pytest.raises(ValueError, match=message):
        read(tmp_path, f"q1 a {label}\n")


def test_the_scale_can_be_widened(tmp_path: Path) -> None:
    assert read(tmp_path, "q1 a -1\nq1 b 5\n", LabelScale(-1, 5)).by_query["q1"] == {"a": -1, "b": 5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q1 a\n", "line 1: 2 columns, expected 3 .* or 4"),
        ("q1 a 1\nq1 0 b 1\n", "line 2: 4 columns, expected 3"),
        ("q1\ta\t1\n\ta\t1\n", "line 2: blank query id"),
        ("q1\t \t1\n", "line 1: blank document id"),
        ("", "no labels"),
        ("query-id\tcorpus-id\tscore\n", "no labels"),
    ],
)
def test_malformed_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, text)


@pytest.mark.parametrize(
    "content",
    [
        b"a\n\n  \nb\n",
        b"a\r\n\r\n  \r\nb\r\n",
        b"\xef\xbb\xbfa\n\n\nb",
        gzip.compress(b"a\n\n\nb\n"),
        gzip.compress(b"\xef\xbb\xbfa\r\n\n") + gzip.compress(b"\nb"),
    ],
    ids=["LF", "CRLF", "BOM", "gzip", "gzip members"],
)
def test_lines_keep_their_numbers_whatever_the_encoding(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    assert [(line, decoded(path, line, content)) for line, content in read_lines(path)] == [(1, "a"), (4, "b")]


def test_lines_are_read_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"a\nb\n")[:-4])  # torn at the very end: what is before has been given out
    lines = read_lines(path)
    assert next(lines) == (1, b"a\n")
    with pytest.raises(ValueError, match=r"x\.gz: damaged gzip file"):
        list(lines)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.txt: no such file"):
        list(read_lines(tmp_path / "none.txt"))
    with pytest.raises(ValueError, match="cannot be read"):
        list(read_lines(tmp_path))


def test_bytes_that_are_not_utf8_are_named_by_line(tmp_path: Path) -> None:
    path = tmp_path / "qrels.txt"
    path.write_bytes(b"q1 a 1\nq2 na\xefve 1\n")
    with pytest.raises(ValueError, match=r"qrels\.txt, line 2: not UTF-8"):
        read_qrels(path)


def read_results(folder: Path, text: str) -> RunFile:
    path = folder / "run.txt.gz"
    path.write_bytes(gzip.compress(text.encode()))
    return read_run(path)


def test_a_run_has_six_columns(tmp_path: Path) -> None:
    found = read_results(tmp_path, "q1 Q0 007 1 12.5 bm25\nq1 Q0 7 2 -1e-3 bm25\n1e5\tQ0\tan id\t1\t0\tmy run\n")
    assert found == ({"q1": {"007": 12.5, "7": -0.001}, "1e5": {"an id": 0.0}}, 0)


@pytest.mark.parametrize("scores", [("1", "3", "2"), ("nan", "3", "2"), ("3", "nan", "-inf")])
def test_a_document_that_comes_again_keeps_its_best_score(tmp_path: Path, scores: tuple[str, ...]) -> None:
    rows = "".join(f"q Q0 a {rank} {score} tag\n" for rank, score in enumerate(scores))
    assert read_results(tmp_path, rows) == ({"q": {"a": 3.0}}, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q1 Q0 a 1 0.5\n", "line 1: 5 columns, expected 6 .query, iteration, document, rank, score, tag."),
        ("q1 Q0 a 1 0.5 t\nq1 a 1 0.5 t\n", "line 2: 5 columns, expected 6, split"),
        ("q1 Q0 a 1 high t\n", "line 1: query 'q1', document 'a': score 'high' is not a number"),
        ("q1\tQ0\t\t1\t0.5\tt\n", "line 1: blank document id"),
        ("", "no results"),
    ],
)
def test_a_malformed_run_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"run\.txt\.gz.*{message}"):
        read_results(tmp_path, text)
