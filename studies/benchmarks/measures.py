"""Speed of the measures beside that of the tools that are used for the same work.

    python -m venv bench
    bench/bin/pip install ranx==0.3.21 pytrec-eval-terrier==0.5.11 azure-ai-evaluation==1.18.10 "pandas<3"
    bench/bin/pip install orjson pydantic scipy typer
    bench/bin/pip install --no-deps --editable .
    bench/bin/python studies/benchmarks/measures.py

An environment of its own, because ranx brings numba and azure-ai-evaluation asks for an older pandas.

Queries have 40 to 60 judged documents of 20,000, labels 0…4. A ranking is a random permutation of about 60 % of them
and of unjudged documents. Everything runs on one thread. A figure is a median; ours and the peers take turns in one
process (commands and scripts: in one each), after a turn that does not count: it compiles what numba compiles and fills
what `Judgments` keeps. As in timeit, the garbage collector rests. Before anything is timed, results are compared query
by query.

Each peer has the fastest form of what the table says: ranx a `Qrels` and a `Run` made beforehand (each call hashes
their ids anew), its results neither averaged nor stored in the run; pytrec_eval an evaluator and dictionaries made
beforehand. Both compute 7 measures at one cutoff where ours computes 10, however many cutoffs ours is asked for.
"""

import argparse
import gc
import logging
import os
import subprocess
import sys
import tempfile
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

os.environ.update({f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}, PF_WORKER_COUNT="1")
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a process that is timed finds its modules compiled, as a user's does

import numpy as np
import orjson
from numpy.typing import NDArray

from metrics import Judgments, Measure, Rankings, evaluate, evaluate_many
from metrics.evaluate import label_table
from metrics.lookup import by_codes

DOCUMENTS, QUERIES, SHARE = 20_000, 6980, 0.6
CONFIGURATIONS, TIMED = 200, 20
NAMES = ("ndcg", "ndcg_linear", "xdcg", "fidelity", "max_relevance", "holes", "recall", "precision", "mrr", "map")
CUTOFFS = (1, 3, 5, 10, 20, 50, 100)
RANX = ("ndcg", "map", "precision", "recall", "mrr", "hit_rate", "f1")
TREC, TREC_UNCUT = ("ndcg_cut", "map_cut", "P", "recall", "success"), {"recip_rank", "ndcg"}
SHARED = {"ndcg_linear": ("ndcg", "ndcg_cut"), "map": ("map", "map_cut"), "precision": ("precision", "P")}
SHARED |= {"recall": ("recall", "recall")}
AZURE = ("ndcg@3", "xdcg@3", "fidelity", "top1_relevance", "top3_max_relevance", "holes", "holes_ratio")
AZURE_SCRIPT = """
import sys
from azure.ai.evaluation import DocumentRetrievalEvaluator, evaluate
rows, results = sys.argv[1:]
evaluate(data=rows, evaluators={"document_retrieval": DocumentRetrievalEvaluator()}, output_path=results)
"""
COLUMNS = {"work": -67, "ours ms": 9, "peer": -36, "peer ms": 10, "ratio": 8, "at least": 9, "aim": 6}
"""Widths; what is negative stands on the left."""

Float = NDArray[np.float64]
Qrels = dict[str, dict[str, int]]
Run = dict[str, dict[str, float]]
Call = Callable[[], Any]
Cells = tuple[str, ...]


class Data:
    """Judgments of random queries and rankings for them, as codes and as dictionaries of ids.

    The ids in a run are other objects than those in the qrels, as they are when both were read from files.
    """

    def __init__(self, queries: int, depth: int, configurations: int = 1) -> None:
        rng, names, found = np.random.default_rng(20), _names(), 0
        self.qrels: Qrels = {}
        self.items = np.empty((configurations, queries, depth), dtype=np.int32)
        known = np.zeros(DOCUMENTS, dtype=np.bool_)
        for row in range(queries):
            judged = rng.choice(DOCUMENTS, rng.integers(40, 61), replace=False)
            labels = rng.integers(0, 5, len(judged)).tolist()
            self.qrels[f"q{row:05d}"] = dict(zip([names[code] for code in judged], labels, strict=True))
            known[judged] = True
            for one in range(configurations):
                hits = judged[rng.random(len(judged)) < SHARE][:depth]
                others = rng.choice(DOCUMENTS, depth + len(judged), replace=False)
                others = others[~known[others]][: depth - len(hits)]
                self.items[one, row] = rng.permutation(np.concatenate([hits, others]))
                found += len(hits)
            known[judged] = False
        self.judgments = Judgments.from_dict(self.qrels, documents=names)
        self.scores = np.arange(depth, 0, -1, dtype=np.float32)
        self.rankings = Rankings(self.items[0], np.tile(self.scores, (queries, 1)))
        share = found / configurations / len(self.judgments.labels)
        self.note = f"{configurations} × {queries:,} × {depth:,}: {share:.1%} of the judged documents are retrieved"

    def run(self, one: int = 0) -> Run:
        """Return the rankings of a configuration: {query id: {document id: score}}."""
        names, scores = _names(), self.scores.tolist()
        rows = enumerate(self.items[one].tolist())
        return {f"q{row:05d}": dict(zip([names[code] for code in codes], scores, strict=True)) for row, codes in rows}


def _names() -> list[str]:
    return [f"doc{code:05d}" for code in range(DOCUMENTS)]


def medians(calls: Mapping[str, Call], repeats: int) -> dict[str, float]:
    """Milliseconds of each call; what a call returns is freed off the clock."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    gc.collect()
    gc.disable()
    for _ in range(repeats + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            result = call()
            taken[name].append(1000 * (time.perf_counter() - start))
            del result
    gc.enable()
    return {name: median(times[1:]) for name, times in taken.items()}


def compared(work: str, ours: float, peer: str, theirs: float, least: float, aim: float) -> Cells:
    """Put milliseconds beside each other, and how many times faster ours has to be."""
    return work, f"{ours:,.1f}", peer, f"{theirs:,.1f}", f"{theirs / ours:.1f}×", f"{least:g}×", f"{aim:g}×"


def at(*cutoffs: int) -> list[str]:
    return [f"{name}@{cutoff}" for name in NAMES for cutoff in cutoffs]


def every_cutoff(data: Data) -> None:
    """Work out ten measures at the cutoffs 1…K, one value a query each; the values are not kept."""
    table = label_table(data.judgments, by_codes(data.judgments, data.items))
    for name in NAMES:
        for _ in Measure(name, 1).definition.function(table, range(1, data.items.shape[2] + 1)):
            pass


def ranx_call(qrels: Qrels, runs: Sequence[Run], cutoff: int) -> Call:
    import ranx

    labels, names = ranx.Qrels(qrels), [f"{name}@{cutoff}" for name in RANX]
    made = [ranx.Run(run) for run in runs]
    return lambda: [ranx.evaluate(labels, run, names, return_mean=False, save_results_in_run=False) for run in made]


def trec_call(qrels: Qrels, runs: Sequence[Run], cutoff: int) -> Call:
    import pytrec_eval

    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {f"{name}.{cutoff}" for name in TREC} | TREC_UNCUT)
    return lambda: [evaluator.evaluate(run) for run in runs]


def agree(ours: Mapping[Measure, Float], ranx: Mapping[str, Float], trec: Mapping[str, Any], cutoff: int) -> None:
    """Stop where a measure that ours, ranx and pytrec_eval have in common differs for any query."""
    for name, (of_ranx, of_trec) in SHARED.items():
        values = [trec[query][f"{of_trec}_{cutoff}"] for query in sorted(trec)]
        for peer, theirs in (("ranx", ranx[f"{of_ranx}@{cutoff}"]), ("pytrec_eval", np.array(values))):
            off = np.abs(ours[Measure(name, cutoff)] - theirs).max()
            if not off <= 1e-9:
                sys.exit(f"{name}@{cutoff} differs from {peer}'s by up to {off:.3g}")


def prebuilt(repeats: int, depth: int, targets: Mapping[str, tuple[float, float]]) -> Iterator[Cells | str]:
    """Rows 1 and 2."""
    data = Data(QUERIES, depth)
    ten, seven = at(10), at(*CUTOFFS)
    ranx, trec = (make(data.qrels, [data.run()], 10) for make in (ranx_call, trec_call))
    agree(evaluate(data.judgments, data.rankings, ten).values, ranx()[0], trec()[0], 10)
    ours: dict[str, Call] = {
        "cutoff 10": lambda: evaluate(data.judgments, data.rankings, ten),
        "7 cutoffs": lambda: evaluate(data.judgments, data.rankings, seven),
        f"every cutoff 1…{depth}": lambda: every_cutoff(data),
    }
    taken = medians({**ours, "ranx": ranx, "pytrec_eval": trec}, repeats)
    for variant in ours:
        for peer, target in targets.items():
            work = f"{QUERIES:,} queries × {depth}, 10 measures, {variant}"
            yield compared(work, taken[variant], f"{peer}, 7 measures, cutoff 10", taken[peer], *target)
    yield data.note
    if depth == 1000:
        tracemalloc.start()
        evaluate(data.judgments, data.rankings, ten)
        peak = tracemalloc.get_traced_memory()[1] / data.rankings.items.nbytes
        tracemalloc.stop()
        yield f"peak of our extra memory at cutoff 10: {peak:.2f} times the ranking's size (at most 3)"


def from_dictionaries(repeats: int) -> Iterator[Cells | str]:
    """Row 3."""
    data = Data(QUERIES, 100)
    qrels, run, ten = data.qrels, data.run(), at(10)
    calls: dict[str, Call] = {
        "ours": lambda: evaluate(qrels, run, ten),
        "pytrec_eval": lambda: trec_call(qrels, [run], 10)(),
        "ranx": lambda: ranx_call(qrels, [run], 10)(),
    }
    agree(calls["ours"]().values, calls["ranx"]()[0], calls["pytrec_eval"]()[0], 10)
    taken = medians(calls, repeats)
    work = f"{QUERIES:,} queries × 100 from dictionaries, 10 measures, cutoff 10"
    yield compared(work, taken["ours"], "pytrec_eval, 7 measures, cutoff 10", taken["pytrec_eval"], 1.3, 2)
    yield compared(work, taken["ours"], "ranx, 7 measures, cutoff 10", taken["ranx"], 4.5, 8)


def configurations(repeats: int) -> Iterator[Cells | str]:
    """Row 4: the peers' time is that of 20 configurations, times 10."""
    data = Data(323, 100, CONFIGURATIONS)
    runs = [data.run(one) for one in range(TIMED)]
    yield data.note
    for cutoff in (10, 100):
        ours = partial(evaluate_many, data.judgments, data.items, at(cutoff))
        ranx, trec = (make(data.qrels, runs, cutoff) for make in (ranx_call, trec_call))
        values = ours()
        for one, results in enumerate(zip(ranx(), trec(), strict=True)):
            agree({measure: many[one] for measure, many in values.items()}, *results, cutoff)
        taken = medians({"ours": ours, "pytrec_eval": trec, "ranx": ranx}, repeats)
        for peer, least, aim in (("pytrec_eval", 40, 80), ("ranx", 60, 120)):
            work = f"{CONFIGURATIONS} configurations × 323 queries × 100, 10 measures, cutoff {cutoff}"
            theirs = taken[peer] * CONFIGURATIONS / TIMED
            yield compared(work, taken["ours"], f"{peer}, 7 measures, {TIMED} calls × 10", theirs, least, aim)


def rows_of_a_file(repeats: int) -> Iterator[Cells | str]:
    """Row 5: a file through `sweep score` and through a script that calls `evaluate()`, each a process of its own.

    The evaluator that is called per row has been imported already and its rows parsed: the hardest comparison.
    """
    from azure.ai.evaluation import DocumentRetrievalEvaluator

    logging.disable(logging.CRITICAL)
    data = Data(QUERIES, 100)
    rows = [
        {
            "retrieval_ground_truth": [{"document_id": d, "query_relevance_label": x} for d, x in judged.items()],
            "retrieved_documents": [{"document_id": d, "relevance_score": x} for d, x in found.items()],
        }
        for judged, found in zip(data.qrels.values(), data.run().values(), strict=True)
    ]
    evaluator: Any = DocumentRetrievalEvaluator()
    with tempfile.TemporaryDirectory() as folder:
        source, scored, table = (Path(folder) / name for name in ("rows.jsonl", "scored.jsonl", "azure.json"))
        source.write_bytes(b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows))
        command = [sys.executable, "-m", "sweep.cli", "score", str(source), "-o", str(scored)]
        script = [sys.executable, "-c", AZURE_SCRIPT, str(source), str(table)]
        run = partial(subprocess.run, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ours, on_file = partial(run, command), partial(run, script)
        ours()
        for line, row in zip(scored.read_bytes().splitlines(), rows, strict=True):
            figures = {entry["metric"]: entry["score"] for entry in orjson.loads(line)}
            theirs = evaluator(**row)["document_retrieval_properties"]
            if any(figures[metric] != theirs[metric] for metric in AZURE):
                sys.exit(f"{figures} differs from azure-ai-evaluation's {theirs}")
        calls: dict[str, Call] = {"ours": ours, "calls": lambda: [evaluator(**row) for row in rows], "file": on_file}
        taken = medians(calls, repeats)
    work = f"{QUERIES:,} rows through `sweep score`, process start included"
    yield compared(work, taken["ours"], "azure-ai-evaluation, called per row", taken["calls"], 4, 8)
    work = f"{QUERIES:,} rows through `sweep score`, both process starts included"
    yield compared(work, taken["ours"], "azure-ai-evaluation, evaluate()", taken["file"], 15, 30)


ROWS: dict[str, tuple[Callable[[int], Iterator[Cells | str]], int]] = {
    "1": (partial(prebuilt, depth=100, targets={"ranx": (20, 40), "pytrec_eval": (12, 24)}), 7),
    "2": (partial(prebuilt, depth=1000, targets={"ranx": (18, 36), "pytrec_eval": (30, 60)}), 5),
    "3": (from_dictionaries, 7),
    "4": (configurations, 7),
    "5": (rows_of_a_file, 3),
}
"""Each row of the table, and how often it is timed unless --repeats says otherwise."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help="rows of the table (default: %(default)s)")
    parser.add_argument("--repeats", type=int, help="timed turns (default: 7, 5, 7, 7, 3)")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    arguments = parser.parse_args()
    if not set(arguments.rows.split(",")) <= set(ROWS):
        parser.error(f"--rows takes numbers out of {','.join(ROWS)}")
    warnings.simplefilter("ignore")  # numba's, of ranx's casts

    def show(cells: Sequence[str]) -> None:
        padded = [f"{c:{'<' if w < 0 else '>'}{abs(w)}}" for c, w in zip(cells, COLUMNS.values(), strict=True)]
        print(f"| {' | '.join(cells)} |" if arguments.markdown else " ".join(padded), flush=True)

    packages = ("numpy", "ranx", "numba", "pytrec-eval-terrier", "azure-ai-evaluation")
    print(f"Python {sys.version.split()[0]}, {', '.join(f'{name} {version(name)}' for name in packages)}\n")
    show(tuple(COLUMNS))
    if arguments.markdown:
        show(["---" if width < 0 else "--:" for width in COLUMNS.values()])
    notes: list[str] = []
    for row, repeats in (ROWS[name] for name in arguments.rows.split(",")):
        for line in row(arguments.repeats or repeats):
            notes.append(line) if isinstance(line, str) else show(line)
    print("", *dict.fromkeys(notes), sep="\n")


if __name__ == "__main__":
    main()
