"""Presets of models in use, whole, against the modules that run them: the same maps, outputs and gradients."""

import importlib
from typing import Any

import torch
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask

from core.attention import Attention, preset
from tests.cases import each

B, T, H, D = 2, 9, 8, 6
C = H * D
WINDOW = 4  # theirs counts the query's own place, so it looks back 3
PLAIN = {"rope_type": "default"}


def theirs(module, name, **changes):
    """One attention layer of a model of transformers with seeded weights, its rotation and its mask."""
    hf = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    settings: dict[str, Any] = {
        "hidden_size": C,
        "num_attention_heads": H,
        "head_dim": D,
        "attn_implementation": "eager",
        "num_hidden_layers": 1,
        "layer_types": ["full_attention"],
    } | changes
    config = getattr(hf, f"{name}{'Text' if module == 'gemma3' else ''}Config")(**settings)
    layer, rotary = (
        getattr(hf, f"{name}Attention")(config, layer_idx=0),
        getattr(hf, f"{name}RotaryEmbedding")(config),
    )
    for weight in layer.parameters():
        torch.nn.init.uniform_(weight, -0.5, 0.5)
    x = torch.randn(B, T, C, requires_grad=True)
    places = torch.arange(T)[None]
    windowed = "sliding_attention" in settings["layer_types"] or settings.get("sliding_window")
    mask = (create_sliding_window_causal_mask if windowed else create_causal_mask)(
        config, x, None, None, position_ids=places
    )
    turn = rotary(x, places, *([settings["layer_types"][0]] if module == "gemma3" else []))
    return layer.eval(), x, turn, mask


def ours(key, layer):
    """The preset's layer with the same weights in it."""
    own = Attention(preset(key).config(C, H)).eval()
    copied = {
        f"projection.{mine}.{part}": weight
        for mine, other in (
            ("query", "q_proj"),
            ("key", "k_proj"),
            ("value", "v_proj"),
            ("output", "o_proj"),
        )
        for part, weight in getattr(layer, other).state_dict().items()
    }
    if hasattr(layer, "q_norm"):
        above = 1.0 if key == "gemma3" else 0.0  # Gemma's gains are counted from one
        copied |= {
            "score.query.weight": layer.q_norm.weight + above,
            "score.key.weight": layer.k_norm.weight + above,
        }
    if hasattr(layer, "sinks"):
        copied["normalizer.sink"] = layer.sinks
    own.load_state_dict(copied)
    return own


SLIDING = {"layer_types": ["sliding_attention"], "sliding_window": WINDOW}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 8192,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 150_000.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}
MODELS = {
    "llama": (
        "llama",
        "Llama",
        {"num_key_value_heads": 8, "rope_parameters": PLAIN | {"rope_theta": 1e4}},
    ),
    "llama2": (
        "llama",
        "Llama",
        {"num_key_value_heads": 1, "rope_parameters": PLAIN | {"rope_theta": 1e4}},
    ),
    "llama3": (
        "llama",
        "Llama",
        {"num_key_value_heads": 2, "rope_parameters": LLAMA3, "max_position_embeddings": 131_072},
    ),
    "mistral": (
        "mistral",
        "Mistral",
        {
            "num_key_value_heads": 2,
            "sliding_window": WINDOW,
            "rope_parameters": PLAIN | {"rope_theta": 1e4},
        },
    ),
    "gemma2": (
        "gemma2",
        "Gemma2",
        {
            "num_key_value_heads": 4,
            "query_pre_attn_scalar": D,
            **SLIDING,
            "attn_logit_softcapping": 50.0,
            "rope_parameters": PLAIN | {"rope_theta": 1e4},
        },
    ),
    "gemma3": (
        "gemma3",
        "Gemma3",
        {"num_key_value_heads": 4, "query_pre_attn_scalar": D, **SLIDING},
    ),
    "qwen3": (
        "qwen3",
        "Qwen3",
        {"num_key_value_heads": 2, "rope_parameters": PLAIN | {"rope_theta": 1e6}},
    ),
    "gpt_oss": (
        "gpt_oss",
        "GptOss",
        {
            "num_key_value_heads": 1,
            "rope_parameters": YARN,
            **SLIDING,
            "max_position_embeddings": 131_072,
        },
    ),
}


@each("key", MODELS)
def test_a_preset_is_the_model_it_is_named_for(key):
    module, name, changes = MODELS[key]
    layer, x, turn, mask = theirs(module, name, **changes)
    own = ours(key, layer)
    y = x.detach().clone().requires_grad_()
    out, weights = layer(x, turn, mask)
    steps = own(y)
    torch.testing.assert_close(steps.weights, weights, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(steps.merged, out, rtol=1e-5, atol=1e-5)
    seed = torch.randn_like(out)
    (out * seed).sum().backward()
    (steps.merged * seed).sum().backward()
    torch.testing.assert_close(y.grad, x.grad, rtol=1e-4, atol=5e-5)
    torch.testing.assert_close(
        own.projection.key.weight.grad, layer.k_proj.weight.grad, rtol=1e-4, atol=5e-5
    )
