"""`sweep cache`: what there is, what goes first, what is left alone, and that nobody is hurt by it."""

import json
import os
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_workspace import Workspace

from sweep.artifacts import Artifact, Store
from sweep.artifacts.cache import Pruned, prune, usage
from sweep.artifacts.files import locked
from sweep.errors import InputError, StorageError
from sweep.present.caching import info_lines, parse_size, prune_lines

TABLE = "f" * 32
NOW = time.time()
DAY = 86_400


def key(number: int) -> str:
    return f"{number:032x}"


def put(store: Store, stage: str, number: int, days: float, count: int = 1000) -> Path:
    """Store an artifact of `count` bytes and a header, last used so many days ago."""
    store.put(stage, key(number), Artifact({"x": np.zeros(count, np.uint8)}))
    return aged(store.root / stage / f"{key(number)}.safetensors", days)


def aged(path: Path, days: float) -> Path:
    os.utime(path, (NOW - days * DAY,) * 2)
    return path


def segment(store: Store, start: int, days: float, count: int = 100, table: str = TABLE) -> Path:
    """Add rows to a table of the stage `vectors`; return their segment, last used so many days ago."""
    folder = store.root / "vectors" / table
    before = set(folder.glob("*"))
    fill(store, start, count, table)
    (made,) = set(folder.glob("*")) - before
    return aged(made, days)


def fill(store: Store, start: int, count: int = 100, table: str = TABLE) -> int:
    """Ask for rows; check them; return how many were computed."""
    digests = np.zeros((count, 2), ">i8")
    digests[:, 0] = np.arange(start, start + count)
    whole = digests[:, :1].astype(np.float32)
    rows, missing = store.rows("vectors", table).fill(digests.view("V16").reshape(-1), lambda m: [(m, whole[m])])
    assert rows.tolist() == whole.tolist()
    return len(missing)


def left(store: Store) -> set[Path]:
    return {path for path in store.root.rglob("*") if path.is_file()}


def test_use_is_told_by_stage(store: Store) -> None:
    sizes = [put(store, "chunks", n, days).stat().st_size for n, days in enumerate((3, 1, 2))]
    segments = [segment(store, 0, 5), segment(store, 1000, 4)]
    stages, leftovers = usage(store.root)
    assert list(stages) == ["chunks", "vectors"]
    assert stages["chunks"] == (3, sum(sizes), pytest.approx(NOW - DAY, abs=1))
    assert stages["vectors"] == (2, sum(s.stat().st_size for s in segments), pytest.approx(NOW - 4 * DAY, abs=1))
    assert leftovers == (0, 0)
    assert usage(store.root / "absent") == ({}, (0, 0))


def test_what_was_not_used_for_longest_goes_until_the_rest_fits(store: Store) -> None:
    files = [put(store, "chunks", n, days) for n, days in enumerate((3, 9, 1, 6))]
    one = files[0].stat().st_size
    for most, kept in (
        (10 * one, {0, 1, 2, 3}),
        (4 * one, {0, 1, 2, 3}),
        (4 * one - 1, {0, 2, 3}),
        (one, {2}),
        (0, []),
    ):
        pruned = prune(store.root, most=most)
        assert left(store) == {files[n] for n in kept}
        assert pruned.kept == len(kept) * one


def test_a_read_is_a_use(store: Store) -> None:
    old, new = put(store, "chunks", 0, 9), put(store, "chunks", 1, 3)
    first, second = segment(store, 0, 9), segment(store, 1000, 3)
    store.get("chunks", key(0))
    assert fill(store, 50, 10) == 0
    prune(store.root, unused_days=2)
    assert left(store) == {old, first}
    assert {new, second}.isdisjoint(left(store))


def test_days_alone_and_both_limits(store: Store) -> None:
    files = [put(store, "chunks", n, days) for n, days in enumerate((31, 29, 1))]
    pruned = prune(store.root, unused_days=30)
    assert (left(store), pruned.removed["chunks"].artifacts) == ({files[1], files[2]}, 1)
    one = files[1].stat().st_size
    assert prune(store.root, unused_days=30, most=2 * one).removed == {}
    prune(store.root, unused_days=30, most=one)  # the size asks for more
    assert left(store) == {files[2]}
    prune(store.root, unused_days=0, most=10 * one)  # the days ask for more
    assert left(store) == set()


def test_of_a_table_the_segments_that_are_not_read_go_and_their_rows_are_built_again(store: Store) -> None:
    old, new = segment(store, 0, 9), segment(store, 1000, 1)
    using = store.rows("vectors", TABLE)  # another process that has opened it
    digests = np.zeros((200, 2), ">i8")
    digests[:, 0] = [*range(100), *range(1000, 1100)]
    asked = digests.view("V16").reshape(-1)
    assert using.take(asked) is not None
    aged(old, 9)
    prune(store.root, unused_days=5)
    assert left(store) == {new}
    assert using.contains(asked).tolist() == [False] * 100 + [True] * 100
    assert using.take(asked) is None
    assert (fill(store, 0), fill(store, 1000)) == (100, 0)
    prune(store.root, most=0)
    assert left(store) == set()
    assert fill(store, 0) == 100


def test_a_table_that_is_being_filled_is_left_alone_and_named(store: Store) -> None:
    segment(store, 0, 9)
    other = segment(store, 0, 8, table="e" * 32)
    chunks = put(store, "chunks", 0, 7)
    inside: list[Pruned] = []

    def compute(missing: Any) -> Any:
        inside.append(prune(store.root, most=0))
        yield missing, np.zeros((len(missing), 1), np.float32)

    store.rows("vectors", TABLE).fill(np.array([b"\1" * 16], "V16"), compute)
    (pruned,) = inside
    assert pruned.skipped == [f"vectors/{TABLE}"]
    assert pruned.kept > 0
    assert fill(store, 0) == 0
    assert not other.exists()
    assert not chunks.exists()


def test_leftovers_go_and_what_may_be_in_use_stays(store: Store) -> None:
    kept = put(store, "chunks", 0, 9)
    young = aged(written(store.root / "chunks/.a.safetensors.0.tmp"), 0.9)
    foreign = aged(written(store.root / "models/static/model.safetensors"), 2000)
    dead = [
        aged(written(store.root / "chunks/.b.safetensors.0.tmp"), 1.1),
        written(store.root / "chunks" / f"{key(1)}.0.bad"),
        written(store.root / "vectors" / TABLE / f"{key(1)}.0.bad"),
    ]
    assert usage(store.root)[1] == (3, 12)
    with locked(store.root / "locks/a.lock") as ours:
        assert ours
        written(store.root / "locks/b.lock")
        pruned = prune(store.root, unused_days=1000)
        assert (pruned.leftovers, pruned.locks) == ((3, 12), 1)
        assert left(store) == {kept, young, foreign, store.root / "locks/a.lock"}
    assert not any(path.exists() for path in dead)


def written(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("four")
    return path


def test_a_file_that_cannot_be_removed_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(store, "chunks", 0, 9)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(StorageError, match=f"{path.name}: cannot be removed: Permission denied"):
        prune(store.root, most=0)


WORK = """
import sys
from pathlib import Path
import numpy as np
from sweep.artifacts import Artifact, Store
store, built = Store(Path(sys.argv[1])), 0
for turn in range(80):
    digests = np.zeros((20, 2), ">i8")
    digests[:, 0] = np.arange(turn % 7, turn % 7 + 20)
    whole = np.ascontiguousarray(digests[:, :1].astype(np.float32))
    rows, missing = store.rows("vectors", "f" * 32).fill(
        digests.view("V16").reshape(-1), lambda m: [(m[i:i+1], whole[m[i:i+1]]) for i in range(len(m))]
    )
    assert (rows == whole).all()
    found, new = store.get_or_build("chunks", f"{turn % 5:032x}", lambda: Artifact({"x": np.full(9, turn % 5)}))
    assert (found["x"] == turn % 5).all()
    built += new + len(missing)
print(built)
"""


def test_pruning_does_not_break_processes_at_work(store: Store) -> None:
    command = [sys.executable, "-c", WORK, str(store.root)]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    while any(worker.poll() is None for worker in workers):
        prune(store.root, most=0)
        time.sleep(0.03)
    told = [worker.communicate() for worker in workers]
    assert [(worker.returncode, err) for worker, (_, err) in zip(workers, told, strict=True)] == [(0, ""), (0, "")]
    assert sum(int(out) for out, _ in told) > 31  # 26 rows and 5 artifacts: some were built again


# ------------------------------------------------------------------ the command


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2GB", 2 * 10**9),
        ("1.5 gb", 1.5 * 10**9),
        ("500MB", 5 * 10**8),
        ("3kB", 3000),
        ("7", 7),
        ("0", 0),
        (" 1TB ", 10**12),
    ],
)
def test_sizes(text: str, expected: float) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "GB", "two GB", "2 GiB", "-1GB", "1e9", "2GB2", "1.GB", "nan", "٢GB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(InputError, match="give a number and B, kB, MB, GB, TB, such as 2GB"):
        parse_size(text)


def test_sizes_are_said_in_plain_units() -> None:
    said = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 99_949: "99.9 kB", 123_456: "123 kB", 2 * 10**9: "2.0 GB"}
    for count, text in said.items():
        found = {"folder": "f", "stages": {}, "artifacts": 1, "bytes": count, "leftover_files": 0}
        assert info_lines(found) == [f"f: 1 artifact, {text}"]


def test_info_and_prune(workspace: Workspace) -> None:
    assert workspace.cli("cache", "info").out == ".sweep/cache: 0 artifacts, 0 B\n"
    study = workspace.study()
    first = workspace.table(workspace.run(study))
    values = json.loads(workspace.cli("cache", "info", "--json").out)
    assert values["artifacts"] == sum(of["artifacts"] for of in values["stages"].values()) > 0
    assert values["bytes"] == sum(of["bytes"] for of in values["stages"].values())
    assert {"chunks", "terms", "search"} <= values["stages"].keys()
    used = datetime.fromisoformat(values["stages"]["chunks"]["last_used"])
    assert 0 <= time.time() - used.timestamp() < 60
    lines = workspace.cli("cache", "info").out.splitlines()
    assert lines[0].startswith(f".sweep/cache: {values['artifacts']} artifacts, ")
    assert [line.split()[0] for line in lines[2:]] == sorted(values["stages"])
    assert [line for line in lines if line != line.rstrip()] == []

    (workspace.folder / ".sweep/cache/chunks/a.0.bad").write_text("bad")
    assert "leftovers, which `sweep cache prune` removes: 1 file, 3 B" in workspace.cli("cache", "info").out
    ran = workspace.cli("cache", "prune", "--unused-days", 1)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[:2] == [".sweep/cache: 3 B freed", "  leftovers: 1 file, 3 B"]
    freed = json.loads(workspace.cli("cache", "prune", "--max-size", "0", "--json").out)
    assert (freed["bytes"], freed["kept_bytes"], freed["skipped"]) == (values["bytes"], 0, [])
    assert [p for p in (workspace.folder / ".sweep/cache").rglob("*") if p.is_file()] == []
    assert workspace.table(workspace.load(study)) == first  # results are not of the cache
    again = workspace.table(workspace.run(workspace.study(study="again")))
    assert again == first
    assert json.loads(workspace.cli("cache", "info", "--json").out)["artifacts"] == values["artifacts"]


def test_what_was_left_alone_is_said() -> None:
    found = {"folder": "f", "stages": {}, "artifacts": 0, "bytes": 0, "leftover_files": 0, "leftover_bytes": 0}
    said = prune_lines({**found, "kept_bytes": 1500, "skipped": ["vectors/a"]})
    assert said == ["f: 0 B freed", "  vectors/a: left alone, a process is adding to it", "1.5 kB kept"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "give --max-size SIZE, such as 2GB, or --unused-days N, or both"),
        (["--max-size", "2 apples"], "'2 apples' is no size; give a number and B, kB, MB, GB, TB"),
    ],
)
def test_prune_says_what_is_wrong(workspace: Workspace, options: list[str], said: str) -> None:
    ran = workspace.cli("cache", "prune", *options)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert said in ran.err
    assert workspace.cli("cache", "prune", "--unused-days", "-1").code == 2
    assert workspace.cli("cache", "prune", "--unused-days", "soon").code == 2


@pytest.mark.parametrize("command", [[], ["info"], ["prune"]])
def test_help_teaches_by_example(workspace: Workspace, command: list[str]) -> None:
    ran = workspace.cli("cache", *command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert f"sweep cache {command[0] if command else 'prune'} " in ran.out
