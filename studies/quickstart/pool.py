"""Write the pool of a study: what to judge when a collection has queries and no labels, or labels with holes.

    python studies/quickstart/pool.py studies/quickstart.yaml -o pool.jsonl

The top documents of keyword, vector, hybrid and semantic runs at two chunk sizes are pooled for each query, shuffled so
that no rank shows, and written one query a line: {"query_id", "query", "documents": [{"document_id", "text", "label"}]}
with the label that the pair has already, else null. LABELS.md beside this script says how to judge them. The study's
qrels may hold one judgment only; it is what the collection reader asks for.
"""

import argparse
import json
import random
from pathlib import Path

from sweep.optimize.study import Study
from sweep.optimize.study_file import load_study
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.parameters import FIRST_STAGES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="a study file")
    parser.add_argument("-o", "--output", type=Path, default=Path("pool.jsonl"))
    parser.add_argument("--depth", type=int, default=10, help="documents of each run (default: 10)")
    parser.add_argument("--chunk-sizes", type=int, nargs="+", default=[128, 254], help="tokens (default: 128 254)")
    parser.add_argument("--pool", type=int, default=20, help="chunks that the semantic run reranks (default: 20)")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which documents are shown")
    arguments = parser.parse_args()

    study = Study(load_study(arguments.study))
    collection = study.collection
    pipeline = study.pipeline()
    first = {a.name: a.values[0] for a in study.spec.space.axes if not a.when}  # encoder, analyzer and so on
    pooled: list[set[int]] = [set() for _ in collection.queries]
    for size in arguments.chunk_sizes:
        for algorithm in (*FIRST_STAGES, "semantic"):
            deep = arguments.pool if algorithm == "semantic" else 10 * arguments.depth  # chunks for so many documents
            run = Configuration.of(
                {**first, "algorithm": algorithm, "chunk_size": size, "top_k": deep, "pool": arguments.pool}
                | {"fusion_depth": max(deep, arguments.pool)}
            )
            for query, ranked in zip(pooled, pipeline.run(run).documents.items, strict=True):
                query.update(ranked[: arguments.depth][ranked[: arguments.depth] >= 0].tolist())
            print(f"{algorithm} at {size} tokens: {sum(map(len, pooled)):,} pairs pooled so far")

    labels = {(q, d): label for q, d, label in zip(*_columns(study), strict=True)}
    order = random.Random(arguments.seed)
    with arguments.output.open("w", encoding="utf-8") as out:
        for q, documents in enumerate(pooled):
            shown = sorted(documents)
            order.shuffle(shown)
            entry = {
                "query_id": collection.queries[q],
                "query": collection.query_texts[q],
                "documents": [
                    {"document_id": collection.documents[d], "text": collection.texts[d], "label": labels.get((q, d))}
                    for d in shown
                ],
            }
            out.write(json.dumps(entry, ensure_ascii=False) + "\n")
    unjudged = sum((q, d) not in labels for q, documents in enumerate(pooled) for d in documents)
    print(f"{arguments.output}: {sum(map(len, pooled)):,} pairs, {unjudged:,} of them without a label")


def _columns(study: Study) -> tuple[list[int], list[int], list[int]]:
    judged = study.collection.judgments
    return judged.rows.tolist(), judged.items.tolist(), judged.labels.tolist()


if __name__ == "__main__":
    main()
