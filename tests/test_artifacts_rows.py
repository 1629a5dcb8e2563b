"""The growing table of rows: a dictionary from digest to row, whoever else writes to it, and whoever is killed."""

import logging
import multiprocessing
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.artifacts import Rows, Store, digest_texts
from sweep.artifacts.array_file import Array, read
from sweep.errors import StorageError

KEY = "a" * 32
Compute = Callable[[Array], Iterator[tuple[Array, Array]]]


def segments(store: Store) -> set[Path]:
    return set((store.root / "stage" / KEY).iterdir())


def value(digests: Array, width: int = 2) -> Array:
    """The row of a digest: made from its bytes."""
    raw = np.ascontiguousarray(digests).view(np.uint8).reshape(-1, 16).astype(np.float32)
    return np.ascontiguousarray(np.tile(raw, -(-width // 16))[:, :width])


def compute(digests: Array, lot: int = 3, width: int = 2, after: Callable[[int], None] = lambda done: None) -> Compute:
    """What `fill` wants: rows in lots; `after` is told how many are stored."""

    def made(missing: Array) -> Iterator[tuple[Array, Array]]:
        for at in range(0, len(missing), lot):
            chosen = missing[at : at + lot]
            yield chosen, value(digests[chosen], width)
            after(at + len(chosen))

    return made


def put(rows: Rows, digests: Array, lot: int = 3) -> int:
    """Fill; check the rows; return how many were computed."""
    found, missing = rows.fill(digests, compute(digests, lot))
    assert found.flags.c_contiguous
    if len(digests):
        np.testing.assert_array_equal(found, value(digests))
    return len(missing)


def void(keys: list[bytes]) -> Array:
    return np.frombuffer(b"".join(keys), "V16") if keys else np.empty(0, "V16")


keys = st.lists(st.binary(min_size=16, max_size=16) | st.integers(0, 40).map(lambda n: bytes(15) + bytes([n])))
steps = st.lists(st.tuples(st.sampled_from(["fill", "ask", "other", "lose"]), keys), max_size=12)


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(1, 4))
def test_rows_behave_as_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, list[bytes]]], lot: int
) -> None:
    store = Store(tmp_path_factory.mktemp("rows"))
    rows, oracle = store.rows("stage", KEY), set[bytes]()
    for act, asked in history:
        if act in ("fill", "other"):  # another object is another process' view
            computed = put(rows if act == "fill" else store.rows("stage", KEY), void(asked), lot)
            assert computed == len(set(asked) - oracle)
            oracle |= set(asked)
        elif act == "lose" and oracle:
            path = min(segments(store))
            gone = read(path, f"{KEY}/{path.stem}")
            assert gone is not None
            oracle -= {bytes(digest) for digest in gone.arrays["digests"]}
            path.unlink()
        every = [*asked, *oracle]
        assert rows.contains(void(every)).tolist() == [k in oracle for k in every]
        taken = rows.take(void(every))
        assert (taken is not None) == (set(every) <= oracle)
        if taken is not None and every:
            np.testing.assert_array_equal(taken, value(void(every)))


def random_digests(count: int, seed: int = 3) -> Array:
    generator = np.random.default_rng(seed)
    raw = generator.integers(0, 256, (count, 16), np.uint8)
    raw[generator.random(raw.shape) < 0.2] = 0  # zero bytes: the end of a string to a careless comparison
    return generator.permutation(np.unique(raw, axis=0)).view("V16").reshape(-1)


def test_many_random_digests_are_all_found(store: Store) -> None:
    known, rows = random_digests(20_000), store.rows("stage", KEY)
    for part in np.array_split(known, 7):
        assert put(rows, part, 500) == len(part)
    for view in (rows, store.rows("stage", KEY)):
        np.testing.assert_array_equal(view.take(known[::-1]), value(known[::-1]))
        assert not view.contains(random_digests(1000, 4)).any()


def test_long_rows_are_read_across_blocks(store: Store) -> None:
    known = random_digests(3000)  # 3000 rows of 400 numbers: 4.8 MB
    store.rows("stage", KEY).fill(known, compute(known, 1000, 400))
    some = np.random.default_rng(1).permutation(known)[:700]
    np.testing.assert_array_equal(store.rows("stage", KEY).take(some), value(some, 400))


def test_the_files_are_few_and_a_row_is_rarely_written_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    rows, known = store.rows("stage", KEY), random_digests(2000)
    add = rows._add

    def count(digests: Array, values: Any) -> None:
        written.append(len(digests))
        add(digests, values)

    monkeypatch.setattr(rows, "_add", count)
    most = 0
    for at in range(0, len(known), 40):
        put(rows, known[at : at + 40], 1)
        most = max(most, len(segments(store)))
    assert most <= 4 * 7  # classes of 1, 8, 64 and 512 rows
    assert sum(written) <= 2000 * 4  # once for each class, however many fills there were
    assert len(segments(Store(store.root))) < 28


def test_a_segment_that_was_left_beside_its_merger_does_no_harm(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, known = store.rows("stage", KEY), random_digests(64)

    def killed(path: Path, missing_ok: bool = False) -> None:
        if path.suffix == ".safetensors":
            raise KeyboardInterrupt

    for at in range(7):
        put(rows, known[at : at + 1])
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", killed)
        with pytest.raises(KeyboardInterrupt):
            put(rows, known[7:8])
    assert len(segments(store)) == 9  # eight and their merger
    rows = store.rows("stage", KEY)
    assert put(rows, known[:8]) == 0
    for at in range(8, 64):
        put(rows, known[at : at + 1])
    assert sum(len(s) for s in rows._segments.values()) == 64  # the second rows went in a later merger


@pytest.mark.parametrize("when", ["before it is looked for", "before it is read"])
def test_a_reader_does_not_mind_that_segments_are_merged(
    store: Store, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    reader, writer, known = store.rows("stage", KEY), store.rows("stage", KEY), random_digests(8)
    for at in range(7):
        put(writer, known[at : at + 1])
    assert reader.contains(known[:7]).all()
    read = reader._read

    def late(position: Array) -> Array:
        if len(segments(store)) > 1:
            put(writer, known[7:])  # the eighth: all are merged
        return read(position)

    if when == "before it is read":
        monkeypatch.setattr(reader, "_read", late)
    else:
        put(writer, known[7:])
    np.testing.assert_array_equal(reader.take(known[:7]), value(known[:7]))
    assert len(segments(store)) == 1


def test_rows_that_are_removed_while_they_are_read_are_computed_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, known = store.rows("stage", KEY), random_digests(8)
    put(rows, known)
    read, left = rows._read, [1]

    def late(position: Array) -> Array:
        if left.pop() if left else 0:
            for path in segments(store):
                path.unlink()
        return read(position)

    monkeypatch.setattr(rows, "_read", late)
    assert put(rows, known) == 8


DAMAGE: dict[str, Callable[[bytes, bytes], bytes]] = {
    "half": lambda torn, kept: torn[: len(torn) // 2],
    "zero bytes": lambda torn, kept: b"",
    "zeros": lambda torn, kept: bytes(len(torn)),
    "zeros at the end": lambda torn, kept: torn[:-8] + bytes(8),
    "another segment": lambda torn, kept: kept,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_segment_loses_its_own_rows_only(  # CASES S21
    store: Store, caplog: pytest.LogCaptureFixture, damage: Callable[[bytes, bytes], bytes]
) -> None:
    rows, known = store.rows("stage", KEY), random_digests(10)
    put(rows, known[:4], 4)
    (kept,) = segments(store)
    put(rows, known[4:], 6)
    (torn,) = segments(store) - {kept}
    torn.write_bytes(damage(torn.read_bytes(), kept.read_bytes()))
    rows = store.rows("stage", KEY)
    with caplog.at_level(logging.WARNING):
        assert rows.contains(known).tolist() == [True] * 4 + [False] * 6
        assert put(rows, known) == 6
        assert put(store.rows("stage", KEY), known) == 0
    assert torn not in segments(store)
    assert [record.message.split()[:2] for record in caplog.records] == [["damaged", "artifact"]]


def test_a_segment_that_is_cut_short_in_use_is_named(store: Store) -> None:
    rows, known = store.rows("stage", KEY), random_digests(4)
    put(rows, known, 4)
    (path,) = segments(store)
    path.write_bytes(path.read_bytes()[:-80])
    with pytest.raises(StorageError, match=f"{KEY}: cannot be read: it was cut short"):
        rows.take(known)


def test_rows_of_another_width_are_refused(store: Store) -> None:
    rows, known = store.rows("stage", KEY), random_digests(6)
    put(rows, known[:3])
    with pytest.raises(StorageError, match="holds rows of 2 numbers, not 5"):
        rows.fill(known, compute(known, width=5))
    assert put(rows, known) == 3


def test_rows_that_were_not_computed_are_an_error(store: Store) -> None:
    known = random_digests(6)
    with pytest.raises(StorageError, match="run it again"):
        store.rows("stage", KEY).fill(known, lambda missing: [(missing[:2], value(known[missing[:2]]))])


def test_reading_marks_the_segments_that_were_read(store: Store) -> None:
    rows, known = store.rows("stage", KEY), random_digests(20)
    put(rows, known[:4], 4)
    (first,) = segments(store)
    put(rows, known[4:], 16)
    for path in segments(store):
        os.utime(path, (1000, 1000))
    rows.contains(known)
    rows.take(known[1:3])
    assert {path for path in segments(store) if path.stat().st_mtime > 1000} == {first}


# ------------------------------------------------------------------ processes


def fill_in_turn(root: Path, worker: int, start: Barrier, done: "Queue[int]") -> None:
    """Run in another process: fill parts of one table, each worker in an order of its own; tell the rows computed."""
    rows, known = Store(root).rows("stage", KEY), random_digests(300)
    parts = np.array_split(known, 6)
    random.Random(worker).shuffle(parts)
    start.wait()
    done.put(sum(put(rows, part, 2) for part in parts))


def test_processes_that_fill_and_merge_at_once_compute_each_row_once(store: Store) -> None:
    spawn = multiprocessing.get_context("spawn")
    start, done = spawn.Barrier(4), spawn.Queue()
    workers = [spawn.Process(target=fill_in_turn, args=(store.root, i, start, done)) for i in range(4)]
    for worker in workers:
        worker.start()
    counts = [done.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    known = random_digests(300)
    assert sum(counts) == len(known)
    assert put(store.rows("stage", KEY), known) == 0
    assert {path.suffix for path in segments(store)} == {".safetensors"}


FILL = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_artifacts_rows import KEY, compute, random_digests
from sweep.artifacts import Store
known = random_digests(int(sys.argv[3]))
Store(Path(sys.argv[1])).rows("stage", KEY).fill(known, compute(known, 2, after=lambda n: print(n, flush=True)))
"""


def filling(store: Store, count: int) -> "subprocess.Popen[str]":
    """Start a process that fills `count` rows, two a lot, and says how many are stored."""
    arguments = [sys.executable, "-c", FILL, str(store.root), str(Path(__file__).parent), str(count)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("said", [1, 7, 50, 203])
def test_a_killed_process_loses_one_lot_at_most(store: Store, said: int) -> None:
    known = random_digests(100_000)
    with filling(store, 100_000) as process:
        assert process.stdout is not None
        stored = [int(process.stdout.readline()) for _ in range(said)][-1]
        process.kill()  # SIGKILL
        stored = max([stored, *(int(line) for line in process.stdout.read().splitlines(keepends=True) if "\n" in line)])
    assert process.returncode == -9
    rows = store.rows("stage", KEY)
    assert rows.contains(known[:stored]).all()
    assert not rows.contains(known[stored + 2 :]).any()
    assert put(rows, known[: stored + 20]) in (18, 20)


def test_who_waits_for_a_process_that_dies_goes_on_in_its_place(store: Store) -> None:
    known = random_digests(20_000)[:40]
    with filling(store, 20_000) as process:
        assert process.stdout is not None
        process.stdout.readline()
        computed: list[int] = []
        waiting = threading.Thread(target=lambda: computed.append(put(store.rows("stage", KEY), random_digests(9, 8))))
        waiting.start()
        waiting.join(0.2)
        assert not computed
        process.kill()
        waiting.join(30)
    assert computed == [9]
    assert store.rows("stage", KEY).contains(known[:2]).all()


def test_a_reader_of_what_is_stored_never_misses_it(store: Store) -> None:
    early = random_digests(100, 9)
    put(store.rows("stage", KEY), early, 1)
    count = 0
    with filling(store, 1500) as process:
        reader = store.rows("stage", KEY)
        while process.poll() is None:
            np.testing.assert_array_equal(reader.take(early), value(early))
            count += 1
    assert (process.returncode, count > 0) == (0, True)


PEAK = """
import sys
from pathlib import Path
import numpy as np
from sweep.artifacts import Store
def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
known, before = np.load(sys.argv[2]).view("V16").reshape(-1), peak()
assert Store(Path(sys.argv[1])).rows("stage", "a" * 32).take(known) is not None
print(peak() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory that a process took from /proc")
def test_a_table_is_not_held_in_memory(store: Store, tmp_path: Path) -> None:
    known = random_digests(40_000)  # 61 MB of rows
    store.rows("stage", KEY).fill(known, compute(known, 10_000, 384))
    np.save(tmp_path / "some.npy", known[::40].copy().view(np.uint8).reshape(-1, 16))  # 1.5 MB of them
    arguments = [sys.executable, "-c", PEAK, str(store.root), str(tmp_path / "some.npy")]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) < 15_000  # kB


def test_no_digests_are_no_rows(store: Store) -> None:
    rows = store.rows("stage", KEY)
    assert rows.fill(digest_texts([]), lambda missing: pytest.fail("nothing is missing"))[0].shape == (0, 0)
    put(rows, random_digests(3))
    assert rows.fill(digest_texts([]), lambda missing: pytest.fail("nothing is missing"))[0].shape == (0, 2)
