"""A person's own retriever: a function or a real server, asked once a query; what fails is a failed query."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from small_workspace import LABELS, QUERIES, Workspace

from sweep.artifacts import Store
from sweep.collection.collection import Collection
from sweep.errors import ModelError
from sweep.optimize.study import Study
from sweep.optimize.study_file import load_study
from sweep.retrieval.calls import CallsFailedError
from sweep.retrieval.configuration import Configuration
from sweep.retrieval.parameters import DEFAULT_ENCODER
from sweep.retrieval.pipeline import Pipeline
from sweep.retrieval.retriever import RetrieverSpec, make_retriever

DOCUMENTS = {"1": "one two three", "2": "four five", "d3": "six seven eight nine"}
ASKED = {"q1": "first", "q2": "second"}
MINE = """
asked = []
def search(query, top_k, parameters):
    asked.append((query, top_k, dict(parameters)))
    if parameters.get("fail") == query:
        raise RuntimeError("index is locked")
    ids, scores = ["1", 2, "d3"], [0.1, 0.9 if query == "first" else 0.05, 0.5]
    return (ids, scores, ["one", "four", "six seven"]) if parameters.get("texts") else (ids, scores)
"""


def pipeline(folder: Path, source: str = MINE, **spec: Any) -> Pipeline:
    (folder / "mine.py").write_text(source)
    declared = {"mine": RetrieverSpec(**({"function": "mine.py:search"} | spec))}
    collection = Collection.of(DOCUMENTS, ASKED, {"q1": {"1": 1, "gone": 2}, "q2": {"2": 1}})
    return Pipeline(collection, Store(folder / "store"), DEFAULT_ENCODER, retrievers=declared, folder=folder)


def of(**options: Any) -> Configuration:
    own = {f"mine.{name}": value for name, value in options.items() if name != "top_k"}
    return Configuration.of({"algorithm": "retriever", "retriever": "mine", "top_k": options.get("top_k", 2), **own})


def calls(made: Pipeline) -> list[Any]:
    return list(made.calls.retriever("mine")._module.asked)


def test_documents_come_in_the_order_of_their_scores_cut_to_top_k(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    result = made.run(of())
    names = made.collection.judgments.documents
    assert [[names[i] for i in row] for row in result.documents.items.tolist()] == [["2", "d3"], ["d3", "1"]]
    assert result.documents.scores[0].tolist() == pytest.approx([0.9, 0.5])
    assert result.context_tokens.tolist() == [2 + 4, 4 + 3]  # the whole documents, since no passages were given
    assert calls(made) == [("first", 2, {}), ("second", 2, {})]
    assert (result.index_bytes, result.pool, result.ann_recall) == (0, None, 1.0)
    assert result.latency_ms > 0


def test_options_are_handed_over_and_passages_are_counted(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    result = made.run(of(texts=True, alpha=0.5, top_k=3))
    assert calls(made) == [(q, 3, {"alpha": 0.5, "texts": True}) for q in ASKED.values()]
    assert result.context_tokens.tolist() == [4, 4]  # one, four, six seven


def test_nothing_is_asked_twice(tmp_path: Path) -> None:
    first = pipeline(tmp_path)
    before = first.run(of())
    again = pipeline(tmp_path)
    after = again.run(of())
    assert calls(again) == []
    assert after.documents.items.tolist() == before.documents.items.tolist()
    assert after.latency_ms == before.latency_ms
    changed: list[dict[str, Any]] = [{"source": MINE + "# another file\n"}, {"version": "2"}]
    for change in changed:
        made = pipeline(tmp_path, **change)
        made.run(of())
        assert len(calls(made)) == 2


def test_a_failing_call_is_a_failed_query_and_the_others_are_kept(tmp_path: Path) -> None:
    made = pipeline(tmp_path)
    with pytest.raises(CallsFailedError, match=r"1 of 2 .* not answered: query 'q2': RuntimeError: index is locked"):
        made.run(of(fail="second"))
    asked = len(calls(made))
    with pytest.raises(CallsFailedError):
        made.run(of(fail="second"))
    assert calls(made)[asked:] == [("second", 2, {"fail": "second"})]


BAD = {
    "[]": "the answer is a list, not",
    "None": "the answer is a NoneType",
    "'text'": "the answer is a str",
    "{'ids': ['1']}": "the answer has no scores, it has ids",
    "(['1'], [1, 2])": "differ in number: 1, 2",
    "(['1'], [1], [])": "differ in number: 1, 1, 0",
    "(['1'], [float('nan')])": "a score is a finite number, got nan",
    "(['1'], ['0.5'])": "a score is a finite number, got '0.5'",
    "(['1'], [True])": "a score is a finite number, got True",
    "([True], [1])": "an id is text or a whole number, got True",
    "([1.5], [1])": "an id is text or a whole number, got 1.5",
    "([''], [1])": "an id is text or a whole number, got ''",
    "(['9'], [1])": "document '9' is not in the collection",
}


@pytest.mark.parametrize("answer", BAD)
def test_an_answer_that_cannot_be_read_says_why(tmp_path: Path, answer: str) -> None:
    made = pipeline(tmp_path, f"def search(query, top_k, parameters):\n    return {answer}\n")
    with pytest.raises(CallsFailedError) as refused:
        made.run(of())
    assert BAD[answer] in str(refused.value)


def test_numpy_numbers_repeated_and_absent_documents(tmp_path: Path) -> None:
    source = """
import numpy as np
def search(query, top_k, parameters):
    return {"ids": ["d3", np.int64(1), "d3", "gone"], "scores": np.array([.2, .7, .9, .1], np.float32)}
"""
    made = pipeline(tmp_path, source)
    result = made.run(of(top_k=4))
    names = made.collection.judgments.documents
    assert [names[i] for i in result.documents.items[0].tolist() if i >= 0] == ["d3", "1", "gone"]  # judged, not there
    assert np.isfinite(result.context_tokens).all()


def test_no_result_is_a_result(tmp_path: Path) -> None:
    result = pipeline(tmp_path, "def search(query, top_k, parameters):\n    return [], []\n").run(of())
    assert result.documents.counts.tolist() == [0, 0]
    assert result.context_tokens.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("gone.py:search", "no such file"),
        ("mine.py:find", "names no function"),
        ("no_such_module_at_all:search", "cannot be imported: ModuleNotFoundError"),
        ("broken.py:search", "cannot be imported: SyntaxError"),
    ],
)
def test_a_function_that_cannot_be_had_is_named(tmp_path: Path, function: str, said: str) -> None:
    (tmp_path / "broken.py").write_text("def search(:\n")
    (tmp_path / "mine.py").write_text(MINE)
    declared = {"mine": RetrieverSpec(function=function)}
    with pytest.raises(ModelError, match=said):
        make_retriever("mine", declared, tmp_path).find("q", 1, {})


@pytest.mark.parametrize(
    "spec", [{}, {"function": "a:b", "endpoint": "http://x"}, {"function": "a"}, {"endpoint": "x"}]
)
def test_a_declaration_names_one_of_both(spec: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        RetrieverSpec(**spec)  # type: ignore[arg-type]


# ------------------------------------------------------------------- a server

SERVER = """
import json, sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
count = 0
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        global count
        count += 1
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        mode = body["parameters"].get("mode")
        if mode == "busy" and count % 2:
            self.send_response(503); self.send_header("retry-after", "0"); self.end_headers(); return
        if mode == "key" and self.headers.get("x-key") != "secret":
            self.send_response(401); self.end_headers(); self.wfile.write(b'{"error": {"message": "no key"}}'); return
        answer = json.dumps({"ids": ["1", "2"], "scores": [0.5, len(body["query"])]}).encode()
        said = b"<html>" if mode == "html" else answer
        self.send_response(200); self.send_header("content-length", str(len(said))); self.end_headers()
        self.wfile.write(said)
    def log_message(self, *_): pass
server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield f"http://127.0.0.1:{process.stdout.readline().strip()}/search"
    process.kill()
    process.communicate()


def remote(folder: Path, url: str, **spec: Any) -> Pipeline:
    return pipeline(folder, function=None, endpoint=url, **spec)


@pytest.mark.parametrize("parallel", [1, 4])
def test_an_endpoint_is_asked(tmp_path: Path, server: str, parallel: int) -> None:
    made = remote(tmp_path, server, parallel=parallel)
    names = made.collection.judgments.documents
    assert [[names[i] for i in row] for row in made.run(of()).documents.items.tolist()] == [["2", "1"]] * 2


def test_a_busy_endpoint_is_asked_again(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.retrieval.http.time.sleep", lambda seconds: None)
    assert remote(tmp_path, server).run(of(mode="busy")).documents.counts.tolist() == [2, 2]


def test_a_key_comes_from_the_environment_and_is_never_shown(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = remote(tmp_path, server, headers_env={"x-key": "MY_KEY"})
    with pytest.raises(ModelError, match="environment variable MY_KEY is not set"):
        made.run(of(mode="key"))
    monkeypatch.setenv("MY_KEY", "wrong")
    with pytest.raises(CallsFailedError, match="status 401: no key") as refused:
        remote(tmp_path, server, headers_env={"x-key": "MY_KEY"}).run(of(mode="key"))
    monkeypatch.setenv("MY_KEY", "secret")
    assert remote(tmp_path, server, headers_env={"x-key": "MY_KEY"}).run(of(mode="key")).documents.counts.sum() == 4
    kept = b"".join(p.read_bytes() for p in (tmp_path / "store").rglob("*") if p.is_file())
    assert "wrong" not in str(refused.value)
    assert b"secret" not in kept


def test_what_is_no_json_and_who_is_not_there(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sweep.retrieval.http.time.sleep", lambda seconds: None)
    with pytest.raises(CallsFailedError, match="the answer is not JSON: '<html>'"):
        remote(tmp_path, server).run(of(mode="html"))
    with pytest.raises(CallsFailedError, match="ConnectError"):
        remote(tmp_path, "http://127.0.0.1:9/").run(of())


# -------------------------------------------------------------------- a study


def test_a_study_sweeps_it_beside_our_own(workspace: Workspace) -> None:
    (workspace.folder / "own.py").write_text(
        "def search(query, top_k, parameters):\n"
        "    if parameters['boost'] == 3 and query == 'egg':\n"
        "        raise TimeoutError('too slow')\n"
        "    return ['d12', 'd01'], [1, parameters['boost']]\n"
    )
    space = {
        "algorithm": ["keyword", "retriever"],
        "chunk_size": 16,
        "top_k": 2,
        "retriever": "own",
        "own.boost": [0, 2, 3],
    }
    study = workspace.study(space, retrievers={"own": {"function": "own.py:search"}})
    ran = workspace.cli("run", study, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    settings = [c["settings"] for c in found["configurations"]["all"].values()]
    assert sorted(s["own.boost"] for s in settings if s["algorithm"] == "retriever") == [0, 2]
    (failed,) = found["configurations"]["failed"].values()
    assert "1 of 8 queries were not answered: query 'q6': TimeoutError: too slow" in failed
    assert len(QUERIES) == 8
    plain = workspace.cli("run", study)
    assert plain.code == 0
    unknown = workspace.cli(
        "run", workspace.study({**space, "retriever": "owl"}, retrievers={"own": {"function": "a:b"}})
    )
    assert unknown.code == 2
    assert "space.retriever: unknown retriever; did you mean 'own'?" in unknown.err


def test_a_retriever_that_answers_nothing_is_asked_eight_times(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "asked = []\ndef search(query, top_k, parameters):\n    asked.append(query)\n    raise OSError('down')\n"
    )
    queries = {f"q{i:02d}": f"text {i}" for i in range(40)}
    collection = Collection.of(DOCUMENTS, queries, {"q00": {"1": 1}})
    declared = {"mine": RetrieverSpec(function="mine.py:search")}
    made = Pipeline(collection, Store(tmp_path / "store"), DEFAULT_ENCODER, retrievers=declared, folder=tmp_path)
    with pytest.raises(CallsFailedError, match="none of the first 8 of 40 queries were answered: query 'q00': OSErr"):
        made.run(of())
    assert calls(made) == [f"text {i}" for i in range(8)]


def test_passages_are_counted_anew_by_another_tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = pipeline(tmp_path)
    first.run(of(texts=True))
    again = pipeline(tmp_path)
    monkeypatch.setattr(again.models, "tokenizer_fingerprint", lambda name: "another")
    again.run(of(texts=True))
    assert len(calls(again)) == 2


OWN = "def search(query, top_k, parameters):\n    return ['d12', 'gone', 'd01'], [3, 2, 1]\n"


def test_a_study_of_retrievers_alone_starts_from_its_first_point_and_embeds_nothing(workspace: Workspace) -> None:
    (workspace.folder / "own.py").write_text(OWN.replace("'gone', ", "").replace("3, 2, 1", "2, 1"))
    space = {"algorithm": "retriever", "top_k": [2, 1], "retriever": ["own"], "own.a": [1, 2]}
    study = workspace.study(space, retrievers={"own": {"function": "own.py:search"}}, baseline=None)
    ran = workspace.cli("run", study, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    baseline = found["configurations"]["all"][found["baseline"]["id"]]["settings"]
    assert baseline == {"algorithm": "retriever", "retriever": "own", "top_k": 2, "own.a": 1}
    assert found["work"]["texts"] == found["work"]["embedded"] == 0


def test_answers_that_only_labels_know_are_found_when_labels_change(workspace: Workspace) -> None:
    # codes of such documents follow the corpus', in order of id: with one more before it, "gone" has another
    (workspace.folder / "own.py").write_text(OWN)
    space = {"algorithm": "retriever", "top_k": 3, "retriever": "own"}
    parts: dict[str, Any] = {"retrievers": {"own": {"function": "own.py:search"}}, "baseline": None}
    labels = {**LABELS, "q1": {**LABELS["q1"], "gone": 3}}
    workspace.write(labels=labels)
    workspace.run(workspace.study(space, study="a", **parts))
    workspace.write(labels={**labels, "q2": {**LABELS["q2"], "before": 1}})
    changed = workspace.study(space, study="b", **parts)
    (one,) = Study(load_study(workspace.study(space, study="a", **parts))).targets.values()
    keys = {Study(load_study(changed)).result_key(one)}
    workspace.write(labels=labels)
    assert Study(load_study(changed)).result_key(one) not in keys


def test_a_list_of_retrievers_may_grow(workspace: Workspace) -> None:
    for name in ("own", "yours"):
        (workspace.folder / f"{name}.py").write_text(OWN.replace("'gone', ", "").replace("3, 2, 1", "2, 1"))
    declared = {name: {"function": f"{name}.py:search"} for name in ("own", "yours")}
    space = {"algorithm": "retriever", "top_k": 2, "retriever": ["own"]}
    workspace.run(workspace.study(space, retrievers=declared, baseline=None))
    grown = workspace.run(workspace.study({**space, "retriever": ["own", "yours"]}, retrievers=declared, baseline=None))
    assert len(grown.trials()) == 2
    (workspace.folder / "own.py").write_text(OWN)
    ran = workspace.cli("run", workspace.study({**space, "retriever": ["own", "yours"]}, retrievers=declared))
    assert ran.code == 2
    assert "retrievers: was" in ran.err
