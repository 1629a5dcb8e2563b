"""One point of the search space, as a value: prints, compares, hashes, and reads back.

A parameter that cannot matter is None: a keyword configuration has no index. So two points that mean the same are
equal, and a fingerprint holds nothing but what the result depends on.
"""

__all__ = ["ALGORITHMS", "DEFAULT_ENCODER", "PARAMETERS", "RERANKERS", "Configuration", "Parameter", "Value"]

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from sweep.errors import SettingsError, nearest

Value = str | int | float | bool | None

DEFAULT_ENCODER = "all-MiniLM-L6-v2"
ALGORITHMS = ("keyword", "vector", "hybrid", "semantic")
FIRST_STAGES = ("keyword", "vector", "hybrid")
RERANKERS = ("late-interaction", "cross-encoder")
INDEX = re.compile(r"Flat|HNSW([2-9]|[1-9][0-9]|[1-9][0-9][0-9])")
MOST = 10**9  # of whole numbers: beyond what any library below counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """Retrieval settings; build one with `Configuration.of`, which checks and drops what cannot matter.

    chunk_size counts tokens of the study's tokenizer without special tokens; chunk_overlap is a share of it (0…0.5);
    top_k counts chunks. `rrf_k` and `fusion_depth` (chunks taken from each side) belong to hybrid search, `pool`
    (chunks reranked, at least top_k) and `first_stage` (what fills the pool) to semantic search.
    """

    algorithm: str
    chunk_size: int
    chunk_overlap: float
    top_k: int
    encoder: str | None = None
    index: str | None = None
    ef_search: int | None = None
    analyzer: str | None = None
    k1: float | None = None
    b: float | None = None
    rrf_k: int | None = None
    fusion_depth: int | None = None
    first_stage: str | None = None
    pool: int | None = None
    reranker: str | None = None
    reranker_model: str | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Value]) -> "Configuration":
        """Check `settings` (parameter name → value; absent means the default) and keep those that can matter.

        Raises SettingsError for an unknown name, a value that is not allowed, or values that exclude each other.
        """
        for name, value in settings.items():
            if name not in PARAMETERS:
                raise SettingsError(f"unknown parameter {name!r}{nearest(name, PARAMETERS)}")
            if value is not None:
                PARAMETERS[name].check(name, value)
        filled: dict[str, Any] = {
            n: p.default if settings.get(n) is None else settings[n] for n, p in PARAMETERS.items()
        }
        cast: dict[str, Any] = {n: v if v is None else PARAMETERS[n].plain(v) for n, v in filled.items()}
        full = cls(**cast)
        if full.reranker == "late-interaction" and full.reranker_model is None:
            full = replace(full, reranker_model=DEFAULT_ENCODER)
        idle: dict[str, Any] = {n: None for n, p in PARAMETERS.items() if not p.applies(full)}
        kept = replace(full, **idle)
        if kept.pool is not None and kept.pool < kept.top_k:
            raise SettingsError(
                f"pool {kept.pool} is smaller than top_k {kept.top_k}: a reranker returns from its pool"
            )
        if kept.reranker == "cross-encoder" and kept.reranker_model is None:
            raise SettingsError("reranker 'cross-encoder' needs reranker_model: a model id or folder")
        if kept.fusion_depth is not None and kept.fusion_depth < (kept.pool or kept.top_k):
            raise SettingsError(
                f"fusion_depth {kept.fusion_depth} is smaller than the {kept.pool or kept.top_k} asked of it"
            )
        return kept

    @property
    def searches(self) -> tuple[str, ...]:
        """The plain searches that this configuration runs: "keyword", "vector" or both."""
        stage = self.first_stage if self.algorithm == "semantic" else self.algorithm
        return ("keyword", "vector") if stage == "hybrid" else (str(stage),)

    @property
    def models(self) -> tuple[str, ...]:
        """The models that read its chunks: encoder, reranker's model."""
        return tuple(dict.fromkeys(m for m in (self.encoder, self.reranker_model) if m is not None))

    @property
    def settings(self) -> dict[str, Value]:
        """The parameters that matter, in declared order."""
        return {n: v for n, v in asdict(self).items() if v is not None}

    @property
    def id(self) -> str:
        """Eight hexadecimal digits that name this configuration everywhere: tables, exports, the command line."""
        return hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode()).hexdigest()[:8]

    @property
    def short(self) -> str:
        """What tells it from its neighbours at a glance: algorithm, size/overlap, top_k."""
        return f"{self.algorithm} {self.chunk_size}/{self.chunk_overlap:g} top_k {self.top_k}"

    def __str__(self) -> str:
        return " ".join(f"{n}={v}" for n, v in self.settings.items())


@dataclass(frozen=True, slots=True)
class Parameter:
    """What is known of one parameter: its default, its type, what is allowed, and when it can matter."""

    default: Value
    cast: Callable[[Any], Any]
    allowed: str
    ok: Callable[[Any], bool]
    applies: Callable[[Configuration], bool]

    def plain(self, value: Any) -> Any:
        """Return the value as it is written: 1.0 where a number may have a part, and 0.0 for −0.0."""
        return self.cast(value) + 0 if self.cast is not str else value

    def check(self, name: str, value: Value) -> None:
        """Raise SettingsError unless `value` is of the right type and range."""
        try:
            number = not isinstance(value, bool) and isinstance(value, int | float)
            typed = isinstance(value, str) if self.cast is str else number and self.cast(value) == value
        except (ValueError, OverflowError):  # NaN, infinity, or beyond a float
            typed = False
        if typed and self.cast is int and isinstance(value, int | float) and value > MOST:
            raise SettingsError(f"{name}: {value!r} is not allowed; allowed: {self.allowed}, at most {MOST:,}")
        if not typed or not self.ok(value):
            raise SettingsError(f"{name}: {value!r} is not allowed; allowed: {self.allowed}")


def _always(_: Configuration) -> bool:
    return True


def _vector(c: Configuration) -> bool:
    return "vector" in c.searches


def _keyword(c: Configuration) -> bool:
    return "keyword" in c.searches


def _hybrid(c: Configuration) -> bool:
    return len(c.searches) == 2


def _semantic(c: Configuration) -> bool:
    return c.algorithm == "semantic"


def _one_of(names: tuple[str, ...]) -> tuple[str, Callable[[Any], bool]]:
    return ", ".join(names), lambda v: v in names


def _whole(default: int, applies: Callable[[Configuration], bool]) -> Parameter:
    return Parameter(default, int, "a whole number from 1", lambda v: v >= 1, applies)


PARAMETERS: dict[str, Parameter] = {
    "algorithm": Parameter("vector", str, *_one_of(ALGORITHMS), _always),
    "chunk_size": Parameter(254, int, "a whole number of tokens from 1", lambda v: v >= 1, _always),
    "chunk_overlap": Parameter(0.0, float, "a share of chunk_size from 0 to 0.5", lambda v: 0 <= v <= 0.5, _always),
    "top_k": _whole(10, _always),
    "encoder": Parameter(DEFAULT_ENCODER, str, "a model id or folder", bool, _vector),
    "index": Parameter(
        "Flat",
        str,
        "Flat, or HNSW with its number of links from 2 to 999, as HNSW32",
        lambda v: bool(INDEX.fullmatch(v)),
        _vector,
    ),
    "ef_search": _whole(64, lambda c: _vector(c) and str(c.index).startswith("HNSW")),
    "analyzer": Parameter("english", str, *_one_of(("english", "plain")), _keyword),
    "k1": Parameter(1.5, float, "a number from 0", lambda v: 0 <= v < float("inf"), _keyword),
    "b": Parameter(0.75, float, "a number from 0 to 1", lambda v: 0 <= v <= 1, _keyword),
    "rrf_k": _whole(60, _hybrid),
    "fusion_depth": _whole(100, _hybrid),
    "first_stage": Parameter("hybrid", str, *_one_of(FIRST_STAGES), _semantic),
    "pool": _whole(50, _semantic),
    "reranker": Parameter("late-interaction", str, *_one_of(RERANKERS), _semantic),
    "reranker_model": Parameter(None, str, "a model id or folder", bool, _semantic),
}

if [f.name for f in fields(Configuration)] != list(PARAMETERS):  # one list of names, in one order
    raise TypeError("Configuration and PARAMETERS name different parameters")
