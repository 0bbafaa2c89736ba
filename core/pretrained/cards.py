"""A model card of any language model, from its config.json alone.

The library builds the model on torch's meta device, where a weight has a shape and no numbers, and each layer is read
from its modules. What our choices lack or have too much of is the difference of the two numbers of parameters, so that
their sum is that of the model to the last one.

    card_from_config({"model_type": "llama", "num_key_value_heads": 8}, "mine").cache_bytes(8192)

`python -m core.pretrained.cards` reads the configs of core/models/cards/published.json again, and writes their cards there.
"""

import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import chain
from typing import Any

import torch
from torch import nn

from core.attention import AttentionConfig, Choice, ConfigError
from core.entries import quote_name
from core.models.cards import (
    TABLE,
    AttentionLayer,
    Block,
    Extra,
    FeedForward,
    ModelCard,
    count_parameters,
    repeat_of,
)
from core.pretrained.base import PretrainedError, format_count, reject_if, wrap_errors
from core.pretrained.load import COUNT, MAX_CONFIG, MAX_PARTS, avoid_kernels, counts, refuse_values

# By the names of classes.
MIXER = re.compile(
    r"\w*(Attention|Attn|MLA|Mixer|DeltaNet|ShortConv|RecurrentBlock)|(?>\w*?Mamba)\w*"
)
ADDED = re.compile(r"embed_positions?$|(^|[._])pos(ition|itions)?_embed(ding)?s?$|(^|\.)wpe$")
# The modules of attention that our choices have.
PROJECTIONS = {
    *("q_proj", "k_proj", "v_proj", "o_proj", "out_proj", "dense", "qkv_proj", "query_key_value", "gate_proj"),
    *("g_proj", "q_norm", "k_norm", "q_layernorm", "k_layernorm", "query_layernorm", "key_layernorm", "sinks"),
    *("q_a_proj", "q_a_layernorm", "q_b_proj", "kv_a_proj_with_mqa", "kv_a_layernorm", "kv_b_proj", "indexer"),
    *("in_proj", "in_proj_qkvz", "in_proj_ba", "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b"),
}  # fmt: skip
# Fields of which each one more builds layers, or runs through them once more.
PARTS = re.compile(rf"{COUNT.pattern}|n(um)?_\w*(layer|loop)\w*|\w+_num_passes")
LARGEST_BASE = 1e7  # of our rotations
EXPERTS_USED = (
    "num_experts_per_tok",
    "top_k_experts",
    "num_experts_per_token",
    "moe_topk",
    "moe_k",
)
code_of = cache(inspect.getsource)  # every layer of a model asks for the same
SHOWN = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads")


def parse_card(text: str, name: str) -> ModelCard:
    """The card of a pasted config.json; PretrainedError where it is none, or none that can be read."""
    reject_if(
        len(text) > MAX_CONFIG,
        f"{name} has a config.json of {len(text):,} letters; at most {MAX_CONFIG:,} are read.",
    )
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PretrainedError(
            f"{name} is not JSON. Paste the whole config.json of a model."
        ) from error
    reject_if(not isinstance(config, dict), f"{name} is JSON, but not an object in braces.")
    return card_from_config(config, name)


def card_from_config(config: Mapping[str, Any], name: str, **about: Any) -> ModelCard:
    """The card of the model that a config describes; PretrainedError says what was read of it and what was not.

    `about` are fields of the card that no config has: its year, its paper, what sets it apart.
    """
    with wrap_errors(f"{name} cannot be read from its config.json"):
        return card_of_model(*empty_model(config, name), name, **about)


def card_of_model(text: Any, model: Any, name: str, **about: Any) -> ModelCard:
    """The card of a model that `empty_model` has built, with its config."""
    stack, layers = decoder_layers(text, model, name)
    added = _added_position(model)
    blocks = _looped(text, tuple(_block(text, at, one, added) for at, one in enumerate(layers)))
    try:
        words, head = model.get_input_embeddings(), model.get_output_embeddings()
    except NotImplementedError:
        words = head = None
    if not isinstance(words, nn.Embedding):
        raise PretrainedError(
            f"{name} has no word embeddings: only models that read a text get a card."
        )
    known = {id(one) for layer in layers for one in layer.parameters()}
    known |= {id(one.weight) for one in (words, head) if one is not None}
    card = ModelCard(
        **{
            "key": "read",
            "name": name,
            "year": 0,
            "url": "",
            "checkpoint": name,
            "different": "",
            "source": "its config.json",
            **about,
        },
        d_model=int(words.weight.shape[1]),
        vocabulary=int(words.weight.shape[0]),
        blocks=blocks,
        pattern=repeat_of([block.attentions for block in blocks]),
        tied=head is not None and head.weight is words.weight,
        head=head is not None,
        extras=_beside(model, stack, known),
    )
    if twice := card.parameters - sum(one.numel() for one in model.parameters()):
        shared = Extra(
            "Used again",
            -twice,
            "weights that several layers use are counted once",
            multiplied=False,
        )
        card = replace(card, extras=(*card.extras, shared))
    return replace(card, remark=_remark(text, card))


def _remark(text: Any, card: ModelCard) -> str:
    """What the card leaves out, or has other than the model, in sentences."""
    remark = card.remark
    if not card.head:
        remark += (
            " Without the output map, which the library's model of its text part does not have."
        )
    if unread := dict.fromkeys(one.name for one in card.layers if one.unknown):
        remark += f" Attention not recognised: {', '.join(unread)}. Its parameters are counted, its cache is not."
    rope = getattr(text, "rope_parameters", None) or {}
    # One for each type of layer, or one in all
    ropes = [one for one in rope.values() if isinstance(one, dict)] or [rope]
    if (larger := max(float(one.get("rope_theta") or 0) for one in ropes)) > LARGEST_BASE:
        remark += (
            f" Its rotations have the base {larger:,.0f}; the largest here is {LARGEST_BASE:,.0f}."
        )
    if any(one.get("attention_factor") == 1.0 for one in ropes):
        remark += " Its YaRN leaves the scores as they are; that of the lab makes them larger."
    return remark.strip()


def empty_model(config: Mapping[str, Any], name: str) -> tuple[Any, Any]:
    """The config of the model's text part, and that model on the meta device; PretrainedError where there is none."""
    import transformers
    from transformers.initialization import no_init_weights
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    family = config.get("model_type")
    if not isinstance(family, str) or not family:
        raise PretrainedError(
            f"{name} names no model_type. Paste the whole config.json of a model."
        )
    if family not in CONFIG_MAPPING_NAMES:
        read = ", ".join(
            f"{one} = {config[one]}" for one in SHOWN if isinstance(config.get(one), int)
        )
        raise PretrainedError(
            f"{name} is a {quote_name(family)}, which the installed transformers {transformers.__version__} has no "
            f"code for. Read: {read or 'nothing'}. Not read: how its layers are built, so it gets no card. A newer "
            "transformers may know it; code of a model's own is never run here."
        )
    refuse_values(config, name)
    fields = {key: value for key, value in config.items() if key not in ("model_type", "auto_map")}
    with wrap_errors(f"{name} has a config.json that is no {quote_name(family)}"):
        whole = transformers.AutoConfig.for_model(family, **fields)
        reject_if(
            getattr(whole, "is_encoder_decoder", False),
            f"{name} is a {quote_name(family)}, with an encoder. Only models with one stack of layers are read.",
        )
        text = whole.get_text_config()
        usual = {field: number for field, number, _ in counts(type(text)(), named=PARTS.fullmatch)}
    for field, count, _ in counts(text, named=PARTS.fullmatch):
        reject_if(
            count > max(2 * MAX_PARTS, usual.get(field, 0)),
            f"{name} has a config.json with {quote_name(field)} = {format_count(count)}, more than any model has.",
        )
    cannot = wrap_errors(f"{name} cannot be built from its config.json")
    with cannot, torch.device("meta"), no_init_weights():
        for auto in (transformers.AutoModelForCausalLM, transformers.AutoModel):
            if type(text) in auto._model_mapping:
                # else a config names what computes it, also code of the hub
                model = auto.from_config(text, attn_implementation="eager")
                model.tie_weights()
                avoid_kernels(model)
                return text, model
    raise PretrainedError(
        f"{name} is a {quote_name(family)}, which has no model that reads a text."
    )


def decoder_layers(text: Any, model: nn.Module, name: str) -> tuple[str, list[nn.Module]]:
    """The name of the list of layers, and the layers."""
    lists = [
        (where, list(module))
        for where, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module)
        if where.split(".")[-1] in ("layers", "h", "blocks")
    ]
    number = getattr(text, "num_hidden_layers", 0)
    fitting = [one for one in lists if len(one[1]) == number]
    # LongCat's layers have two attentions, and HRM's stacks are run again: their configs count what a token passes
    fitting = fitting or [one for one in lists if number and number % len(one[1]) == 0]
    reject_if(not fitting, f"{name} has no list of layers in which attention could be looked for.")
    if hasattr(text, "L_cycles"):  # HRM has two stacks
        return fitting[0][0], [layer for _, layers in fitting for layer in layers]
    # A tower for images may have as many layers as the text
    return max(fitting, key=lambda one: sum(weight.numel() for weight in one[1][0].parameters()))


def _is_matrix(name: str, weight: torch.Tensor) -> bool:
    """Whether each token is multiplied with a weight: no depthwise convolution, bias, norm, or table of embeddings."""
    if "conv" in name:
        return name.endswith("_proj.weight") or (weight.dim() == 3 and weight.shape[1] > 1)
    if re.search(r"norm\.|embed|bias$|rel_logits_proj|relative_position_bias\.proj", name):
        return False
    return (
        weight.dim() == 3
        or (weight.dim() == 2 and min(weight.shape) > 1)
        or name.endswith("gate.weight")
    )


def numbers(module: nn.Module) -> tuple[int, int]:
    """A module's parameters, and those of them in matrices that each token is multiplied with."""
    every = tuple(module.named_parameters())
    inside = (one.numel() for name, one in every if _is_matrix(name, one))
    return sum(one.numel() for _, one in every), sum(inside)


def _added_position(model: nn.Module) -> Choice:
    """What is added to the word embeddings, by the module of that name: learned vectors, waves, or nothing."""
    for name, module in model.named_modules():
        if re.search(r"vision|image", name) or not ADDED.search(name):
            continue
        if "Sinusoidal" in type(module).__name__:
            return Choice.of("sinusoidal")
        if isinstance(module, nn.Embedding):
            # OPT's table and its like begin with rows that no token has
            start = 0 if module.padding_idx is None else module.padding_idx + 1
            rows = module.num_embeddings - int(getattr(module, "offset", start))
            return Choice.of("learned", max_len=rows)
    return Choice.of("none")


def _block(text: Any, at: int, layer: nn.Module, added: Choice) -> Block:
    """A layer of the model as attention, feed-forward layer (all else that has matrices) and norms."""
    mixers: list[AttentionLayer] = []
    feeds: list[nn.Module] = []
    norms = sum(one.numel() for one in layer.parameters(recurse=False))
    lists = (one if isinstance(one, nn.ModuleList) else (one,) for one in layer.children())
    for child in chain.from_iterable(lists):
        kind = type(child).__name__
        if "Norm" not in kind and MIXER.fullmatch(kind):
            mixers.append(Mixer(text, at, child, added).layer())
        elif "Norm" not in kind and any(one.dim() > 1 for one in child.parameters()):
            feeds.append(child)
        else:
            norms += numbers(child)[0]
    first, *others = mixers or [AttentionLayer("no attention", None)]
    return Block(first, _feed_forward(text, feeds), norms, others[0] if others else None)


def _looped(text: Any, blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The blocks in the order in which a token passes them: those of a loop as often as it runs."""
    every, loops, start, end = [*range(len(blocks))], 1, 0, 0
    if hasattr(text, "loop_num_passes"):
        loops, start, end = (
            text.loop_num_passes,
            text.loop_layer_index_start,
            text.loop_layer_index_end,
        )
    elif hasattr(text, "n_recurrent_loops"):
        loops, start = text.n_recurrent_loops, text.n_input_layers
        end = len(blocks) - text.n_output_layers
    order = [*every[:start], *loops * every[start:end], *every[end:]]
    if hasattr(text, "L_cycles"):  # HRM: its low stack so often, then its high one
        half = len(blocks) // 2
        order = text.H_cycles * [*text.L_cycles * every[:half], *every[half:]]
    return tuple(replace(blocks[at], again=at in order[:n]) for n, at in enumerate(order))


def _feed_forward(text: Any, modules: Iterable[nn.Module]) -> FeedForward:
    """The parameters of a layer's feed-forward modules; of experts also those that a token uses."""
    named = (getattr(text, name, None) for name in EXPERTS_USED)
    used = next((one for one in named if isinstance(one, int)), 1)
    totals = [0, 0, 0, 0]
    for module in modules:
        for name, weight in module.named_parameters():
            size = share = weight.numel()
            # JetMoe's experts have no module of that name
            stacked = weight.dim() == 3 and len(weight) == getattr(text, "num_local_experts", 0)
            if stacked or (re.search(r"(^|\.)experts(\.(?!router)|$)", name) and weight.dim() > 1):
                share = size // weight.shape[0] * min(weight.shape[0], used)
            matrix = _is_matrix(name, weight)
            for place, number in enumerate((size, size * matrix, share, share * matrix)):
                totals[place] += number
    return FeedForward(*totals)


def _beside(model: nn.Module, stack: str, known: set[int]) -> tuple[Extra, ...]:
    """What stands outside the layers, the word embeddings and the output map, by the name of its module."""
    totals: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}
    for name, weight in model.named_parameters():
        if id(weight) not in known:
            place = re.sub(r"\.\d+\..*|\.(weight|bias)$", "", name)
            place = place.removeprefix(stack.rpartition(".")[0] + ".")
            totals[_is_matrix(name, weight)][place] += weight.numel()
    return tuple(
        Extra("Final norm", count, "before the output map", multiplied=False)
        if re.fullmatch(r"(final_?)?(layer_?)?norm(_f)?|ln_f", place)
        else Extra(place, count, "a module beside the layers", multiplied=matrix)
        for matrix, ones in totals.items()
        for place, count in ones.items()
    )


# One layer: what passes between tokens, as an attention of ours where there is one.


def _size(*values: Any) -> int:
    """The first of these that is a number above 0; KeyError where none is."""
    for value in values:
        if isinstance(value, int) and value:
            return int(value)
    raise KeyError("size")


def _maps(module: nn.Module) -> set[str]:
    """The names of a module's own parts that are, or have, more than vectors."""
    return {
        name
        for name, child in module.named_children()
        if any(one.dim() > 1 for one in child.parameters())
    } | {name for name, one in module.named_parameters(recurse=False) if one.dim() > 1}


@dataclass(frozen=True)
class Mixer:
    """What passes between tokens in layer `at`: a module of the model on the meta device."""

    text: Any
    at: int
    module: Any
    added: Choice  # to the word embeddings

    @cached_property
    def parts(self) -> dict[str, Any]:
        return dict(self.module.named_modules())

    @cached_property
    def type(self) -> str:
        """What the config calls the layer; empty where it calls all alike."""
        types = getattr(self.text, "layer_types", None) or ()
        return str(types[self.at]) if self.at < len(types) else ""

    def of(self, *names: str) -> Any:
        """The first of the module's attributes of these names."""
        return next(
            (own for one in names if (own := getattr(self.module, one, None)) is not None), None
        )

    def width(self, heads: int) -> int:
        """The model's width, or the next that its heads divide, as our layers ask for."""
        return -(-int(self.text.hidden_size) // heads) * heads

    def layer(self) -> AttentionLayer:
        """The first reading that fits, with what it lacks; else a layer that is not known."""
        readings = (self._latent, self._blocks, self._relative, self._mixed)
        for reading in (*readings, self._state, self._softmax):
            try:
                layer = reading()
            except (AttributeError, ConfigError, KeyError, TypeError, ZeroDivisionError):
                continue
            if layer is not None:
                return self._completed(layer)
        layer = AttentionLayer(type(self.module).__name__, None, unknown=True)
        return self._completed(layer)

    def _completed(self, layer: AttentionLayer) -> AttentionLayer:
        """The layer with what its config lacks or has too much of, in matrices and beside them, named by the modules."""
        every, matrices = numbers(self.module)
        reason = "what its modules have"
        if layer.config is not None:
            inside, beside = count_parameters(layer.config)
            every, matrices = every - inside - beside, matrices - inside
            reason = "the difference between its modules and those of the choices here"
            if layer.config.d_model != self.text.hidden_size:
                reason += f", which are {layer.config.d_model:,} wide so that the heads divide them"
        own = (*self.module.named_children(), *self.module.named_parameters(recurse=False))
        names = [name for name, _ in own if name not in PROJECTIONS][:6]
        what = ", ".join(names) or "The same maps"
        extras = (
            Extra(f"{what}: matrices", matrices, reason),
            Extra(f"{what}: vectors", every - matrices, reason, multiplied=False),
        )
        experts = _feed_forward(self.text, [self.module])
        return replace(
            layer,
            extras=tuple(extra for extra in extras if extra.parameters),
            unused=experts.parameters - experts.used,
        )

    # Which keys, and which order.

    def _mask(self) -> tuple[str, Choice, int | None]:
        """The name of the layer's mask, the mask, and the number of keys that a window shows."""
        if "chunk" in self.type:
            keys = int(self.text.attention_chunk_size)
            return f"chunks of {keys:,}", Choice.of("chunked", size=keys), keys
        names = ("sliding_window", "sliding_window_size", "window_size")
        keys = next(
            (own for one in names if isinstance(own := getattr(self.text, one, None), int)), 0
        )
        if keys > 0 and (not self.type or "sliding" in self.type):
            return f"window of {keys:,}", Choice.of("causal_local", lookback=keys - 1), keys
        return "full", Choice.of("causal"), None

    def _turns(self, window: int | None) -> bool:
        """Whether the layer rotates queries and keys, by its own flag or by the code of its class."""
        if (use := getattr(self.module, "use_rope", None)) is not None:
            return bool(use)
        listed = getattr(self.text, "no_rope_layers", None)
        if isinstance(listed, list) and self.at < len(listed):
            return bool(listed[self.at])
        source = code_of(type(self.module).forward)
        never = str(getattr(self.text, "position_embedding_type", "rope")) in ("nope", "none")
        if never or not re.search(r"\b(?>\w*?apply_)\w*rot|rotary_emb\(|apply_rope", source):
            return False
        return window is not None or not re.search(
            r"^(?>[^\n]*?if )(?>[^\n]*?(sliding|local))[^\n]*:\n(?:[^\n]*\n){0,2}[^\n]*apply_rotary",
            source,
            re.MULTILINE,
        )

    def _position(self, window: int | None) -> Choice:
        """How the layer knows the order: which rotation, or none."""
        text, module = self.text, self.module
        if "alibi" in code_of(type(module).forward) and getattr(text, "alibi", True):
            return Choice.of("alibi")
        if not self._turns(window):
            if getattr(module, "attn_temperature_tuning", None):
                growth, step = float(text.attn_scale), int(text.floor_scale)
                return Choice.of("position_temperature", growth=growth, step=step)
            return self.added
        rope = getattr(text, "rope_parameters", None) or {}
        label = getattr(module, "rope_layer_type", self.type)
        if isinstance(rope.get(label), dict):
            rope = rope[label]
        share = float(rope.get("partial_rotary_factor") or 1.0)
        if isinstance(turned := getattr(text, "rotary_dim", None), int) and share == 1:
            share = min(1.0, turned / _size(getattr(module, "head_dim", None)))
        base = float(rope.get("rope_theta") or getattr(text, "rope_theta", None) or 10_000.0)
        common: dict[str, Any] = {"base": min(base, LARGEST_BASE), "layout": self._layout()}
        if share < 1:
            common["share"] = max(0.05, share)
        factor, kind = float(rope.get("factor") or 1.0), rope.get("rope_type", "default")
        if kind in ("yarn", "llama3"):
            original = rope.get("original_max_position_embeddings") or text.max_position_embeddings
            common |= {"factor": factor, "original": int(original)}
            betas = {"fast": rope.get("beta_fast"), "slow": rope.get("beta_slow")}
            common |= {key: float(beta) for key, beta in betas.items() if beta and kind == "yarn"}
        if kind == "linear":
            common["factor"] = factor
        names = {
            "linear": "linear_rope",
            "yarn": "yarn",
            "llama3": "llama3_rope",
            "proportional": "p_rope",
        }
        return Choice.of(names.get(kind, "rope"), **common)

    def _layout(self) -> str:
        """Whether neighbours or halves of a head turn together, by the code of the model."""
        home = sys.modules[type(self.module).__module__]
        turn = getattr(home, "rotate_half", None) or getattr(home, "apply_rotary_emb", None)
        while isinstance(turn, partial):  # recorded, since a model of the family was opened
            turn = turn.args[0]
        source = code_of(turn) if turn else ""
        return "interleaved" if "::2" in source or "view_as_complex" in source else "halves"

    # The readings; None or an error of those above where one does not fit.

    def _latent(self) -> AttentionLayer | None:
        """Latent attention (MLA), with or without an indexer that picks the keys, which layers may share."""
        if "kv_b_proj" not in self.parts or not hasattr(self.module, "kv_lora_rank"):
            return None
        text, module = self.text, self.module
        heads, latent = _size(module.num_heads), int(module.kv_lora_rank)
        value = int(module.v_head_dim)
        projection = Choice.of(
            "latent",
            latent=latent,
            rope=int(module.qk_rope_head_dim),
            query_latent=int(getattr(module, "q_lora_rank", 0) or 0),
            head_dim=value,
            layout="interleaved" if self._turns(None) else "none",
        )
        name, mask, beside = f"latent of {latent}", Choice.of("causal"), 0
        kinds = getattr(text, "indexer_types", None) or ()
        lends = self.at < len(kinds) and kinds[self.at] == "shared"
        indexer = self.parts.get("indexer")
        block = int(getattr(text, "index_kpool", 0))  # of 1 key, too
        maps = {"wq_b", "wk", "weights_proj"}
        if block:
            maps |= {"index_kpool_compress_ape", "index_kpool_compress_gate"}
        if indexer is not None and _maps(indexer) - maps:
            return None
        if indexer is not None or lends:
            keys, size, index = (
                int(text.index_topk),
                int(text.index_head_dim),
                int(text.index_n_heads),
            )
            name = f"latent, {keys:,} keys picked" + " by an earlier layer" * lends
            mask, own = Choice.of("lightning", keys=keys, heads=index, size=size, share=0.5), size
            if block:
                blocks = keys // block
                mask = Choice.of("block_gated", size=block, blocks=blocks, heads=index, dim=size)
                own = 2 * size + 1  # a key, its gates, and whether it is real
            beside = 0 if lends else own
        config = AttentionConfig(self.width(heads), heads, projection, mask=mask)
        per_key = heads * (int(module.qk_nope_head_dim) + int(module.qk_rope_head_dim) + value)
        usual = config.score_heads * config.scored_dim + config.num_heads * config.v_dim
        return AttentionLayer(
            name, config, beside=beside, per_key=None if per_key == usual else per_key
        )

    def _blocks(self) -> AttentionLayer:
        """Keys that are their own values, in a window, and beside it those of blocks. DeepSeek-V4."""
        module, window = self.module, int(self.text.sliding_window)
        heads, compressor, name = int(module.num_heads), module.compressor, f"window of {window:,}"
        axes: dict[str, Any] = {"mask": Choice.of("causal_local", lookback=window - 1)}
        if compressor is not None:
            size, key = int(compressor.compress_rate), "hca"
            how = {"size": size, "window": window}
            name = f"blocks of {size}, {name}"
            if (indexer := getattr(compressor, "indexer", None)) is not None:
                key, blocks = "csa", int(indexer.index_topk)
                how |= {
                    "blocks": blocks,
                    "heads": int(indexer.num_heads),
                    "dim": int(indexer.head_dim),
                }
                name = f"{blocks} {name}"
            axes = {"mask": "causal", "kernel": Choice.of(key, **how)}
        projection = Choice.of(
            "keys_as_values", kv_heads=1, bias=False, head_dim=int(module.head_dim)
        )
        axes |= {"position": self._position(window), "score": "qk_norm", "normalizer": "sink"}
        return AttentionLayer(name, AttentionConfig(self.width(heads), heads, projection, **axes))

    def _relative(self) -> AttentionLayer:
        """A bias by distance that each token computes, and convolutions of keys and values. Inkling 1 and 2."""
        module, text, parts = self.module, self.text, self.parts
        heads, kv, size = (
            int(module.num_heads),
            int(module.num_key_value_heads),
            int(module.head_dim),
        )
        width, second = int(text.conv_kernel_size), "sink_proj" in parts
        name, mask, _ = self._mask()
        bias = {"size": int(text.d_rel), "distance": int(module.rel_extent)}
        axes: dict[str, Any] = {"mask": mask, "score": "qk_norm"}
        if second:
            bias["clip"] = round(text.rel_l2_clip_threshold * text.d_rel**-0.5, 4)
            largest = round(text.qk_l2_clip_threshold * size**-0.5, 4)
            axes |= {"score": Choice.of("clipped", largest=largest), "normalizer": "query_sink"}
        projection = Choice.of(
            "dynamic_conv",
            kv_heads=kv,
            head_dim=size,
            width=width,
            taps="dynamic" if "k_proj.sconv.weight_proj" in parts else "fixed",
            scaled=second,
            gate=second,
        )
        axes["position"] = Choice.of("relative_logits", **bias)
        config = AttentionConfig(self.width(heads), heads, projection, **axes)
        # Of keys and of values, and after attention and after the feed-forward layer.
        held = width * (2 * kv * size + (text.number_of_conv_states - 2) * text.hidden_size)
        return AttentionLayer(f"{name}, bias by distance", config, held=held)

    def _mixed(self) -> AttentionLayer:
        """Small heads that convolutions mix (CCA). ZAYA1."""
        maps = self.module.qkv_proj
        heads, kv, size = (
            int(maps.num_attention_heads),
            int(maps.num_key_value_heads),
            int(maps.head_dim),
        )
        widths = int(maps.depthwise_kernel_size), int(maps.grouped_kernel_size)
        projection = Choice.of(
            "compressed", kv_heads=kv, width=widths[0], head_width=widths[1], head_dim=size
        )
        name, mask, keys = self._mask()
        config = AttentionConfig(
            self.width(heads), heads, projection, position=self._position(keys), mask=mask
        )
        held = (sum(widths) - 2) * (heads + kv) * size + kv * size // 2
        return AttentionLayer(f"{name}, compressed", config, held=held)

    def _state(self) -> AttentionLayer | None:
        """A layer that carries a state: a delta rule, a state space, lightning attention; or a convolution."""
        kind, text = type(self.module).__name__, self.text
        if kind.endswith("ShortConv"):
            width = int(self.of("L_cache") or text.conv_L_cache)
            return AttentionLayer(
                f"convolution over {width} tokens", None, held=width * text.hidden_size
            )
        if "DeltaNet" in kind or "DeltaAttention" in kind or "forget_gate" in self.parts:
            keys, heads = (
                _size(self.of("num_k_heads", "num_heads")),
                _size(self.of("num_v_heads", "num_heads")),
            )
            key, value = (
                _size(self.of("head_k_dim", "head_dim")),
                _size(self.of("head_v_dim", "head_dim")),
            )
            width = _size(self.of("conv_kernel_size", "conv_size"))
            name, rule = (
                ("Kimi delta", "kda")
                if "forget_gate" in self.parts
                else ("gated delta rule", "gated_delta")
            )
            held = width * (2 * keys * key + heads * value)
            more = {"beta_max": 2.0} if self.of("allow_neg_eigval") else {}
            config = self._recurrent(heads, value, Choice.of(rule, **more))
            return AttentionLayer(name, config, state=heads * key * value, held=held, products=3)
        if re.search(r"Lightning|Linear(Attention)?$", kind):
            heads, size = (
                _size(self.of("num_heads", "num_attention_heads")),
                int(self.module.head_dim),
            )
            config = self._recurrent(
                heads, size, Choice.of("retention", decay="lightning"), score="dot"
            )
            return AttentionLayer("lightning", config, state=heads * size * size)
        if not hasattr(self.module, "ssm_state_size"):
            return None
        states, width = int(self.module.ssm_state_size), int(self.module.conv_kernel_size)
        if not hasattr(self.module, "n_groups"):
            inner = int(self.module.intermediate_size)
            return AttentionLayer(
                "state space (Mamba)", None, state=inner * states, held=width * inner
            )
        heads, size = int(self.module.num_heads), int(self.module.head_dim)
        channels = heads * size + 2 * int(self.module.n_groups) * states
        config = self._recurrent(heads, size, "ssd", score="dot")
        return AttentionLayer(
            "state space", config, state=heads * size * states, held=width * channels
        )

    def _recurrent(
        self, heads: int, size: int, kernel: Choice | str, **axes: Any
    ) -> AttentionConfig:
        projection = Choice.of("gated", bias=False, head_dim=size)
        return AttentionConfig(
            self.width(heads), heads, projection, mask="causal", kernel=kernel, **axes
        )

    def _softmax(self) -> AttentionLayer | None:
        """Attention between heads of queries and keys."""
        # Maps that our choices lack: convolutions, compressors
        if _maps(self.module) - PROJECTIONS:
            return None
        parts, text = self.parts, self.text
        head = values = _size(self.of("head_dim", "head_size"))
        lends = "k_proj" not in parts and bool(self.of("is_kv_shared_layer"))
        fused = parts.get("qkv_proj", parts.get("query_key_value"))
        if fused is not None:
            heads = int(text.num_attention_heads)
            queries, kv = heads * head, (int(fused.weight.shape[0]) // head - heads) // 2
        else:
            queries = int(parts["q_proj"].weight.shape[0])
            kv = (
                int(text.num_key_value_heads)
                if lends
                else int(parts["k_proj"].weight.shape[0]) // head
            )
            if parts.get("v_proj") is not None:
                values = int(parts["v_proj"].weight.shape[0]) // kv
            out = next(parts[name] for name in ("o_proj", "out_proj", "dense") if name in parts)
            heads = int(out.weight.shape[1]) // values
        if queries not in (heads * head, 2 * heads * head):
            return None
        name, mask, keys = self._mask()
        beside = 0
        if (indexer := parts.get("indexer")) is not None:
            if type(self.module.indexer).__name__ != "MiniMaxM3VLIndexer":
                return None
            size, count = int(indexer.block_size), int(indexer.topk_blocks)
            beside, name = int(indexer.head_dim), f"{count} blocks of {size} picked"
            turned = min(1.0, int(text.rotary_dim) / beside)
            local = int(indexer.local_blocks)
            mask = Choice.of(
                "block_max", size=size, blocks=count, local=local, dim=beside, share=turned
            )
        axes: dict[str, Any] = {"position": self._position(keys), "mask": mask}
        normed = [
            parts[one] for one in ("q_norm", "q_layernorm", "query_layernorm") if one in parts
        ]
        if normed and getattr(normed[0], "weight", None) is not None:
            axes["score"] = "qk_norm"
        if self.of("sinks") is not None:
            axes["normalizer"] = "sink"
        elif cap := getattr(text, "attn_logit_softcapping", None):
            axes["normalizer"] = Choice.of("softcap", cap=float(cap))
        gate = next((parts[one] for one in ("gate_proj", "g_proj") if one in parts), None)
        rows = 0 if gate is None else int(gate.weight.shape[0])
        width = self.width(heads)
        how: dict[str, Any] = {
            "bias": (fused or parts["q_proj"]).bias is not None,
            "head_dim": 0 if head * heads == width else head,
        }
        if queries == 2 * heads * head or rows in (heads, heads * values):
            how |= {"kv_heads": kv, "grain": "headwise" if rows == heads else "elementwise"}
            projection, name = Choice.of("gated", **how), f"{name}, gated"
        elif kv == heads:
            projection = Choice.of("multi_head", **how)
        else:
            projection = Choice.of("grouped_query", kv_heads=kv, **how)
        if axes["position"].key in ("none", "position_temperature"):
            name = "without positions" if name == "full" else f"{name}, without positions"
        config = AttentionConfig(width, heads, projection, **axes)
        if lends:
            return AttentionLayer(f"{name}, keys of an earlier layer", config, per_token=0)
        if values == head:
            return AttentionLayer(name, config, beside=beside)
        return AttentionLayer(
            name, config, per_token=kv * (head + values), per_key=heads * (head + values)
        )


def write_table(*keys: str) -> None:
    """Read each config of published.json again, or those of some keys, and write its card beside it."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    for row in [row for row in rows if not keys or row["key"] in keys]:
        about = {key: value for key, value in row.items() if key not in ("config", "card")}
        row["card"] = card_from_config(row["config"], **about).to_json()
    text = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    TABLE.write_text(f"[\n{text}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    write_table()
