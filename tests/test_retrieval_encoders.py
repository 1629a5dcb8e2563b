"""From a name to an encoder: what a study declares reaches the model, and what cannot be is said at the start."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import CopyModel
from pydantic import ValidationError

from sweep.errors import ModelError
from sweep.retrieval.embedding import SentenceTransformerEncoder
from sweep.retrieval.encoders import EncoderSpec, Models
from sweep.retrieval.endpoint import EndpointEncoder
from sweep.retrieval.models import precision
from sweep.retrieval.parameters import DEFAULT_ENCODER

REMOTE = {"endpoint": "https://host/v1", "model": "m", "tokenizer": DEFAULT_ENCODER}
PROMPTS = {"prompts": {"query": "query: ", "document": "passage: ", "clustering": "cluster: "}}

Declare = Callable[..., Models]


@pytest.fixture
def declare(tmp_path: Path) -> Declare:
    def models(**declared: dict[str, Any]) -> Models:
        return Models({n: EncoderSpec.model_validate(s) for n, s in declared.items()}, tmp_path, tmp_path / "cache")

    return models


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({}, "model"),
        ({"model": ""}, "model"),
        ({"model": "m", "prefix": "q"}, "prefix"),
        ({"model": "m", "query_prefix": "q", "query_prompt": "q"}, "query_prefix or query_prompt, not both"),
        ({"model": "m", "passage_prefix": "q", "passage_prompt": "q"}, "passage_prefix or passage_prompt, not both"),
        ({"model": "m", "max_seq_length": 0}, "max_seq_length"),
        ({"model": "m", "dtype": "int8"}, "dtype"),
        ({"model": "m", "batch_size": 8, "dimensions": 5}, "batch_size, dimensions does not belong to a model"),
        ({**REMOTE, "dtype": "float32"}, "dtype does not belong to an endpoint"),
        ({**REMOTE, "query_prompt": "q"}, "query_prompt does not belong to an endpoint"),
        ({**REMOTE, "tokenizer": None}, "an endpoint needs tokenizer"),
        ({**REMOTE, "requests_per_minute": 0}, "requests_per_minute"),
        ({**REMOTE, "endpoint": "host/v1"}, "endpoint"),
        ({**REMOTE, "endpoint": "https://user:secret@host/v1"}, "endpoint"),
        ({**REMOTE, "endpoint": "https://host/v1?key=secret"}, "endpoint"),
    ],
)
def test_what_does_not_fit_is_refused(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        EncoderSpec.model_validate(spec)
    assert said in str(refused.value)


def test_a_declared_model_without_settings_is_the_model_itself(declare: Declare, copy_model: CopyModel) -> None:
    models = declare(same={"model": DEFAULT_ENCODER}, folder={"model": copy_model("mine").name})
    plain = models.encoder(DEFAULT_ENCODER)
    for name in ("same", "folder"):
        assert models.encoder(name).name == name
        assert models.encoder(name).fingerprint == plain.fingerprint
        assert models.encoder(name).limit == 254
        assert models.tokenizer_fingerprint(name) == models.tokenizer_fingerprint(DEFAULT_ENCODER)
    assert models.encoder("same") is models.encoder("same")


def test_prompts_by_name_and_by_text(declare: Declare, copy_model: CopyModel) -> None:  # CASES S19
    model = copy_model("prompted", {"config_sentence_transformers.json": PROMPTS}).name
    models = declare(
        own={"model": model},
        named={"model": model, "query_prompt": "clustering", "passage_prompt": "query"},
        texts={"model": model, "query_prefix": "Q: ", "passage_prefix": ""},
    )
    found = {n: [models.encoder(n).prompt(r) for r in ("query", "passage")] for n in models.declared}  # type: ignore[arg-type]
    assert found == {"own": ["query: ", "passage: "], "named": ["cluster: ", "query: "], "texts": ["Q: ", ""]}
    assert models.encoder("texts").limit == 254
    assert models.encoder("own").limit == 252  # "passage", ":"


def test_an_unknown_prompt_is_refused_with_those_that_there_are(declare: Declare, copy_model: CopyModel) -> None:
    model = copy_model("prompted", {"config_sentence_transformers.json": PROMPTS}).name
    models = declare(
        typo={"model": model, "query_prompt": "querry"}, none={"model": DEFAULT_ENCODER, "passage_prompt": "query"}
    )
    with pytest.raises(ModelError, match=r"encoders\.typo: query_prompt 'querry': .* has clustering, document, query"):
        models.encoder("typo")
    with pytest.raises(
        ModelError, match=r"encoders\.none: passage_prompt 'query': .* has none; or give passage_prefix"
    ):
        models.encoder("none")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_seq_length": 513}, "max_seq_length 513: .* has 512 positions"),
        ({"max_seq_length": 10, "query_prefix": "a b c d e f g h "}, "query prompt leaves no room in the 10 tokens"),
        ({"max_seq_length": 10, "passage_prefix": "a b c d e f g h "}, "passage prompt leaves no room"),
    ],
)
def test_a_length_that_cannot_be_is_refused(declare: Declare, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        declare(mine={"model": DEFAULT_ENCODER, **settings}).encoder("mine")


def test_a_declared_length_is_what_is_read(declare: Declare, minilm: SentenceTransformerEncoder) -> None:
    models = declare(
        short={"model": DEFAULT_ENCODER, "max_seq_length": 10}, long={"model": DEFAULT_ENCODER, "max_seq_length": 512}
    )
    short = models.encoder("short")
    assert (short.limit, models.encoder("long").limit) == (8, 510)
    text = "one two three four five six seven eight nine ten"
    np.testing.assert_array_equal(
        short.encode([text], "query"), minilm.encode(["one two three four five six seven eight"], "query")
    )


def test_a_declared_precision_is_the_models(declare: Declare, minilm: SentenceTransformerEncoder) -> None:
    exact = declare(exact={"model": DEFAULT_ENCODER, "dtype": "float32"}).encoder("exact")
    texts = ["how to sort an array", "views share memory"]
    one, other = exact.encode(texts, "query"), minilm.encode(texts, "query")
    np.testing.assert_allclose(np.linalg.norm(one, axis=1), 1, atol=1e-6)  # in bfloat16 within 0.004
    np.testing.assert_allclose(one, other, atol=0.02)
    assert (precision() == "float32") == bool((one == other).all())


def test_the_fingerprint_changes_whenever_a_vector_might(declare: Declare) -> None:  # CASES S20
    settings: list[dict[str, Any]] = [
        {}, {"query_prefix": "q"}, {"passage_prefix": "q"}, {"max_seq_length": 128}, {"dtype": "float16"},
    ]  # fmt: skip
    models = declare(**{str(i): {"model": DEFAULT_ENCODER, **changed} for i, changed in enumerate(settings)})
    prints = [models.encoder(name).fingerprint for name in models.declared]
    assert len(set(prints)) == len(prints)


def test_an_endpoint_counts_with_the_tokenizer_that_it_names(declare: Declare) -> None:
    models = declare(remote={**REMOTE, "max_seq_length": 100, "passage_prefix": "passage: "})
    encoder = models.encoder("remote")
    assert isinstance(encoder, EndpointEncoder)
    assert (encoder.limit, encoder.query_limit) == (98, 100)
    assert encoder.count_tokens(["", "tokenization works"]).tolist() == [0, 3]
    assert models.tokenizer_fingerprint("remote") == models.tokenizer_fingerprint(DEFAULT_ENCODER)
    with pytest.raises(ModelError, match="remote is an endpoint; a model with files is needed"):
        models.model("remote")


def test_a_static_encoder_reads_any_length(declare: Declare) -> None:
    models = declare(
        mine={"model": f"static:{DEFAULT_ENCODER}", "query_prefix": "q "},
        cut={"model": f"static:{DEFAULT_ENCODER}", "max_seq_length": 100},
    )
    assert models.encoder(f"static:{DEFAULT_ENCODER}").limit is None
    assert models.encoder("mine").prompt("query") == "q "
    with pytest.raises(ModelError, match="reads texts of any length; leave max_seq_length out"):
        models.encoder("cut")
