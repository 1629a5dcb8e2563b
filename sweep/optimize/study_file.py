"""The study file, read: YAML 1.2, TOML or JSON → StudyFile. All that is wrong is said at once, with place and cure."""

__all__ = ["StudyFile", "StudySpec", "degenerate", "load_study", "make_study", "schema"]

import json
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from sweep.errors import StudyFileError
from sweep.optimize import axis
from sweep.optimize.study_spec import StudySpec, degenerate, schema
from sweep.retrieval.parameters import PARAMETERS

Lines = dict[axis.Path, int]  # a place in the file → its line, counted from 1; empty where lines are not known


@dataclass(frozen=True, slots=True)
class StudyFile:
    """A study, the file that it was read from (None when made in Python), and the folder its paths are relative to."""

    spec: StudySpec
    folder: Path
    path: Path | None = None


def load_study(path: str | Path) -> StudyFile:
    """Read a .yaml, .yml, .toml or .json study file. Raises StudyFileError, one line a problem, with line numbers."""
    path = Path(path)
    read = _READERS.get(path.suffix.lower())
    if read is None and not path.is_dir():
        raise StudyFileError(f"{path}: a study file ends in {', '.join(_READERS)}; got {path.suffix!r}")
    text = _text(path)
    if read is None or not text.strip():
        raise StudyFileError(f"{path}: the file is empty; a study needs at least collection: {{path: FOLDER}}")
    try:
        values, lines = read(text)
    except _UnreadableError as error:
        raise _error(path, error.problems, error.lines) from None
    except RecursionError:
        raise StudyFileError(f"{path}: a value contains itself, or is nested too deeply") from None
    if not isinstance(values, dict):
        kind = "nothing but comments" if values is None else f"a {type(values).__name__}"
        raise StudyFileError(f"{path}: must be a mapping with collection, space and so on; got {kind}")
    try:
        spec = StudySpec.model_validate({"study": path.stem, **values})
    except ValidationError as error:
        raise _error(path, _problems(error), lines) from None
    return StudyFile(spec, path.parent, path)


def make_study(mapping: Mapping[str, Any], folder: str | Path = ".") -> StudyFile:
    """Check a study written in Python, in the form of the file. Raises StudyFileError, one line a problem."""
    try:
        return StudyFile(StudySpec.model_validate(dict(mapping)), Path(folder))
    except ValidationError as error:
        raise _error(None, _problems(error), {}) from None


class _UnreadableError(Exception):
    """The text is not YAML, TOML or JSON."""

    def __init__(self, problems: Sequence[axis.Problem], lines: Lines) -> None:
        super().__init__(problems)
        self.problems, self.lines = problems, lines


def _error(path: Path | None, problems: Sequence[axis.Problem], lines: Lines) -> StudyFileError:
    """Write each problem as file:line: place: text, in the order of the file."""
    numbered = []
    for place, text in problems:
        known = place
        while known and known not in lines:
            known = known[:-1]
        numbered.append((lines.get(known, 0), f"{axis.joined(place)}: {text}" if place else text))
    numbered.sort(key=lambda pair: pair[0])
    file = "" if path is None else f"{path}:"
    found = [(f"{file}{line}: " if line else f"{file} ".lstrip()) + text for line, text in numbered]
    return StudyFileError(axis.listed(found, f"{file} ".lstrip()))


def _problems(error: ValidationError) -> list[axis.Problem]:
    found: list[axis.Problem] = []
    for detail in error.errors():
        inner = detail.get("ctx", {}).get("problems")
        if detail["type"] == "invalid_key":
            found.append((detail["loc"][:-1], f"key {detail['input']!r} is not text; put it in quotes or remove it"))
        elif inner is None:
            found.append((detail["loc"], _explain(detail)))
        else:
            found += [((*detail["loc"], *place), text) for place, text in inner]
    return found


def _explain(detail: ErrorDetails) -> str:
    """Turn one of pydantic's errors into what is wrong, what is allowed, and what was got."""
    kind, place = detail["type"], detail["loc"]
    if kind == "extra_forbidden":
        if len(place) == 1 and place[0] in PARAMETERS:
            return f"belongs under space, as space: {{{place[0]}: …}}"
        return axis.unknown("key", place[-1], _keys(place[:-1]))
    if kind == "missing":
        return "is required and missing" + ("; say where the data is, as {path: FOLDER}" * (place == ("collection",)))
    if kind == "string_pattern_mismatch" and place == ("study",):
        cure = "; where the file's name is not such a name, add study: NAME"
        return f"must be letters, digits and . _ - (a letter or digit first), got {detail['input']!r}{cure}"
    if kind == "value_error":
        return detail["msg"].removeprefix("Value error, ")
    text = detail["msg"].replace("Input should be", "must be").replace("valid tuple", "list")
    text = re.sub("a valid dictionary or instance of .*", "a mapping", text)
    return f"{text}, got {detail['input']!r}"


def _keys(place: axis.Path) -> list[str]:
    """Return the keys allowed at a place of the study file."""
    model: type[BaseModel] = StudySpec
    for key in place:
        model = model.model_fields[str(key)].annotation  # type: ignore[assignment]
    return list(model.model_fields)


def _text(path: Path) -> str:
    if path.is_dir():
        raise StudyFileError(f"{path}: is a folder; give the study file itself, as {path / 'study.yaml'}")
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise StudyFileError(f"{path}: no such file; the README explains a study file line by line") from None
    except OSError as error:
        raise StudyFileError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise StudyFileError(
            f"{path}:{line}: is not UTF-8 text (byte 0x{raw[error.start]:02x}); save it as UTF-8"
        ) from None
    if strange := re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", text):
        line = text.count("\n", 0, strange.start()) + 1
        raise StudyFileError(f"{path}:{line}: holds the control character {strange[0]!r}; give a text file")
    return text


_CURES = {  # what the YAML reader says → what to do
    "'\\t'": "; indent with spaces, not with tabs",
    "another document": "; a study file holds one, so remove the line ---",
    "mapping values": "; put text that holds a colon in quotes",
    "for the tag": "; remove the !tag",
}


def _read_yaml(text: str) -> tuple[Any, Lines]:
    lines: Lines = {(): 1}
    twice: list[axis.Problem] = []

    def walk(node: Node, place: axis.Path) -> None:
        """Note the line of each key and list item, and keys that are there twice."""
        for i, item in enumerate(node.value if isinstance(node, SequenceNode) else ()):
            lines[*place, i] = item.start_mark.line + 1
            walk(item, (*place, i))
        for key, value in node.value if isinstance(node, MappingNode) else ():
            inner = (*place, str(key.value))
            line = key.start_mark.line + 1
            if inner in lines:
                twice.append((inner, f"is there twice, on lines {lines[inner]} and {line}; remove one"))
            lines[inner] = line
            walk(value, inner)

    try:
        root = YAML(pure=True).compose(text)
        if root is not None:
            walk(root, ())
        if not twice:
            return YAML(typ="safe", pure=True).load(text), lines
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        cure = next((c for symptom, c in _CURES.items() if symptom in str(error.problem)), "")
        raise _UnreadableError([((), f"{error.problem}{cure}")], {(): mark.line + 1 if mark else 0}) from None
    except (YAMLError, ValueError) as error:
        raise _UnreadableError([((), " ".join(str(error).split()))], {}) from None
    raise _UnreadableError(twice, lines)


def _read_toml(text: str) -> tuple[Any, Lines]:
    try:
        return tomllib.loads(text), {}
    except tomllib.TOMLDecodeError as error:
        line = re.search(r" \(at line (\d+), column \d+\)", str(error))
        plain = str(error).replace(line[0], "") if line else str(error)
        raise _UnreadableError([((), plain)], {(): int(line[1]) if line else 0}) from None


def _read_json(text: str) -> tuple[Any, Lines]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if twice := [key for key in keys if keys.count(key) > 1]:
            raise _UnreadableError([((), f"key {twice[0]!r} is there twice; remove one")], {})
        return dict(pairs)

    try:
        return json.loads(text, object_pairs_hook=once), {}
    except json.JSONDecodeError as error:
        raise _UnreadableError([((), error.msg)], {(): error.lineno}) from None


_READERS: dict[str, Callable[[str], tuple[Any, Lines]]] = {
    ".yaml": _read_yaml,
    ".yml": _read_yaml,
    ".toml": _read_toml,
    ".json": _read_json,
}
