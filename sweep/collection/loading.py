"""From the `collection` part of a study file to a Collection."""

__all__ = ["CollectionSpec", "LabelSpec", "load"]

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from metrics.files import read_qrels
from metrics.judgments import LabelScale
from sweep.collection import beir, python_docs
from sweep.collection.collection import Collection
from sweep.collection.records import naming
from sweep.errors import CollectionError

KEYS = {
    "beir": frozenset({"path", "corpus", "queries", "qrels", "split"}),
    "python-docs": frozenset({"packages", "methods", "queries", "qrels"}),
}
COMMON = frozenset({"format", "labels"})

ModuleName = Annotated[str, Field(pattern=r"^[^\W\d]\w*(\.[^\W\d]\w*)*$")]


class LabelSpec(BaseModel):
    """The label scale: whole numbers `min`…`max`; labels of at least `relevant_from` (default min + 1) are relevant."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min: int = 0
    max: int = 4
    relevant_from: int | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        scale = self.scale
        if self.relevant_from is not None and not scale.min < self.relevant_from <= scale.max:
            raise ValueError(f"relevant_from must be within {scale.min + 1}…{scale.max}, got {self.relevant_from}")
        return self

    @property
    def scale(self) -> LabelScale:
        """The scale as `metrics` takes it."""
        return LabelScale(self.min, self.max)


class CollectionSpec(BaseModel):
    """Where a collection is; paths are relative to the study file.

    format: told from the other keys and the folder's content where absent. path: a BEIR folder; corpus, queries and
    qrels name files that stand elsewhere. split: which qrels/<split>.tsv to read. packages, methods: see `python_docs`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["beir", "python-docs"] | None = None
    path: Path | None = None
    corpus: Path | None = None
    queries: Path | None = None
    qrels: Path | None = None
    split: str | None = None
    packages: tuple[ModuleName, ...] = ()
    methods: bool = False
    labels: LabelSpec = LabelSpec()


def load(spec: CollectionSpec, folder: Path) -> Collection:
    """Read the collection that `spec` describes; its paths are relative to `folder`.

    Raises CollectionError, naming file and line or key, for whatever is missing, malformed or contradictory.
    """
    kind = _format(spec, folder)
    given = {name for name, declared in CollectionSpec.model_fields.items() if getattr(spec, name) != declared.default}
    if strange := sorted(given - KEYS[kind] - COMMON):
        allowed = ", ".join(sorted(KEYS[kind] | COMMON))
        raise CollectionError(
            f"collection: {', '.join(strange)} does not belong to format {kind!r}; its keys: {allowed}"
        )
    return _load_python_docs(spec, folder) if kind == "python-docs" else _load_beir(spec, folder)


def _format(spec: CollectionSpec, folder: Path) -> str:
    if spec.format:
        return spec.format
    if spec.packages:
        return "python-docs"
    path = folder / (spec.path or "")
    if spec.corpus or (spec.path and any((path / name).is_file() for name in ("corpus.jsonl", "corpus.jsonl.gz"))):
        return "beir"
    cure = "set path to a folder with corpus.jsonl, or packages, or format"
    if spec.path and not path.is_dir():
        raise CollectionError(f"collection.path: {path}: no such folder; {cure}")
    if spec.path:
        raise CollectionError(f"collection.path: {path} has no corpus.jsonl; {cure}")
    raise CollectionError(f"collection: the format cannot be told; {cure} ({', '.join(KEYS)})")


def _load_beir(spec: CollectionSpec, folder: Path) -> Collection:
    if spec.path is None and not (spec.corpus and spec.queries and spec.qrels):
        raise CollectionError("collection: format 'beir' needs path, or all of corpus, queries and qrels")
    if spec.split is not None and spec.qrels:
        raise CollectionError("collection: give split or qrels, not both")
    base = folder / (spec.path or "")
    corpus = folder / spec.corpus if spec.corpus else beir.find(base, "corpus.jsonl")
    queries = folder / spec.queries if spec.queries else beir.find(base, "queries.jsonl")
    qrels = folder / spec.qrels if spec.qrels else beir.find_qrels(base, spec.split)
    source = {"format": "beir"} | ({"split": spec.split} if spec.split else {})
    return _join(beir.read_documents(corpus), queries, qrels, spec.labels, source)


def _load_python_docs(spec: CollectionSpec, folder: Path) -> Collection:
    if not (spec.packages and spec.queries and spec.qrels):
        raise CollectionError("collection: format 'python-docs' needs packages, queries and qrels")
    texts = python_docs.read_packages(spec.packages, methods=spec.methods)
    documents = beir.Documents(texts, {name: name for name in texts}, repeats=0)
    source = {"format": "python-docs"} | python_docs.versions(spec.packages)
    return _join(documents, folder / spec.queries, folder / spec.qrels, spec.labels, source)


def _join(
    documents: beir.Documents, queries_path: Path, qrels_path: Path, labels: LabelSpec, source: dict[str, str]
) -> Collection:
    queries = beir.read_queries(queries_path)
    with naming():
        judged = read_qrels(qrels_path, labels.scale)
    return Collection.of(
        documents.texts,
        queries.texts,
        judged.by_query,
        scale=labels.scale,
        relevant_from=labels.relevant_from,
        titles=documents.titles,
        query_groups=queries.groups,
        source=source,
        repeats=(documents.repeats, queries.repeats, judged.repeats),
    )
