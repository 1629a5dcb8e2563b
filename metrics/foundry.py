"""Rows in, result rows out: the shape of Microsoft Foundry's document_retrieval evaluator.

A row holds `retrieval_ground_truth`, a list of {document_id, query_relevance_label}, and `retrieved_documents`, a list
of {document_id, relevance_score}; where fields have other names, a data mapping says so. The figures are those of
azure-ai-evaluation 1.18.10's DocumentRetrievalEvaluator, bit for bit on any label scale within 0…9, with the deliberate
differences below. Each has its test of that name in tests/test_metrics_foundry.py, and what the published evaluator
does is tested in tests/test_metrics_azure.py.

| case                      | published evaluator          | here                      | test                          |
|---------------------------|------------------------------|---------------------------|-------------------------------|
| labels of 10 and more     | fidelity takes wrong weights | the weight of each label  | test_labels_from_10           |
| minimum below 0           | out of range, or NaN         | the scaled convention     | test_minimum_below_0          |
| all labels at the minimum | fidelity NaN                 | fidelity 0                | test_all_at_minimum           |
| document retrieved twice  | last score; two in totals    | best score; one in totals | test_retrieved_twice          |
| document judged twice     | last label; two in totals    | one, or error on conflict | test_judged_twice             |
| equal scores              | order of the input           | ascending document id     | test_equal_scores             |
| NaN or infinite score     | NaN by input order, +∞ first | after every finite score  | test_not_finite               |
| score precision           | float64                      | float32                   | test_float32                  |
| NumPy numbers, label 3.0  | refused, but float64 scores  | accepted                  | test_number_types             |
| True as label or score    | crash, or taken as 1         | refused                   | test_true_is_no_number        |
| top relevance threshold   | 50, with labels up to 4      | middle of the label scale | test_default_thresholds       |
| nothing retrieved         | holes pass                   | every metric fails        | test_nothing_retrieved        |
| pass or fail of totals    | threshold 50                 | none                      | test_totals_are_not_judged    |
| over 10,000 documents     | refused                      | accepted                  | test_large_row                |
| row without ground truth  | refused                      | counted and named         | test_row_without_ground_truth |
| no relevant document      | 0 in the mean                | left out, counted, named  | test_row_without_relevant     |
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metrics.documents import Convention
from metrics.evaluate import Scores, evaluate
from metrics.files import better
from metrics.hits import Float
from metrics.judgments import Judgments, LabelScale, check_label
from metrics.measures import Measure
from metrics.rankings import check_score

METRICS = ("ndcg@3", "xdcg@3", "fidelity", "top1_relevance", "top3_max_relevance", "holes", "holes_ratio")
TOTALS = ("total_retrieved_documents", "total_ground_truth_documents")
FIELDS = ("retrieval_ground_truth", "retrieved_documents")
_COUNTED = frozenset({"max_relevance", "holes"})
_HEAD = {"type": "azure_ai_evaluator", "name": "Document Retrieval"}
_BATCH = 200
_NAMED = 20

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RowResult:
    """The results of one row: `row` counts from 1; `left_out` says why the row does not count in means, or is None.

    results: dictionaries with type, name, metric, score, and where there is a threshold label, passed, threshold; empty
    for a row without ground truth.
    """

    row: int
    results: tuple[dict[str, Any], ...]
    left_out: str | None = None


@dataclass(slots=True)
class LeftOut:
    """Rows left out of means for one reason: how many, and the numbers of the first ones."""

    count: int = 0
    first: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Aggregate:
    """Running means and pass rates over rows; `add` takes each result of `score_rows`. Its size does not grow."""

    rows: int = 0
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    _sums: dict[str, float] = field(default_factory=dict, repr=False)
    _passed: dict[str, int] = field(default_factory=dict, repr=False)

    def add(self, result: RowResult) -> None:
        """Count one row, or note under which reason it is left out."""
        if result.left_out is not None:
            reason = self.left_out.setdefault(result.left_out, LeftOut())
            reason.count += 1
            if reason.count <= _NAMED:
                reason.first.append(result.row)
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
    ground_truth_label_min: int = 0,
    ground_truth_label_max: int = 4,
    thresholds: Mapping[str, float] | None = None,
    convention: Convention = "foundry",
    measures: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Score one query's results; return one dictionary a metric: METRICS, then `measures`, then TOTALS.

    measures: further ones, such as "ndcg@10". thresholds: a metric's score passes at its threshold or above, holes and
    holes_ratio at it or below. Defaults: ndcg@3 .5, xdcg@3 50, fidelity .5, top relevances the middle of the label
    scale, holes and holes_ratio 0; none for further measures, whose scores then have no pass or fail.
    Raises ValueError as `score_rows`, and for an empty ground truth.
    """
    row = dict(zip(FIELDS, (retrieval_ground_truth, retrieved_documents), strict=True))
    (result,) = score_rows(
        [row],
        ground_truth_label_min=ground_truth_label_min,
        ground_truth_label_max=ground_truth_label_max,
        thresholds=thresholds,
        convention=convention,
        measures=measures,
    )
    if not result.results:
        raise ValueError("retrieval_ground_truth is empty; give at least one judged document")
    return list(result.results)


def score_rows(
    rows: Iterable[Row],
    *,
    ground_truth_label_min: int = 0,
    ground_truth_label_max: int = 4,
    thresholds: Mapping[str, float] | None = None,
    convention: Convention = "foundry",
    measures: Sequence[str] = (),
    data_mapping: Mapping[str, str] | None = None,
) -> Iterator[RowResult]:
    """Score each row as `document_retrieval` does, in order; at most two hundred rows are held at a time.

    data_mapping: where a row keeps its fields, such as {"retrieved_documents": "{{item.search.hits}}"}; a field that is
    not mapped has its own name. A row without ground truth has no results.
    Raises ValueError, at once for an unknown or non-numeric threshold, an unknown measure, a mapping that cannot be
    read or a bad label scale, and while iterating, naming row and document, for a missing field, an id that is not
    text, a label that is not whole, outside the scale or in conflict with another, and a score that is not a number.
    """
    scale = LabelScale(check_label(ground_truth_label_min), check_label(ground_truth_label_max))
    names = list(dict.fromkeys([*METRICS, *(str(Measure.parse(name)) for name in measures)]))
    limits = _thresholds(thresholds or {}, names, scale)
    metrics = [(name, Measure.parse(name), limits.get(name)) for name in names]
    return _score(iter(rows), scale, metrics, convention, _paths(data_mapping or {}))


Metrics = list[tuple[str, Measure, float | None]]
Paths = dict[str, list[str]]


def _score(
    rows: Iterator[Row], scale: LabelScale, metrics: Metrics, convention: Convention, paths: Paths
) -> Iterator[RowResult]:
    done, (judged, retrieved) = 0, FIELDS
    while True:
        truths: dict[str, dict[str, Any]] = {}
        found: dict[str, dict[str, Any]] = {}
        for number, row in enumerate(islice(rows, _BATCH), start=done + 1):  # a row is let go once it is read
            name = f"row {number}"
            truths[name] = _labels(_field(row, judged, paths[judged], name), judged, name)
            found[name] = _scores(_field(row, retrieved, paths[retrieved], name), retrieved, name)
        if not truths:
            return
        try:
            judgments = Judgments.from_dict(truths, scale)
            scores = evaluate(judgments, found, [measure for _, measure, _ in metrics], convention=convention)
        except ValueError as error:
            _check_ids(truths)
            _check_ids(found)
            raise ValueError(re.sub(r"^query '(row \d+)'", r"\1", str(error))) from None
        sizes = {name: [*map(len, rows.values())] for name, rows in zip(TOTALS, (found, truths), strict=True)}
        yield from _results(done + 1, scores, metrics, sizes)
        done += len(truths)


def _results(start: int, scores: Scores, metrics: Metrics, sizes: dict[str, list[int]]) -> Iterator[RowResult]:
    """Make the entries metric by metric, then give each row its own."""
    columns = [_entries(*metric, scores.values[metric[1]], scores.retrieved) for metric in metrics]
    columns += [[{**_HEAD, "metric": name, "score": size} for size in column] for name, column in sizes.items()]
    rows = zip(zip(*columns, strict=True), scores.judged.tolist(), scores.scored.tolist(), strict=True)
    for number, (entries, judged, scored) in enumerate(rows, start=start):
        if not judged:
            yield RowResult(number, (), "no ground truth")
        else:
            yield RowResult(number, entries, None if scored else "no relevant document")


def _entries(
    metric: str, measure: Measure, threshold: float | None, values: Float, retrieved: NDArray[np.bool_]
) -> list[dict[str, Any]]:
    """Make one metric's entry for each row: of those that pass, and of those that fail, only the score differs."""
    scores = (values.astype(np.int64) if measure.name in _COUNTED else values).tolist()
    entry = {**_HEAD, "metric": metric, "score": None}
    if threshold is None:
        return [{**entry, "score": score} for score in scores]
    passed = retrieved & (values >= threshold if measure.higher_is_better else values <= threshold)
    passing = entry | {"label": "pass", "passed": True, "threshold": threshold}
    failing = entry | {"label": "fail", "passed": False, "threshold": threshold}
    pairs = zip(scores, passed.tolist(), strict=True)
    return [{**(passing if good else failing), "score": score} for score, good in pairs]


def _labels(documents: Sequence[Any], key: str, name: str) -> dict[str, Any]:
    """Read {document id: label}; a document judged twice has one label, or is an error."""
    pairs = _pairs(documents, key, "query_relevance_label", name)
    if len(pairs) < len(documents):
        for document in documents:
            identity, label = document["document_id"], document["query_relevance_label"]
            if label != pairs[identity]:
                both = f"{label!r} and {pairs[identity]!r}"
                raise ValueError(f"{name}, document {identity!r}: judged twice, with labels {both}; keep one of them")
    return pairs


def _scores(documents: Sequence[Any], key: str, name: str) -> dict[str, Any]:
    """Read {document id: score}; a document that was retrieved twice has its best score."""
    pairs = _pairs(documents, key, "relevance_score", name)
    if len(pairs) < len(documents):
        pairs = {}
        for document in documents:
            identity = document["document_id"]
            try:
                score = check_score(document["relevance_score"])
            except ValueError as error:
                raise ValueError(f"{name}, document {identity!r}: {error}") from None
            pairs[identity] = better(score, pairs[identity]) if identity in pairs else score
    return pairs


def _pairs(documents: Sequence[Any], key: str, value: str, name: str) -> dict[str, Any]:
    try:
        return {document["document_id"]: document[value] for document in documents}
    except (TypeError, KeyError, IndexError):
        for document in documents:
            if not isinstance(document, Mapping) or not {"document_id", value} <= document.keys():
                raise ValueError(
                    f"{name}: each item of {key} needs document_id and {value}, got {document!r}"
                ) from None
        _check_ids({name: [document["document_id"] for document in documents]})
        raise


def _check_ids(rows: Mapping[str, Iterable[Any]]) -> None:
    for name, ids in rows.items():
        for identity in ids:
            if not isinstance(identity, str):
                raise ValueError(f"{name}: a document_id must be text, got {identity!r}")


def _field(row: Any, key: str, path: list[str], name: str) -> Sequence[Any]:
    """Return the list that a row keeps under a field; null is an empty one."""
    for step in path:
        if not isinstance(row, Mapping):
            needed = " and ".join(FIELDS) if step == path[0] else ".".join(path)
            raise ValueError(f"{name}: an object with {needed} is needed, got {type(row).__name__}")
        if step not in row:
            near = get_close_matches(step, map(str, row), n=1, cutoff=0.5)
            hint = f" (is {near[0]!r} meant?)" if near else ""
            raise ValueError(f"{name}: there is no {step}{hint}; give an empty list where there is nothing")
        row = row[step]
    if row is None:
        return ()
    if not isinstance(row, list | tuple):
        raise ValueError(f"{name}: {key} must be a list, got {type(row).__name__}")
    return row


def _paths(mapping: Mapping[str, str]) -> Paths:
    """Read {"field": "{{item.a.b}}"} as the steps from a row to each field."""
    paths = {key: [key] for key in FIELDS}
    for key, template in mapping.items():
        if key not in paths:
            raise ValueError(f"unknown field {key!r} in the data mapping; fields: {', '.join(FIELDS)}")
        matched = re.fullmatch(r"\{\{\s*item\.([^{}]*[^{}\s])\s*\}\}", template)
        if not matched or not all(matched[1].split(".")):
            raise ValueError(f"{key}: {template!r} cannot be read; give the field's place as {{{{item.name}}}}")
        paths[key] = matched[1].split(".")
    return paths


def _thresholds(given: Mapping[str, float], names: Sequence[str], scale: LabelScale) -> dict[str, float]:
    middle = (scale.min + scale.max) / 2
    limits: dict[str, float] = dict(zip(METRICS, (0.5, 50.0, 0.5, middle, middle, 0, 0), strict=True))
    for metric, threshold in given.items():
        if metric not in names:
            near = get_close_matches(metric, names, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ValueError(f"unknown threshold {metric!r}; {hint}known: {', '.join(names)}")
        limits[metric] = check_score(threshold)
    return limits
