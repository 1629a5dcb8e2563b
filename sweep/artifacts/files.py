"""What a file system must do for the store: replace a file whole, hold a name against other processes, mark a use."""

__all__ = ["LOCKS", "lock_of", "locked", "replaced", "storage", "touch"]

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sweep.errors import StorageError

LOCKS = "locks"


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path` to write to; it takes the place of `path` when the block ends well.

    Raises StorageError where the file system refuses.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    with storage(path, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, wait: bool = True) -> Iterator[bool]:
    """Hold the lock file `path` against other processes; yield whether it is held, which is always so with `wait`.

    The lock is the operating system's: it falls with a process that dies. A holder may remove the file: a process that
    waits for the file of before then takes the new one (filelock looks).
    """
    from filelock import FileLock, Timeout

    held = FileLock(path, timeout=-1 if wait else 0)
    with storage(path, "written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(Timeout):
            held.acquire()
    try:
        yield held.is_locked
    finally:
        held.release()


def lock_of(root: Path, stage: str, key: str) -> Path:
    """Return the lock file of a key: whoever builds it, or adds to it, holds it."""
    return root / LOCKS / f"{stage}-{key}.lock"


def touch(path: Path) -> None:
    """Mark a file as used now, by its time of modification; where that is not ours to change it stays as it is."""
    with suppress(OSError):
        os.utime(path)


@contextmanager
def storage(path: Path, done: str) -> Iterator[None]:
    """Turn a fault of the file system into an error that says where, what could not be `done`, and why."""
    try:
        yield
    except OSError as fault:
        raise StorageError(f"{path}: cannot be {done}: {fault.strerror or fault}") from fault
