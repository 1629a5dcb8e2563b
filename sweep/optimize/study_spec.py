"""What a study file says, as a value: checked, frozen, with its defaults filled in."""

__all__ = ["QUANTITIES", "Budget", "Limit", "Objective", "StudySpec", "degenerate", "schema"]

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic import PlainSerializer as Written
from pydantic import PlainValidator as Read
from pydantic import WithJsonSchema as Schema
from pydantic_core import PydanticCustomError

from metrics import Measure
from metrics.measures import SPAN_REGISTRY
from sweep.collection.loading import CollectionSpec
from sweep.errors import SettingsError
from sweep.optimize.axis import Problem, SpaceError, parse_value, unknown
from sweep.optimize.space import Space
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.encoders import EncoderSpec
from sweep.retrieval.parameters import PARAMETERS, Value, known_parameter
from sweep.retrieval.retriever import RetrieverSpec

QUANTITIES = ("context_tokens", "index_bytes", "rerank_pairs", "latency_ms")
LIMITED = (*QUANTITIES, "ann_recall")  # what a constraint may name beside measures
GROW_WITH_TOP_K = {"context_tokens", "holes", "holes_ratio"}
FIRST_SPACE = {"chunk_size": [128, 254], "algorithm": ["keyword", "vector", "hybrid"], "top_k": [3, 5, 10, 20]}
FIRST_MEASURES = ("ndcg@10", "recall@10", "fidelity", "xdcg@3", "max_relevance@3", "holes_ratio")
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
LIMIT = re.compile(r"\s*([<>]=)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*")


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on a quantity or a measure; the bound itself is allowed."""

    sense: str
    bound: float

    @classmethod
    def parse(cls, text: object) -> "Limit":
        """Read "<= number" or ">= number"; raises ValueError."""
        found = LIMIT.fullmatch(text) if isinstance(text, str) else None
        if not found:
            raise ValueError(f'must be "<= number" or ">= number" in quotes, as "<= 2000"; got {text!r}')
        return cls(found[1], float(found[2]))

    def excess(self, value: float) -> float:
        """Return by how much `value` breaks the limit; at most 0 when it does not."""
        return value - self.bound if self.sense == "<=" else self.bound - value

    def __str__(self) -> str:
        return f"{self.sense} {self.bound!r}".removesuffix(".0")


def _refuse(problems: list[Problem]) -> PydanticCustomError:
    """Carry places and texts through pydantic, which adds the place of the field."""
    return PydanticCustomError("study", "{problems}", {"problems": tuple(problems)})


def _measure(raw: object) -> Measure:
    if not isinstance(raw, str | Measure):
        raise ValueError(f"must be the name of a measure, as ndcg@10; got {raw!r}")
    measure = Measure.parse(str(raw))
    if measure.name in SPAN_REGISTRY:
        raise ValueError(f"{measure} needs judged spans, which no collection has yet; use measures of documents")
    return measure


def _quantity(raw: object) -> str:
    if raw not in QUANTITIES:
        raise ValueError(unknown("quantity", raw, QUANTITIES))
    return str(raw)


def _space(raw: object) -> Space:
    if isinstance(raw, Space):
        return raw
    if not isinstance(raw, Mapping):
        raise ValueError(f"must be a mapping of parameters to values, as {{top_k: [3, 5, 10]}}; got {raw!r}")
    try:
        return Space.parse(raw, path=())
    except SpaceError as error:
        raise _refuse(list(error.problems)) from None


def _constraints(raw: object) -> dict[str, Limit]:
    if not isinstance(raw, Mapping):
        raise ValueError(f'must be a mapping, as {{context_tokens: "<= 2000"}}; got {raw!r}')
    limits: dict[str, Limit] = {}
    problems: list[Problem] = []
    for key, text in raw.items():
        try:
            name = key if key in LIMITED else str(_measure(key))
            if name in limits:
                raise ValueError(f"{name} has a limit already; remove one")
            limits[name] = text if isinstance(text, Limit) else Limit.parse(text)
        except ValueError as error:
            also = f"; or a quantity: {', '.join(LIMITED)}" if "unknown measure" in str(error) else ""
            problems.append(((str(key),), f"{error}{also}"))
    if problems:
        raise _refuse(problems)
    return limits


def _baseline(raw: object) -> dict[str, Value]:
    if not isinstance(raw, Mapping):
        raise ValueError(f"must be a mapping of parameters to one value each, got {raw!r}")
    settings: dict[str, Value] = {}
    problems: list[Problem] = []
    for name, value in raw.items():
        try:
            known_parameter(str(name))
        except SettingsError:
            problems.append(((str(name),), unknown("key", name, PARAMETERS)))
            continue
        try:
            settings[name] = parse_value(name, value, (name,))
        except SpaceError as error:
            problems += error.problems
    if problems:
        raise _refuse(problems)
    return settings


def _distinct(items: tuple[Any, ...]) -> tuple[Any, ...]:
    twice = [str(item) for n, item in enumerate(items) if item in items[:n]]
    if twice:
        raise ValueError(f"{twice[0]} is there twice; remove one")
    return items


def _space_schema() -> dict[str, Any]:
    """Describe each parameter for editors: a value, a list, or a mapping of choices or range and condition."""

    def axis(name: str) -> dict[str, Any]:
        kinds = {str: "string", int: "integer", float: "number", None: ["string", "number", "boolean"]}
        value = {"type": kinds[known_parameter(name).cast]}
        many = {"type": "array", "items": value, "minItems": 1, "uniqueItems": True}
        keys = {"choices": many, "low": value, "high": value, "step": value, "log": {"type": "boolean"}}
        when = {"type": "object", "minProperties": 1, "propertyNames": {"enum": list(PARAMETERS)}}
        form = {"type": "object", "properties": keys | {"when": when}, "additionalProperties": False}
        return {"description": known_parameter(name).allowed, "anyOf": [value, many, form]}

    own = {r"^[^.]+\..+$": axis("RETRIEVER.OPTION")}
    properties = {n: axis(n) for n in PARAMETERS}
    return {"type": "object", "properties": properties, "patternProperties": own, "additionalProperties": False}


Tuple = BeforeValidator(lambda raw: tuple(raw) if isinstance(raw, list) else raw)
MeasureField = Annotated[Measure, Read(_measure), Written(str), Schema({"type": "string", "examples": ["ndcg@10"]})]
Quantity = Annotated[str, Read(_quantity), Schema({"enum": list(QUANTITIES)})]
Constraints = Annotated[
    dict[str, Limit],
    Read(_constraints),
    Written(lambda limits: {name: str(limit) for name, limit in limits.items()}),
    Schema({"type": "object", "additionalProperties": {"type": "string", "pattern": r"^\s*[<>]=\s*[-+.\d]"}}),
]
Baseline = Annotated[
    dict[str, Value], Read(_baseline), Schema({"type": "object", "propertyNames": {"enum": list(PARAMETERS)}})
]
SpaceField = Annotated[Space, Read(_space), Written(Space.to_dict), Schema(_space_schema())]
CollectionField = Annotated[
    CollectionSpec, Written(lambda c: c.model_dump(mode="json", exclude_defaults=True), when_used="always")
]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Objective(_Model):
    """What to make as high as possible, and how much of it (in its own units) a cheaper configuration may lose.

    A tolerance of None is 2 % of the measure's range: 0.02 for ndcg, 2 for xdcg. `StudySpec.tolerance` is the number.
    """

    maximize: MeasureField = Measure("ndcg", 10)
    tolerance: float | None = Field(default=None, gt=0)


class Budget(_Model):
    """The most trials of the study in total, and the most seconds of one run; None is no limit."""

    trials: int = Field(default=200, ge=1)
    timeout: float | None = Field(default=None, gt=0)


class StudySpec(_Model):
    """A whole study. `model_validate` raises pydantic's error; `make_study` and `load_study` raise StudyFileError.

    cost: what "cheapest" compares, in this order. baseline: settings to compare with; None is the stated common
    default, which depends on the encoder's limit and is made by the pipeline. measures: reported beside the objective.
    """

    study: str = Field(default="study", pattern=NAME)
    collection: CollectionField
    space: SpaceField = Field(default_factory=lambda: Space.parse(FIRST_SPACE))
    objective: Objective = Objective()
    constraints: Constraints = Field(default_factory=dict)
    cost: Annotated[tuple[Quantity, ...], Tuple, AfterValidator(_distinct)] = QUANTITIES[:3]
    baseline: Baseline | None = None
    measures: Annotated[tuple[MeasureField, ...], Tuple, AfterValidator(_distinct)] = tuple(
        map(Measure.parse, FIRST_MEASURES)
    )
    sampler: Literal["auto", "grid", "random", "tpe"] = "auto"
    budget: Budget = Budget()
    seed: int = Field(default=0, ge=0, lt=2**32)
    tokenizer: str | None = Field(default=None, min_length=1)
    allow_truncation: bool = False
    convention: Literal["scaled", "foundry"] = "scaled"
    encoders: dict[str, EncoderSpec] = Field(default_factory=dict)
    retrievers: dict[str, RetrieverSpec] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        problems: list[Problem] = []
        measure = self.objective.maximize
        if not measure.higher_is_better:
            cure = f'limit it instead, as constraints: {{{measure}: "<= 0.2"}}'
            problems.append((("objective", "maximize"), f"{measure} is not to be made high; {cure}"))
        elif self.tolerance >= self._span:
            text = f"{self.tolerance:g} allows any loss, since {measure} spans {self._span:g}; give a part of it, as"
            problems.append((("objective", "tolerance"), f"{text} {0.02 * self._span:g}"))
        elif reason := degenerate(self):
            problems.append((("objective", "maximize"), reason))
        problems += self._undeclared()
        try:
            self.baseline_configuration  # noqa: B018 - made once here, for its error
        except SettingsError as error:
            problems.append((("baseline",), str(error)))
        if self.study == "cache":
            problems.append((("study",), "'cache' is the folder that studies share; give the study another name"))
        grid_only = [a.name for a in self.space.axes if a.continuous] if self.sampler == "grid" else []
        if grid_only:
            cure = f"give {', '.join(grid_only)} a step or a list, or use sampler: auto"
            problems.append((("sampler",), f"a grid cannot list a continuous range; {cure}"))
        if problems:
            raise _refuse(problems)
        return self

    def _undeclared(self) -> list[Problem]:
        """Find retrievers that the space or the baseline names and the study does not declare."""
        problems: list[Problem] = []
        named = [(("space", a.name), a) for a in self.space.axes if a.name == "retriever" or "." in a.name]
        for place, axis in named:
            values: tuple[Value, ...] = (axis.name.partition(".")[0],)
            if axis.name == "retriever" and isinstance(axis.values, tuple):
                values = axis.values
            problems += [(place, unknown("retriever", v, self.retrievers)) for v in values if v not in self.retrievers]
        chosen = (self.baseline or {}).get("retriever")
        if chosen is not None and chosen not in self.retrievers:
            problems.append((("baseline", "retriever"), unknown("retriever", chosen, self.retrievers)))
        return problems

    @property
    def _span(self) -> float:
        low, high = self.objective.maximize.definition.bounds(self.collection.labels.scale)
        return high - low

    @property
    def tolerance(self) -> float:
        """The loss of the objective's measure that counts as none, in its units."""
        return 0.02 * self._span if self.objective.tolerance is None else self.objective.tolerance

    @property
    def reported(self) -> tuple[Measure, ...]:
        """Every measure that the study computes: the objective's, those of the limits, and `measures`, each once."""
        limits = [Measure.parse(name) for name in self.constraints if name not in LIMITED]
        holes = Measure("holes_ratio")  # stands beside every quality measure
        return tuple(dict.fromkeys((self.objective.maximize, *limits, *self.measures, holes)))

    @property
    def baseline_configuration(self) -> Configuration | None:
        """The baseline; what it leaves out is the first value in the space, else the parameter's default."""
        if self.baseline is None:
            return None
        first = {a.name: a.values[0] for a in self.space.axes if not a.when}
        return Configuration.of({**first, **self.baseline})

    def to_dict(self) -> dict[str, Any]:
        """Return the canonical JSON form: what is fingerprinted and stored. `make_study` reads it back."""
        form = self.model_dump(mode="json")
        return form | {"objective": form["objective"] | {"tolerance": self.tolerance}}


def degenerate(spec: StudySpec) -> str | None:
    """Say why the objective cannot choose a top_k, or return None when it, a limit or the cost order can.

    Over all retrieved documents more is never worse, so that the greatest top_k always wins unless it costs something.
    """
    swept = any(a.name == "top_k" and not a.fixed for a in spec.space.axes)
    limited = GROW_WITH_TOP_K & {name for name, limit in spec.constraints.items() if limit.sense == "<="}
    if spec.objective.maximize.cutoff is not None or not swept or limited or GROW_WITH_TOP_K & {*spec.cost}:
        return None
    cure = 'add context_tokens to cost, a limit as constraints: {context_tokens: "<= 2000"}, or a cutoff'
    return f"{spec.objective.maximize} is never worse with more results, so the greatest top_k always wins; {cure}"


def schema() -> str:
    """Return the JSON Schema of a study file, for editors; `study.schema.json` beside this file holds it."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(head | StudySpec.model_json_schema(), indent=2, ensure_ascii=False) + "\n"
