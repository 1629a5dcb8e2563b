"""What a study varies: its axes, and the points that follow from them.

An axis is active when its own `when` holds and its parameter can matter at that point (`Parameter.applies`); an axis
that is not active takes no value. `Space.grid`, `Space.suggest` and `Space.params` walk the axes in the same order by
the same rule, so that what one makes the others understand.
"""

__all__ = ["Axis", "Grid", "Range", "Space", "SpaceError", "difference", "extends"]

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from sweep.errors import SettingsError
from sweep.optimize.axis import Axis, Path, Problem, Range, SpaceError, parse_axis
from sweep.retrieval.configuration import ALONE, Configuration
from sweep.retrieval.parameters import FUSIONS, PARAMETERS, Value, known_parameter

if TYPE_CHECKING:
    import optuna

MOST = 1_000_000  # combinations that `Space.grid` is willing to list

# Whether a parameter can matter depends on these; they are decided first. A test compares this with `applies`.
_SEARCH = ("algorithm", "first_stage", "vector_weight")
DECIDERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(PARAMETERS, _SEARCH),
    **dict.fromkeys(("algorithm", "top_k"), ()),
    **dict.fromkeys(("chunker", "chunk_context", "retriever"), ("algorithm",)),
    **dict.fromkeys(("chunk_size", "chunk_overlap", "max_per_document"), ("algorithm", "chunker")),
    **dict.fromkeys(("ef_construction", "ef_search", "nprobe", "refine_factor"), (*_SEARCH, "index")),
    **dict.fromkeys(("rrf_k", "normalization"), (*_SEARCH, "fusion")),
    **dict.fromkeys(("first_stage", "pool", "reranker", "reranker_model"), ("algorithm",)),
    "vector_weight": ("algorithm", "first_stage"),
    "delta": (*_SEARCH, "bm25_variant"),
    "mmr_pool": (*_SEARCH, "mmr_lambda"),
}
OPTION_DECIDERS = ("algorithm", "retriever")
READING = (
    "algorithm", "first_stage", "vector_weight", "chunker", "chunk_size", "chunk_overlap", "chunk_context", "encoder",
    "reranker", "reranker_model",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grid:
    """All combinations of a space: the distinct configurations that can run, and what became of the rest.

    A parameter that cannot matter counts as many combinations as it has values, and so does one of which several values
    mean the same; all but one are `repeated`. `invalid` counts the distinct combinations that cannot run, by reason.
    """

    configurations: tuple[Configuration, ...]
    invalid: Mapping[str, int]
    repeated: int

    def __len__(self) -> int:
        return len(self.configurations)


@dataclass(frozen=True, slots=True)
class Space:
    """Axes, each after those that decide whether it is active; otherwise in the user's order."""

    axes: tuple[Axis, ...]

    @classmethod
    def parse(cls, mapping: Mapping[str, Any], path: Path = ("space",)) -> "Space":
        """Read the `space` of a study file: parameter → list, range, choices with `when`, or one value.

        Raises SpaceError with every problem found.
        """
        axes: list[Axis] = []
        problems: list[Problem] = []
        for name, raw in mapping.items():
            try:
                axes.append(parse_axis(name, raw, (*path, str(name))))
            except SpaceError as error:
                problems += error.problems
        problems = problems or _bad_conditions(axes, path)
        if problems:
            raise SpaceError(problems)
        return cls(_ordered(axes, path))

    @property
    def size(self) -> int | None:
        """The number of distinct configurations that can run; None as for `grid`."""
        grid = self.grid()
        return None if grid is None else len(grid)

    def grid(self) -> Grid | None:
        """List every configuration; None when an axis is continuous or there are over a million combinations."""
        if any(a.continuous for a in self.axes):
            return None
        good: dict[Configuration, None] = {}
        invalid: Counter[str] = Counter()
        points = repeated = 0
        for settings, copies in islice(self._points(0, {}, 1), MOST + 1):
            points += 1
            repeated += copies - 1
            try:
                configuration = Configuration.of(settings)
            except SettingsError as error:
                invalid[str(error)] += 1
                continue
            repeated += configuration in good
            good[configuration] = None
        return None if points > MOST else Grid(tuple(good), dict(invalid), repeated)

    def suggest(self, trial: "optuna.Trial") -> dict[str, Value]:
        """Return the settings that the trial chooses, active axes only; `Configuration.of` may still refuse them."""
        settings: dict[str, Value] = {}
        for axis in self.axes:
            if _active(axis, settings):
                settings[axis.name] = axis.suggest(trial)
        return settings

    def params(self, configuration: Configuration) -> dict[str, Value]:
        """Return what `study.enqueue_trial` needs so that `suggest` gives exactly this configuration.

        Raises SettingsError when the configuration is not a point of this space.
        """
        faults = []
        for spelling in _spellings(configuration):
            try:
                return self._params(configuration, spelling)
            except SettingsError as fault:
                faults.append(fault)
        raise faults[0]

    def _params(self, configuration: Configuration, spelling: Mapping[str, Value]) -> dict[str, Value]:
        settings: dict[str, Value] = {}
        for axis in self.axes:
            if _active(axis, settings):
                settings[axis.name] = _written(axis, configuration, spelling.get(axis.name))
        wanted, reached = configuration.settings, Configuration.of(settings).settings
        for name in {**wanted, **reached}:
            if wanted.get(name) != reached.get(name):
                raise SettingsError(f"{name} {wanted.get(name)!r} is not in the space of this study")
        return {a.name: settings[a.name] for a in self.axes if a.name in settings and not a.fixed}

    def corners(self) -> Iterator[Configuration]:
        """Yield each choice of what decides which models read which chunks, ranges by their ends."""
        kept = _ancestors(READING, {a.name: a for a in self.axes})
        ends = Space(tuple(replace(a, values=a.ends) for a in self.axes if a.name in kept))
        for settings, _ in ends._points(0, {}, 1):
            try:
                yield Configuration.of({"top_k": 1, **settings})
            except SettingsError:
                continue

    @property
    def first(self) -> Configuration:
        """The first point that can run, ranges by their ends. Raises SettingsError where there is none."""
        fault = SettingsError("space: no combination can be run")
        for settings, _ in Space(tuple(replace(a, values=a.ends) for a in self.axes))._points(0, {}, 1):
            try:
                return Configuration.of(settings)
            except SettingsError as error:
                fault = error
        raise fault

    def to_dict(self) -> dict[str, Any]:
        """Return the canonical JSON form: what is fingerprinted, stored with a study, and compared on resume."""
        return {a.name: a.to_dict() for a in self.axes}

    def _points(self, i: int, settings: dict[str, Value], copies: int) -> Iterator[tuple[dict[str, Value], int]]:
        """Yield the settings of each point (one dict, changed in place) and how many combinations mean it."""
        if i == len(self.axes):
            yield settings, copies
            return
        axis = self.axes[i]
        if not _active(axis, settings):
            yield from self._points(i + 1, settings, copies * (len(axis.values) if _holds(axis, settings) else 1))
            return
        for k in range(len(axis.values)):
            settings[axis.name] = axis.values[k]
            yield from self._points(i + 1, settings, copies)
        del settings[axis.name]


def _spellings(c: Configuration) -> Iterator[Mapping[str, Value]]:
    """Yield the ways in which a space may write a configuration."""
    yield c.settings
    stage = "first_stage" if c.algorithm == "semantic" else "algorithm"
    for weight, side in ALONE.items():
        if c.settings[stage] == side:
            for fusion in FUSIONS:  # the weight may be chosen for one alone
                yield {**c.settings, stage: "hybrid", "vector_weight": weight, "fusion": fusion}


def _written(axis: Axis, configuration: Configuration, value: Value) -> Value:
    """Return the axis's value, or the first that comes to the same in this configuration. Raises SettingsError."""
    known = known_parameter(axis.name)
    if value in axis.values:
        return value
    for other in axis.ends:
        if value is None or known.settle(known.plain(other), configuration) == value:
            return other
    raise SettingsError(f"{axis.name} {value!r} is not in the space of this study")


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Say what changed between two spaces in their `to_dict` form, one change a line; empty when nothing did."""
    lines = []
    for name in {**old, **new}:
        if name not in new:
            lines.append(f"{name}: removed from the space, was {_text(old[name])}")
        elif name not in old:
            lines.append(f"{name}: new in the space, {_text(new[name])}")
        else:
            lines += [f"{name}: {change}" for change in _changes(old[name], new[name])]
    return lines


def extends(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Tell whether the new space only adds choices to the old one, or nothing: each old point is still a point."""

    def kept(was: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
        if "choices" in was and "choices" in now:
            return was.get("when") == now.get("when") and set(was["choices"]) <= set(now["choices"])
        return was == now

    return old.keys() == new.keys() and all(kept(old[name], new[name]) for name in old)


def _changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if "choices" in old and "choices" in new:
        was, now = old["choices"], new["choices"]
        added, gone = [v for v in now if v not in was], [v for v in was if v not in now]
        if added:
            yield f"{_text(added)} added"
        if gone:
            yield f"{_text(gone)} removed"
        if not added and not gone and was != now:
            yield f"order changed from {_text(was)} to {_text(now)}"
    elif {**old, "when": None} != {**new, "when": None}:
        yield f"was {_text(old)}, is {_text(new)}"
    if old.get("when") != new.get("when"):
        yield f"condition was {_text(old.get('when', 'none'))}, is {_text(new.get('when', 'none'))}"


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return _text(value["choices"]) if "choices" in value else ", ".join(f"{n} {_text(v)}" for n, v in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _active(axis: Axis, settings: Mapping[str, Value]) -> bool:
    """Tell whether `axis` takes a value, given the settings of the axes before it."""
    return _holds(axis, settings) and _matters(axis.name, settings)


def _holds(axis: Axis, settings: Mapping[str, Value]) -> bool:
    return all(_seen(name, settings) in wanted for name, wanted in axis.when.items())


def _seen(name: str, settings: Mapping[str, Value]) -> Value:
    """Return what a condition compares: the value; where there is none, the default if it can matter, else None."""
    if name in settings:
        return settings[name]
    return known_parameter(name).default if _matters(name, settings) else None


def _matters(name: str, settings: Mapping[str, Value]) -> bool:
    return known_parameter(name).applies(Configuration.filled(settings))


def _bad_conditions(axes: Sequence[Axis], path: Path) -> list[Problem]:
    """Check that each condition names a declared parameter and values that it can take."""
    declared = {a.name: a for a in axes}
    problems: list[Problem] = []
    for axis in axes:
        for name, wanted in axis.when.items():
            place = (*path, axis.name, "when", name)
            other = declared.get(name)
            if other is None:
                problems.append((place, f"{name} is not in this space; declare it there or remove the condition"))
                continue
            default = (known_parameter(name).default,) if other.when else ()
            never = [v for v in wanted if v not in other.values and v not in default]
            if never:
                problems.append(
                    (place, f"{name} is never {_text(never)} in this space; it is {_text(other.to_dict())}")
                )
    return problems


def _ancestors(names: Iterable[str], axes: Mapping[str, Axis]) -> set[str]:
    """Return the names, and those that their conditions name, and so on."""
    found, open_ = set[str](), [*names]
    while open_:
        name = open_.pop()
        if name not in found:
            found.add(name)
            open_ += axes[name].when if name in axes else ()
    return found


def _ordered(axes: Sequence[Axis], path: Path) -> tuple[Axis, ...]:
    """Put each axis after those it depends on. Raises SpaceError where one depends on itself."""
    waiting = {a.name: a for a in axes}
    before_weight = _ancestors(("vector_weight",), waiting)  # what it is chosen by cannot wait for it
    order: list[Axis] = []

    def needs(name: str) -> list[str]:
        deciders = DECIDERS.get(name, OPTION_DECIDERS)
        named = (*waiting[name].when, *(n for n in deciders if n != "vector_weight" or name not in before_weight))
        return [n for n in named if n in waiting]

    while waiting:
        ready = next((name for name in waiting if not needs(name)), None)
        if ready is None:
            circle = [next(iter(waiting))]
            while circle.count(circle[-1]) < 2:
                circle.append(needs(circle[-1])[0])
            circle = circle[circle.index(circle[-1]) :]
            place = (*path, next(name for name in circle if waiting[name].when), "when")
            raise SpaceError([(place, f"conditions go in a circle: {' → '.join(circle)}; remove one")])
        order.append(waiting.pop(ready))
    return tuple(order)
