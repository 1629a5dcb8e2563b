"""The answer of a study as text for a terminal, and as values for programs."""

__all__ = ["answer", "answer_dict"]

from collections.abc import Iterator
from math import isfinite
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from metrics import Measure
from sweep.collection.health import health
from sweep.decide.recommendation import Line, Recommendation
from sweep.optimize.objective import describe
from sweep.optimize.outcome import Outcome
from sweep.present.results import StudyResults
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.parameters import Value

OFF: dict[str, tuple[Value, ...]] = {  # values that say that nothing is done
    "chunker": ("tokens",),
    "chunk_context": ("none",),
    "quantization": ("none",),
    "mmr_lambda": (1.0,),
    "max_per_document": (0,),
}
UNITS = {"chunk_size": "tokens", "chunk_overlap": "of chunk_size", "top_k": "chunks", "pool": "chunks reranked"}


def answer(results: StudyResults) -> RenderableType:
    """Return what `sweep run` prints: the recommendation, how sure it is, what it costs, and what to do next."""
    r = results.recommendation
    parts: list[RenderableType] = [
        Text(f"Recommended: {r.recommended.configuration.id}{_is_baseline(r, r.recommended)}", style="bold"),
        Padding(_settings(r.recommended.configuration, results), (0, 0, 0, 2)),
        Text(),
        _comparison(r),
        Text(),
        *(Text(line) for line in _sureness(r)),
        *(Text(line) for line in _searches(results)),
        Text(),
        Text(f"Runners-up, by estimated {r.measure}", style="bold"),
        _runners_up(r),
        Text("→ recommended  • may be the best at 95 %  b baseline; chunks: size/overlap"),
        Text(),
        *(Text(f"Data: {line}") for line in health(results.study.collection).warnings()),
        *(Text(line) for line in _account(results)),
        *(Text(line, no_wrap=True, overflow="ignore") for line in _next(results)),  # to be copied whole
    ]
    return Group(*parts)


def answer_dict(results: StudyResults) -> dict[str, Any]:
    """Return the answer as values that JSON knows."""
    done = results.completed
    return {
        "study": results.study.spec.study,
        **results.recommendation.to_dict(),
        "configurations": {
            "finished": len(done.outcomes), "ran_now": done.ran, "planned": done.planned,
            "invalid": dict(done.invalid), "failed": dict(done.failures),
            "truncated": max((o.truncated for o in done.outcomes), default=0.0),
            "inert": list(results.inert), "notes": list(results.notes),
            "all": {o.configuration.id: _plain(o, results) for o in done.outcomes},
        },
        "collection": health(results.study.collection).to_dict(),
        "work": dict(done.work),
        "results": str(results.study.folder),
        "next": [line.partition(":")[2].strip() for line in _next(results) if line.startswith("Next:")],
    }  # fmt: skip


def _next(results: StudyResults) -> Iterator[str]:
    study = results.study
    name = study.file.path or "STUDY"
    storage = "" if study.own_storage else f" --storage {study.url}"
    database = "study.db opens in optuna-dashboard; " if study.own_storage else ""
    yield f"Results: {study.folder}/ ({database}results/ holds the scores of each query)"
    yield f"Next:    sweep export {name}{storage} --target json -o settings/"
    if not results.completed.finished:
        yield f"         sweep run {name}{storage}        (runs what is left)"


def _is_baseline(r: Recommendation, line: Line) -> str:
    return " (the baseline)" if r.baseline and line.configuration == r.baseline.configuration else ""


def _plain(o: Outcome, results: StudyResults) -> dict[str, Any]:
    facts = describe(o, results.study.collection.judgments.answerable)
    return {name: facts[name] for name in ("settings", "scores", "costs")}


def _settings(c: Configuration, results: StudyResults) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, value in c.settings.items():
        if value not in OFF.get(name, ()):
            unit = f": {results.analyzer}" if (name, value) == ("analyzer", "auto") else f" {UNITS.get(name, '')}"
            table.add_row(name, f"{value}{unit}".strip())
    return table


def _comparison(r: Recommendation) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("", "recommended", "baseline", "difference"):
        table.add_column(column, justify="left" if not column else "right", no_wrap=True)
    a, b = r.recommended, r.baseline
    for name in a.scores:
        row = [name, f"{_score(name, a.scores[name])} {_interval(name, a)}"]
        if b:
            d = r.differences[name]
            row += [f"{_score(name, b.scores[name])} {_interval(name, b)}"]
            row += [f"{_score(name, d.mean, sign=True)} {_range(name, d.low, d.high, sign=True)}"]
        table.add_row(*row, style="bold" if name == str(r.measure) else None)
    for name, value in a.costs.items():
        row = [_label(name), _cost(name, value)]
        if b:
            row += [_cost(name, b.costs[name]), _cost(name, value - b.costs[name], sign=True)]
        table.add_row(*row)
    return table


def _sureness(r: Recommendation) -> Iterator[str]:
    s, measure = r.selection, r.measure
    if r.baseline:
        d = r.differences[str(measure)]
        yield (
            f"Ranges are 95 % intervals. Against the baseline, {measure} is better on {d.wins} queries, "
            f"equal on {d.ties}, worse on {d.losses}."
        )
    yield f"Why this one: {s.reason}."
    if s.clear:
        yield f"{r.argmax.configuration.id} alone may be the best at 95 %."
    else:
        best = r.argmax
        yield (
            f"How sure: {len(s.may_be_best)} configurations may be the best at 95 %; no clear winner. "
            f"The greatest mean is {_score(str(measure), best.scores[str(measure)])}, of {best.configuration.short} "
            f"with {best.costs['context_tokens']:,.0f} context tokens."
        )
    line, name = r.recommended, str(measure)
    low, high = line.hole_bounds[name]
    if low != high:
        yield (
            f"Holes: retrieved documents without a label count as irrelevant. Whatever their labels, {name} lies "
            f"between {_score(name, low)} and {_score(name, high)}."
        )
    yield f"Queries: {r.scored} scored."


def _searches(results: StudyResults) -> Iterator[str]:
    """Say what the recommended configuration's index and pool miss."""
    best = results.outcome("best")
    c, scored = best.configuration, results.study.collection.judgments.answerable
    if c.index not in (None, "Flat"):
        yield f"Index: {c.index} finds {best.ann_recall:.1%} of the chunks that an exact search would (ann_recall)."
    if best.pool_recall.size:
        held = best.pool_recall[scored].mean()
        yield f"Pool: {c.pool} chunks hold {held:.1%} of the relevant documents; no reranker finds more (pool_recall)."


def _runners_up(r: Recommendation) -> Table:
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    name = str(r.measure)
    for column in ("", "id", "algorithm", "chunks", "index", "top_k", name, "estimate", "holes", "tokens", "ms"):
        left = column in ("", "id", "algorithm", "index")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    for line in (r.recommended, *r.runners_up):
        c = line.configuration
        marks = "→" * (line is r.recommended) + "•" * line.may_be_best + "b" * bool(_is_baseline(r, line))
        table.add_row(
            marks,
            c.id,
            c.algorithm,
            c.retriever or str(c.chunking),
            c.index or "–",
            str(c.top_k),
            _score(name, line.scores[name]),
            _score(name, line.estimate),
            f"{line.scores['holes_ratio']:.0%}",
            f"{line.costs['context_tokens']:,.0f}",
            f"{line.costs['latency_ms']:,.0f}",
        )
    return table


def _account(results: StudyResults) -> Iterator[str]:
    done, work = results.completed, results.completed.work
    yield f"Run: {len(done.outcomes)} of {done.planned} configurations finished, {done.ran} of them now."
    for reason, count in done.invalid.items():
        yield f"     {count} combination{'s' * (count > 1)} cannot run: {reason}."
    for what, why in list(done.failures.items())[:3]:
        yield f"     failed: {what}: {why}"
    truncated = max((o.truncated for o in done.outcomes), default=0.0)
    if truncated:
        yield f"     up to {truncated:.1%} of the chunks are longer than the encoder reads (allow_truncation: true)."
    for note in results.notes:
        yield f"     {note}."
    if results.inert:
        yield f"     Inert: {', '.join(results.inert)} changed no ranking; set {_them(results.inert)} as is cheapest."
    if work:
        yield f"     texts {work['texts']:,} / distinct {work['distinct']:,} / embedded now {work['embedded']:,}"
        yield (
            f"     pairs reranked {work['pairs']:,} / scored now {work['pairs_scored']:,}, "
            f"reading {work['passages_read']:,} passages"
        )
        yield f"     indexes built now {work['indexes_built']}, searches run now {work['searches_run']}"


def _them(names: tuple[str, ...]) -> str:
    return "it" if len(names) == 1 else "them"


def _score(name: str, value: float, sign: bool = False) -> str:
    digits = 1 if Measure.parse(name).name == "xdcg" else 3
    return f"{value:{'+' if sign else ''}.{digits}f}" if isfinite(value) else "–"


def _range(name: str, low: float, high: float, sign: bool = False) -> str:
    return f"{_score(name, low, sign)}…{_score(name, high, sign)}" if isfinite(low) else "unknown"


def _interval(name: str, line: Line) -> str:
    return _range(name, *line.intervals[name])


def _label(name: str) -> str:
    return {"context_tokens": "context tokens", "index_bytes": "index size", "rerank_pairs": "pairs reranked"}.get(
        name, "latency"
    )


def _cost(name: str, value: float, sign: bool = False) -> str:
    plus = "+" if sign else ""
    if name == "index_bytes":
        return f"{value / 1e6:{plus},.1f} MB"
    return f"{value:{plus},.0f} ms" if name == "latency_ms" else f"{value:{plus},.0f}"
