"""What is known of each retrieval parameter: default, type, allowed values, when it can matter, what it comes to.

A new parameter is a row here and a field of `Configuration`, both at the same place in the order.
"""

__all__ = ["ALGORITHMS", "DEFAULT_ENCODER", "PARAMETERS", "Parameter", "Value", "known_parameter"]

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sweep.errors import SettingsError, nearest
from sweep.retrieval import index_factory
from sweep.retrieval.analyzers import ANALYZERS
from sweep.retrieval.chunkers import CHUNKERS, CONTEXTS
from sweep.retrieval.chunking import overlap_tokens
from sweep.retrieval.keyword_index import VARIANTS

if TYPE_CHECKING:
    from sweep.retrieval.configuration import Configuration

Value = str | int | float | bool | None
When = Callable[["Configuration"], bool]

DEFAULT_ENCODER = "all-MiniLM-L6-v2"
ALGORITHMS = ("keyword", "vector", "hybrid", "semantic", "retriever")
FIRST_STAGES = ("keyword", "vector", "hybrid")
RERANKERS = ("late-interaction", "cross-encoder", "encoder")
SIMILARITIES = ("cosine", "inner_product", "l2")
QUANTIZATIONS = ("none", "int8", "binary")
FUSIONS = ("rrf", "convex")
NORMALIZATIONS = ("min-max", "z-score")
MOST = 10**9  # of whole numbers: beyond what any library below counts


@dataclass(frozen=True, slots=True)
class Parameter:
    """What is known of one parameter.

    cast: its type; None for a retriever's own option, which may be of any. ok: tells whether a value is allowed, which
    `allowed` says in words. applies: whether it can matter for a configuration. settle: what a value comes to there,
    so that two values that mean the same are one.
    """

    default: Value
    cast: type[str] | type[int] | type[float] | None
    allowed: str
    ok: Callable[[Any], bool]
    applies: When
    settle: Callable[[Any, "Configuration"], Any] = lambda value, _: value

    def plain(self, value: Any) -> Any:
        """Return the value as it is written: 1.0 where a number may have a part, and 0.0 for −0.0."""
        return self.cast(value) + 0 if self.cast in (int, float) else value

    def _typed(self, value: Any) -> bool:
        if self.cast is str:
            return isinstance(value, str)
        number = isinstance(value, int | float) and value - value == 0
        if self.cast is None:
            return number or isinstance(value, str | bool)
        return number and not isinstance(value, bool) and self.cast(value) == value

    def check(self, name: str, value: Value) -> None:
        """Raise SettingsError unless `value` is of the right type and range."""
        try:
            typed = self._typed(value)
        except (ValueError, OverflowError):  # NaN, infinity, or beyond a float
            typed = False
        if typed and self.cast is int and isinstance(value, int | float) and value > MOST:
            raise SettingsError(f"{name}: {value!r} is not allowed; allowed: {self.allowed}, at most {MOST:,}")
        if not typed or not self.ok(value):
            raise SettingsError(f"{name}: {value!r} is not allowed; allowed: {self.allowed}")


def known_parameter(name: str) -> Parameter:
    """Return what is known of a parameter, or of an option NAME.OPTION of a person's own retriever.

    Raises SettingsError for an unknown name.
    """
    retriever, _, option = name.partition(".")
    if name not in PARAMETERS and not (retriever and option):
        raise SettingsError(f"unknown parameter {name!r}{nearest(name, PARAMETERS)}")
    allowed = "text, a finite number, true or false"
    own = Parameter(None, None, allowed, lambda v: True, lambda c: c.retriever == retriever)
    return PARAMETERS.get(name, own)


def _searched(c: "Configuration") -> bool:
    return c.algorithm != "retriever"


def _sized(c: "Configuration") -> bool:
    return _searched(c) and CHUNKERS[str(c.chunker)].sized


def _vector(c: "Configuration") -> bool:
    return "vector" in c.searches


def _keyword(c: "Configuration") -> bool:
    return "keyword" in c.searches


def _hybrid(c: "Configuration") -> bool:
    return len(c.searches) == 2


def _shifted(c: "Configuration") -> bool:
    return _keyword(c) and c.bm25_variant in ("bm25l", "bm25+")


def _diverse(c: "Configuration") -> bool:
    return _vector(c) and c.mmr_lambda is not None and c.mmr_lambda < 1


def _semantic(c: "Configuration") -> bool:
    return c.algorithm == "semantic"


def _index(ask: Callable[[str], bool]) -> When:
    return lambda c: _vector(c) and ask(str(c.index))


def _one_of(default: str, names: tuple[str, ...], applies: When) -> Parameter:
    return Parameter(default, str, ", ".join(names), lambda v: v in names, applies)


def _whole(default: int, applies: When, settle: Callable[[int, "Configuration"], int] = lambda v, _: v) -> Parameter:
    return Parameter(default, int, "a whole number from 1", lambda v: v >= 1, applies, settle)


def _real(default: float, allowed: str, ok: Callable[[float], bool], applies: When) -> Parameter:
    return Parameter(default, float, allowed, lambda v: ok(v) and v < float("inf"), applies)


def _share(default: float, applies: When) -> Parameter:
    return _real(default, "a number from 0 to 1", lambda v: 0 <= v <= 1, applies)


_MODEL = "a model id or folder, or a name of the study's encoders"

PARAMETERS: dict[str, Parameter] = {
    "algorithm": _one_of("vector", ALGORITHMS, lambda c: True),
    "chunker": _one_of("tokens", tuple(CHUNKERS), _searched),
    "chunk_size": Parameter(254, int, "a whole number of tokens from 1", lambda v: v >= 1, _sized),
    "chunk_overlap": Parameter(
        0.0,
        float,
        "a share of chunk_size from 0 to 0.5",
        lambda v: 0 <= v <= 0.5,
        _sized,
        lambda v, c: v if overlap_tokens(c.chunk_size or 0, v) else 0.0,
    ),
    "chunk_context": _one_of("none", CONTEXTS, _searched),
    "top_k": _whole(10, lambda c: True),
    "encoder": Parameter(DEFAULT_ENCODER, str, _MODEL, bool, _vector),
    "dimensions": Parameter(None, int, "a whole number from 1; left out: all", lambda v: v >= 1, _vector),
    "similarity": _one_of("cosine", SIMILARITIES, _vector),
    "quantization": _one_of("none", QUANTIZATIONS, _vector),
    "index": Parameter(
        "Flat", str, index_factory.ALLOWED, index_factory.allowed, _vector, lambda v, _: index_factory.canonical(v)
    ),
    "ef_construction": _whole(40, _index(index_factory.has_graph)),
    "ef_search": _whole(64, _index(index_factory.has_graph), lambda v, c: max(v, c.depth * (c.refine_factor or 1))),
    "nprobe": _whole(8, _index(index_factory.has_lists), lambda v, c: min(v, index_factory.lists(str(c.index)))),
    "refine_factor": _whole(4, _index(index_factory.refined)),
    "analyzer": _one_of("auto", ANALYZERS, _keyword),
    "bm25_variant": _one_of("lucene", VARIANTS, _keyword),
    "k1": _real(1.5, "a number from 0", lambda v: v >= 0, _keyword),
    "b": _share(0.75, _keyword),
    "delta": _real(0.5, "a number from 0", lambda v: v >= 0, _shifted),
    "fusion": _one_of("rrf", FUSIONS, _hybrid),
    "rrf_k": _whole(60, lambda c: _hybrid(c) and c.fusion == "rrf"),
    "normalization": _one_of("min-max", NORMALIZATIONS, lambda c: _hybrid(c) and c.fusion == "convex"),
    "vector_weight": _share(0.5, _hybrid),
    "fusion_depth": _whole(100, _hybrid),
    "first_stage": _one_of("hybrid", FIRST_STAGES, _semantic),
    "pool": _whole(50, _semantic),
    "reranker": _one_of("late-interaction", RERANKERS, _semantic),
    "reranker_model": Parameter(None, str, _MODEL, bool, _semantic),
    "mmr_lambda": _share(1.0, _vector),
    "mmr_pool": _whole(50, _diverse, lambda v, c: min(v, c.pool or v)),
    "max_per_document": Parameter(
        0,
        int,
        "a whole number from 0; 0 is no limit",
        lambda v: v >= 0,
        _sized,
        lambda v, c: 0 if v >= c.top_k else v,
    ),
    "retriever": Parameter(None, str, "a name of the study's retrievers", bool, lambda c: c.algorithm == "retriever"),
}
