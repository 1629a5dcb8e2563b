"""The quickstart's study, queries and labels, against the installed NumPy."""

import re
import warnings
from collections import Counter
from pathlib import Path

import pytest

from metrics.files import read_qrels
from sweep.collection.beir import read_queries
from sweep.collection.collection import Collection
from sweep.collection.health import health
from sweep.collection.loading import load
from sweep.optimize.study import Study
from sweep.optimize.study_file import StudyFile, load_study

STUDIES = Path(__file__).parents[1] / "studies"
QUERIES, QRELS = STUDIES / "quickstart/queries.jsonl", STUDIES / "quickstart/qrels.tsv"


@pytest.fixture(scope="module")
def study() -> StudyFile:
    return load_study(STUDIES / "quickstart.yaml")


@pytest.fixture(scope="module")
def collection(study: StudyFile) -> Collection:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what NumPy deprecates
        return load(study.spec.collection, study.folder)


def test_every_query_counts(study: StudyFile, collection: Collection) -> None:
    judged = collection.judgments
    assert len(collection.queries) >= 60
    assert judged.answerable.all()
    assert judged.labels.min() >= 0
    assert judged.labels.max() <= 3
    assert (study.spec.collection.labels.min, study.spec.collection.labels.max) == (0, 3)
    assert all(set(judged.labels[judged.rows == row].tolist()) & {2, 3} for row in range(len(collection.queries)))


def test_documents_that_the_installed_numpy_lacks_are_reported_and_no_fault(collection: Collection) -> None:
    lines = health(collection).lines()
    absent = collection.dangling_documents
    assert len(absent) <= 0.05 * len(collection.documents)
    assert bool(absent) == any("not in the collection" in line for line in lines)
    assert 600 <= len(collection.documents) <= 900


def test_ids_and_rows_are_there_once() -> None:
    rows = [line.split('"_id": "')[1].split('"')[0] for line in QUERIES.read_text(encoding="utf-8").splitlines()]
    assert [query for query, n in Counter(rows).items() if n > 1] == []
    queries = read_queries(QUERIES)
    assert (queries.repeats, len(queries.texts)) == (0, len(rows))
    assert [text for text, n in Counter(queries.texts.values()).items() if n > 1] == []


def test_labels_belong_to_queries(study: StudyFile) -> None:
    labels = read_qrels(QRELS, study.spec.collection.labels.scale)
    assert labels.repeats == 0
    assert set(labels.by_query) == set(read_queries(QUERIES).texts)
    assert min(len(row) for row in labels.by_query.values()) >= 10  # a pool of the first ten of several runs


def test_no_query_says_the_name_of_what_it_looks_for(study: StudyFile) -> None:
    """A person who knows the function's name does not need to search for it."""
    queries, labels = read_queries(QUERIES).texts, read_qrels(QRELS, study.spec.collection.labels.scale).by_query
    told = [
        (query, document)
        for query, row in labels.items()
        for document, label in row.items()
        if label == 3 and re.search(rf"\b{re.escape(document.rsplit('.', 1)[-1])}\b", queries[query], re.I)
    ]
    assert told == []


def test_the_study_is_a_grid_that_fits_its_budget(study: StudyFile) -> None:
    opened = Study(study)
    assert opened.grid is not None
    assert {c.algorithm for c in opened.grid} == {"keyword", "vector", "hybrid", "semantic"}
    assert {c.index for c in opened.grid if c.algorithm == "vector"} == {"Flat", "HNSW32"}
    assert not opened.sampled(study.spec.budget.trials)
    assert not opened.invalid
    assert opened.baseline.settings | {"top_k": 5} == opened.baseline.settings
    assert (opened.baseline.algorithm, opened.baseline.index, opened.baseline.chunk_overlap) == ("vector", "Flat", 0.0)
    assert opened.baseline.chunk_size == 254
