"""Converts models trained here into Hugging Face classes that compute the same, with the same weights."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from safetensors.torch import load_file
from torch import Tensor

from core.attention import AXES, Choice
from core.entries import complete
from core.models import PATTERN_FIELDS, Decoder, ModelConfig, Shape, build_model
from core.pretrained.base import reject_if
from core.pretrained.load import LAB_MODELS, WRITER
from core.seeding import seeded_rng
from core.tasks import BOS, EOS, PAD, Task, Vocabulary, make_task
from core.training.config import RunConfig

Weights = dict[str, Tensor]
IMPOSSIBLE_LOGIT = -1e4  # of a word that the model lacks; finite, so that no sum becomes NaN
ATTENTION = ("projection", "score", "position", "mask", "normalizer")
# what classes have
CARRIED = frozenset({("grouped_query", "kv_heads"), ("learned", "max_len"), ("rope", "base")})
_HEADS = ("multi_head", "grouped_query", "multi_query")
USUAL = {"score": ("scaled_dot",), "normalizer": ("softmax",)}
# The parts of a layer here, and what they are called in a layer of each class; {} is a projection.
MARIAN_ENCODER = """
    attention.projection.{}    self_attn.{}
    around_attention.norm      self_attn_layer_norm
    feed_forward.inner         fc1
    feed_forward.outer         fc2
    around_feed_forward.norm   final_layer_norm
"""
MARIAN_DECODER = f"""
    {MARIAN_ENCODER.replace("attention.", "causal.").strip()}
    cross.projection.{{}}      encoder_attn.{{}}
    around_cross.norm          encoder_attn_layer_norm
"""
LLAMA = """
    causal.projection.{}       self_attn.{}
    feed_forward.inner         mlp.gate_proj
    feed_forward.gate          mlp.up_proj
    feed_forward.outer         mlp.down_proj
    around_causal.norm         input_layernorm
    around_feed_forward.norm   post_attention_layernorm
"""
GPT2 = """
    causal.projection.{}       attn.{}
    feed_forward.inner         mlp.c_fc
    feed_forward.outer         mlp.c_proj
    around_causal.norm         ln_1
    around_feed_forward.norm   ln_2
"""
VIT = """
    attention.projection.{}    attention.{}
    feed_forward.inner         mlp.fc1
    feed_forward.outer         mlp.fc2
    around_attention.norm      layernorm_before
    around_feed_forward.norm   layernorm_after
"""


@dataclass(frozen=True)
class HFConversion:
    """A class of the library, the settings that a model needs to be equal to it, and the converter.

    `carried` are the parameters of choices, (choice, parameter), that the class has at any value. `attention_only` is
    whether its feed-forward networks can have a width of 0, where they add nothing.
    """

    name: str
    kind: str
    input: str
    build: Callable[[Any, Any, Vocabulary], Any]
    needs: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    carried: frozenset[tuple[str, str]] = CARRIED
    attention_only: bool = False

    def lacks(self, config: ModelConfig) -> list[str]:
        """The model's settings that this class lacks, each with those it has."""
        lacks = [
            f"{name} = {' or '.join(map(str, fits))}, not {value}"
            for name, fits in {**USUAL, **self.needs}.items()
            if (value := _setting(config, name, self.carried)) not in fits
        ]
        return lacks if config.d_ff or self.attention_only else [*lacks, "d_ff above 0, not 0"]


def convert_to_hf(model: Any, task: Task, vocabulary: Vocabulary) -> Any:
    """The equivalent Hugging Face model; `vocabulary` numbers its words.

    PretrainedError names the settings that no class has.
    """
    conversion = conversion_of(model.config, task.shape)
    with torch.random.fork_rng(devices=[]):
        return conversion.build(model, task, vocabulary).eval()


def conversion_of(config: ModelConfig, shape: Shape) -> HFConversion:
    """The conversion of a model; PretrainedError names the settings that no class has."""
    candidates = [
        one for one in HF_CONVERSIONS if (one.kind, one.input) == (config.kind, shape.input)
    ]
    reject_if(
        not candidates
        or shape.output == "values"
        or (config.kind == "decoder" and not shape.one_vocabulary),
        f"A {config.kind} that reads {shape.input} has no equivalent in transformers. These "
        "have one: an encoder–decoder, a decoder of one vocabulary, and a classifier of "
        "pictures.",
    )
    nearest = min(candidates, key=lambda one: len(one.lacks(config)))
    reject_if(
        (unlike := [name for name in PATTERN_FIELDS if getattr(config, name)]),
        f"This {config.kind} has layers that are not all alike ({', '.join(unlike)}), which no "
        "class here can take over. Train one with the same attention in every layer.",
    )
    reject_if(
        (lacks := nearest.lacks(config)),
        f"This {config.kind} has no equivalent in transformers. The nearest class, "
        f"{nearest.name}, has {'; '.join(lacks)}. Train one with that.",
    )
    return nearest


def _setting(config: ModelConfig, name: str, carried: frozenset[tuple[str, str]]) -> Any:
    """A setting; for an axis of the attention its key, with changed parameters that no class has."""
    if name not in ATTENTION:
        return getattr(config, name)
    choice: Choice = getattr(config.attention, name)
    usual = dict(complete(Choice(choice.key), AXES[name], name).params) if not choice.parts else {}
    changed = [
        f"{key} = {value}"
        for key, value in choice.params
        if (choice.key, key) not in carried and usual.get(key) != value
    ]
    return choice.key + (f" with {', '.join(changed)}" if changed else "")


def layer_names(
    layers: int, old: str, new: str, parts: str, projections: str = "q_proj k_proj v_proj o_proj"
) -> dict[str, str]:
    """The parts of so many layers, and their names in a class of the library: a line of `parts` has both.

    {} stands in a line for each of the four `projections` of an attention.
    """
    four = dict(zip(("query", "key", "value", "output"), projections.split(), strict=True))
    return {
        f"{old}.{i}.{own.format(a)}": f"{new}.{i}.{their.format(b)}"
        for own, their in map(str.split, parts.strip().splitlines())
        for a, b in (four.items() if "{}" in own else [("", "")])
        for i in range(layers)
    }


def rename_weights(state: Weights, names: Mapping[str, str]) -> Weights:
    return {
        f"{new}.{part}": state[f"{old}.{part}"]
        for old, new in names.items()
        for part in ("weight", "bias")
        if f"{old}.{part}" in state
    }


def vocabulary_rows(
    table: Float[Tensor, "V ..."], own: Vocabulary, vocabulary: Vocabulary, other: float = 0.0
) -> Float[Tensor, "W ..."]:
    """A row for each word of `vocabulary`; `other` where the model's own vocabulary lacks the word."""
    table_rows = table.new_full((len(vocabulary), *table.shape[1:]), other)
    table_rows[vocabulary.encode(own.tokens)] = table
    return table_rows


def max_tokens(shape: Shape, task: Task) -> int:
    """The longest line of tokens, of source and target together where they share one."""
    return shape.longest * (2 if task.form == "pairs" and shape.one_vocabulary else 1)


def to_marian(model: Any, task: Task, vocabulary: Vocabulary) -> Any:
    """An encoder–decoder as published (Vaswani 2017), with one common vocabulary.

    Marian has all sines before all cosines, so the dimensions of every state are reordered.
    """
    from transformers import MarianConfig, MarianMTModel

    config, shape, source, target = model.config, task.shape, task.source_vocab, task.target_vocab
    order = torch.cat((torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)))
    state = {name: _reordered(name, weight, order) for name, weight in model.state_dict().items()}
    four = "q_proj k_proj v_proj out_proj"
    parts = ("encoder.layers", MARIAN_ENCODER), ("layers", MARIAN_DECODER)
    encoder, decoder = (
        layer_names(config.layers, own, f"model.{side}.layers", lines, four)
        for side, (own, lines) in zip(("encoder", "decoder"), parts, strict=True)
    )
    weights = rename_weights(state, encoder | decoder) | {
        "model.encoder.embed_tokens.weight": vocabulary_rows(
            state["source.token.weight"], source, vocabulary
        ),
        "model.decoder.embed_tokens.weight": vocabulary_rows(
            state["target.token.weight"], target, vocabulary
        ),
        "lm_head.weight": vocabulary_rows(state["output.weight"], target, vocabulary),
        "final_logits_bias": vocabulary_rows(
            state.get("output.bias", torch.zeros(shape.target)),
            target,
            vocabulary,
            IMPOSSIBLE_LOGIT,
        )[None],
    }
    hf_config = MarianConfig(
        vocab_size=len(vocabulary),
        decoder_vocab_size=len(vocabulary),
        share_encoder_decoder_embeddings=False,
        tie_word_embeddings=False,
        d_model=config.d_model,
        activation_function=config.activation,
        dropout=0.0,
        scale_embedding=config.scaled_embedding,
        max_position_embeddings=max_tokens(shape, task),
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        **{
            f"{side}_{name}": value
            for side in ("encoder", "decoder")
            for name, value in (
                ("layers", config.layers),
                ("attention_heads", config.num_heads),
                ("ffn_dim", config.d_ff),
            )
        },
    )
    return _load_weights(MarianMTModel(hf_config), weights, own=("embed_positions",))


def _reordered(name: str, weight: Tensor, order: Tensor) -> Tensor:
    """A weight with the dimensions of a state reordered, on the side that meets a state."""
    reads = name.split(".")[-2] in ("query", "key", "value", "inner", "token")
    if reads or name.startswith("output."):
        return weight[:, order] if weight.dim() == 2 else weight
    return weight[order]  # a norm, or a map whose output is added to the state


def llama_names(layers: int) -> dict[str, str]:
    """The parts of a decoder with so many layers, and their names in a Llama."""
    return {"norm": "model.norm"} | layer_names(layers, "layers", "model.layers", LLAMA)


def to_llama(model: Any, task: Task, vocabulary: Vocabulary) -> Any:
    """A decoder as language models are built today: RMSNorm, RoPE, SwiGLU, and heads that may share keys and values."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config, state = model.config, model.state_dict()
    weights = rename_weights(state, llama_names(config.layers)) | {
        "model.embed_tokens.weight": model.target.scale * state["target.token.weight"],
        "lm_head.weight": state["output.weight"],
    }
    if not config.d_ff:
        # A Llama's feed-forward networks of width 0, which add nothing, and the norms
        # before them.
        shapes = {
            "mlp.gate_proj": (0, config.d_model),
            "mlp.up_proj": (0, config.d_model),
            "mlp.down_proj": (config.d_model, 0),
            "post_attention_layernorm": (config.d_model,),
        }
        weights |= {
            f"model.layers.{i}.{name}.weight": torch.ones(shape)
            for i in range(config.layers)
            for name, shape in shapes.items()
        }
    hf_config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=config.d_model,
        intermediate_size=config.d_ff,
        num_hidden_layers=config.layers,
        num_attention_heads=config.num_heads,
        num_key_value_heads=config.attention.kv_heads,
        head_dim=config.attention.head_dim,
        rms_norm_eps=1e-6,
        max_position_embeddings=max_tokens(task.shape, task),
        rope_parameters={"rope_type": "default", "rope_theta": config.attention.position["base"]},
        attention_bias=True,
        mlp_bias=config.d_ff > 0,
        tie_word_embeddings=False,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    return _load_weights(LlamaForCausalLM(hf_config), weights)


def to_gpt2(model: Any, task: Task, vocabulary: Vocabulary) -> Any:
    """A decoder with pre-LayerNorm and learned positions (Radford 2019)."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config, state, size = model.config, model.state_dict(), max_tokens(task.shape, task)
    names = layer_names(config.layers, "layers", "transformer.h", GPT2, "q k v c_proj")
    weights = {
        name: weight.T if weight.ndim == 2 else weight  # its matrices are (in, out)
        for name, weight in rename_weights(state, {"norm": "transformer.ln_f"} | names).items()
    }
    for i, part in product(range(config.layers), ("weight", "bias")):
        home = f"transformer.h.{i}.attn"
        weights[f"{home}.c_attn.{part}"] = torch.cat(
            [weights.pop(f"{home}.{name}.{part}") for name in "qkv"], -1
        )
    weights |= {
        "transformer.wte.weight": model.target.scale * state["target.token.weight"],
        "lm_head.weight": state["output.weight"],
        "transformer.wpe.weight": state["places.position.table.weight"][:size],
    }
    hf_config = GPT2Config(
        vocab_size=len(vocabulary),
        n_positions=size,
        n_embd=config.d_model,
        n_layer=config.layers,
        n_head=config.num_heads,
        n_inner=config.d_ff,
        activation_function=config.activation,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        resid_pdrop=0.0,
        tie_word_embeddings=False,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
    )
    return _load_weights(GPT2LMHeadModel(hf_config), weights)


def to_vit(model: Any, task: Any, vocabulary: Vocabulary) -> Any:
    """A Vision Transformer (Dosovitskiy 2021); a convolution with the stride of a patch embeds the patches."""
    from transformers import ViTConfig, ViTForImageClassification

    config, state = model.config, model.state_dict()
    names = {"encoder.norm": "vit.layernorm", "output": "classifier"}
    names |= layer_names(config.layers, "encoder.layers", "vit.layers", VIT)
    patch, (high, wide) = task.patch, task.grid
    weights = rename_weights(state, names) | {
        "vit.embeddings.cls_token": state["first"][None, None],
        "vit.embeddings.position_embeddings": state["places.position.table.weight"][
            None, : high * wide + 1
        ],
        "vit.embeddings.patch_embeddings.projection.weight": state["source.weight"].unflatten(
            1, (1, patch, patch)
        ),
        "vit.embeddings.patch_embeddings.projection.bias": state["source.bias"],
    }
    hf_config = ViTConfig(
        hidden_size=config.d_model,
        num_hidden_layers=config.layers,
        num_attention_heads=config.num_heads,
        intermediate_size=config.d_ff,
        hidden_act=config.activation,
        layer_norm_eps=1e-5,
        image_size=(high * patch, wide * patch),
        patch_size=patch,
        num_channels=1,
        id2label=dict(enumerate(task.classes)),
        label2id={name: i for i, name in enumerate(task.classes)},
    )
    return _load_weights(ViTForImageClassification(hf_config), weights)


def _load_weights(model: Any, weights: Weights, own: tuple[str, ...] = ()) -> Any:
    """The model with those weights; only weights named in `own` may be missing."""
    missing, unknown = model.load_state_dict(weights, strict=False)
    missing = [name for name in missing if not any(word in name for word in own)]
    assert not missing and not unknown, f"missing: {missing}; unknown: {unknown}"
    return model


HF_CONVERSIONS = (
    HFConversion(
        "MarianMTModel",
        "transformer",
        "tokens",
        to_marian,
        {
            "norm": ("post",),
            "normalization": ("layer",),
            "activation": ("relu", "gelu"),
            "residual": ("plain",),
            "projection": ("multi_head",),
            "position": ("sinusoidal",),
            "mask": ("none", "padding"),
        },
    ),
    HFConversion(
        "LlamaForCausalLM",
        "decoder",
        "tokens",
        to_llama,
        {
            "norm": ("pre",),
            "normalization": ("rms",),
            "activation": ("swiglu",),
            "output_bias": (False,),
            "residual": ("plain",),
            "projection": _HEADS,
            "position": ("rope",),
            "mask": ("none", "causal", "padding"),
        },
        CARRIED | {(key, "head_dim") for key in _HEADS},
        attention_only=True,
    ),
    HFConversion(
        "GPT2LMHeadModel",
        "decoder",
        "tokens",
        to_gpt2,
        {
            "norm": ("pre",),
            "normalization": ("layer",),
            "activation": ("relu", "gelu"),
            "output_bias": (False,),
            "residual": ("plain",),
            "projection": ("multi_head",),
            "position": ("learned",),
            "mask": ("none", "causal", "padding"),
        },
    ),
    HFConversion(
        "ViTForImageClassification",
        "classifier",
        "patches",
        to_vit,
        {
            "norm": ("pre",),
            "normalization": ("layer",),
            "activation": ("relu", "gelu"),
            "pool": ("first",),
            "residual": ("plain",),
            "projection": ("multi_head",),
            "position": ("learned",),
            "mask": ("none", "padding"),
        },
    ),
)


# The lab's trained decoders with their steps and their cache, and a larger decoder with seeded weights.


TRAINED, SEEDED = "trained", "seeded"
SEED = 126
LARGER = ModelConfig.transformer(512, 8, 4, 1024, kind="decoder", norm="pre", position="rope")


def load_lab_decoder(name: str) -> tuple[Decoder, Task]:
    """The decoder of that name (TRAINED, SEEDED, WRITER) in evaluation mode, and the task whose tokens it reads."""
    folder = LAB_MODELS / (WRITER if name == WRITER else "induction")
    config = RunConfig.from_json(json.loads((folder / "run.json").read_text("utf-8"))["config"])
    task = make_task(config.task)
    with seeded_rng(SEED):
        model = build_model(LARGER if name == SEEDED else config.model, task.shape)
    assert isinstance(model, Decoder)
    if name != SEEDED:  # back from what `to_llama` made of it
        weights = load_file(folder / "model.safetensors")
        names = {theirs: own for own, theirs in llama_names(config.model.layers).items()}
        table = weights["model.embed_tokens.weight"]
        tables = dict.fromkeys(
            ("source.token.weight", "target.token.weight"), table / table.shape[1] ** 0.5
        )
        tables["output.weight"] = weights["lm_head.weight"]
        model.load_state_dict(rename_weights(weights, names) | tables)
    return model.eval().requires_grad_(False), task


def encode(task: Task, text: str, max_length: int) -> tuple[list[str], Tensor, tuple[str, ...]]:
    """The tokens of a text and their ids (1, T), at max_length so many, and the words that the model does not know."""
    tokens = task.tokens(text)[:max_length]
    known = set(task.source_vocab.tokens)
    unknown = tuple(dict.fromkeys(token for token in tokens[1:] if token not in known))
    return tokens, torch.tensor([task.source_vocab.encode(tokens)]), unknown
