"""One parameter of a study's space: its values and when they apply; read from the study file, checked, written back."""

__all__ = [
    "Axis",
    "Path",
    "Problem",
    "Range",
    "SpaceError",
    "exact",
    "joined",
    "listed",
    "parse_axis",
    "parse_value",
    "unknown",
]

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from sweep.errors import SettingsError, StudyFileError, nearest
from sweep.retrieval.parameters import PARAMETERS, Value, known_parameter

if TYPE_CHECKING:
    import optuna

Path = tuple[str | int, ...]  # where in a study file: keys, and places in a list
Problem = tuple[Path, str]

MOST_STEPS = 2**53  # a storage keeps numbers as float64
KEYS = ("choices", "low", "high", "step", "log", "when")


def joined(path: Path) -> str:
    """Write a path as people do: ("space", "top_k", 2) is "space.top_k[2]"."""
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in path).removeprefix(".")


def listed(lines: Sequence[str], where: str = "") -> str:
    """Put one problem a line; say first how many there are when there is more than one."""
    return "\n".join(lines if len(lines) == 1 else [f"{where}{len(lines)} problems", *lines])


def unknown(what: str, name: object, allowed: Iterable[str]) -> str:
    """Say that a name is unknown, which one was perhaps meant, and what is allowed."""
    names = list(allowed)
    near = nearest(str(name), names)
    return f"unknown {what}{near or '.'} Allowed: {', '.join(names)}"


class SpaceError(StudyFileError):
    """The space says what is not allowed; `problems` holds each place and what is wrong there."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__(listed([f"{joined(path)}: {text}" for path, text in problems]))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Range:
    """All numbers from `low` to `high`, both reached; a step of None means every real number between them."""

    low: float
    high: float
    step: float | None = None
    log: bool = False

    def __len__(self) -> int:
        """Count the values; raises TypeError for a continuous range."""
        if self.step is None:
            raise TypeError("a continuous range has no length")
        return int((exact(self.high) - exact(self.low)) / exact(self.step)) + 1

    def __getitem__(self, i: int) -> float:
        """Return value number `i`, exact in decimal: 0.1 + 2 · 0.1 is 0.3."""
        value = exact(self.low) + i * exact(self.step or 0)
        return int(value) if isinstance(self.low, int) else float(value)

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.low <= value <= self.high and self.snap(value) == value

    def snap(self, value: float) -> float:
        """Return the value of this range that is next to `value`."""
        return value if self.step is None else self[round((value - self.low) / self.step)]


@dataclass(frozen=True, slots=True)
class Axis:
    """A parameter, its values in the user's order, and what other parameters must be for it to apply.

    One value means fixed. `when` gives for each parameter that it names the values under which this axis is active.
    """

    name: str
    values: tuple[Value, ...] | Range
    when: Mapping[str, tuple[Value, ...]] = field(default_factory=dict, hash=False)

    @property
    def fixed(self) -> bool:
        """True when there is nothing to choose."""
        return isinstance(self.values, tuple) and len(self.values) == 1

    @property
    def ends(self) -> tuple[Value, ...]:
        """The listed values, or both ends of a range."""
        return (self.values.low, self.values.high) if isinstance(self.values, Range) else self.values

    @property
    def continuous(self) -> bool:
        """True when the values cannot be listed."""
        return isinstance(self.values, Range) and self.values.step is None

    def suggest(self, trial: "optuna.Trial") -> Value:
        """Let the trial choose; a fixed value is not its business."""
        v = self.values
        if not isinstance(v, Range):
            return v[0] if self.fixed else trial.suggest_categorical(self.name, v)
        if isinstance(v.low, int):
            return trial.suggest_int(self.name, v.low, int(v.high), step=int(v.step or 1), log=v.log)
        return v.snap(trial.suggest_float(self.name, v.low, v.high, step=v.step, log=v.log))

    def to_dict(self) -> dict[str, Any]:
        """Return the one form that this axis has in JSON."""
        form: dict[str, Any] = {}
        if isinstance(self.values, Range):
            form = {n: getattr(self.values, n) for n in ("low", "high", "step", "log")}
            form = {n: v for n, v in form.items() if v is not None and v is not False}
        else:
            form["choices"] = list(self.values)
        return form | ({"when": {n: list(v) for n, v in sorted(self.when.items())}} if self.when else {})


def parse_axis(name: str, raw: Any, path: Path) -> Axis:
    """Read a list, a range, choices with a condition, or one value. Raises SpaceError."""
    _known(name, path)
    if not isinstance(raw, Mapping):
        return Axis(name, _one_or_more(name, raw, path))
    for key in raw:
        if key not in KEYS:
            raise SpaceError([((*path, str(key)), unknown("key", key, KEYS))])
    if ("choices" in raw) == bool(raw.keys() & {"low", "high", "step", "log"}):
        raise SpaceError([(path, "write either choices: [...], or low and high with step or log")])
    when = _when(raw["when"], (*path, "when")) if "when" in raw else {}
    if "choices" in raw:
        return Axis(name, _values(name, raw["choices"], (*path, "choices")), when)
    return Axis(name, _range(name, raw, path), when)


def exact(number: float) -> Decimal:
    """Return the decimal number that is written, not its nearest binary one."""
    return Decimal(repr(number))


def _known(name: object, path: Path) -> None:
    try:
        known_parameter(str(name))
    except SettingsError:
        raise SpaceError([(path, unknown("key", name, PARAMETERS))]) from None


def parse_value(name: str, raw: Any, path: Path) -> Any:
    """Return `raw` in the parameter's own type. Raises SpaceError."""
    parameter = known_parameter(name)
    if not isinstance(raw, str | int | float):
        got = "nothing" if raw is None else f"a {type(raw).__name__}"
        raise SpaceError([(path, f"a value is text, a number, true or false; got {got}. Allowed: {parameter.allowed}")])
    try:
        parameter.check(name, raw)
    except SettingsError as error:
        raise SpaceError([(path, str(error).removeprefix(f"{name}: "))]) from None
    except (OverflowError, ValueError):  # infinite, not a number, or beyond what the type holds
        raise SpaceError([(path, f"{raw!r} is not allowed; allowed: {parameter.allowed}")]) from None
    return parameter.plain(raw)


def _values(name: str, raw: Any, path: Path) -> tuple[Value, ...]:
    """Read a list of distinct values; every bad one is reported."""
    if not isinstance(raw, list | tuple) or not raw:
        raise SpaceError([(path, f"must be a list of at least one value, got {raw!r}")])
    found: list[Value] = []
    problems: list[Problem] = []
    for i, item in enumerate(raw):
        try:
            value = parse_value(name, item, (*path, i))
        except SpaceError as error:
            problems += error.problems
            continue
        if value in found:
            problems.append(((*path, i), f"{item!r} is there twice; remove one"))
        found.append(value)
    if "auto" in found[1:] or (found[1:] and found[0] == "auto"):
        problems.append((path, "auto stands for one of the others; list those, or auto alone"))
    if problems:
        raise SpaceError(problems)
    return tuple(found)


def _one_or_more(name: str, raw: Any, path: Path) -> tuple[Value, ...]:
    return _values(name, raw, path) if isinstance(raw, list | tuple) else (parse_value(name, raw, path),)


def _range(name: str, raw: Mapping[str, Any], path: Path) -> Range:
    """Read low, high and step or log; the last step must reach high."""
    cast, log = known_parameter(name).cast, raw.get("log", False)
    if cast in (str, None):
        raise SpaceError([(path, "a range is made of numbers; list the values: [...]")])
    for key in ("low", "high"):
        if key not in raw:
            raise SpaceError([(path, f"a range needs low and high; {key} is missing")])
    low, high = (parse_value(name, raw[key], (*path, key)) for key in ("low", "high"))
    if low >= high:
        raise SpaceError([(path, f"low {low} is not below high {high}; for one value write {name}: {low}")])
    if not isinstance(log, bool):
        raise SpaceError([((*path, "log"), f"must be true or false, got {log!r}")])
    if log and "step" in raw:
        raise SpaceError([((*path, "step"), "step and log exclude each other; remove one")])
    if log and low <= 0:
        raise SpaceError([((*path, "low"), f"a log range starts above 0, got {low}")])
    step = _step(raw["step"], low, high, (*path, "step")) if "step" in raw else 1 if cast is int else None
    if step is not None and exact(high) - exact(low) >= MOST_STEPS * exact(step):
        raise SpaceError([(path, f"{low} to {high} in steps of {step} is too many values to count; take larger steps")])
    return Range(low, high, step, log)


def _step(raw: Any, low: float, high: float, path: Path) -> float:
    whole = isinstance(low, int)
    number = isinstance(raw, int | float) and not isinstance(raw, bool) and 0 < raw < float("inf")
    if not number or (whole and raw != int(raw)):
        allowed = "a whole number from 1" if whole else "a number above 0"
        raise SpaceError([(path, f"{raw!r} is not allowed; allowed: {allowed}")])
    step = int(raw) if whole else float(raw)
    last = Range(low, high, step)[int((exact(high) - exact(low)) / exact(step))]
    if last != high:
        divides = f"high: {last}, or a step that divides {exact(high) - exact(low)}"
        cure = divides if last > low else f"the values as a list: [{low}, {high}]"
        text = f"{low} to {high} in steps of {step} ends at {last} and {high} is never tried"
        raise SpaceError([(path, f"{text}; write {cure}")])
    return step


def _when(raw: Any, path: Path) -> dict[str, tuple[Value, ...]]:
    """Read a condition: parameter → the value, or list of values, under which the axis is active."""
    if not isinstance(raw, Mapping) or not raw:
        example = "{algorithm: [vector, hybrid]}"
        raise SpaceError([(path, f"must name a parameter and its values, as {example}; got {raw!r}")])
    read: dict[str, tuple[Value, ...]] = {}
    for name, wanted in raw.items():
        _known(name, (*path, str(name)))
        read[name] = _one_or_more(name, wanted, (*path, name))
    return read
