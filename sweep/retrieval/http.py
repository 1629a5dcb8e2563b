"""JSON over HTTP to a service that may be slow, busy or down: retried with back-off, at a bounded rate."""

__all__ = ["Client", "RequestFailedError"]

import os
import random
import threading
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import Any

from sweep.errors import ModelError

ATTEMPTS = 6
RETRIED = frozenset({408, 409, 425, 429, *range(500, 600)})
LONGEST = 60.0  # seconds between two attempts, whatever the server asks for
_SHOWN = 300  # characters of a server's message


class RequestFailedError(Exception):
    """The service did not answer as it should; the text says why. `status`: of the answer, 0 where there was none."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Client:
    """Posts to one URL; safe to use from several threads.

    headers_env: header → the environment variable that holds its value, which is never shown. timeout: seconds of one
    attempt. requests_per_minute: the most that are sent, None for any. waited: seconds for which requests were held
    back, all together.
    """

    def __init__(
        self,
        url: str,
        headers_env: Mapping[str, str],
        *,
        timeout: float,
        requests_per_minute: float | None = None,
        prefix: str = "",
    ) -> None:
        self.url, self._headers_env, self._timeout, self._prefix = url, dict(headers_env), timeout, prefix
        self._gap = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._lock, self._next, self.waited = threading.Lock(), 0.0, 0.0
        self._secrets: list[str] = []

    def post(self, payload: Mapping[str, Any]) -> Any:
        """Return the JSON that the service answers with.

        Raises RequestFailedError where it refuses, gives something else, or is still busy after six attempts, and
        ModelError where the environment does not hold what a header needs.
        """
        import httpx2

        client, wait = self._client, 0.0
        for attempt in range(ATTEMPTS):
            self._keep_pace(min(LONGEST, wait))
            asked, status = 0.0, 0
            try:
                answer = client.post(self.url, json=dict(payload))
            except httpx2.RequestError as fault:
                reason = f"{type(fault).__name__}: {fault}"
            except httpx2.InvalidURL as fault:
                raise RequestFailedError(f"{self.url}: {fault}") from None
            else:
                status = answer.status_code
                if answer.is_success:
                    return self._json(answer)
                reason = f"status {status}: {self._shown(_message(answer)) or 'no message'}"
                if status not in RETRIED:
                    raise RequestFailedError(f"{self.url}: {reason}", status)
                asked = _seconds(answer.headers.get("retry-after"))
            wait = max(asked, 0.5 * 2**attempt * (1 + random.random()))
        raise RequestFailedError(f"{self.url}: {reason} (after {ATTEMPTS} attempts)", status)

    @cached_property
    def _client(self) -> Any:
        import httpx2

        headers = {}
        for header, variable in self._headers_env.items():
            value = os.environ.get(variable, "")
            if not value.strip():
                raise ModelError(f"{self.url}: the environment variable {variable} is not set; it holds the {header}")
            if not all(" " <= c <= "~" for c in value.strip()):  # said here: other messages would show it
                raise ModelError(f"{self.url}: the environment variable {variable} holds what no header may hold")
            headers[header] = self._prefix + value.strip()
            self._secrets.append(value.strip())
        return httpx2.Client(headers=headers, timeout=self._timeout)

    def _keep_pace(self, pause: float) -> None:
        """Wait so long, and until the next request may be sent."""
        with self._lock:
            now = time.monotonic()
            mine = max(now + pause, self._next)
            self._next = mine + self._gap
            self.waited += mine - now
        time.sleep(mine - now)

    def _json(self, answer: Any) -> Any:
        try:
            return answer.json()
        except ValueError:
            said = f"the answer is not JSON: {self._shown(answer.text)!r}"
            raise RequestFailedError(f"{self.url}: {said}", answer.status_code) from None

    def _shown(self, text: str) -> str:
        """Return the start of what a service says, in one line, without what it may have repeated of the headers."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return " ".join(text.split())[:_SHOWN]


def _message(answer: Any) -> str:
    """Return what the service says of its refusal."""
    try:
        said = answer.json()
        for key in ("error", "message", "detail"):
            said = said.get(key, said) if isinstance(said, dict) else said
        return str(said)
    except ValueError:
        return str(answer.text)


def _seconds(text: str | None) -> float:
    """Return what a Retry-After asks for, in seconds or as a date; 0 where it says nothing of the kind."""
    try:
        return max(0.0, float(text or 0))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(str(text)).timestamp() - time.time())
    except ValueError:
        return 0.0
