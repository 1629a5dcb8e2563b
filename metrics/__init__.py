"""Retrieval measures on arrays: judgments, rankings, measures, scores. Needs numpy and scipy only."""

from metrics.documents import Convention
from metrics.evaluate import Scores, evaluate, evaluate_many
from metrics.foundry import Aggregate, RowResult, document_retrieval, score_rows
from metrics.holes import Bounds, bounds
from metrics.inputs import judgments_of
from metrics.judgments import Judgments, LabelScale, check_label
from metrics.measures import Measure
from metrics.passages import chunk_labels, passages
from metrics.rankings import Rankings, collapse, rank
from metrics.spans import Chunks, Spans, Tokens, evaluate_spans

__all__ = [
    "Aggregate",
    "Bounds",
    "Chunks",
    "Convention",
    "Judgments",
    "LabelScale",
    "Measure",
    "Rankings",
    "RowResult",
    "Scores",
    "Spans",
    "Tokens",
    "bounds",
    "check_label",
    "chunk_labels",
    "collapse",
    "document_retrieval",
    "evaluate",
    "evaluate_many",
    "evaluate_spans",
    "judgments_of",
    "passages",
    "rank",
    "score_rows",
]
