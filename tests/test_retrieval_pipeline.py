"""The whole of retrieval on a dozen documents with the packaged model: what comes back, and what is computed anew."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from conftest import CopyModel, Liking

from metrics import evaluate
from sweep.artifacts import Store
from sweep.collection.collection import Collection
from sweep.errors import ModelError, SettingsError
from sweep.retrieval.configuration import Chunking, Configuration
from sweep.retrieval.parameters import DEFAULT_ENCODER, Value
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
    "convex": {"algorithm": "hybrid", "fusion": "convex", "vector_weight": 0.7, "bm25_variant": "bm25+"},
    "MMR": {"algorithm": "vector", "mmr_lambda": 0.8, "mmr_pool": 40},
    "two a document": {"algorithm": "vector", "max_per_document": 2},
    "title, int8": {"algorithm": "vector", "chunk_context": "title", "quantization": "int8", "dimensions": 200},
    "binary, sentences": {"algorithm": "vector", "quantization": "binary", "chunker": "sentences"},
    "rescored": {"algorithm": "semantic", "reranker": "encoder", "reranker_model": DEFAULT_ENCODER, "pool": 12},
    "l2, IVF": {"algorithm": "vector", "similarity": "l2", "index": "IVF2,Flat", "nprobe": 2},
}


def collection(documents: dict[str, str] = DOCUMENTS) -> Collection:
    return Collection.of(documents, QUERIES, QRELS, titles={name: f"About the {name}" for name in documents})


def cut_into(size: int, overlap: float = 0.25, chunker: str = "tokens") -> Chunking:
    return Chunking(chunker, size, overlap, "none")


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
    configuration = of(ALGORITHMS[algorithm])
    result, chunks = shared.run(configuration), shared.stages.chunks(configuration.chunking)
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
    assert result.documents.counts.min() < 5 or algorithm in ("semantic", "MMR", "rescored", "binary, sentences")
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
    chunks = shared.stages.chunks(cut_into(16))
    result = shared.run(of({"algorithm": "vector"}, top_k=5000))
    assert np.sort(result.chunks.items, axis=1).tolist() == [list(range(len(chunks)))] * 4
    assert result.documents.counts.tolist() == [12] * 4


def test_facts_of_cost(shared: Pipeline) -> None:
    count = len(shared.stages.chunks(cut_into(16)))
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
    read = {t for c in configurations if c.encoder for t in first.stages.texts(c.chunking)}
    assert first.work.embedded == len(read) + 4
    for a, b in zip(before, after, strict=True):
        assert a.documents.items.tolist() == b.documents.items.tolist()
        assert a.chunks.scores.tolist() == b.chunks.scores.tolist()
        assert (a.latency_ms, a.index_bytes) == (b.latency_ms, b.index_bytes)


def texts(pipeline: Pipeline, size: int) -> Sequence[str]:
    return pipeline.stages.chunks(cut_into(size)).texts(pipeline.collection.texts)


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
        ({"algorithm": "vector", "index": "HNSW16"}, "ef_search", (8, 16, 64), 4),  # and one exact
        ({"algorithm": "vector", "index": "HNSW16"}, "top_k", (3, 4, 5), 4),  # approximate: one for each k
        ({"algorithm": "vector"}, "top_k", (3, 5, 100), 1),
        ({"algorithm": "keyword"}, "k1", (0.5, 1.0, 1.5), 3),
        ({"algorithm": "keyword"}, "b", (0.0, 0.5, 1.0), 3),
        ({"algorithm": "keyword"}, "bm25_variant", ("lucene", "atire", "bm25l"), 3),
        ({"algorithm": "vector", "index": "IVF2,Flat"}, "nprobe", (1, 2), 3),
        ({"algorithm": "vector", "index": "IVF2,Flat"}, "top_k", (3, 5, 100), 2),  # a scan: one for all, and one exact
        ({"algorithm": "vector"}, "mmr_lambda", (0.3, 0.7, 1.0), 1),
        ({"algorithm": "vector"}, "max_per_document", (0, 1, 2), 1),
        ({"algorithm": "hybrid", "fusion": "convex"}, "vector_weight", (0.1, 0.5, 0.9), 2),
        ({"algorithm": "hybrid", "fusion": "convex"}, "normalization", ("min-max", "z-score"), 2),
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


def test_context_is_read_but_not_handed_over(shared: Pipeline) -> None:
    plain, titled = (shared.run(of({}, chunk_context=context)) for context in ("none", "title"))
    assert plain.context_tokens.shape == titled.context_tokens.shape
    assert (
        shared.stages.chunks(of({}).chunking).start.tolist()
        == shared.stages.chunks(of({}, chunk_context="title").chunking).start.tolist()
    )
    read = shared.stages.texts(of({}, chunk_context="title").chunking)
    assert read[0] == f"About the array\n{shared.stages.texts(of({}).chunking)[0]}"
    found = shared.run(of({"algorithm": "keyword", "analyzer": "plain"}, chunk_context="title", top_k=3))
    assert found.context_tokens.max() <= 3 * 16


def test_at_most_so_many_chunks_of_a_document(shared: Pipeline) -> None:
    result = shared.run(of({"algorithm": "vector"}, max_per_document=2, top_k=10))
    doc = shared.stages.chunks(cut_into(16)).doc
    for items in result.chunks.items.tolist():
        assert len(items) == 10
        assert max(np.bincount(doc[items])) == 2


def test_recall_of_an_approximate_index_is_measured(shared: Pipeline) -> None:
    assert shared.run(of({"algorithm": "vector"})).ann_recall == 1.0
    assert shared.run(of({"algorithm": "keyword"})).ann_recall == 1.0
    small: dict[str, Value] = {"algorithm": "vector", "chunk_size": 6, "chunk_overlap": 0.5, "top_k": 60}
    narrow = shared.run(of(small, index="IVF3,Flat", nprobe=1))
    assert narrow.notes == ()
    found = [set(row) for row in narrow.chunks.items.tolist()]
    exact = [set(row) for row in shared.run(of(small)).chunks.items.tolist()]
    assert 0 < narrow.ann_recall < 1
    assert narrow.ann_recall == pytest.approx(np.mean([len(a & b) / 60 for a, b in zip(found, exact, strict=True)]))


def test_what_was_done_otherwise_is_noted(shared: Pipeline, store: Store) -> None:
    note = "39 vectors are too few for IVF64,Flat; Flat was built"
    assert shared.run(of({"algorithm": "vector", "index": "IVF64,Flat"})).notes == (note,)
    long = Collection.of(DOCUMENTS, {"q": "whale " * 300, "r": "bread"}, {"q": {"whale": 1}})
    notes = Pipeline(long, store, DEFAULT_ENCODER).run(of({"algorithm": "vector"})).notes
    assert notes == ("1 of 2 queries are longer than all-MiniLM-L6-v2 reads",)


def test_the_pool_of_a_reranker_is_kept(shared: Pipeline) -> None:
    result = shared.run(of(ALGORITHMS["semantic"]))
    assert result.pool is not None
    assert result.pool.items.shape == (4, 12)
    assert shared.run(of({"algorithm": "vector"})).pool is None


def test_another_encoder_as_reranker_reads_no_text_twice(store: Store) -> None:
    # over vectors of the same encoder it changes nothing but ties, and embeds nothing
    pipeline = fresh(store)
    plain = pipeline.run(of({"algorithm": "vector"}))
    embedded = pipeline.work.embedded
    semantic: dict[str, Value] = {"algorithm": "semantic", "first_stage": "vector", "reranker": "encoder"}
    again = pipeline.run(of(semantic, reranker_model=DEFAULT_ENCODER, pool=20))
    assert again.chunks.items.tolist() == plain.chunks.items.tolist()
    assert (pipeline.work.embedded, pipeline.work.passages_read) == (embedded, 0)


def test_a_document_by_itself_is_a_chunk(store: Store) -> None:
    pipeline = fresh(store)
    result = pipeline.run(Configuration.of({"algorithm": "keyword", "chunker": "document", "top_k": 3}))
    assert result.chunks.items.tolist() == result.documents.items.tolist()
    assert len(pipeline.stages.chunks(Chunking("document", None, 0.0, "none"))) == len(DOCUMENTS)


def test_late_interaction_needs_token_vectors(store: Store) -> None:
    semantic: dict[str, Value] = {"algorithm": "semantic", "reranker_model": f"static:{DEFAULT_ENCODER}"}
    with pytest.raises(ModelError, match="late interaction needs a local transformer"):
        fresh(store).run(of(semantic))
