"""Heads: one or many at the same width, keys and values shared, and two maps subtracted."""

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from html import escape
from typing import Any, TypeVar

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.attention import AttentionConfig, Choice, entry, heads_that_divide
from core.interpret import trace as analysis
from core.interpret.trace import head_name
from core.pretrained import PretrainedError
from core.seeding import pooled_layer
from core.studies import heads as study
from core.tokens import SENTENCE, Cut, labels, tokenize
from dashboard.draw import heads as draw

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


# A text and a layer of MiniLM, or the words, sizes and seed of a random layer
Source = tuple[str, int] | tuple[tuple[str, ...], int, int, int]


class Controls(lab.JoinedQueries, page="heads"):
    start = lab.SessionValue("minilm")  # the weights with which the page opened first
    idea = lab.Segmented(
        "Idea",
        IDEAS,
        help="How a layer can use heads: divide into them, share keys among them, or subtract two maps",
        also={"wrap": True},
    )
    weights = lab.Segmented(
        "Weights",
        WEIGHTS,
        lambda _: Controls.start.value,
        help="MiniLM: the queries, keys and values of a trained model, all-MiniLM-L6-v2. "
        "Random: a layer of any size before training.",
    )
    text = lab.Text(
        "Sentence",
        lambda _: study.MINILM_TEXT if Controls.start.value == "minilm" else SENTENCE,
        key="tokens",
        help="MiniLM splits rare words into pieces and adds [CLS] and [SEP].",
    )
    layer = lab.SelectSlider(
        "MiniLM's layer",
        range(study.MINILM_LAYERS),
        LAYER,
        help="MiniLM has 6 layers, each with 12 heads. Both count from 0.",
    ).optional(lambda c: c.real)
    d_model = lab.SelectSlider[int](
        "d_model",
        lambda c: (
            [study.MINILM_WIDTH]
            if c.real
            else ([size for size in lab.D_MODELS if 4 <= size <= 256])
        ),
        lambda c: study.MINILM_WIDTH if c.real else D_MODEL,
        help="How many numbers each word's vector has",
        also=lambda c: lab.keep_heads(
            "heads:d_model",
            lambda width: f"heads:{heads_key(c.idea, width)}",
            lambda width: heads_that_fit(c.idea, width),
        ),
    )
    heads = lab.SelectSlider[int](
        "Heads",
        lambda c: [study.MINILM_HEADS] if c.real else heads_that_fit(c.idea, c.d_model),
        lambda c: (
            study.MINILM_HEADS
            if c.real
            else max(n for n in heads_that_fit(c.idea, c.d_model) if n <= HEADS)
        ),
        key=lambda c: heads_key(c.idea, c.d_model),
        hidden=True,
        help="Into how many heads the d_model numbers are divided",
    )
    kv_heads = lab.SelectSlider[int](
        "KV heads, G",
        lambda c: heads_that_divide(c.heads),
        lambda c: heads_that_divide(c.heads)[-2:][0],  # the most below the heads
        key=lambda c: f"kv:{c.heads}",
        help="Heads of keys and values in grouped-query attention; each serves H / G query heads",
    ).when(lambda c: c.idea == "shared")
    length = lab.SelectSlider(
        "Cached tokens",
        [128, 512, 1024, 2048, 4096, 8192, 16384],
        LENGTH,
        text="{:,}".format,
        help="The number of tokens whose keys and values a decoder has stored",
    ).when(lambda c: c.idea == "shared")
    depth = lab.Number(
        "Layer for λ",
        DEPTH,
        1,
        48,
        slider=True,
        help="λ at the start of training depends on the layer, counted from 1: 0.2 in the first, near 0.8 in "
        "the last",
    ).when(lambda c: c.idea == "subtract")
    head = lab.SelectSlider[int](
        "Head shown",
        lambda c: range(c.heads),
        lambda c: HEAD if c.real else 0,
        key=lambda c: f"head:{c.heads}",
        help="Heads are counted from 0",
    ).when(lambda c: c.idea != "split")
    latent = lab.Number[int](
        "Latent size, R",
        lambda c: min(4 * c.d_model // c.heads, c.d_model // 2),
        1,
        512,
        key=lambda c: f"latent:{c.d_model}:{c.heads}",
        help="How many numbers latent attention stores for the content of a token",
    ).when(lambda c: c.idea == "shared")
    dim = lab.Toggle(
        "Dim [CLS] and [SEP]",
        help="Draws the columns of MiniLM's two marks faintly, so that the words stand out",
    ).when(lambda c: c.real and c.idea == "split")
    seed = lab.Number(
        "Seed",
        SEED,
        0,
        999_999,
        help="The random weights and word vectors are drawn from this number",
    ).optional(lambda c: not c.real)
    # of all maps; layer and head in the grid of all heads
    pin, pressed = lab.CellField(), lab.CellField()

    @property
    def real(self) -> bool:
        return self.weights == "minilm"

    @property
    def cut(self) -> Cut:
        return tokenize(self.text, MAX_TOKENS)

    @property
    def words(self) -> tuple[str, ...]:
        return labels(self.cut.tokens)

    @property
    def source(self) -> Source:
        """What the layer is read from: a text and a layer of MiniLM, or the words, sizes and seed of a random one."""
        if self.real:
            return " ".join(self.cut.tokens) if self.cut.notes else self.text, self.layer or 0
        return self.words, self.d_model, self.heads, self.seed or 0

    @cached_property
    def qkv(self) -> study.QKV:
        return qkv_of(self.source)

    @property
    def tokens(self) -> tuple[str, ...]:
        return self.qkv.tokens if self.real else self.words

    def name_of(self, head: int) -> str:
        return head_name(self.layer or 0, head)

    def conditions(self) -> str:
        return " ".join([draw.conditions(self.source, self.layer, self.seed), *self.cut.notes])


def draw_controls() -> Controls:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        sentence = st.container()
        with st.popover("More", icon=":material/tune:", help="The idea, the weights, the head"):
            controls = Controls.draw("idea", "weights", "dim", into=lab.HERE)
            more = st.container()
    with sentence:
        controls = controls.draw_more("text", into=lab.HERE)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        controls = controls.draw_more("d_model", "heads", "kv_heads", "length", "depth")
    if not controls.real:
        lab.note_heads("heads:d_model", controls.d_model, controls.heads)
    # a press of a cell in the grid of all heads sets the layer, too
    return controls.draw_more("layer", "head", "latent", "seed", into=more)


# The studies of the layer that the controls choose.


def qkv_of(source: Source) -> study.QKV:
    """The queries, keys and values of a random layer, or of MiniLM's: saved ones of its sentence, else by running it.

    PretrainedError when the model cannot be loaded or read the text.
    """
    if len(source) == 4:
        return lab.shared(study.random_qkv, *source)
    text, layer = source
    if text != study.MINILM_TEXT:
        return lab.study_of(study.read_qkv, lab.EMBEDDED, text, layer)
    saved = lab.shared(study.saved_qkv, layer)
    return lab.recorded(study.read_qkv, (lab.EMBEDDED, text, layer), saved)


def _of_source(function: Callable[..., T], source: Source, *args: Hashable) -> T:
    return function(qkv_of(source), *args)


def of_layer(controls: Controls, function: Callable[..., T], *args: Hashable) -> T:
    """The study of the layer that the controls choose, recorded as one of its queries, keys and values."""
    result = lab.cached(_of_source, function, controls.source, *args)
    return lab.recorded(function, (controls.qkv, *args), result)


# The maps of each idea, under one crosshair and with one pin, which is also in the link.


SMALL, LARGE = 260, 420  # pixels of a map: of one of many heads, and of three maps in a row
ROW, ROW_CELL = (
    40,
    24,
)  # pixels of a row of weights, at most, and of a cell on a laptop: all heads are in sight
LAYER_NAMES = [f"layer {layer}" for layer in range(study.MINILM_LAYERS)]
LINK = "heads:maps"  # the maps share a crosshair and a pin


def pinned_cell(controls: Controls, key: str) -> lab.Pair | None:
    size = len(controls.tokens)
    pin = Controls.pin.pinned((size, size), controls.tokens)
    return lab.settle_pin(lab.stores(key, LINK)[1], key, pin, (size, size))


def pressed_head(controls: Controls) -> int | None:
    """The head of MiniLM's layer on the page that was pressed in the grid of all heads."""
    if not controls.real:
        return None
    bounds = study.MINILM_LAYERS, study.MINILM_HEADS
    layer, head = Controls.pressed.pinned(bounds, controls.tokens) or (None, None)
    return head if layer == controls.layer else None


def splits_of(controls: Controls) -> list[study.Split]:
    """Those of all layers of MiniLM."""
    text, of = str(controls.source[0]), study.MINILM_HEADS
    sources: list[Source] = [(text, layer) for layer in range(study.MINILM_LAYERS)]
    return [
        lab.recorded(study.split, (qkv_of(one), of), lab.cached(_of_source, study.split, one, of))
        for one in sources
    ]


def draw_split(
    controls: Controls, many: study.Split, layers: Sequence[study.Split]
) -> tuple[lab.Pair, int, list[int]]:
    """Draw what a word takes from in each head, and the maps of some.

    Returns the picked cell, the head that the sentence names first, and the heads of the maps, of which it is one.
    """
    tokens = controls.tokens
    pin, best = pinned_cell(controls, "heads:chosen"), pressed_head(controls)
    row, column = pin or study.largest_word_cell(many.weights, tokens)
    key = column if pin or row == column else None  # without another word, the word itself
    if best is None and key is not None:
        best = int(many.weights[:, row, key].argmax())
    usual = chosen = study.word_heads(many.weights, tokens)
    if best is not None and best not in usual:
        chosen = sorted([best, *study.word_heads(many.weights, tokens, 2)])
    shown = study.word_targets(many.weights, tokens, chosen, row, key)
    best = shown[0][0] if best is None else best
    first = None if key is None else best
    lab.fact(draw.split_fact(tokens, controls.layer or 0, many.weights, shown, row, first))
    dimmed = (0, len(tokens) - 1) if controls.dim else ()
    left, right = None, st.container()
    if controls.real:  # each as wide as its columns and its names, about two columns more
        widths = [study.MINILM_LAYERS + 2, len(tokens) + 2]
        left, right = st.columns(widths, gap="medium")
    lab.caption(draw.READER if controls.real else draw.RANDOM.format(controls.seed))
    Controls.pin.pin(
        lab.multiples(
            head_tiles(many, chosen, controls),
            tokens,
            key="heads:chosen",
            link=LINK,
            pin=pin,
            query=row,
            column=column,
            height=LARGE,
            first=chosen.index(best),
            fact=f"{len(chosen)} of {many.heads} heads of {controls.d_model // many.heads} numbers",
            dimmed=dimmed,
        )
    )
    if left is not None:
        with left:
            every_layer(controls, layers, row, shown[0][1], best)
    with right:
        lab.multiples(
            [
                lab.Tile(
                    f"What “{tokens[row]}” takes from",
                    "head (row), key (column)",
                    many.weights[:, row],
                    marker=-1,
                )
            ],
            [controls.name_of(head) for head in range(many.heads)],
            tokens,
            key="heads:row",
            query=best,
            column=shown[0][1],
            reads="",
            height=ROW * many.heads,
            cell=ROW_CELL,
            legend=False,
            beside=LAYER_NAMES if controls.real else (),
            dimmed=dimmed,
        )
    of = "" if chosen == usual else f" {controls.name_of(best)}, and"
    of = f" Maps:{of} those of the {many.heads} heads with the largest weight on another word."
    above = (
        "Above each: its weight in the picked cell, and what its rows take most from, on average."
    )
    lab.caption(f"{of * (len(chosen) < many.heads)} {above}")
    return (row, shown[0][1]), best, chosen


def every_layer(
    controls: Controls, layers: Sequence[study.Split], row: int, column: int, head: int
) -> None:
    """Draw how much one word takes from another in each head of MiniLM; a press of a cell opens that head."""

    def open_head(cell: lab.Pair) -> None:
        head, layer = cell
        weights, names = layers[layer].weights, controls.tokens
        Controls.set(layer=layer)
        Controls.pressed.pin((layer, head))
        # what the same word takes from there
        _, key = study.word_targets(weights, names, [head], row, None)[0]
        Controls.pin.pin((row, key))

    words = f"“{controls.tokens[row]}” → “{controls.tokens[column]}”"
    lab.multiples(
        [lab.Tile(words, "Press a head.", draw.of_cell(layers, row, column), marker=-1)],
        [f"H{head}" for head in range(study.MINILM_HEADS)],
        LAYER_NAMES,
        key="heads:layers",
        query=head,
        column=controls.layer,
        reads="",
        noun=f"weight of {words}",
        fact=f"Weight of {words} in each of {study.MINILM_LAYERS * study.MINILM_HEADS} heads",
        height=ROW * study.MINILM_HEADS,
        cell=ROW_CELL,
        legend=False,
        beside=controls.tokens,
        open_cell=open_head,
    )


def head_tiles(many: study.Split, chosen: Sequence[int], controls: Controls) -> list[lab.Tile]:
    marked = many.heads <= len(lab.MARKS)  # with more heads there is no mark for each
    return [
        lab.Tile(
            controls.name_of(head),
            draw.head_note(many.weights[head], controls.tokens),
            many.weights[head],
            marker=head if marked else -1,
        )
        for head in chosen
    ]


def all_heads(controls: Controls, many: study.Split, row: int, column: int) -> None:
    Controls.pin.pin(
        lab.multiples(
            head_tiles(many, range(many.heads), controls),
            controls.tokens,
            key="heads:many",
            link=LINK,
            pin=pinned_cell(controls, "heads:many"),
            query=row,
            column=column,
            height=SMALL,
        )
    )
    if controls.real:
        lab.caption(draw.jobs(many, controls.tokens))


def trained_heads() -> None:
    """One head against several that were trained alike, as `make heads` saved them."""
    saved = lab.cached(study.load_trained)
    one, *_, four, _ = saved.measured
    letter, rows = study.EXAMPLE[study.QUERY], np.array([*one.weights, *four.weights])
    left, right = st.columns(2, gap="medium")
    with left:
        lab.draw_chart(
            st,
            draw.trained_chart(saved.measured, lab.Ink.of(lab.theme())),
            key="heads:accuracy",
            alt="Share of the neighbours that each trained model names, a mark for each seed",
        )
    with right:
        lab.multiples(
            [lab.Tile(f"What “{letter}” attends to", "", rows, marker=-1)],
            ["1 head", *[f"Head {head} of 4" for head in range(four.heads)]],
            list(study.EXAMPLE),
            key="heads:trained:row",
            query=0,
            column=study.QUERY - 1,
            reads="head (row) takes from → key (column)",
            height=ROW * len(rows),
            legend=False,
        )
    lab.fact(draw.trained_fact(one, four))
    lab.caption(draw.trained_caption(saved))


# The page: controls, maps, question and meaning.


# A question, what draws the rest after it, and the moves that are of this picture, by their names in MOVES
Shown = tuple[lab.Question | None, Callable[[], None], dict[str, lab.Move]]


def page() -> None:
    lab.read_start("heads", "minilm", "random")
    explore()


@lab.fragment
def explore() -> None:
    lab.export.begin_before_title()
    lab.title(
        "Heads",
        "Each head is an attention of its own, so several can attend to different words.",
        first=False,
    )
    controls = draw_controls()
    with lab.picture("heads"):
        view = show(controls)
    notice = st.container()
    if view is not None:
        question, rest, own = view
        if question is not None:
            lab.predict(f"heads:{controls.idea}", question)
        lab.try_this("heads", moves(controls, own), notice)
        lab.paragraph(f"## What it means\n\n{draw.MEANING[controls.idea]}", width=560)
        rest()
        lab.details("Equation, paper and code", partial(sources, controls), "heads:source")
    lab.write_start("heads")


@lab.shown_errors(PretrainedError)
def show(controls: Controls) -> Shown | None:
    """Draw the maps and the sentence, or an error."""
    if not controls.words:
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
        return None
    if controls.real:
        with st.spinner("MiniLM (91\u00a0MB) reads the words."):
            controls.qkv  # noqa: B018
    return {"split": split, "shared": shared, "subtract": subtract}[controls.idea](controls)


def split(controls: Controls) -> Shown:
    one, many = (of_layer(controls, study.split, count) for count in (1, controls.heads))
    layers = splits_of(controls) if controls.real else []
    (row, column), best, chosen = draw_split(controls, many, layers)
    own = [draw.chosen_cell(many, controls.tokens, chosen, row)]
    if layers:
        own.append(draw.layers_cell(layers, row, column))
    every: dict[str, Any] = {"layers": layers} if layers else {}
    lab.as_python(qkv=controls.qkv, many=many, also=own, **every)
    counts = one.parameters, many.parameters
    same = (
        f"Both have {counts[0]:,} parameters: the matrices $W_q$, $W_k$, $W_v$ and $W_o$ are the same. "
        f"{many.heads} heads divide the {controls.d_model} columns of the first three into {many.heads} groups of "
        f"{controls.d_model // many.heads}."
    )
    question = (
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
    notice = draw.target_text(controls.name_of(best), many.weights[best], controls.tokens)
    moves = {"minilm": replace(MOVES["minilm"], notice=notice)}
    return question, partial(split_rest, controls, many, row, column), moves


def split_rest(controls: Controls, many: study.Split, row: int, column: int) -> None:
    best = pressed_head(controls)
    if best is None:
        best = int(many.weights[:, row, column].argmax())
    with lab.settings_panel("Several words together", opened="heads:joined" in st.query_params):
        names = [controls.name_of(head) for head in range(many.heads)]
        item = analysis.AttentionMap("self", 0, many.weights, controls.tokens, controls.tokens)
        lab.joined_map(controls, item, names, best, "many.weights")
    lab.details("What each head adds", partial(added, controls, many, row), "heads:lengths")
    if many.heads > 1:
        lab.details(
            f"All {many.heads} heads", partial(all_heads, controls, many, row, column), "heads:all"
        )
    lab.details("One head against four, trained alike", trained_heads, "heads:trained")
    lab.details(
        "How the heads differ, in numbers",
        partial(differences, controls, many),
        "heads:differences",
    )


def added(controls: Controls, many: study.Split, row: int) -> None:
    lengths, token = controls.qkv.lengths[:, row], controls.tokens[row]
    colour = lab.CATEGORIES[lab.theme()][0]
    names = [controls.name_of(head) for head in range(many.heads)]
    st.html(
        draw.bars_html(
            f"Length of what each head adds to “{token}”",
            [
                (name, float(each), lab.number(each), colour)
                for name, each in zip(names, lengths, strict=True)
            ],
        )
    )
    lab.paragraph(draw.lengths_text(names, lengths, token))


def differences(controls: Controls, many: study.Split) -> None:
    left, right = st.columns([0.44, 0.56] if many.heads > MAX_HEADS else [0.34, 0.66], gap="medium")
    with left:
        st.html(draw.overlap_square(analysis.overlap(many.weights), lab.theme()))
    with right:
        counts = sorted(
            {1, controls.heads} | ({2, 4, MAX_HEADS} if controls.layer is None else set())
        )
        splits = [of_layer(controls, study.split, n) for n in counts if controls.d_model % n == 0]
        lab.table(
            ["heads", "size of each", "parameters", "entropy", "distance", "overlap"],
            draw.split_rows(splits, controls.d_model),
            markers=False,
            caption="The same layer as one head and as several",
        )
        lab.caption(f"{draw.split_note(len(controls.tokens))} {controls.conditions()}")
        if many.heads > 1:
            lab.table(
                ["head", "entropy", "distance"],
                draw.head_rows(many.weights, controls.name_of),
                markers=False,
                caption="Each head",
            )


def shared(controls: Controls) -> Shown:
    seed = SEED if controls.seed is None else controls.seed
    configs = study.projections(
        controls.d_model, controls.heads, controls.kv_heads, controls.latent
    )
    caches = [of_layer(controls, study.share, config, seed, controls.length) for config in configs]
    lab.as_python(qkv=controls.qkv, caches=caches)
    names = [entry("projection", config.projection.key).name for config in configs]
    units = ["numbers per token"] * len(caches)
    if controls.real:  # a trained model has no weights for latent attention
        units[-1] = "per token, random weights"
    tiles = [
        lab.Tile(name, f"{each.config.sizes.cache} {unit}", each.weights[controls.head])
        for name, unit, each in zip(names, units, caches, strict=True)
    ]
    weights = caches[0].weights[controls.head]
    query, column = int(weights.max(-1).argmax()), None  # the query with the largest weight
    if controls.real:
        query, column = study.largest_word_cell(weights[None], controls.tokens)
    Controls.pin.pin(
        lab.multiples(
            tiles,
            controls.tokens,
            key="heads:shared",
            link=LINK,
            pin=pinned_cell(controls, "heads:shared"),
            height=SMALL,
            query=query,
            column=column,
            fact=f"Head {controls.head} of {controls.heads} with four ways to store keys and values",
        )
    )
    lab.fact(draw.shared_fact(controls.length, controls.kv_heads, caches))
    # How the cache grows when the text becomes twice as long
    half = of_layer(controls, study.share, configs[0], seed, controls.length // 2).bytes
    full = caches[0].bytes
    sizes = (
        f"For {controls.length // 2:,} tokens the cache of multi-head attention has {lab.byte_size(half)}, for "
        f"{controls.length:,} tokens {lab.byte_size(full)}: every token adds a key and a value to each head."
    )
    question = lab.Question(
        "The text becomes twice as long. How does the cache of each projection grow?",
        ("it keeps its size", "to twice its size", "to four times its size"),
        round(math.log2(full / half)),
        (
            f"{sizes} Only a model that forgets old tokens keeps its size.",
            sizes,
            f"{sizes} The number of scores becomes four times as large, but scores are not stored.",
        ),
    )
    return question, partial(shared_rest, controls, names, caches), {}


def shared_rest(
    controls: Controls, names: Sequence[str], caches: Sequence[study.CacheSize]
) -> None:
    equation(
        r"2HD,\quad 2GD,\quad 2D,\quad R + R_\mathrm{rope}",
        f"= {',   '.join(f'{each.config.sizes.cache:,}' for each in caches)} numbers for each token",
    )
    lab.caption(draw.STORED)
    left, right = st.columns([0.36, 0.64], gap="medium")
    with left:
        st.html(
            draw.bars_html(
                f"Cache of {controls.length:,} tokens, one layer",
                [
                    (name, each.bytes, lab.byte_size(each.bytes), colour)
                    for name, each, colour in zip(
                        names, caches, lab.CATEGORIES[lab.theme()], strict=False
                    )
                ],
                label=104,
                gap=10,
            )
        )
    with right:
        lab.table(
            ["keys and values", "numbers per token", "bytes in the cache", "parameters", "overlap"],
            draw.cache_rows(names, caches),
            caption="What is stored for each token, with four ways to store keys and values",
        )
    lab.caption(f"{draw.cache_note(controls.length, caches)} {controls.conditions()}")


def subtract(controls: Controls) -> Shown:
    two = of_layer(controls, study.two_maps, controls.head, controls.depth, controls.seed)
    lab.as_python(qkv=controls.qkv, maps=two, also=[draw.subtract_cell(two)])
    cell: lab.Pair = divmod(int(two.difference.argmax()), two.difference.shape[1])
    if controls.real:  # [CLS] and [SEP] have most weight in MiniLM
        cell = study.largest_word_cell(two.difference[None], controls.tokens)
    tiles = [
        lab.Tile("A₁", "map of the first query and key", two.first),
        lab.Tile(
            "λA₂", f"λ = {lab.number(two.weight)} times the second map", two.weight * two.second
        ),
        lab.Tile(f"A₁ {lab.MINUS} λA₂", "the weights of the values", two.difference),
    ]
    pin = Controls.pin.pin(
        lab.multiples(
            tiles,
            controls.tokens,
            key="heads:subtract",
            link=LINK,
            pin=pinned_cell(controls, "heads:subtract"),
            first=len(tiles) - 1,
            height=LARGE,
            query=cell[0],
            column=cell[1],
            fact=f"Head {controls.head} of {controls.heads}: two maps and their difference",
        )
    )
    lab.fact(draw.subtract_fact(controls.tokens, two, pin or cell))
    # The sum of a row of the difference
    total, options = float(two.difference.sum(1).mean()), (0.0, 1 - two.weight, 1.0)
    sums = (
        f"A row of the first map has the sum 1, and a row of the second λ = {lab.number(two.weight)} after the "
        f"multiplication. Their difference has the sum {lab.number(total)}."
    )
    question = lab.Question(
        "The weights of a softmax have the sum 1 in each row. What is the sum of a row of A₁ − λA₂?",
        ("0", "1 − λ", "1"),
        min(range(3), key=lambda index: abs(options[index] - total)),
        (f"{sums} It would be 0 only with λ = 1.", sums, f"{sums} It would be 1 only with λ = 0."),
    )
    return question, partial(subtract_rest, controls, two, pin or cell), {}


def subtract_rest(controls: Controls, two: study.TwoMaps, cell: lab.Pair) -> None:
    first, second, result = (
        lab.number(map_[cell]) for map_ in (two.first, two.second, two.difference)
    )
    equation(
        r"w_{ij} = (A_1 - \lambda A_2)_{ij}",
        f"= {first} {lab.MINUS} {lab.number(two.weight)} · {second} = {result}",
    )
    note = draw.subtract_note(controls.d_model // controls.heads, controls.depth, two)
    halves = draw.HALVES if controls.real else ""
    conditions = draw.conditions(controls.source, controls.layer, controls.seed)
    lab.caption(f"{note} {conditions}{halves} {' '.join(controls.cut.notes)}")


def equation(symbols: str, numbers: str) -> None:
    """Draw an equation in symbols, and its numbers as plain text: typesetting them takes a rerun too long."""
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
        st.markdown(rf"$\displaystyle {symbols}$", width="content")
        st.html(
            f'<span style="font:1.21em KaTeX_Main,serif;white-space:pre-wrap">{escape(numbers)}</span>',
            width="content",
        )


def sources(controls: Controls) -> None:
    if controls.idea == "split":
        equation(
            r"A_h = \mathrm{softmax}\!\left(\frac{Q_h K_h^\top}{\sqrt{D}}\right),\quad D = C / H",
            f"= {controls.d_model} / {controls.heads} = {controls.d_model // controls.heads}",
        )
        equation(r"\mathrm{out} = [A_1 V_1 \cdots A_H V_H]\, W_o = \sum_h A_h V_h\, W_{o,h}", "")
        lab.caption(draw.HEADS_NOTE)
    names = {
        "split": ["multi_head"],
        "shared": ["grouped_query", "multi_query", "latent"],
        "subtract": ["differential"],
    }[controls.idea]
    lab.entries_panel(entry("projection", name) for name in names)
    layers = [pooled_layer(AttentionConfig(D_MODEL, HEADS, Choice(name)), SEED) for name in names]
    lab.source_panel(*dict.fromkeys(type(layer.projection) for layer in layers))


MOVES = {
    "minilm": lab.Move(
        "MiniLM's first layer",
        # its own largest weight, not the cell and the head that were pressed before
        Controls.state(weights="minilm", layer=0)
        | {Controls.pin.now.key: None, Controls.pressed.now.key: None},
        "",
    ),
    "random": lab.Move(
        "Random weights",
        # whole words are read there, so a cell of MiniLM's tokens is none of theirs
        Controls.state(weights="random") | {Controls.pin.now.key: None},
        "The heads differ here by chance. In MiniLM, training made them different.",
    ),
    "split": lab.Move(
        "One head or many",
        Controls.state(idea="split"),
        "Each head has a map of its own.",
    ),
    "shared": lab.Move(
        "Later: share keys and values",
        Controls.state(idea="shared"),
        "Fewer heads of keys and values need a smaller cache. The last column of the table says how "
        "similar the maps of two heads are then.",
    ),
    "subtract": lab.Move(
        "Later: subtract two maps",
        Controls.state(idea="subtract"),
        "In the map A₁ − λA₂, purple cells are weights below 0. A softmax alone cannot make them.",
    ),
}


def moves(controls: Controls, own: dict[str, lab.Move]) -> list[lab.Move]:
    """What to try where the page is now; `own` are the moves of its picture."""
    left_out = {
        controls.idea,
        "" if controls.real else "random",
        "" if controls.idea == "split" else "minilm",
    }
    return [move for name, move in (MOVES | own).items() if name not in left_out]
