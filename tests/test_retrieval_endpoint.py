"""Encoders behind an OpenAI-compatible endpoint: against a real local service that is busy, wrong or gone."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import embeddings_service
import numpy as np
import pytest
from embeddings_service import DIMENSIONS, vector
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

from sweep.artifacts import Store
from sweep.collection.collection import Collection
from sweep.errors import ModelError, StorageError
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.embedding import count_cut, embed
from sweep.retrieval.encoders import EncoderSpec
from sweep.retrieval.endpoint import EndpointEncoder
from sweep.retrieval.http import ATTEMPTS, LONGEST
from sweep.retrieval.parameters import DEFAULT_ENCODER
from sweep.retrieval.pipeline import Pipeline
from sweep.retrieval.vectors import Floats

KEY = "sk-test-3141592653589793"
TEXTS = [f"text {i}" for i in range(10)]


class Service:
    """The service's address, and what it was asked."""

    def __init__(self, port: int) -> None:
        self.root = f"http://127.0.0.1:{port}"
        self.url = f"{self.root}/v1"

    def set(self, **control: Any) -> None:
        self._call("/control", json.dumps(control).encode())

    @property
    def log(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._call("/log")
        return found

    @property
    def sizes(self) -> list[int]:
        return [len(request["input"]) for request in self.log]

    def _call(self, path: str, data: bytes | None = None) -> Any:
        with urllib.request.urlopen(self.root + path, data) as answer:
            return json.load(answer)


@pytest.fixture(scope="module")
def process() -> Iterator[Service]:
    command = [sys.executable, embeddings_service.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout
        yield Service(int(running.stdout.readline()))
        assert running.stdin
        running.stdin.close()


@pytest.fixture
def service(process: Service) -> Service:
    process.set()
    return process


class Clock(SimpleNamespace):
    """Time that passes only while someone sleeps."""

    def __init__(self) -> None:
        super().__init__(now=0.0, waits=[])

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds
        if seconds:
            self.waits.append(seconds)

    def monotonic(self) -> float:
        return float(self.now)

    def time(self) -> float:
        return time.time()


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("sweep.retrieval.http.time", clock)
    return clock


def words() -> Any:
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer


def make(service: Service, **settings: Any) -> EndpointEncoder:
    given = {"endpoint": service.url, "model": "m", "tokenizer": "t", "parallel": 1, **settings}
    return EndpointEncoder("remote", EncoderSpec.model_validate(given), words())


def expected(texts: list[str], dimensions: int = DIMENSIONS) -> Floats:
    return np.array([vector(text, dimensions) for text in texts], np.float32)


@pytest.mark.parametrize("slash", ["", "/"])
def test_vectors_come_by_index_and_prefixes_go_out_once(service: Service, slash: str) -> None:  # CASES S19
    encoder = make(service, endpoint=service.url + slash, query_prefix="Q: ", passage_prefix="P: ", dimensions=5)
    for role, prefix in (("query", "Q: "), ("passage", "P: ")):
        found = encoder.encode(TEXTS, role)  # type: ignore[arg-type]
        assert (found.dtype, found.shape) == (np.float32, (10, 5))
        np.testing.assert_array_equal(found, expected([prefix + text for text in TEXTS], 5))
    assert [r["input"][0] for r in service.log] == ["Q: text 0", "P: text 0"]
    first = service.log[0] | {"input": 0}
    assert first == {
        "path": "/v1/embeddings", "key": None, "model": "m", "encoding_format": "float", "dimensions": 5, "input": 0,
    }  # fmt: skip


def test_a_request_holds_batch_size_texts_and_no_more_tokens_than_services_take(
    service: Service, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sweep.retrieval.endpoint.REQUEST_TOKENS", 9)
    texts = [*TEXTS[:7], "a " * 8, "b", "c " * 20]  # 2 tokens each, then 8, 1, 20
    encoder = make(service, batch_size=3)
    vectors, new, tokens = embed(encoder, store.rows("vectors", "k"), texts, "passage")
    np.testing.assert_array_equal(vectors, expected(texts))
    assert (new, tokens) == (10, 1000)  # as the service counts: 100 a text
    assert service.sizes == [3, 3, 1, 2, 1]
    assert "dimensions" not in service.log[0]


@pytest.mark.parametrize(
    "faults",
    [[408], [409], [429], [500], [502], [503, 504], [529], ["drop"], ["half"], [500, "drop", 429, 503, 500]],
    ids=str,
)
def test_a_passing_fault_is_tried_again(service: Service, clock: Clock, faults: list[Any]) -> None:
    service.set(faults=faults)
    np.testing.assert_array_equal(make(service).encode(TEXTS, "query"), expected(TEXTS))
    assert len(service.log) == len(faults) + 1
    assert len(clock.waits) == len(faults)
    for attempt, wait in enumerate(clock.waits):  # 0.5, 1, 2 … seconds and up to as much again
        assert 0.5 * 2**attempt <= wait <= 2**attempt


@pytest.mark.parametrize(
    ("after", "least", "most"),
    [("7", 7, 7), ("7.5", 7.5, 7.5), ("3600", LONGEST, LONGEST), ("date", 20, 30), ("-3", 0.5, 1), ("soon", 0.5, 1)],
)
def test_the_service_says_when_to_come_back(
    service: Service, clock: Clock, after: str, least: float, most: float
) -> None:
    if after == "date":
        after = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    service.set(faults=[{"status": 429, "after": after}])
    make(service).encode(TEXTS, "query")
    assert len(clock.waits) == 1
    assert least <= clock.waits[0] <= most


def test_a_service_that_stays_down_is_given_up(service: Service) -> None:
    service.set(faults=[503] * 20)
    with pytest.raises(ModelError, match=r"^encoders\.remote: http://.*/v1/embeddings: status 503: no, because 503 "):
        make(service).encode(TEXTS, "query")
    assert len(service.log) == ATTEMPTS


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/v1", "http://127.0.0.1:99999/v1", "http://[::1/v1"])
def test_an_endpoint_that_is_not_there_is_named(service: Service, url: str) -> None:
    with pytest.raises(ModelError, match=r"^encoders\.remote: http://") as refused:
        make(service, endpoint=url).encode(TEXTS, "query")
    assert url in str(refused.value)


@pytest.mark.parametrize(
    ("status", "cure"),
    [(400, "max_seq_length"), (401, "api_key_env"), (403, "api_key_env"), (404, "endpoint and model"), (301, "")],
)
def test_a_refusal_is_not_tried_again(service: Service, status: int, cure: str) -> None:
    service.set(faults=[status])
    with pytest.raises(ModelError, match=f"status {status}: no, because {status}.*{cure}"):
        make(service).encode(TEXTS, "query")
    assert len(service.log) == 1


def test_too_large_a_batch_goes_in_halves(service: Service) -> None:
    service.set(most=3)
    encoder = make(service)
    np.testing.assert_array_equal(encoder.encode(TEXTS, "query"), expected(TEXTS))
    assert service.sizes == [10, 5, 2, 3, 5, 2, 3]
    assert encoder.tokens_read == 1000
    service.set(most=0)
    with pytest.raises(ModelError, match="status 413: too many texts; use smaller chunks"):
        encoder.encode(TEXTS[:1], "query")


@pytest.mark.parametrize("fault", ["fewer", "more", "twice", "no index", "ragged", "words", "empty", "list", "html"])
def test_an_answer_of_another_kind_is_refused(service: Service, fault: str) -> None:
    service.set(faults=[fault])
    said = "not JSON: '<html>Sign in" if fault == "html" else "one vector of numbers for each of 10 texts"
    with pytest.raises(ModelError, match=said):
        make(service).encode(TEXTS, "query")


@pytest.mark.parametrize("fault", ["NaN", "null"])
def test_a_vector_that_is_not_finite_names_its_text(service: Service, store: Store, fault: str) -> None:
    service.set(faults=[None, fault])
    with pytest.raises(ModelError, match="remote: no finite vector for the text 'text 7'"):
        embed(make(service, batch_size=4), store.rows("vectors", "k"), TEXTS, "passage")


def test_other_dimensions_than_asked_for_are_refused(service: Service) -> None:
    service.set(faults=[{"dimensions": 9}])
    with pytest.raises(ModelError, match=r"asked for 5 dimensions, .* gives 9"):
        make(service, dimensions=5).encode(TEXTS, "query")


@pytest.mark.parametrize("stored", [4, 0])
def test_a_service_that_changed_its_model_is_found_out(service: Service, store: Store, stored: int) -> None:
    encoder, rows = make(service, batch_size=4), store.rows("vectors", "k")
    embed(encoder, rows, TEXTS[:stored], "passage")
    service.set(faults=[{"dimensions": 9}] if stored else [None, {"dimensions": 9}])
    with pytest.raises(StorageError, match="holds rows of 8 numbers, not 9; remove it"):
        embed(encoder, rows, TEXTS, "passage")
    assert embed(encoder, rows, TEXTS, "passage")[1] == 6


def test_what_was_answered_is_never_asked_again(service: Service, store: Store) -> None:
    service.set(faults=[None, 400])
    with pytest.raises(ModelError, match="status 400"):
        embed(make(service, batch_size=4), store.rows("vectors", "k"), TEXTS, "passage")
    service.set()
    again = Store(store.root).rows("vectors", "k")
    vectors, new, tokens = embed(make(service, batch_size=4), again, TEXTS, "passage")
    np.testing.assert_array_equal(vectors, expected(TEXTS))
    assert (new, tokens) == (6, 600)
    assert [r["input"] for r in service.log] == [TEXTS[4:8], TEXTS[8:]]


def test_several_requests_are_under_way_at_once(service: Service, store: Store) -> None:
    service.set(together=5)  # it answers none before all five are there
    vectors, *_ = embed(make(service, batch_size=2, parallel=5), store.rows("vectors", "k"), TEXTS, "passage")
    np.testing.assert_array_equal(vectors, expected(TEXTS))


def test_a_refusal_among_several_requests_ends_them_all(service: Service, store: Store) -> None:
    service.set(faults=[None, 400])
    encoder, rows = make(service, batch_size=1, parallel=3), store.rows("vectors", "k")
    with pytest.raises(ModelError, match="status 400"):
        embed(encoder, rows, TEXTS * 5 + [f"more {i}" for i in range(200)], "passage")
    assert len(service.log) < 100
    np.testing.assert_array_equal(embed(encoder, rows, TEXTS, "passage")[0], expected(TEXTS))


def test_requests_keep_their_distance(service: Service, clock: Clock) -> None:
    service.set(faults=[None, 429])
    encoder = make(service, requests_per_minute=30)
    for _ in range(3):
        encoder.encode(TEXTS, "query")
    assert len(service.log) == 4
    assert clock.now == pytest.approx(6)  # a request every two seconds, the repeated one among them


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [({"prompt_tokens": 7}, 7), ({"total_tokens": 8}, 8), ({"prompt_tokens": "7"}, 20), ([], 20), (None, 20)],
    ids=str,
)
def test_tokens_are_the_services_or_counted_here(service: Service, store: Store, usage: Any, tokens: int) -> None:
    service.set(faults=[{"usage": usage}])
    assert embed(make(service), store.rows("vectors", "k"), TEXTS, "passage")[2] == tokens


def test_texts_are_cut_to_what_is_read(service: Service) -> None:  # CASES S17
    encoder = make(service, max_seq_length=9, passage_prefix="P: ", query_prefix="two words: ")
    assert (encoder.limit, encoder.query_limit) == (8, 7)
    all_words = [f"w{i}" for i in range(64)]
    cut = []
    for size in (8, 16, 64):
        chunks = [" ".join(all_words[at : at + size]) for at in range(0, 64, size)]
        encoder.encode(chunks, "passage")
        assert service.log[-1]["input"] == ["P: " + " ".join(chunk.split()[:8]) for chunk in chunks]
        cut.append((count_cut(encoder, chunks, "passage"), len(chunks)))
    assert cut == [(0, 8), (4, 4), (1, 1)]
    assert count_cut(encoder, [" ".join(all_words[:8]), "short"], "query") == 1
    encoder.encode([" ".join(all_words[:8])], "query")
    assert service.log[-1]["input"] == ["two words: " + " ".join(all_words[:7])]
    with pytest.raises(ModelError, match="passage_prefix leaves no room in 8 tokens"):
        make(service, max_seq_length=8, passage_prefix="a b c d e f g h")


@pytest.mark.parametrize("before", ["", "." * 260])  # a long message must not be cut within the key
def test_the_key_is_sent_and_shown_nowhere(
    service: Service, store: Store, before: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    caplog.set_level(0)
    service.set(faults=[None, {"status": 401, "echo": before}])
    encoder = make(service, api_key_env="MY_KEY", batch_size=5)
    rows = store.rows("vectors", encoder.fingerprint)
    with pytest.raises(ModelError, match=r"status 401: \.*Incorrect API key") as refused:
        embed(encoder, rows, TEXTS, "passage")
    assert [r["key"] for r in service.log] == [f"Bearer {KEY}"] * 2
    shown = [str(refused.value), repr(encoder.__dict__["_spec"]), caplog.text, encoder.fingerprint]
    assert not [text for text in shown if KEY[:8] in text]
    files = [path for path in store.root.rglob("*") if path.is_file()]
    assert any(path.suffix == ".safetensors" for path in files)
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


@pytest.mark.parametrize("value", [None, " ", "sk-\nX-Header: 1", "ключ"])
def test_a_key_that_cannot_be_sent_is_said_without_it(
    service: Service, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(ModelError, match="environment variable MY_KEY") as refused:
        make(service, api_key_env="MY_KEY").encode(TEXTS, "query")
    assert not (value or "").strip() or str(value).strip() not in str(refused.value)
    assert service.log == []


def test_the_fingerprint_is_of_what_makes_the_vectors(service: Service) -> None:  # CASES S20
    plain = {"max_seq_length": 100}
    other: list[dict[str, Any]] = [
        {"endpoint": service.url + "/2"}, {"model": "n"}, {"dimensions": 5}, {"query_prefix": "q "},
        {"passage_prefix": "q "}, {"max_seq_length": 99},
    ]  # fmt: skip
    prints = [make(service, **(plain | changed)).fingerprint for changed in [{}, *other]]
    assert len(set(prints)) == len(prints)
    same: list[dict[str, Any]] = [
        {"api_key_env": "K"}, {"batch_size": 2}, {"parallel": 2}, {"requests_per_minute": 9.0},
    ]  # fmt: skip
    assert {make(service, **(plain | changed)).fingerprint for changed in same} == {prints[0]}


def test_latency_is_of_single_requests_whose_vectors_are_kept(service: Service, clock: Clock, tmp_path: Path) -> None:
    queries = {f"q{i:02d}": f"query {i}" for i in range(30)}
    collection = Collection.of({"d1": "one two", "d2": "three"}, queries, {"q00": {"d1": 1}})
    spec = EncoderSpec(endpoint=service.url, model="m", tokenizer=DEFAULT_ENCODER, parallel=1, requests_per_minute=1)
    pipeline = Pipeline(collection, Store(tmp_path), DEFAULT_ENCODER, encoders={"remote": spec})
    result = pipeline.run(Configuration.of({"encoder": "remote", "top_k": 1}))
    asked = [text for request in service.log for text in request["input"]]
    assert sorted(asked) == sorted({*queries.values(), *collection.texts})  # each once
    assert service.sizes == [1] * 17 + [13, 2]
    assert pipeline.work.embedded == 32
    assert clock.now == 60 * 18  # held back by the service's limit,
    assert result.latency_ms < 1000  # which is no latency
