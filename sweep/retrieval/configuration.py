"""One point of the search space, as a value: prints, compares, hashes, and reads back.

A parameter that cannot matter is None: a keyword configuration has no index. A value that means the same as another is
written as that one. So two points that mean the same are equal, and a fingerprint holds nothing but what the result
depends on.
"""

__all__ = ["Chunking", "Configuration"]

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from sweep.errors import SettingsError
from sweep.retrieval.parameters import DEFAULT_ENCODER, PARAMETERS, Value, known_parameter

ALONE = {0.0: "keyword", 1.0: "vector"}  # what a vector_weight leaves of a hybrid search
CROWD = 5  # chunks looked at for each wanted, where a document may give only so many


class Chunking(NamedTuple):
    """How documents are cut: what chunks, and with them vectors and terms, depend on."""

    chunker: str
    size: int | None
    overlap: float
    context: str

    def __str__(self) -> str:
        size = "" if self.size is None else f"{self.size}/{self.overlap:g}"
        named = () if self.chunker == "tokens" else (self.chunker,)
        return " ".join((*named, *([size] if size else []), *([self.context] if self.context != "none" else [])))


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Retrieval settings; build one with `Configuration.of`, which checks and drops what cannot matter.

    `parameters.PARAMETERS` says what each field may be and when it matters. chunk_size counts tokens of the study's
    tokenizer without special tokens; chunk_overlap is a share of it; top_k counts chunks. options: what a person's own
    retriever is called with, (NAME.OPTION, value) pairs in order of name.
    """

    algorithm: str
    chunker: str | None = None
    chunk_size: int | None = None
    chunk_overlap: float | None = None
    chunk_context: str | None = None
    top_k: int
    encoder: str | None = None
    dimensions: int | None = None
    similarity: str | None = None
    quantization: str | None = None
    index: str | None = None
    ef_construction: int | None = None
    ef_search: int | None = None
    nprobe: int | None = None
    refine_factor: int | None = None
    analyzer: str | None = None
    bm25_variant: str | None = None
    k1: float | None = None
    b: float | None = None
    delta: float | None = None
    fusion: str | None = None
    rrf_k: int | None = None
    normalization: str | None = None
    vector_weight: float | None = None
    fusion_depth: int | None = None
    first_stage: str | None = None
    pool: int | None = None
    reranker: str | None = None
    reranker_model: str | None = None
    mmr_lambda: float | None = None
    mmr_pool: int | None = None
    max_per_document: int | None = None
    retriever: str | None = None
    options: tuple[tuple[str, Value], ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, Value]) -> "Configuration":
        """Check `settings` (parameter name → value; absent means the default) and keep those that can matter.

        Raises SettingsError for an unknown name, a value that is not allowed, or values that exclude each other.
        """
        for name, value in settings.items():
            known = known_parameter(name)
            if value is not None:
                known.check(name, value)
        full = cls.filled(settings)
        if full.reranker == "late-interaction" and full.reranker_model is None:
            full = replace(full, reranker_model=DEFAULT_ENCODER)
        idle: dict[str, Any] = {n: None for n, p in PARAMETERS.items() if not p.applies(full)}
        own = sorted((n, v) for n, v in settings.items() if n not in PARAMETERS and v is not None)
        options = tuple((n, v) for n, v in own if full.algorithm == "retriever" and n.startswith(f"{full.retriever}."))
        kept = replace(full, **idle, options=options)
        _check_together(kept)
        settled: dict[str, Any] = {
            n: PARAMETERS[n].settle(v, kept) for n, v in kept.settings.items() if n in PARAMETERS
        }
        return replace(kept, **settled)

    @classmethod
    def filled(cls, settings: Mapping[str, Value]) -> "Configuration":
        """Return the settings with defaults for what is absent, nothing checked or dropped; options are left out.

        A hybrid search that weighs one side alone is written as that side.
        """
        values: dict[str, Any] = {}
        for name, known in PARAMETERS.items():
            value = known.default if settings.get(name) is None else settings[name]
            values[name] = None if value is None else known.plain(value)
        stage = "first_stage" if values["algorithm"] == "semantic" else "algorithm"
        if values[stage] == "hybrid":
            values[stage] = ALONE.get(values["vector_weight"], "hybrid")
        return cls(**values)

    @property
    def chunking(self) -> Chunking:
        """How documents are cut for this configuration."""
        return Chunking(str(self.chunker), self.chunk_size, self.chunk_overlap or 0.0, str(self.chunk_context))

    @property
    def searches(self) -> tuple[str, ...]:
        """The plain searches that this configuration runs: "keyword", "vector", both, or none of ours."""
        stage = self.first_stage if self.algorithm == "semantic" else self.algorithm
        if stage == "retriever":
            return ()
        return ("keyword", "vector") if stage == "hybrid" else (str(stage),)

    @property
    def depth(self) -> int:
        """How many chunks each plain search has to give."""
        return self.fusion_depth or self.pool or self.wanted

    @property
    def wanted(self) -> int:
        """How many chunks the last ranking has to hold for `top_k` of them to be chosen."""
        crowded = 0 < (self.max_per_document or 0) < self.top_k
        return max(self.top_k * (CROWD if crowded else 1), self.mmr_pool or 0)

    @property
    def models(self) -> tuple[str, ...]:
        """The models that read its chunks: encoder, reranker's model."""
        return tuple(dict.fromkeys(m for m in (self.encoder, self.reranker_model) if m is not None))

    @property
    def settings(self) -> dict[str, Value]:
        """The parameters that matter, in declared order, a retriever's own options last."""
        own = {n: v for n in PARAMETERS if (v := getattr(self, n)) is not None}
        return own | dict(self.options)

    @property
    def id(self) -> str:
        """Eight hexadecimal digits that name this configuration everywhere: tables, exports, the command line."""
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:8]

    @property
    def short(self) -> str:
        """What tells it from its neighbours at a glance: algorithm, chunks, top_k, id."""
        what = self.retriever if self.algorithm == "retriever" else self.chunking
        return f"{self.algorithm} {what} top_k {self.top_k} ({self.id})"

    def __str__(self) -> str:
        return " ".join(f"{n}={v}" for n, v in self.settings.items())


def _check_together(c: Configuration) -> None:
    """Raise SettingsError for values that exclude each other."""
    if c.pool is not None and c.pool < c.top_k:
        raise SettingsError(f"pool {c.pool} is smaller than top_k {c.top_k}: a reranker returns from its pool")
    if c.mmr_pool is not None and c.mmr_pool < c.top_k:
        raise SettingsError(f"mmr_pool {c.mmr_pool} is smaller than top_k {c.top_k}, which are chosen from it")
    if c.reranker in ("cross-encoder", "encoder") and c.reranker_model is None:
        raise SettingsError(f"reranker {c.reranker!r} needs reranker_model: a model id or folder")
    if c.algorithm == "retriever" and c.retriever is None:
        raise SettingsError("algorithm 'retriever' needs retriever: a name of the study's retrievers")
    if c.fusion_depth is not None and c.fusion_depth < (c.pool or c.top_k):
        raise SettingsError(f"fusion_depth {c.fusion_depth} is smaller than the {c.pool or c.top_k} asked of it")


if [f.name for f in fields(Configuration)] != [*PARAMETERS, "options"]:  # one list of names, in one order
    raise TypeError("Configuration and PARAMETERS name different parameters")
