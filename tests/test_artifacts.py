"""The store: whole files or none, damage set aside, one builder a key."""

import errno
import hashlib
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from safetensors import safe_open

from sweep import artifacts
from sweep.artifacts import Artifact, Store, array_file, digest_texts, fingerprint
from sweep.artifacts.array_file import Array
from sweep.errors import StorageError

KEY, OTHER = "a" * 32, "b" * 32


def three() -> Artifact:
    return Artifact({"x": np.arange(3, dtype=np.int32), "y": np.ones((2, 2), np.float32)}, {"ms": 1.5})


def path_of(store: Store, key: str = KEY) -> Path:
    return store.root / "stage" / f"{key}.safetensors"


def files(store: Store) -> list[Path]:
    """Every file but locks, hidden ones too."""
    return sorted(p for p in store.root.rglob("*") if p.is_file() and p.suffix != ".lock")


def test_what_was_put_is_found_again(store: Store) -> None:
    store.put("stage", KEY, three())
    found = store.get("stage", KEY)
    assert found is not None
    assert found.meta == {"ms": 1.5}
    assert {n: (a.dtype, a.tolist()) for n, a in found.arrays.items()} == {
        n: (a.dtype, a.tolist()) for n, a in three().arrays.items()
    }
    assert store.get("stage", OTHER) is None
    assert store.get("elsewhere", KEY) is None


ARRAYS = {
    "empty": np.empty((0, 4), np.float32),
    "strided": np.arange(24).reshape(4, 6)[:, ::2],
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "bool": np.array([True, False]),
    "one number": np.array(7, np.uint16),
    "long": np.arange(400_000, dtype=np.int64),
}


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_any_array_comes_back_as_it_was(store: Store, array: Array, mapped: bool) -> None:
    store.put("stage", KEY, Artifact({"x": array, "byte": np.ones(1, np.uint8)}))
    found = store.get("stage", KEY, mapped=mapped)
    assert found is not None
    np.testing.assert_array_equal(found["x"], array)
    assert (found["x"].dtype, found["x"].shape) == (array.dtype, array.shape)
    assert found["x"].flags.aligned
    assert found["byte"].tolist() == [1]


def test_a_number_of_the_other_byte_order_comes_back_in_ours(store: Store) -> None:
    store.put("stage", KEY, Artifact({"x": np.array([1, 256], ">i4")}))
    found = store.get("stage", KEY)
    assert found is not None
    assert (found["x"].dtype, found["x"].tolist()) == (np.dtype("<i4"), [1, 256])


def test_the_files_are_safetensors(store: Store) -> None:  # by the library of that name
    store.put("stage", KEY, Artifact(ARRAYS, {"ms": 1.5}))
    with safe_open(path_of(store), framework="numpy") as f:
        assert f.metadata()["key"] == KEY
        assert set(f.keys()) == set(ARRAYS)
        for name, array in ARRAYS.items():
            np.testing.assert_array_equal(f.get_tensor(name), array)


def test_mapped_arrays_stay_what_they_were(store: Store) -> None:
    store.put("stage", KEY, three())
    found, built = store.get_or_build("stage", KEY, three, mapped=True)
    assert not built
    store.put("stage", KEY, Artifact({"x": np.zeros(3, np.int32), "y": np.zeros((2, 2), np.float32)}))
    path_of(store).unlink()
    assert found["x"].tolist() == [0, 1, 2]
    assert found["y"].tolist() == [[1, 1], [1, 1]]
    with pytest.raises(ValueError, match="read-only"):
        found["x"][0] = 1


def test_the_last_writer_wins_and_leaves_one_file(store: Store) -> None:
    store.put("stage", KEY, three())
    store.put("stage", KEY, Artifact({"x": np.zeros(1)}))
    found = store.get("stage", KEY)
    assert found is not None
    assert list(found.arrays) == ["x"]
    assert files(store) == [path_of(store)]


def half(store: Store) -> bytes:
    return path_of(store).read_bytes()[: path_of(store).stat().st_size // 2]


def another_key(store: Store) -> bytes:
    store.put("stage", OTHER, three())
    content = path_of(store, OTHER).read_bytes()
    path_of(store, OTHER).unlink()
    return content


def another_format(store: Store) -> bytes:
    with mock.patch.object(array_file, "_FORMAT", "retrieval-sweep 0"):
        store.put("stage", KEY, three())
    return path_of(store).read_bytes()


def one_bit(store: Store) -> bytes:
    content = bytearray(path_of(store).read_bytes())
    content[-1] ^= 1
    return bytes(content)


DAMAGE: dict[str, Callable[[Store], bytes]] = {
    "half": half,
    "zero bytes": lambda _: b"",
    "another key": another_key,
    "another format": another_format,
    "one bit": one_bit,
    "one byte more": lambda store: path_of(store).read_bytes() + b"\0",
    "ones": lambda _: b"\xff" * 200,
    "not ours": lambda _: b"PK\x03\x04 and so on",
}
DAMAGES = pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)


@DAMAGES
def test_a_damaged_file_is_set_aside_and_built_again(  # CASES S21
    store: Store, caplog: pytest.LogCaptureFixture, damage: Callable[[Store], bytes]
) -> None:
    store.put("stage", KEY, three())
    path_of(store).write_bytes(bad := damage(store))
    with caplog.at_level(logging.WARNING):
        found, built = store.get_or_build("stage", KEY, three)
        again, rebuilt = store.get_or_build("stage", KEY, three)
    assert (built, rebuilt) == (True, False)
    assert found["x"].tolist() == again["x"].tolist() == [0, 1, 2]
    aside = [p for p in files(store) if p != path_of(store)]
    assert [p.suffix for p in aside] == [".bad"]
    assert aside[0].read_bytes() == bad
    assert len(caplog.records) == 1
    assert str(path_of(store)) in caplog.text


def test_a_change_of_any_byte_is_seen(store: Store) -> None:
    store.put("stage", KEY, three())
    content = path_of(store).read_bytes()
    for at in range(len(content)):
        for bit in (1, 128):
            bad = bytearray(content)
            bad[at] ^= bit
            path_of(store).write_bytes(bad)
            assert store.get("stage", KEY, mapped=bit == 1) is None, (at, bit)
    path_of(store).write_bytes(content)
    assert store.get("stage", KEY) is not None


def test_a_header_that_promises_too_much_takes_no_memory(store: Store) -> None:
    store.put("stage", KEY, three())
    content = path_of(store).read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    for shape in (b"[3e9]", b"[10000000000000000]", b"[-3]"):
        assert b'"shape":[3]' in content[8:end]
        header = content[8:end].replace(b'"shape":[3]', b'"shape":' + shape)
        path_of(store).write_bytes(len(header).to_bytes(8, "little") + header + content[end:])
        assert store.get("stage", KEY) is None


def test_a_damaged_file_that_another_process_has_just_set_aside_is_no_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("stage", KEY, three())
    path_of(store).write_bytes(b"")
    replace = Path.replace

    def too_late(path: Path, target: Path) -> Path:
        path.unlink()
        return replace(path, target)

    monkeypatch.setattr(Path, "replace", too_late)
    assert store.get("stage", KEY) is None


@pytest.mark.parametrize("stage", ["flush", "rename"])
def test_a_full_disk_is_named_and_leaves_what_was_there(
    store: Store, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    store.put("stage", KEY, three())

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    target = {"flush": "os.fsync", "rename": "pathlib.Path.replace"}[stage]
    monkeypatch.setattr(target, full)
    with pytest.raises(StorageError, match=rf"{KEY}.*No space left on device"):
        store.put("stage", KEY, Artifact({"x": np.zeros(9)}))
    monkeypatch.undo()
    unharmed(store)


def test_a_write_that_fails_half_way_leaves_what_was_there(store: Store) -> None:
    resource = pytest.importorskip("resource")
    store.put("stage", KEY, three())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))  # the longest file that may be written, bytes
    try:
        with pytest.raises(StorageError, match=rf"{KEY}.*cannot be written: File too large"):
            store.put("stage", KEY, Artifact({"x": np.zeros(9_000)}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    unharmed(store)


def unharmed(store: Store) -> None:
    found = store.get("stage", KEY)
    assert found is not None
    assert found["x"].tolist() == [0, 1, 2]
    assert files(store) == [path_of(store)]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        Store(tmp_path / "file").put("stage", KEY, three())
    with pytest.raises(StorageError, match="file"):
        Store(tmp_path / "file").get_or_build("stage", KEY, three)


def refuse(*_: object, **__: object) -> None:
    raise PermissionError(errno.EACCES, "Permission denied")


def test_a_folder_that_may_only_be_read_is_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("stage", KEY, three())
    for name in ("utime", "mkdir", "unlink", "replace"):  # not by its mode: who runs the tests may be root
        monkeypatch.setattr(os, name, refuse)
    found, built = store.get_or_build("stage", KEY, three)
    assert not built
    assert found["x"].tolist() == [0, 1, 2]
    with pytest.raises(StorageError, match=r"locks.*cannot be written: Permission denied"):
        store.get_or_build("stage", OTHER, three)


def test_reading_marks_as_used(store: Store) -> None:
    store.put("stage", KEY, three())
    os.utime(path_of(store), (1000, 1000))
    store.get("stage", OTHER)
    assert path_of(store).stat().st_mtime == 1000
    store.get("stage", KEY)
    assert path_of(store).stat().st_mtime > 1_000_000_000


def test_a_failed_build_lets_go_of_its_key(store: Store) -> None:
    def fails() -> Artifact:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        store.get_or_build("stage", KEY, fails)
    assert store.get_or_build("stage", KEY, three)[1]


BUILD = """
import os, sys, time
from pathlib import Path
import numpy as np
from sweep.artifacts import Artifact, Store

def build():
    time.sleep(0.05)
    return Artifact({"worker": np.full(200_000, os.getpid())})

print("ready", flush=True)
sys.stdin.readline()
found, built = Store(Path(sys.argv[1])).get_or_build("stage", "a" * 32, build)
print(os.getpid(), int(built), *set(found["worker"].tolist()))
"""


def build_together(root: Path, count: int) -> None:
    """Let processes ask for one key at the same moment; one builds it and all have what it built."""
    command = [sys.executable, "-c", BUILD, str(root)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    workers = [subprocess.Popen(command, text=True, **pipes) for _ in range(count)]  # type: ignore[call-overload]
    for worker in workers:
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    told = [worker.communicate(timeout=60) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * count, told
    found = [list(map(int, out.split())) for out, _ in told]
    (builder,) = (process for process, built, _ in found if built)
    assert {worker for _, _, worker in found} == {builder}


def test_sixteen_processes_build_a_key_once(store: Store) -> None:  # CASES S21
    build_together(store.root, 16)
    assert files(store) == [path_of(store)]


def test_processes_that_meet_a_damaged_file_together_all_finish(store: Store) -> None:
    store.put("stage", KEY, three())
    path_of(store).write_bytes(path_of(store).read_bytes()[:-3])
    build_together(store.root, 4)
    assert [p for p in files(store) if p.suffix != ".bad"] == [path_of(store)]
    assert store.get("stage", KEY) is not None


def test_digests_depend_on_text_and_prefix_and_nothing_else() -> None:
    texts = ["", "a", "ab", "é", "\ud800", "a\0"]
    assert len(set(digest_texts(texts).tolist()) | set(digest_texts(texts, "p\0").tolist())) == 2 * len(texts)
    assert digest_texts(texts[::-1]).tolist() == digest_texts(texts).tolist()[::-1]
    assert digest_texts([]).shape == (0,)


def test_fingerprints_are_the_same_everywhere() -> None:
    assert fingerprint({"b": 1, "a": [None, "é"]}) == fingerprint({"a": [None, "é"], "b": 1})
    assert fingerprint("a", "b") != fingerprint("ab") != fingerprint(["a", "b"])
    by_hand = hashlib.blake2b(f'[{artifacts.CODE},"a",1]'.encode(), digest_size=16).hexdigest()
    assert fingerprint("a", 1) == by_hand
    with pytest.raises(ValueError, match="JSON compliant"):
        fingerprint(float("nan"))
