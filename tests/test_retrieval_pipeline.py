"""The whole of retrieval on a dozen documents with the packaged model: what comes back, and what is computed anew."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import CopyModel, Liking

from metrics import evaluate
from sweep.artifacts import Store
from sweep.collection.collection import Collection
from sweep.errors import SettingsError
from sweep.retrieval.configuration import DEFAULT_ENCODER, Configuration, Value
from sweep.retrieval.pipeline import Pipeline, Result

TOPICS = {
    "bread": "Knead the dough, let it rise for an hour, and bake the loaf in a hot oven until the crust is brown.",
    "tyre": "Take the wheel off, lever the tyre from the rim, find the hole in the tube and glue a patch over it.",
    "moon": "The moon turns around the earth in a month and shows the same face to us, lit by the sun in phases.",
    "chess": "Open with the pawns in the centre, bring out knights and bishops, castle early and guard the king.",
    "guitar": "Tune the six strings, press them behind the fret, and strum chords in time with the drummer.",
    "garden": "Sow the tomato seeds indoors in March, plant them out after the frost and water the soil often.",
    "array": "A numpy array holds numbers of one dtype; sort it along an axis, slice it, or reshape it without a copy.",
    "tax": "Declare your income before the deadline, deduct what you gave to charity, and pay what you owe.",
    "whale": "The blue whale eats tons of krill a day and sings to others across hundreds of miles of ocean.",
    "castle": "The medieval castle had thick walls, a moat with a drawbridge, and a tower for the lord's family.",
    "coffee": "Grind the beans just before you brew, pour water a little below boiling, and wait four minutes.",
    "train": "The night train leaves at ten, sleeps two in a cabin, and arrives at the coast before breakfast.",
}
DOCUMENTS = {name: text if name != "whale" else " ".join([text] * 9) for name, text in TOPICS.items()}  # 800 characters
QUERIES = {
    "q1": "how do I repair a flat bicycle tyre", "q2": "sort a numpy array", "q3": "what does a blue whale eat",
    "q4": "baking a loaf of bread",
}  # fmt: skip
QRELS = {"q1": {"tyre": 3}, "q2": {"array": 3}, "q3": {"whale": 3}, "q4": {"bread": 3}}
ALGORITHMS: dict[str, dict[str, Value]] = {
    "keyword": {"algorithm": "keyword"},
    "vector": {"algorithm": "vector"},
    "HNSW": {"algorithm": "vector", "index": "HNSW16"},
    "hybrid": {"algorithm": "hybrid"},
    "semantic": {"algorithm": "semantic", "pool": 12},
    "semantic over keyword": {"algorithm": "semantic", "first_stage": "keyword", "pool": 12},
}


def collection(documents: dict[str, str] = DOCUMENTS) -> Collection:
    return Collection.of(documents, QUERIES, QRELS)


def of(settings: dict[str, Value], **more: Value) -> Configuration:
    return Configuration.of({"chunk_size": 16, "chunk_overlap": 0.25, "top_k": 5} | settings | more)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """One pipeline for the tests of what comes back; those of what is computed make their own."""
    return Pipeline(collection(), Store(tmp_path_factory.mktemp("pipeline")), DEFAULT_ENCODER)


def ndcg(result: Result) -> float:
    return evaluate(collection().judgments, result.documents, ["ndcg@5"]).mean("ndcg@5")


@pytest.mark.parametrize("size", [8, 16, 64, 254])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_labels_survive_another_chunk_size(shared: Pipeline, algorithm: str, size: int) -> None:  # CASES S11
    assert ndcg(shared.run(of(ALGORITHMS[algorithm], chunk_size=size, pool=30))) == 1.0


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_top_k_counts_chunks_and_documents_are_named_once(shared: Pipeline, algorithm: str) -> None:  # CASES S10
    result = shared.run(of(ALGORITHMS[algorithm]))
    chunks = shared.stages.chunks(16, 0.25)
    exact = "keyword" not in algorithm  # which returns no chunk without a word of the query
    assert result.chunks.items.shape[1] == 5
    assert result.chunks.counts.max() == 5
    assert not exact or result.chunks.counts.tolist() == [5] * 4
    for row in range(4):
        items = [i for i in result.chunks.items[row].tolist() if i >= 0]
        assert len(set(items)) == len(items)
        owners = list(dict.fromkeys(chunks.doc[items].tolist()))
        assert [d for d in result.documents.items[row].tolist() if d >= 0] == owners
        best = [
            max(s for i, s in zip(items, result.chunks.scores[row], strict=False) if chunks.doc[i] == d) for d in owners
        ]
        assert result.documents.scores[row, : len(owners)].tolist() == best
    assert result.documents.counts.min() < 5 or algorithm == "semantic"
    lengths = (chunks.tokens[np.maximum(result.chunks.items, 0)] * (result.chunks.items >= 0)).sum(axis=1)
    assert (result.context_tokens <= lengths).all()
    assert (result.context_tokens > 0).all()


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a != "HNSW"])
def test_a_smaller_top_k_is_a_prefix_of_a_larger(shared: Pipeline, algorithm: str) -> None:
    large = shared.run(of(ALGORITHMS[algorithm], top_k=12)).chunks
    for top_k in (1, 3, 11):
        small = shared.run(of(ALGORITHMS[algorithm], top_k=top_k)).chunks
        np.testing.assert_array_equal(small.items, large.items[:, :top_k])
        np.testing.assert_array_equal(small.scores, large.scores[:, :top_k])


def test_more_than_there_are_returns_them_all(shared: Pipeline) -> None:
    chunks = shared.stages.chunks(16, 0.25)
    result = shared.run(of({"algorithm": "vector"}, top_k=5000))
    assert np.sort(result.chunks.items, axis=1).tolist() == [list(range(len(chunks)))] * 4
    assert result.documents.counts.tolist() == [12] * 4


def test_facts_of_cost(shared: Pipeline) -> None:
    count = len(shared.stages.chunks(16, 0.25))
    vector, semantic = (shared.run(of(ALGORITHMS[a])) for a in ("vector", "semantic"))
    assert vector.index_bytes == count * 384 * 4
    assert (vector.rerank_pairs, semantic.rerank_pairs) == (0, 12)
    assert 0 < vector.latency_ms < semantic.latency_ms
    assert vector.truncated == 0.0


def fresh(store: Store, documents: dict[str, str] = DOCUMENTS) -> Pipeline:
    return Pipeline(collection(documents), store, DEFAULT_ENCODER)


def test_a_second_run_on_the_same_store_computes_nothing(store: Store) -> None:
    configurations = [of(settings, top_k=k) for settings in ALGORITHMS.values() for k in (3, 5)]
    first, second = fresh(store), fresh(store)
    before = [first.run(c) for c in configurations]
    after = [second.run(c) for c in reversed(configurations)][::-1]
    work = second.work
    assert (work.embedded, work.searches_run, work.pairs_scored, work.indexes_built) == (0, 0, 0, 0)
    assert first.work.embedded == len(first.stages.chunks(16, 0.25)) - repeated(first, 16) + 4
    for a, b in zip(before, after, strict=True):
        assert a.documents.items.tolist() == b.documents.items.tolist()
        assert a.chunks.scores.tolist() == b.chunks.scores.tolist()
        assert (a.latency_ms, a.index_bytes) == (b.latency_ms, b.index_bytes)


def texts(pipeline: Pipeline, size: int) -> Sequence[str]:
    return pipeline.stages.chunks(size, 0.25).texts(pipeline.collection.texts)


def repeated(pipeline: Pipeline, size: int) -> int:
    return len(texts(pipeline, size)) - len(set(texts(pipeline, size)))


def test_another_chunk_size_embeds_the_texts_that_are_new(store: Store) -> None:
    pipeline = fresh(store)
    pipeline.run(of({}, chunk_size=32))
    before = pipeline.work.embedded
    assert pipeline.units([of({}, chunk_size=32)]) == 0
    expected = set(texts(pipeline, 20)) - set(texts(pipeline, 32))
    assert 0 < len(expected) < len(set(texts(pipeline, 20)))  # some chunks are whole documents at either size
    assert pipeline.units([of({}, chunk_size=20)]) == pipeline.units([of({}, chunk_size=20), of({}, chunk_size=32)]) > 0
    pipeline.run(of({}, chunk_size=20))
    assert pipeline.work.embedded - before == len(expected)


def test_one_changed_document_embeds_its_own_chunks(store: Store) -> None:
    fresh(store).run(of({}))
    changed = fresh(store, DOCUMENTS | {"moon": DOCUMENTS["moon"].replace("phases", "phrases")})
    changed.run(of({}))
    assert changed.work.embedded == 1
    assert changed.work.searches_run == 1


@pytest.mark.parametrize(
    ("settings", "name", "values", "searches"),
    [
        ({"algorithm": "vector", "index": "HNSW16"}, "ef_search", (8, 16, 64), 3),
        ({"algorithm": "vector", "index": "HNSW16"}, "top_k", (3, 4, 5), 3),  # approximate: its own search for each k
        ({"algorithm": "vector"}, "top_k", (3, 5, 100), 1),
        ({"algorithm": "keyword"}, "k1", (0.5, 1.0, 1.5), 3),
        ({"algorithm": "keyword"}, "b", (0.0, 0.5, 1.0), 3),
        ({"algorithm": "hybrid"}, "rrf_k", (1, 60, 100), 2),
        ({"algorithm": "hybrid"}, "fusion_depth", (10, 50, 100), 2),
        ({"algorithm": "semantic"}, "pool", (5, 10, 12), 2),
    ],
)
def test_a_search_time_parameter_builds_and_embeds_nothing(
    store: Store, settings: dict[str, Value], name: str, values: tuple[Value, ...], searches: int
) -> None:
    first = fresh(store)
    first.run(of(settings, **{name: values[-1]}))
    run = first.work.searches_run
    for value in values:
        pipeline = fresh(store)
        pipeline.run(of(settings, **{name: value}))
        assert (pipeline.work.embedded, pipeline.work.indexes_built) == (0, 0)
        run += pipeline.work.searches_run
    assert run == searches


@pytest.mark.parametrize(("pool", "expected"), [(6, 1.0), (3, 0.0)])
def test_semantic_search_looks_beyond_what_it_returns(  # CASES S26
    store: Store, monkeypatch: pytest.MonkeyPatch, pool: int, expected: float
) -> None:
    documents = {f"d{i}": "apple " * (7 - i) + "pear " * i for i in range(1, 7)}
    brought = Collection.of(documents, {"q": "apple"}, {"q": {"d6": 4}})
    pipeline = Pipeline(brought, store, DEFAULT_ENCODER)
    monkeypatch.setattr(pipeline, "_rerankers", lambda *_: Liking({("apple", documents["d6"].strip()): 1.0}))
    settings: dict[str, Value] = {"algorithm": "semantic", "first_stage": "keyword", "pool": pool, "b": 0.0}
    result = pipeline.run(of(settings, top_k=3))
    assert result.chunks.counts.tolist() == [3]
    assert evaluate(brought.judgments, result.documents, ["ndcg@3"]).mean("ndcg@3") == expected


@pytest.mark.parametrize("algorithm", ["keyword", "hybrid", "semantic over keyword"])
def test_queries_without_a_known_word(store: Store, algorithm: str) -> None:
    strange = Collection.of(DOCUMENTS, {"q": "zzz", "r": "???"}, {"q": {"tyre": 1}})
    pipeline = Pipeline(strange, store, DEFAULT_ENCODER)
    counts = pipeline.run(of(ALGORITHMS[algorithm])).chunks.counts.tolist()
    assert counts == ([5, 5] if algorithm == "hybrid" else [0, 0])


WORDS = ["one two three four five six seven eight"] * 8  # 64 tokens


def truncated(store: Store, folder: Path, size: int, allow: bool, **settings: Value) -> float:
    made = Collection.of({"d": " ".join(WORDS)}, {"q": "one"}, {"q": {"d": 1}})
    pipeline = Pipeline(made, store, DEFAULT_ENCODER, allow_truncation=allow, folder=folder.parent)
    chosen: dict[str, Value] = {"encoder": folder.name, **settings}
    return pipeline.run(Configuration.of({"chunk_size": size, "top_k": 1} | chosen)).truncated


def test_chunks_that_the_encoder_would_cut_short_are_refused(store: Store, copy_model: CopyModel) -> None:  # CASES S17
    folder = copy_model("short", {"sentence_bert_config.json": {"max_seq_length": 10}})
    assert [truncated(store, folder, size, True) for size in (8, 16, 64, 24)] == [0, 1, 1, pytest.approx(1.0)]
    assert truncated(store, folder, 8, False) == 0
    with pytest.raises(SettingsError, match=r"chunk_size 16: 100\.0% of the chunks .* 8 tokens that short reads"):
        truncated(store, folder, 16, False)
    assert truncated(store, folder, 15, True) == 0.8  # four chunks of 15, the last of 4


def test_a_prompt_takes_its_share_of_what_the_encoder_reads(store: Store, copy_model: CopyModel) -> None:  # CASES S17
    prompts = {"prompts": {"query": "", "document": "passage: "}}  # two tokens
    limit = {"max_seq_length": 10}
    folder = copy_model("short", {"sentence_bert_config.json": limit, "config_sentence_transformers.json": prompts})
    assert truncated(store, folder, 6, False) == 0
    with pytest.raises(SettingsError, match="6 tokens that short reads"):
        truncated(store, folder, 8, False)


def test_chunks_that_the_reranker_would_cut_short_are_refused(store: Store, copy_model: CopyModel) -> None:  # CASES S17
    folder = copy_model("short", {"sentence_bert_config.json": {"max_seq_length": 10}})
    semantic: dict[str, Value] = {"algorithm": "semantic", "first_stage": "keyword", "reranker_model": folder.name}
    assert truncated(store, folder, 8, False, **semantic) == 0
    with pytest.raises(SettingsError, match="8 tokens that short reads"):
        truncated(store, folder, 16, False, **semantic)
