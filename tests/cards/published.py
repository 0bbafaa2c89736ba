"""Published configs in transformers: a card's key → model type, class, and what differs from the type's defaults."""

from typing import Any

import torch
from torch import nn

GEMMA3 = ["sliding_attention"] * 5 + ["full_attention"]
KIMI = [
    *6 * [*3 * ["linear_attention"], "full_attention"],
    "linear_attention",
    "linear_attention",
    "full_attention",
]
CAUSAL, ENCODER, PAIR = "AutoModelForCausalLM", "AutoModel", "AutoModelForSeq2SeqLM"

PUBLISHED: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("gpt2", CAUSAL, {}),
    "bert": ("bert", ENCODER, {}),
    "t5": ("t5", PAIR, {}),
    "llama2": ("llama", CAUSAL, {}),
    "llama3": (
        "llama",
        CAUSAL,
        {"vocab_size": 128256, "intermediate_size": 14336, "num_key_value_heads": 8},
    ),
    "mistral": ("mistral", CAUSAL, {}),
    "gemma2": ("gemma2", CAUSAL, {}),
    "gemma3": (
        "gemma3_text",
        CAUSAL,
        {
            "vocab_size": 262208,
            "hidden_size": 3840,
            "intermediate_size": 15360,
            "num_hidden_layers": 48,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "sliding_window": 1024,
            "layer_types": 8 * GEMMA3,
        },
    ),
    "qwen3": (
        "qwen3",
        CAUSAL,
        {"intermediate_size": 12288, "num_hidden_layers": 36, "num_key_value_heads": 8},
    ),
    "gpt_oss": ("gpt_oss", CAUSAL, {}),
    "deepseek_v2": (
        "deepseek_v2",
        CAUSAL,
        {
            "hidden_size": 5120,
            "intermediate_size": 12288,
            "moe_intermediate_size": 1536,
            "num_hidden_layers": 60,
            "num_attention_heads": 128,
            "num_key_value_heads": 128,
            "n_routed_experts": 160,
            "n_shared_experts": 2,
            "num_experts_per_tok": 6,
            "first_k_dense_replace": 1,
            "n_group": 8,
            "topk_group": 3,
        },
    ),
    "deepseek_v32": ("deepseek_v32", CAUSAL, {}),
    "llama4": ("llama4_text", CAUSAL, {}),
    "smollm3": ("smollm3", CAUSAL, {}),
    "qwen3_next": ("qwen3_next", CAUSAL, {}),
    "kimi_linear": ("kimi_linear", CAUSAL, {"layer_types": KIMI}),
    "minimax": (
        "minimax",
        CAUSAL,
        {
            "vocab_size": 200064,
            "hidden_size": 6144,
            "intermediate_size": 9216,
            "num_hidden_layers": 80,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "num_local_experts": 32,
            "layer_types": 10 * [*7 * ["linear_attention"], "full_attention"],
        },
    ),
    "modernbert": ("modernbert", ENCODER, {}),
    "mamba2": ("mamba2", CAUSAL, {}),
    "olmo2": ("olmo2", CAUSAL, {"vocab_size": 100352}),
}  # all cards but RetNet, which transformers does not have
BY_TYPE = (
    "gemma2",
    "gemma3",
    "gpt_oss",
    "llama4",
)  # models that take a mask for each type of layer
TYPES = ("full_attention", "sliding_attention", "chunked_attention")


class Unrouted(nn.Module):
    """What stands for experts on the meta device, which cannot tell where a token is sent; attention does not care."""

    def __init__(self, pair: bool) -> None:
        super().__init__()
        self.pair = pair

    def forward(self, x):
        return (x, None) if self.pair else x


def published(key: str) -> nn.Module:
    """The model of a card in transformers, on the meta device."""
    import transformers

    kind, auto, own = PUBLISHED[key]
    config = transformers.AutoConfig.for_model(kind, **own)
    with torch.device("meta"):
        return getattr(transformers, auto).from_config(config, attn_implementation="eager").eval()


def without_experts(model: nn.Module, key: str) -> nn.Module:
    """The model with nothing in place of its feed-forward layers."""
    for module in list(model.modules()):
        for name in {"mlp", "feed_forward", "block_sparse_moe"} & set(
            dict(module.named_children())
        ):
            setattr(module, name, Unrouted(pair=key in ("gpt_oss", "llama4")))
    return model


def read(model: nn.Module, key: str, length: int, **options):
    """What the model computes of that many tokens; given a mask, it asks for no value, which meta tensors lack."""
    with torch.device("meta"), torch.no_grad():
        mask = torch.zeros(1, 1, length, length)
        if PUBLISHED[key][1] == CAUSAL and key != "mamba2":
            options |= {
                "attention_mask": dict.fromkeys(TYPES, mask) if key in BY_TYPE else mask,
                "position_ids": torch.arange(length)[None],
            }
        return model(torch.zeros(1, length, dtype=torch.long), **options)


def cached_numbers(value, seen=None) -> int:
    """How many numbers the tensors of a cache hold, wherever in it they are."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return value.numel() * value.is_floating_point()
    parts = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple)
        else vars(value).values()
        if hasattr(value, "__dict__")
        else ()
    )
    return sum(cached_numbers(part, seen) for part in parts)
