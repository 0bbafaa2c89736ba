"""Positions: how order enters attention, one encoding and one idea at a time."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.attention import AXES, AttentionConfig, Choice, Entry, heads_that_divide
from core.attention.base import Position
from core.attention.properties import Pair, sinusoid_pairs
from core.entries import Param
from core.seeding import seeded_layer
from core.studies import positions as study
from core.tokens import SENTENCE, Cut, labels, tokenize
from dashboard.draw import positions as draw

IDEAS = {
    "shuffle": "Shuffle the words",
    "encoding": "The encoding",
    "distance": "By distance",
    "shift": "Shift",
}
ENTRIES = {item.key: item for item in AXES["position"]}
D_MODEL, HEADS, SEED, MAX_TOKENS = 64, 4, 126, 48
# what a link leaves out, and what older links do
STARTS = {"dog": "dog bites man", "animal": SENTENCE}


def place_of(controls: "Controls", item: Entry, param: Param) -> str:
    """What the picture of two orders does not need stands below it, and so do all parameters after the second."""
    first = param in item.params[:2] and (controls.idea != "shuffle" or lab.is_text(param))
    return "" if first else "settings"


class Controls(lab.Fields, page="positions"):
    order = lab.LinkedValue(1)  # how often the words were shuffled
    start = lab.SessionValue("dog")
    idea = lab.Segmented("What to see", IDEAS, help="What the picture shows", also={"wrap": True})
    position = lab.ChoiceField(
        "Position encoding",
        {key: f"{item.name} · {item.year}" for key, item in ENTRIES.items()},
        "sinusoidal",
        axis="position",
        refused=True,
        parts=True,
        params=place_of,
        span=2,
        text_columns=2,
        help="How the order of the words enters the layer",
    )
    d_model = lab.SelectSlider(
        "d_model",
        [size for size in lab.D_MODELS if 4 <= size <= 128],
        D_MODEL,
        help="How many numbers the vector of each word has",
        also=lab.keep_heads("positions:d_model", "positions:heads:{}".format, heads_that_divide),
    )
    heads = lab.SelectSlider[int](
        "Heads",
        lambda c: heads_that_divide(c.d_model),
        lambda c: max(n for n in heads_that_divide(c.d_model) if n <= HEADS),
        key=lambda c: f"heads:{c.d_model}",
        hidden=True,
        help="How many heads share these numbers",
    )
    seed = lab.Number(
        "Seed",
        SEED,
        0,
        999_999,
        help="Another seed gives other random weights and word vectors.",
    )
    text = lab.Text(
        "Sentence",
        lambda _: STARTS[Controls.start.value],
        key="tokens",
        span=2,
        help="Each word becomes one token.",
    ).optional(lambda c: c.needs_words)
    shift = lab.Number(
        "Shift k",
        5,
        1,
        32,
        slider=True,
        help="How many positions later",
    ).when(lambda c: c.idea == "shift")
    places = lab.Number(
        "Positions",
        24,
        8,
        64,
        slider=True,
        help="How many positions are drawn",
    ).when(lambda c: c.idea in ("encoding", "distance") and not c.turns)
    query = lab.Number(
        "Position of the query, i",
        8,
        8,
        32,
        slider=True,
        span=2,
        help="The key moves along: the distance stays",
    ).when(lambda c: c.turns)
    apart = lab.Number(
        "Distance, i − j",
        3,
        0,
        8,
        slider=True,
        span=2,
        help="How many positions before the query the key is",
    ).when(lambda c: c.turns)
    cell = lab.CellField()

    @property
    def turns(self) -> bool:
        """Whether the hands of a query and a key are drawn: those of a grid have two distances, PoPE's keys lengths."""
        rotates = self.item.enters == "q, k" and self.item.key not in ("grid_rope", "pope")
        return rotates and self.idea == "encoding"

    @property
    def item(self) -> Entry:
        return ENTRIES[self.position.key]

    @property
    def needs_words(self) -> bool:
        return self.idea == "shuffle" or (self.idea == "shift" and self.item.enters != "x")

    @property
    def cut(self) -> Cut:
        return tokenize(self.text or "", MAX_TOKENS)

    @property
    def tokens(self) -> tuple[str, ...]:
        return labels(self.cut.tokens)

    @property
    def config(self) -> AttentionConfig:
        """The page's layer; ConfigError where the choices do not go together."""
        # no mask: a causal one would itself tell the order
        return AttentionConfig(self.d_model, self.heads, position=self.position)


def draw_controls(settings: lab.Place) -> Controls:
    row = st.grid(6, min_column_width=120, vertical_alignment="bottom")
    ideas = st.container(horizontal=True, vertical_alignment="bottom")
    controls = Controls.draw("idea", into=ideas)
    example = ideas.container(width=220)
    controls = controls.draw_more("position", into=row, settings=settings)
    controls = controls.draw_more("d_model", "heads", "seed", into=settings)
    lab.note_heads("positions:d_model", controls.d_model, controls.heads)
    controls = controls.draw_more("text", into=row).draw_more("shift", "places", into=example)
    hold = st.grid(6, min_column_width=120) if controls.turns else None
    controls = controls.draw_more("query", "apart", into=hold)
    if controls.idea == "shuffle":
        example.button(
            "Shuffle again",
            icon=":material/shuffle:",
            key="positions:again",
            on_click=partial(shuffle, controls),
            help="Puts the words in another random order",
        )
    return controls


def shuffle(controls: Controls) -> None:
    """Take the next order that differs from the one on the page, where there is one."""
    now, count = Controls.order.value, len(controls.tokens)
    orders = {n: study.shuffle(count, controls.seed, n).tolist() for n in range(now, now + 20)}
    Controls.order.value = next((n for n in orders if orders[n] != orders[now]), now + 1)


GUIDE_CONFIG, GUIDE_TOKENS = AttentionConfig(D_MODEL, HEADS), 12  # of the question


def page() -> None:
    lab.read_start("positions", "dog", "animal")
    explore()


@lab.fragment
def explore() -> None:
    lab.export.begin_before_title()
    Controls.order.linked(lab.between(1, 9999))
    lab.title(
        "Positions",
        "Does attention notice the order of words? Shuffle and see.",
        first=False,
    )
    top, picture = st.container(), lab.picture("positions")
    settings = lab.settings_panel("All settings", "positions:settings").grid(
        6, min_column_width=120
    )
    with top:
        controls = draw_controls(settings)
    config = parts = None
    with picture, lab.shown_errors(ValueError):
        config = controls.config
        parts = show(controls)
    notice = st.container()
    if controls.tokens:
        words = controls.tokens[:GUIDE_TOKENS]
        changes = lab.cached(study.shift_changes, GUIDE_CONFIG, words, controls.seed)
        lab.predict("positions", question(changes))
    lab.try_this(
        "positions",
        (
            lab.Move(
                "Remove the positions",
                Controls.state(position=Choice("none"), idea="shuffle"),
                "Each word keeps its output when the sentence is shuffled. Without positions, attention reads a "
                "sentence as a set of words.",
            ),
            lab.Move(
                "Rotate with RoPE",
                Controls.state(position=Choice("rope"), idea="encoding"),
                "Move the query: the key moves along, both hands turn, and the score stays.",
            ),
            lab.Move(
                "Move the sentence",
                Controls.state(position=Choice("rope"), idea="shift", shift=5),
                "The same words have the same scores five positions later. With sinusoids, they change.",
            ),
            lab.Move(
                "Prefer near words",
                Controls.state(position=Choice("alibi"), idea="distance"),
                "ALiBi lowers a score in proportion to the distance. Each head has its own slope, so some heads take "
                "from far and some from near.",
            ),
        ),
        notice,
    )
    if parts is not None:
        st.markdown(f"## What it means\n\n{controls.item.meaning}")
        # One element of two parts, which a narrow page breaks between.
        st.markdown(
            " $\\quad$ ".join(rf"$\displaystyle {part}$" for part in parts), text_alignment="center"
        )
        if controls.item.latex in parts:
            lab.caption(draw.SYMBOLS.get(controls.item.key, ""))
        if controls.idea == "shuffle":
            lab.details(
                "The vectors and the weights in both orders",
                partial(both_orders, controls),
                "positions:weights",
                opened=Controls.cell.in_link,
            )
    lab.write_start("positions")
    if config is not None:
        lab.train_with("position", config.position, key="positions:train")
    lab.details(
        "Equation, paper and code of the encoding",
        partial(source, controls, config),
        "positions:source",
    )


def show(controls: Controls) -> draw.Equation | None:
    """Draw picture, sentence and conditions, or why there are none; returns the equation."""
    parts = None
    if controls.needs_words and not controls.tokens:
        st.warning("There is no word here. Type a sentence: each word becomes one token.")
    elif controls.idea == "shuffle":
        parts = shuffled(controls)
    elif controls.item.enters not in PICTURES:
        st.info(
            f"{controls.item.name} changes nothing, so there is nothing to draw here. Shuffle the words, or pick "
            "another encoding.",
            icon=":material/straighten:",
        )
    else:
        fact, parts = PICTURES[controls.item.enters][controls.idea](controls)
        lab.fact(fact)
        if controls.turns:
            lab.caption(draw.TURNED)
            lab.details(
                "All pairs over positions",
                lambda: lab.paragraph(all_hands(controls)),
                "positions:all",
            )
    lab.caption(
        " ".join(
            [f"Layer and word vectors are random (seed {controls.seed}).", *controls.cut.notes]
        )
    )
    return parts


def chart(
    name: str,
    alt: str,
    heading: str,
    x: str,
    curves: Sequence[lab.Curve],
    log: bool = False,
    rule: float | None = None,
) -> None:
    spec = lab.line_chart(heading, x, curves, lab.Ink.of(lab.theme()), log=log, rule=rule)
    key = f"positions:{name}"
    lab.draw_chart(st, spec, theme=None, key=key, alt=alt, width="stretch")


# Encodings that are added to the input: the table, the similarity of two positions, and a shift as a linear map.


HANDS, SLOWEST = 4, 8  # pairs drawn as hands; times the positions: a slower hand seems not to move
FEW, CLOCKS = 3, 7  # hands and positions beside the shuffled words


def encoding(controls: Controls) -> draw.Words:
    added = lab.cached(study.added_table, controls.config, controls.seed, controls.places)
    lab.as_python(added=added)
    positions, dims = added.table.shape
    lab.linked_maps(
        Controls.cell,
        "table",
        [lab.Tile("What is added", f"{positions} positions × {dims} dimensions", added.table)],
        list(map(str, range(positions))),
        list(map(str, range(dims))),
        of="table",
        signed=True,
        noun="number added",
        reads="position (row) · dimension (column)",
        height=380,
    )
    chart(
        "curves",
        "Dimensions over positions",
        "Some dimensions at each position",
        "position",
        draw.table_curves(added.table),
    )
    if controls.item.key == "sinusoidal":
        table = lab.cached(study.table_of, controls.config, controls.seed, controls.places)
        hands(sinusoid_pairs(table), range(len(table)), HANDS)
    return draw.table_fact(added), draw.row_latex(controls.item, added.table)


def distance(controls: Controls) -> draw.Words:
    added = lab.cached(study.added_table, controls.config, controls.seed, controls.places)
    lab.as_python(added=added, draw={"positions:alike": draw.distance_code("added")})
    chart(
        "alike",
        "Similarity against distance",
        "Cosine of the vectors of two positions",
        "distance",
        [draw.similarity_curve(added)],
    )
    return draw.similarity_words(added)


def shift(controls: Controls) -> draw.Words:
    k = controls.shift
    linear = lab.cached(study.linear_maps, controls.config, controls.seed, k)
    lab.as_python(linear=linear)
    dims = list(map(str, range(len(linear.closed))))
    lab.linked_maps(
        Controls.cell,
        "linear",
        [
            lab.Tile("Closed form", f"rotations, from P({k})", linear.closed),
            lab.Tile("Least squares", "fitted to seven eighths of the table", linear.fitted),
        ],
        dims,
        dims,
        of="linear",
        signed=True,
        noun="entry of M",
        height=280,
        reads="dimension of P(i + k) (row) · of P(i) (column)",
    )
    chart(
        "misses",
        "Residual of the linear map against the shift",
        "Error of the map, as a share of the length",
        "shift k",
        draw.miss_curves(linear),
        log=True,
        rule=k,
    )
    return draw.shift_words(linear, k)


def hands(
    pairs: Sequence[Pair],
    positions: Sequence[int],
    max_pairs: int,
    words: Sequence[str] = (),
    of: str = "pairs of sine and cosine over {} positions",
) -> list[Pair]:
    """Draw pairs of numbers, from the fastest, as hands of a clock; returns those that are drawn."""
    moving = [pair for pair in pairs if pair.wavelength <= SLOWEST * (1 + max(positions))]
    drawn = lab.sample_pairs(moving or pairs[:1], max_pairs)
    lab.dials(
        drawn,
        positions,
        lab.Ink.of(lab.theme()),
        key="positions:hands",
        label=f"{len(drawn)} of {len(pairs)} {of.format(len(positions))}",
        words=words,
    )
    return drawn


# Encodings that change the scores: maps of the change, and its mean by distance.


def bias_encoding(controls: Controls) -> draw.Words:
    effect = lab.cached(study.score_changes, controls.config, controls.seed, controls.places)
    lab.as_python(effect=effect)
    changes = effect.changes[: draw.MAX_HEADS]
    span = float(np.abs(changes).max()) or 1.0
    lab.linked_maps(
        Controls.cell,
        "bias",
        [
            lab.Tile(f"Head {h}", f"mean {lab.number(change.mean())}", change, span=(-span, span))
            for h, change in enumerate(changes)
        ],
        list(map(str, range(controls.places))),
        of="bias",
        signed=True,
        noun="change of the score",
        query=min(draw.BACK, controls.places - 1),
        column=0,
        height=230,
    )
    return draw.change_words(effect, study.latex_of(controls.config, controls.seed))


def bias_distance(controls: Controls) -> draw.Words:
    effect = lab.cached(study.score_changes, controls.config, controls.seed, controls.places)
    lab.as_python(effect=effect, draw={"positions:cost": draw.heads_code(controls.places)})
    chart(
        "cost",
        "Change of the score against distance",
        "Change of the score by distance",
        "position of the key minus position of the query",
        draw.change_curves(effect),
        rule=0,
    )
    return draw.distance_words(effect, study.latex_of(controls.config, controls.seed))


# Encodings that rotate queries and keys: each pair of dimensions as a dial, and the score by distance.


def rotations_of(controls: Controls) -> study.Rotations:
    places = max(controls.places, controls.query + 1) if controls.turns else controls.places
    return lab.cached(study.rotations_of, controls.config, controls.seed, places)


def rotation_encoding(controls: Controls) -> draw.Words:
    """Draw the hands of a query and a key, where these have only one distance, else those of all positions."""
    rotations, query, apart = rotations_of(controls), controls.query, controls.apart
    equation = draw.rotation_latex(controls.item, rotations.pairs)
    if not controls.turns:
        lab.as_python(rotations=rotations, draw={"positions:dials": draw.PAIRS_CODE})
        return all_hands(controls), equation
    score = float(rotations.scores[query, query - apart])
    lab.as_python(
        rotations=rotations,
        draw={"positions:hands": draw.PAIRS_CODE},
        also=[draw.turned_cell(query, apart, score)],
    )
    lab.paragraph(draw.TURNING)
    pairs = hands(
        rotations.pairs,
        (query, query - apart, apart),
        FEW,
        ("query", "key", "distance"),
        "pairs of numbers of a query, of a key and between them",
    )
    lab.caption(draw.pairs_text(pairs, len(rotations.pairs)))
    return draw.turned_fact(rotations, query, apart), equation


def all_hands(controls: Controls) -> str:
    """Draw the pairs at all positions; returns how fast they rotate."""
    config, rotations = controls.config, rotations_of(controls)
    before: Sequence[Pair] = ()
    if unscaled := study.unscaled(config):
        before = lab.cached(study.rotations_of, unscaled, controls.seed, controls.places).pairs
    examples = lab.sample_pairs(rotations.pairs)
    count = min(controls.places, len(rotations.by_distance))
    lab.dials(
        examples,
        range(count),
        lab.Ink.of(lab.theme()),
        key="positions:dials",
        before=before,
        label=f"{len(examples)} pairs of dimensions rotating over {count} positions",
    )
    lab.caption(draw.pair_text(examples[0], config))
    return draw.rotation_fact(rotations.pairs, before, config)


def rotation_distance(controls: Controls) -> draw.Words:
    rotations = lab.cached(study.rotations_of, controls.config, controls.seed, controls.places)
    lab.as_python(rotations=rotations, draw={"positions:alike": draw.distance_code("rotations")})
    unit = "columns" if study.row_length(controls.config) else "positions"
    chart(
        "alike",
        "Similarity against distance",
        "Score of a unit vector and itself, rotated apart",
        f"distance in {unit}",
        draw.rotation_curves(rotations),
    )
    return draw.rotation_words(rotations, unit)


# The same words in another order, and some positions later: what becomes of weights, scores and outputs.


FIRST_NUMBERS = 12  # of each vector, in the picture of a sum: more leave no room for the words


def shuffled(controls: Controls) -> draw.Equation:
    inputs = controls.config, controls.tokens, controls.seed
    effect = lab.cached(study.shuffle_effect, *inputs, Controls.order.value)
    results: dict[str, Any] = {"effect": effect}
    if controls.item.enters == "x":
        results["added"] = lab.cached(study.added_vectors, *inputs)
    # on a wide screen the clocks, or the sentence, stand beside the words
    clocks = controls.item.key == "sinusoidal"
    with st.container(horizontal=True, gap="medium"):
        left, right = st.container(width=lab.room(1000)), st.container(width=lab.room(1000))
    with left:
        st.html(draw.sentence_rows(effect, controls.item))
    with left if clocks else right:
        lab.fact(draw.shuffle_fact(effect))
    parts = draw.shuffle_latex(effect)
    if clocks:
        with right:
            lab.paragraph(
                "**How a vector tells a position.** Each pair of its numbers is a clock hand that turns with the position, "
                "each at its own speed."
            )
            table = lab.cached(study.table_of, controls.config, controls.seed, CLOCKS)
            every = sinusoid_pairs(table)
            pairs = hands(every, range(CLOCKS), FEW, controls.tokens[:CLOCKS])
            lab.caption(f"{draw.pairs_text(pairs, len(every))} {draw.hands_text(pairs, CLOCKS)}")
        results["table"], parts = table, draw.row_latex(controls.item, table.numpy())
    codes = {
        "positions:sum": draw.sum_code(controls.tokens, FIRST_NUMBERS),
        "positions:hands": draw.HAND_CODE,
    }
    lab.as_python(draw=codes, **results)
    return parts


def both_orders(controls: Controls) -> None:
    inputs = controls.config, controls.tokens, controls.seed
    effect = lab.cached(study.shuffle_effect, *inputs, Controls.order.value)
    if controls.item.enters == "x":
        added = lab.cached(study.added_vectors, *inputs)
        words, places, total = (
            each[:, :FIRST_NUMBERS] for each in (added.words, added.places, added.total)
        )
        first, largest = words.shape[1], lab.number(np.abs(places).max())
        lab.multiples(
            [
                lab.Tile("Word vectors", f"the first {first} of {controls.d_model} numbers", words),
                lab.Tile("+ position vectors", f"the largest is {largest}", places),
                lab.Tile("= what attention reads", "word and position in one", total),
            ],
            effect.names,
            list(map(str, range(first))),
            key="positions:sum",
            signed=True,
            noun="number",
            reads="word (row) · dimension (column)",
            height=240,
            link="positions:added",
        )
    mixed = " ".join(effect.names[index] for index in effect.order)
    short = [lab.cut(text, 34) for text in (" ".join(effect.names), f"from {mixed}")]
    maps_with_difference(
        "maps",
        lab.Tile("In order", short[0], effect.ordered[0]),
        lab.Tile("Sorted back", short[1], effect.restored[0]),
        effect.names,
        fact=f"Largest change of a weight {lab.number(np.abs(effect.difference[0]).max())}",
        query=int(effect.change.argmax()),
        height=240,
        link="positions:shuffled",
    )
    lab.caption(
        "Without positions the outputs in both orders are the same, up to the rounding of float32. A change is the length "
        "of the difference, as a share of the output's length.",
    )


def order_shift(controls: Controls) -> draw.Words:
    k = controls.shift
    effect = lab.cached(study.shift_effect, controls.config, controls.tokens, controls.seed, k)
    lab.as_python(effect=effect)
    maps_with_difference(
        "moved",
        lab.Tile("At the start", f"scores of head {effect.head}", effect.first[effect.head]),
        lab.Tile(f"{k} positions later", "after other words", effect.later[effect.head]),
        effect.names,
        signed=True,
        noun="score",
        height=230,
        link="positions:shifted",
        query=len(effect.names) - 1,
    )
    return draw.moved_words(effect, k)


def maps_with_difference(
    name: str,
    before: lab.Tile,
    after: lab.Tile,
    tokens: Sequence[str],
    *,
    query: int,
    height: int,
    link: str,
    noun: str = "weight",
    signed: bool = False,
    fact: str = "",
) -> None:
    """Two maps, and the second minus the first; no picture shows where they differ by rounding alone."""
    options: dict[str, Any] = {"query": query, "height": height, "link": link, "noun": noun}
    options["pin"] = Controls.cell.pinned((len(tokens), len(tokens)), name)
    left, right = st.columns([3, 1], gap="small")
    with left:
        drawn = lab.multiples(
            [before, after], tokens, key=f"positions:{name}", signed=signed, fact=fact, **options
        )
    with right:
        if (before.weights == after.weights).all():
            st.caption("Both maps are the same up to rounding.")
        else:
            drawn = lab.difference_map(after, before, tokens, key="positions:difference", **options)
    Controls.cell.pin(drawn)


PICTURES: dict[str, dict[str, Callable[[Controls], draw.Words]]] = {
    "x": {"encoding": encoding, "distance": distance, "shift": shift},
    "q, k": {"encoding": rotation_encoding, "distance": rotation_distance, "shift": order_shift},
    "scores": {"encoding": bias_encoding, "distance": bias_distance, "shift": order_shift},
}


def source(controls: Controls, config: AttentionConfig | None) -> None:
    lab.entries_panel([controls.item])
    if config is None:
        return
    layer = seeded_layer(config, controls.seed)
    count = sum(weight.numel() for weight in layer.position.parameters())
    others = sum(weight.numel() for weight in layer.parameters()) - count
    lab.caption(
        draw.parameters_text(controls.item, count, others, controls.d_model, controls.heads)
    )
    own, *bases = inspect.getmro(type(layer.position))
    near = (base for base in bases[:1] if base.__module__ == own.__module__)
    lab.source_panel(own, *(base for base in near if base is not Position))


# What a reader predicts on Positions.


OPTIONS = ("Yes: the same distances", "No: other positions")


def question(changes: Mapping[str, float]) -> lab.Question:
    """Whether sinusoids keep the scores of a sentence that comes later; `changes` are the largest changes of a score."""
    return lab.Question(
        f"With sinusoids: {study.GUIDE_SHIFT} other words now stand before the sentence. Do the scores between its own "
        "words stay the same?",
        OPTIONS,
        int(changes["sinusoidal"] >= draw.SAME_SCORE),
        (draw.shift_reason(changes),) * len(OPTIONS),
    )
