"""The name of a result: a digest of all that it depends on."""

__all__ = ["CODE", "digest_texts", "fingerprint"]

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

CODE = 2  # raise when the same inputs give other results: nothing that is stored then counts any more


def fingerprint(*parts: Any) -> str:
    """Return 32 hexadecimal digits over JSON values (keys sorted); equal values give equal digits everywhere."""
    text = json.dumps([CODE, *parts], sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def digest_texts(texts: Sequence[str], prefix: str = "") -> npt.NDArray[Any]:
    """Return the 16-byte digest of prefix + text for each text, as V16 (n,)."""
    start = hashlib.blake2b(prefix.encode(), digest_size=16)
    out = bytearray()
    for text in texts:
        one = start.copy()
        one.update(text.encode("utf-8", "surrogatepass"))
        out += one.digest()
    return np.frombuffer(bytes(out), "V16")
