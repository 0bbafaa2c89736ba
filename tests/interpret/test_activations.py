"""Activations: the bits that hooks by hand see, as a file that a script reads back."""

import hashlib
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load as load_tensors

from core.interpret.activations import (
    PARTS,
    activation_bytes,
    activations_file,
    read_activations,
)
from core.models.base import hooked
from core.pretrained import ModelInputs, PretrainedError, encode
from tests.cases import each, memory_is
from tests.tiny_models import SENTENCE, tiny


def by_hand(family, names):
    """What goes into and comes out of modules, by plain hooks on a plain call of the model."""
    pretrained, seen = tiny(family), {}
    model, (batch, *_) = pretrained.model, encode(pretrained, ModelInputs(SENTENCE))

    def see(name):
        return lambda module, inputs, output: seen.update({name: (inputs, output)})

    with (
        hooked(model.get_submodule(one).register_forward_hook(see(one)) for one in names),
        torch.no_grad(),
    ):
        model(**batch)
    return seen


def heads_of(values, count):
    return values[0].unflatten(-1, (count, -1)).transpose(0, 1)


def test_gpt2_has_the_bits_of_hooks_by_hand():
    read = read_activations(tiny("gpt2"), SENTENCE).tensors
    assert len(read) == 2 * len(PARTS)
    for layer in range(2):
        block = f"transformer.h.{layer}"
        names = (block, f"{block}.attn.c_attn", f"{block}.attn.c_proj")
        whole, into, out = (by_hand("gpt2", names)[name] for name in names)
        states = whole[1][0] if isinstance(whole[1], tuple) else whole[1]
        assert torch.equal(read[f"resid_{layer}"], states[0])
        for name, values in zip("qkv", into[1].chunk(3, -1), strict=True):
            assert torch.equal(read[f"causal_{layer}_{name}"], heads_of(values, 3))
        assert torch.equal(read[f"causal_{layer}_out"], heads_of(out[0][0], 3))


def test_llama_rotates_and_shares_its_keys():
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    read = read_activations(tiny("llama"), SENTENCE).tensors
    at = "model.layers.1"
    names = [f"{at}.self_attn.{one}_proj" for one in "qkvo"] + [at, "model.rotary_emb"]
    seen = by_hand("llama", names)
    q, k, v = (heads_of(seen[name][1], n) for name, n in zip(names, (6, 2, 2), strict=False))
    q, k = apply_rotary_pos_emb(q[None], k[None], *seen["model.rotary_emb"][1])
    expected = {"q": q[0], "k": k[0], "v": v, "out": heads_of(seen[names[3]][0][0], 6)}
    for part, values in expected.items():
        assert torch.equal(read[f"causal_1_{part}"], values), part
    assert torch.equal(read["resid_1"], seen[at][1][0] if seen[at][1].ndim == 3 else seen[at][1])
    some = read_activations(tiny("llama"), SENTENCE, ("q", "k"), [1], [4, 0]).tensors
    assert torch.equal(some["causal_1_q"], q[0][[4, 0]])
    assert torch.equal(some["causal_1_k"], k[0][[1, 0]])  # those of their groups
    assert set(some) == {"causal_1_q", "causal_1_k"}


def test_an_encoder_decoder_has_both_streams_and_three_kinds():
    read = read_activations(tiny("t5"), ModelInputs(SENTENCE, target="Nine green boats"))
    names = [f"{part}_resid_{layer}".lstrip("_") for part in ("", "encoder") for layer in (0, 1)]
    heads = [f"{kind}_{at}_q" for kind in ("self", "causal", "cross") for at in (0, 1)]
    assert {*names, *heads} <= set(read.tensors) and len(read.tensors) == 4 + 6 * 4
    seen = by_hand("t5", ["encoder.block.1"])["encoder.block.1"][1]
    assert torch.equal(read.tensors["encoder_resid_1"], seen[0][0])
    lengths = [len(json.loads(read.metadata[name])) for name in ("tokens", "target_tokens")]
    assert [len(read.tensors[name]) for name in ("encoder_resid_0", "resid_0")] == lengths


@each("family, layers", [("albert", 2), ("xlnet", 2), ("modernbert", 4)])
def test_each_pass_of_a_layer_is_one_stream(family, layers):
    read = read_activations(tiny(family), SENTENCE, ("resid",))
    tokens = len(json.loads(read.metadata["tokens"]))
    assert {name: len(one) for name, one in read.tensors.items()} == {
        f"resid_{layer}": tokens for layer in range(layers)
    }


def test_state_layers_say_that_they_have_no_queries():
    read = read_activations(tiny("mamba"), SENTENCE)
    assert not [name for name in read.tensors if name.endswith(("_q", "_k"))]
    assert "pass on a state have no q and k: causal_0, causal_1" in read.metadata["notes"]


def test_the_file_is_read_back_with_its_metadata(tmp_path):
    from safetensors import safe_open

    pretrained = tiny("gpt2")
    read = read_activations(pretrained, SENTENCE)
    (path := tmp_path / "a.safetensors").write_bytes(activations_file(pretrained, SENTENCE))
    with safe_open(path, "pt") as file:
        about = file.metadata()
        assert {*file.keys()} == {*read.tensors}
        assert all(torch.equal(file.get_tensor(name), one) for name, one in read.tensors.items())
    digest = hashlib.sha256()
    for name, value in pretrained.model.state_dict().items():
        digest.update(name.encode() + value.numpy().tobytes())
    assert about.pop("revision") == f"sha256 of the weights {digest.hexdigest()}"
    assert about == read.metadata and (about["model"], about["text"]) == ("gpt2", SENTENCE)
    assert len(json.loads(about["ids"])) == len(read.tensors["resid_0"])
    assert json.loads(about["modules"])["causal_1_q"] == "transformer.h.1.attn"
    given = load_tensors(activations_file(pretrained, SENTENCE, ("v",), revision="a" * 40))
    assert {*given} == {"causal_0_v", "causal_1_v"}
    assert {one.dtype for one in given.values()} == {torch.float32}


@each("family", ["gpt2", "bert", "llama", "gemma3", "deepseek_v3", "t5", "bart"])
def test_the_size_is_told_before(family):
    pretrained = tiny(family)
    read = read_activations(pretrained, SENTENCE)
    lines = [json.loads(read.metadata.get(one, "[]")) for one in ("tokens", "target_tokens")]
    size = sum(one.nbytes for one in read.tensors.values())
    assert 0.9 < activation_bytes(pretrained, sum(map(len, lines))) / size < 1.7


@each(
    "family, options, says",
    [
        ("gpt2", {"parts": ["x"]}, "There are no activations x; take some of resid, q, k, v, out."),
        ("gpt2", {"parts": []}, "take some of resid"),
        ("gpt2", {"layers": [0, 7]}, "gpt2 has the layers 0 to 1, and no 7."),
        ("mamba", {"parts": ["q", "k"]}, "mamba has no q or k here. Layers that pass on a state"),
        ("gpt2", {"heads": [3]}, "has the heads 0 to 2, and no 3."),
        ("longformer", {}, "So only the stream after its layers is read: take resid."),
    ],
)
def test_what_cannot_be_read_says_why(family, options, says):
    with pytest.raises(PretrainedError) as error:
        read_activations(tiny(family), SENTENCE, **options)
    assert says in str(error.value)
    assert read_activations(tiny(family), SENTENCE, ("resid",)).tensors


def test_what_memory_cannot_hold_is_refused(monkeypatch):
    memory_is(monkeypatch, 20_000_000)
    with pytest.raises(PretrainedError, match="Take a shorter text"):
        activation_bytes(tiny("gpt2"), np.iinfo(np.int32).max)
