"""What a folder of artifacts holds, and how it is kept small: what was not used for longest goes first.

A file is used when it is written and when it is read: its time of modification says when. Of a table of rows each
segment is an artifact by itself, so that rows which no study reads any more go, and those of the same encoder that
are read stay. Whoever needs what was removed builds it again. A table that a process is adding to is left alone.
"""

__all__ = ["Leftovers", "Pruned", "Usage", "prune", "usage"]

import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from sweep.artifacts.files import LOCKS, lock_of, locked, storage

DAY = 86_400
_OURS = re.compile(r"[0-9a-f]{32}\.safetensors")


class Usage(NamedTuple):
    """The artifacts of one stage; last_used in seconds since 1970."""

    artifacts: int
    bytes: int
    last_used: float


class Leftovers(NamedTuple):
    """Files that nothing reads: damaged ones that were set aside, and temporary ones of processes that died."""

    files: int
    bytes: int


class Pruned(NamedTuple):
    """What was removed, and the bytes that are left. skipped: tables that a process was adding to, as "stage/key"."""

    removed: dict[str, Usage]
    leftovers: Leftovers
    locks: int
    kept: int
    skipped: list[str]


class _File(NamedTuple):
    path: Path
    stage: str
    bytes: int
    used: float


def usage(root: Path) -> tuple[dict[str, Usage], Leftovers]:
    """Return the artifacts of each stage, and the leftovers."""
    return _by_stage(_artifacts(root)), _sum(_leftovers(root))


def prune(root: Path, *, most: int | None = None, unused_days: float | None = None) -> Pruned:
    """Remove artifacts, least recently used first: until `most` bytes are left, and all that were unused for so long.

    Leftovers and lock files that nobody holds go too. Raises StorageError.
    """
    oldest = float("-inf") if unused_days is None else time.time() - unused_days * DAY
    files = sorted(_artifacts(root), key=lambda f: (f.used, f.path))
    removed, kept = list[_File](), sum(f.bytes for f in files)
    tables: dict[Path, bool] = {}
    with ExitStack() as held:
        for file in files:
            if file.used >= oldest and (most is None or kept <= most):
                break
            folder = file.path.parent
            if folder.parent != root and folder not in tables:
                tables[folder] = held.enter_context(locked(lock_of(root, file.stage, folder.name), wait=False))
            if tables.get(folder, True):
                kept -= file.bytes
                removed += [file] * _remove(file.path)
    return Pruned(
        _by_stage(removed),
        _sum([f for f in _leftovers(root) if _remove(f.path)]),
        sum(map(_remove_lock, root.glob(f"{LOCKS}/*.lock"))),
        kept,
        [f"{folder.parent.name}/{folder.name}" for folder, ours in tables.items() if not ours],
    )


def _artifacts(root: Path) -> list[_File]:
    found = [*_files(root, "*/*.safetensors"), *_files(root, "*/*/*.safetensors")]
    return [f for f in found if _OURS.fullmatch(f.path.name)]


def _leftovers(root: Path) -> list[_File]:
    old = time.time() - DAY  # a younger temporary file may be being written
    temporary = [f for f in _files(root, "**/.*.tmp") if f.used < old]
    return [*_files(root, "**/*.bad"), *temporary]


def _files(root: Path, pattern: str) -> Iterator[_File]:
    for path in root.glob(pattern):
        try:
            stat = path.stat()
        except FileNotFoundError:  # merged or removed since it was listed
            continue
        yield _File(path, path.relative_to(root).parts[0], stat.st_size, stat.st_mtime)


def _remove(path: Path) -> bool:
    with storage(path, "removed"):
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        return True


def _remove_lock(path: Path) -> bool:
    with locked(path, wait=False) as ours:  # removed while it is held: see `locked`
        return ours and _remove(path)


def _by_stage(files: list[_File]) -> dict[str, Usage]:
    stages: dict[str, list[_File]] = {}
    for file in files:
        stages.setdefault(file.stage, []).append(file)
    return {
        stage: Usage(len(of), sum(f.bytes for f in of), max(f.used for f in of)) for stage, of in sorted(stages.items())
    }


def _sum(files: list[_File]) -> Leftovers:
    return Leftovers(len(files), sum(f.bytes for f in files))
