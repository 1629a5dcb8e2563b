"""What can be said of a study before it runs: its data's health, its configurations, and how much there is to embed."""

__all__ = ["check_lines", "check_study"]

from pathlib import Path
from typing import Any

from sweep.collection.health import health
from sweep.optimize.study import Study
from sweep.optimize.study_file import load_study


def check_study(path: Path) -> dict[str, Any]:
    """Read a study file and its collection and cut its chunks; embeds and searches nothing.

    Raises the InputError of whatever is wrong, chunks over an encoder's limit among them.
    """
    study = Study(load_study(path))
    found = health(study.collection)
    pipeline = study.pipeline()
    study.check(pipeline)
    sets = dict.fromkeys((c.encoder, c.chunking) for c in study.readers if c.encoder)
    trials = study.spec.budget.trials
    return {
        "study": study.spec.study,
        "health": found.to_dict(),
        "sentences": found.lines(),
        "configurations": None if study.grid is None else len(study.grid),
        "invalid": dict(study.invalid),
        "budget": trials,
        "sampler": "sampler" if study.sampled(trials) else "grid",
        "baseline": study.baseline.settings,
        "chunks": {f"{encoder} {chunking}": len(pipeline.stages.chunks(chunking)) for encoder, chunking in sets},
        "tokens_to_embed": pipeline.stages.missing_tokens(sets),
    }


def check_lines(found: dict[str, Any]) -> list[str]:
    """Say it in lines for a terminal."""
    count = "without end" if found["configurations"] is None else f"{found['configurations']} configurations"
    how = "all of them are run" if found["sampler"] == "grid" else "a sampler chooses among them"
    return [
        f"Study {found['study']}: the study file and its data are in order.",
        *(f"  {sentence}" for sentence in found["sentences"]),
        f"Space: {count}; the budget is {found['budget']} trials: {how}.",
        *(f"  {n} combinations cannot run: {reason}." for reason, n in found["invalid"].items()),
        f"Baseline: {' '.join(f'{n}={v}' for n, v in found['baseline'].items())}",
        *(f"Chunks: {n:,} for {name} (size/overlap)" for name, n in found["chunks"].items()),
        f"To embed: {found['tokens_to_embed']:,} tokens; each distinct text counts once, stored ones not at all.",
    ]
