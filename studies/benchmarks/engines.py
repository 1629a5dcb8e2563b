"""What a sweep of 200 configurations costs, beside embedding its texts once and beside a study written by hand.

    python studies/benchmarks/engines.py ../shared/data/scifact
    python studies/benchmarks/engines.py ../shared/data/scifact --documents 800        # a part, in minutes

200 configurations: 4 chunk sizes × 2 overlaps × (keyword, vector on Flat, HNSW32 and IVF64, hybrid) × 5 top_k. All
runs in processes of its own, one after the other, with the model's weights in the same precision:

    plain   all distinct texts of the sweep, and the queries, through SentenceTransformer.encode(batch_size=32), once
    ours    `sweep run` in an empty folder; then the same command again (warm); then with the trials deleted and the
            cache kept (again), which leaves what a trial costs: searches and rankings are read, scored and recorded;
            overhead is what that takes beside searching and scoring
    naive   the study that a careful person writes: an Optuna objective that chunks, embeds, builds, searches and scores
            at every trial. One trial is measured for each chunking and algorithm, and scaled to the 200

Memory is the greatest resident size of `sweep run`, beside 1.5 × (vectors of the largest set of chunks + its index + a
process that has loaded the model and embedded one batch).
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sweep.collection.beir import find_qrels

SIZES, OVERLAPS, TOP_K = [64, 128, 192, 254], [0.0, 0.25], [3, 5, 10, 20, 50]
SPACE = {
    "chunk_size": SIZES,
    "chunk_overlap": OVERLAPS,
    "algorithm": ["keyword", "vector", "hybrid"],
    "index": {"choices": ["Flat", "HNSW32", "IVF64,Flat"], "when": {"algorithm": "vector"}},
    "top_k": TOP_K,
}
COUNT = len(SIZES) * len(OVERLAPS) * 5 * len(TOP_K)
MODEL = """
import json, sys, time
import torch
from sentence_transformers import SentenceTransformer
from sweep.retrieval.models import find_model, precision
model = SentenceTransformer(
    str(find_model("all-MiniLM-L6-v2").folder), device="cpu", model_kwargs={"dtype": getattr(torch, precision())}
)
model.encode(["warm up"] * 32, batch_size=32)
"""
PLAIN = (
    MODEL
    + """
texts = json.load(open(sys.argv[1]))
start = time.perf_counter()
model.encode(texts, batch_size=32, show_progress_bar=False)
print(time.perf_counter() - start)
"""
)
OVERHEAD = """
import time
from pathlib import Path
from sweep.optimize.objective import Objective
from sweep.optimize.runner import Runner
from sweep.optimize.study import Study
from sweep.optimize.study_file import load_study
taken = {"outcome": [], "_grid": []}
def clocked(kind, name):
    plain = getattr(kind, name)
    def run(*given):
        start = time.perf_counter()
        try:
            return plain(*given)
        finally:
            taken[name].append(time.perf_counter() - start)
    setattr(kind, name, run)
clocked(Objective, "outcome")
clocked(Runner, "_grid")
Study(load_study(Path("study.yaml")), home=Path(".sweep")).run()
print((sum(taken["_grid"]) - sum(taken["outcome"])) / len(taken["outcome"]))
"""
NAIVE = (
    MODEL
    + """
import bm25s, faiss, numpy as np, optuna, pytrec_eval
documents, queries, qrels, space = json.load(open(sys.argv[1]))
tokenizer = model.tokenizer
evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"})

def objective(trial):
    size = trial.suggest_categorical("chunk_size", space["chunk_size"])
    overlap = trial.suggest_categorical("chunk_overlap", space["chunk_overlap"])
    algorithm = trial.suggest_categorical("algorithm", ["keyword", "Flat", "HNSW32", "IVF64,Flat", "hybrid"])
    top_k = trial.suggest_categorical("top_k", space["top_k"])
    chunks, owners = [], []
    for name, text in documents.items():
        offsets = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        for at in range(0, max(1, len(offsets)), size - int(size * overlap)):
            part = offsets[at : at + size]
            if part:
                chunks.append(text[part[0][0] : part[-1][1]])
                owners.append(name)
    rankings = []
    if algorithm in ("keyword", "hybrid"):
        index = bm25s.BM25(k1=1.5, b=0.75)
        index.index(bm25s.tokenize(chunks, stopwords="en", show_progress=False), show_progress=False)
        asked = bm25s.tokenize(list(queries.values()), stopwords="en", show_progress=False)
        found, scores = index.retrieve(asked, k=min(100, len(chunks)), show_progress=False)
        rankings.append(found)
    if algorithm != "keyword":
        vectors = model.encode(chunks, batch_size=32, normalize_embeddings=True, show_progress_bar=False)
        asked = model.encode(list(queries.values()), batch_size=32, normalize_embeddings=True, show_progress_bar=False)
        index = faiss.index_factory(vectors.shape[1], "Flat" if algorithm == "hybrid" else algorithm,
                                    faiss.METRIC_INNER_PRODUCT)
        index.train(vectors)
        index.add(vectors)
        rankings.append(index.search(asked, 100)[1])
    run = {}
    for row, query in enumerate(queries):
        gains = {}
        for ranking in rankings:
            for place, item in enumerate(ranking[row]):
                if item >= 0:
                    gains[int(item)] = gains.get(int(item), 0) + 1 / (60 + place + 1)
        best = {}
        for item in sorted(gains, key=gains.get, reverse=True)[:top_k]:
            best[owners[item]] = max(best.get(owners[item], 0), gains[item])
        run[query] = best
    scores = evaluator.evaluate(run)
    return float(np.mean([scores[q]["ndcg_cut_10"] if q in scores else 0 for q in qrels]))

optuna.logging.set_verbosity(optuna.logging.WARNING)
study = optuna.create_study(direction="maximize")
points = [{"chunk_size": s, "chunk_overlap": o, "algorithm": a, "top_k": 10}
          for s in space["chunk_size"] for o in space["chunk_overlap"]
          for a in ("keyword", "Flat", "HNSW32", "IVF64,Flat", "hybrid")]
taken = []
for point in points[:: int(sys.argv[2])]:
    study.enqueue_trial(point)
    start = time.perf_counter()
    study.optimize(objective, n_trials=1)
    taken.append(time.perf_counter() - start)
print(sum(taken) / len(taken))
"""
)


class Ran(NamedTuple):
    """What a process came to: seconds, greatest resident size in bytes, standard output."""

    seconds: float
    peak: int
    out: str


def run(command: Sequence[str], folder: Path) -> Ran:
    start = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)[:80]} failed")
    return Ran(time.perf_counter() - start, usage.ru_maxrss * 1024, out)


def python(code: str, folder: Path, *arguments: str) -> Ran:
    return run([sys.executable, "-c", code, *arguments], folder)


def prepare(source: Path, folder: Path, most: int | None) -> None:
    """Write the collection, or a part of it that holds all judged documents, and the study file."""
    lines = [json.loads(line) for line in (source / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    labels = find_qrels(source, None).read_text(encoding="utf-8")
    judged = {line.split("\t")[1] for line in labels.splitlines()[1:]}
    if most is not None:
        lines = sorted(lines, key=lambda d: d["_id"] not in judged)[:most]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in lines), encoding="utf-8")
    (folder / "qrels.tsv").write_text(labels, encoding="utf-8")
    asked = {line.split("\t")[0] for line in labels.splitlines()[1:]}
    queries = (source / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [line for line in queries if json.loads(line)["_id"] in asked]
    (folder / "queries.jsonl").write_text("\n".join(kept) + "\n", encoding="utf-8")
    study = {"study": "engines", "collection": {"path": ".", "labels": {"max": 1}}, "space": SPACE}
    baseline = {"chunk_size": 254, "chunk_overlap": 0.0, "algorithm": "vector", "top_k": 5}
    (folder / "study.yaml").write_text(json.dumps(study | {"baseline": baseline, "budget": {"trials": COUNT}}))


def collected(folder: Path) -> tuple[list[str], Any, int]:
    """Return the distinct texts of the sweep, what the naive study reads, and the bytes of the largest vectors."""
    from sweep.optimize.study import Study
    from sweep.optimize.study_file import load_study

    study = Study(load_study(folder / "study.yaml"), home=folder / "texts")
    stages, collection = study.pipeline().stages, study.collection
    sets = [stages.texts(c.chunking) for c in study.readers]
    texts = list(dict.fromkeys(text for one in (*sets, collection.query_texts) for text in one))
    judged = collection.judgments
    qrels: dict[str, dict[str, int]] = {}
    for row, item, label in zip(judged.rows.tolist(), judged.items.tolist(), judged.labels.tolist(), strict=True):
        qrels.setdefault(judged.queries[row], {})[judged.documents[item]] = label
    documents = dict(zip(collection.documents, collection.texts, strict=True))
    queries = dict(zip(collection.queries, collection.query_texts, strict=True))
    space = {"chunk_size": SIZES, "chunk_overlap": OVERLAPS, "top_k": TOP_K}
    return texts, [documents, queries, qrels, space], max(map(len, sets)) * 384 * 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a BEIR folder, as SciFact's")
    parser.add_argument("--documents", type=int, help="so many of them, judged ones first (default: all)")
    parser.add_argument("--naive-every", type=int, default=3, help="measure every n-th of its 40 kinds of trial")
    arguments = parser.parse_args()
    source = arguments.source.resolve()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(source, folder, arguments.documents)
        texts, naive, vectors = collected(folder)
        (folder / "texts.json").write_text(json.dumps(texts))
        (folder / "naive.json").write_text(json.dumps(naive))
        print(f"{len(naive[0]):,} documents, {len(naive[1])} queries, {len(texts):,} distinct texts", flush=True)

        plain = float(python(PLAIN, folder, "texts.json").out)
        print(f"plain: embedding them once {plain:,.1f} s", flush=True)
        command = [sys.executable, "-m", "sweep.cli", "run", "study.yaml", "--json"]
        ours = run(command, folder)
        found = json.loads(ours.out)["configurations"]
        print(f"ours: {found['finished']} configurations {ours.seconds:,.1f} s, {ours.seconds / plain:.2f} × plain")
        warm = run(command, folder)
        print(f"warm: the same command again {warm.seconds:,.1f} s", flush=True)
        shutil.rmtree(folder / ".sweep" / "engines")
        again = run(command, folder)
        each = 1000 * again.seconds / found["finished"]
        print(f"again: all trials anew from the cache {again.seconds:,.1f} s, {each:,.0f} ms each, start included")
        shutil.rmtree(folder / ".sweep" / "engines")
        overhead = 1000 * float(python(OVERHEAD, folder).out)
        print(f"overhead of a trial beside search and scoring: {overhead:,.0f} ms", flush=True)

        model = python(MODEL, folder).peak
        index = max(c["costs"]["index_bytes"] for c in json.loads(ours.out)["configurations"]["all"].values())
        bound = vectors + index + model
        parts = f"vectors {vectors / 1e6:,.0f} + index {index / 1e6:,.0f} + model {model / 1e6:,.0f} MB"
        print(f"memory: peak {ours.peak / 1e6:,.0f} MB, {ours.peak / bound:.2f} × ({parts})", flush=True)

        trial = float(python(NAIVE, folder, "naive.json", str(arguments.naive_every)).out)
        print(f"naive: {trial:,.1f} s a trial, {COUNT} of them {COUNT * trial:,.0f} s by scaling, "
              f"{COUNT * trial / ours.seconds:.1f} × ours")  # fmt: skip


if __name__ == "__main__":
    main()
