"""Published figures that a correct pipeline reproduces, beside ours.

    python studies/benchmarks/published.py ../shared/data/scifact

SciFact (BEIR), whole documents, title and text joined, no chunking; nDCG@10. Published: MTEB's bm25s baseline .687,
all-MiniLM-L6-v2 .645. Exits with 1 where ours is further off than the tolerance.
"""

import argparse
import sys
import time
from pathlib import Path

from metrics import evaluate
from sweep.artifacts import Store
from sweep.collection.loading import CollectionSpec, load
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.embedding import precision
from sweep.retrieval.parameters import DEFAULT_ENCODER
from sweep.retrieval.pipeline import Pipeline

WHOLE = 1_000_000  # tokens: more than any document has
PUBLISHED = {"keyword": (0.687, 0.01), "vector": (0.645, 0.005)}
MEASURES = ("ndcg_linear@10", "recall@100")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="SciFact as a BEIR folder")
    parser.add_argument("--home", type=Path, default=Path(".sweep"), help="where vectors are kept (default: .sweep)")
    arguments = parser.parse_args()

    collection = load(CollectionSpec(format="beir", path=arguments.folder, labels={"max": 1}), Path())
    pipeline = Pipeline(collection, Store(arguments.home / "cache"), DEFAULT_ENCODER, allow_truncation=True)
    print(f"{len(collection.documents):,} documents, {len(collection.queries)} queries, precision {precision()}")
    print(f"{'search':<10}{'nDCG@10':>10}{'published':>11}{'R@100':>9}{'truncated':>11}{'seconds':>9}")
    good = True
    for algorithm, (published, tolerance) in PUBLISHED.items():
        start = time.perf_counter()
        result = pipeline.run(Configuration.of({"algorithm": algorithm, "chunk_size": WHOLE, "top_k": 100}))
        scores = evaluate(collection.judgments, result.documents, MEASURES)
        ndcg, recall = (scores.mean(m) for m in MEASURES)
        seconds = time.perf_counter() - start
        print(f"{algorithm:<10}{ndcg:>10.4f}{published:>11.3f}{recall:>9.4f}{result.truncated:>11.1%}{seconds:>9.1f}")
        good &= abs(ndcg - published) <= tolerance
    sys.exit(0 if good else "further off than the tolerance")


if __name__ == "__main__":
    main()
