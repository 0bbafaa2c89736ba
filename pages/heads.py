"""Heads: one or many at the same width, keys and values shared, and two maps subtracted."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any, TypeAlias, TypeVar

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.attention import AttentionConfig, Choice, entry, heads_that_divide
from core.interpret import trace as analysis
from core.interpret.trace import head_name
from core.pretrained import PretrainedError
from core.seeding import pooled_layer
from core.studies import heads
from core.tokens import SENTENCE, labels, tokenize

# The page's controls: an idea, the weights, the words, and the sizes of the layer.

T = TypeVar("T")
IDEAS = {
    "split": "One head or many",
    "shared": "Shared keys and values",
    "subtract": "Two maps, subtracted",
}
WEIGHTS = {"minilm": "MiniLM", "random": "Random"}
LAYER, HEAD = 3, 1  # of MiniLM: here "it" attends to "animal"
D_MODEL, HEADS, SEED, LENGTH, DEPTH = 64, 4, 126, 4096, 4
MAX_HEADS, MAX_TOKENS = 8, 32


def heads_that_fit(idea: str, d_model: int) -> list[int]:
    """The numbers of heads that divide d_model; for two maps a head, those whose heads have two whole halves."""
    fits = heads_that_divide(d_model, MAX_HEADS)
    even = [heads for heads in fits if d_model // heads % 2 == 0]
    return even or fits if idea == "subtract" else fits


def heads_key(idea: str, d_model: int) -> str:
    return f"heads:{idea == 'subtract'}:{d_model}"


def is_real(values: lab.Values) -> bool:
    return bool(values.weights == "minilm")


class Controls(lab.Fields, page="heads"):
    idea = lab.Segmented(
        "Idea",
        IDEAS,
        help="How a layer can use heads: divide into them, share keys among them, or subtract two maps",
        also={"wrap": True},
    )
    weights = lab.Segmented(
        "Weights",
        WEIGHTS,
        lambda _: st.session_state["heads:start"],
        help="MiniLM: the queries, keys and values of a trained model, all-MiniLM-L6-v2. "
        "Random: a layer of any size before training.",
    )
    text = lab.Text(
        "Sentence",
        lambda _: heads.MINILM_TEXT if st.session_state["heads:start"] == "minilm" else SENTENCE,
        key="tokens",
        help="MiniLM splits rare words into pieces and adds [CLS] and [SEP].",
    )
    layer = lab.SelectSlider(
        "MiniLM's layer",
        range(heads.MINILM_LAYERS),
        LAYER,
        span=2,
        help="MiniLM has 6 layers, each with 12 heads. Both count from 0.",
    ).optional(is_real)
    d_model = lab.SelectSlider[int](
        "d_model",
        lambda values: (
            [heads.MINILM_WIDTH]
            if is_real(values)
            else ([size for size in lab.D_MODELS if 4 <= size <= 256])
        ),
        lambda values: heads.MINILM_WIDTH if is_real(values) else D_MODEL,
        help="How many numbers each word's vector has",
        also=lambda values: lab.keep_heads(
            "heads:d_model",
            lambda width: f"heads:{heads_key(values.idea, width)}",
            lambda width: heads_that_fit(values.idea, width),
        ),
    )
    heads = lab.SelectSlider[int](
        "Heads",
        lambda values: (
            [heads.MINILM_HEADS] if is_real(values) else heads_that_fit(values.idea, values.d_model)
        ),
        lambda values: (
            heads.MINILM_HEADS
            if is_real(values)
            else max(n for n in heads_that_fit(values.idea, values.d_model) if n <= HEADS)
        ),
        key=lambda values: heads_key(values.idea, values.d_model),
        hidden=True,
        help="Into how many heads the d_model numbers are divided",
    )
    kv_heads = lab.SelectSlider(
        "KV heads, G",
        lambda values: heads_that_divide(values.heads),
        lambda values: heads_that_divide(values.heads)[-2:][0],  # the most below the heads
        key=lambda values: f"kv:{values.heads}",
        help="Heads of keys and values in grouped-query attention; each serves H / G query heads",
    ).optional(lambda values: values.idea == "shared")
    length = lab.SelectSlider(
        "Cached tokens",
        [128, 512, 1024, 2048, 4096, 8192, 16384],
        LENGTH,
        text="{:,}".format,
        help="The number of tokens whose keys and values a decoder has stored",
    ).optional(lambda values: values.idea == "shared")
    depth = lab.Number(
        "Layer for λ",
        DEPTH,
        1,
        48,
        slider=True,
        help="λ at the start of training depends on the layer, counted from 1: 0.2 in the first, near 0.8 in "
        "the last",
    ).optional(lambda values: values.idea == "subtract")
    head = lab.SelectSlider(
        "Head shown",
        lambda values: range(values.heads),
        lambda values: HEAD if is_real(values) else 0,
        key=lambda values: f"head:{values.heads}",
        help="Heads are counted from 0",
    ).optional(lambda values: values.idea != "split")
    latent = lab.Number(
        "Latent size, R",
        lambda values: min(4 * values.d_model // values.heads, values.d_model // 2),
        1,
        512,
        key=lambda values: f"latent:{values.d_model}:{values.heads}",
        help="How many numbers latent attention stores for the content of a token",
    ).optional(lambda values: values.idea == "shared")
    dim = lab.Toggle(
        "Dim [CLS] and [SEP]",
        help="Draws the columns of MiniLM's two marks faintly, so that the words stand out",
    ).optional(lambda values: is_real(values) and values.idea == "split")
    seed = lab.Number(
        "Seed",
        SEED,
        0,
        999_999,
        help="The random weights and word vectors are drawn from this number",
    ).optional(lambda values: not is_real(values))


def draw_controls() -> lab.Values:
    """Draw the controls; returns their values, the tokens with notes about them, and what the layer is read from."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        sentence, place = st.container(width=lab.room(480)), st.container()  # a phone stacks them
        with st.popover("More", icon=":material/tune:", help="The idea, the weights, the head"):
            values = Controls.draw("idea", "weights", "dim", into=lab.HERE)
            more = st.container()
    with sentence:
        values = Controls.draw("text", into=lab.HERE, **values)
    with place:
        values = Controls.draw("layer", "d_model", "heads", "kv_heads", "length", "depth", **values)
    real = is_real(lab.Values(vars(values)))
    if not real:
        lab.note_heads("heads:d_model", values.d_model, values.heads)
    values = Controls.draw("head", "latent", "seed", into=more, **values)
    cut = tokenize(values.text, MAX_TOKENS)
    tokens, text = labels(cut.tokens), " ".join(cut.tokens) if cut.notes else values.text
    source = (text, values.layer) if real else (tokens, values.d_model, values.heads, values.seed)
    return lab.Values(**values, tokens=tokens, notes=cut.notes, source=source)


# The studies of the layer that the controls choose.


def qkv_of(source: tuple[Any, ...]) -> heads.QKV:
    """The queries, keys and values of a random layer, or of MiniLM's: saved ones of its sentence, else by running it.

    PretrainedError when the model cannot be loaded or read the text.
    """
    if len(source) == 4:
        return heads.random_qkv(*source)
    text, layer = source
    if text == heads.MINILM_TEXT:
        return lab.shared(heads.saved_qkv, layer)
    return lab.study_of(heads.read_qkv, lab.EMBEDDED, text, layer)


def _of_source(study: Callable[..., T], source: tuple[Any, ...], *args: Any) -> T:
    return study(qkv_of(source), *args)


def of_layer(values: lab.Values, study: Callable[..., T], *args: Any) -> T:
    return lab.cached(_of_source, study, values.source, *args)


# Sentences, numbers in equations, and tables of the page Heads.


BYTES = 4  # of a number, fp32
RANDOM = (
    "Weights and word vectors are random (seed {}). Every number is computed, but which word gets more weight "
    "has no meaning before training."
)
READER = (
    "MiniLM, a small trained model, reads pieces of words and adds [CLS] and [SEP]; heads often attend to [CLS] "
    "when no word fits."
)
ABOUT_MINILM = (
    "MiniLM is a small trained model that turns a sentence into a vector, for search. It has "
    f"{heads.MINILM_LAYERS} layers: each is one attention with {heads.MINILM_HEADS} heads and a feed-forward network, "
    "and reads the vectors that the layer before it put out."
)


def conditions(values: lab.Values) -> str:
    if values.layer is None:
        return RANDOM.format(values.seed)
    saved = f", saved on {heads.saved_on()}" if values.source[0] == heads.MINILM_TEXT else ""
    return (
        f"Queries, keys and values are those of layer {values.layer} of all-MiniLM-L6-v2, a trained model with "
        f"{heads.MINILM_HEADS} heads{saved}."
    )


def split_fact(
    values: lab.Values, weights: np.ndarray, shown: Sequence[lab.Pair], row: int, first: int | None
) -> str:
    """What a word gives most to in each head (H, T, T) of `shown`, (head, key); or what the `first` head gives one key."""
    word, layer = f":primary[{lab.plain(values.tokens[row])}]", values.layer or 0
    if first is not None:
        key = shown[0][1]
        of_heads = weights[:, row, key]
        best = int(of_heads.argmax())
        others = f"the mean of {len(weights)} heads is {lab.share_text(of_heads.mean())}"
        if first != best:
            others = (
                f"most in {head_name(layer, best)}, {lab.share_text(of_heads[best])}, and {others}"
            )
        return (
            f"{word} gives “{lab.plain(values.tokens[key])}” **{lab.share_text(of_heads[first])}** in "
            f"{head_name(layer, first)} "
            f"(layer {layer}, head {first}); {others}."
        )
    each = ", ".join(
        f"“{lab.plain(values.tokens[key])}” in {head_name(layer, head)} (**{lab.share_text(weights[head, row, key])}**)"
        for head, key in shown
    )
    return f"Of the other words, {word} gives most to {each}."


def jobs(many: heads.Split, tokens: Sequence[str]) -> str:
    """What MiniLM and a layer are, and the column that most heads attend to."""
    first = many.weights.mean(1).argmax(1) == 0
    share = lab.share_text(many.weights[first, :, 0].mean()) if first.any() else "0"
    return (
        f"{ABOUT_MINILM} In {int(first.sum())} of the {many.heads} heads the first column, {tokens[0]}, gets the "
        f"largest share of any token, mean of all rows ({share} on average in these heads): a head often attends to "
        "it when no word fits (Clark et al., 2019)."
    )


def shared_fact(values: lab.Values, caches: Sequence[heads.CacheSize]) -> str:
    many, grouped, one, _ = caches
    sizes = (
        f"For {values.length:,} tokens multi-head attention caches **{lab.byte_size(many.bytes)}** in each layer, "
        f"{lab.plural(values.kv_heads, 'shared KV head')} {lab.byte_size(grouped.bytes)}, and a single one "
        f"{lab.byte_size(one.bytes)}."
    )
    if many.overlap is None or one.overlap is None:
        return sizes
    return (
        f"{sizes} With one KV head for all, two heads have **{lab.number(one.overlap)}** of their weight on the same "
        f"words instead of {lab.number(many.overlap)}: their maps are "
        f"{'more' if one.overlap > many.overlap else 'less'} similar."
    )


def subtract_fact(tokens: Sequence[str], maps: heads.TwoMaps, cell: lab.Pair) -> str:
    row, column = cell
    first, second = maps.first[row, column], maps.weight * maps.second[row, column]
    least = int(maps.difference[row].argmin())
    lowest = maps.difference[row, least]
    bold = "**" if lowest < 0 else ""
    return (
        f":primary[{lab.plain(tokens[row])}] gives “{lab.plain(tokens[column])}” {lab.number(first)} {lab.MINUS} "
        f"{lab.number(second)} = "
        f"**{lab.number(first - second)}** and its lowest weight, {bold}{lab.number(lowest)}{bold}, to "
        f"“{lab.plain(tokens[least])}”. The two maps have {lab.number(maps.common)} of their weight on the same keys, and "
        f"{int((maps.difference < 0).sum())} of {maps.difference.size} weights are below 0."
    )


def _optional(value: float | None) -> str:
    return "–" if value is None else lab.number(value)


# The maps of each idea, under one crosshair and with one pin, which is also in the link.


SMALL, LARGE = 260, 420  # pixels of a map: of one of many heads, and of three maps in a row
ROW = 40  # pixels of a row of weights, at most
CELL = 28  # pixels, which two digits fill at the smallest size
LINK = "heads:maps"  # the maps share a crosshair and a pin
PRESSED = "heads:pressed"  # in the link: layer and head that were pressed in the grid of all heads


def pinned_cell(values: lab.Values, name: str) -> lab.Pair | None:
    size, key = len(values.tokens), f"heads:{name}"
    pin = lab.read_linked("heads", "heads:pin", (size, size), values.tokens)
    return lab.settle_pin(lab.stores(key, LINK)[1], key, pin, (size, size))


def draw(
    tiles: Sequence[lab.Tile], values: lab.Values, name: str, pin: lab.Pair | None, **options: Any
) -> lab.Pair | None:
    pin = lab.multiples(tiles, values.tokens, key=f"heads:{name}", link=LINK, pin=pin, **options)
    return lab.write_linked("heads", "heads:pin", pin)


def pressed_head(values: lab.Values) -> int | None:
    """The head of MiniLM's layer on the page that was pressed in the grid of all heads."""
    if not is_real(values):
        return None
    bounds = heads.MINILM_LAYERS, heads.MINILM_HEADS
    layer, head = lab.read_linked("heads", PRESSED, bounds, values.tokens) or (None, None)
    return head if layer == values.layer else None


def draw_split(
    values: lab.Values, many: heads.Split, chosen: list[int], pressed: int | None
) -> lab.Pair:
    """Draw what a word attends to in the `chosen` heads, then their maps; returns the picked cell."""
    pin = pinned_cell(values, "chosen")
    row, column = cell = pin or heads.largest_word_cell(many.weights[chosen], values.tokens)
    key = column if pin or row == column else None  # without another word, the word itself
    shown = heads.word_targets(many.weights, values.tokens, chosen, row, key)
    best = shown[0][0] if key is None else int(many.weights[:, row, key].argmax())
    best = best if pressed is None else pressed  # which the sentence names first
    lab.fact(split_fact(values, many.weights, shown, row, None if key is None else best))
    left, right = st.columns([0.44, 0.56], gap="medium")
    options: dict[str, Any] = {"dimmed": (0, len(values.tokens) - 1) if values.dim else ()}
    draw(
        head_tiles(many, chosen, values),
        values,
        "chosen",
        pin,
        query=cell[0],
        column=cell[1],
        height=LARGE,
        first=chosen.index(best) if best in chosen else 0,
        fact=f"{len(chosen)} of {many.heads} heads of {values.d_model // many.heads} numbers",
        **options,
    )
    with left:
        if is_real(values):
            every_layer(values, row, shown[0][1], best)
        lab.caption(READER if is_real(values) else RANDOM.format(values.seed))
    with right:
        lab.multiples(
            [
                lab.Tile(
                    f"What “{values.tokens[row]}” attends to",
                    "",
                    many.weights[:, row],
                    marker=-1,
                )
            ],
            [head_name(values.layer or 0, head) for head in range(many.heads)],
            values.tokens,
            key="heads:row",
            query=best,
            column=shown[0][1],
            reads="head (row) attends to → key (column)",
            height=ROW * many.heads,
            legend=False,
            **options,
        )
    of = "" if pressed is None else " the pressed one, and"
    of = f" Maps:{of} those of the {many.heads} heads with the largest weight on another word."
    of += " Above each: that weight, and what all rows attend to most, on average."
    lab.caption(f"Layers and heads count from 0.{of * (len(chosen) < many.heads)}")
    return cell


def every_layer(values: lab.Values, row: int, column: int, head: int) -> None:
    """Draw how much one word gives another in each head of MiniLM; a press of a cell opens that head."""
    layers, of = range(heads.MINILM_LAYERS), heads.MINILM_HEADS
    cells = [
        {
            "layer": f"L{layer}",
            "head": str(at),
            "change": float(weight),
            "name": head_name(layer, at),
            "by": lab.share_text(weight),
        }
        for layer in layers
        for at, weight in enumerate(
            lab.cached(_of_source, heads.split, (values.source[0], layer), of).weights[
                :, row, column
            ]
        )
    ]
    words = f"“{values.tokens[row]}” → “{values.tokens[column]}”"

    def open_head(name: str, head: int) -> None:
        st.session_state["heads:layer"] = int(name[1:])
        lab.write_linked("heads", PRESSED, (int(name[1:]), head))
        lab.write_linked(
            "heads", "heads:pin", (row, column)
        )  # the other layer shows the same words

    lab.caption("layer (row), head (column)")
    lab.chart_title(f"{lab.plain(words)} in every head; a press opens it")
    lab.effect_chart(
        "heads:layers",
        f"Weight of {words} in each of {len(cells)} heads",
        open_head,
        cells,
        [f"L{layer}" for layer in layers],
        [str(at) for at in range(of)],
        (f"L{values.layer}", str(head)),
        title="",
        tips=(("name", "head"), ("by", "weight")),
        has_sign=False,
        largest=1.0,
    )


def head_tiles(many: heads.Split, chosen: Sequence[int], values: lab.Values) -> list[lab.Tile]:
    marked = many.heads <= len(lab.MARKS)  # with more heads there is no mark for each
    return [
        lab.Tile(
            head_name(values.layer or 0, head),
            head_note(many.weights[head], values.tokens),
            many.weights[head],
            marker=head if marked else -1,
        )
        for head in chosen
    ]


def head_note(weights: np.ndarray, tokens: Sequence[str]) -> str:
    """A head's largest weight from one word to another, and what its rows attend to most."""
    row, column = heads.largest_word_cell(weights[None], tokens)
    target, share = heads.main_target(weights, tokens)
    return f"{tokens[row]} → {tokens[column]} {lab.share_text(weights[row, column])}; {target} {lab.share_text(share)}"


def all_heads(values: lab.Values, many: heads.Split, row: int, column: int) -> None:
    tiles, pin = head_tiles(many, range(many.heads), values), pinned_cell(values, "many")
    draw(tiles, values, "many", pin, query=row, column=column, height=SMALL)
    if is_real(values):
        lab.caption(jobs(many, values.tokens))


def trained_heads() -> None:
    """One head against several that were trained alike, as `make heads` saved them."""
    saved = lab.cached(heads.load_trained)
    *models, fed = saved.measured
    one, *_, four = models
    names = [lab.plural(each.heads, "head") for each in models]
    word, ink = heads.EXAMPLE, lab.Ink.of(lab.theme())
    before, letter, after = (word[heads.QUERY + step] for step in (-1, 0, 1))
    shares = [each.weights[0][heads.QUERY + step] for each in (one, fed) for step in (-1, 1)]
    left, right = st.columns(2, gap="medium")
    with left:
        lab.draw_chart(
            st,
            lab.seed_marks(
                "Neighbours that are named",
                [
                    (name, each.accuracy, ink.series[0], "circle")
                    for name, each in [
                        *zip(names, models, strict=True),
                        ("1 head, feed-forward", fed),
                    ]
                ],
                {
                    "field": "x",
                    "type": "quantitative",
                    "scale": {"domain": [0, 1], "nice": False},
                    "axis": {"title": None, "format": "%", "values": [0, 0.5, 1], "grid": False},
                },
                ink,
                ends=(0.0, 1.0),
                write=lab.percent,
            ),
            key="heads:accuracy",
            alt="Share of the neighbours that each trained model names, a mark for each seed",
        )
    with right:
        rows = np.array([*one.weights, *four.weights])
        lab.multiples(
            [lab.Tile(f"What “{letter}” attends to", "", rows, marker=-1)],
            ["1 head", *[f"Head {head} of 4" for head in range(four.heads)]],
            list(word),
            key="heads:trained:row",
            query=0,
            column=heads.QUERY - 1,
            reads="head (row) attends to → key (column)",
            height=ROW * len(rows),
            legend=False,
        )
    low, high = one.accuracy.interval or (one.accuracy.mean,) * 2
    lab.fact(
        f"Each letter has to name the letter before it and the letter after it. One head names "
        f"**{lab.percent(one.accuracy.mean)}** of them (95{lab.SPACE}% interval {lab.percent(low)} to "
        f"{lab.percent(high)}), four heads "
        f"**{lab.percent(four.accuracy.mean)}**, with the same {four.parameters:,} parameters."
    )
    lab.caption(
        f"The one head gives “{before}” {lab.share_text(shares[0])} and “{after}” {lab.share_text(shares[1])}: it "
        f"reads a mix of "
        "both letters, which no longer says which of them came first. Of the four heads some read one letter alone. With a "
        f"feed-forward network behind it, which can take apart a mix of unequal weights ({lab.share_text(shares[2])} and "
        f"{lab.share_text(shares[3])}), one head names {lab.percent(fed.accuracy.mean)}. One layer of attention of width "
        f"{heads.TRAINED_WIDTH} and a linear layer, {heads.STEPS} steps on random letters, {heads.SEEDS} seeds, each "
        f"model at the best of {len(heads.RATES)} learning rates. Saved on {saved.date}, {saved.machine}.",
    )


# What the page computes as Python, with MiniLM's weights or with random ones.


def note(
    values: lab.Values, words: str, code: str, maps: str, drawn: str, results: Mapping[str, Any]
) -> None:
    """Note as the page's Python the layer and what an idea makes of it; `maps` is the code of the picture `drawn`."""
    imports, read, made = "", "random_qkv", ", ".join(map(lab.source_of, values.source))
    about = "The words as random vectors, and their queries, keys and values in a layer with seeded weights."
    if is_real(values):
        text, layer = values.source
        imports, read = "from core.pretrained import load_minilm\n", "read_qkv"
        made = f"load_minilm(), {lab.source_of(text)}, {layer}"
        about = "The queries, keys and values of one layer of MiniLM."
    lab.add_script(
        lambda: lab.Script(
            (
                lab.Cell(
                    about,
                    f"""
{imports}from core.studies.heads import {read}

qkv = {read}({made})
""",
                ),
                lab.Cell(
                    words,
                    code,
                    f"""
from dashboard.show import show_maps

show_maps({maps}, qkv.tokens, qkv.tokens)
""",
                    f"heads:{drawn}",
                ),
            ),
            results,
        )
    )


# The page: controls, maps, question and meaning.


MEANING = {
    "split": "A head has its own queries, keys and values, so several heads attend to different words at the same "
    "time. Every head reads the whole vector of a word. The layer is not larger for it: its matrices are divided among "
    "the heads. The outputs of the heads stand side by side, and a last matrix mixes them into the word's new vector, "
    "a sum with one part from each head.",
    "shared": "This is for later; the path goes on without it. A decoder stores the keys and values of all earlier "
    "tokens, because every new token attends to them. "
    "Query heads that share one head of keys and values make this cache smaller.",
    "subtract": "This is for later; the path goes on without it. A differential head makes two maps and subtracts λ "
    "times the second from the first. The weight that "
    "both maps put on the same key cancels.",
}


Shown: TypeAlias = Iterator[
    lab.Question | None
]  # draws the picture, asks a question, draws the rest


def page() -> None:
    lab.read_start("heads", "minilm", "random")
    for sentence in Controls.refused():  # before the first widget takes its value from the link
        st.warning(sentence)
    explore()


@lab.fragment
def explore() -> None:
    lab.export.begin_before_title()
    lab.title(
        "Heads",
        "Each head is an attention of its own, so several can attend to different words.",
        first=False,
    )
    values = draw_controls()
    with lab.picture("heads"):
        rest, question = show(values) or (None, None)
    if rest is not None:
        if question is not None:
            lab.predict(f"heads:{values.idea}", question)
        lab.try_this("heads", moves(values.idea))
        lab.paragraph(f"## What it means\n\n{MEANING[values.idea]}", width=560)
        next(rest, None)
        lab.details("Equation, paper and code", partial(sources, values), "heads:source")
    lab.write_start("heads")


@lab.shown_errors(PretrainedError)
def show(values: lab.Values) -> tuple[Shown, lab.Question | None] | None:
    """Draw the maps and the sentence, or an error; returns what draws the rest, and the question before it."""
    if not values.tokens:
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
        return None
    if is_real(values):
        with st.spinner("MiniLM (91\u00a0MB) reads the words."):
            values["tokens"] = qkv_of(values.source).tokens
    rest = {"split": split, "shared": shared, "subtract": subtract}[values.idea](values)
    return rest, next(rest)


def split(values: lab.Values) -> Shown:
    one, many = (of_layer(values, heads.split, count) for count in (1, values.heads))
    pressed = pressed_head(values)
    chosen = heads.word_heads(many.weights, values.tokens)
    if pressed is not None and pressed not in chosen:
        chosen = sorted([pressed, *heads.word_heads(many.weights, values.tokens, 2)])
    lengths = qkv_of(values.source).lengths
    row, column = draw_split(values, many, chosen, pressed)
    note(
        values,
        "Several heads, and the length of what each adds to a token.",
        f"""
from core.studies.heads import split, word_heads

many, lengths = split(qkv, {values.heads}).weights, qkv.lengths  # (H, T, T), (H, T)
chosen = {"word_heads(many, qkv.tokens)" if pressed is None else chosen}
row = many[chosen, {row}]  # of one token
print("heads with the largest weights on another word", chosen, "largest weight of each", many.max((1, 2)))
""",
        '{f"Head {head}": many[head] for head in chosen}',
        "chosen",
        {"many": many.weights, "row": many.weights[chosen, row], "lengths": lengths},
    )
    counts = one.parameters, many.parameters
    same = (
        f"Both have {counts[0]:,} parameters: the matrices $W_q$, $W_k$, $W_v$ and $W_o$ are the same. "
        f"{many.heads} heads divide the {values.d_model} columns of the first three into {many.heads} groups of "
        f"{values.d_model // many.heads}."
    )
    yield (
        lab.Question(
            f"The layer is used with one head, or with {many.heads} heads. Which has more parameters?",
            ("one head", "both the same", f"{many.heads} heads"),
            1 + int(np.sign(counts[1] - counts[0])),
            (
                f"{same} One head is wider, not larger.",
                same,
                f"{same} More heads give more maps, not more parameters.",
            ),
        )
        if many.heads > 1
        else None
    )
    lengths = lengths[:, row]
    colour, token = lab.CATEGORIES[lab.theme()][0], values.tokens[row]
    names = [head_name(values.layer or 0, head) for head in range(many.heads)]
    bars(
        f"Length of what each head adds to “{token}”",
        [
            (name, float(each), lab.number(each), colour)
            for name, each in zip(names, lengths, strict=True)
        ],
    )
    max_, min_ = int(lengths.argmax()), int(lengths.argmin())
    lab.paragraph(
        f"{names[max_]} adds most to the new vector of “{lab.plain(token)}”, a part of length "
        f"{lab.number(lengths[max_])}, and "
        f"{names[min_]} least, {lab.number(lengths[min_])}. The sum of the {len(lengths)} parts, with a bias, is what "
        "attention puts out for this word."
        if many.heads > 1
        else f"The one head makes the whole new vector of “{lab.plain(token)}”: its part has length {lab.number(lengths[0])}."
    )
    if many.heads > 1:
        lab.details(
            f"All {many.heads} heads", partial(all_heads, values, many, row, column), "heads:all"
        )
    lab.details("One head against four, trained alike", trained_heads, "heads:trained")
    lab.details(
        "How the heads differ, in numbers", partial(differences, values, many), "heads:differences"
    )


def bars(
    title: str, rows: Sequence[tuple[str, float, str, str]], label: int = 52, gap: int = 0
) -> None:
    """A bar for each (name, amount, its text, colour), as HTML, which a rerun draws at once."""
    # 42 % of the width leave room for names and amounts
    percent = 42 / (max(amount for _, amount, _, _ in rows) or 1.0)
    lines = "".join(
        f'<div style="display:flex;gap:8px;margin-bottom:{gap}px"><div style="flex:0 0 {label}px;'
        f'text-align:right">{escape(name)}</div><div style="height:14px;margin-top:2px;border-radius:2px;'
        f'background:{colour};width:{round(percent * amount, 1)}%"></div><div>{text}</div></div>'
        for name, amount, text, colour in rows
    )
    spoken = ", ".join(f"{name} {text}" for name, _, text, _ in rows)
    st.html(
        f'<div role="img" aria-label="{escape(f"{title}: {spoken}")}" style="font-size:13px;line-height:18px;'
        f'max-width:560px"><div style="font-size:14px;font-weight:600;margin-bottom:{4 + gap // 2}px">'
        f"{escape(title)}</div>{lines}</div>"
    )


def differences(values: lab.Values, many: heads.Split) -> None:
    left, right = st.columns([0.44, 0.56] if many.heads > MAX_HEADS else [0.34, 0.66], gap="medium")
    with left:
        st.html(overlap_square(analysis.overlap(many.weights), lab.theme()))
    with right:
        counts = sorted({1, values.heads} | ({2, 4, MAX_HEADS} if values.layer is None else set()))
        splits = (of_layer(values, heads.split, n) for n in counts if values.d_model % n == 0)
        lab.table(
            ["heads", "size of each", "parameters", "entropy", "distance", "overlap"],
            [
                [
                    str(each.heads),
                    str(values.d_model // each.heads),
                    lab.whole(each.parameters),
                    lab.number(each.entropy),
                    lab.number(each.distance),
                    _optional(each.overlap),
                ]
                for each in splits
            ],
            markers=False,
            caption="The same layer as one head and as several",
        )
        words = len(values.tokens)
        lab.caption(
            "Every row of the table is the same layer, divided into another number of heads. Entropy is in "
            f"nats (uniform weights on {words} words have {lab.number(math.log(words))}), the distance from "
            "query to key in words. Overlap is the weight that two heads put on the same words. "
            f"{' '.join([conditions(values), *values.notes])}"
        )
        if many.heads > 1:
            lab.table(
                ["head", "entropy", "distance"],
                [
                    [head_name(values.layer or 0, head), lab.number(entropy), lab.number(distance)]
                    for head, (entropy, distance) in enumerate(
                        zip(
                            analysis.entropy(many.weights).mean(1),
                            analysis.mean_distance(many.weights),
                            strict=True,
                        )
                    )
                ],
                markers=False,
                caption="Each head",
            )


def shared(values: lab.Values) -> Shown:
    seed = SEED if values.seed is None else values.seed
    configs = heads.projections(values.d_model, values.heads, values.kv_heads, values.latent)
    caches = [of_layer(values, heads.share, config, seed, values.length) for config in configs]
    made = lab.source_of(list(configs))
    note(
        values,
        "One head with four ways to store keys and values, and the bytes that a decoder stores in fp32.",
        f"""
{lab.attention_import(made)}
from core.studies.heads import share

configs, head, length = {made}, {values.head}, {values.length}
caches = {{config.projection.key: share(qkv, config, {seed}, length) for config in configs}}
for name, cache in caches.items():
    print(name, cache.bytes, "bytes of keys and values for", length, "tokens")
""",
        "{name: cache.weights[head] for name, cache in caches.items()}",
        "shared",
        {
            "[each.weights for each in caches.values()]": np.stack([e.weights for e in caches]),
            "[each.bytes for each in caches.values()]": np.array([each.bytes for each in caches]),
        },
    )
    names = [entry("projection", config.projection.key).name for config in configs]
    units = ["numbers per token"] * len(caches)
    if is_real(values):  # a trained model has no weights for latent attention
        units[-1] = "per token, random weights"
    tiles = [
        lab.Tile(name, f"{each.config.sizes.cache} {unit}", each.weights[values.head])
        for name, unit, each in zip(names, units, caches, strict=True)
    ]
    weights = caches[0].weights[values.head]
    query, column = int(weights.max(-1).argmax()), None  # the query with the largest weight
    if is_real(values):
        query, column = heads.largest_word_cell(weights[None], values.tokens)
    draw(
        tiles,
        values,
        "shared",
        pinned_cell(values, "shared"),
        height=SMALL,
        query=query,
        column=column,
        fact=f"Head {values.head} of {values.heads} with four ways to store keys and values",
    )
    lab.fact(shared_fact(values, caches))
    # How the cache grows when the text becomes twice as long
    half = of_layer(values, heads.share, configs[0], seed, values.length // 2).bytes
    full = caches[0].bytes
    sizes = (
        f"For {values.length // 2:,} tokens the cache of multi-head attention has {lab.byte_size(half)}, for "
        f"{values.length:,} tokens {lab.byte_size(full)}: every token adds a key and a value to each head."
    )
    yield lab.Question(
        "The text becomes twice as long. How does the cache of each projection grow?",
        ("it keeps its size", "to twice its size", "to four times its size"),
        round(math.log2(full / half)),
        (
            f"{sizes} Only a model that forgets old tokens keeps its size.",
            sizes,
            f"{sizes} The number of scores becomes four times as large, but scores are not stored.",
        ),
    )
    equation(
        r"2HD,\quad 2GD,\quad 2D,\quad R + R_\mathrm{rope}",
        f"= {',   '.join(f'{each.config.sizes.cache:,}' for each in caches)} numbers for each token",
    )
    lab.caption(
        "The numbers that multi-head, grouped-query, multi-query and latent attention store for a token. H "
        "is the count of query heads, G of heads of keys and values, D the count of numbers in a head, R "
        "that in a latent vector and R_rope that in its rotated key."
    )
    draw_cache(values, names, caches)


def draw_cache(values: lab.Values, names: Sequence[str], caches: Sequence[heads.CacheSize]) -> None:
    left, right = st.columns([0.36, 0.64], gap="medium")
    with left:
        bars(
            f"Cache of {values.length:,} tokens, one layer",
            [
                (name, each.bytes, lab.byte_size(each.bytes), colour)
                for name, each, colour in zip(
                    names, caches, lab.CATEGORIES[lab.theme()], strict=False
                )
            ],
            label=104,
            gap=10,
        )
    with right:
        lab.table(
            ["keys and values", "numbers per token", "bytes in the cache", "parameters", "overlap"],
            [
                [
                    name,
                    lab.whole(each.config.sizes.cache),
                    lab.whole(each.bytes),
                    lab.whole(each.parameters),
                    _optional(each.overlap),
                ]
                for name, each in zip(names, caches, strict=True)
            ],
            caption="What is stored for each token, with four ways to store keys and values",
        )
    equal = all(each.bytes == BYTES * each.config.sizes.cache * values.length for each in caches)
    lab.caption(
        f"Bytes are measured on the cached tensors of {values.length:,} random tokens in one layer, fp32, "
        f"{'' if equal else 'not '}as many as the formula says; a number has {BYTES} bytes. Shared heads are the "
        "means of the multi-head layer's heads, as when a grouped-query model is made from a multi-head model. "
        "Latent attention has its own random weights and a rotated key next to the latent vector. Overlap is the "
        f"weight that two heads put on the same words. {' '.join([conditions(values), *values.notes])}",
    )


def subtract(values: lab.Values) -> Shown:
    two = of_layer(values, heads.two_maps, values.head, values.depth, values.seed)
    note(
        values,
        "One head of differential attention: two maps, and their difference.",
        f"""
from core.studies.heads import two_maps

maps = two_maps(qkv, {values.head}, {values.depth}, {values.seed})  # λ of a layer, counted from 1
print("λ", maps.weight, "weights from", maps.difference.min(), "to", maps.difference.max())
""",
        '{"A1": maps.first, "λ A2": maps.weight * maps.second, "A1 − λ A2": maps.difference}',
        "subtract",
        {
            "maps.first": two.first,
            "maps.second": two.second,
            "maps.weight": np.array(two.weight),
            "maps.difference": two.difference,
            "maps.weight * maps.second": two.weight * two.second,
        },
    )
    cell: lab.Pair = divmod(int(two.difference.argmax()), two.difference.shape[1])
    if is_real(values):  # [CLS] and [SEP] have most weight in MiniLM
        cell = heads.largest_word_cell(two.difference[None], values.tokens)
    tiles = [
        lab.Tile("A₁", "map of the first query and key", two.first),
        lab.Tile(
            "λA₂", f"λ = {lab.number(two.weight)} times the second map", two.weight * two.second
        ),
        lab.Tile(f"A₁ {lab.MINUS} λA₂", "the weights of the values", two.difference),
    ]
    pin = draw(
        tiles,
        values,
        "subtract",
        pinned_cell(values, "subtract"),
        first=len(tiles) - 1,
        height=LARGE,
        query=cell[0],
        column=cell[1],
        fact=f"Head {values.head} of {values.heads}: two maps and their difference",
    )
    lab.fact(subtract_fact(values.tokens, two, pin or cell))
    # The sum of a row of the difference
    total, options = float(two.difference.sum(1).mean()), (0.0, 1 - two.weight, 1.0)
    sums = (
        f"A row of the first map has the sum 1, and a row of the second λ = {lab.number(two.weight)} after the "
        f"multiplication. Their difference has the sum {lab.number(total)}."
    )
    yield lab.Question(
        "The weights of a softmax have the sum 1 in each row. What is the sum of a row of A₁ − λA₂?",
        ("0", "1 − λ", "1"),
        min(range(3), key=lambda index: abs(options[index] - total)),
        (f"{sums} It would be 0 only with λ = 1.", sums, f"{sums} It would be 1 only with λ = 0."),
    )
    cell = pin or cell
    first, second, result = (
        lab.number(map_[cell]) for map_ in (two.first, two.second, two.difference)
    )
    equation(
        r"w_{ij} = (A_1 - \lambda A_2)_{ij}",
        f"= {first} {lab.MINUS} {lab.number(two.weight)} · {second} = {result}",
    )
    size = values.d_model // values.heads
    start = f"0.8 {lab.MINUS} 0.6·e^({lab.MINUS}0.3·{values.depth - 1}) = {lab.number(two.start)}"
    halves = (
        "MiniLM was not trained to subtract: its query and key are divided into two halves here. "
    )
    lab.caption(
        f"Each head has two queries and two keys of {size // 2} numbers instead of one of {size}, and one "
        f"value. λ depends on the layer set above, which is counted from 1: in layer {values.depth} it starts near "
        f"{start} and is then learned. A row has the sum 1 {lab.MINUS} λ = {lab.number(1 - two.weight)}; a norm "
        f"in each head corrects this. {conditions(values)} {halves * is_real(values)}{' '.join(values.notes)}",
    )


def equation(symbols: str, numbers: str) -> None:
    """Draw an equation in symbols, and its numbers as plain text: typesetting them takes a rerun too long."""
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
        st.markdown(rf"$\displaystyle {symbols}$", width="content")
        st.html(
            f'<span style="font:1.21em KaTeX_Main,serif;white-space:pre-wrap">{escape(numbers)}</span>',
            width="content",
        )


def split_equations(values: lab.Values) -> None:
    equation(
        r"A_h = \mathrm{softmax}\!\left(\frac{Q_h K_h^\top}{\sqrt{D}}\right),\quad D = C / H",
        f"= {values.d_model} / {values.heads} = {values.d_model // values.heads}",
    )
    equation(r"\mathrm{out} = [A_1 V_1 \cdots A_H V_H]\, W_o = \sum_h A_h V_h\, W_{o,h}", "")
    lab.caption(
        "$Q_h$, $K_h$ and $V_h$ are the queries, keys and values of head $h$, a row for each word. Each head has $D$ of "
        "the $C$ columns of $W_q$, $W_k$ and $W_v$; $W_{o,h}$ are the $D$ rows of $W_o$ that belong to it. A bar above is "
        "the length of a row of $A_h V_h W_{o,h}$."
    )


def sources(values: lab.Values) -> None:
    if values.idea == "split":
        split_equations(values)
    names = {
        "split": ["multi_head"],
        "shared": ["grouped_query", "multi_query", "latent"],
        "subtract": ["differential"],
    }[values.idea]
    lab.entries_panel(entry("projection", name) for name in names)
    layers = [pooled_layer(AttentionConfig(D_MODEL, HEADS, Choice(name)), SEED) for name in names]
    lab.source_panel(*dict.fromkeys(type(layer.projection) for layer in layers))


MOVES = {
    "minilm": lab.Move(
        "MiniLM's first layer",
        {"heads:weights": "minilm", "heads:layer": 0},
        "L0·H2 gives nearly all of its weight to the token before.",
    ),
    "random": lab.Move(
        "Random weights",
        {"heads:weights": "random"},
        "The heads differ here by chance. In MiniLM, training made them different.",
    ),
    "split": lab.Move(
        "One head or many",
        {"heads:idea": "split"},
        "Each head has a map of its own.",
    ),
    "shared": lab.Move(
        "Later: share keys and values",
        {"heads:idea": "shared"},
        "Fewer heads of keys and values need a smaller cache. The last column of the table says how "
        "similar the maps of two heads are then.",
    ),
    "subtract": lab.Move(
        "Later: subtract two maps",
        {"heads:idea": "subtract"},
        "In the map A₁ − λA₂, purple cells are weights below 0. A softmax alone cannot make them.",
    ),
}


def moves(idea: str) -> list[lab.Move]:
    left_out = {idea} if idea == "split" else {idea, "minilm"}
    return [move for name, move in MOVES.items() if name not in left_out]


def overlap_square(overlap: np.ndarray, theme: lab.Theme) -> str:
    """Heads by heads: the share of weight in common, in the blue of weights, with its number; a head's own has none."""
    heads, stops = range(len(overlap)), lab.colour_scale(theme)

    def cell(i: int, j: int) -> str:
        share = min(1.0, max(0.0, float(overlap[i, j])))
        overlapping, fill = lab.number(overlap[i, j]), stops[round(share * (len(stops) - 1))]
        return (
            f'<td style="background:{fill};color:{stops[0 if share >= 0.5 else -1]}" title="head {i} and head {j}: '
            f'{overlapping}">{"" if i == j else lab.cell(overlapping)}</td>'
        )

    head = '<th scope="col"></th>' + "".join(f'<th scope="col">{j}</th>' for j in heads)
    rows = "".join(
        f'<tr><th scope="row">{i}</th>{"".join(cell(i, j) for j in heads)}</tr>' for i in heads
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
