"""Retrieval measures on arrays: judgments, rankings, measures, scores. Needs numpy and scipy only."""

from metrics.documents import Convention
from metrics.evaluate import Scores, evaluate, evaluate_many
from metrics.foundry import Aggregate, RowResult, document_retrieval, score_rows
from metrics.holes import Bounds, bounds
from metrics.inputs import judgments_of
from metrics.judgments import Judgments, LabelScale, check_label
from metrics.measures import Measure
from metrics.rankings import Rankings, collapse, rank

__all__ = [
    "Aggregate",
    "Bounds",
    "Convention",
    "Judgments",
    "LabelScale",
    "Measure",
    "Rankings",
    "RowResult",
    "Scores",
    "bounds",
    "check_label",
    "collapse",
    "document_retrieval",
    "evaluate",
    "evaluate_many",
    "judgments_of",
    "rank",
    "score_rows",
]
