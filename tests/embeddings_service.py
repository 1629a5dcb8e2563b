"""An OpenAI-compatible embeddings service for tests, a process of its own, that fails on demand.

A text's vector comes from its hash, and vectors are returned last text first, so that only `index` gives their order.
POST /control {"faults": [...], "together": n, "most": n} sets what the next requests meet and forgets the log; GET /log
returns the requests so far. It ends with its standard input.
"""

import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

DIMENSIONS = 8


def vector(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    return [(byte - 128) / 64 for byte in hashlib.blake2b(text.encode(), digest_size=dimensions).digest()]


class Service:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.set({})

    def set(self, control: dict[str, Any]) -> None:
        self.faults: list[Any] = control.get("faults", [])
        self.most: int = control.get("most", 10**6)
        self.together = threading.Barrier(control.get("together", 1))
        self.log: list[dict[str, Any]] = []

    def next_fault(self, request: dict[str, Any]) -> Any:
        with self.lock:
            self.log.append(request)
            return self.faults.pop(0) if self.faults else None


def damaged(fault: Any, rows: list[dict[str, Any]], answer: dict[str, Any]) -> Any:
    """Return an answer that is not what was asked for."""
    match fault:
        case "fewer":
            rows.pop()
        case "more":
            rows.append({"index": len(rows), "embedding": vector("more")})
        case "twice":
            rows[0]["index"] = rows[-1]["index"]
        case "no index":
            del rows[0]["index"]
        case "ragged":
            rows[0]["embedding"].append(0.5)
        case "words":
            rows[0]["embedding"] = "AAAA"
        case "empty":
            for row in rows:
                row["embedding"] = []
        case "list":
            return rows
        case "NaN":
            rows[0]["embedding"][3] = float("nan")
        case "null":
            rows[0]["embedding"][3] = None
        case {"usage": usage}:
            answer["usage"] = usage
        case {"dimensions": dimensions}:
            for row in rows:
                row["embedding"] = vector("any", dimensions)
    return answer


class Handler(BaseHTTPRequestHandler):
    service = Service()

    def do_GET(self) -> None:
        self.answer(200, self.service.log)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/control":
            self.service.set(asked)
            self.answer(200, {})
            return
        key = self.headers.get("Authorization")
        fault = self.service.next_fault({"path": self.path, "key": key, **asked})
        self.service.together.wait(timeout=20)
        texts = asked["input"]
        if len(texts) > self.service.most:
            self.answer(413, {"error": {"message": "too many texts"}})
        elif fault == "drop":
            self.close_connection = True
        elif fault == "half":
            self.send_response(200)
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"data": [')
            self.close_connection = True
        elif fault == "html":
            self.answer(200, None, b"<html>Sign in</html>")
        elif isinstance(fault, int):
            self.answer(fault, {"error": {"message": f"no,\n because {fault}"}})
        elif isinstance(fault, dict) and "status" in fault:
            headers = {"Retry-After": fault["after"]} if "after" in fault else {}
            message = fault.get("echo", "") + f"Incorrect API key provided: {key}"
            self.answer(fault["status"], {"message": message}, headers=headers)
        else:
            rows = [
                {"index": i, "embedding": vector(text, asked.get("dimensions", DIMENSIONS))}
                for i, text in reversed(list(enumerate(texts)))
            ]
            used = {"prompt_tokens": 100 * len(texts), "total_tokens": 100 * len(texts)}
            self.answer(200, damaged(fault, rows, {"data": rows, "usage": used}))

    def answer(self, status: int, content: Any, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        body = body or json.dumps(content).encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()
