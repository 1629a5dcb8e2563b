"""The command: exit codes, streams, `score`, `check`, and what a fault looks like."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from small_workspace import DOCUMENTS, LABELS, QUERIES, Workspace

from metrics import document_retrieval
from sweep.retrieval.pipeline import Pipeline

TRUTH = [{"document_id": d, "query_relevance_label": n} for d, n in (("a", 4), ("b", 2), ("c", 1), ("d", 0))]
FOUND = [{"document_id": d, "relevance_score": s} for d, s in (("b", 0.9), ("x", 0.8), ("a", 0.7), ("d", 0.1))]
ROW: dict[str, Any] = {
    "retrieval_ground_truth": TRUTH,
    "retrieved_documents": FOUND,
}  # the base check of the fault list
PERFECT = {**ROW, "retrieved_documents": [{"document_id": "a", "relevance_score": 1}]}


def written(workspace: Workspace, *rows: Any, name: str = "rows.jsonl") -> Path:
    path = workspace.folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def scores(line: str) -> dict[str, float]:
    return {entry["metric"]: entry["score"] for entry in json.loads(line)}


# ------------------------------------------------------------------ score


def test_score_writes_a_list_a_row_and_a_summary(workspace: Workspace) -> None:
    ran = workspace.cli("score", written(workspace, ROW, PERFECT))
    assert ran.code == 0
    first, second = ran.out.splitlines()
    found = scores(first)
    assert found["ndcg@3"] == pytest.approx(0.603698, abs=1e-6)
    assert found["xdcg@3"] == pytest.approx(43.877551, abs=1e-6)
    assert found["fidelity"] == pytest.approx(0.926829, abs=1e-6)
    assert (found["top1_relevance"], found["top3_max_relevance"], found["holes"]) == (2, 4, 1)
    assert json.loads(second) == document_retrieval(PERFECT["retrieval_ground_truth"], PERFECT["retrieved_documents"])
    assert "2 rows scored" in ran.err
    mean = (found["ndcg@3"] + scores(second)["ndcg@3"]) / 2
    assert any(line.split()[:2] == ["ndcg@3", f"{mean:.4f}"] for line in ran.err.splitlines())


def test_score_to_a_file(workspace: Workspace) -> None:
    rows = written(workspace, ROW, PERFECT)
    printed = workspace.cli("score", rows).out
    ran = workspace.cli("score", rows, "-o", "out.jsonl")
    assert (ran.code, ran.err) == (0, "")
    assert (workspace.folder / "out.jsonl").read_text() == printed
    assert "2 rows scored" in ran.out
    values = json.loads(workspace.cli("score", rows, "-o", "out.jsonl", "--json").out)
    assert values["rows"] == 2
    assert json.loads(workspace.cli("score", rows, "--json").err) == values
    assert values["means"]["holes"] == 0.5


def test_score_reads_standard_input(workspace: Workspace) -> None:
    rows = written(workspace, ROW)
    with rows.open() as stream:
        done = subprocess.run(
            [sys.executable, "-m", "sweep.cli", "score", "-"], stdin=stream, capture_output=True, text=True, timeout=60
        )
    assert (done.returncode, done.stdout) == (0, workspace.cli("score", rows).out)
    piped = subprocess.run(
        [sys.executable, "-m", "sweep.cli", "score", "-"], input='{"a": \n', capture_output=True, text=True, timeout=60
    )
    assert (piped.returncode, piped.stdout) == (2, "")
    assert "line 1" in piped.stderr


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ({**ROW, "retrieval_ground_truth": [{"document_id": "a", "query_relevance_label": 5}]}, "5"),
        ({**ROW, "retrieval_ground_truth": [{"document_id": "a", "query_relevance_label": 1.5}]}, "whole number"),
        ({**ROW, "retrieval_ground_truth": [{"document_id": "a"}]}, "query_relevance_label"),
        ({**ROW, "retrieved_documents": [{"document_id": "a", "relevance_score": "high"}]}, "'high'"),
        ({**ROW, "retrieved_documents": [{"document_id": 7, "relevance_score": 1}]}, "must be text"),
        ({**ROW, "retrieved_documents": {}}, "must be a list"),
        (["not an object"], "list"),
    ],
)
def test_a_bad_row_is_named_by_its_line(workspace: Workspace, second: Any, said: str) -> None:
    path = written(workspace, ROW, second, ROW)
    ran = workspace.cli("score", path)
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert "rows.jsonl" in ran.err
    assert "row 2" in ran.err or "line 2" in ran.err
    assert said in ran.err


def test_a_bad_row_is_named_by_its_line_after_blank_lines(workspace: Workspace) -> None:
    path = workspace.folder / "rows.jsonl"
    bad = {**ROW, "retrieval_ground_truth": [{"document_id": "a", "query_relevance_label": 9}]}
    path.write_text(f"{json.dumps(ROW)}\n\n\n{json.dumps(bad)}\n")
    assert "line 4" in workspace.cli("score", path).err


def test_rows_that_do_not_count_are_named(workspace: Workspace) -> None:
    ran = workspace.cli("score", written(workspace, ROW, {**ROW, "retrieval_ground_truth": []}))
    assert ran.code == 0
    assert "1 left out: no ground truth (rows 2)" in ran.err
    assert json.loads(ran.out.splitlines()[1]) == []


def test_thresholds_and_scale(workspace: Workspace) -> None:
    rows = written(workspace, ROW)

    def passed(*options: str) -> dict[str, bool]:
        ran = workspace.cli("score", rows, *options)
        assert ran.code == 0
        return {e["metric"]: e["passed"] for e in json.loads(ran.out) if "passed" in e}

    assert passed("--threshold", "ndcg@3=0.6")["ndcg@3"]
    assert not passed("--threshold", "ndcg@3=0.61", "--threshold", "holes=1")["ndcg@3"]
    assert passed("--threshold", "ndcg@3=0.61", "--threshold", "holes=1")["holes"]
    for bad, said in (("ndcg=1", "did you mean 'ndcg@3'"), ("ndcg@3", "METRIC=NUMBER"), ("ndcg@3=x", "METRIC=NUMBER")):
        ran = workspace.cli("score", rows, "--threshold", bad)
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
        assert said in ran.err
    ran = workspace.cli("score", rows, "--label-max", 3)
    assert ran.code == 2
    assert "'a'" in ran.err
    assert workspace.cli("score", rows, "--label-min", 4).code == 2


@pytest.mark.parametrize("fault", ["no such file", "bad row"])
def test_a_fault_does_not_touch_the_results_of_before(workspace: Workspace, fault: str) -> None:
    workspace.cli("score", written(workspace, ROW), "-o", "out.jsonl")
    before = (workspace.folder / "out.jsonl").read_text()
    rows = Path("absent.jsonl") if fault == "no such file" else written(workspace, ROW, [], name="bad.jsonl")
    assert workspace.cli("score", rows, "-o", "out.jsonl").code == 2
    assert (workspace.folder / "out.jsonl").read_text() == before


def test_score_finds_fields_by_a_mapping_and_adds_measures(workspace: Workspace) -> None:
    rows = written(workspace, {"truth": ROW["retrieval_ground_truth"], "search": {"hits": FOUND}})
    mapping = ("--data-mapping", "retrieval_ground_truth={{item.truth}}", "--data-mapping")
    ran = workspace.cli("score", rows, *mapping, "retrieved_documents={{item.search.hits}}", "-m", "ndcg_linear@3")
    assert (ran.code, scores(ran.out)["ndcg_linear@3"]) == (0, pytest.approx(0.694220, abs=1e-6))  # S13
    ran = workspace.cli("score", rows, *mapping, "retrieved_documents")
    assert (ran.code, "give FIELD={{item.NAME}}" in ran.err) == (2, True)
    ran = workspace.cli("score", rows, *mapping, "retrieved_documents={{item.found}}")
    assert (ran.code, "line 1: row 1: there is no found" in ran.err) == (2, True)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory that a process took from /proc")
def test_score_does_not_hold_the_rows(workspace: Workspace, tmp_path: Path) -> None:
    row = json.dumps({**ROW, "note": "x" * 2000}).encode() + b"\n"
    with gzip.open(tmp_path / "rows.jsonl.gz", "wb", compresslevel=1) as out:
        for _ in range(100):
            out.write(row * 500)  # 50,000 rows, 112 MB
    program = (  # VmHWM: ru_maxrss would count what this process holds
        "import pathlib, sys; from sweep.cli import main; sys.argv = ['sweep', *sys.argv[1:]]\n"
        "try: main()\n"
        "finally: print(pathlib.Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0], "
        "file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "score", tmp_path / "rows.jsonl.gz", "-o", tmp_path / "out.jsonl"],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert "50000 rows scored" in done.stdout
    assert int(done.stderr.splitlines()[-1]) < 112_000  # kB in all, the interpreter and its libraries included


QRELS = "q1 0 a 4\nq1 0 b 2\nq1 0 c 1\nq1 0 d 0\nq2 0 x 1\nq3 0 a 0\n"
RUN = "q1 Q0 b 1 0.9 t\nq1 Q0 x 2 0.8 t\nq1 Q0 a 3 0.7 t\nq1 Q0 d 4 0.1 t\nq9 Q0 a 1 1 t\nq1 Q0 a 5 -2 t\n"


def test_score_of_a_run(workspace: Workspace, tmp_path: Path) -> None:
    qrels, run = tmp_path / "qrels.txt", tmp_path / "run.txt.gz"
    qrels.write_text(QRELS)
    run.write_bytes(gzip.compress(RUN.encode()))
    given = ("score", "--qrels", qrels, "--run", run, "-m", "ndcg@3", "-m", "max_relevance@3")
    ran = workspace.cli(*given)
    assert ran.code == 0
    assert [line.split() for line in ran.out.splitlines()] == [
        ["ndcg@3", "all", "0.3018"],  # q1 .603698 (the base check), q2 without results 0
        ["max_relevance@3", "all", "2.0000"],
    ]
    assert ran.err.splitlines() == [
        "2 queries scored; mean share of unjudged results (holes): 12.5%",
        "1 without results, counted as 0: q2",
        "1 without judgments, left out: q9",
        "1 without a relevant document, left out: q3",
        "rows that name a document again: 1; its best score counts",
    ]
    lines = workspace.cli(*given, "-q").out.splitlines()
    assert [line.split("\t")[1:] for line in lines[:4:2]] == [["q1", "0.6037"], ["q2", "0.0000"]]
    values = json.loads(workspace.cli(*given, "-q", "--hole-bounds", "--json").out)
    assert values["queries"]["q1"] == {"ndcg@3": pytest.approx(0.603698, abs=1e-6), "max_relevance@3": 4}
    low, high = values["hole_bounds"]["ndcg@3"]
    assert low == values["means"]["ndcg@3"] < high  # the hole as a label of 0 changes nothing
    bounds = [line.split() for line in workspace.cli(*given, "--hole-bounds").out.splitlines()[:3]]
    assert [line[-1] for line in bounds] == ["0.3018", f"{low:.4f}", f"{high:.4f}"]
    assert "queries" not in json.loads(workspace.cli(*given, "--json").out)


def test_score_of_a_run_takes_the_options_of_trec_eval(workspace: Workspace, tmp_path: Path) -> None:
    qrels, run = tmp_path / "qrels.txt", tmp_path / "run.txt"
    qrels.write_text("q1 0 a 1\nq1 0 b 3\nq1 0 c 5\n")
    run.write_text("q1 Q0 a 1 3 t\nq1 Q0 b 2 2 t\n")
    given = ("score", "--qrels", qrels, "--run", run, "--label-max", 5)
    assert workspace.cli(*given, "-m", "recall").out.split()[-1] == "0.6667"
    assert workspace.cli(*given, "-m", "recall", "--relevant-from", 3).out.split()[-1] == "0.5000"
    # scaled: 100/5 · (1 + 3·0.6) / 1.6; foundry: 25 · (1 + 3·0.6) / 1.6
    assert workspace.cli(*given, "-m", "xdcg@2").out.split()[-1] == "35.0000"
    assert workspace.cli(*given, "-m", "xdcg@2", "--convention", "foundry").out.split()[-1] == "43.7500"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--qrels", "q"], "give a file of ROWS, or --qrels FILE --run FILE -m MEASURE"),
        (["--qrels", "q", "--run", "r"], "give a file of ROWS, or"),
        (["rows", "--qrels", "q"], "--qrels has no meaning with ROWS; leave it out"),
        (["rows", "-q"], "-q has no meaning with ROWS"),
        (["--qrels", "q", "--run", "r", "-m", "map", "-o", "x"], "-o has no meaning with --run"),
        (["--qrels", "absent", "--run", "r", "-m", "map"], "absent: no such file"),
        (["--qrels", "q", "--run", "absent", "-m", "map"], "absent: no such file"),
        (["--qrels", "q", "--run", "r", "-m", "nDGC@3"], "unknown measure 'nDGC'; did you mean 'ndcg'?"),
        (
            ["--qrels", "q", "--run", "r", "-m", "map", "--label-max", 3],
            "line 1: query 'q1', document 'a': label 4 is outside",
        ),
        (["--qrels", "q", "--run", "r", "-m", "map", "--relevant-from", 5], "relevant_from must be within 1…4, got 5"),
        (["--qrels", "none", "--run", "r", "-m", "map"], "no query has a relevant judged document"),
        (["--qrels", "q", "--run", "bad", "-m", "map"], "bad, line 1: 5 columns, expected 6"),
    ],
)
def test_score_of_a_run_says_what_is_wrong(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[Any], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"q": QRELS, "r": RUN, "none": "q1 0 a 0\n", "bad": "q1 Q0 a 0.5 t\n", "rows": "{}\n"}.items():
        Path(name).write_text(text)
    ran = workspace.cli("score", *options)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert said in ran.err


# ------------------------------------------------------------------ check


def test_check_says_how_the_data_is_and_runs_nothing(workspace: Workspace) -> None:
    workspace.write({**DOCUMENTS, "d13": " "}, QUERIES, {**LABELS, "q1": {"d01": 3, "gone": 1}, "q77": {"d01": 1}})
    space = {"algorithm": ["keyword", "vector"], "chunk_size": [3, 16], "top_k": 3}
    study = workspace.study(space, baseline={"algorithm": "vector", "chunk_size": 16, "top_k": 3})
    watch = (
        "import atexit, sys\natexit.register(lambda: print('sentence_transformers' in sys.modules, file=sys.stderr))"
    )
    ran = workspace.command("check", study, before=watch)
    assert (ran.code, ran.err) == (0, "False\n")
    lines = ran.out.splitlines()
    assert lines[0].startswith("Study s:")
    assert any("gone" in line and "1 judged document not in the collection" in line for line in lines)
    assert any("q77" in line and "not among the queries" in line for line in lines)
    assert any("d13" in line and "without text" in line for line in lines)
    assert any("4 configurations" in line and "budget is 200" in line for line in lines)
    assert [line for line in lines if line != line.rstrip()] == []
    assert not (workspace.folder / ".sweep/cache/vectors").exists()
    assert not (workspace.folder / ".sweep/cache/search").exists()
    assert not (workspace.folder / ".sweep/s").exists()
    values = json.loads(workspace.cli("check", study, "--json").out)
    assert values["configurations"] == 4
    assert values["health"]["dangling_documents"] == ["gone"]
    assert values["tokens_to_embed"] > 0


def test_check_of_a_keyword_study_has_clean_lines(workspace: Workspace) -> None:
    ran = workspace.cli("check", workspace.study())
    assert (ran.code, ran.err) == (0, "")
    assert [line for line in ran.out.splitlines() if line != line.rstrip()] == []


# ------------------------------------------------------------------ the command itself


@pytest.mark.parametrize("command", [[], ["check"], ["run"], ["export"], ["score"]])
def test_help_teaches_by_example(workspace: Workspace, command: list[str]) -> None:
    ran = workspace.cli(*command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert f"sweep {command[0] if command else 'run'} " in ran.out
    assert ".yaml" in ran.out or ".jsonl" in ran.out


def test_usage_faults(workspace: Workspace) -> None:
    for arguments in (["runn"], ["run"], ["run", "s.yaml", "--trials", "0"], ["run", "s.yaml", "--trails", "3"]):
        ran = workspace.cli(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert "Traceback" not in ran.err


def test_an_unexpected_fault_is_one_line_unless_debugged(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Pipeline, *args: Any, **named: Any) -> None:
        raise ZeroDivisionError("of a kind that nobody thought of")

    monkeypatch.setattr(Pipeline, "units", broken)
    study = workspace.study()
    ran = workspace.cli("run", study)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (1, "", 1)
    assert "ZeroDivisionError: of a kind that nobody thought of" in ran.err
    assert "--debug" in ran.err
    with pytest.raises(ZeroDivisionError):
        workspace.cli("run", study, "--debug")


def test_debug_shows_where(workspace: Workspace) -> None:
    ran = workspace.command("run", "absent.yaml", "--debug")
    assert ran.code != 0
    assert "Traceback" in ran.err
    assert "no such file" in ran.err


def test_a_reader_that_goes_away_is_no_fault(workspace: Workspace) -> None:
    rows = written(workspace, *[ROW] * 2000)
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "sweep.cli", "score", str(rows)],
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    os.close(write)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.returncode in (0, 1)  # Click's convention is 1


def test_the_rows_are_never_written_over(workspace: Workspace) -> None:
    path = written(workspace, ROW)
    before = path.read_bytes()
    ran = workspace.cli("score", path, "-o", path)
    assert ran.code == 2
    assert "give -o another file" in ran.err
    assert path.read_bytes() == before
