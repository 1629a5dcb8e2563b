"""Settings for other programs: strict, whole, and enough to get the same ranking again."""

import json
from pathlib import Path
from typing import Any

import pytest
from small_workspace import BASELINE, KEYWORD, Workspace

import sweep.export.files
from metrics import evaluate
from sweep.artifacts import Store
from sweep.collection.loading import CollectionSpec, load
from sweep.errors import StorageError
from sweep.export import TARGETS, text, write
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.pipeline import Pipeline


def strict(content: str) -> dict[str, Any]:
    def never(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return dict(json.loads(content, parse_constant=never))


@pytest.fixture
def study(workspace: Workspace) -> Path:
    path = workspace.study({**KEYWORD, "k1": [1, 1.5]})
    workspace.run(path)
    return path


def exported(workspace: Workspace, study: Path, *more: str) -> dict[str, Any]:
    ran = workspace.cli("export", study, "--target", "json", *more)
    assert (ran.code, ran.err) == (0, "")
    return strict(ran.out)


def test_what_is_recommended_is_exported(workspace: Workspace, study: Path) -> None:
    settings = exported(workspace, study)
    results = workspace.load(study)
    assert settings["configuration"] == results.best.id
    assert Configuration.of(settings["settings"]) == results.best
    assert {n: type(v) for n, v in settings["settings"].items()} == {
        n: type(v) for n, v in results.best.settings.items()
    }
    assert settings["settings"]["analyzer"] == "auto"
    assert settings["chosen"] == {"analyzer": "english"}  # what auto stands for on these documents
    assert isinstance(settings["settings"]["top_k"], int)
    assert isinstance(settings["settings"]["k1"], float)
    row = results.trials().loc[results.best.id]
    assert settings["expected"]["scores"] == {str(m): row[str(m)] for m in results.study.spec.reported}
    assert settings["expected"]["queries"] == 8
    costs = ("context_tokens", "index_bytes", "latency_ms")
    assert [settings["expected"][n] for n in costs] == [row[n] for n in costs]
    assert settings["provenance"]["collection"] == {"format": "beir"}
    assert settings["provenance"]["packages"]["retrieval-sweep"]
    assert settings["models"]["all-MiniLM-L6-v2"]["reads_tokens"] == 254
    assert not workspace.command("export", study, "--target", "json").err


@pytest.mark.parametrize("which", ["baseline", "each"])
def test_settings_alone_give_the_same_scores_again(workspace: Workspace, study: Path, which: str) -> None:
    """DESIGN §6, 7: run by itself, without anything stored, from what the export says and the documents."""
    results = workspace.load(study)
    names = ["baseline"] if which == "baseline" else [o.configuration.id for o in results.completed.outcomes][::3]
    for name in names:
        settings = exported(workspace, study, "--config", name)
        if which == "baseline":
            assert BASELINE.items() <= settings["settings"].items()
        declared = settings["provenance"]["study"]
        collection = load(CollectionSpec.model_validate(declared["collection"]), workspace.folder)
        tokenizer = declared["tokenizer"] or next(iter(settings["models"]))
        fresh = Pipeline(collection, Store(workspace.folder / f"fresh-{name}"), tokenizer, folder=workspace.folder)
        found = fresh.run(Configuration.of(settings["settings"])).documents
        scores = evaluate(collection.judgments, found, settings["expected"]["scores"])
        again = {name: scores.mean(name) for name in settings["expected"]["scores"]}
        assert again == pytest.approx(settings["expected"]["scores"], abs=1e-9)


def test_the_declared_study_reads_back(workspace: Workspace, study: Path) -> None:
    declared = exported(workspace, study)["provenance"]["study"]
    again = workspace.run(declared)
    assert again.completed.ran == 0
    assert again.study.spec.to_dict() == workspace.load(study).study.spec.to_dict() == declared


def test_a_name_that_is_not_there(workspace: Workspace, study: Path) -> None:
    best = workspace.load(study).best.id
    near = best[:-1] + ("0" if best[-1] != "0" else "1")
    ran = workspace.cli("export", study, "--target", "json", "--config", near)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"error: configuration {near!r} is not in this study; did you mean {best!r}?")
    ran = workspace.cli("export", study, "--target", "jsn")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == "error: --target 'jsn' is unknown; did you mean 'json'?; allowed: json\n"
    ran = workspace.cli("export", study)
    assert ran.code == 2


def test_a_word_for_a_configuration_is_suggested_too(workspace: Workspace, study: Path) -> None:
    ran = workspace.cli("export", study, "--target", "json", "--config", "basline")
    assert ran.code == 2
    assert "did you mean 'baseline'?" in ran.err


def test_nothing_to_export(workspace: Workspace) -> None:
    ran = workspace.cli("export", workspace.study(), "--target", "json")
    assert (ran.code, ran.out) == (2, "")
    assert "has no results" in ran.err
    assert not (workspace.folder / ".sweep").exists()


def test_nothing_to_export_from_a_storage_of_the_user(workspace: Workspace, study: Path) -> None:
    """The storage is there and the study is not in it: the same fault as without a storage."""
    url = f"sqlite:///{workspace.folder}/.sweep/s/study.db"
    other = workspace.study(study="other")
    ran = workspace.cli("export", other, "--target", "json", "--storage", url)
    assert (ran.code, ran.out) == (2, "")
    assert "has no results" in ran.err


def test_a_folder_is_made_and_the_file_written_whole(workspace: Workspace, study: Path) -> None:
    folder = workspace.folder / "deep" / "settings"
    ran = workspace.cli("export", study, "--target", "json", "-o", folder)
    assert (ran.code, ran.out, ran.err) == (0, f"{folder / 'settings.json'}\n", "")
    assert strict((folder / "settings.json").read_text(encoding="utf-8")) == exported(workspace, study)
    assert [p.name for p in folder.iterdir()] == ["settings.json"]


def test_a_file_that_was_there_stays_until_the_new_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write({"settings.json": {"old": 1}}, tmp_path)
    real = Path.write_text

    def half(path: Path, content: str, **named: Any) -> int:
        real(path, content[: len(content) // 2], **named)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(StorageError, match="cannot be written: No space left on device"):
        write({"settings.json": {"new": 2}}, tmp_path)
    assert strict((tmp_path / "settings.json").read_text()) == {"old": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["settings.json"], "a torn temporary file is left behind"


def test_a_place_that_is_taken(workspace: Workspace, study: Path) -> None:
    (workspace.folder / "taken").write_text("mine")
    ran = workspace.cli("export", study, "--target", "json", "-o", "taken")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: taken/settings.json: cannot be written: File exists\n"
    assert (workspace.folder / "taken").read_text() == "mine"


def test_texts() -> None:
    assert text({"ä": 1.5, "n": None}) == '{\n  "ä": 1.5,\n  "n": null\n}\n'
    assert text("as it is") == "as it is"
    with pytest.raises(ValueError, match="JSON"):
        text({"x": float("nan")})
    assert list(TARGETS) == sorted(TARGETS)
    assert sweep.export.files.write is write
