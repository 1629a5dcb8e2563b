"""Study files: what they may say, and one clear line, with its number, for whatever they may not."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from metrics import Measure
from sweep.errors import StudyFileError
from sweep.optimize import study_file
from sweep.optimize.space import Space
from sweep.optimize.study_file import StudyFile, StudySpec, load_study, make_study, schema
from sweep.optimize.study_spec import Limit
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.parameters import PARAMETERS

DESIGN = """\
study: quickstart                  # its name; results live in .sweep/quickstart/
collection:
  format: python-docs              # beir, trec, foundry, csv, …; told from the content where not given
  packages: [numpy]
  queries: quickstart/queries.jsonl        # paths are relative to the study file
  qrels: quickstart/qrels.tsv
  labels: {min: 0, max: 3}
space:                             # a list: choices · {low, high, step or log}: a range · a plain value: fixed
  encoder: all-MiniLM-L6-v2
  chunk_size: [64, 128, 254]       # tokens
  chunk_overlap: [0.0, 0.25]       # share of chunk_size
  algorithm: [keyword, vector, hybrid, semantic]
  index: {choices: [Flat, HNSW32], when: {algorithm: [vector, hybrid]}}
  ef_search: {choices: [16, 64], when: {index: HNSW32}}
  top_k: [3, 5, 10, 20]
objective: {maximize: ndcg@10, tolerance: 0.02}
constraints: {context_tokens: "<= 2000"}
cost: [context_tokens, index_bytes]        # what "cheapest" compares, in this order
baseline: {chunk_size: 254, chunk_overlap: 0.0, algorithm: vector, index: Flat, top_k: 5}
sampler: auto
budget: {trials: 200}
seed: 7
"""
SMALL = "collection: {path: data}\n"


def written(folder: Path, text: str | bytes, name: str = "s.yaml") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def loaded(folder: Path, text: str, name: str = "s.yaml") -> StudySpec:
    return load_study(written(folder, text, name)).spec


def refused(folder: Path, text: str | bytes, name: str = "s.yaml") -> list[str]:
    """Return the lines of the error, without the folder."""
    with pytest.raises(StudyFileError) as error:
        load_study(written(folder, text, name))
    return str(error.value).replace(f"{folder}/", "").splitlines()


def made(**parts: Any) -> StudySpec:
    return make_study({"collection": {"path": "data"}, **parts}).spec


def unmade(**parts: Any) -> str:
    with pytest.raises(StudyFileError) as error:
        made(**parts)
    return str(error.value)


# ---------------------------------------------------------------- what may be said


def test_the_design_example(tmp_path: Path) -> None:
    study = load_study(written(tmp_path, DESIGN, "example.yaml"))
    spec = study.spec
    assert (study.folder, study.path) == (tmp_path, tmp_path / "example.yaml")
    assert (spec.study, spec.collection.format, spec.collection.packages) == ("quickstart", "python-docs", ("numpy",))
    assert spec.collection.labels.max == 3
    assert spec.space.size == 168  # counted in test_optimize_space
    assert (spec.objective.maximize, spec.tolerance) == (Measure("ndcg", 10), 0.02)
    assert spec.constraints == {"context_tokens": Limit("<=", 2000.0)}
    assert spec.cost == ("context_tokens", "index_bytes")
    assert spec.baseline_configuration == Configuration.of(
        {"encoder": "all-MiniLM-L6-v2", "chunk_size": 254, "algorithm": "vector", "top_k": 5}
    )
    assert (spec.sampler, spec.budget.trials, spec.budget.timeout, spec.seed) == ("auto", 200, None, 7)


def test_only_collection_is_required(tmp_path: Path) -> None:
    spec = loaded(tmp_path, SMALL, "first.run_1.yml")
    assert spec.study == "first.run_1"
    assert spec.space == Space.parse(
        {"chunk_size": [128, 254], "algorithm": ["keyword", "vector", "hybrid"], "top_k": [3, 5, 10, 20]}
    )
    assert (spec.objective.maximize, spec.tolerance, spec.constraints) == (Measure("ndcg", 10), 0.02, {})
    assert spec.cost == ("context_tokens", "index_bytes", "rerank_pairs")
    assert (spec.baseline, spec.baseline_configuration, spec.tokenizer) == (None, None, None)
    assert list(map(str, spec.measures)) == [
        "ndcg@10", "recall@10", "fidelity", "xdcg@3", "max_relevance@3", "holes_ratio",
    ]  # fmt: skip
    assert (spec.sampler, spec.budget.trials, spec.seed, spec.convention) == ("auto", 200, 0, "scaled")
    assert not spec.allow_truncation


def test_yaml_is_version_1_2(tmp_path: Path) -> None:
    spec = loaded(tmp_path, SMALL + "tokenizer: no\nobjective: {tolerance: 1e-3}\nspace: {k1: [1e-1], encoder: on}\n")
    assert (spec.tokenizer, spec.tolerance) == ("no", 0.001)
    assert spec.space == Space.parse({"k1": 0.1, "encoder": "on"})


def test_toml_json_and_python_say_the_same(tmp_path: Path) -> None:
    mapping = {"study": "a", "collection": {"path": "data"}, "space": {"top_k": [3, 5]}, "seed": 2}
    toml = 'study = "a"\nseed = 2\n[collection]\npath = "data"\n[space]\ntop_k = [3, 5]\n'
    specs = [
        loaded(tmp_path, json.dumps(mapping), "x.json"),
        loaded(tmp_path, toml, "x.TOML"),
        loaded(tmp_path, "\ufeff" + json.dumps(mapping), "x.yaml"),
        make_study(mapping).spec,
    ]
    assert [s.to_dict() for s in specs] == [specs[0].to_dict()] * 4
    assert make_study(mapping, tmp_path) == StudyFile(specs[0], tmp_path, None)


def test_anchors_and_merges_are_read(tmp_path: Path) -> None:
    spec = loaded(
        tmp_path, SMALL + "space:\n  pool: {choices: &p [60, 90]}\n  fusion_depth: *p\n  algorithm: semantic\n"
    )
    assert spec.space.size == 3  # 60/60, 60/90, 90/90: no deeper pool than fusion gives


def test_the_canonical_form_reads_back(tmp_path: Path) -> None:
    for text in (DESIGN, SMALL):
        form = loaded(tmp_path, text).to_dict()
        assert make_study(form).spec.to_dict() == json.loads(json.dumps(form)) == form
    assert form["collection"] == {"path": "data"}  # the loader tells keys that were said from those that were not


def test_saying_a_default_changes_nothing() -> None:
    assert made(collection={"path": "data", "labels": {"min": 0, "max": 4}}, seed=0).to_dict() == made().to_dict()
    assert made(seed=1).to_dict() != made().to_dict()
    assert made(objective={"tolerance": 0.02}).to_dict() == made().to_dict()


def test_the_default_tolerance_is_two_per_cent_of_the_measures_range() -> None:
    assert made(objective={"maximize": "xdcg@3"}).tolerance == 2.0
    assert made(objective={"maximize": "max_relevance@3"}).tolerance == pytest.approx(0.08)  # labels 0…4
    assert made(objective={"maximize": "xdcg@3", "tolerance": 5}).tolerance == 5


def test_reported_measures_are_the_objective_the_limits_and_the_list() -> None:
    spec = made(objective={"maximize": "ndcg@5"}, constraints={"holes_ratio@10": "<= 0.2"}, measures=["map", "ndcg@5"])
    assert list(map(str, spec.reported)) == ["ndcg@5", "holes_ratio@10", "map", "holes_ratio"]


def test_limits() -> None:
    limit = Limit.parse(" >=  1.5e-1 ")
    assert (limit, limit.excess(0.15), limit.excess(0.25), str(limit)) == (Limit(">=", 0.15), 0.0, -0.1, ">= 0.15")
    assert (Limit.parse("<=2000").excess(2500), str(Limit.parse("<=2000"))) == (500, "<= 2000")
    assert Limit.parse(str(Limit("<=", 1e22))) == Limit("<=", 1e22)
    spec = made(constraints={"top1_relevance": ">= 2", "latency_ms": "<= 50"})
    assert list(spec.constraints) == ["max_relevance@1", "latency_ms"]
    for text in ("2000", "< 5", "<= x", "<= nan", "== 3", 5, None):
        cure = f'must be "<= number" or ">= number" in quotes, as "<= 2000"; got {text!r}'
        assert unmade(constraints={"context_tokens": text}) == f"constraints.context_tokens: {cure}"
    assert unmade(constraints={"top1_relevance": ">= 2", "max_relevance@1": ">= 3"}) == (
        "constraints.max_relevance@1: max_relevance@1 has a limit already; remove one"
    )


def test_what_the_baseline_leaves_out_is_the_first_in_the_space() -> None:
    spec = made(space={"encoder": ["x", "y"], "chunk_size": [64, 128]}, baseline={"top_k": 5})
    assert spec.baseline_configuration == Configuration.of({"encoder": "x", "chunk_size": 64, "top_k": 5})


# ------------------------------------------------------------ what may not be said


def test_every_problem_has_its_line(tmp_path: Path) -> None:
    text = """\
collection:
  path: data
  splitt: test
space:
  chunk_sise: [64]
  chunk_overlap:
    - 0.1
    - 0.6
  top_k: {low: 128, high: 1000,
          step: 256}
top_k: 3
objective: {maximise: ndcg@10}
constraints:
  context_tokens: 2000
  ndgc@5: ">= 0.1"
cost: [context_token]
baseline: {chunk_overlap: 0.7, ef: 1}
measures:
  - ndcg@10
  - xdcg
sampler: tpee
budget: {trials: 0}
seed: "7"
allow_truncation: no
1: x
"""
    names = ", ".join(PARAMETERS)
    measures = (
        "fidelity, hit, holes, holes_ratio, map, max_relevance, mrr, ndcg, ndcg_linear, precision, rbp, rbp_residual, "
        "recall, xdcg, token_iou, token_precision, token_recall, "
        "top1_relevance, top3_max_relevance"
    )
    quantities = "context_tokens, index_bytes, rerank_pairs, latency_ms, ann_recall"
    overlap = "is not allowed; allowed: a share of chunk_size from 0 to 0.5"
    assert refused(tmp_path, text) == [
        "s.yaml: 17 problems",
        "s.yaml:1: key 1 is not text; put it in quotes or remove it",
        "s.yaml:3: collection.splitt: unknown key; did you mean 'split'? Allowed: "
        "format, path, corpus, queries, qrels, split, packages, methods, labels",
        f"s.yaml:5: space.chunk_sise: unknown key; did you mean 'chunk_size'? Allowed: {names}",
        f"s.yaml:8: space.chunk_overlap[1]: 0.6 {overlap}",
        "s.yaml:10: space.top_k.step: 128 to 1000 in steps of 256 ends at 896 and 1000 is never tried; "
        "write high: 896, or a step that divides 872",
        "s.yaml:11: top_k: belongs under space, as space: {top_k: …}",
        "s.yaml:12: objective.maximise: unknown key; did you mean 'maximize'? Allowed: maximize, tolerance",
        's.yaml:14: constraints.context_tokens: must be "<= number" or ">= number" in quotes, as "<= 2000"; got 2000',
        f"s.yaml:15: constraints.ndgc@5: unknown measure 'ndgc'; did you mean 'ndcg'? known: {measures}; "
        f"or a quantity: {quantities}",
        f"s.yaml:16: cost[0]: unknown quantity; did you mean 'context_tokens'? Allowed: {quantities[:-12]}",
        f"s.yaml:17: baseline.chunk_overlap: 0.7 {overlap}",
        f"s.yaml:17: baseline.ef: unknown key. Allowed: {names}",
        "s.yaml:20: measures[1]: xdcg needs a cutoff, as in xdcg@3",
        "s.yaml:21: sampler: must be 'auto', 'grid', 'random' or 'tpe', got 'tpee'",
        "s.yaml:22: budget.trials: must be greater than or equal to 1, got 0",
        "s.yaml:23: seed: must be a valid integer, got '7'",
        "s.yaml:24: allow_truncation: must be a valid boolean, got 'no'",
    ]


def test_one_problem_is_one_line(tmp_path: Path) -> None:
    allowed = ", ".join(StudySpec.model_fields)
    assert refused(tmp_path, SMALL + "\nsed: 7\n") == [
        f"s.yaml:3: sed: unknown key; did you mean 'seed'? Allowed: {allowed}"
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("seed: 3\n", "s.yaml:1: collection: is required and missing; say where the data is, as {path: FOLDER}"),
        (SMALL + "space:\n\ttop_k: 3\n", "s.yaml:3: found character '\\t' that cannot start any token; "
                                         "indent with spaces, not with tabs"),
        (SMALL + "space: {top_k: [3\n", "s.yaml:3: expected ',' or ']', but got '<stream end>'"),
        (SMALL + "study: a: b\n",
         "s.yaml:2: mapping values are not allowed here; put text that holds a colon in quotes"),
        (SMALL + "---\nseed: 1\n",
         "s.yaml:2: but found another document; a study file holds one, so remove the line ---"),
        (SMALL + "seed: 1\nseed: 2\n", "s.yaml:3: seed: is there twice, on lines 2 and 3; remove one"),
        (SMALL + "space:\n  b: 1\n  k1: 1\n  b: 0\n",
         "s.yaml:5: space.b: is there twice, on lines 3 and 5; remove one"),
        (SMALL + "seed: *x\n", "s.yaml:2: found undefined alias 'x'"),
        (SMALL + "space: &a {top_k: *a}\n", "s.yaml: a value contains itself, or is nested too deeply"),
        ("[" * 3000 + "]" * 3000, "s.yaml: a value contains itself, or is nested too deeply"),
        ("", "s.yaml: the file is empty; a study needs at least collection: {path: FOLDER}"),
        (" \n\n", "s.yaml: the file is empty; a study needs at least collection: {path: FOLDER}"),
        ("# later\n", "s.yaml: must be a mapping with collection, space and so on; got nothing but comments"),
        ("- a\n", "s.yaml: must be a mapping with collection, space and so on; got a list"),
        ("text\n", "s.yaml: must be a mapping with collection, space and so on; got a str"),
        (b"a: 1\nb: \xff\n", "s.yaml:2: is not UTF-8 text (byte 0xff); save it as UTF-8"),
        (b"a: 1\n\nb: \0\n", "s.yaml:3: holds the control character '\\x00'; give a text file"),
        (SMALL + "space: [1]\n",
         "s.yaml:2: space: must be a mapping of parameters to values, as {top_k: [3, 5, 10]}; got [1]"),
        (SMALL + "constraints: 3\n", 's.yaml:2: constraints: must be a mapping, as {context_tokens: "<= 2000"}; got 3'),
        (SMALL + "baseline: x\n", "s.yaml:2: baseline: must be a mapping of parameters to one value each, got 'x'"),
        (SMALL + "budget: 20\n", "s.yaml:2: budget: must be a mapping, got 20"),
        (SMALL + "cost: index_bytes\n", "s.yaml:2: cost: must be a list, got 'index_bytes'"),
        (SMALL + "cost: [index_bytes, index_bytes]\n", "s.yaml:2: cost: index_bytes is there twice; remove one"),
        (SMALL + "measures: [top1_relevance, max_relevance@1]\n",
         "s.yaml:2: measures: max_relevance@1 is there twice; remove one"),
        (SMALL + "measures: [3]\n", "s.yaml:2: measures[0]: must be the name of a measure, as ndcg@10; got 3"),
        (SMALL + "objective: {tolerance: 0}\n", "s.yaml:2: objective.tolerance: must be greater than 0, got 0"),
        (SMALL + "objective: {tolerance: .inf}\n", "s.yaml:2: objective.tolerance: must be a finite number, got inf"),
        (SMALL + "seed: 2020-01-01\n", "s.yaml:2: seed: must be a valid integer, got datetime.date(2020, 1, 1)"),
        (SMALL + "seed: true\n", "s.yaml:2: seed: must be a valid integer, got True"),
        (SMALL + "\nbudget:\n  timeout: -1\n", "s.yaml:4: budget.timeout: must be greater than 0, got -1"),
        ("collection:\n  path: x\n  labels:\n    min: a\n", "s.yaml:4: collection.labels.min: must be a valid integer, "
                                                            "unable to parse string as an integer, got 'a'"),
    ],
)  # fmt: skip
def test_bad_yaml(tmp_path: Path, text: str | bytes, line: str) -> None:
    assert refused(tmp_path, text) == [line]


def test_tags_never_make_objects(tmp_path: Path) -> None:
    (line,) = refused(tmp_path, SMALL + "tokenizer: !!python/name:os.system\n")
    assert line.startswith("s.yaml:2: could not determine a constructor for the tag")
    assert line.endswith("; remove the !tag")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("s.toml", "seed = 1\nseed = 2\n", "s.toml:2: Cannot overwrite a value"),
        ("s.toml", "seed = \n", "s.toml:1: Invalid value"),
        ("s.toml", "[collection]\npath = 'x'\n[space]\ntop_k = 0\n",
         "s.toml: space.top_k: 0 is not allowed; allowed: a whole number from 1"),
        ("s.json", '{"seed": 1,\n"a"}', "s.json:2: Expecting ':' delimiter"),
        ("s.json", '{"space": {"b": 1, "b": 0}}', "s.json: key 'b' is there twice; remove one"),
        ("s.json", '{"collection": {}, "objective": {"tolerance": NaN}}',
         "s.json: objective.tolerance: must be a finite number, got nan"),
        ("s.json", "[1]", "s.json: must be a mapping with collection, space and so on; got a list"),
        ("s.txt", SMALL, "s.txt: a study file ends in .yaml, .yml, .toml, .json; got '.txt'"),
    ],
)  # fmt: skip
def test_bad_toml_and_json(tmp_path: Path, name: str, text: str, line: str) -> None:
    assert refused(tmp_path, text, name) == [line]


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(StudyFileError, match=r"no\.yaml: no such file; the README explains a study file line by line$"):
        load_study(tmp_path / "no.yaml")
    with pytest.raises(StudyFileError, match=r": is a folder; give the study file itself, as .*study\.yaml$"):
        load_study(tmp_path)


def test_the_name_comes_from_the_file_only_when_it_can(tmp_path: Path) -> None:
    rule = "must be letters, digits and . _ - (a letter or digit first)"
    cure = "where the file's name is not such a name, add study: NAME"
    assert refused(tmp_path, SMALL, "my study.yaml") == [f"my study.yaml:1: study: {rule}, got 'my study'; {cure}"]
    assert loaded(tmp_path, SMALL + "study: mine\n", "my study.yaml").study == "mine"
    for name in ("../x", "", ".x", "a/b", "a\n"):
        assert unmade(study=name) == f"study: {rule}, got {name!r}; {cure}"


def test_from_python_the_message_is_the_same_without_a_file() -> None:
    assert unmade(space={"top_k": [3, 0]}) == "space.top_k[1]: 0 is not allowed; allowed: a whole number from 1"
    assert unmade(seed=-1, samplr="tpe").splitlines()[0] == "2 problems"
    with pytest.raises(ValidationError):
        StudySpec.model_validate({})


# -------------------------------------------------------- what cannot go together


def test_an_objective_that_more_results_never_hurt_needs_something_that_they_cost() -> None:
    for measure in ("fidelity", "recall", "ndcg"):
        assert unmade(objective={"maximize": measure}, cost=["index_bytes"]) == (
            f"objective.maximize: {measure} is never worse with more results, so the greatest top_k always wins; "
            'add context_tokens to cost, a limit as constraints: {context_tokens: "<= 2000"}, or a cutoff'
        )
    fidelity = {"maximize": "fidelity"}
    made(objective=fidelity)  # the cost order decides, by the tolerance
    assert "never worse" in unmade(objective=fidelity, cost=["latency_ms"])  # one exact search serves every top_k
    made(objective=fidelity, cost=["index_bytes"], constraints={"context_tokens": "<= 2000"})
    made(objective=fidelity, cost=["index_bytes"], space={"top_k": 5})
    made(objective={"maximize": "fidelity@5"}, cost=["index_bytes"])
    assert "never worse" in unmade(objective=fidelity, cost=[], constraints={"context_tokens": ">= 5"})
    assert "never worse" in unmade(objective=fidelity, cost=[], constraints={"index_bytes": "<= 5"})


def test_unjudged_documents_are_not_an_aim() -> None:
    assert unmade(objective={"maximize": "holes_ratio@10"}) == (
        "objective.maximize: holes_ratio@10 is not to be made high; "
        'limit it instead, as constraints: {holes_ratio@10: "<= 0.2"}'
    )


def test_a_tolerance_of_the_whole_range_is_refused() -> None:
    assert unmade(objective={"tolerance": 2}) == (
        "objective.tolerance: 2 allows any loss, since ndcg@10 spans 1; give a part of it, as 0.02"
    )


def test_a_baseline_that_cannot_run_is_refused() -> None:
    assert unmade(baseline={"algorithm": "semantic", "pool": 2, "top_k": 3}) == (
        "baseline: pool 2 is smaller than top_k 3: a reranker returns from its pool"
    )


def test_a_grid_needs_values_that_can_be_listed() -> None:
    assert unmade(sampler="grid", space={"b": {"low": 0, "high": 1}}) == (
        "sampler: a grid cannot list a continuous range; give b a step or a list, or use sampler: auto"
    )


# -------------------------------------------------------------------------- schema


def test_the_schema_file_is_current() -> None:
    path = Path(study_file.__file__).with_name("study.schema.json")
    assert path.read_text(encoding="utf-8") == schema(), "write sweep.optimize.study_file.schema() to this file again"


def test_the_schema_names_every_key() -> None:
    form = json.loads(schema())
    assert list(form["properties"]) == list(StudySpec.model_fields)
    assert list(form["properties"]["space"]["properties"]) == list(PARAMETERS)
    assert form["required"] == ["collection"]
