"""Reranking: each query's own pool, each pair once, scores as the models give them."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from conftest import HashEncoder, Liking

from metrics import Rankings, evaluate
from metrics.judgments import Judgments
from sweep.artifacts import Store
from sweep.errors import ModelError
from sweep.retrieval.embedding import Role, SentenceTransformerEncoder, embed
from sweep.retrieval.models import Model, find_model, precision
from sweep.retrieval.pair_rerankers import CrossEncoderReranker, LateInteractionReranker
from sweep.retrieval.reranking import EncoderReranker, Reranker, rerank
from sweep.retrieval.vectors import Floats, unit

PASSAGES = ["d1", "d2", "d3", "d4", "d5", "d6"]


def pool(*rows: list[int]) -> Rankings:
    width = max(map(len, rows), default=0)
    items = np.array([row + [-1] * (width - len(row)) for row in rows], np.int32).reshape(len(rows), width)
    return Rankings(items, np.where(items >= 0, -np.arange(width), -np.inf).astype(np.float32))


def run(
    reranker: Reranker, store: Store, queries: list[str], candidates: Rankings, passages: Sequence[str] = PASSAGES
) -> tuple[Rankings, int]:
    return rerank(reranker, store.rows(*reranker.table), queries, texts_of(passages), candidates)[:2]


def texts_of(passages: Sequence[str]) -> Callable[[npt.NDArray[np.int64]], list[str]]:
    return lambda codes: [passages[i] for i in codes]


@pytest.mark.parametrize(("depth", "expected"), [(6, 1.0), (3, 0.0)])
def test_a_reranker_returns_from_its_pool(store: Store, depth: int, expected: float) -> None:  # CASES S26
    judgments = Judgments.from_dict({"q": {"d6": 4, "d1": 0}}, documents=PASSAGES)
    candidates = pool([0, 1, 2, 3, 4, 5]).cut(depth)
    reranked, scored = run(Liking({("q", "d6"): 9.0}), store, ["q"], candidates)
    assert scored == depth
    assert evaluate(judgments, reranked.cut(3), ["ndcg@3"]).mean("ndcg@3") == expected
    assert evaluate(judgments, candidates, ["recall"]).mean("recall") == expected  # the pool's own


def test_pools_of_queries_do_not_mix(store: Store) -> None:
    likes = {("q1", "d3"): 2.0, ("q1", "d6"): 9.0, ("q2", "d1"): 9.0, ("q2", "d5"): 1.0}
    candidates = pool([0, 1, 2], [5, 4, 3, 2], [])
    reranked, scored = run(Liking(likes), store, ["q1", "q2", "q3"], candidates)
    assert reranked.items.tolist() == [[2, 0, 1, -1], [4, 2, 3, 5], [-1, -1, -1, -1]]
    assert reranked.scores[1, 0] == 1.0
    assert scored == 7


def test_a_pair_is_scored_once_whatever_the_pools(store: Store) -> None:
    reranker = Liking({("q1", "d2"): 1.0})
    small, _ = run(reranker, store, ["q1", "q2"], pool([0, 1], [2, 1]))
    large, scored = run(reranker, store, ["q1", "q2"], pool([0, 1, 5], [1, 3, 2]))
    assert scored == 2
    assert sorted(reranker.read) == sorted(set(reranker.read))
    assert len(reranker.read) == 6
    again = Liking({("q1", "d2"): 1.0})
    assert run(again, store, ["q1", "q2"], pool([1, 0], [2]))[0].items.tolist() == [[1, 0], [2, -1]]
    assert again.read == []
    assert large.items.tolist() == [[1, 0, 5], [1, 2, 3]]
    assert small.items.tolist() == [[1, 0], [1, 2]]


def test_one_text_under_several_codes_is_scored_once(store: Store) -> None:
    reranker = Liking({("q", "same"): 1.0})
    reranked, _ = run(reranker, store, ["q", "q"], pool([0, 1, 2], [2, 1, 0]), ["same", "other", "same"])
    assert reranked.items.tolist() == [[0, 2, 1]] * 2
    assert sorted(reranker.read) == [("q", "other"), ("q", "same")]


def test_pairs_that_join_to_one_text_are_two(store: Store) -> None:
    likes = {("ab", "c"): 1.0, ("a", "bc"): 2.0}
    reranked, _ = run(Liking(likes), store, ["ab", "a"], pool([0, 1], [0, 1]), ["c", "bc"])
    assert reranked.scores.tolist() == [[1, 0], [2, 0]]
    assert reranked.items.tolist() == [[0, 1], [1, 0]]


def test_a_query_and_a_passage_that_change_places_are_another_pair(store: Store) -> None:
    likes = {("a", "b"): 1.0, ("b", "a"): 2.0, ("a", "a"): 3.0, ("b", "b"): 4.0}
    reranked, scored = run(Liking(likes), store, ["a", "b"], pool([0, 1], [0, 1]), ["a", "b"])
    assert scored == 4
    assert reranked.scores.tolist() == [[3, 1], [4, 2]]


@pytest.mark.parametrize("kept", [False, True])
def test_scores_without_a_table_are_those_with_one(store: Store, kept: bool) -> None:
    reranker = Liking({("q", "d2"): 1.0, ("q", "d5"): 2.0}, batch=2)
    if kept:
        run(reranker, store, ["q"], pool([0, 1, 2]))
    reranked, _ = run(reranker, store, ["q"], pool([5, 4, 3, 2, 1, 0]))
    fresh = reranker.fresh("q", PASSAGES)
    np.testing.assert_allclose(reranked.scores[0], fresh[reranked.items[0]], atol=1e-5)


# --- pairs that later pools may ask for


class Reading(Liking):
    """Reads a passage by itself, as late interaction does."""

    reads_apart = True


def test_a_passage_is_read_once_for_all_pools_it_may_be_in(store: Store) -> None:
    queries, first, likes = ["q1", "q2"], pool([0, 1], [4, 1]), {("q1", "d5"): 5.0}
    second, third = pool([5, 2, 4], [0, 1, 3]), pool([0, 5], [2, 5, 4])
    reranker = Reading(likes)
    rows, texts, done = store.rows(*reranker.table), texts_of(PASSAGES), list[int]()
    _, scored, read = rerank(reranker, rows, queries, texts, first, [second, third], done.append)
    # its own four, and q1 with d5, q2 with d1, which another holds; d3, d4 and d6 it does not read
    assert set(reranker.read) == {(q, p) for q in queries for p in ("d1", "d2", "d5")}
    assert (scored, read, sum(done)) == (6, 3, 4)
    reranked, scored, read = rerank(reranker, rows, queries, texts, second, [first, third])
    assert (scored, read) == (5, 3)  # d3 and d6 for both queries, d4 for the second
    plain, _ = run(Liking(likes), Store(store.root / "other"), queries, second)
    assert reranked.items.tolist() == plain.items.tolist()
    assert reranked.scores.tolist() == plain.scores.tolist()
    assert rerank(reranker, rows, queries, texts, third)[1:] == (0, 0)
    assert len(reranker.read) == len(set(reranker.read)) == 11


def test_nothing_is_read_for_what_lies_ahead_alone(store: Store) -> None:
    reranker = Reading({})
    rows, texts, first = store.rows(*reranker.table), texts_of(PASSAGES), pool([0, 1], [2])
    rerank(reranker, rows, ["q", "r"], texts, first)
    assert rerank(reranker, rows, ["q", "r"], texts, first, [pool([2, 3], [0, 1])])[1:] == (0, 0)
    # d4 is read for q; d1 is known for q and not read again, d2 is in no pool
    assert rerank(reranker, rows, ["q", "r"], texts, pool([0, 3], []), [pool([], [0, 1])])[1:] == (1, 1)


def test_what_reads_pairs_scores_none_ahead(store: Store) -> None:
    reranker = Liking({})
    rows = store.rows(*reranker.table)
    assert rerank(reranker, rows, ["q", "r"], texts_of(PASSAGES), pool([0], [1]), [pool([1], [0])])[1:] == (2, 2)


# --- another encoder


def test_an_encoder_ranks_by_its_cosines(store: Store) -> None:
    encoder = HashEncoder("strong", query="query: ", passage="passage: ")
    queries, passages = ["red apple", "green pear", "none"], ["apple pie", "red apple", "pear", "a green pear tree"]
    candidates = pool([0, 2, 1], [1, 3, 2, 0], [])
    reranked, scored = run(EncoderReranker(encoder), store, queries, candidates, passages)
    asked, read = encoder.encode(queries, "query"), encoder.encode(passages, "passage")
    cosines = unit(asked) @ unit(read).T
    for query, row in enumerate(candidates.items.tolist()):
        expected = sorted((i for i in row if i >= 0), key=lambda i: -cosines[query, i])
        assert [i for i in reranked.items[query].tolist() if i >= 0] == expected
        np.testing.assert_allclose(reranked.scores[query, : len(expected)], cosines[query, expected], atol=1e-5)
    assert scored == 0


def test_vectors_need_not_be_of_unit_length(store: Store) -> None:
    class Long(HashEncoder):
        def encode(self, texts: Sequence[str], role: Role) -> Floats:
            lengths = np.array([1 + len(text) for text in texts], np.float32)
            return super().encode(texts, role) * lengths[:, None]

    plain, _ = run(EncoderReranker(HashEncoder("a")), store, ["d3 d1"], pool([0, 1, 2, 3]))
    long, _ = run(EncoderReranker(Long("a")), Store(store.root / "long"), ["d3 d1"], pool([0, 1, 2, 3]))
    assert long.items.tolist() == plain.items.tolist()
    np.testing.assert_allclose(long.scores, plain.scores, atol=1e-5)


def test_an_encoder_shares_its_vectors_with_searches(store: Store) -> None:
    encoder = HashEncoder()
    reranker = EncoderReranker(encoder)
    rows = store.rows("vectors", encoder.fingerprint)
    assert reranker.table == ("vectors", encoder.fingerprint)
    embed(encoder, rows, ["d1", "d2"], "passage")  # what a vector search had embedded
    assert rerank(reranker, rows, ["q"], texts_of(PASSAGES), pool([0, 1, 2]))[1:] == (0, 1)
    assert rerank(reranker, rows, ["q"], texts_of(PASSAGES), pool([2, 3, 0]))[1:] == (0, 1)
    assert embed(encoder, rows, PASSAGES, "passage")[1] == 2  # d5 and d6 alone
    assert encoder.read.count("d3") == encoder.read.count("d1") == 1


def test_an_encoder_without_a_finite_vector_is_an_error(store: Store) -> None:
    class Broken(HashEncoder):
        def encode(self, texts: Sequence[str], role: Role) -> Floats:
            return super().encode(texts, role) * np.float32(np.nan)

    with pytest.raises(ModelError, match="no finite vector"):
        run(EncoderReranker(Broken()), store, ["q"], pool([0, 1]))


def test_pools_that_are_all_empty_stay_empty(store: Store) -> None:
    for candidates in (pool([], []), Rankings(np.full((2, 3), -1, np.int32), np.full((2, 3), -np.inf, np.float32))):
        rerankers: list[Reranker] = [Liking({}), EncoderReranker(HashEncoder())]
        for reranker in rerankers:
            reranked, scored = run(reranker, store, ["q1", "q2"], candidates)
            assert reranked.items.shape == candidates.items.shape
            assert reranked.counts.tolist() == [0, 0]
            assert scored == 0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_an_error_and_not_kept(store: Store, bad: float) -> None:
    with pytest.raises(ModelError, match="not finite"):
        run(Liking({("q", "d2"): bad}), store, ["q"], pool([0, 1]))
    assert run(Liking({("q", "d2"): 1.0}), store, ["q"], pool([0, 1]))[0].items.tolist() == [[1, 0]]


def test_a_killed_run_keeps_what_it_had_saved(store: Store) -> None:
    passages = [f"p{i}" for i in range(1000)]
    killed = Liking({}, batch=100, batches=7)
    with pytest.raises(KeyboardInterrupt):
        run(killed, store, ["q"], pool(list(range(1000))), passages)
    resumed = Liking({}, batch=100)
    _, scored = run(resumed, store, ["q"], pool(list(range(1000))), passages)
    assert scored == len(resumed.read) == 1000 - 600  # saved after every third batch, as soon as 256 are done
    assert set(resumed.read) | set(killed.read) == {("q", p) for p in passages}


# --- late interaction, against the formula over transformers' own hidden states

TEXTS = ["sort an array", "numpy sorts arrays quickly along an axis", "bread recipe"]


def hidden(texts: list[str]) -> list[Floats]:
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = find_model("all-MiniLM-L6-v2").folder
    model = AutoModel.from_pretrained(folder, dtype=getattr(torch, precision()), local_files_only=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    found = []
    with torch.no_grad():
        for text in texts:
            states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].float().numpy()
            found.append(states / np.linalg.norm(states, axis=1, keepdims=True))
    return found


def test_late_interaction_is_the_mean_of_best_cosines(minilm: SentenceTransformerEncoder) -> None:
    reranker = LateInteractionReranker(minilm)
    pairs = np.array([(q, p) for q in range(3) for p in range(3)])
    scores = np.empty(9, np.float32)
    for batch in reranker.plan(TEXTS, TEXTS, pairs):
        scores[batch] = reranker.score(TEXTS, TEXTS, pairs[batch])
    states = hidden(TEXTS)
    expected = [(states[q] @ states[p].T).max(axis=1).mean() for q, p in pairs.tolist()]
    np.testing.assert_allclose(scores, expected, atol=5e-3)
    np.testing.assert_allclose(scores[[0, 4, 8]], 1, atol=1e-5)  # a text against itself
    assert scores[1] > scores[2]


def test_late_interaction_plans_each_passage_once(minilm: SentenceTransformerEncoder) -> None:
    passages = [f"{'word ' * (i % 4)}end" for i in range(30)]
    pairs = np.array([(q, p) for q in range(5) for p in range(30)])
    plan = LateInteractionReranker(minilm).plan(["q"] * 5, passages, pairs)
    assert sorted(np.concatenate(plan).tolist()) == list(range(150))
    read = [set(pairs[batch, 1].tolist()) for batch in plan]
    assert sum(map(len, read)) == 30  # no passage in two batches
    assert all(len({p % 4 for p in batch}) == 1 for batch in read)  # nor with one of another length


def test_late_interaction_scores_do_not_depend_on_the_batch(minilm: SentenceTransformerEncoder, store: Store) -> None:
    reranker = LateInteractionReranker(minilm)
    together, _ = run(reranker, store, TEXTS, pool([0, 1, 2], [2, 1, 0], [0, 1, 2]), TEXTS)
    for query in range(3):
        alone, _ = run(reranker, Store(store.root / str(query)), [TEXTS[query]], pool([0, 1, 2]), TEXTS)
        assert alone.items.tolist() == together.items[query : query + 1].tolist()
        np.testing.assert_array_equal(alone.scores, together.scores[query : query + 1])


def test_late_interaction_reads_a_passage_once_for_all_pools(minilm: SentenceTransformerEncoder, store: Store) -> None:
    reranker, texts = LateInteractionReranker(minilm), texts_of(TEXTS)
    rows, first, second = store.rows(*reranker.table), pool([0, 1], [2]), pool([1], [0, 2])
    assert rerank(reranker, rows, TEXTS[:2], texts, first, [second])[1:] == (4, 3)
    reranked, scored, read = rerank(reranker, rows, TEXTS[:2], texts, second)
    assert (scored, read) == (0, 0)
    alone, _ = run(reranker, Store(store.root / "alone"), TEXTS[:2], second, TEXTS)
    np.testing.assert_array_equal(reranked.items, alone.items)
    np.testing.assert_array_equal(reranked.scores, alone.scores)


# --- a cross-encoder of a few words, made here


def cross_encoder(folder: Path, labels: int) -> Model:
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    vocabulary = {word: i for i, word in enumerate([*special.values(), "a", "b", "c", "d", "e", "q", "r"])}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    torch.manual_seed(1)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    more: dict[str, Any] = sizes | {"max_position_embeddings": 32, "num_labels": labels, "initializer_range": 1.0}
    BertForSequenceClassification(BertConfig(vocab_size=len(vocabulary), **more)).save_pretrained(folder)
    fast: Any = PreTrainedTokenizerFast
    fast(tokenizer_object=tokenizer, model_max_length=32, **special).save_pretrained(folder)
    return Model("tiny", folder)


def test_a_cross_encoder_ranks_by_its_own_scores(tmp_path: Path, store: Store) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model, queries, passages = cross_encoder(tmp_path / "m", 1), ["q", "q r"], ["a", "a b", "c d e", "e", "b d"]
    reranker = CrossEncoderReranker(model)
    reranked, scored = run(reranker, store, queries, pool([0, 1, 2, 3, 4], [4, 2]), passages)
    assert scored == 7
    plain = AutoModelForSequenceClassification.from_pretrained(model.folder, dtype=getattr(torch, precision())).eval()
    tokenizer = AutoTokenizer.from_pretrained(model.folder)
    for row, query in enumerate(queries):
        items = [i for i in reranked.items[row].tolist() if i >= 0]
        with torch.no_grad():
            logits = [plain(**tokenizer(query, passages[i], return_tensors="pt")).logits.float() for i in items]
        expected = torch.sigmoid(torch.cat(logits)).flatten().numpy()
        np.testing.assert_allclose(reranked.scores[row, : len(items)], expected, atol=0.02)
    assert np.ptp(reranked.scores[0]) > 0.1
    assert run(CrossEncoderReranker(model), store, queries, pool([2, 1], [2, 4]), passages)[1] == 0


def test_a_cross_encoder_that_gives_two_scores_is_refused(tmp_path: Path, store: Store) -> None:
    with pytest.raises(ModelError, match="tiny: gives 2 scores a pair; a reranker gives one"):
        run(CrossEncoderReranker(cross_encoder(tmp_path / "m", 2)), store, ["q"], pool([0, 1]), ["a", "b"])


def test_a_folder_that_is_no_cross_encoder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="mine: cannot be loaded as a CrossEncoder"):
        CrossEncoderReranker(Model("mine", tmp_path)).score(["q"], ["a"], np.array([[0, 0]]))
