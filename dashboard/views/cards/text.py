"""The page's sentences and tables, from the cards."""

from __future__ import annotations

from core.attention import AXES, AttentionConfig
from core.attention.presets.base import name as choice_name
from core.models.cards import card
from core.models.cards.base import AttentionLayer, ModelCard
from dashboard.draw.formats import byte_size, operations, percent
from dashboard.runtime.mechanism_codec import to_text
from dashboard.views.cards.compute import LONG, SHORT, cache
from dashboard.widgets.panels import plain

FIGURES = (
    "parameters",
    "used by a token",
    "cache a token",
    "at 8k tokens",
    "at 128k tokens",
    "FLOPs a token",
)
PARTS = ("part", "parameters", "share")
REFERENCE = "llama2"  # stores the keys and values of every head in every layer
LAYER = AttentionConfig()


def all_fact() -> str:
    """The smallest and largest cache among models of about seven billion parameters."""
    few, many = card("mamba2"), card(REFERENCE)
    return (
        f"At {LONG:,} tokens {few.name} stores **{byte_size(few.cache_bytes(LONG))}** of states and {many.name} "
        f"**{byte_size(many.cache_bytes(LONG))}** of keys and values, with about as many parameters."
    )


def lead(one: ModelCard) -> str:
    """What sets the model apart, with its paper and its checkpoint."""
    return f"{plain(one.different)} [Paper]({one.url}) · {plain(one.checkpoint)}"


def figures(one: ModelCard) -> list[str]:
    """One row: parameters, those that a token uses, the cache, and FLOPs."""
    sizes = [cache(one, length) for length in (SHORT, LONG)]
    return [
        f"{one.parameters:,}",
        percent(one.active / one.parameters),
        byte_size(one.token_bytes) if one.stores else "–",
        *("–" if size is None else byte_size(size) for size in sizes),
        operations(one.flops(read(one))),
    ]


def read(one: ModelCard) -> int:
    """The number of tokens that a token attends to where FLOPs are given: SHORT, or the longest text."""
    return min(SHORT, one.longest or SHORT)


def fact(one: ModelCard) -> str:
    """What the cache takes, beside that of a model which stores the keys and values of every head."""
    if not one.stores:
        return (
            f"{one.name} reads a whole text at once: **nothing is stored**, and each of {read(one):,} tokens takes "
            f"{operations(one.flops(read(one)))} FLOPs."
        )
    other, length = card(REFERENCE), min(LONG, one.longest or LONG)
    size, late = one.cache_bytes(length), one.cache_bytes(length) - one.cache_bytes(length - 1)
    grows = f"{byte_size(late)} for each token" if late else "and nothing more for a further token"
    if late != one.token_bytes:
        grows += f"; {byte_size(one.token_bytes)} while the windows fill"
    beside = (
        ""
        if one.key == REFERENCE
        else f" {other.name} would store {byte_size(other.cache_bytes(length))}."
    )
    return f"{one.name} stores **{byte_size(size)}** at {length:,} tokens, {grows}.{beside}"


def note(one: ModelCard) -> str:
    """How the figures are calculated."""
    window = f" It has positions for {one.longest:,} tokens only." if one.longest else ""
    experts = (
        f" A token uses {operations(one.active)} of the parameters: it is sent to some of the experts."
        if one.active != one.parameters
        else ""
    )
    unfolded = (
        " Keys and values are computed from the latent vectors, as when a prompt is read."
        * any(layer.kind == "latent" for layer in one.layers)
    )
    remark = f" {one.remark}" if one.remark else ""
    return (
        f"Calculated from its sizes, no model is loaded: numbers of 2 bytes, and two FLOPs for each number that a "
        f"token is multiplied with, of weights, keys and values, at {read(one):,} tokens.{unfolded}{experts}"
        f"{window}{remark}"
    )


def part_rows(one: ModelCard) -> list[list[str]]:
    """What the parameters are for."""
    return [
        [name, f"{count:,}", percent(count / one.parameters)]
        for name, count in one.parameter_rows.items()
    ]


def layer_text(layer: AttentionLayer, count: int) -> str:
    """An attention's name, how many layers have it, its choices, and what they do not say."""
    choices = [
        choice_name(axis, choice, full=True)
        for axis in AXES
        if (choice := getattr(layer.config, axis)) != getattr(LAYER, axis)
    ]
    extras = "".join(
        f" {plain(extra.name)}: {abs(extra.parameters):,} parameters "
        f"{'more' if extra.parameters > 0 else 'fewer'}, {plain(extra.reason)}."
        for extra in layer.extras
    )
    heads = f"{layer.config.num_heads} heads of {layer.config.head_dim}"
    layers = f"{count} layers, each of" if count > 1 else "one layer of"
    return (
        f"**{plain(layer.name[:1].upper() + layer.name[1:])}**, {layers} {layer.parameters:,} parameters: {heads}. "
        f"{plain('; '.join(choices))}.{extras}"
    )


def source(one: ModelCard) -> str:
    """Where the numbers come from and what checks them."""
    checked = (
        "The number of parameters equals that of transformers' own model, to the last one."
        if one.key != "retnet"
        else "transformers has no such model to compare with."
    )
    return f"Sizes of {plain(one.checkpoint)}, from {plain(one.source)}. {checked}"


def link(one: ModelCard) -> dict[str, str | list[str]]:
    """The query of Side by side with the attentions of the pattern, in small, beside the plain dot product."""
    attentions = dict.fromkeys(one.small())
    sizes = next(iter(attentions))
    return {
        "source": "seeded",
        "sizes": f"{sizes.d_model}.{sizes.num_heads}.0",
        "m": [
            to_text(LAYER, sizes=False),
            *(to_text(config, sizes=False) for config in attentions),
        ],
    }
