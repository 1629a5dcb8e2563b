"""Vectors as an index takes them: the first dimensions, at unit length where cosine is asked, quantised.

    n, d    vectors, dimensions
    int8    each dimension in 256 steps between its least and greatest value over the chunks, one byte
    binary  the sign of each dimension, one bit: x ↦ ±1/√d

The codes are those of sentence-transformers' `quantize_embeddings`. Only chunks are quantised. Queries stay as they
are, so a binary score is what its rescoring of binary hits comes to, for every chunk. What is returned are the values
that the stored codes stand for, in float32: the middle of a step. A vector that is not finite stays so.
"""

__all__ = ["Floats", "bytes_each", "prepare", "unit"]

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from sweep.errors import SettingsError

Floats = npt.NDArray[np.float32]
_BLOCK = 1 << 14  # vectors worked on at a time


def unit(vectors: Floats) -> Floats:
    """Return the vectors at length one, float32 C-contiguous; a zero vector stays zero."""
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):  # of a vector that is not finite
        return np.ascontiguousarray(
            np.divide(vectors, length, out=np.zeros_like(vectors), where=length != 0), np.float32
        )


def prepare(vectors: Floats, *, similarity: str, dimensions: int | None = None, quantization: str = "none") -> Floats:
    """Return what is put into an index, or asked of it, float32 C-contiguous (n, ≤ d); the argument is left as it is.

    dimensions: how many of the first are kept, as Matryoshka models allow. similarity: "cosine" becomes an inner
    product by unit length; "inner_product" and "l2" take vectors as they are. quantization: "none", "int8", "binary".
    Raises SettingsError for more dimensions than there are.
    """
    n, d = vectors.shape
    if dimensions is not None and dimensions > d > 0:
        raise SettingsError(f"dimensions {dimensions}: the encoder gives {d}; ask for at most so many, or leave it out")
    kept = vectors[:, :dimensions]
    result = np.empty(kept.shape, np.float32)
    for at in range(0, n, _BLOCK):
        block = kept[at : at + _BLOCK]
        result[at : at + _BLOCK] = unit(block) if similarity == "cosine" else block
    if quantization != "none" and n:
        with np.errstate(invalid="ignore"):  # of a vector that is not finite
            decode = _sign(result) if quantization == "binary" else _steps(result)
            for at in range(0, n, _BLOCK):
                result[at : at + _BLOCK] = decode(result[at : at + _BLOCK])
    return result


def bytes_each(dimensions: int, quantization: str) -> int:
    """Return the bytes that one vector takes."""
    return {"none": 4 * dimensions, "int8": dimensions, "binary": -(-dimensions // 8)}[quantization]


def _sign(vectors: Floats) -> Callable[[Floats], Floats]:
    size = np.float32(max(1, vectors.shape[1]) ** -0.5)
    return lambda block: np.where(np.isfinite(block), np.where(block > 0, size, -size), block)


def _steps(vectors: Floats) -> Callable[[Floats], Floats]:
    finite = np.isfinite(vectors)
    low = vectors.min(axis=0, where=finite, initial=np.inf)
    high = vectors.max(axis=0, where=finite, initial=-np.inf)
    step = np.where(high > low, (high - low) / 255, 0).astype(np.float32)
    width = np.where(step > 0, step, np.float32(1))  # all values of a dimension may be one
    return lambda block: np.where(np.isfinite(block), (np.floor((block - low) / width) + 0.5) * step + low, block)
