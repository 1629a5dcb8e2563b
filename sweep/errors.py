"""Every error that the package raises on purpose.

    SweepError                      exit code 1: failed while running
    ├── InputError                  exit code 2: usage, study file or data
    │   ├── StudyFileError          the study file: unknown key, bad value, bad line
    │   ├── CollectionError         documents, queries or labels
    │   ├── SettingsError           a configuration that cannot be run as asked
    │   ├── ModelError              an encoder, tokenizer or reranker that cannot be used
    │   └── StudyChangedError       a stored study that this study file does not continue
    ├── StorageError                exit code 1: disk full, no permission, a damaged database
    ├── NothingFeasibleError        exit code 3: every configuration breaks a constraint or failed
    └── StudyInterrupted            exit code 130: stopped by the user, resumable

A message says where (file, line, id or key), what was found, what is allowed, and the cure, in one line.
"""

__all__ = [
    "CollectionError",
    "InputError",
    "ModelError",
    "NothingFeasibleError",
    "SettingsError",
    "StorageError",
    "StudyChangedError",
    "StudyFileError",
    "StudyInterrupted",
    "SweepError",
    "nearest",
]

import difflib
from collections.abc import Iterable


class SweepError(Exception):
    """Root of all errors raised on purpose; `exit_code` is what the command returns."""

    exit_code = 1


class InputError(SweepError):
    """Something that the user gave is wrong."""

    exit_code = 2


class StudyFileError(InputError):
    """The study file cannot be read or says something that is not allowed."""


class CollectionError(InputError):
    """Documents, queries or labels are missing, malformed or contradict each other."""


class SettingsError(InputError):
    """A configuration asks for what cannot be run: an overlap over one half, a chunk over the encoder's limit."""


class ModelError(InputError):
    """A model is missing, has other weights than published, or cannot do what is asked of it."""


class StudyChangedError(InputError):
    """The stored study was made from other data, labels, space or code."""


class StorageError(SweepError):
    """A file or database cannot be read or written; what is finished is kept."""


class NothingFeasibleError(SweepError):
    """No configuration is complete and within the constraints."""

    exit_code = 3


class StudyInterrupted(SweepError):  # noqa: N818 - a stop, not a fault
    """The user stopped the run; what is finished is kept and the same command resumes."""

    exit_code = 130


def nearest(name: str, allowed: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the allowed name most like `name`, or "" when none is close."""
    close = difflib.get_close_matches(name, list(allowed), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
