"""Why a kernel cannot compute some choices: sentences that name both and what to take instead."""

from __future__ import annotations

from collections.abc import Callable

from core.entries import Choice, LayerConfig
from core.positions import enters

Reason = Callable[[LayerConfig], str | None]


def refuse_when(kernel: str, *reasons: Reason) -> Reason:
    """The `refuse` of a kernel's entry: the sentence of the first reason that applies."""

    def refuse(config: LayerConfig) -> str | None:
        text = next((text for reason in reasons if (text := reason(config))), None)
        return text and f"kernel = {kernel} {text}, or kernel = exact."

    return refuse


def without(axis: str, trait: str, text: str) -> Reason:
    """The reason, whose {} is the choice's key, against a choice on that axis that lacks the trait."""
    return lambda config: (
        None if config.has(axis, trait) else text.format(getattr(config, axis).key)
    )


def with_trait(axis: str, trait: str, text: str) -> Reason:
    """The reason, whose {} is the choice's key, against a choice on that axis that has the trait."""
    return lambda config: (
        text.format(getattr(config, axis).key) if config.has(axis, trait) else None
    )


not_product = without(
    "score", "product", "computes only dot products, not score = {}; take score = scaled_dot"
)
not_softmax = without(
    "normalizer", "softmax", "computes only softmax, not normalizer = {}; take normalizer = softmax"
)
more_than_a_bias = with_trait(
    "position",
    "adjusts",
    "supports only positions that add a bias, and position = {} does more; take position = alibi",
)
adds_values = with_trait(
    "position",
    "values",
    "does not store the weights that position = {} needs; take position = alibi",
)
whole_rows = with_trait(
    "position",
    "whole rows",
    "computes one block of keys at a time, and position = {} needs all keys; take position = alibi",
)
ranks_keys = with_trait(
    "mask",
    "whole rows",
    "computes some of the keys at a time, and mask = {} compares all of them; take mask = "
    "causal, kernel = block_sparse",
)
multiplies_weights = with_trait(
    "mask",
    "reweighs",
    "cannot change the weights of softmax, which mask = {} multiplies; take mask = local",
)
combines_heads = with_trait(
    "projection",
    "folds",
    "computes one softmax for each head, and projection = {} subtracts two; take projection = multi_head",
)


def enters_scores(config: LayerConfig) -> str | None:
    return (
        None
        if "scores" not in enters(config.position)
        else (
            f"computes no scores that position = {config.position.key} could change; take position = rope"
        )
    )


def drops_weights(config: LayerConfig) -> str | None:
    return (
        None
        if not config.dropout
        else (f"computes no weights for dropout = {config.dropout:g}; take dropout = 0")
    )


def mask_beyond(*keys: str) -> Reason:
    """The reason against a mask other than these and their conjunctions."""
    return lambda config: (
        None
        if {part.key for part in and_parts(config.mask)} <= {*keys}
        else (f"computes no scores that mask = {config.mask.key} could hide; take mask = {keys[0]}")
    )


def and_parts(mask: Choice) -> list[Choice]:
    """The masks that an `and` joins, at any depth; any other mask alone."""
    return (
        [inner for part in mask.parts for inner in and_parts(part)] if mask.key == "and" else [mask]
    )


# Why a kernel with weights of its own has no state of one size.
STATELESS = {
    "log_linear": "keeps a state for each stretch of the past, and their number grows with the length",
    "nsa": "selects among the keys anew for each query",
    "linformer": "mixes all keys, and later ones too",
    "nystrom": "averages all keys anew at each length",
}


def why_no_state(config: LayerConfig) -> str | None:
    """The reason why a step stores keys or inputs and no state in their place; None where the kernel carries one."""
    key = config.kernel.key
    if not config.has("kernel", "state"):
        return f"kernel = {key} {STATELESS.get(key, 'weighs each key by itself')}."
    if not config.has("kernel", "own positions") and not any(
        part.key == "causal" for part in and_parts(config.mask)
    ):
        return f"kernel = {key} lets a token see later ones without mask = causal, which a state cannot."
    if config.has("position", "reads length"):
        return f"position = {config.position.key} rotates earlier keys again as the text grows, which a state cannot."
    return None


# What F.scaled_dot_product_attention cannot do.
PLAIN = (
    not_product,
    not_softmax,
    more_than_a_bias,
    adds_values,
    multiplies_weights,
    combines_heads,
)
