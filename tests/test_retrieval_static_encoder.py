"""The static encoder: its vectors against NumPy's own decomposition, made once, whole or not at all."""

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sweep.artifacts import Store
from sweep.retrieval import static_encoder
from sweep.retrieval.embedding import SentenceTransformerEncoder, embed
from sweep.retrieval.models import Model, load
from sweep.retrieval.static_encoder import DIMENSIONS, static_model

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
WORDS = [f"w{i}" for i in range(600)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A transformer of random weights over 604 tokens, wider than a static encoder."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("source")
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate([*SPECIAL, *WORDS])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    torch.manual_seed(1)
    sizes: dict[str, Any] = {"hidden_size": 288, "num_hidden_layers": 1, "num_attention_heads": 2}
    more: dict[str, Any] = {"intermediate_size": 16, "max_position_embeddings": 32, "initializer_range": 0.3}
    BertModel(BertConfig(vocab_size=604, **sizes, **more)).save_pretrained(folder / "plain")
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), SPECIAL, strict=True))
    fast: Any = PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer, model_max_length=32, **names).save_pretrained(folder / "plain")
    modules = [Transformer(str(folder / "plain")), Pooling(288, pooling_mode="mean")]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "model"))
    return Model("tiny", folder / "model")


@pytest.fixture(scope="module")
def made(source: Model, tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformerEncoder:
    return SentenceTransformerEncoder(static_model("static:tiny", source, tmp_path_factory.mktemp("cache")))


def test_a_tokens_vector_is_what_the_recipe_says(source: Model, made: SentenceTransformerEncoder) -> None:
    plain = load(source, "SentenceTransformer", "float32")
    vectors = plain.encode([*SPECIAL, *WORDS], convert_to_numpy=True)  # each as [CLS] t [SEP]
    centred = vectors - vectors.mean(axis=0)
    left, spread, _ = np.linalg.svd(centred, full_matrices=False)
    turned = (left * spread)[:, :DIMENSIONS]
    chance = 1 / np.arange(1, 605)  # Zipf: the n-th token of the vocabulary is 1/n as common as the first
    weights = 1e-4 / (1e-4 + chance / chance.sum())
    expected = (turned * weights[:, None])[4:]

    found = made.encode(WORDS, "passage")
    assert (found.shape, found.dtype) == ((600, DIMENSIONS), np.float32)
    # a component's sign is free, so lengths and angles are compared
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-4 * np.abs(expected @ expected.T).max())
    np.testing.assert_allclose(np.linalg.norm(found[0]), np.linalg.norm(expected[0]), rtol=1e-3)


def test_a_texts_vector_is_the_mean_of_its_tokens(made: SentenceTransformerEncoder, store: Store) -> None:
    one, two = made.encode(["w1", "w2"], "passage")
    texts = ["w1 w2 w2", "[UNK]", "unknown words", "", "w2 " * 500]
    found, _, tokens = embed(made, store.rows("vectors", "k"), texts, "passage")
    np.testing.assert_allclose(found[0], (one + 2 * two) / 3, atol=1e-6)
    assert not found[1:4].any()  # special tokens are nothing, unknown words and no words too
    np.testing.assert_allclose(found[4], two, atol=1e-5)  # of any length
    assert tokens == 3 + 1 + 2 + 0 + 500
    assert made.limit is None
    assert made.dtype == "float32"
    assert not made.model.contextual


def test_it_is_an_ordinary_model_folder(made: SentenceTransformerEncoder) -> None:
    made.model.ready()
    alone = SentenceTransformerEncoder(Model("folder", made.model.folder))
    np.testing.assert_array_equal(alone.encode(["w1 w7"], "query"), made.encode(["w1 w7"], "query"))
    assert (alone.limit, alone.model.contextual, alone.dtype) == (None, False, "float32")


def test_the_same_bits_on_any_number_of_threads(
    source: Model, made: SentenceTransformerEncoder, tmp_path: Path
) -> None:
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        again = SentenceTransformerEncoder(static_model("again", source, tmp_path))
        np.testing.assert_array_equal(again.encode(WORDS, "query"), made.encode(WORDS, "query"))
    finally:
        torch.set_num_threads(before)
    assert again.fingerprint == made.fingerprint


def test_another_source_is_another_encoder(source: Model, tmp_path: Path) -> None:
    class Other(Model):
        fingerprint = "other"

    one, other = (static_model("s", m, tmp_path) for m in (source, Other("tiny", source.folder)))
    assert one.fingerprint != other.fingerprint
    assert one.folder != other.folder


def test_a_maker_that_fails_leaves_nothing_behind(
    source: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = static_model("s", source, tmp_path)

    def killed(_: object, folder: str, **__: object) -> None:
        Path(folder).mkdir()
        (Path(folder) / "modules.json").write_text("[]")
        raise KeyboardInterrupt

    monkeypatch.setattr("sentence_transformers.SentenceTransformer.save", killed)
    with pytest.raises(KeyboardInterrupt):
        model.ready()
    assert [path.name for path in (tmp_path / "static").iterdir() if path.suffix != ".lock"] == []
    monkeypatch.undo()
    model.ready()
    assert (model.folder / "modules.json").exists()


RACE = """
import sys, time
from pathlib import Path
from sweep.retrieval import static_encoder
from sweep.retrieval.models import Model

def make(source, folder):
    print("made", flush=True)
    time.sleep(0.5)
    folder.mkdir()
    (folder / "modules.json").write_text("[]")

static_encoder._make = make
class Fixed(Model):
    fingerprint = "fixed"

static_encoder.static_model("s", Fixed("m", Path()), Path(sys.argv[1])).ready()
print("ready", flush=True)
"""


def test_processes_that_race_make_it_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RACE, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = Counter(line for process in running for line in process.communicate()[0].split())
    assert said == {"made": 1, "ready": 3}
    assert static_encoder.STATIC == "static:"
