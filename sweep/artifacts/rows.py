"""A growing table on disk: digest of a text (16 bytes) → float32 row.

The rows lie in segments, each a file that is never changed. What is computed is stored lot by lot, each lot a segment,
so a process that is killed loses the lot that it was at. Segments are sorted into classes by their number of rows, a
class for each power of eight; when eight are of one class they are merged into one of the next. So there are at most
seven files a class (49 for two million rows), and a row is written again once a class, not once a fill.

In memory are the digests alone (40 bytes a row with their order); rows are read from the files when they are asked for.
"""

__all__ = ["Rows"]

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sweep.artifacts.array_file import BLOCK, Array, Stream, read, write
from sweep.artifacts.files import lock_of, locked, touch
from sweep.errors import StorageError

Floats = npt.NDArray[np.float32]
Positions = npt.NDArray[np.int64]
_BITS = 3  # of the factor eight between classes
_MERGED = 1 << _BITS


@dataclass(frozen=True, slots=True)
class _Segment:
    """One file of rows; `offset` is where its first row begins, in bytes."""

    path: Path
    digests: Array
    width: int
    offset: int

    def __len__(self) -> int:
        return len(self.digests)

    def parts(self, rows: Positions) -> Iterator[tuple[slice, Floats]]:
        """Yield (a part of `rows`, which rise, their values) from one stretch of the file after another."""
        most = max(1, BLOCK // (4 * max(1, self.width)))
        cuts = [0, *(np.flatnonzero(np.diff(rows // most)) + 1).tolist(), len(rows)]
        with self.path.open("rb") as f:
            for a, b in pairwise(cuts):
                first = int(rows[a])
                stretch = np.empty((int(rows[b - 1]) - first + 1, self.width), np.float32)
                f.seek(self.offset + 4 * self.width * first)
                if f.readinto(stretch.reshape(-1).view(np.uint8).data) < stretch.nbytes:
                    raise OSError("it was cut short while in use")
                yield slice(a, b), stretch[rows[a:b] - first]


class Rows:
    """The table of one stage and key. Any number of processes may use it at once; one at a time adds to it."""

    def __init__(self, root: Path, stage: str, key: str) -> None:
        self._key = key
        self._folder = root / stage / key
        self._lock = lock_of(root, stage, key)
        self._segments: dict[str, _Segment] = {}
        self._index: tuple[Array, Positions] | None = None

    def contains(self, digests: Array) -> npt.NDArray[np.bool_]:
        """Return whether the row of each digest (V16, (n,)) is stored, bool (n,)."""
        self._look()
        return self._find(digests) >= 0

    def take(self, digests: Array) -> Floats | None:
        """Return the row of each digest, float32 C-contiguous (n, width); None where one is not stored."""
        while True:
            self._look()
            position = self._find(digests)
            if (position < 0).any():
                return None
            try:
                return self._read(position)
            except FileNotFoundError:  # merged or pruned since it was listed: look again
                continue
            except OSError as fault:
                raise StorageError(f"{self._folder}: cannot be read: {fault.strerror or fault}") from fault

    def fill(
        self, digests: Array, compute: Callable[[Positions], Iterable[tuple[Any, Floats]]]
    ) -> tuple[Floats, Positions]:
        """Return (the rows of `digests`, positions in it that were computed now), computing what is not stored.

        `compute` is given the positions of missing digests, each digest once, and yields (positions, their rows); each
        lot is stored as it comes. One process computes while the others wait for its rows. Raises StorageError.
        """
        missing = np.empty(0, np.int64)
        rows = self.take(digests)
        if rows is not None:
            return rows, missing
        with locked(self._lock):
            _, once = np.unique(digests, return_index=True)
            missing = np.sort(once[~self.contains(digests[once])])
            if len(missing):
                for chosen, values in compute(missing):
                    self._append(digests[chosen], values)
            rows = self.take(digests)  # while the lock keeps others from pruning them
        if rows is None:
            raise StorageError(f"{self._folder}: rows that were stored have gone; run it again")
        return rows, missing

    def _look(self) -> None:
        """Open segments that others have added, and forget those that are gone."""
        names = {path.stem for path in self._folder.glob("*.safetensors")}
        if names == self._segments.keys():
            return
        self._index = None
        self._segments = {name: segment for name, segment in self._segments.items() if name in names}
        for name in sorted(names - self._segments.keys()):
            path = self._path(name)
            found = read(path, f"{self._key}/{name}", leave=["values"])
            if found is not None:
                values = found.places["values"]
                self._segments[name] = _Segment(path, _void(found.arrays["digests"]), values.shape[1], values.offset)

    def _find(self, digests: Array) -> Positions:
        """Return the place of each digest among the rows of all segments, −1 where it has none."""
        if self._index is None:
            every = np.concatenate([np.empty(0, "V16"), *(s.digests for s in self._segments.values())])
            order = np.argsort(every, kind="stable")
            self._index = every[order], order
        known, where = self._index
        if not len(known):
            return np.full(len(digests), -1, np.int64)
        at = np.minimum(np.searchsorted(known, digests), len(known) - 1)
        return np.where(known[at] == digests, where[at], -1)

    def _read(self, position: Positions) -> Floats:
        segments = list(self._segments.values())
        rows = np.empty((len(position), segments[0].width if segments else 0), np.float32)
        order = np.argsort(position, kind="stable")
        start = 0
        for segment in segments:
            a, b = np.searchsorted(position, [start, start + len(segment)], sorter=order)
            if a < b:
                chosen = order[a:b]
                for part, values in segment.parts(position[chosen] - start):
                    rows[chosen[part]] = values
                touch(segment.path)
            start += len(segment)
        return rows

    def _append(self, digests: Array, values: Floats) -> None:
        width = next((s.width for s in self._segments.values()), values.shape[1])
        if values.shape[1] != width:
            raise StorageError(f"{self._folder}: holds rows of {width} numbers, not {values.shape[1]}; remove it")
        self._add(digests, Stream.of(values))
        while crowd := self._crowd():
            self._merge(crowd)

    def _add(self, digests: Array, values: Stream) -> None:
        name = uuid.uuid4().hex
        digests = np.ascontiguousarray(digests)
        streams = {"digests": Stream.of(digests.view(np.uint8).reshape(-1, 16)), "values": values}
        places = write(self._path(name), f"{self._key}/{name}", streams, {}, sync=False)
        self._segments[name] = _Segment(self._path(name), digests, values.shape[1], places["values"].offset)
        self._index = None

    def _crowd(self) -> list[str]:
        """Return segments of one class that are enough to be merged; none where there are not."""
        classes: dict[int, list[str]] = {}
        for name, segment in self._segments.items():
            of_class = classes.setdefault((len(segment).bit_length() - 1) // _BITS, [])
            of_class.append(name)
            if len(of_class) == _MERGED:
                return of_class
        return []

    def _merge(self, names: list[str]) -> None:
        """Write one segment in place of several. A process killed in between leaves both, which does no harm."""
        parts = [self._segments[name] for name in names]
        digests = np.concatenate([part.digests for part in parts])
        keep = np.sort(np.unique(digests, return_index=True)[1])
        starts = np.cumsum([0, *map(len, parts)])
        cuts = np.searchsorted(keep, starts)
        rows = [keep[a:b] - start for a, b, start in zip(cuts[:-1], cuts[1:], starts[:-1], strict=True)]
        blocks = chain.from_iterable(part.parts(r) for part, r in zip(parts, rows, strict=True) if len(r))
        width = parts[0].width
        self._add(digests[keep], Stream(np.dtype(np.float32), (len(keep), width), (v for _, v in blocks)))
        for name in names:
            del self._segments[name]
            with suppress(OSError):  # where it stays, its rows are there twice
                self._path(name).unlink()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.safetensors"


def _void(digests: Array) -> Array:
    return np.ascontiguousarray(digests).view("V16").reshape(-1)
