"""What is odd about a collection, worst first; expected values worked by hand."""

import json
import math
from dataclasses import replace

import pytest

from sweep.collection.collection import Collection
from sweep.collection.health import health

DOCUMENTS = {"a": "one two three", "b": "one", "c": "one", "d": " ", "e": "x y"}


def test_the_best_reachable_score_counts_absent_documents() -> None:
    # S04: ideal 15/log2(2) + 15/log2(3), reachable 15: 1 / (1 + 1/log2(3)) = .613147
    found = health(Collection.of({"a": "x"}, {"q1": "?"}, {"q1": {"a": 4, "z": 4}}))
    assert found.best_reachable == pytest.approx(0.613147, abs=5e-7)
    assert found.best_reachable == pytest.approx(1 / (1 + 1 / math.log2(3)), abs=1e-12)
    assert (found.dangling_documents, found.dangling_pairs) == (("z",), 1)
    assert found.lines()[:2] == [
        "1 judged document not in the collection: z.",
        "The best reachable mean ndcg@10 is 0.613147: relevant documents are absent or blank.",
    ]


def test_a_blank_document_cannot_be_reached_either() -> None:
    # q1 reaches 1, q2 nothing: its only relevant document is blank
    found = health(Collection.of(DOCUMENTS, {"q1": "?", "q2": "?"}, {"q1": {"a": 1}, "q2": {"d": 1, "b": 0}}))
    assert found.best_reachable == pytest.approx(0.5)


def test_only_the_first_ten_count() -> None:
    documents = {f"d{n:02}": "x" for n in range(10)}
    labels = dict.fromkeys([*documents, "gone"], 1)  # ten of eleven fill the first ten places
    assert health(Collection.of(documents, {"q": "?"}, {"q": labels})).best_reachable == pytest.approx(1)


def test_everything_odd_is_counted_and_named() -> None:
    queries = {"q1": "?", "q2": "?", "q3": "?"}
    qrels = {"q1": {"a": 3, "b": 0, "y": 1, "z": 2}, "q2": {"a": 0}, "q7": {"a": 1, "b": 1}}
    found = health(Collection.of(DOCUMENTS, queries, qrels, repeats=(1, 0, 2)))
    assert found.documents == 5
    assert (found.mean_words, found.most_words) == (7 / 5, 3)
    assert found.blank_documents == ("d",)
    assert found.identical_documents == (("b", "c"),)
    assert (found.queries, found.labelled_queries) == (3, 2)
    assert found.queries_without_judgments == ("q3",)
    assert found.queries_without_relevant == ("q2",)
    assert (found.judged_pairs, found.label_counts) == (5, {0: 2, 1: 1, 2: 1, 3: 1})
    lines = found.lines()
    assert lines[0] == "2 judged documents not in the collection: y, z."
    assert lines[1] == "1 judged query not among the queries (2 labels dropped): q7."
    assert lines[2].startswith("The best reachable mean ndcg@10 is 0.")
    assert lines[3:] == [
        "1 query without judgments, left out of means: q3.",
        "1 query without a relevant document, left out of means: q2.",
        "1 document without text, never retrieved: d.",
        "1 group of documents with identical text: b = c.",
        "1 repeated document row counted once.",
        "2 repeated label rows counted once.",
        "5 documents of 1 words on average, 3 at most.",
        "3 queries, 2 with judgments; 5 judged pairs (2 × 0, 1 × 1, 1 × 2, 1 × 3).",
    ]
    assert json.loads(json.dumps(found.to_dict()))["dirt"]["dangling_queries"] == ["q7"]


def test_a_clean_collection_has_only_its_sizes_to_tell() -> None:
    found = health(Collection.of({"a": "one two", "b": "three"}, {"q": "?"}, {"q": {"a": 1, "b": 2}}))
    assert found.best_reachable == 1
    assert [line.split()[0] for line in found.lines()] == ["2", "1"]


def test_long_lists_are_cut() -> None:
    queries = {f"q{n}": "?" for n in range(9)}
    found = health(Collection.of({"a": "x"}, queries, {"q0": {"a": 1}}))
    assert found.lines()[0] == "8 queries without judgments, left out of means: q1, q2, q3, q4, q5 and 3 more."


def test_no_relevant_document_at_all_comes_first() -> None:
    found = health(Collection.of({"a": "x"}, {"q": "?"}, {"q": {"a": 0}}))
    assert found.best_reachable is None
    assert found.lines()[0] == "No query has a relevant document, so no configuration can be scored."


def test_a_blank_query_made_by_hand_is_named() -> None:
    made = replace(Collection.of({"a": "x"}, {"q": "?"}, {"q": {"a": 1}}), query_texts=(" ",))
    assert health(made).blank_queries == ("q",)
    assert "1 query without text: q." in health(made).lines()


def test_blank_documents_are_no_group_of_identical_texts() -> None:
    found = health(Collection.of({"a": "x", "b": "", "c": ""}, {"q": "?"}, {"q": {"a": 1}}))
    assert (found.blank_documents, found.identical_documents) == (("b", "c"), ())
