"""What has been computed is kept under the fingerprint of all that it depends on, and found again.

One file an artifact: safetensors (no pickle), with a digest of its arrays and its own key in the header. A file is
written under a temporary name, flushed, then renamed, so that a reader never sees half of one; a file that is torn,
foreign or of another format is set aside (`.bad`) and built again. One process builds a key while others wait: the
lock is the operating system's, so it falls with a process that dies.
"""

__all__ = ["CODE", "Artifact", "Rows", "Store", "digest_texts", "fingerprint", "replaced"]

import hashlib
import json
import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.errors import StorageError

Array = npt.NDArray[Any]
CODE = 1  # raise when the same inputs give other results: nothing that is stored then counts any more
_FORMAT = "retrieval-sweep 1"
_log = logging.getLogger(__name__)


def fingerprint(*parts: Any) -> str:
    """Return 32 hexadecimal digits over JSON values (keys sorted); equal values give equal digits everywhere."""
    text = json.dumps([CODE, *parts], sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Artifact:
    """Named arrays and a few JSON facts about them."""

    arrays: Mapping[str, Array]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]


class Store:
    """A folder of artifacts: `<root>/<stage>/<key>.safetensors`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, stage: str, key: str) -> Artifact | None:
        """Return the artifact, or None where there is none that can be trusted."""
        return _read(self._path(stage, key), key)

    def put(self, stage: str, key: str, artifact: Artifact) -> None:
        """Write an artifact under its key; the last writer of a key wins, whole."""
        _write(self._path(stage, key), key, artifact)

    def drop(self, stage: str, key: str) -> None:
        """Remove an artifact, where there is one."""
        self._path(stage, key).unlink(missing_ok=True)

    def get_or_build(self, stage: str, key: str, build: Callable[[], Artifact]) -> tuple[Artifact, bool]:
        """Return (artifact, whether it was built now). `build` runs in at most one process at a time for a key."""
        found = self.get(stage, key)
        if found is not None:
            return found, False
        with self.lock(stage, key):
            found = self.get(stage, key)
            if found is not None:
                return found, False
            built = build()
            self.put(stage, key, built)
            return built, True

    @contextmanager
    def lock(self, stage: str, key: str) -> Any:
        """Hold a key against other processes; a holder that dies lets go."""
        from filelock import FileLock

        path = self.root / "locks" / f"{stage}-{key}.lock"
        with _storage(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            held = FileLock(path)
            held.acquire()
        try:
            yield
        finally:
            held.release()

    def rows(self, stage: str, key: str) -> "Rows":
        """Return the growing table of float32 rows of this stage and key."""
        return Rows(self, stage, key)

    def _path(self, stage: str, key: str) -> Path:
        return self.root / stage / f"{key}.safetensors"


class Rows:
    """A growing table: digest of a text (16 bytes) → float32 row. Appended in segments, each a file.

    Every `append` is one file, so what a killed run had appended is kept. Several processes may append at once;
    `exclusive` lets one of them compute missing rows while the others wait for the result.
    """

    def __init__(self, store: Store, stage: str, key: str) -> None:
        self._store, self._stage, self._key = store, stage, key
        self._folder = store.root / stage / key
        self._seen: set[str] = set()
        self._segments: list[Artifact] = []
        self._order: npt.NDArray[np.int64] | None = None

    def find(self, digests: Array) -> npt.NDArray[np.int64]:
        """Return the position of each digest (V16, (n,)) for `take`, −1 where it is not stored."""
        known, _ = self._joined()
        if self._order is None:
            self._order = np.argsort(known, kind="stable")
        if not len(known):
            return np.full(len(digests), -1, np.int64)
        at = np.searchsorted(known, digests, sorter=self._order)
        found = self._order[np.minimum(at, len(known) - 1)]
        return np.where(known[found] == digests, found, -1)

    def take(self, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Return the rows at positions that `find` gave, float32 C-contiguous (n, width)."""
        return np.ascontiguousarray(self._joined()[1][positions])

    def append(self, digests: Array, values: npt.NDArray[np.float32]) -> None:
        """Store new rows, whole or not at all."""
        name = uuid.uuid4().hex
        artifact = Artifact({"digests": digests.view(np.uint8).reshape(-1, 16), "values": values})
        _write(self._folder / f"{name}.safetensors", f"{self._key}/{name}", artifact, sync=False)
        self._seen.add(name)
        self._segments.append(artifact)
        self._order = None

    def fill(
        self, digests: Array, compute: Callable[[npt.NDArray[np.int64]], Iterable[tuple[Any, npt.NDArray[np.float32]]]]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        """Return (the rows of `digests`, positions in it that were computed now), computing what is not stored.

        `compute` is given the positions of missing digests, each digest once, and yields (positions, their rows); each
        lot is stored as it comes. One process computes while the others wait for its rows.
        """
        missing = np.empty(0, np.int64)
        position = self.find(digests)
        if (position < 0).any():
            with self.exclusive():
                position = self.find(digests)
                _, once = np.unique(digests, return_index=True)
                missing = np.sort(once[position[once] < 0])
                for chosen, values in compute(missing):
                    self.append(digests[chosen], values)
                if len(missing):
                    self.compact()
            position = self.find(digests)
        return self.take(position), missing

    def exclusive(self) -> Any:
        """Return a context in which no other process computes rows of this table."""
        return self._store.lock(self._stage, self._key)

    def compact(self) -> None:
        """Join the segments into one file, so that a later start opens few. Call it within `exclusive`."""
        digests, values = self._joined()
        old = set(self._seen)
        if len(old) < 2:
            return
        _, once = np.unique(digests, return_index=True)
        self._segments.clear()
        self.append(digests[np.sort(once)], values[np.sort(once)])
        for name in old:
            (self._folder / f"{name}.safetensors").unlink(missing_ok=True)

    def _joined(self) -> tuple[Array, npt.NDArray[np.float32]]:
        for path in sorted(self._folder.glob("*.safetensors")) if self._folder.is_dir() else []:
            if path.stem not in self._seen:
                self._seen.add(path.stem)
                segment = _read(path, f"{self._key}/{path.stem}")
                if segment is not None:
                    self._segments.append(segment)
                    self._order = None
        if not self._segments:
            return np.empty(0, "V16"), np.empty((0, 0), np.float32)
        if len(self._segments) > 1:
            joined = {n: np.concatenate([s[n] for s in self._segments]) for n in ("digests", "values")}
            self._segments = [Artifact(joined)]
        whole = self._segments[0]
        return np.ascontiguousarray(whole["digests"]).view("V16").reshape(-1), whole["values"]


def digest_texts(texts: Sequence[str], prefix: str = "") -> Array:
    """Return the 16-byte digest of prefix + text for each text, as V16 (n,)."""
    start = hashlib.blake2b(prefix.encode(), digest_size=16)
    out = bytearray()
    for text in texts:
        one = start.copy()
        one.update(text.encode("utf-8", "surrogatepass"))
        out += one.digest()
    return np.frombuffer(bytes(out), "V16")


def _digest(arrays: Mapping[str, Array]) -> str:
    h = hashlib.blake2b(digest_size=16)
    for name in sorted(arrays):
        a = np.ascontiguousarray(arrays[name])
        h.update(f"{name} {a.dtype.str} {a.shape} ".encode())
        h.update(a.view(np.uint8).reshape(-1).data if a.size else b"")
    return h.hexdigest()


def _write(path: Path, key: str, artifact: Artifact, sync: bool = True) -> None:
    """Write whole or not at all. Without `sync` a power cut, but no killed process, may tear it: its digest tells."""
    from safetensors.numpy import save_file

    arrays = {n: np.ascontiguousarray(a) for n, a in artifact.arrays.items()}
    header = {"format": _FORMAT, "key": key, "digest": _digest(arrays), "meta": json.dumps(dict(artifact.meta))}
    with replaced(path) as temporary:
        save_file(arrays, temporary, metadata=header)
        temporary.chmod(0o644)  # a cache may be shared; safetensors makes files for their owner alone
        if sync:
            with temporary.open("rb+") as f:
                os.fsync(f.fileno())


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path` to write to; it takes the place of `path` when the block ends well.

    Raises StorageError where the file system refuses.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    with _storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield temporary
            temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _read(path: Path, key: str) -> Artifact | None:
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        return None
    try:
        with safe_open(path, framework="numpy") as f:
            header = f.metadata() or {}
            arrays = {name: f.get_tensor(name) for name in f.keys()}  # noqa: SIM118 - not a dict
        if header.get("format") != _FORMAT or header.get("key") != key or header.get("digest") != _digest(arrays):
            raise ValueError("its key or digest is not the one expected")
        return Artifact(arrays, json.loads(header["meta"]))
    except FileNotFoundError:  # compacted or pruned by another process since it was listed
        return None
    except OSError as fault:
        raise StorageError(f"{path}: cannot be read: {fault.strerror or fault}") from fault
    except (SafetensorError, ValueError) as fault:
        aside = path.with_suffix(f".{uuid.uuid4().hex[:8]}.bad")
        try:
            path.replace(aside)
        except FileNotFoundError:  # another process was faster
            return None
        except OSError as stuck:
            raise StorageError(f"{path}: is damaged and cannot be set aside: {stuck.strerror}") from stuck
        _log.warning("damaged artifact %s set aside as %s and built again (%s)", path, aside.name, fault)
        return None


@contextmanager
def _storage(path: Path) -> Any:
    """Turn a fault of the file system into an error that says where and why."""
    try:
        yield
    except OSError as fault:
        raise StorageError(f"{path}: cannot be written: {fault.strerror or fault}") from fault
    except Exception as fault:  # safetensors reports a full disk as its own error
        if type(fault).__name__ == "SafetensorError":
            raise StorageError(f"{path}: cannot be written: {fault}") from fault
        raise
