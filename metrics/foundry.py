"""Rows in, result rows out: the shape of Microsoft Foundry's document_retrieval evaluator.

A row holds `retrieval_ground_truth`, a list of {document_id, query_relevance_label}, and `retrieved_documents`, a list
of {document_id, relevance_score}. The figures are those of azure-ai-evaluation 1.18.10's DocumentRetrievalEvaluator,
bit for bit on any label scale within 0…9, with the deliberate differences below. Each has its test of that name in
tests/test_metrics_foundry.py.

| case                      | published evaluator          | here                      | test                          |
|---------------------------|------------------------------|---------------------------|-------------------------------|
| labels of 10 and more     | fidelity takes wrong weights | the weight of each label  | test_labels_from_10           |
| minimum below 0           | fidelity above 1, or NaN     | the scaled convention     | test_minimum_below_0          |
| all labels at the minimum | fidelity NaN                 | fidelity 0                | test_all_at_minimum           |
| document retrieved twice  | last score; two in totals    | best score; one in totals | test_retrieved_twice          |
| document judged twice     | last label; two in totals    | one, or error on conflict | test_judged_twice             |
| equal scores              | order of the input           | ascending document id     | test_equal_scores             |
| NaN or infinite score     | by order of the input        | after every finite score  | test_not_finite               |
| score precision           | float64                      | float32                   | test_float32                  |
| NumPy numbers, 3.0        | refused                      | accepted                  | test_number_types             |
| True as label or score    | crash, or taken as 1         | refused                   | test_true_is_no_number        |
| top relevance threshold   | 50, with labels up to 4      | middle of the label scale | test_default_thresholds       |
| nothing retrieved         | holes pass                   | every metric fails        | test_nothing_retrieved        |
| pass or fail of totals    | threshold 50                 | none                      | test_totals_are_not_judged    |
| over 10,000 documents     | refused                      | accepted                  | test_large_row                |
| row without ground truth  | refused                      | counted and named         | test_row_without_ground_truth |
| no relevant document      | 0 in the mean                | left out, counted, named  | test_row_without_relevant     |
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Any

import numpy as np

from metrics.documents import Convention
from metrics.evaluate import evaluate
from metrics.judgments import Judgments, LabelScale, check_label
from metrics.measures import Measure
from metrics.rankings import from_columns

METRICS = ("ndcg@3", "xdcg@3", "fidelity", "top1_relevance", "top3_max_relevance", "holes", "holes_ratio")
TOTALS = ("total_retrieved_documents", "total_ground_truth_documents")
_COUNTED = frozenset({"top1_relevance", "top3_max_relevance", "holes"})
_BATCH = 1000

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowResult:
    """The results of one row: `row` counts from 1; `left_out` says why the row does not count in means, or is None.

    results: dictionaries with type, name, metric, score, and but for totals label, passed, threshold; empty for a row
    without ground truth.
    """

    row: int
    results: tuple[dict[str, Any], ...]
    left_out: str | None = None


@dataclass(slots=True)
class Aggregate:
    """Running means and pass rates over rows; `add` takes each result of `score_rows`."""

    rows: int = 0
    left_out: dict[str, list[int]] = field(default_factory=dict)
    _sums: dict[str, float] = field(default_factory=dict, repr=False)
    _passed: dict[str, int] = field(default_factory=dict, repr=False)

    def add(self, result: RowResult) -> None:
        """Count one row; a row that is left out is listed by its number under the reason."""
        if result.left_out is not None:
            self.left_out.setdefault(result.left_out, []).append(result.row)
            return
        self.rows += 1
        for entry in result.results:
            metric = entry["metric"]
            self._sums[metric] = self._sums.get(metric, 0.0) + entry["score"]
            if "passed" in entry:
                self._passed[metric] = self._passed.get(metric, 0) + entry["passed"]

    @property
    def means(self) -> dict[str, float]:
        """Mean score of each metric over the rows that count; empty without any."""
        return {metric: total / self.rows for metric, total in self._sums.items()}

    @property
    def pass_rates(self) -> dict[str, float]:
        """Share of the rows that count which pass, for each metric that has a threshold; empty without any."""
        return {metric: passed / self.rows for metric, passed in self._passed.items()}


def document_retrieval(
    retrieval_ground_truth: list[dict[str, Any]],
    retrieved_documents: list[dict[str, Any]],
    *,
    label_min: int = 0,
    label_max: int = 4,
    thresholds: Mapping[str, float] | None = None,
    convention: Convention = "foundry",
) -> list[dict[str, Any]]:
    """Score one query's results and return one dictionary a metric, in the order of METRICS, then TOTALS.

    thresholds: a metric's score passes at its threshold or above, holes and holes_ratio at it or below. Defaults:
    ndcg@3 .5, xdcg@3 50, fidelity .5, top relevances the middle of the label scale, holes and holes_ratio 0.
    Raises ValueError as `score_rows`, and for an empty ground truth.
    """
    row = {"retrieval_ground_truth": retrieval_ground_truth, "retrieved_documents": retrieved_documents}
    scored = score_rows([row], label_min=label_min, label_max=label_max, thresholds=thresholds, convention=convention)
    result = next(scored)
    if not result.results:
        raise ValueError("retrieval_ground_truth is empty; give at least one judged document")
    return list(result.results)


def score_rows(
    rows: Iterable[Row],
    *,
    label_min: int = 0,
    label_max: int = 4,
    thresholds: Mapping[str, float] | None = None,
    convention: Convention = "foundry",
) -> Iterator[RowResult]:
    """Score each row as `document_retrieval` does, in order; at most a thousand rows are held at a time.

    A row without ground truth has no results. Raises ValueError, at once for an unknown or non-numeric threshold or a
    bad label scale, and while iterating, naming row and document, for a missing field, an id that is not text, a label
    that is not whole, outside the scale or in conflict with another, and a score that is not a number.
    """
    scale = LabelScale(check_label(label_min), check_label(label_max))
    limits = _thresholds(thresholds or {}, scale)
    return _score(iter(rows), scale, limits, convention)


def _score(
    rows: Iterator[Row], scale: LabelScale, limits: dict[str, float], convention: Convention
) -> Iterator[RowResult]:
    start = 1
    while batch := list(islice(rows, _BATCH)):
        yield from _score_batch(batch, start, scale, limits, convention)
        start += len(batch)


def _score_batch(
    batch: list[Row], start: int, scale: LabelScale, limits: dict[str, float], convention: Convention
) -> Iterator[RowResult]:
    names = [f"row {start + at}" for at in range(len(batch))]
    judged = _columns(batch, names, "retrieval_ground_truth", "query_relevance_label")
    retrieved = _columns(batch, names, "retrieved_documents", "relevance_score")
    documents = sorted({*judged[1], *retrieved[1]})
    code_of = {document: code for code, document in enumerate(documents)}

    def codes(ids: list[str]) -> list[int]:
        return [code_of[document] for document in ids]

    judgments = Judgments.from_arrays(names, documents, judged[0], codes(judged[1]), judged[2], scale)
    rankings = from_columns(len(batch), retrieved[0], codes(retrieved[1]), retrieved[2])
    scores = evaluate(judgments, rankings, METRICS, convention=convention)
    columns = {metric: scores.values[Measure.parse(metric)].tolist() for metric in METRICS}
    totals = zip(rankings.counts.tolist(), np.diff(judgments.indptr).tolist(), strict=True)
    for at, (found, truth) in enumerate(totals):
        if not truth:
            yield RowResult(start + at, (), "no ground truth")
            continue
        entries = [_entry(metric, columns[metric][at], limits[metric], found > 0) for metric in METRICS]
        entries += [
            {**_HEAD, "metric": name, "score": total} for name, total in zip(TOTALS, (found, truth), strict=True)
        ]
        yield RowResult(start + at, tuple(entries), None if scores.scored[at] else "no relevant document")


_HEAD = {"type": "azure_ai_evaluator", "name": "Document Retrieval"}


def _entry(metric: str, score: float, threshold: float, retrieved: bool) -> dict[str, Any]:
    within = score >= threshold if Measure.parse(metric).higher_is_better else score <= threshold
    passed = within and retrieved
    return {
        **_HEAD,
        "metric": metric,
        "score": int(score) if metric in _COUNTED else score,
        "label": "pass" if passed else "fail",
        "passed": passed,
        "threshold": threshold,
    }


def _columns(batch: list[Row], names: list[str], key: str, value_key: str) -> tuple[list[int], list[str], list[float]]:
    """Read one list of every row as three columns: row, document id, label or score."""
    rows: list[int] = []
    ids: list[str] = []
    values: list[float] = []
    for at, (name, row) in enumerate(zip(names, batch, strict=True)):
        for document in _list(row, key, name):
            if not isinstance(document, Mapping) or not {"document_id", value_key} <= document.keys():
                raise ValueError(f"{name}: each item of {key} needs document_id and {value_key}, got {document!r}")
            identity, value = document["document_id"], document[value_key]
            if not isinstance(identity, str):
                raise ValueError(f"{name}: a document_id must be text, got {identity!r}")
            try:
                values.append(check_label(value) if value_key == "query_relevance_label" else _check_score(value))
            except ValueError as error:
                raise ValueError(f"{name}, document {identity!r}: {error}") from None
            rows.append(at)
            ids.append(identity)
    return rows, ids, values


def _list(row: Row, key: str, name: str) -> Iterable[Any]:
    if not isinstance(row, Mapping):
        raise ValueError(f"{name}: a row must be an object with retrieval_ground_truth and retrieved_documents")
    if key not in row:
        near = get_close_matches(key, map(str, row), n=1, cutoff=0.5)
        hint = f" (is {near[0]!r} meant?)" if near else ""
        raise ValueError(f"{name}: there is no {key}{hint}; give an empty list where there is nothing")
    found = row[key]
    if found is None:
        return ()
    if not isinstance(found, list | tuple):
        raise ValueError(f"{name}: {key} must be a list, got {type(found).__name__}")
    return found


def _check_score(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, float | int | np.floating | np.integer):
        raise ValueError(f"a score must be a number, got {value!r}")
    return float(value)


def _thresholds(given: Mapping[str, float], scale: LabelScale) -> dict[str, float]:
    middle = (scale.min + scale.max) / 2
    limits = dict(zip(METRICS, (0.5, 50.0, 0.5, middle, middle, 0, 0), strict=True))
    for metric, threshold in given.items():
        if metric not in limits:
            near = get_close_matches(metric, METRICS, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"unknown threshold {metric!r}; {hint}known: {', '.join(METRICS)}")
        limits[metric] = _check_score(threshold)
    return limits
