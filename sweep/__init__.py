"""Which search settings should I ship? Sweep them on your own labelled queries; get an answer and how sure it is."""

from sweep.collection import Collection, Health, health
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
