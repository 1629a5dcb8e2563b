"""Equality with trec_eval: by its Python binding on random data, and by its own published test files."""

from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from metrics import Judgments, LabelScale, evaluate
from sweep.collection.loading import CollectionSpec, load
from sweep.retrieval.keyword_index import KeywordIndex

pytrec_eval = pytest.importorskip("pytrec_eval")

Qrels = dict[str, dict[str, int]]
Run = dict[str, dict[str, float]]

NAMES = {
    "ndcg_linear": "ndcg",
    "recall": "set_recall",
    "mrr": "recip_rank",
    "map": "map",
    **{f"ndcg_linear@{k}": f"ndcg_cut_{k}" for k in (1, 3, 10, 30)},
    **{f"recall@{k}": f"recall_{k}" for k in (1, 3, 10, 30)},
    **{f"precision@{k}": f"P_{k}" for k in (1, 3, 10, 30)},
    **{f"hit@{k}": f"success_{k}" for k in (1, 3, 10, 30)},
    **{f"map@{k}": f"map_cut_{k}" for k in (1, 3, 10, 30)},
}
ASKED = {"ndcg", "set_recall", "recip_rank", "map"} | {
    f"{name}.1,3,10,30" for name in ("ndcg_cut", "recall", "P", "success", "map_cut")
}


def in_trec_order(run: Run) -> Run:
    """Replace scores by places, so that ties fall as in trec_eval (descending id) and not by our rule."""
    ordered = {
        query: sorted(row, key=lambda document: (np.float32(row[document]), document)) for query, row in run.items()
    }
    return {query: {document: float(place) for place, document in enumerate(row)} for query, row in ordered.items()}


def compare(qrels: Qrels, run: Run, scale: LabelScale, relevant_from: int = 1) -> None:
    theirs = pytrec_eval.RelevanceEvaluator(qrels, ASKED, relevance_level=relevant_from).evaluate(run)
    judgments = Judgments.from_dict(qrels, scale, relevant_from=relevant_from)
    scores = evaluate(judgments, run, NAMES)
    for name, values in zip(NAMES.values(), scores.values.values(), strict=True):
        expected = [theirs.get(query, {}).get(name, 0.0) for query in judgments.queries]
        np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-15, err_msg=name)


@pytest.mark.parametrize("relevant_from", [1, 2, 4])
@pytest.mark.parametrize("seed", range(3))
def test_random_runs(seed: int, relevant_from: int) -> None:
    rng = np.random.default_rng(seed)
    documents = [f"d{code}" for code in range(60)]
    qrels, run = {}, {}
    for query in (f"q{row}" for row in range(40)):
        judged = rng.choice(documents, rng.integers(1, 25), replace=False)
        qrels[query] = {str(document): int(rng.integers(0, 5)) for document in judged}
        found = rng.choice(documents, rng.integers(1, 50), replace=False)
        run[query] = {str(d): float(s) for d, s in zip(found, rng.permutation(1000)[: len(found)], strict=True)}
    del run["q7"]  # the binding leaves it out; a correct mean does not
    compare(qrels, run, LabelScale(), relevant_from)


@pytest.fixture
def fixtures() -> Path:
    path = Path(__file__).resolve().parents[2] / "shared" / "data" / "_metric_fixtures"
    if not path.is_dir():
        pytest.skip(f"no metric fixtures at {path}")
    return path


def read_qrels(path: Path) -> Qrels:
    qrels: Qrels = defaultdict(dict)
    for line in path.read_text().splitlines():
        query, _, document, label = line.split()
        if int(label) >= 0:  # below 0, trec_eval takes the document as unjudged
            qrels[query][document] = int(label)
    return dict(qrels)


def read_run(path: Path) -> Run:
    run: Run = defaultdict(dict)
    for line in path.read_text().splitlines():
        query, _, document, _, score = line.split()[:5]
        run[query][document] = float(score)
    return dict(run)


@pytest.mark.parametrize(
    ("qrels", "run"),
    [
        ("trec_eval/qrels.test", "trec_eval/results.test"),
        ("trec_eval/qrels.rel_level", "trec_eval/results.test"),
        ("trec_eval/qrels.test", "trec_eval/results.trunc"),
        ("anserini_cacm/qrels.cacm.txt", "anserini_cacm/cacm-bm25.run.txt"),
    ],
)
def test_published_files_by_the_binding(fixtures: Path, qrels: str, run: str) -> None:
    compare(read_qrels(fixtures / qrels), in_trec_order(read_run(fixtures / run)), LabelScale())


def test_published_means(fixtures: Path) -> None:
    # trec_eval's own expected output, test/out.test.a
    qrels, run = read_qrels(fixtures / "trec_eval/qrels.test"), read_run(fixtures / "trec_eval/results.test")
    expected = {"map": 0.1785, "precision@10": 0.3, "mrr": 0.4064, "ndcg_linear": 0.4021, "ndcg_linear@10": 0.3016}
    scores = evaluate(Judgments.from_dict(qrels), in_trec_order(run), [*expected, "recall@100"])
    means = [scores.mean(measure) for measure in scores.values]
    assert means == pytest.approx([*expected.values(), 0.4980], abs=5e-5)


@pytest.mark.parametrize(("output", "depth"), [("out.test.aqc", 1000), ("out.test.aqcM", 100)])
def test_queries_missing_from_the_run_count_as_zero(fixtures: Path, output: str, depth: int) -> None:
    # trec_eval -c, and -c -M100 (see Makefile.upstream): results.trunc answers some of the judged queries only
    lines = [line.split() for line in (fixtures / "trec_eval" / output).read_text().splitlines()]
    published = {name: value for name, query, value in lines if query == "all"}
    qrels, run = read_qrels(fixtures / "trec_eval/qrels.test"), read_run(fixtures / "trec_eval/results.trunc")
    first = {
        query: dict(sorted(row.items(), key=lambda pair: -pair[1])[:depth]) for query, row in in_trec_order(run).items()
    }
    scores = evaluate(qrels, first, ["map", "mrr", "precision@10", "ndcg_linear", "recall@200"])
    means = [scores.mean(measure) for measure in scores.values]
    names = ("map", "recip_rank", "P_10", "ndcg", "recall_200")
    assert means == pytest.approx([float(published[name]) for name in names], abs=5.1e-5)


def test_mean_over_the_judged_queries_only(fixtures: Path) -> None:
    # anserini's TrecEvalTest.java and cacm.yaml: P_30 = 0.1942 over 52 judged of 64 queries
    folder = fixtures / "anserini_cacm"
    judgments = Judgments.from_dict(read_qrels(folder / "qrels.cacm.txt"))
    scores = evaluate(judgments, in_trec_order(read_run(folder / "cacm-bm25.run.txt")), ["precision@30"])
    assert scores.mean("precision@30") == pytest.approx(0.1942, abs=5e-5)
    assert (len(scores.unjudged), int(scores.scored.sum())) == (12, 52)


@pytest.mark.parametrize("name", ["cranfield", "cisi", "time", "scifact", "epqa-dev"])
def test_real_collections(shared_data: Path, name: str) -> None:
    folder = shared_data / name
    low = -1 if name == "cranfield" else 0
    found = load(CollectionSpec.model_validate({"path": ".", "labels": {"min": low, "max": 5}}), folder)
    index = KeywordIndex.build(found.texts, "english")
    ranked = index.search(found.query_texts, 1000, index.weights(0.9, 0.4))
    run = {
        query: {found.documents[item]: float(score) for item, score in zip(items, scores, strict=True) if item >= 0}
        for query, items, scores in zip(found.queries, ranked.items.tolist(), ranked.scores.tolist(), strict=True)
    }
    # below 0, trec_eval takes a document as unjudged
    qrels = {
        query: {document: label for document, label in row.items() if label >= 0}
        for query, row in zip(found.queries, found.judgments.by_id, strict=True)
    }
    compare({query: row for query, row in qrels.items() if row}, in_trec_order(run), LabelScale(0, 5))
