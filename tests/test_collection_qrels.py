"""Labels from text files: ids untouched (S01), repeats and conflicts (S03), types and range (S07)."""

from pathlib import Path

import pytest

from metrics.judgments import LabelScale
from sweep.collection.qrels import Labels, read_labels
from sweep.errors import CollectionError


def read(folder: Path, text: str, scale: LabelScale | None = None) -> Labels:
    path = folder / "qrels.tsv"
    path.write_text(text, encoding="utf-8")
    return read_labels(path, scale or LabelScale())


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
    with pytest.raises(CollectionError, match=message):
        read(tmp_path, "q1 a 4\nq1 b 2\nq1 a 1\n")


@pytest.mark.parametrize(("text", "label"), [("3", 3), ("+3", 3), ("3.0", 3), ("3.", 3), ("003", 3), ("-0", 0)])
def test_integral_labels_pass(tmp_path: Path, text: str, label: int) -> None:
    assert read(tmp_path, f"q1\ta\t{text}\n").by_query["q1"]["a"] == label


@pytest.mark.parametrize("text", ["2.5", "", "NaN", "True", "1e0", "high", "٣", "1_0"])
def test_other_labels_are_refused_with_their_place(tmp_path: Path, text: str) -> None:
    message = rf"qrels\.tsv, line 2: query 'q1', document 'b': label '{text}' is not an integer"
    with pytest.raises(CollectionError, match=message):
        read(tmp_path, f"q1\ta\t1\nq1\tb\t{text}\n")


@pytest.mark.parametrize("label", [-1, 5, 10**17])
def test_a_label_outside_the_scale_names_the_pair_and_the_scale(tmp_path: Path, label: int) -> None:
    message = rf"qrels\.tsv, line 1: query 'q1', document 'a': label {label} is outside the scale 0…4"
    with pytest.raises(CollectionError, match=message):
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
    with pytest.raises(CollectionError, match=message):
        read(tmp_path, text)
