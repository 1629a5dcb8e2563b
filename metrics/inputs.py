"""Judgments and rankings in the forms in which people have them: dictionaries, pandas frames, files."""

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from metrics.files import better, read_qrels, read_run
from metrics.judgments import Judgments, LabelScale, check_text
from metrics.lookup import Run
from metrics.rankings import Rankings

if TYPE_CHECKING:
    import pandas as pd

Qrels: TypeAlias = "Judgments | Mapping[str, Mapping[str, int]] | pd.DataFrame | str | PathLike[str]"
Results: TypeAlias = "Rankings | Run | pd.DataFrame | str | PathLike[str]"

_DOCUMENT, _LABEL, _SCORE = ("document_id", "doc_id"), ("label", "relevance"), ("score",)


def judgments_of(source: Qrels, scale: LabelScale | None = None, *, relevant_from: int | None = None) -> Judgments:
    """Make judgments from {query id: {document id: label}}, a frame, or the path of a file.

    A frame has the columns query_id, document_id (or doc_id) and label (or relevance), the ids as text. A file is as
    `files.read_qrels` reads it. scale, relevant_from: as in `Judgments.from_dict`.
    Raises ValueError as `Judgments.from_dict` and `read_qrels`, and for a frame without these columns or with a pair
    that has two labels; TypeError for anything else.
    """
    if isinstance(source, Judgments):
        return source
    if isinstance(source, str | PathLike):
        return Judgments.from_dict(read_qrels(Path(source), scale).by_query, scale, relevant_from=relevant_from)
    if _is_frame(source):
        qrels: dict[str, dict[str, Any]] = {}
        for query, document, label in _columns(source, _LABEL):
            if qrels.setdefault(query, {}).setdefault(document, label) != label:
                both = f"{qrels[query][document]} and {label}"
                raise ValueError(f"query {query!r}, document {document!r}: judged twice, with labels {both}; keep one")
        source = qrels
    if not isinstance(source, Mapping):
        raise TypeError(f"judgments must be Judgments, a dictionary, a frame or a path, got {type(source).__name__}")
    return Judgments.from_dict(source, scale, relevant_from=relevant_from)


def results_of(source: Results) -> Rankings | Run:
    """Return rankings as they are, and anything else as {query id: {document id: score}}.

    A frame has the columns query_id, document_id (or doc_id) and score, the ids as text. A file is as `files.read_run`
    reads it. A document that comes again keeps its best score. Raises ValueError as `read_run` and for a frame without
    these columns; TypeError for anything else.
    """
    if isinstance(source, str | PathLike):
        return read_run(Path(source)).by_query
    if _is_frame(source):
        run: dict[str, dict[str, float]] = {}
        for query, document, score in _columns(source, _SCORE):
            scores = run.setdefault(query, {})
            scores[document] = better(score, scores[document]) if document in scores else score
        return run
    if not isinstance(source, Rankings | Mapping):
        raise TypeError(f"rankings must be Rankings, a dictionary, a frame or a path, got {type(source).__name__}")
    return source


def _is_frame(source: object) -> bool:
    return hasattr(source, "columns") and hasattr(source, "to_numpy")  # without importing pandas


def _columns(frame: Any, value: tuple[str, ...]) -> Iterable[tuple[str, str, Any]]:
    found = []
    for names in (("query_id",), _DOCUMENT, value):
        name = next((name for name in names if name in frame.columns), None)
        if name is None:
            there = ", ".join(map(repr, frame.columns))
            raise ValueError(f"the frame has no column {' or '.join(map(repr, names))}; it has {there}; rename one")
        found.append(frame[name].tolist())
    queries, documents, values = found
    try:
        check_text(queries, "query")
        check_text(documents, "document")
    except ValueError as error:
        raise ValueError(f"{error}; read the column as text (dtype=str)") from None
    return zip(queries, documents, values, strict=True)
