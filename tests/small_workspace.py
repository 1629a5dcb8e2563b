"""A working folder with a small labelled collection and study files, and the `sweep` command run within it."""

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import sweep
from sweep.present.results import StudyResults

DOCUMENTS = {
    "d01": "red apple pie recipe", "d02": "green apple sauce", "d03": "blue sky at noon", "d04": "night sky with stars",
    "d05": "how to bake bread", "d06": "bread and butter", "d07": "stars and planets", "d08": "fix a flat tyre",
    "d09": "bicycle tyre pump", "d10": "water the garden", "d11": "garden soil and seeds", "d12": "boil an egg",
}  # fmt: skip
QUERIES = {
    "q1": "apple recipe", "q2": "sky stars", "q3": "bake bread", "q4": "tyre", "q5": "garden soil", "q6": "egg",
    "q7": "planets at night", "q8": "butter sauce",
}  # fmt: skip
LABELS = {
    "q1": {"d01": 3, "d02": 1}, "q2": {"d04": 3, "d03": 1, "d07": 2}, "q3": {"d05": 3, "d06": 2},
    "q4": {"d08": 2, "d09": 3}, "q5": {"d11": 3, "d10": 1}, "q6": {"d12": 3}, "q7": {"d07": 3, "d04": 2},
    "q8": {"d06": 2, "d02": 3},
}  # fmt: skip
KEYWORD: dict[str, Any] = {"algorithm": "keyword", "chunk_size": [8, 16], "top_k": [1, 2, 3]}  # six points
BASELINE: dict[str, Any] = {"algorithm": "keyword", "chunk_size": 16, "top_k": 3}  # one of them
MAIN = "\nfrom sweep.cli import main\nmain()\n"


class Ran(NamedTuple):
    """What a command came to."""

    code: int
    out: str
    err: str


class Workspace:
    """A working folder with a small labelled collection in `data/`, study files, and the command run within it."""

    def __init__(self, folder: Path, cli: Callable[..., Ran]) -> None:
        self.folder, self.cli = folder, cli
        self.started: list[subprocess.Popen[str]] = []
        self.write()

    def write(
        self,
        documents: Mapping[str, str] = DOCUMENTS,
        queries: Mapping[str, str] = QUERIES,
        labels: Mapping[str, Mapping[str, int]] = LABELS,
    ) -> None:
        """Write the collection in the BEIR layout."""
        data = self.folder / "data"
        data.mkdir(exist_ok=True)
        for name, texts in (("corpus", documents), ("queries", queries)):
            lines = [json.dumps({"_id": key, "text": text}) + "\n" for key, text in texts.items()]
            (data / f"{name}.jsonl").write_text("".join(lines))
        rows = [f"{q}\t{d}\t{label}\n" for q, judged in labels.items() for d, label in judged.items()]
        (data / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))

    def study(self, space: Mapping[str, Any] = KEYWORD, **parts: Any) -> Path:
        """Write s.yaml, a keyword-only study unless told otherwise (JSON is YAML)."""
        collection = {"path": "data", "labels": {"min": 0, "max": 3}}
        whole = {"collection": collection, "space": dict(space), "baseline": BASELINE} | parts
        path = self.folder / "s.yaml"
        path.write_text(json.dumps(whole, indent=1))
        return path

    @staticmethod
    def table(results: StudyResults) -> dict[str, dict[str, Any]]:
        """Return what a run found, by configuration; time aside."""
        columns = results.trials().drop(columns="latency_ms")
        return {str(i): {str(n): v for n, v in row.items()} for i, row in columns.to_dict("index").items()}

    @staticmethod
    def parts(study: Path) -> dict[str, Any]:
        """Read back what `study` wrote."""
        return dict(json.loads(study.read_text()))

    def run(self, study: Path | Mapping[str, Any], **options: Any) -> StudyResults:
        """Run a study in this process; that the libraries below stay silent is asked in test_present_results.py."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return sweep.run(study, **options)

    def load(self, study: Path, **options: Any) -> StudyResults:
        """Load a study in this process."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return sweep.load(study, **options)

    def start(self, *arguments: object, before: str = "", **environment: str) -> "subprocess.Popen[str]":
        """Start the command in a process of its own, after the Python code `before`."""
        process = subprocess.Popen(
            [sys.executable, "-c", before + MAIN, *map(str, arguments)],
            cwd=self.folder, env=os.environ | environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self.started.append(process)
        return process

    def command(self, *arguments: object, before: str = "", **environment: str) -> Ran:
        """Run the command in a process of its own."""
        process = self.start(*arguments, before=before, **environment)
        out, err = process.communicate(timeout=120)
        return Ran(process.returncode, out, err)


@pytest.fixture
def workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Workspace]:
    """The small collection in a working folder of its own, and `cli`, the command run in this process."""
    from sweep.cli import main

    monkeypatch.chdir(tmp_path)

    def cli(*arguments: object) -> Ran:
        monkeypatch.setattr(sys, "argv", ["sweep", *map(str, arguments)])
        capsys.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        return Ran(code, *capsys.readouterr())

    made = Workspace(tmp_path, cli)
    yield made
    for process in made.started:
        process.kill()
        process.communicate()
