"""The growing table of rows: a dictionary from digest to row, whoever else writes to it."""

import multiprocessing
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.artifacts import Array, Rows, Store, digest_texts

KEY = "a" * 32


def segments(store: Store) -> set[Path]:
    return set((store.root / "stage" / KEY).iterdir())


digests = st.lists(st.binary(min_size=16, max_size=16) | st.integers(0, 3).map(lambda n: bytes(15) + bytes([n])))
steps = st.lists(st.tuples(st.sampled_from(["append", "find", "compact", "reopen"]), digests), max_size=12)


def void(keys: list[bytes]) -> Array:
    return np.frombuffer(b"".join(keys), "V16") if keys else np.empty(0, "V16")


@settings(max_examples=60, deadline=None)
@given(steps)
def test_rows_behave_as_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, history: list[tuple[str, list[bytes]]]
) -> None:
    store = Store(tmp_path_factory.mktemp("rows"))
    rows, oracle = store.rows("stage", KEY), dict[bytes, float]()
    for act, keys in history:
        if act == "append":
            new = [k for k in dict.fromkeys(keys) if k not in oracle]
            values = np.arange(len(oracle), len(oracle) + len(new), dtype=np.float32)
            rows.append(void(new), np.stack([values, -values], axis=1))
            oracle.update(zip(new, values.tolist(), strict=True))
        elif act == "compact":
            with rows.exclusive():
                rows.compact()
        elif act == "reopen":
            rows = store.rows("stage", KEY)
        asked = [*keys, *oracle]
        position = rows.find(void(asked))
        assert (position >= 0).tolist() == [k in oracle for k in asked]
        taken = rows.take(position[position >= 0])
        assert taken.flags.c_contiguous
        assert taken.tolist() == [[oracle[k], -oracle[k]] for k in asked if k in oracle]


def test_many_random_digests_are_all_found(store: Store) -> None:
    generator = np.random.default_rng(3)
    raw = generator.integers(0, 256, (20_000, 16), np.uint8)
    raw[generator.random(raw.shape) < 0.2] = 0  # zero bytes: the end of a string to a careless comparison
    known = np.unique(raw, axis=0).view("V16").reshape(-1)
    known = known[generator.permutation(len(known))]
    rows = store.rows("stage", KEY)
    for part in np.array_split(np.arange(len(known)), 7):
        rows.append(known[part], part[:, None].astype(np.float32))
    assert rows.take(rows.find(known))[:, 0].tolist() == list(range(len(known)))
    strange = generator.integers(0, 256, (1000, 16), np.uint8).view("V16").reshape(-1)
    assert (rows.find(strange) == -1).all()


def test_compact_leaves_one_file_and_positions_that_hold(store: Store) -> None:
    rows = store.rows("stage", KEY)
    keys = digest_texts([str(i) for i in range(6)])
    for i in range(6):
        rows.append(keys[i : i + 1], np.full((1, 3), i, np.float32))
    before = rows.find(keys)
    rows.compact()
    assert len(segments(store)) == 1
    assert rows.find(keys).tolist() == before.tolist()
    assert store.rows("stage", KEY).take(store.rows("stage", KEY).find(keys))[:, 0].tolist() == [0, 1, 2, 3, 4, 5]


def test_two_tables_open_at_once_see_each_others_rows(store: Store) -> None:
    one, two = (Rows(store, "stage", KEY) for _ in range(2))
    keys = digest_texts(["a", "b"])
    one.append(keys[:1], np.ones((1, 2), np.float32))
    assert (two.find(keys) >= 0).tolist() == [True, False]
    two.append(keys[1:], np.zeros((1, 2), np.float32))
    with one.exclusive():
        one.compact()
    for rows in (one, two, Rows(store, "stage", KEY)):
        assert rows.take(rows.find(keys)).tolist() == [[1, 1], [0, 0]]


def test_compact_keeps_what_another_process_appends_meanwhile(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = (Rows(store, "stage", KEY) for _ in range(2))
    keys = digest_texts(["a", "b", "c"])
    for i in (0, 1):
        one.append(keys[i : i + 1], np.full((1, 2), i, np.float32))
    joined = one._joined

    def and_then_another_appends() -> tuple[Array, Array]:
        found = joined()
        two.append(keys[2:], np.full((1, 2), 2, np.float32))
        return found

    monkeypatch.setattr(one, "_joined", and_then_another_appends)
    one.compact()
    rows = Rows(store, "stage", KEY)
    assert rows.take(rows.find(keys))[:, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("damage", ["half", "zero bytes", "another segment"])
def test_a_damaged_segment_loses_its_own_rows_only(store: Store, damage: str) -> None:
    rows, keys = store.rows("stage", KEY), digest_texts(["a", "b"])
    rows.append(keys[:1], np.ones((1, 2), np.float32))
    (kept,) = segments(store)
    rows.append(keys[1:], np.zeros((1, 2), np.float32))
    (torn,) = segments(store) - {kept}
    content = {"half": torn.read_bytes()[:100], "zero bytes": b"", "another segment": kept.read_bytes()}[damage]
    torn.write_bytes(content)
    rows = store.rows("stage", KEY)
    assert (rows.find(keys) >= 0).tolist() == [True, False]
    assert torn not in segments(store)


def append_some(root: Path, worker: int, start: Barrier) -> None:
    """Run in another process: append a few segments to the same table, and join them."""
    rows = Store(root).rows("stage", KEY)
    start.wait()
    for at in range(5):
        rows.append(digest_texts([f"{worker} {at}"]), np.full((1, 2), 10 * worker + at, np.float32))
    with rows.exclusive():
        rows.compact()


def test_processes_that_append_and_join_at_once_lose_nothing(store: Store) -> None:
    spawn = multiprocessing.get_context("spawn")
    start = spawn.Barrier(4)
    workers = [spawn.Process(target=append_some, args=(store.root, i, start)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * 4
    rows = store.rows("stage", KEY)
    position = rows.find(digest_texts([f"{w} {at}" for w in range(4) for at in range(5)]))
    assert rows.take(position)[:, 0].tolist() == [10 * w + at for w in range(4) for at in range(5)]
