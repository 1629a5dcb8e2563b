"""Target `json`: the configuration as settings for any program, with what it takes to get the same ranking."""

__all__ = ["json_settings"]

import importlib.metadata
import platform
from typing import Any

from sweep.export.files import Bundle
from sweep.optimize.study import Study
from sweep.present.results import StudyResults

VERSION = 1
PACKAGES = ("retrieval-sweep", "faiss-cpu", "numpy", "sentence-transformers", "tokenizers", "torch")


def json_settings(results: StudyResults, name: str) -> Bundle:
    """Return `settings.json` for "best", "baseline" or a configuration's id. Raises InputError for another name."""
    study, outcome = results.study, results.outcome(name)
    c, scored = outcome.configuration, study.collection.judgments.answerable
    return {
        "settings.json": {
            "format": "retrieval-sweep settings",
            "version": VERSION,
            "configuration": c.id,
            "settings": c.settings,
            "chosen": {} if c.analyzer != "auto" else {"analyzer": results.analyzer},
            "units": _units(study.tokenizer),
            "models": {n: _model(n, study) for n in sorted({study.tokenizer, *c.models})},
            "expected": {
                "queries": int(scored.sum()),
                "scores": outcome.means(scored),
                "context_tokens": outcome.quantity("context_tokens"),
                "latency_ms": outcome.latency_ms,
                "index_bytes": outcome.index_bytes,
            },
            "provenance": {
                "study": study.spec.to_dict(),
                "collection": dict(study.collection.source),
                "fingerprints": {k: study.identity[k] for k in ("documents", "queries", "labels")},
                "packages": {p: importlib.metadata.version(p) for p in PACKAGES},
                "python": platform.python_version(),
                "machine": platform.machine(),
            },
        }
    }


def _units(tokenizer: str) -> dict[str, str]:
    return {
        "chunk_size": f"tokens of {tokenizer}, special tokens not counted; chunks begin and end between words",
        "chunk_overlap": "share of chunk_size",
        "top_k": "chunks",
        "chosen": "what a setting of auto stands for on these documents",
        "fusion_depth": "chunks taken from each search",
        "pool": "chunks reranked",
        "similarity": "cosine: unit vectors under inner product",
        "document_text": "title, line break, text; the text alone where there is no title",
    }


def _model(name: str, study: Study) -> dict[str, Any]:
    encoder = study.models.encoder(name)
    return {
        "fingerprint": encoder.fingerprint,
        "reads_tokens": encoder.limit,
        "prompts": {role: encoder.prompt(role) for role in ("query", "passage")},
        "dtype": getattr(encoder, "dtype", None),
    }
