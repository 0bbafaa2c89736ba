"""Attention that was computed elsewhere: what is read, what is refused in words, and that nothing else can happen."""

import io
import json
import zipfile
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from core.interpret.trace import AttentionTrace
from core.pretrained import PretrainedError, load_lab_model, read
from core.pretrained.arrays import read_arrays
from dashboard.draw.picture_files import trace_npz
from tests.cases import each


def even(*shape: int) -> np.ndarray:
    """Random rows that sum to 1."""
    weights = np.random.default_rng(86).random(shape, dtype=np.float32) + 0.01
    return weights / weights.sum(-1, keepdims=True)


def npz(**arrays: Any) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def same(trace: AttentionTrace, weights: np.ndarray) -> None:
    assert len(trace.maps) == len(weights)
    for item, expected in zip(trace.maps, weights, strict=True):
        np.testing.assert_allclose(item.weights, expected, atol=2e-3)


@each("shape", [(2, 3, 5, 5), (2, 1, 3, 5, 5), (1, 3, 5, 5), (2, 1, 5, 5)])
def test_one_array_of_all_layers_with_or_without_a_batch(shape):
    weights = even(*shape)
    layers = weights.reshape(-1, *((1, 5, 5) if shape == (2, 1, 5, 5) else (3, 5, 5)))
    arrays = read_arrays(npz(attention=weights), "a.npz")
    same(arrays.trace, layers)
    assert (
        arrays.trace.kinds == ("self",)
        and arrays.source.tokens == tuple("01234")
        and arrays.cut is None
    )


@each("dtype", [np.float16, np.float32, np.float64])
def test_an_array_a_layer_in_the_order_of_their_numbers(dtype):
    layers = even(11, 2, 7, 7).astype(dtype)
    names = {f"encoder.layer.{n}.attention": layers[n] for n in reversed(range(11))}
    same(read_arrays(npz(**names), "a.npz").trace, layers)
    same(read_arrays(save(names), "a.safetensors").trace, layers)


def test_a_layer_alone_and_a_head_alone():
    assert read_arrays(npz(a=even(3, 5, 5)), "a").trace.shape == (1, 3)
    assert read_arrays(npz(a=even(5, 5)), "a").trace.shape == (1, 1)


def test_half_precision_of_the_other_kind():
    import torch
    from safetensors.torch import save as save_torch

    weights = torch.from_numpy(even(2, 3, 5, 5)).to(torch.bfloat16)
    arrays = read_arrays(save_torch({"attention": weights}), "a.safetensors")
    np.testing.assert_array_equal(arrays.trace.map(1).weights, weights[1].float().numpy())


def test_tokens_name_rows_and_columns_and_special_ones_are_known():
    words = ["[CLS]", "the", "##m", "cat", "[SEP]"]
    arrays = read_arrays(npz(attention=even(2, 3, 5, 5), tokens=np.array(words)), "a.npz")
    assert arrays.source.tokens == tuple(words) and arrays.source.special == (
        True,
        False,
        False,
        False,
        True,
    )
    assert arrays.source.word == (None, 0, 0, 1, None)
    data = save(
        {"attention": even(2, 3, 5, 5)}, {"tokens": json.dumps(["Ġthe", "m", "Ġcat", "Ġ", "!"])}
    )
    assert read_arrays(data, "a.safetensors").source.tokens == ("the", "##m", "cat", "␣", "!")
    typed = read_arrays(npz(attention=even(1, 3, 5, 5)), "a.npz", "one two three four five")
    assert typed.trace.map(0).queries == ("one", "two", "three", "four", "five")


def test_kinds_are_named_or_read_off_the_weights():
    causal = np.tril(even(2, 3, 5, 5))
    causal /= causal.sum(-1, keepdims=True)
    arrays = read_arrays(npz(attention=causal), "a.npz")
    assert arrays.trace.kinds == ("causal",) and arrays.trace.map(0).mask is not None
    across = read_arrays(
        npz(a=even(2, 3, 4, 5), queries=np.array(list("abcd")), keys=np.array(list("vwxyz"))),
        "a.npz",
    )
    assert across.trace.kinds == ("cross",)
    assert across.trace.map(0).queries == tuple("abcd") and across.trace.map(0).keys == tuple(
        "vwxyz"
    )


@each("name", ["numbers", "induction"])
def test_what_the_lab_exports_comes_back_as_it_was(name):
    made = read(
        load_lab_model(name),
        "seven hundred and six" if name == "numbers" else "the old king and the old king",
    )
    back = read_arrays(trace_npz(made.trace), "attention.npz")
    assert back.trace.kinds == made.trace.kinds
    for one, other in zip(back.trace.maps, made.trace.maps, strict=True):
        assert (one.kind, one.layer, one.keys, len(one.queries)) == (
            other.kind,
            other.layer,
            other.keys,
            len(other.queries),
        )
        np.testing.assert_array_equal(one.weights, other.weights)
    assert (
        back.trace.of("cross").maps == ()
        or back.lines("cross")[0].tokens == made.lines("cross")[0].tokens
    )


def test_rows_that_do_not_sum_to_one_are_said_and_drawn():
    weights = even(1, 2, 4, 4) * 0.5
    weights[0, 0, 1] = 0
    arrays = read_arrays(npz(attention=weights), "a.npz")
    assert "between 0.50 and 0.50" in arrays.cut
    np.testing.assert_array_equal(arrays.trace.map(0).weights, weights[0])


def lacking(values: object, name: str = "attention") -> bytes:
    return npz(**{name: values})


@each(("data", "why"), [
    (lacking(np.array([[0.5, np.nan], [0, 1]])), "1 numbers that are not finite"),
    (lacking(np.array([[-3.0, 1.0], [0, 1]])), "take their softmax first"),
    (lacking(np.array([[7.0, 1.0], [0, 1]])), "0 to 1"),
    (lacking(np.zeros(5)), "has the shape"), (lacking(np.zeros((2, 0, 3, 3))), "has the shape"),
    (lacking(np.zeros((2, 2, 2, 2, 3, 3))), "has the shape"), (npz(), "holds no weights"),
    (lacking(np.array([object()])), "Python objects"), (lacking(np.array(["a"])), "not numbers"),
    (npz(a=even(2, 4, 4), b=even(2, 5, 5)), "different sizes"), (npz(self_0=even(2, 4, 5)), "square"),
    (npz(self_0=even(2, 4, 4), cross_0=even(2, 3, 5)), "do not fit together"),
    (npz(a=even(2, 4, 4), tokens=np.array(["a", "b"])), "names 2 tokens"),
    (lacking(np.zeros((1, 1, 2049))), "at most 2,048"), (b"PK\x03\x04 broken", "not a readable NPZ"), (b"", "neither"),
    (b"\x93NUMPY", "neither"), (b'\x07\0\0\0\0\0\0\0{"a":1}', "neither"), (b"\xff" * 64, "neither"),
    (save({"a": even(2, 4, 4)}, {"tokens": "the cat"}), "JSON list"),
    (save({"a": even(2, 4, 4)})[:-1], "not a readable safetensors file"),
])  # fmt: skip
def test_what_is_no_attention_is_refused_in_words(data, why):
    with pytest.raises(PretrainedError, match=why):
        read_arrays(data, "a file")


def test_too_many_typed_tokens_are_said():
    with pytest.raises(PretrainedError, match="2 tokens are typed"):
        read_arrays(npz(a=even(2, 4, 4)), "a.npz", "one two")


def test_a_bomb_is_refused_by_its_header():
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (10**6, 10**6)}
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("attention.npy", header.getvalue())
    with pytest.raises(PretrainedError, match="1,000,000,000,000 numbers"):
        read_arrays(out.getvalue(), "bomb.npz")
    declared = json.dumps(
        {"a": {"dtype": "F32", "shape": [10**6, 10**6], "data_offsets": [0, 4]}}
    ).encode()
    with pytest.raises(PretrainedError, match="1,000,000,000,000 numbers"):
        read_arrays(
            len(declared).to_bytes(8, "little") + declared + b"\0\0\0\0", "bomb.safetensors"
        )


@each("name, kind, count", [("tokens", "<U100000000", 2), ("w", "<f16", 39_000_000)])
def test_a_small_file_that_unpacks_to_gigabytes_is_refused_by_its_header(name, kind, count):
    import tracemalloc

    header, out = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": kind, "fortran_order": False, "shape": (count,)}
    )
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{name}.npy", header.getvalue())
    tracemalloc.start()
    try:
        with pytest.raises(PretrainedError, match="letters for a token|numbers; at most"):
            read_arrays(out.getvalue(), "bomb.npz")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
