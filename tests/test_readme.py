"""The README says what is so: its study file is the quickstart's, its examples run, no parameter is missing."""

import re
from pathlib import Path

import pytest

from metrics.measures import REGISTRY, SPAN_REGISTRY
from sweep.cli import app
from sweep.optimize.plan import Plan
from sweep.optimize.study_file import load_study
from sweep.retrieval.parameters import PARAMETERS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
STUDY = ROOT / "studies/quickstart.yaml"


def test_the_study_file_is_the_quickstarts() -> None:
    assert STUDY.read_text(encoding="utf-8").strip() in README


def test_the_number_of_configurations_is_right() -> None:
    grid = Plan(load_study(STUDY), ROOT).grid
    assert grid is not None
    assert f"the space has {len(grid)} configurations: all of them are run" in README
    assert f"Run: {len(grid)} of {len(grid)} configurations finished, {len(grid)} of them now." in README


def test_every_parameter_is_explained() -> None:
    assert named_in("parameter") == set(PARAMETERS)


def test_every_measure_is_explained() -> None:
    names = {re.sub(r"^judged\((.*)\)$", r"\1", name).partition("@")[0] for name in named_in("measure")}
    assert names == {*REGISTRY, *SPAN_REGISTRY}


def named_in(table: str) -> set[str]:
    """What the first column of a table names, by the title of that column."""
    rows = README.partition(f"\n| {table} |")[2].partition("\n\n")[0].splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}


def test_every_command_is_listed() -> None:
    commands = {command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {str(group.name) for group in app.registered_groups}
    assert commands == set(re.findall(r"^    sweep (\w+) ", README, re.M))


def test_the_example_of_metrics_gives_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    example = next(code for code in re.findall(r"```python\n(.*?)```", README, re.S) if "from metrics" in code)
    exec(compile(example, "README.md", "exec"), {})
    printed = re.findall(r"0\.\d+", capsys.readouterr().out)
    said = re.findall(r"(?:# |low |high )(0\.\d+)", example)
    assert [round(float(value), 4) for value in printed] == pytest.approx(list(map(float, said)), abs=5e-5)
    assert said == ["0.6037", "0.6037", "0.7689"]  # NDCG@3 of the base check in CASES; x as a label of 4
