"""Which search settings should I ship? Sweep them on your own labelled queries; get an answer and how sure it is."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sweep.collection.collection import Collection
    from sweep.collection.health import Health, health
    from sweep.errors import InputError, NothingFeasibleError, StudyInterrupted, SweepError
    from sweep.present.results import StudyResults, load, run
    from sweep.retrieval.configuration import Configuration

__all__ = [
    "Collection",
    "Configuration",
    "Health",
    "InputError",
    "NothingFeasibleError",
    "StudyInterrupted",
    "StudyResults",
    "SweepError",
    "health",
    "load",
    "run",
]

_HOMES = {
    "sweep.collection.collection": ("Collection",),
    "sweep.collection.health": ("Health", "health"),
    "sweep.errors": ("InputError", "NothingFeasibleError", "StudyInterrupted", "SweepError"),
    "sweep.present.results": ("StudyResults", "load", "run"),
    "sweep.retrieval.configuration": ("Configuration",),
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: `sweep --help` needs none of them."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'sweep' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
