"""A folder of results, each built once, whoever asks."""

__all__ = ["Artifact", "Store"]

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sweep.artifacts.array_file import Array, Stream, read, write
from sweep.artifacts.files import lock_of, locked, touch
from sweep.artifacts.rows import Rows


@dataclass(frozen=True, slots=True)
class Artifact:
    """Named arrays and a few JSON facts about them."""

    arrays: Mapping[str, Array]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Array:
        return self.arrays[name]


class Store:
    """A folder of artifacts: `<root>/<stage>/<key>.safetensors`. Reading one marks it as used.

    A folder that cannot be written to is read all the same; what is not in it is a StorageError, once it is built.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, stage: str, key: str, *, mapped: bool = False) -> Artifact | None:
        """Return the artifact, or None where there is none that can be trusted.

        mapped: its arrays stay in the file, read-only, and take memory for what is looked at.
        """
        path = self._path(stage, key)
        found = read(path, key, mapped=mapped)
        if found is None:
            return None
        touch(path)
        return Artifact(found.arrays, found.meta)

    def put(self, stage: str, key: str, artifact: Artifact) -> None:
        """Write an artifact under its key; the last writer of a key wins, whole."""
        write(self._path(stage, key), key, {n: Stream.of(a) for n, a in artifact.arrays.items()}, artifact.meta)

    def drop(self, stage: str, key: str) -> None:
        """Remove an artifact, where there is one."""
        self._path(stage, key).unlink(missing_ok=True)

    def get_or_build(
        self, stage: str, key: str, build: Callable[[], Artifact], *, mapped: bool = False
    ) -> tuple[Artifact, bool]:
        """Return (artifact, whether it was built now). `build` runs in at most one process at a time for a key.

        mapped: as in `get`; what was built now is in memory.
        """
        found = self.get(stage, key, mapped=mapped)
        if found is not None:
            return found, False
        with locked(lock_of(self.root, stage, key)):
            found = self.get(stage, key, mapped=mapped)
            if found is not None:
                return found, False
            built = build()
            self.put(stage, key, built)
            return built, True

    def rows(self, stage: str, key: str) -> Rows:
        """Return the growing table of float32 rows of this stage and key."""
        return Rows(self.root, stage, key)

    def _path(self, stage: str, key: str) -> Path:
        return self.root / stage / f"{key}.safetensors"
