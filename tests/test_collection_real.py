"""Counts of public collections, as their READMEs (../shared/data/*/README.md) state them."""

from pathlib import Path

import pytest

from sweep.collection.health import Health, health
from sweep.collection.loading import CollectionSpec, load
from sweep.errors import CollectionError


@pytest.mark.parametrize(
    ("name", "documents", "queries", "label_counts", "answerable"),
    [
        ("scifact", 5183, 300, {1: 339}, 300),
        ("xquad-en-long", 48, 1190, {1: 1190}, 1190),
        ("cisi", 1460, 112, {1: 3114}, 76),
        ("time", 423, 83, {1: 324}, 83),
        ("epqa-dev", 9704, 977, {0: 6410, 1: 1042, 2: 2313}, 921),  # 6415 zeros less 5 repeats, all of label 0
        # its −1 (225 rows, one a query, meaning not stated) must be inside the scale or loading refuses it
        ("cranfield", 1400, 225, {-1: 225, 1: 363, 2: 734, 3: 387, 4: 128}, 225),
    ],
)
def test_counts(
    shared_data: Path, name: str, documents: int, queries: int, label_counts: dict[int, int], answerable: int
) -> None:
    labels = {"min": -1, "relevant_from": 1} if name == "cranfield" else {}
    collection = load(CollectionSpec.model_validate({"path": name, "labels": labels}), shared_data)
    found = health(collection)
    assert (found.documents, found.queries, found.label_counts) == (documents, queries, label_counts)
    assert collection.judgments.answerable.sum() == answerable
    assert list(collection.documents) == sorted(set(collection.documents))


def test_what_the_readmes_call_dirty(shared_data: Path) -> None:
    def look(name: str, **labels: int) -> Health:
        return health(load(CollectionSpec.model_validate({"path": name, "labels": labels}), shared_data))

    time, cisi, epqa, cranfield = look("time"), look("cisi"), look("epqa-dev"), look("cranfield", min=-1)
    assert (time.dangling_documents, time.dangling_pairs) == (("424", "425"), 3)
    assert time.best_reachable is not None
    assert 0.9 < time.best_reachable < 1
    assert len(cisi.queries_without_judgments) == 36
    assert len(cisi.identical_documents) == 1
    assert len(epqa.queries_without_relevant) == 56
    assert epqa.dirt.repeated_labels == 5
    assert cranfield.blank_documents == ("471", "995")


def test_train_labels_beside_test_queries_are_refused(shared_data: Path) -> None:
    keys = {"path": "scifact", "queries": "scifact/queries.jsonl", "qrels": "scifact/qrels_train.tsv"}
    with pytest.raises(CollectionError, match="no judged query is in the collection"):
        load(CollectionSpec.model_validate(keys), shared_data)
