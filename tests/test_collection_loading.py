"""From a specification to a Collection: layouts, joins (S01, S02, S04, S07, S18), keys, fingerprints."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from metrics.judgments import LabelScale
from sweep.collection.collection import Collection
from sweep.collection.loading import CollectionSpec, LabelSpec, load
from sweep.errors import CollectionError

CORPUS = [{"_id": "b", "title": "Bee", "text": "honey"}, {"_id": "a", "text": "apple"}]
QUERIES = [{"_id": "q2", "text": "sweet", "type": "word"}, {"_id": "q1", "text": "fruit"}]
QRELS = "query-id\tcorpus-id\tscore\nq1\ta\t4\nq2\tb\t2\n"


def jsonl(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def write(
    folder: Path,
    corpus: list[dict[str, Any]] = CORPUS,
    queries: list[dict[str, Any]] = QUERIES,
    qrels: str = QRELS,
    qrels_name: str = "qrels.tsv",
) -> Path:
    (folder / qrels_name).parent.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.jsonl").write_text(jsonl(corpus))
    (folder / "queries.jsonl").write_text(jsonl(queries))
    (folder / qrels_name).write_text(qrels)
    return folder


def loaded(folder: Path, **keys: Any) -> Collection:
    return load(CollectionSpec.model_validate({"path": "."} | keys), folder)


def triples(collection: Collection) -> set[tuple[str, str, int]]:
    judged = collection.judgments
    cells = zip(judged.rows.tolist(), judged.items.tolist(), judged.labels.tolist(), strict=True)
    return {(judged.queries[row], judged.documents[item], label) for row, item, label in cells}


def test_a_folder_becomes_sorted_documents_and_queries_in_file_order(tmp_path: Path) -> None:
    collection = loaded(write(tmp_path))
    assert collection.documents == ("a", "b")
    assert collection.texts == ("apple", "Bee\nhoney")  # title, line break, text
    assert collection.queries == ("q2", "q1") == collection.judgments.queries
    assert collection.query_texts == ("sweet", "fruit")
    assert collection.query_groups == {"type": ("word", "")}
    assert triples(collection) == {("q1", "a", 4), ("q2", "b", 2)}
    assert collection.source == {"format": "beir"}


@pytest.mark.parametrize("title", ["", "  ", None])
def test_a_blank_title_adds_nothing(tmp_path: Path, title: str | None) -> None:
    assert loaded(write(tmp_path, [{"_id": "a", "title": title, "text": "x"}])).texts == ("x",)


def test_gzip_and_overrides(tmp_path: Path) -> None:
    write(tmp_path / "set")
    for name in ("corpus.jsonl", "queries.jsonl", "qrels.tsv"):
        path = tmp_path / "set" / name
        path.with_name(f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    (tmp_path / "mine.tsv").write_text("q1 b 1\n")
    assert triples(loaded(tmp_path, path="set")) == {("q1", "a", 4), ("q2", "b", 2)}
    assert triples(loaded(tmp_path, path="set", qrels="mine.tsv")) == {("q1", "b", 1)}
    files = {"corpus": "set/corpus.jsonl.gz", "queries": "set/queries.jsonl.gz", "qrels": "mine.tsv"}
    assert triples(loaded(tmp_path, path=None, **files)) == {("q1", "b", 1)}


def test_splits(tmp_path: Path) -> None:
    write(tmp_path, qrels_name="qrels/dev.tsv")
    with pytest.raises(CollectionError, match=r"no qrels\.tsv or qrels/test\.tsv; splits found: dev \(set split\)"):
        loaded(tmp_path)
    assert loaded(tmp_path, split="dev").source == {"format": "beir", "split": "dev"}
    write(tmp_path, qrels="q1 b 3\n", qrels_name="qrels/test.tsv")
    assert triples(loaded(tmp_path)) == {("q1", "b", 3)}


def test_number_ids_equal_their_digits_across_files(tmp_path: Path) -> None:
    corpus: list[dict[str, Any]] = [{"_id": 1, "text": "one"}, {"_id": "01", "text": "other"}]
    collection = loaded(write(tmp_path, corpus, [{"_id": 7, "text": "query"}], "7 1 4\n"))
    assert collection.documents == ("01", "1")
    assert triples(collection) == {("7", "1", 4)}  # S01, input 2: no dangling id, no hole
    assert collection.dangling_documents == ()


@pytest.mark.parametrize("part", ["corpus", "queries"])
def test_one_id_with_two_texts_is_refused(tmp_path: Path, part: str) -> None:
    rows: Any = [{"_id": "x", "text": "reset a router"}, {"_id": "y", "text": "z"}, {"_id": "x", "text": "boil an egg"}]
    with pytest.raises(CollectionError, match=rf"{part}\.jsonl, line 3: id 'x' has another text than in line 1"):
        loaded(write(tmp_path, **{part: rows}))


def test_identical_repeats_count_once(tmp_path: Path) -> None:
    once = loaded(write(tmp_path / "once"))
    twice = loaded(write(tmp_path / "twice", CORPUS * 2, QUERIES * 3, QRELS + "q1\ta\t4\n"))
    assert (twice.dirt.repeated_documents, twice.dirt.repeated_queries, twice.dirt.repeated_labels) == (2, 4, 1)
    assert twice.fingerprint == once.fingerprint
    assert twice.query_groups == once.query_groups


def test_dangling_documents_stay_and_dangling_queries_are_dropped_and_counted(tmp_path: Path) -> None:
    collection = loaded(write(tmp_path, qrels="q1 a 4\nq1 z 4\nq1 y 1\nq8 a 1\nq9 a 1\nq9 b 1\n"))
    assert collection.judgments.documents == ("a", "b", "y", "z")
    assert collection.dangling_documents == ("y", "z")
    assert triples(collection) == {("q1", "a", 4), ("q1", "z", 4), ("q1", "y", 1)}
    assert (collection.dirt.dangling_queries, collection.dirt.dangling_query_pairs) == (("q8", "q9"), 3)


def test_files_of_different_collections_are_refused_with_an_id_of_each_side(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match=r"no judged query is in .* ids such as 'p1', .* ids such as 'q2'"):
        loaded(write(tmp_path, qrels="p1 a 1\n"))
    with pytest.raises(CollectionError, match=r"no judged document is in .* ids such as 'doc-1', .* ids such as 'b'"):
        loaded(write(tmp_path, qrels="q1 doc-1 1\n"))


@pytest.mark.parametrize("corpus", [[], [{"_id": "a", "text": ""}, {"_id": "b", "title": " ", "text": "\n"}]])
def test_a_collection_without_text_is_refused(tmp_path: Path, corpus: list[dict[str, Any]]) -> None:
    with pytest.raises(CollectionError, match="empty collection"):
        loaded(write(tmp_path, corpus))


def test_a_blank_query_is_refused_by_id_and_blank_documents_are_kept(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match=r"queries\.jsonl, line 2: query 'q1' is blank"):
        loaded(write(tmp_path, queries=[QUERIES[0], {"_id": "q1", "text": " \n"}]))
    corpus = [{"_id": str(code), "text": text} for code, text in enumerate(["", "   ", "\n", "alpha"])]  # S18
    assert loaded(write(tmp_path, corpus, qrels="q1 3 1\n")).texts == ("", "   ", "\n", "alpha")


def test_the_label_scale_reaches_the_judgments(tmp_path: Path) -> None:
    judged = loaded(write(tmp_path), labels={"min": 1, "max": 5, "relevant_from": 3}).judgments
    assert (judged.scale, judged.relevant_from) == (LabelScale(1, 5), 3)
    assert judged.answerable.tolist() == [False, True]
    with pytest.raises(CollectionError, match="query 'q1', document 'a': label 4 is outside the scale 0…3"):
        loaded(tmp_path, labels={"max": 3})
    with pytest.raises(ValidationError, match="relevant_from must be within 1…4, got 5"):
        LabelSpec(relevant_from=5)
    with pytest.raises(ValidationError, match="minimum must be below the maximum"):
        LabelSpec(min=4)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"packages": ["numpy"], "path": "."},
            "path does not belong to format 'python-docs'; its keys: format, labels",
        ),
        ({"format": "beir", "path": ".", "methods": True}, "methods does not belong to format 'beir'"),
        ({"format": "python-docs", "packages": ["numpy"]}, "needs packages, queries and qrels"),
        ({"format": "beir", "corpus": "corpus.jsonl"}, "needs path, or all of corpus, queries and qrels"),
        ({"path": ".", "split": "test", "qrels": "qrels.tsv"}, "give split or qrels, not both"),
        ({}, "the format cannot be told"),
        ({"path": "none"}, "none: no such folder"),
        ({"format": "beir", "path": "none"}, "none: no such folder"),
        ({"path": "..", "format": "beir"}, r"no corpus\.jsonl"),
    ],
)
def test_keys_that_do_not_fit_are_refused(tmp_path: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(CollectionError, match=message):
        load(CollectionSpec.model_validate(keys), write(tmp_path / "set"))


def test_unknown_keys_are_refused_and_a_dumped_specification_loads(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        CollectionSpec(pathh=".")  # type: ignore[call-arg]
    spec = CollectionSpec(path=Path())
    again = CollectionSpec.model_validate_json(spec.model_dump_json())  # sets every key, to its default
    assert load(again, write(tmp_path)).fingerprint == load(spec, tmp_path).fingerprint


def build(**changes: Any) -> Collection:
    parts: dict[str, Any] = {
        "documents": {"a": "apple", "b": "bee"},
        "queries": {"q": "fruit"},
        "qrels": {"q": {"a": 2}},
    }
    return Collection.of(**(parts | changes))


FINGERPRINTS = ("documents_fingerprint", "queries_fingerprint", "labels_fingerprint", "fingerprint")


@pytest.mark.parametrize(
    ("changes", "moved"),
    [
        ({"documents": {"b": "bee", "a": "apple"}}, ()),
        ({"documents": {"a": "apple", "b": "Bee"}}, ("documents_fingerprint", "fingerprint")),
        ({"documents": {"a": "appleb", "b": "ee"}}, ("documents_fingerprint", "fingerprint")),
        ({"documents": {"a": "apple", "b": "bee", "c": "c"}}, ("documents_fingerprint", "fingerprint")),
        ({"queries": {"q": "fruits"}}, ("queries_fingerprint", "fingerprint")),
        ({"query_groups": {"type": ("x",)}}, ("fingerprint",)),
        ({"qrels": {"q": {"a": 3}}}, ("labels_fingerprint", "fingerprint")),
        ({"qrels": {"q": {"a": 2, "z": 2}}}, ("labels_fingerprint", "fingerprint")),
        ({"relevant_from": 2}, ("labels_fingerprint", "fingerprint")),
        ({"scale": LabelScale(0, 3)}, ("labels_fingerprint", "fingerprint")),
        ({"source": {"format": "beir"}}, ("fingerprint",)),
    ],
)
def test_a_fingerprint_depends_on_its_part_and_nothing_else(changes: Mapping[str, Any], moved: tuple[str, ...]) -> None:
    base, changed = build(), build(**changes)
    assert tuple(name for name in FINGERPRINTS if getattr(base, name) != getattr(changed, name)) == moved


def test_a_collection_is_built_from_dictionaries() -> None:
    assert triples(build(qrels={"q": {"a": np.int64(3), "b": 3.0}})) == {("q", "a", 3), ("q", "b", 3)}
    with pytest.raises(ValueError, match="query 'q', document 'a'"):
        build(qrels={"q": {"a": True}})
    with pytest.raises(CollectionError, match="query 'q' is blank"):
        build(queries={"q": " "})
    with pytest.raises(CollectionError, match="no judged query is in the collection: there are no labels"):
        build(qrels={})
    with pytest.raises(AttributeError):
        build().texts = ()  # type: ignore[misc]
    assert replace(build(), texts=("apple", "cow")).documents_fingerprint != build().documents_fingerprint


def test_the_labels_fingerprint_ignores_order() -> None:
    qrels = {"q": {"a": 2}, "r": {"a": 1, "b": 0}}
    one, other = (build(queries=dict.fromkeys(order, "?"), qrels=qrels) for order in ("qr", "rq"))
    assert one.labels_fingerprint == other.labels_fingerprint
    assert one.queries_fingerprint != other.queries_fingerprint
