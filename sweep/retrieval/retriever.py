"""A person's own search, swept like ours: a Python function or an HTTP endpoint, called once a query.

    search(query, top_k, parameters) → (ids, scores) or (ids, scores, texts)
    POST {"query": …, "top_k": …, "parameters": {…}} → {"ids": […], "scores": […], "texts": […]}

ids name documents of the collection, and one may come again for each of its passages; the greatest score is first.
texts, where given, are the passages handed over, by which context tokens are counted. A call that fails, or gives what
cannot be read, is a failed query with its reason, never an empty result.
"""

__all__ = ["CallFailedError", "Found", "Retriever", "RetrieverSpec", "make_retriever"]

import hashlib
import importlib
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from sweep.artifacts import fingerprint
from sweep.errors import ModelError
from sweep.retrieval.http import Client, RequestFailedError
from sweep.retrieval.parameters import Value

Search = Callable[[str, int, dict[str, Value]], Any]


class RetrieverSpec(BaseModel):
    """One entry of a study's `retrievers`: a function or an endpoint.

    function: MODULE:NAME, or FILE.py:NAME relative to the study file. endpoint: a URL. headers_env: header → the
    environment variable that holds its value. timeout: seconds of one call. parallel: calls under way at once.
    version: say another one when what it returns has changed; stored results then count no more.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    function: str | None = Field(default=None, pattern=r"^[^:]+:[A-Za-z_]\w*$")
    endpoint: str | None = Field(default=None, pattern=r"^https?://")
    headers_env: Mapping[str, str] = Field(default_factory=dict)
    timeout: float = Field(default=30.0, gt=0)
    parallel: int = Field(default=1, ge=1, le=64)
    version: str = ""

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.function is None) == (self.endpoint is None):
            raise ValueError("give either function: FILE.py:NAME, or endpoint: URL")
        return self


class CallFailedError(Exception):
    """One query was not answered; the text says why."""


class Found(NamedTuple):
    """The answer to one query: document ids, their scores, and the passages handed over, or None."""

    ids: list[str]
    scores: list[float]
    texts: list[str] | None


@dataclass(frozen=True)
class Retriever:
    """A retriever by the name that the study gives it."""

    name: str
    spec: RetrieverSpec
    folder: Path

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the function's file or the endpoint, and the stated version."""
        if self.spec.endpoint:
            return fingerprint("endpoint", self.spec.endpoint, self.spec.version)
        source = Path(str(self._module.__file__)).read_bytes() if getattr(self._module, "__file__", None) else b""
        return fingerprint("function", self.spec.function, hashlib.sha256(source).hexdigest(), self.spec.version)

    def find(self, query: str, top_k: int, parameters: Mapping[str, Value]) -> Found:
        """Return what the retriever finds for one query.

        Raises CallFailedError, and ModelError where no query could be answered: no such function, no key.
        """
        try:
            answer = self._search(query, top_k, dict(parameters))
        except (CallFailedError, ModelError):
            raise
        except Exception as fault:
            raise CallFailedError(f"{type(fault).__name__}: {fault}") from fault
        return _read(answer)

    @cached_property
    def _search(self) -> Search:
        if self.spec.endpoint is None:
            return self._function
        client = Client(self.spec.endpoint, self.spec.headers_env, timeout=self.spec.timeout)

        def search(query: str, top_k: int, parameters: dict[str, Value]) -> Any:
            try:
                return client.post({"query": query, "top_k": top_k, "parameters": parameters})
            except RequestFailedError as fault:
                raise CallFailedError(str(fault)) from None

        return search

    @cached_property
    def _module(self) -> Any:
        place = str(self.spec.function).partition(":")[0]
        try:
            if not place.endswith(".py"):
                return importlib.import_module(place)
            path = self.folder / place
            spec = importlib.util.spec_from_file_location(f"sweep_retriever_{path.stem}", path)
            if spec is None or spec.loader is None or not path.is_file():
                raise FileNotFoundError(f"no such file: {path}")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
        except Exception as fault:
            raise ModelError(
                f"retrievers.{self.name}: {place} cannot be imported: {type(fault).__name__}: {fault}"
            ) from fault

    @cached_property
    def _function(self) -> Search:
        name = str(self.spec.function).partition(":")[2]
        found = getattr(self._module, name, None)
        if not callable(found):
            raise ModelError(f"retrievers.{self.name}: {self.spec.function} names no function")
        return found  # type: ignore[no-any-return]


def make_retriever(name: str, declared: Mapping[str, RetrieverSpec], folder: Path) -> Retriever:
    """Return the retriever of a name, its function imported. Raises ModelError where that cannot be done."""
    retriever = Retriever(name, declared[name], folder)
    retriever.fingerprint  # noqa: B018 - imported at the start, not at the first query
    return retriever


def _read(answer: Any) -> Found:
    """Check one answer. Raises CallFailedError."""
    if isinstance(answer, Mapping):
        missing = [key for key in ("ids", "scores") if key not in answer]
        if missing:
            raise CallFailedError(f"the answer has no {' and no '.join(missing)}, it has {', '.join(map(str, answer))}")
        answer = (answer["ids"], answer["scores"], answer.get("texts"))
    if not isinstance(answer, Sequence) or isinstance(answer, str) or not 2 <= len(answer) <= 3:
        raise CallFailedError(f"the answer is a {type(answer).__name__}, not (ids, scores) or (ids, scores, texts)")
    ids, scores, texts = (*answer, None)[:3]
    columns = [list(column) for column in (ids, scores, texts) if column is not None]
    if len({len(column) for column in columns}) > 1:
        raise CallFailedError(f"ids, scores and texts differ in number: {', '.join(str(len(c)) for c in columns)}")
    return Found(
        [_id(v) for v in columns[0]], [_score(v) for v in columns[1]], columns[2] if len(columns) > 2 else None
    )


def _id(value: Any) -> str:
    if isinstance(value, str) and value.strip():
        return value
    if hasattr(value, "__index__") and not isinstance(value, bool):
        return str(int(value))
    raise CallFailedError(f"an id is text or a whole number, got {value!r}")


def _score(value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, str | bool) or not math.isfinite(number):
        raise CallFailedError(f"a score is a finite number, got {value!r}")
    return number
