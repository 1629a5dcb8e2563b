"""Vectors as an index takes them: length, dimensions, quantisation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.errors import SettingsError
from sweep.retrieval import vectors as module
from sweep.retrieval.vectors import Floats, bytes_each, prepare, unit


def sample(n: int = 50, d: int = 12, seed: int = 3) -> Floats:
    return np.random.default_rng(seed).standard_normal((n, d)).astype(np.float32) * 3


def test_cosine_is_unit_length_and_a_zero_vector_stays_zero() -> None:  # CASES S18, S23
    raw = np.array([[10, 10], [1, 0], [0, 0]], np.float32)
    kept = raw.copy()
    made = prepare(raw, similarity="cosine")
    np.testing.assert_allclose(made, [[0.5**0.5, 0.5**0.5], [1, 0], [0, 0]], rtol=1e-6)
    np.testing.assert_array_equal(raw, kept)
    assert (made.dtype, made.flags.c_contiguous) == (np.float32, True)


@pytest.mark.parametrize("similarity", ["inner_product", "l2"])
def test_other_similarities_take_vectors_as_they_are(similarity: str) -> None:
    np.testing.assert_array_equal(prepare(sample(), similarity=similarity), sample())


def test_the_first_dimensions_are_kept_then_normalised() -> None:
    made = prepare(sample(), similarity="cosine", dimensions=5)
    np.testing.assert_allclose(made, unit(sample()[:, :5]), rtol=1e-6)
    np.testing.assert_array_equal(prepare(sample(), similarity="l2", dimensions=12), sample())
    with pytest.raises(SettingsError, match="dimensions 13: the encoder gives 12"):
        prepare(sample(), similarity="cosine", dimensions=13)


def test_binary_is_the_sign() -> None:
    made = prepare(np.array([[3, -1, 0, 2]], np.float32), similarity="cosine", quantization="binary")
    assert made.tolist() == [[0.5, -0.5, -0.5, 0.5]]  # 1 / √4


def test_binary_scores_are_those_of_sentence_transformers() -> None:
    # its rescoring of binary hits: the query times the unpacked bits as ±1
    from sentence_transformers.util import quantization

    raw, query = unit(sample(30, 16)), unit(sample(1, 16, seed=9))[0]
    bits = np.unpackbits(quantization.quantize_embeddings(raw, "ubinary"), axis=1).astype(np.float32) * 2 - 1
    ours = prepare(raw, similarity="cosine", quantization="binary") @ query
    np.testing.assert_allclose(ours, bits @ query / 4, rtol=1e-5, atol=1e-6)  # √16


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 999), st.sampled_from(["cosine", "l2"]))
def test_int8_is_within_half_a_step_and_has_256_values(n: int, d: int, seed: int, similarity: str) -> None:
    plain = prepare(sample(n, d, seed), similarity=similarity)
    made = prepare(sample(n, d, seed), similarity=similarity, quantization="int8")
    step = (plain.max(axis=0) - plain.min(axis=0)) / 255
    assert (np.abs(made - plain) <= step / 2 + 1e-6 * np.abs(plain).max(initial=1)).all()
    many = prepare(sample(2000, 1), similarity="l2", quantization="int8")
    assert len(np.unique(many)) <= 256


def test_int8_codes_are_those_of_sentence_transformers() -> None:
    from sentence_transformers.util import quantization

    raw = unit(sample(500, 16))
    low, high = raw.min(axis=0), raw.max(axis=0)
    # its "int8" is its "uint8" less 128, but for the rounding of negative numbers towards zero
    codes = quantization.quantize_embeddings(raw, "uint8", ranges=np.stack([low, high]))
    made = prepare(raw, similarity="l2", quantization="int8")
    np.testing.assert_array_equal(np.floor((made - low) / ((high - low) / 255)), codes)
    assert (int(codes.min()), int(codes.max())) == (0, 255)


def test_a_dimension_of_one_value_keeps_it() -> None:
    raw = np.array([[0.3, 1], [0.3, 2]], np.float32)
    assert prepare(raw, similarity="l2", quantization="int8")[:, 0].tolist() == raw[:, 0].tolist()


@pytest.mark.parametrize("quantization", ["none", "int8", "binary"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_stays_so_and_harms_no_other(quantization: str, bad: float) -> None:  # CASES S22
    raw = sample()
    raw[7, 3] = bad
    made = prepare(raw, similarity="cosine", quantization=quantization)
    assert not np.isfinite(made[7]).all()
    alone = prepare(np.delete(raw, 7, axis=0), similarity="cosine", quantization=quantization)
    np.testing.assert_allclose(np.delete(made, 7, axis=0), alone, atol=0.02 if quantization == "int8" else 0)


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [prepare(sample(), similarity="cosine", quantization=q) for q in ("none", "int8", "binary")]
    monkeypatch.setattr(module, "_BLOCK", 7)
    for quantization, made in zip(("none", "int8", "binary"), whole, strict=True):
        np.testing.assert_array_equal(prepare(sample(), similarity="cosine", quantization=quantization), made)


def test_no_vectors() -> None:
    for quantization in ("none", "int8", "binary"):
        made = prepare(np.empty((0, 4), np.float32), similarity="cosine", quantization=quantization)
        assert made.shape == (0, 4)


def test_bytes() -> None:
    assert [bytes_each(384, q) for q in ("none", "int8", "binary")] == [1536, 384, 48]
    assert bytes_each(9, "binary") == 2
