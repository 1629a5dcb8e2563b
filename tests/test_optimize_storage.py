"""Stopped, killed, shared and damaged storage: nothing finished is lost, nothing foreign is overwritten."""

import errno
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import optuna
import pytest
from small_workspace import BASELINE, KEYWORD, Workspace

from sweep.errors import InputError, StudyInterrupted
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.pipeline import Pipeline, Result

SLOW = """
import os, signal, time
from sweep.retrieval.pipeline import Pipeline
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started the tests may have it ignored
run = Pipeline.run
def slow(self, c):
    time.sleep(float(os.environ["SLOW"]))
    return run(self, c)
Pipeline.run = slow
"""


def states(url: str, name: str = "s") -> Counter[str]:
    return Counter(t.state.name for t in optuna.load_study(study_name=name, storage=url).get_trials())


def database(folder: Path) -> str:
    return f"sqlite:///{folder / '.sweep/s/study.db'}"


def wait_for_results(workspace: Workspace, count: int) -> None:
    """Wait until the process that was started has stored so many results."""
    end = time.monotonic() + 60
    while len(list((workspace.folder / ".sweep/s/results").glob("*.safetensors"))) < count:
        assert workspace.started[-1].poll() is None, workspace.started[-1].communicate()
        assert time.monotonic() < end, "the run makes no progress"
        time.sleep(0.02)


def undisturbed(workspace: Workspace, study: Path) -> dict[str, dict[str, Any]]:
    results = workspace.run({**workspace.parts(study), "study": "undisturbed"})
    return workspace.table(results)


def stop_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let the next runs be stopped by Ctrl-C after so many configurations."""
    run, done = Pipeline.run, Counter[str]()

    def stopping(pipeline: Pipeline, c: Configuration) -> Result:
        if len(done) == count:
            raise KeyboardInterrupt
        done[c.id] += 1
        return run(pipeline, c)

    monkeypatch.setattr(Pipeline, "run", stopping)


# ------------------------------------------------------------------ stopped and killed


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_was_ended_goes_on(workspace: Workspace, how: signal.Signals) -> None:
    study = workspace.study()
    process = workspace.start("run", study, before=SLOW, SLOW="0.3")
    wait_for_results(workspace, 2)
    time.sleep(0.1)  # within the third
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert out == ""
    if how == signal.SIGKILL:
        assert process.returncode == -signal.SIGKILL
        assert states(database(workspace.folder))["RUNNING"] == 1
    else:
        assert process.returncode == 130
        assert len(err.splitlines()) == 1
        assert "stopped with 2 configurations finished" in err
        assert states(database(workspace.folder))["RUNNING"] == 0
    results = workspace.run(study)
    assert results.completed.ran == 4
    after = states(database(workspace.folder))
    assert (after["COMPLETE"], after["RUNNING"], after["WAITING"]) == (6, 0, 0)
    assert workspace.table(results) == undisturbed(workspace, study)


def test_a_stop_before_the_first_trial_says_so_in_one_line(workspace: Workspace) -> None:
    study = workspace.study()
    before = SLOW + "import sweep.optimize.runner as r\ndef check(*_): signal.raise_signal(signal.SIGINT)\n"
    ran = workspace.command("run", study, before=before + "r.Runner.finished = check\n")
    assert ran.code == 130
    assert len(ran.err.splitlines()) == 1
    assert "same command" in ran.err


def test_a_stopped_study_can_grow_and_leaves_nothing_running(workspace: Workspace) -> None:
    process = workspace.start("run", workspace.study(), before=SLOW, SLOW="0.3")
    wait_for_results(workspace, 1)
    time.sleep(0.2)
    process.kill()
    process.communicate()
    results = workspace.run(workspace.study({**KEYWORD, "top_k": [1, 2, 3, 5]}))
    assert len(results.completed.outcomes) == 8
    assert states(database(workspace.folder), "s 2")["COMPLETE"] == 8
    assert states(database(workspace.folder), "s")["RUNNING"] == 0


def test_what_a_stopped_run_finished_can_be_loaded(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    study = workspace.study()
    workspace.run(study, trials=2)
    stop_after(monkeypatch, 2)
    with pytest.raises(StudyInterrupted, match="4 configurations finished"):
        workspace.run(study)
    assert len(workspace.load(study).completed.outcomes) == 4


def test_loading_runs_nothing_and_needs_something(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    study = workspace.study()
    with pytest.raises(InputError, match="has no results in"):
        workspace.load(study)
    assert not (workspace.folder / ".sweep").exists()
    workspace.run(study, trials=2)
    stop_after(monkeypatch, 0)
    assert len(workspace.load(study).completed.outcomes) == 2


# ------------------------------------------------------------------ two at a time


def ended(process: "subprocess.Popen[str]") -> tuple[int, str]:
    _, err = process.communicate(timeout=120)
    return process.returncode, err


def test_a_second_run_at_the_same_time_is_refused(workspace: Workspace) -> None:
    study = workspace.study()
    first = workspace.start("run", study, before=SLOW, SLOW="0.3")
    wait_for_results(workspace, 1)
    second = workspace.cli("run", study)
    assert (second.code, second.out) == (1, "")
    assert second.err == "error: .sweep/s: another `sweep run` of this study is going on; wait for it\n"
    assert ended(first) == (0, "")
    assert states(database(workspace.folder)) == {"COMPLETE": 6}


def test_looking_at_a_running_study_does_not_disturb_it(workspace: Workspace) -> None:
    study = workspace.study()
    process = workspace.start("run", study, before=SLOW, SLOW="0.3")
    wait_for_results(workspace, 2)
    time.sleep(0.1)  # within the third
    results = workspace.load(study)
    assert 2 <= len(results.completed.outcomes) < 6
    assert ended(process) == (0, "")
    assert states(database(workspace.folder)) == {"COMPLETE": 6}


# ------------------------------------------------------------------ damaged, foreign, not to be written


def one_line(ran: Any, code: int) -> str:
    assert ran.code == code, ran
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 1
    assert "Traceback" not in ran.err
    assert "fault of sweep" not in ran.err
    return str(ran.err)


def test_a_damaged_database_is_named_and_left_as_it_is(workspace: Workspace) -> None:
    path = workspace.folder / ".sweep/s/study.db"
    path.parent.mkdir(parents=True)
    content = bytes(range(256)) * 40
    path.write_bytes(content)
    study = workspace.study()
    for command in (["run", study], ["export", study, "--target", "json"]):
        said = one_line(workspace.cli(*command), 1)
        assert ".sweep/s/study.db" in said
        assert "not a database" in said
        assert path.read_bytes() == content


def test_a_database_of_something_else_is_left_alone(workspace: Workspace) -> None:
    with sqlite3.connect(workspace.folder / "mine.db") as connection:
        connection.execute("create table studies (study_id integer, mine text)")
        connection.execute("insert into studies values (1, 'precious')")
    connection.close()
    said = one_line(workspace.cli("run", workspace.study(), "--storage", "sqlite:///mine.db"), 1)
    assert "mine.db" in said
    with sqlite3.connect(workspace.folder / "mine.db") as connection:
        assert connection.execute("select * from studies").fetchall() == [(1, "precious")]
    connection.close()


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS, errno.ENOSPC])
def test_a_folder_that_cannot_be_written(workspace: Workspace, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    study, mkdir = workspace.study(), Path.mkdir

    def refuse(path: Path, *args: Any, **named: Any) -> None:
        if ".sweep" in path.parts:
            raise OSError(number, "no writing here", str(path))
        mkdir(path, *args, **named)

    monkeypatch.setattr(Path, "mkdir", refuse)
    said = one_line(workspace.cli("run", study), 1)
    assert ".sweep" in said
    assert "no writing here" in said


def test_a_file_in_the_place_of_the_folder(workspace: Workspace) -> None:
    (workspace.folder / ".sweep").write_text("mine")
    assert ".sweep" in one_line(workspace.cli("run", workspace.study()), 1)
    assert (workspace.folder / ".sweep").read_text() == "mine"


def test_results_that_were_deleted_are_made_again(workspace: Workspace) -> None:
    study = workspace.study()
    before = workspace.table(workspace.run(study))
    for path in (workspace.folder / ".sweep/s/results").glob("*.safetensors"):
        path.unlink()
    again = workspace.run(study)
    assert again.completed.ran == 6
    assert workspace.table(again) == before


def test_a_damaged_result_is_made_again(workspace: Workspace) -> None:
    study = workspace.study()
    before = workspace.table(workspace.run(study))
    (path,) = (workspace.folder / ".sweep/s/results").glob(f"{Configuration.of(BASELINE).id}-*.safetensors")
    path.write_bytes(b"torn")
    again = workspace.run(study)
    assert again.completed.ran == 1
    assert workspace.table(again) == before


def test_a_storage_of_the_user(workspace: Workspace) -> None:
    study, url = workspace.study(), f"sqlite:///{workspace.folder}/deep/er/mine.db"
    assert workspace.run(study, storage=url).completed.ran == 6
    assert states(url) == {"COMPLETE": 6}
    assert not (workspace.folder / ".sweep/s/study.db").exists()
    assert workspace.load(study, storage=url).best == workspace.run(study, storage=url).best


@pytest.mark.parametrize("name", ["s", "s before"])
def test_a_study_of_someone_else_under_that_name(workspace: Workspace, name: str) -> None:
    """A storage may be shared: what is not ours is neither continued nor a reason to fall over."""
    url = f"sqlite:///{workspace.folder}/shared.db"
    optuna.create_study(storage=url, study_name=name).add_trial(optuna.trial.create_trial(value=1.0))
    ran = workspace.cli("run", workspace.study(), "--storage", url)
    if ran.code:
        assert "'s'" in one_line(ran, ran.code)
    assert states(url, name) == {"COMPLETE": 1}
