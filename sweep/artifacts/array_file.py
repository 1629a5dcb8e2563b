"""One file of named arrays that can be trusted: whole, in our format, and under the key that was asked for.

The form is safetensors (no pickle; its tools read it): eight bytes of length, a JSON header, the arrays. The header
has the key, a few JSON facts and a digest of the whole file, the digest's own place read as zeros: a change of any bit
shows. Arrays are written from blocks and read straight into place, so that no file is ever held beside its arrays.
"""

__all__ = ["BLOCK", "Array", "Contents", "Place", "Stream", "read", "write"]

import hashlib
import json
import logging
import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from math import prod
from operator import index
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sweep.artifacts.files import replaced
from sweep.errors import StorageError

Array = npt.NDArray[Any]
BLOCK = 1 << 20  # bytes read at a time of what is not kept
_FORMAT = "retrieval-sweep 2"
_START = b'{"__metadata__":{"digest":"'  # then the 32 digits, so that their place is known
_ZEROS = b"0" * 32
_DTYPES = {"BOOL": np.dtype(np.bool_)} | {
    f"{kind.upper()}{8 * size}": np.dtype(f"<{kind}{size}")
    for kind, sizes in {"i": (1, 2, 4, 8), "u": (1, 2, 4, 8), "f": (2, 4, 8)}.items()
    for size in sizes
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_log = logging.getLogger(__name__)


class Place(NamedTuple):
    """Where an array lies in its file; `offset` in bytes from the start."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return self.dtype.itemsize * prod(self.shape)


class Stream(NamedTuple):
    """An array to be written, in blocks that follow each other."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    blocks: Iterable[Array]

    @classmethod
    def of(cls, array: Array) -> "Stream":
        """Return an array as its one block."""
        return cls(array.dtype, array.shape, [array])


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file holds. arrays: those that were read; places: where each lies, the left ones too."""

    arrays: Mapping[str, Array]
    meta: Mapping[str, Any]
    places: Mapping[str, Place]


def write(
    path: Path, key: str, streams: Mapping[str, Stream], meta: Mapping[str, Any], *, sync: bool = True
) -> dict[str, Place]:
    """Write a file, whole or not at all; return where its arrays lie. Raises StorageError.

    Without `sync` a power cut, but no killed process, may tear it: its digest tells.
    """
    names = sorted(streams, key=lambda n: (-streams[n].dtype.itemsize, n))  # the widest first: all are aligned
    header: dict[str, Any] = {
        "__metadata__": {"digest": _ZEROS.decode(), "format": _FORMAT, "key": key, "meta": json.dumps(dict(meta))}
    }
    end, ends = 0, {}
    for name in names:
        dtype, shape, _ = streams[name]
        start, end = end, end + dtype.itemsize * prod(shape)
        header[name] = {"dtype": _NAMES[dtype.newbyteorder("<")], "shape": shape, "data_offsets": [start, end]}
        ends[name] = start
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.blake2b(text, digest_size=16)
    with replaced(path) as temporary, temporary.open("wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            for block in streams[name].blocks:
                data = _bytes(np.ascontiguousarray(block, block.dtype.newbyteorder("<")))
                digest.update(data)
                f.write(data)
        f.seek(8 + len(_START))
        f.write(digest.hexdigest().encode())
        f.flush()
        if sync:
            os.fsync(f.fileno())
    return {n: Place(streams[n].dtype, streams[n].shape, 8 + len(text) + ends[n]) for n in names}


def read(path: Path, key: str, *, leave: Collection[str] = (), mapped: bool = False) -> Contents | None:
    """Return what a file holds, checked; None where there is no file or a damaged one, which is set aside and named.

    leave: arrays that are checked and not kept. mapped: arrays stay in the file, read-only, and memory is taken for
    what is looked at; a file that is replaced or removed meanwhile goes on to be what it was. Raises StorageError.
    """
    try:
        with path.open("rb") as f:
            return _checked(f, key, leave, mapped)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise StorageError(f"{path}: cannot be read: {fault.strerror or fault}") from fault
    except ValueError as fault:
        _set_aside(path, fault)
        return None


def _checked(f: BufferedReader, key: str, leave: Collection[str], mapped: bool) -> Contents:
    length = int.from_bytes(f.read(8), "little")
    size = os.fstat(f.fileno()).st_size
    if not len(_START) < length <= size - 8:
        raise ValueError("it is cut short")
    text = f.read(length)
    try:
        header = json.loads(text)
        facts = header.pop("__metadata__")
        places = {
            name: Place(_DTYPES[at["dtype"]], tuple(map(index, at["shape"])), 8 + length + index(at["data_offsets"][0]))
            for name, at in header.items()
        }
        if facts["format"] != _FORMAT or facts["key"] != key:
            raise ValueError("its format or key is not the one expected")
        meta = json.loads(facts["meta"])
    except (AttributeError, KeyError, TypeError, RecursionError) as fault:
        raise ValueError("its header is not ours") from fault
    at = len(_START)
    digest = hashlib.blake2b(text[:at] + _ZEROS + text[at + 32 :], digest_size=16)
    arrays, end = {}, 8 + length
    for name, place in places.items():
        if place.offset != end or end + place.size > size:
            raise ValueError("its arrays are not where its header says")
        end += place.size
        if mapped or name in leave:
            for block in _blocks(f, place.size):
                digest.update(block)
        else:
            arrays[name] = np.empty(place.shape, place.dtype)
            f.readinto(data := _bytes(arrays[name]))
            digest.update(data)
    if end != size or text[at : at + 32] != digest.hexdigest().encode():
        raise ValueError("its digest is not the one expected")
    if mapped:
        arrays = {name: _mapped(f, place) for name, place in places.items()}
    return Contents(arrays, meta, places)


def _mapped(f: BufferedReader, place: Place) -> Array:
    if not place.size:  # nothing cannot be mapped
        return np.empty(place.shape, place.dtype)
    return np.asarray(np.memmap(f, place.dtype, "r", place.offset, place.shape))


def _blocks(f: BufferedReader, size: int) -> Iterator[memoryview]:
    buffer = memoryview(bytearray(min(size, BLOCK)))
    while size > 0:
        count = f.readinto(buffer[:size])
        if not count:
            return
        yield buffer[:count]
        size -= count


def _bytes(array: Array) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _set_aside(path: Path, fault: Exception) -> None:
    aside = path.with_suffix(f".{uuid.uuid4().hex[:8]}.bad")
    try:
        path.replace(aside)
    except FileNotFoundError:  # another process was faster
        return
    except OSError as stuck:
        raise StorageError(f"{path}: is damaged and cannot be set aside: {stuck.strerror}") from stuck
    _log.warning("damaged artifact %s set aside as %s and built again (%s)", path, aside.name, fault)
