"""Retrieval measures on arrays: judgments, rankings, measures, scores. Needs numpy and scipy only."""

from metrics.documents import HOLE, Convention
from metrics.evaluate import Scores, evaluate, label_matrix
from metrics.foundry import Aggregate, RowResult, document_retrieval, score_rows
from metrics.judgments import Judgments, LabelScale, check_label
from metrics.measures import Measure
from metrics.rankings import Rankings, collapse, join, rank

__all__ = [
    "HOLE",
    "Aggregate",
    "Convention",
    "Judgments",
    "LabelScale",
    "Measure",
    "Rankings",
    "RowResult",
    "Scores",
    "check_label",
    "collapse",
    "document_retrieval",
    "evaluate",
    "join",
    "label_matrix",
    "rank",
    "score_rows",
]
