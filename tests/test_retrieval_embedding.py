"""Vectors: each text once for each encoder, prompts once, the same bits whatever the batch, nothing finished lost."""

import threading
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from conftest import CopyModel, HashEncoder
from hypothesis import given
from hypothesis import strategies as st

from sweep.artifacts import Store
from sweep.errors import ModelError
from sweep.retrieval.embedding import (
    BATCH_TEXTS,
    BATCH_TOKENS,
    Role,
    SentenceTransformerEncoder,
    batches,
    count_cut,
    embed,
    several_at_once,
)
from sweep.retrieval.models import Model
from sweep.retrieval.vectors import Floats

TEXTS = ["one", "one two", "three four", "five six seven", "one"]


def test_a_stored_text_is_never_encoded_again(store: Store) -> None:
    encoder, rows = HashEncoder(), store.rows("vectors", "k")
    vectors, new, tokens = embed(encoder, rows, TEXTS, "passage")
    assert vectors.dtype == np.float32
    assert vectors.flags.c_contiguous
    assert (new, tokens) == (4, 1 + 2 + 2 + 3)
    assert sorted(encoder.read) == sorted(set(TEXTS))
    np.testing.assert_array_equal(vectors, np.stack([encoder.encode([t], "passage")[0] for t in TEXTS]))

    fresh = HashEncoder()
    again, new, tokens = embed(fresh, store.rows("vectors", "k"), TEXTS[::-1], "passage")
    assert (new, tokens, fresh.read) == (0, 0, [])
    np.testing.assert_array_equal(again, vectors[::-1])


def test_one_changed_text_is_embedded_and_no_other(store: Store) -> None:  # CASES S20
    encoder, rows = HashEncoder(), store.rows("vectors", "k")
    before, *_ = embed(encoder, rows, TEXTS, "passage")
    encoder.read.clear()
    after, new, _ = embed(encoder, rows, [*TEXTS[:3], "five six sevem", TEXTS[4]], "passage")
    assert (new, encoder.read) == (1, ["five six sevem"])
    assert (after != before).any(axis=1).tolist() == [False, False, False, True, False]


def test_two_encoders_share_nothing(store: Store) -> None:  # CASES S20: same text, same dimension
    one, two = HashEncoder("m1"), HashEncoder("m2")
    a, *_ = embed(one, store.rows("vectors", one.fingerprint), ["text"], "passage")
    b, new, _ = embed(two, store.rows("vectors", two.fingerprint), ["text"], "passage")
    assert new == 1
    assert (a != b).any()


@pytest.mark.parametrize(("role", "read"), [("query", ["Q: Q: a", "Q: b"]), ("passage", ["P: Q: a", "P: b"])])
def test_prompts_stand_before_every_text_once(store: Store, role: Role, read: list[str]) -> None:  # CASES S19
    encoder, rows = HashEncoder(query="Q: ", passage="P: "), store.rows("vectors", "k")
    embed(encoder, rows, ["Q: a", "b"], role)
    assert sorted(encoder.read) == sorted(read)


def test_the_prompt_is_part_of_what_a_vector_is_kept_under(store: Store) -> None:
    rows = store.rows("vectors", "k")
    asked: list[tuple[HashEncoder, Role]] = [
        (HashEncoder(query="Q: ", passage="P: "), "query"),
        (HashEncoder(query="Q: ", passage="P: "), "passage"),
        (HashEncoder(query="Q: ", passage=""), "passage"),
    ]
    for encoder, role in asked:
        vectors, new, _ = embed(encoder, rows, ["a"], role)
        assert new == 1
        np.testing.assert_array_equal(vectors, HashEncoder().encode([encoder.prompt(role) + "a"], role))
    assert embed(HashEncoder(query="P: "), rows, ["a"], "query")[1] == 0  # the same words in another role


@pytest.fixture
def prompted(copy_model: CopyModel) -> Callable[..., SentenceTransformerEncoder]:
    def make(**fields: object) -> SentenceTransformerEncoder:
        folder = copy_model("prompted", {"config_sentence_transformers.json": fields})
        return SentenceTransformerEncoder(Model("prompted", folder))

    return make


def test_a_models_own_prompts_reach_the_model_once(
    minilm: SentenceTransformerEncoder, prompted: Callable[..., SentenceTransformerEncoder]
) -> None:  # CASES S19
    encoder = prompted(prompts={"query": "query: ", "document": "passage: "})
    texts = ["how to sort an array", "query: sorting"]
    for role, prompt in (("query", "query: "), ("passage", "passage: ")):
        for text in texts:
            plain = minilm.encode([prompt + text], "passage")
            np.testing.assert_array_equal(encoder.encode([text], role), plain)  # type: ignore[arg-type]
    assert encoder.fingerprint != minilm.fingerprint


def test_a_models_default_prompt_is_for_its_own_role(
    minilm: SentenceTransformerEncoder, prompted: Callable[..., SentenceTransformerEncoder]
) -> None:
    encoder = prompted(prompts={"query": "query: "}, default_prompt_name="query")
    assert encoder.prompt("passage") == ""
    np.testing.assert_array_equal(encoder.encode(["array"], "passage"), minilm.encode(["array"], "passage"))


class Failing(HashEncoder):
    """Stops at its n-th batch, as a killed run does."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.left = batch

    def encode(self, texts: Sequence[str], role: Role) -> Floats:
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        return super().encode(texts, role)


@pytest.mark.parametrize("finished", [0, 1, 3])
def test_a_killed_run_keeps_its_finished_batches(store: Store, finished: int) -> None:
    texts = [f"{i} " + "word " * (i % 5) for i in range(40)]  # five lengths: five batches
    killed = Failing(finished)
    with pytest.raises(KeyboardInterrupt):
        embed(killed, store.rows("vectors", "k"), texts, "passage")
    resumed = HashEncoder()
    vectors, new, _ = embed(resumed, store.rows("vectors", "k"), texts, "passage")
    assert len(killed.read) == 8 * finished
    assert new == len(resumed.read) == 40 - 8 * finished
    assert set(resumed.read).isdisjoint(killed.read)
    np.testing.assert_array_equal(
        vectors, embed(HashEncoder(), Store(store.root / "n").rows("v", "k"), texts, "passage")[0]
    )


class NotFinite(HashEncoder):
    def encode(self, texts: Sequence[str], role: Role) -> Floats:
        vectors = super().encode(texts, role)
        vectors[[text == "six bad" for text in texts], 3] = np.nan
        return vectors


def test_a_vector_that_is_not_finite_names_its_text_and_is_not_kept(store: Store) -> None:
    with pytest.raises(ModelError, match="hash: no finite vector for the text 'six bad'"):
        embed(NotFinite(), store.rows("vectors", "k"), ["a b", "six bad", "c"], "passage")
    assert embed(HashEncoder(), store.rows("vectors", "k"), ["six bad"], "passage")[1] == 1


def test_what_is_done_is_told_in_tokens(store: Store) -> None:
    told: list[int] = []
    embed(HashEncoder(), store.rows("vectors", "k"), TEXTS, "passage", told.append)
    assert sum(told) == 1 + 2 + 2 + 3
    embed(HashEncoder(), store.rows("vectors", "k"), TEXTS, "passage", told.append)
    assert sum(told) == 8
    prompted = HashEncoder(passage="three words : ")
    assert embed(prompted, store.rows("vectors", "k"), TEXTS, "passage", told.append)[2] == 8 + 4 * 3
    assert sum(told) == 16  # the text's own


def test_no_texts_make_no_vectors(store: Store) -> None:
    vectors, new, tokens = embed(HashEncoder(), store.rows("vectors", "k"), [], "passage")
    assert (len(vectors), new, tokens) == (0, 0, 0)


@given(st.lists(st.integers(0, 300) | st.sampled_from([0, 1, BATCH_TOKENS, BATCH_TOKENS + 1]), max_size=300))
def test_batches_are_a_partition_of_equal_lengths(tokens: list[int]) -> None:
    made = list(batches(np.array(tokens, np.int32)))
    assert sorted(i for batch in made for i in batch) == list(range(len(tokens)))
    for batch in made:
        assert len({tokens[i] for i in batch}) == 1
        assert 1 <= len(batch) <= BATCH_TEXTS
        assert len(batch) == 1 or len(batch) * tokens[batch[0]] <= BATCH_TOKENS
    longest = [tokens[batch[0]] for batch in made]
    assert longest == sorted(longest, reverse=True)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_several_at_once_does_each_and_keeps_the_threads(workers: int) -> None:
    import torch

    before = torch.get_num_threads()
    assert sorted(several_at_once(lambda n: n * n, list(range(20)), workers)) == [(n, n * n) for n in range(20)]
    assert torch.get_num_threads() == before


def test_one_that_is_slow_holds_nothing_back() -> None:
    others_done = threading.Event()

    def one(n: int) -> bool:
        return others_done.wait(20) if n == 0 else False

    found = []
    for n, waited in several_at_once(one, list(range(6)), 2):
        found.append((n, waited))
        if len(found) == 5:
            others_done.set()
    assert found == [*((n, False) for n in range(1, 6)), (0, True)]


def test_a_vector_does_not_depend_on_its_batch(minilm: SentenceTransformerEncoder, store: Store) -> None:  # CASES S33
    generator = np.random.default_rng(7)
    words = ["array", "sort", "index", "axis", "memory", "dtype", "shape", "view", "copy"]
    texts = [" ".join(generator.choice(words, n)) for n in (1, 2, 9, 30, 254, 300) for _ in range(n % 7 + 2)]
    together, *_ = embed(minilm, store.rows("vectors", "all"), texts, "passage")
    some = store.rows("vectors", "some")
    embed(minilm, some, texts[::3], "passage")
    extended, *_ = embed(minilm, some, texts, "passage")
    np.testing.assert_array_equal(extended, together)
    alone = np.concatenate([minilm.encode([text], "passage") for text in texts])
    np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize("prompt", ["multi", "query: "])
def test_a_prompt_that_grows_into_its_text_pads_nothing(
    prompted: Callable[..., SentenceTransformerEncoder], store: Store, prompt: str
) -> None:
    # "multi" + "ple" is one token and "multi" + "cat" two, though "ple" and "cat" are one each
    encoder = prompted(prompts={"passage": prompt})
    texts = ["ple", "cat", "ply", "dog", "media", "ple arrays", "cat arrays"]
    together, *_ = embed(encoder, store.rows("vectors", "k"), texts, "passage")
    alone = np.concatenate([encoder.encode([text], "passage") for text in texts])
    np.testing.assert_array_equal(together, alone)


def test_a_query_may_be_longer_than_a_passage(
    prompted: Callable[..., SentenceTransformerEncoder], store: Store
) -> None:
    encoder = prompted(prompts={"passage": "a b c d "})
    assert (encoder.limit, encoder.query_limit) == (250, 254)
    texts = ["word " * n for n in (249, 250, 251, 252, 254, 255, 300)]
    assert [count_cut(encoder, texts, role) for role in ("passage", "query")] == [5, 2]  # type: ignore[arg-type]
    together, *_ = embed(encoder, store.rows("vectors", "k"), texts, "query")
    alone = np.concatenate([encoder.encode([text], "query") for text in texts])
    np.testing.assert_array_equal(together, alone)
    assert (together[-1] == together[-2]).all()


class OneHot(HashEncoder):
    """A text's vector counts each of 64 words."""

    def _vector(self, text: str) -> Floats:
        read = [int(word[1:]) for word in text.split()[: self.limit]]
        return np.bincount(read, minlength=64).astype(np.float32)


@pytest.mark.parametrize(("size", "cut", "of", "found"), [(8, 0, 8, True), (16, 4, 4, False), (64, 1, 1, False)])
def test_what_is_not_read_is_counted_and_not_found(
    store: Store, size: int, cut: int, of: int, found: bool
) -> None:  # CASES S17
    encoder, words = OneHot(limit=8), [f"t{i}" for i in range(64)]
    chunks = [" ".join(words[at : at + size]) for at in range(0, 64, size)]
    assert (count_cut(encoder, chunks, "passage"), len(chunks)) == (cut, of)
    vectors, *_ = embed(encoder, store.rows("vectors", "k"), chunks, "passage")
    assert found == ((vectors @ encoder.encode(["t60"], "query").T)[60 // size, 0] > 0)
    assert count_cut(OneHot(), chunks, "query") == 0


def test_tokens_are_counted_beyond_the_limit(minilm: SentenceTransformerEncoder) -> None:
    assert minilm.count_tokens(["", "a b", "word " * 400, "tokenization"]).tolist() == [0, 2, 400, 2]
    assert minilm.limit == 254


def test_token_vectors_are_one_a_token_with_both_ends(minilm: SentenceTransformerEncoder) -> None:
    found = minilm.token_vectors(["a b", "word"], "passage")
    assert [v.shape for v in found] == [(4, 384), (3, 384)]
    for vectors in found:
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("damage", ["none", "half"])
def test_weights_that_cannot_be_loaded_are_named(copy_model: CopyModel, damage: str) -> None:
    folder = copy_model("mine")
    head = (folder / "model.safetensors").read_bytes()[:100_000]
    (folder / "model.safetensors").unlink()
    if damage == "half":
        (folder / "model.safetensors").write_bytes(head)
    with pytest.raises(ModelError, match=r"mine: cannot be loaded as a SentenceTransformer from .*mine"):
        SentenceTransformerEncoder(Model("mine", folder)).encode(["a"], "query")
