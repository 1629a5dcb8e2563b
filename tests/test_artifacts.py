"""The store: whole files or none, damage set aside, one builder a key."""

import errno
import hashlib
import logging
import multiprocessing
from collections.abc import Callable
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest

from sweep import artifacts
from sweep.artifacts import Artifact, Store, digest_texts, fingerprint
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
}


@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
def test_any_array_comes_back_as_it_was(store: Store, array: artifacts.Array) -> None:
    store.put("stage", KEY, Artifact({"x": array}))
    found = store.get("stage", KEY)
    assert found is not None
    np.testing.assert_array_equal(found["x"], array)
    assert found["x"].dtype == array.dtype


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
    content = path_of(store).read_bytes()
    changed = content.replace(b"retrieval-sweep 1", b"retrieval-sweep 0")
    assert changed != content
    return changed


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


@pytest.mark.parametrize("stage", ["write", "flush", "rename"])
def test_a_full_disk_is_named_and_leaves_what_was_there(
    store: Store, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    store.put("stage", KEY, three())

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    target = {"write": "safetensors.numpy.save_file", "flush": "os.fsync", "rename": "pathlib.Path.replace"}[stage]
    monkeypatch.setattr(target, full)
    with pytest.raises(StorageError, match=rf"{KEY}.*No space left on device"):
        store.put("stage", KEY, Artifact({"x": np.zeros(9)}))
    monkeypatch.undo()
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


def test_a_failed_build_lets_go_of_its_key(store: Store) -> None:
    def fails() -> Artifact:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        store.get_or_build("stage", KEY, fails)
    assert store.get_or_build("stage", KEY, three)[1]


def build_one(root: Path, worker: int, start: Barrier, done: "Queue[tuple[bool, int, set[int]]]") -> None:
    """Run in another process: wait for the others, then ask for the same key."""
    built_here: list[int] = []

    def build() -> Artifact:
        built_here.append(worker)
        return Artifact({"worker": np.full(200_000, worker)})

    start.wait()
    found, built = Store(root).get_or_build("stage", KEY, build)
    done.put((built, len(built_here), set(found["worker"].tolist())))


def build_together(root: Path, count: int) -> list[tuple[bool, int, set[int]]]:
    spawn = multiprocessing.get_context("spawn")
    start, done = spawn.Barrier(count), spawn.Queue()
    workers = [spawn.Process(target=build_one, args=(root, i, start, done)) for i in range(count)]
    for worker in workers:
        worker.start()
    results = [done.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * count
    return results


def test_eight_processes_build_a_key_once(store: Store) -> None:  # CASES S21
    results = build_together(store.root, 8)
    assert sum(built for built, _, _ in results) == sum(count for _, count, _ in results) == 1
    assert len({frozenset(seen) for _, _, seen in results}) == 1
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
