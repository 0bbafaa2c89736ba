"""Heads: one or many at the same width, keys and values shared, and two maps subtracted."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import Any, TypeAlias, TypeVar

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from core.attention import AttentionConfig, ConfigError, entry, heads_that_divide
from core.attention.basics import MultiHead
from core.attention.projections.combined import Differential
from core.attention.projections.low_rank import Latent
from core.attention.projections.multi_head import GroupedQuery
from core.interpret import trace as analysis
from core.interpret.trace import overlap
from core.pretrained import PretrainedError
from core.studies import heads
from core.studies.heads import CacheSize, Split, TwoMaps
from core.tokens import SENTENCE, labels, tokenize
from dashboard.draw import formats
from dashboard.draw.formats import MINUS, byte_size, number, plain
from dashboard.draw.multiples import MARKS, Tile, multiples
from dashboard.draw.page_pictures import add_script
from dashboard.draw.palette import CATEGORIES, Theme, colour_scale
from dashboard.draw.scripts import Cell, Script, attention_import, source_of
from dashboard.server.cache import cached, shared as shared_result
from dashboard.ui.export import begin_before_title
from dashboard.ui.links import (
    BOUND,
    KEEP,
    fragment,
    link_value,
    one_of,
    read_linked,
    read_start,
    write_linked,
    write_start,
)
from dashboard.ui.mechanism import D_MODELS, keep_heads, note_heads
from dashboard.ui.models import EMBEDDED, study_of
from dashboard.ui.panels import (
    Move,
    Question,
    caption,
    details,
    entries_panel,
    fact,
    next_page,
    paragraph,
    picture,
    predict,
    source_panel,
    theme,
    title,
    try_this,
)
from dashboard.ui.tables import table
from dashboard.ui.threads import one_thread

# The page's controls: an idea, the weights, the words, and the sizes of the layer.


T = TypeVar("T")
IDEAS = {
    "split": "One head or many",
    "shared": "Shared keys and values",
    "subtract": "Two maps, subtracted",
}
FIRST = "split"
WEIGHTS = {"minilm": "MiniLM", "random": "Random"}
LAYER, HEAD = 3, 1  # of MiniLM: here "it" attends to "animal"
SIZES = [size for size in D_MODELS if 4 <= size <= 256]
LENGTHS = [128, 512, 1024, 2048, 4096, 8192, 16384]
D_MODEL, HEADS, SEED, LENGTH, DEPTH = 64, 4, 126, 4096, 4
MAX_HEADS, MAX_TOKENS, DEEPEST, LARGEST_SEED = 8, 32, 48, 999_999
LARGEST_LATENT = 512


@dataclass(frozen=True)
class Controls:
    """The values of the controls; `kv_heads`, `latent` and `length` belong to shared keys, `depth` to two maps.

    With `layer`, that layer of MiniLM reads `text`; else weights are random and `tokens` are the words.
    """

    idea: str
    tokens: tuple[str, ...]
    notes: tuple[str, ...]
    d_model: int
    heads: int
    seed: int
    head: int = 0
    kv_heads: int = 1
    latent: int = 1
    length: int = LENGTH
    depth: int = DEPTH
    layer: int | None = None
    text: str = ""

    @property
    def head_dim(self) -> int:
        return self.d_model // self.heads


key = "heads:{}".format  # a widget's key, which is also its name in the link


def _draw_sizes(idea: str) -> tuple[int, int]:
    """Draw d_model, and the numbers of heads that divide it; returns both."""
    d_model = st.select_slider(
        "d_model",
        SIZES,
        D_MODEL,
        key=key("d_model"),
        **BOUND,
        **keep_heads(
            key("d_model"),
            lambda width: heads_key(idea, width),
            lambda width: heads_that_fit(idea, width),
        ),
        help="How many numbers each word's vector has",
    )
    fits = heads_that_fit(idea, d_model)
    if len(fits) == 1:  # a slider needs two places
        return d_model, fits[0]
    usual = max(heads for heads in fits if heads <= HEADS)
    link_value(heads_key(idea, d_model), usual, one_of(fits))
    num_heads = st.select_slider(
        "Heads",
        fits,
        usual,
        key=heads_key(idea, d_model),
        **KEEP,
        help="Into how many heads the d_model numbers are divided",
    )
    note_heads(key("d_model"), d_model, num_heads)
    return d_model, num_heads


def _draw_idea(idea: str, num_heads: int) -> tuple[int, int, int]:
    """Draw the controls that one idea alone has; returns the heads of keys, the cached tokens, and the layer of λ."""
    length, depth = LENGTH, DEPTH
    kv_heads = heads_that_divide(num_heads)[-2:][0]  # the most that are fewer than the heads
    if idea == "shared":
        if num_heads > 1:
            kv_heads = st.select_slider(
                "KV heads, G",
                heads_that_divide(num_heads),
                kv_heads,
                key=key(f"kv:{num_heads}"),
                help="Heads of keys and values in grouped-query attention; each serves H / G query heads",
                **BOUND,
            )
        length = st.select_slider(
            "Cached tokens",
            LENGTHS,
            LENGTH,
            key=key("length"),
            **BOUND,
            format_func="{:,}".format,
            help="The number of tokens whose keys and values a decoder has stored",
        )
    elif idea == "subtract":
        depth = st.slider(
            "Layer for λ",
            1,
            DEEPEST,
            DEPTH,
            1,
            key=key("depth"),
            **BOUND,
            help="λ at the start of training depends on the layer, counted from 1: 0.2 in the first, near 0.8 in "
            "the last",
        )
    return kv_heads, length, depth


def _draw_more(
    corner: DeltaGenerator, idea: str, real: bool, d_model: int, num_heads: int
) -> tuple[int, int, int]:
    """Draw the popover, where it has a control; returns the head shown, the latent size and the seed."""
    head, latent, seed = 0, min(4 * d_model // num_heads, d_model // 2), SEED
    if not real or idea != "split":
        with corner.popover(
            "More", icon=":material/tune:", help="The head shown, the latent size, the seed"
        ):
            if idea != "split" and num_heads > 1:
                head = st.select_slider(
                    "Head shown",
                    range(num_heads),
                    HEAD if real else 0,
                    key=key(f"head:{num_heads}"),
                    **BOUND,
                    help="Heads are counted from 0",
                )
            if idea == "shared":
                latent = st.number_input(
                    "Latent size, R",
                    1,
                    LARGEST_LATENT,
                    latent,
                    1,
                    key=key(f"latent:{d_model}:{num_heads}"),
                    **BOUND,
                    help="How many numbers latent attention stores for the content of a token",
                )
            if not real:
                seed = st.number_input(
                    "Seed",
                    0,
                    LARGEST_SEED,
                    SEED,
                    1,
                    key=key("seed"),
                    **BOUND,
                    help="The random weights and word vectors are drawn from this number",
                )
    return head, latent, seed


def first_weights() -> str:
    """The weights of a link that does not name them."""
    return st.session_state.get(key("start"), "minilm")


def heads_key(idea: str, d_model: int) -> str:
    return key(f"heads:{idea == 'subtract'}:{d_model}")


def heads_that_fit(idea: str, d_model: int) -> list[int]:
    """The numbers of heads that divide d_model; for two maps a head, those whose heads have two whole halves."""
    fits = [heads for heads in heads_that_divide(d_model) if heads <= MAX_HEADS]
    even = [heads for heads in fits if d_model // heads % 2 == 0]
    return even or fits if idea == "subtract" else fits


def qkv_of(text: str, layer: int) -> heads.QKV:
    """MiniLM's queries, keys and values: saved ones of its sentence, else by running the model.

    PretrainedError when the model cannot be loaded or read the text.
    """
    if text == heads.MINILM_TEXT:
        return shared_result(heads.saved_qkv, layer)
    return study_of(heads.read_qkv, EMBEDDED, text, layer)


def of_trained(study: Callable[..., T], text: str, layer: int, *args: Any) -> T:
    """A study of MiniLM's queries, keys and values."""
    return study(qkv_of(text, layer), *args)


def split_of(controls: Controls, num_heads: int) -> Split:
    """The layer as that many heads."""
    if controls.layer is not None:
        return cached(of_trained, heads.split_trained, controls.text, controls.layer, num_heads)
    return cached(heads.split, controls.tokens, controls.d_model, num_heads, controls.seed)


def lengths_of(controls: Controls) -> np.ndarray:
    """The length of what each head adds to each word's new vector, (H, T)."""
    if controls.layer is None:
        return cached(
            heads.lengths, controls.tokens, controls.d_model, controls.heads, controls.seed
        )
    return qkv_of(controls.text, controls.layer).lengths


def cache_of(controls: Controls, config: AttentionConfig) -> CacheSize:
    """The maps and the cache of one way to store keys and values."""
    if controls.layer is None:
        return cached(heads.cache_size, config, controls.tokens, controls.seed, controls.length)
    return cached(
        of_trained,
        heads.share_trained,
        controls.text,
        controls.layer,
        config,
        controls.seed,
        controls.length,
    )


def two_maps_of(controls: Controls) -> TwoMaps:
    """The two maps of the head that is shown."""
    if controls.layer is not None:
        return cached(
            of_trained,
            heads.two_maps_trained,
            controls.text,
            controls.layer,
            controls.head,
            controls.depth,
        )
    return cached(
        heads.two_maps,
        controls.tokens,
        controls.d_model,
        controls.heads,
        controls.seed,
        controls.head,
        controls.depth,
    )


# Sentences, numbers in equations, and tables of the page Heads.


BYTES = 4  # of a number, fp32
SPLIT_HEAD = ["heads", "size of each", "parameters", "entropy", "distance", "overlap"]
HEAD_HEAD = ["head", "entropy", "distance"]
SHARED_HEAD = [
    "keys and values",
    "numbers per token",
    "bytes in the cache",
    "parameters",
    "overlap",
]
RANDOM = (
    "Weights and word vectors are random (seed {}). Every number is computed, but which word gets more weight "
    "has no meaning before training."
)

SHARED_SYMBOLS = (
    "The numbers that multi-head, grouped-query, multi-query and latent attention store for a token. H "
    "is the count of query heads, G of heads of keys and values, D the count of numbers in a head, R "
    "that in a latent vector and R_rope that in its rotated key."
)
ABOUT_MINILM = (
    "MiniLM is a small trained model that turns a sentence into a vector, for search. It has "
    f"{heads.MINILM_LAYERS} layers: each is one attention with {heads.MINILM_HEADS} heads and a feed-forward network, "
    "and reads the vectors that the layer before it put out."
)

TextCell = tuple[int, int]


def head_rows(split: Split) -> list[list[str]]:
    """One row for each head, in the order of HEAD_HEAD."""
    entropy, distance = (
        analysis.entropy(split.weights).mean(1),
        analysis.mean_distance(split.weights),
    )
    return [
        [str(head), number(entropy[head]), number(distance[head])] for head in range(split.heads)
    ]


def conditions(controls: Controls) -> str:
    """Where the weights come from."""
    if controls.layer is None:
        return RANDOM.format(controls.seed)
    saved = f", saved on {heads.saved_on()}" if controls.text == heads.MINILM_TEXT else ""
    return (
        f"Queries, keys and values are those of layer {controls.layer} of all-MiniLM-L6-v2, a trained model with "
        f"{heads.MINILM_HEADS} heads{saved}."
    )


def joined(lengths: np.ndarray, word: str) -> str:
    """Which head adds most to a word's new vector, and which least; `lengths` (H,)."""
    if len(lengths) == 1:
        return f"The one head makes the whole new vector of “{plain(word)}”: its part has length {number(lengths[0])}."
    most, least = int(lengths.argmax()), int(lengths.argmin())
    return (
        f"Each bar is the length of $A_h V_h W_{{o,h}}$ in the row of “{plain(word)}”. Head {most} adds most, "
        f"{number(lengths[most])}, and head {least} least, {number(lengths[least])}. The sum of the {len(lengths)} "
        "parts, with a bias, is what attention puts out for this word."
    )


def split_fact(controls: Controls, one: Split, many: Split, cell: TextCell) -> str:
    row, column = cell
    words = f":primary[{plain(controls.tokens[row])}]", f"“{plain(controls.tokens[column])}”"
    single = number(one.weights[0, row, column])
    trained = (
        ""
        if controls.layer is None
        else f" (MiniLM was trained with {heads.MINILM_HEADS} heads, not with one)"
    )
    if many.heads == 1:
        return f"One head has one map: {words[0]} gives {words[1]} **{single}**."
    weights = many.weights[:, row, column]
    return (
        f"{words[0]} gives {words[1]} **{number(weights.max())}** in head {int(weights.argmax())} and "
        f"**{number(weights.min())}** in head {int(weights.argmin())}. One head "
        f"gives it {single}{trained}."
    )


def jobs(many: Split, tokens: Sequence[str]) -> str:
    """What MiniLM and a layer are, the column that most heads attend to, and the head that reads the token before."""
    first = many.weights.mean(1).argmax(1) == 0
    share = number(many.weights[first, :, 0].mean()) if first.any() else "0"
    sentences = [
        f"The first column is {tokens[0]}, a token that MiniLM puts before every text. In "
        f"{int(first.sum())} of the {many.heads} heads it gets the largest share of any token, mean of all "
        f"rows ({share} on average in these heads): a head often attends to it when no word fits."
    ]
    before = np.diagonal(many.weights, -1, 1, 2).mean(1)
    if before.max() > 0.5:
        sentences.append(
            f"Head {int(before.argmax())} attends to the token before ({number(before.max())})."
        )
    return " ".join([ABOUT_MINILM, *sentences])


def split_rows(controls: Controls, splits: Sequence[Split]) -> list[list[str]]:
    """One row for each number of heads, in the order of SPLIT_HEAD."""
    return [
        [
            str(each.heads),
            str(controls.d_model // each.heads),
            f"{each.parameters:,}",
            number(each.entropy),
            number(each.distance),
            _optional(each.overlap),
        ]
        for each in splits
    ]


def projection_name(cache: CacheSize) -> str:
    return entry("projection", cache.config.projection.key).name


def cache_note(cache: CacheSize, real: bool) -> str:
    """The numbers cached for each token; a trained model has no weights for latent attention."""
    random = real and cache.config.projection.key == "latent"
    return (
        f"{cache.numbers} per token, random weights"
        if random
        else f"{cache.numbers} numbers per token"
    )


def shared_fact(controls: Controls, caches: Sequence[CacheSize]) -> str:
    many, grouped, one, _ = caches
    heads = "1 shared KV head" if controls.kv_heads == 1 else f"{controls.kv_heads} shared KV heads"
    sizes = (
        f"For {controls.length:,} tokens multi-head attention caches **{byte_size(many.bytes)}** in each layer, "
        f"{heads} {byte_size(grouped.bytes)}, and a single one {byte_size(one.bytes)}."
    )
    if many.overlap is None or one.overlap is None:
        return sizes
    more = "more" if one.overlap > many.overlap else "less"
    return (
        f"{sizes} With one KV head for all, two heads have **{number(one.overlap)}** of their weight on the same "
        f"words instead of {number(many.overlap)}: their maps are {more} similar."
    )


def subtract_fact(controls: Controls, maps: TwoMaps, cell: TextCell) -> str:
    row, column = cell
    first, second = maps.first[row, column], maps.weight * maps.second[row, column]
    negative, cells = int((maps.difference < 0).sum()), maps.difference.size
    least = int(maps.difference[row].argmin())
    lowest = maps.difference[row, least]
    other = (
        f"and its lowest weight, **{number(lowest)}**, to “{plain(controls.tokens[least])}”"
        if lowest < 0
        else f"and its lowest weight, {number(lowest)}, to “{plain(controls.tokens[least])}”"
    )
    result = number(first - second)
    query, token = plain(controls.tokens[row]), plain(controls.tokens[column])
    return (
        f":primary[{query}] gives “{token}” {number(first)} {MINUS} {number(second)} = **{result}** {other}. The "
        f"two maps have {number(maps.common)} of their weight on the same keys, and {negative} of {cells} weights "
        "are below 0."
    )


def _optional(value: float | None) -> str:
    return "–" if value is None else number(value)


# The maps of each idea, under one crosshair and with one pin, which is also in the link.


SMALL, LARGE = 260, 360  # pixels of a map: of one of many heads, and of three maps in a row
ONE = len(MARKS) - 1  # the marker of a map that is no single head of many
NO_MARK = -1
# On a phone the map that the sentence names comes first, before the map of one head.
PHONE_STYLE = """<style>@media (max-width: 640px) {
.st-key-heads-split > * > [data-testid=stHorizontalBlock] > :first-child { order: 1 }
}</style>"""
PIN, LINK = key("pin"), key("maps")  # the pinned cell's name in the link, and what all maps share


def draw(tiles: Sequence[Tile], controls: Controls, name: str, **options: Any) -> TextCell | None:
    """Draw maps; returns the pinned cell."""
    bounds = len(controls.tokens), len(controls.tokens)
    pin = read_linked("heads", PIN, bounds, controls.tokens)
    return write_linked(
        "heads",
        PIN,
        multiples(tiles, controls.tokens, key=key(name), link=LINK, pin=pin, **options),
    )


def draw_split(controls: Controls, one: Split, many: Split) -> tuple[TextCell, DeltaGenerator]:
    """Draw one head and several; returns the pinned cell, or else the one with the largest weight, and its place."""
    cell = largest_word_cell((one if controls.layer is None else many).weights, controls.tokens)
    options: dict[str, Any] = {"query": cell[0], "column": cell[1], "height": SMALL}
    single = Tile("One head", "", one.weights[0], marker=ONE)
    if controls.heads == 1:
        return draw([single], controls, "one", **options) or cell, st.container()
    marked = many.heads <= len(MARKS)  # with more heads there is no mark for each
    tiles = [
        Tile(f"Head {head}", "", weights, marker=head if marked else NO_MARK)
        for head, weights in enumerate(many.weights)
    ]
    options["fact"] = (
        f"{controls.heads} heads of {controls.head_dim} numbers, "
        f"compared with one head of {controls.d_model}"
    )
    with st.container(key=key("split")):
        st.html(PHONE_STYLE)
        left, right = st.columns([1, 3], gap="small")
    with left:
        draw([single], controls, "one", reads="query → key", legend=False, **options)
    with right:
        strongest = int(many.weights[:, cell[0], cell[1]].argmax())  # which the sentence names
        return draw(tiles, controls, "many", first=strongest, **options) or cell, left


def largest_word_cell(weights: np.ndarray, tokens: Sequence[str]) -> TextCell:
    """The largest weight of any head, (H, T, T), between two different words."""
    words = np.array(
        [any(sign.isalnum() for sign in token) and not token.startswith("[") for token in tokens]
    )
    pairs = words[:, None] & words & ~np.eye(len(words), dtype=bool)
    most = weights.max(0)
    row, column = divmod(
        int((np.where(pairs, most, -1.0) if pairs.any() else most).argmax()), len(tokens)
    )
    return row, column


# What the page computes as Python: of each idea, with MiniLM's weights or with random ones.


Part = tuple[Cell, Mapping[str, np.ndarray]]

READ = {
    "minilm": "The queries, keys and values of one layer of MiniLM.",
    "random": "The words as random vectors, for layers with seeded weights.",
}
TEXT = {
    "split": "One head and several with the same queries and keys, and the length of what each adds to a token.",
    "shared": "One head with four ways to store keys and values, and the bytes that a decoder stores in fp32.",
    "subtract": "One head of differential attention: two maps, and their difference.",
}
MAPS = """
from core.show import show_maps

show_maps({maps}, tokens, tokens)
"""
PICTURE = {"split": "heads:many", "shared": "heads:shared", "subtract": "heads:subtract"}
DRAWN = {
    "split": '{f"Head {head}": each for head, each in enumerate(many)}',
    "shared": "{name: each[head] for name, each in weights.items()}",
    "subtract": '{"A1": first, "λ A2": scale * second, "A1 − λ A2": difference}',
}
SPLIT = {
    "minilm": """
from einops import rearrange

one = attend(*(rearrange(part, "b h t d -> b 1 t (h d)") for part in (q, k, v))).weights[0]  # (1, T, T)
steps = attend(q, k, v)
many = steps.weights[0]  # (H, T, T)
w_o = model.model.encoder.layer[{layer}].attention.output.dense.weight.detach()  # (C, H · D)
added = torch.einsum("htd,hcd->htc", steps.out[0], rearrange(w_o, "c (h d) -> h c d", h=len(many)))
lengths = added.norm(dim=-1)  # (H, T)
print("largest weight of each head", many.amax((1, 2)).tolist())
""",
    "random": """
from einops import rearrange

from core.attention import AttentionConfig
from core.seeding import seeded_layer

one = seeded_layer(AttentionConfig({d_model}, 1), {seed})(x).weights[0]  # (1, T, T)
layer = seeded_layer(AttentionConfig({d_model}, {heads}), {seed})
steps = layer(x)
many = steps.weights[0]  # (H, T, T)
w_o = layer.projection.output.weight  # (C, H · D)
added = torch.einsum("htd,hcd->htc", steps.out[0], rearrange(w_o, "c (h d) -> h c d", h=len(many)))
lengths = added.norm(dim=-1)  # (H, T)
print("largest weight of each head", many.amax((1, 2)).tolist())
""",
}
SHARED = {
    "minilm": """
from einops import rearrange

{imports}
from core.seeding import seeded_layer
from core.tokens import embed

configs = {configs}
weights = {{}}
for config in configs[:3]:  # groups of heads share the mean of their keys and values
    shared = (rearrange(part, "b (g n) t d -> b g n t d", g=config.kv_heads).mean(2) for part in (k, v))
    weights[config.projection.key] = attend(q, *shared).weights[0]  # (H, T, T)
random = seeded_layer(configs[3], {seed})  # latent attention has weights of its own
weights["latent"] = random(embed(tokens, {d_model}, seed={seed})).weights[0]
head, length = {head}, {length}
stored = [4 * config.sizes.cache * length for config in configs]
print(stored, "bytes of keys and values for", length, "tokens")
""",
    "random": """
{imports}
from core.seeding import pooled_layer

configs = {configs}
weights = {{config.projection.key: pooled_layer(config, {seed})(x).weights[0] for config in configs}}  # (H, T, T)
head, length = {head}, {length}
stored = [4 * config.sizes.cache * length for config in configs]
print(stored, "bytes of keys and values for", length, "tokens")
""",
}
SUBTRACT = {
    "minilm": """
from core.attention.projections.combined import lambda_init

halves = zip(q[:, {head}, None].chunk(2, -1), k[:, {head}, None].chunk(2, -1))  # of the head's query and key
first, second = (attend(*half, v[:, {head}, None]).weights[0, 0] for half in halves)  # (T, T)
scale = lambda_init({depth})  # as training starts it in this layer, counted from 1
difference = first - scale * second
print("λ", scale, "weights from", float(difference.min()), "to", float(difference.max()))
""",
    "random": """
from core.attention import AttentionConfig, Choice
from core.seeding import seeded_layer

layer = seeded_layer(AttentionConfig({d_model}, {heads}, Choice.of("differential", depth={depth})), {seed})
first, second = layer(x).normalized[0, {first}:{first} + 2]  # (T, T)
scale = float(layer.projection.weight())  # λ
difference = first - scale * second
print("λ", scale, "weights from", float(difference.min()), "to", float(difference.max()))
""",
}
CODE = {"split": SPLIT, "shared": SHARED, "subtract": SUBTRACT}


def script(controls: Controls) -> Script:
    """The maps of the picked idea, and its numbers."""
    weights, idea = "random" if controls.layer is None else "minilm", controls.idea
    configs = heads.projections(
        controls.d_model, controls.heads, controls.kv_heads, controls.latent
    )
    made = source_of(list(configs))
    code = CODE[idea][weights].format(
        layer=controls.layer,
        d_model=controls.d_model,
        heads=controls.heads,
        seed=controls.seed,
        head=controls.head,
        depth=controls.depth,
        length=controls.length,
        first=2 * controls.head,
        configs=made,
        imports=attention_import(made),
    )
    one = idea == "split" and controls.heads == 1
    draw = MAPS.format(maps='{"One head": one[0]}' if one else DRAWN[idea])
    results = {"split": _split, "shared": _shared, "subtract": _subtract}[idea](controls)
    return Script(
        (
            Cell(READ[weights], _read(controls)),
            Cell(TEXT[idea], code, draw, "heads:one" if one else PICTURE[idea]),
        ),
        results,
    )


def _read(controls: Controls) -> str:
    if controls.layer is None:
        return f"""
import torch

from core.tokens import embed

tokens = {source_of(controls.tokens)}
x = embed(tokens, {controls.d_model}, seed={controls.seed})  # (1, T, C)
"""
    return f"""
import torch

from core.attention import attend
from core.pretrained import layer_qkv, load_minilm

model = load_minilm()
qkv = layer_qkv(model, {source_of(controls.text)}, {controls.layer})
tokens, q, k, v = qkv.tokens, qkv.q, qkv.k, qkv.v  # (1, H, T, D)
"""


def _split(controls: Controls) -> Mapping[str, np.ndarray]:
    return {
        "one": split_of(controls, 1).weights,
        "many": split_of(controls, controls.heads).weights,
        "lengths": lengths_of(controls),
    }


def _shared(controls: Controls) -> Mapping[str, np.ndarray]:
    configs = heads.projections(
        controls.d_model, controls.heads, controls.kv_heads, controls.latent
    )
    caches = [cache_of(controls, config) for config in configs]
    return {
        "torch.stack(list(weights.values()))": np.stack([each.weights for each in caches]),
        "stored": np.array([each.bytes for each in caches]),
    }


def _subtract(controls: Controls) -> Mapping[str, np.ndarray]:
    two = two_maps_of(controls)
    return {
        "first": two.first,
        "second": two.second,
        "scale": np.array(two.weight),
        "difference": two.difference,
        "scale * second": two.weight * two.second,
    }


CELL = 28  # pixels, which two digits fill at the smallest size
DARK = 0.5  # from here on a cell is nearer to the text's own colour than to the page's
LONGEST = 42  # percent of the width, which leaves room for names and amounts
BREAK = '<div style="flex-basis:100%;height:0"></div>'

MEANING = {
    "split": "A head has its own queries, keys and values, so several heads attend to different words at the same "
    "time. Every head reads the whole vector $x$ of a word. The columns of $W_q$, $W_k$ and $W_v$ are "
    "divided: each head has $D = C / H$ of the $C$ columns. The outputs of the heads stand side by side, $C$ "
    "numbers again, and a fourth matrix, $W_o$, mixes them into the word's new vector. $W_{o,h}$ are the $D$ "
    "rows of $W_o$ that belong to head $h$, so the new vector is a sum with one part from each head. "
    "$Q_h$, $K_h$ and $V_h$ are the queries, keys and values of head $h$, a row for each word.",
    "shared": "This is for later; the path goes on without it. A decoder stores the keys and values of all earlier "
    "tokens, because every new token attends to them. "
    "Query heads that share one head of keys and values make this cache smaller.",
    "subtract": "This is for later; the path goes on without it. A differential head makes two maps and subtracts λ "
    "times the second from the first. The weight that "
    "both maps put on the same key cancels.",
}

ENTRIES = {
    "split": ("multi_head",),
    "shared": ("grouped_query", "multi_query", "latent"),
    "subtract": ("differential",),
}
SOURCES = {"split": (MultiHead,), "shared": (GroupedQuery, Latent), "subtract": (Differential,)}
SPLIT_LATEX = r"A_h = \mathrm{softmax}\!\left(\frac{Q_h K_h^\top}{\sqrt{D}}\right),\quad D = C / H"
JOIN_LATEX = r"\mathrm{out} = [A_1 V_1 \cdots A_H V_H]\, W_o = \sum_h A_h V_h\, W_{o,h}"
SHARED_LATEX = r"2HD,\quad 2GD,\quad 2D,\quad R + R_\mathrm{rope}"
SUBTRACT_LATEX = r"w_{ij} = (A_1 - \lambda A_2)_{ij}"

Shown: TypeAlias = tuple[
    Question | None, Callable[[], None]
]  # a question, and what draws the rest after the controls


def page() -> None:
    """Draw the page from top to bottom."""
    read_start("heads", "minilm", "random")
    # Before the first widget takes its value from the link.
    allowed = {
        "idea": (list(IDEAS.values()), IDEAS[FIRST]),
        "weights": (list(WEIGHTS.values()), WEIGHTS[first_weights()]),
        "layer": (list(map(str, range(heads.MINILM_LAYERS))), str(LAYER)),
        "d_model": (list(map(str, SIZES)), str(D_MODEL)),
        "length": ([f"{length:,}" for length in LENGTHS], f"{LENGTH:,}"),
    }
    errors = []
    for name, (options, default) in allowed.items():
        value = None if key(name) in st.session_state else st.query_params.get(key(name))
        if value and value not in options:
            errors.append(
                f"The link says {plain(name)} = {plain(value[:40])}; expected one of "
                f"{plain(' | '.join(options))}. {plain(default)} is shown."
            )
    for sentence in errors:
        st.warning(sentence)
    explore()
    next_page("heads")


@fragment
def explore() -> None:
    """Draw title, controls, maps, question and meaning, which rerun alone."""
    begin_before_title()
    title(
        "Heads",
        "You will understand why attention is divided into heads, and what heads can share.",
        first=False,
    )
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        idea = (
            st.segmented_control(
                "Idea",
                list(IDEAS),
                default=FIRST,
                required=True,
                format_func=IDEAS.__getitem__,
                key=key("idea"),
                wrap=True,
                **BOUND,
                help="How a layer can use heads: divide into them, share keys among them, or subtract two maps",
            )
            or FIRST
        )
        weights = st.segmented_control(
            "Weights",
            list(WEIGHTS),
            default=first_weights(),
            required=True,
            format_func=WEIGHTS.__getitem__,
            key=key("weights"),
            help="MiniLM: the queries, keys and values of a trained model, all-MiniLM-L6-v2. "
            "Random: a layer of any size before training.",
            **BOUND,
        )
        corner = st.container(width="content")
    real, row = (weights or first_weights()) == "minilm", st.grid(6, min_column_width=120)
    span = {"split": 4, "shared": 2 + real, "subtract": 3 + real}[
        idea
    ]  # what the other controls leave
    text = row.cell(column_span=span).text_input(
        "Sentence",
        heads.MINILM_TEXT if first_weights() == "minilm" else SENTENCE,
        key=key("tokens"),
        **BOUND,
        help="MiniLM splits rare words into pieces and adds [CLS] and [SEP].",
    )
    layer = None
    with row:
        if real:
            d_model, num_heads = heads.MINILM_WIDTH, heads.MINILM_HEADS
            layer = st.select_slider(
                "MiniLM's layer",
                range(heads.MINILM_LAYERS),
                LAYER,
                key=key("layer"),
                **BOUND,
                help="Layers are counted from 0, the first",
            )
        else:
            d_model, num_heads = _draw_sizes(idea)
        kv_heads, length, depth = _draw_idea(idea, num_heads)
    head, latent, seed = _draw_more(corner, idea, real, d_model, num_heads)
    cut = tokenize(text)
    notes = list(cut.notes)
    if len(cut.tokens) > MAX_TOKENS:
        notes.append(f"The first {MAX_TOKENS} of {len(cut.tokens)} words are shown.")
        text = " ".join(cut.tokens[:MAX_TOKENS])
    controls = Controls(
        idea,
        labels(cut.tokens[:MAX_TOKENS]),
        tuple(notes),
        d_model,
        num_heads,
        seed,
        head,
        kv_heads,
        latent,
        length,
        depth,
        layer,
        text,
    )
    with picture("heads"):
        shown = show(controls)
    if shown is not None:
        question, draw_rest = shown
        if question is not None:
            predict(key(controls.idea), question)
        try_this("heads", moves(controls.idea))
        paragraph(f"## What it means\n\n{MEANING[controls.idea]}")
        draw_rest()
        details("Equation, paper and code", partial(sources, controls), key("source"))
    write_start("heads")


def show(controls: Controls) -> Shown | None:
    """Draw the maps and the sentence, or an error."""
    if not controls.tokens:
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
        return None
    try:
        if controls.layer is not None:
            controls = replace(controls, tokens=read_tokens(controls.text, controls.layer))
        with one_thread():
            shown = {"split": split, "shared": shared, "subtract": subtract}[controls.idea](
                controls
            )
    except (ConfigError, PretrainedError) as error:
        st.error(plain(str(error)))
        return None
    add_script(partial(script, controls))
    return shown


def read_tokens(words: str, layer: int) -> tuple[str, ...]:
    """MiniLM's tokens of the words; words of the reader's own need the model."""
    if words == heads.MINILM_TEXT:
        return qkv_of(words, layer).tokens
    with st.spinner("MiniLM (91\u00a0MB) reads the words."):
        return qkv_of(words, layer).tokens


def split(controls: Controls) -> Shown:
    """Draw one head and several side by side."""
    one, many = (split_of(controls, heads) for heads in (1, controls.heads))
    cell, place = draw_split(controls, one, many)
    with place:  # below the map of one head, which is the smaller picture
        fact(split_fact(controls, one, many, cell))
        caption(
            RANDOM.format(controls.seed) if controls.layer is None else jobs(many, controls.tokens)
        )
    return split_question(controls, one, many), partial(below_split, controls, many, cell[0])


def below_split(controls: Controls, many: Split, word: int) -> None:
    """Draw the equations, and what each head adds to a word; one click further how the heads differ."""
    equation(SPLIT_LATEX, f"= {controls.d_model} / {controls.heads} = {controls.head_dim}")
    equation(JOIN_LATEX, "")
    lengths = lengths_of(controls)[:, word]
    # The length of what each head adds to one word's new vector, a bar for each head, (H,)
    longest, colour = float(lengths.max()) or 1.0, CATEGORIES[theme()][0]
    title = f"Length of what each head adds to “{controls.tokens[word]}”"
    label = ", ".join(
        f"head {head} {formats.number(float(each))}" for head, each in enumerate(lengths)
    )
    lines = "".join(
        f'<div style="display:flex;gap:8px"><div style="flex:0 0 52px;text-align:right">head {head}</div>'
        f'<div style="height:14px;margin-top:2px;border-radius:2px;background:{colour};'
        f'width:{round(LONGEST * float(each) / longest, 1)}%"></div>'
        f"<div>{formats.number(float(each))}</div></div>"
        for head, each in enumerate(lengths)
    )
    st.html(
        f'<div role="img" aria-label="{escape(f"{title}: {label}")}" style="font-size:13px;line-height:18px;'
        f'max-width:560px"><div style="font-size:14px;font-weight:600;margin-bottom:4px">{escape(title)}</div>'
        f"{lines}</div>"
    )
    paragraph(joined(lengths, controls.tokens[word]))
    details(
        "How the heads differ, in numbers", partial(differences, controls, many), key("differences")
    )


def differences(controls: Controls, many: Split) -> None:
    """Draw the overlap of heads, every split as a row, and every head as a row."""
    left, right = st.columns([0.44, 0.56] if many.heads > MAX_HEADS else [0.34, 0.66], gap="medium")
    with left:
        st.html(overlap_square(overlap(many.weights), theme()))
    with right:
        every = (
            (1, 2, 4, MAX_HEADS, controls.heads) if controls.layer is None else (1, controls.heads)
        )
        counts = sorted({heads for heads in every if controls.d_model % heads == 0})
        table(
            SPLIT_HEAD,
            split_rows(controls, [split_of(controls, heads) for heads in counts]),
            markers=False,
            caption="The same layer as one head and as several",
        )
        even = math.log(len(controls.tokens))
        caption(
            " ".join(
                [
                    "Every row of the table is the same layer, divided into another number of heads. Entropy is in "
                    f"nats (uniform weights on {len(controls.tokens)} words have {number(even)}), the distance from "
                    f"query to key in words. Overlap is the weight that two heads put on the same words. "
                    f"{conditions(controls)}",
                    *controls.notes,
                ]
            )
        )
        if many.heads > 1:
            table(HEAD_HEAD, head_rows(many), markers=False, caption="Each head")


def shared(controls: Controls) -> Shown:
    """Draw the same head under four projections."""
    configs = heads.projections(
        controls.d_model, controls.heads, controls.kv_heads, controls.latent
    )
    caches = [cache_of(controls, config) for config in configs]
    real = controls.layer is not None
    tiles = [
        Tile(projection_name(each), cache_note(each, real), each.weights[controls.head])
        for each in caches
    ]
    weights = caches[0].weights[controls.head]
    if real:
        query, column = largest_word_cell(weights[None], controls.tokens)
    else:
        query, column = int(weights.max(-1).argmax()), None  # the query with the largest weight
    draw(
        tiles,
        controls,
        "shared",
        height=SMALL,
        query=query,
        column=column,
        fact=f"Head {controls.head} of {controls.heads} with four ways to store keys and values",
    )
    fact(shared_fact(controls, caches))
    half = cache_of(replace(controls, length=controls.length // 2), configs[0])
    # How the cache grows when the text becomes twice as long
    full = caches[0]
    growth = full.bytes / half.bytes
    sizes = (
        f"For {controls.length // 2:,} tokens the cache of multi-head attention has {byte_size(half.bytes)}, for "
        f"{controls.length:,} tokens {byte_size(full.bytes)}: every token adds a key and a value to each head."
    )
    return (
        Question(
            "The text becomes twice as long. How does the cache of each projection grow?",
            ("it keeps its size", "to twice its size", "to four times its size"),
            0 if growth < 1.5 else 1 if growth < 3 else 2,
            (
                f"{sizes} Only a model that forgets old tokens keeps its size.",
                sizes,
                f"{sizes} The number of scores becomes four times as large, but scores are not stored.",
            ),
        )
    ), partial(below_shared, controls, caches)


def below_shared(controls: Controls, caches: Sequence[heads.CacheSize]) -> None:
    """Draw the equation, and the cache of each projection as bars and as a table."""
    equation(
        SHARED_LATEX,
        f"= {',   '.join(f'{each.numbers:,}' for each in caches)} numbers for each token",
    )
    caption(SHARED_SYMBOLS)
    left, right = st.columns([0.36, 0.64], gap="medium")
    # Bytes cached, a bar for each projection, with the amount at its end
    largest = max(each.bytes for each in caches)
    names = [entry("projection", each.config.projection.key).name for each in caches]
    title = f"Cache of {controls.length:,} tokens, one layer"
    label = ", ".join(
        f"{name} {byte_size(each.bytes)}" for name, each in zip(names, caches, strict=True)
    )
    lines = "".join(
        f'<div style="flex:0 0 104px;text-align:right">{escape(name)}</div><div style="height:18px;'
        f'border-radius:2px;width:{round(LONGEST * each.bytes / largest, 1)}%;background:{colour}"></div>'
        f"<div>{byte_size(each.bytes)}</div>{BREAK}"
        for name, each, colour in zip(names, caches, CATEGORIES[theme()], strict=False)
    )
    left.html(
        f'<div role="img" aria-label="{escape(f"{title}: {label}")}" style="font-size:13px;line-height:18px">'
        f'<div style="font-size:14px;font-weight:600;margin-bottom:8px">{title}</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:10px 8px;align-items:center">{lines}</div></div>'
    )
    with right:
        table(
            SHARED_HEAD,
            [
                [
                    projection_name(each),
                    f"{each.numbers:,}",
                    f"{each.bytes:,}",
                    f"{each.parameters:,}",
                    _optional(each.overlap),
                ]
                for each in caches
            ],
            caption="What is stored for each token, with four ways to store keys and values",
        )
    equal = all(each.bytes == BYTES * each.numbers * controls.length for each in caches)
    formula = "as many as the formula says" if equal else "not as many as the formula says"
    caption(
        " ".join(
            [
                f"Bytes are measured on the cached tensors of {controls.length:,} random tokens in one layer, fp32, "
                f"{formula}; a number has {BYTES} bytes. Shared heads are the means of the multi-head layer's heads, as "
                "when a grouped-query model is made from a multi-head model. Latent attention has its own random weights and "
                "a rotated key next to the latent vector. Overlap is the weight that two heads put on the same words. "
                f"{conditions(controls)}",
                *controls.notes,
            ]
        )
    )


def subtract(controls: Controls) -> Shown:
    """Draw a differential head's two maps and their difference."""
    two = two_maps_of(controls)
    words = controls.layer is not None  # [CLS] and [SEP] have most weight in MiniLM
    row, column = (
        largest_word_cell(two.difference[None], controls.tokens)
        if words
        else divmod(int(two.difference.argmax()), two.difference.shape[1])
    )
    tiles = [
        Tile("A₁", "map of the first query and key", two.first),
        Tile("λA₂", f"λ = {number(two.weight)} times the second map", two.weight * two.second),
        Tile(f"A₁ {MINUS} λA₂", "the weights of the values", two.difference),
    ]
    pin = draw(
        tiles,
        controls,
        "subtract",
        first=len(tiles) - 1,
        height=LARGE,
        query=row,
        column=column,
        fact=f"Head {controls.head} of {controls.heads}: two maps and their difference",
    )
    cell = pin or (row, column)
    fact(subtract_fact(controls, two, cell))
    # The sum of a row of the difference
    total, weight = float(two.difference.sum(1).mean()), two.weight
    options = (0.0, 1 - weight, 1.0)
    sums = (
        f"A row of the first map has the sum 1, and a row of the second λ = {number(weight)} after the "
        f"multiplication. Their difference has the sum {number(total)}."
    )
    return (
        Question(
            "The weights of a softmax have the sum 1 in each row. What is the sum of a row of A₁ − λA₂?",
            ("0", "1 − λ", "1"),
            min(range(3), key=lambda index: abs(options[index] - total)),
            (
                f"{sums} It would be 0 only with λ = 1.",
                sums,
                f"{sums} It would be 1 only with λ = 0.",
            ),
        )
    ), partial(below_subtract, controls, two, cell)


def below_subtract(controls: Controls, maps: heads.TwoMaps, cell: TextCell) -> None:
    """Draw the picked cell as an equation, and the conditions."""
    first, second, result = (
        number(map_[cell]) for map_ in (maps.first, maps.second, maps.difference)
    )
    equation(SUBTRACT_LATEX, f"= {first} {MINUS} {number(maps.weight)} · {second} = {result}")
    half = controls.head_dim // 2
    start = f"0.8 {MINUS} 0.6·e^({MINUS}0.3·{controls.depth - 1}) = {number(maps.start)}"
    caption(
        " ".join(
            [
                f"Each head has two queries and two keys of {half} numbers instead of one of {controls.head_dim}, and one "
                f"value. λ depends on the layer set above, which is counted from 1: in layer {controls.depth} it starts near "
                f"{start} and is then learned. A row has the sum 1 {MINUS} λ = {number(1 - maps.weight)}; a norm "
                f"in each head corrects this. {conditions(controls)}",
                *[
                    "MiniLM was not trained to subtract: its query and key are divided into two halves here."
                ]
                * (controls.layer is not None),
                *controls.notes,
            ]
        )
    )


def equation(symbols: str, numbers: str) -> None:
    """Draw an equation in symbols, and its numbers as plain text: typesetting them takes a rerun too long."""
    with st.container(
        horizontal=True, horizontal_alignment="center", vertical_alignment="center", gap="xsmall"
    ):
        st.markdown(rf"$\displaystyle {symbols}$", width="content")
        html = f'<span style="font:1.21em KaTeX_Main,serif;white-space:pre-wrap">{escape(numbers)}</span>'
        st.html(html, width="content")


def sources(controls: Controls) -> None:
    """Draw equation, meaning and paper, and the classes that just ran."""
    entries_panel(entry("projection", name) for name in ENTRIES[controls.idea])
    for built in SOURCES[controls.idea]:
        source_panel(built)


# The questions and the things to try on this page; each answer is computed from what the page shows.


def split_question(controls: Controls, one: Split, many: Split) -> Question | None:
    """Whether several heads have more parameters than one; None for one head."""
    if many.heads == 1:
        return None
    counts = one.parameters, many.parameters
    same = (
        f"Both have {counts[0]:,} parameters: the matrices $W_q$, $W_k$, $W_v$ and $W_o$ are the same. "
        f"{many.heads} heads divide the {controls.d_model} columns of the first three into {many.heads} groups of "
        f"{controls.head_dim}."
    )
    return Question(
        f"The layer is used with one head, or with {many.heads} heads. Which has more parameters?",
        ("one head", "both the same", f"{many.heads} heads"),
        1 if counts[0] == counts[1] else 0 if counts[0] > counts[1] else 2,
        (
            f"{same} One head is wider, not larger.",
            same,
            f"{same} More heads give more maps, not more parameters.",
        ),
    )


def moves(idea: str) -> tuple[Move, ...]:
    """Three things to try for each idea."""
    random = Move(
        "Random weights",
        {key("weights"): "random"},
        "The heads differ here by chance. In MiniLM, training made them different.",
    )
    ideas = {
        "split": Move(
            "One head or many",
            {key("idea"): "split"},
            "The same numbers are shown as one head and as several heads.",
        ),
        "shared": Move(
            "Later: share keys and values",
            {key("idea"): "shared"},
            "Fewer heads of keys and values need a smaller cache. The last column of the table says how "
            "similar the maps of two heads are then.",
        ),
        "subtract": Move(
            "Later: subtract two maps",
            {key("idea"): "subtract"},
            "In the map A₁ − λA₂, purple cells are weights below 0. A softmax alone cannot make them.",
        ),
    }
    first = Move(
        "MiniLM's first layer",
        {key("weights"): "minilm", key("layer"): 0},
        "In head 2 of layer 0 nearly all weight is on the token before.",
    )
    others = [move for name, move in ideas.items() if name != idea]
    return (first, random, *others) if idea == "split" else (random, *others)


# What a link of this page says: the weights that it leaves out, and values that the page lacks.


# Overlap of heads as a square of numbers, and cache sizes as bars: plain HTML, which a rerun draws at once.


def overlap_square(overlap: np.ndarray, theme: Theme) -> str:
    """Heads by heads: the share of weight in common, in the blue of weights, with its number."""
    heads = range(len(overlap))
    head = '<th scope="col"></th>' + "".join(f'<th scope="col">{j}</th>' for j in heads)
    rows = "".join(
        f'<tr><th scope="row">{i}</th>{"".join(_cell(overlap[i, j], i, j, theme) for j in heads)}</tr>'
        for i in heads
    )
    return (
        f"<style>.overlap{{border-collapse:separate;border-spacing:1px;font-size:11px;line-height:{CELL}px}}"
        f".overlap th{{font-weight:400;font-size:12px;opacity:.62;min-width:16px}}"
        f".overlap td{{width:{CELL}px;padding:0;text-align:center}}</style>"
        '<div style="font-size:14px;font-weight:600">Overlap of heads</div>'
        '<div style="font-size:13px;opacity:.62;margin-bottom:4px">'
        "the weight that two heads put on the same words</div>"
        '<table class="overlap" aria-label="Weight that two heads put on the same words">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _cell(share: float, i: int, j: int, theme: Theme) -> str:
    """One pair of heads; a head's overlap with itself is 1 and has no number."""
    stops = colour_scale(theme)
    fill = stops[round(min(1.0, max(0.0, float(share))) * (len(stops) - 1))]
    colour = stops[0] if share >= DARK else stops[-1]
    whole = formats.number(share)
    text = "" if i == j else formats.cell(whole)
    return f'<td style="background:{fill};color:{colour}" title="head {i} and head {j}: {whole}">{text}</td>'
