"""What a study file asks for on its collection: the baseline, the grid, who reads which chunks, its identity."""

__all__ = ["Plan"]

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sweep.artifacts import CODE, fingerprint
from sweep.collection.collection import Collection
from sweep.collection.loading import load
from sweep.errors import CollectionError, SettingsError
from sweep.optimize.space import Grid
from sweep.optimize.study_file import StudyFile
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.encoders import Models
from sweep.retrieval.parameters import DEFAULT_ENCODER, Value
from sweep.retrieval.retriever import make_retriever
from sweep.retrieval.stages import embedding

if TYPE_CHECKING:
    from sweep.retrieval.pipeline import Pipeline

COMMON_CHUNK_SIZE = 512


class Plan:
    """A study file and the collection that it names."""

    def __init__(self, file: StudyFile, home: Path) -> None:
        self.file = file
        self.spec = file.spec
        self.home = home
        self._model = lru_cache(maxsize=None)(self._model_fingerprint)
        self._retriever = lru_cache(maxsize=None)(self._retriever_fingerprint)

    @property
    def cache(self) -> Path:
        """The folder of what studies share."""
        return self.home / "cache"

    @cached_property
    def models(self) -> Models:
        """The encoders and tokenizers that the study may name."""
        return Models(self.spec.encoders, self.file.folder, self.cache)

    @cached_property
    def collection(self) -> Collection:
        """The documents, queries and labels; read when first needed."""
        return load(self.spec.collection, self.file.folder)

    @property
    def encoders(self) -> tuple[str, ...]:
        """The encoders of the space, in order."""
        return tuple(map(str, self._values("encoder", (DEFAULT_ENCODER,))))

    @property
    def tokenizer(self) -> str:
        """Whose tokens chunk sizes count: the study's choice, else the first encoder's."""
        return self.spec.tokenizer or self.encoders[0]

    @cached_property
    def baseline(self) -> Configuration:
        """What the answer is compared with: the study's own, else the common default, cut to what the encoder reads.

        Where a person's own retrievers are all that is searched, it is the first point of the space.
        """
        if self.spec.baseline_configuration is not None:
            return self.spec.baseline_configuration
        if self._values("algorithm", ()) == ("retriever",):
            return self.spec.space.first
        limit = self.models.encoder(self.encoders[0]).limit
        size = COMMON_CHUNK_SIZE if limit is None else min(COMMON_CHUNK_SIZE, limit)
        return Configuration.of({"encoder": self.encoders[0], "chunk_size": size, "algorithm": "vector", "top_k": 5})

    @cached_property
    def _grid(self) -> Grid | None:
        return self.spec.space.grid()

    @cached_property
    def grid(self) -> tuple[Configuration, ...] | None:
        """Every configuration of the space; None where there is no end.

        Those that share chunks, vectors and indexes stand side by side, wider and deeper pools first: what a smaller
        one needs is then stored.
        """
        if self._grid is None:
            return None
        return _side_by_side(self._grid.configurations)

    @property
    def invalid(self) -> Mapping[str, int]:
        """Combinations of the space that cannot be run, counted by reason."""
        return {} if self._grid is None else self._grid.invalid

    def sampled(self, trials: int) -> bool:
        """Tell whether a sampler has to choose, because the space is larger than the budget or has no end."""
        if self.spec.sampler in ("tpe", "random"):
            return True
        if self.grid is None or len(self.grid) > trials:
            if self.spec.sampler == "grid":
                size = "without end" if self.grid is None else f"of {len(self.grid)} configurations"
                raise SettingsError(f"sampler: grid over a space {size} needs that many trials; the budget is {trials}")
            return True
        return False

    @cached_property
    def targets(self) -> dict[str, Configuration]:
        """The baseline and every configuration of the grid, by id."""
        return {c.id: c for c in (self.baseline, *(self.grid or ()))}

    def check(self, pipeline: "Pipeline") -> None:
        """Check what would only show while running: labels, runnable points, and chunks against the models' limits.

        Raises CollectionError where no query has a relevant document or no document a token, SettingsError for a space
        without a point that can run, and where a model would not read the end of chunks and that is not allowed.
        """
        if not self.collection.judgments.answerable.any():
            raise CollectionError("no query has a relevant document, so nothing can be scored; check labels and scale")
        if self.grid == ():
            reasons = "; ".join(f"{count} × {reason}" for reason, count in self.invalid.items())
            raise SettingsError(f"space: no combination can be run: {reasons}")
        if not len(pipeline.stages.tokens.start):
            raise CollectionError("empty collection: no document has a character that is a token")
        for c in self.readers:
            pipeline.truncated(c)

    @property
    def readers(self) -> list[Configuration]:
        """One configuration for each chunking and the models that read it: what the study embeds and reranks."""
        asked = [self.baseline, *(self.grid or self.spec.space.corners())]
        return list({(c.models, c.chunking): c for c in asked if c.models}.values())

    def _values(self, name: str, default: Sequence[Value]) -> Sequence[Value]:
        """Return what the space chooses from for a parameter, a range by its ends."""
        return next((a.ends for a in self.spec.space.axes if a.name == name), default)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What must stay the same for stored trials to count: data, models, code, and what is searched for."""
        models = {*self.encoders, *self.baseline.models, *map(str, self._values("reranker_model", (DEFAULT_ENCODER,)))}
        called = {self.baseline.retriever, *self._values("retriever", ())} - {None}
        return {
            "documents": self.collection.documents_fingerprint,
            "queries": self.collection.queries_fingerprint,
            "labels": self.collection.labels_fingerprint,
            "source": dict(self.collection.source),
            "models": {name: self._model(name) for name in sorted(models)},
            "retrievers": {str(name): self._retriever(str(name)) for name in sorted(map(str, called))},
            "tokenizer": f"{self.tokenizer} {self.models.tokenizer_fingerprint(self.tokenizer)}",
            "objective": str(self.spec.objective.maximize),
            "convention": self.spec.convention,
            "allow_truncation": self.spec.allow_truncation,
            "space": self.spec.space.to_dict(),
            "code": CODE,
        }

    def _model_fingerprint(self, name: str) -> str:
        spec = self.spec.encoders.get(name)
        if spec is None or spec.endpoint is None:
            files = self.models.model(name).fingerprint
            return files if spec is None else fingerprint(files, spec.model_dump(mode="json", exclude={"model"}))
        return str(self.models.encoder(name).fingerprint)

    def _retriever_fingerprint(self, name: str) -> str:
        return make_retriever(name, self.spec.retrievers, self.file.folder).fingerprint

    def result_key(self, c: Configuration) -> str:
        """Return the fingerprint of all that a configuration's rankings depend on, labels aside."""
        data: list[Any] = [self.collection.documents_fingerprint, self.collection.queries_fingerprint]
        data += [self.models.tokenizer_fingerprint(self.tokenizer), *map(self._model, c.models)]
        if c.retriever is not None:  # codes of documents that only the labels know come after the corpus'
            data += [self._retriever(c.retriever), list(self.collection.dangling_documents)]
        return f"{c.id}-{fingerprint(data, c.settings)}"


def _side_by_side(configurations: Sequence[Configuration]) -> tuple[Configuration, ...]:
    """Sort configurations by what they share, else in the order in which they come."""
    shared = [
        (*c.chunking, *embedding(c), c.index, c.ef_construction, c.analyzer, c.bm25_variant) for c in configurations
    ]
    places = [{value: at for at, value in reversed(list(enumerate(column)))} for column in zip(*shared, strict=True)]

    def key(at: int) -> tuple[int, ...]:
        c = configurations[at]
        group = (column[value] for column, value in zip(places, shared[at], strict=True))
        return (*group, len(c.searches) < 2, -(c.pool or 0))

    return tuple(configurations[at] for at in sorted(range(len(configurations)), key=key))
