"""Masks: pick, compose, type or draw who may see whom, and watch the same scores become other weights."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.attention import AXES, Choice, ConfigError, entry
from core.attention.masks import COMPOSITIONS, make_mask
from core.attention.masks.patterns import Rule
from core.interpret import trace as analysis
from core.studies import order
from core.tokens import tokenize

# The controls: the sentence, the mask or two of them joined, their parameters, and the head.

MAX_TOKENS = 64  # as many as a drawing may have
MASKS = {item.key: item.name for item in AXES["mask"] if item.key not in COMPOSITIONS}
TEXT_COLUMNS, PADDING = 3, 2  # cells of a typed parameter; keys that a padding mask hides at first


key = "masks:{}".format  # a widget's key, which is also its name in the link


def start_drawing() -> None:
    """Start the first drawing from the mask on the page, when a drawing is chosen in the list."""
    state, drawing = st.session_state, key("first:drawn:drawing")
    if state[key("first")] == "drawn" and state.get(key("shown")) and state.get(drawing) is None:
        state[drawing] = state[key("shown")]


def apply_drawing() -> None:
    """Make the mask the board's drawing, after cells were pressed."""
    state = st.session_state
    state[key("first:drawn:drawing")] = lab.drawing_text(key("board"))
    state[key("before")] = state[key("shown")]
    state[key("first")], state[key("join")] = "drawn", "alone"
    lab.write_linked("masks", key("cell"), None)  # the maps follow the pressed cell


class Controls(lab.Fields, page="masks"):
    tokens = lab.Text(
        "Sentence",
        "The animal didn't cross the street because it was too tired .",
        span=3,
        help="Each word becomes one token.",
    )
    first = lab.Select(
        "Mask",
        MASKS,
        "causal",
        span=2,
        help="Which keys each query may attend to",
        also={"on_change": start_drawing},
    )
    join = lab.Select(
        "Combine",
        {
            "alone": "alone",
            "not": "not",
            "and": "and",
            "or": "or",
            "and_not": "and not",
            "or_not": "or not",
        },
        help="Use the mask alone, invert it, or join it with a second one",
    )
    second = lab.Select(
        "Second mask",
        MASKS,
        "causal",
        help="The mask that is joined with the first",
    ).optional(lambda values: values.join in ("and", "or", "and_not", "or_not"))
    head = lab.Select("Head", range(order.HEADS), help="The head whose weights are drawn")
    real = lab.Number(
        "Real tokens",
        lambda values: max(0, len(tokenize(values.tokens, MAX_TOKENS).tokens) - PADDING),
        0,
        512,
        help="Tokens after these are padding. With 0 every token is padding.",
    ).optional(lambda values: "padding" in (values.first, values.second))


def draw_controls(
    below: st.delta_generator.DeltaGenerator, settings: st.delta_generator.DeltaGenerator
) -> lab.Values:
    """Draw the controls; what is typed stands in `below` and rare ones in `settings`, so that the maps do not move.

    Without tokens there is nothing to draw; `stale`: a typed text cannot be read.
    """
    grid, rare = st.grid(6, min_column_width=120), settings.grid(6, min_column_width=120)
    values = Controls.draw("tokens", "first", into=grid)
    values = Controls.draw("join", "second", "head", into=rare, **values)
    typed = settings if values.first == "drawn" else below  # a drawing is hardly ever typed
    parts = [draw_mask("first", values.first, grid, typed)]
    if values.second:
        parts.append(draw_mask("second", values.second, rare, settings, ", 2nd"))
    values = Controls.draw("real", into=grid, **values)
    cut = tokenize(values.tokens, MAX_TOKENS)
    mask = composed(values.join, *(mask for mask, _ in parts))
    stale = any(stale for _, stale in parts)
    return lab.Values(values, tokens=cut.tokens, notes=cut.notes, mask=mask, stale=stale)


def draw_mask(
    name: str, mask: str, grid: Any, below: st.delta_generator.DeltaGenerator, suffix: str = ""
) -> tuple[Choice, bool]:
    """Draw the parameters of a mask and return it with their values.

    Where a text cannot be read, the mask has the last that could, and True follows.
    """
    params, drawn = entry("mask", mask).params, {}
    if any(map(lab.is_text, params)):
        grid = below.grid(6, min_column_width=120)
    for param in params:
        # One cell each, so that an error is drawn under its field.
        with grid.cell(column_span=TEXT_COLUMNS if lab.is_text(param) else 1):
            drawn[param.key] = lab.param_widget(
                replace(param, name=param.name + suffix), key=key(f"{name}:{mask}:{param.key}")
            )
    values = lab.params_in_session(entry("mask", mask), key=key(name))
    return Choice.of(mask, **values), values != drawn


def composed(join: str, first: Choice, second: Choice | None = None) -> Choice:
    operator, _, negated = join.partition("_")
    others = [] if second is None else [Choice.of("not", second) if negated else second]
    return first if join == "alone" else Choice.of(operator, first, *others)


# What the page computes as Python.


def script(controls: lab.Values, effect: order.MaskEffect) -> lab.Script:
    return lab.Script(
        (
            lab.Cell(
                "A layer with seeded weights reads one sentence, without the mask and with it.",
                f"""
from core.attention import Choice
from core.studies.order import mask_effect

tokens = {lab.source_of(controls.tokens)}
mask = {lab.source_of(controls.mask)}
effect = mask_effect(mask, tokens, {controls.real}, {controls.head})  # tokens that are real, if padding is masked; head
before, after = effect.before, effect.after  # (T, T)
""",
                """
from core.show import show_maps

show_maps({"With the mask": after, "Without the mask": before}, effect.names, effect.names)
""",
                "masks:maps",
            ),
            lab.Cell(
                "The cells that the mask allows, and how many layers of it connect each pair of tokens.",
                """
allowed, needed = effect.allowed, effect.needed
print(allowed.sum(), "of", allowed.size, "cells are allowed;", needed.max(), "layers connect them")
""",
            ),
        ),
        {name: getattr(effect, name) for name in ("before", "after", "allowed", "needed")},
    )


# Sentences, equations and the table of the page Masks.


MAX_KEYS = 8  # columns of the table of PyTorch


def fact_text(effect: order.MaskEffect, cell: tuple[int, int] | None = None) -> str:
    """What the mask hides in all, and in the row of a cell what becomes of that weight."""
    visible, cells = int(effect.allowed.sum()), effect.allowed.size
    if visible == cells:
        return f"Nothing is masked: all **{cells}** cells are allowed, and no weight changes."
    text = f"The mask leaves **{visible} of {cells}** cells, {lab.percent(visible / cells)}."
    if picked := effect.selection:  # of a mask that reads content
        text += (
            f" It chose {lab.number(picked.keys)} keys a query by their content: among them are {lab.percent(picked.recall)} "
            f"of the keys with the largest weights of causal attention, and {lab.percent(picked.weight)} of its weight."
        )
    row, column = cell or (0, 0)
    hidden = np.flatnonzero(~effect.allowed[row])
    if effect.factor is None and cell and 0 < len(hidden) < len(effect.names):
        name, its = lab.plain(effect.names[row]), "its" if len(hidden) == 1 else "their"
        keys = " and ".join(f"“{lab.plain(effect.names[j])}”" for j in hidden)
        text += (
            f" It hides {keys if len(hidden) < 3 else f'{len(hidden)} words'} from :primary[{name}]: {its} weight, "
            f"**{lab.share_text(effect.before[row, hidden].sum())}**, goes to the keys that are left"
        )
        if effect.allowed[row, column]:
            now, before = effect.after[row, column], effect.before[row, column]
            text += f": “{lab.plain(effect.names[column])}” has {lab.share_text(now)} in place of {lab.share_text(before)}"
        text += "."
    elif effect.factor is None:
        text += " A hidden key gets the weight 0; the others share the row."
    blind = np.flatnonzero(~effect.allowed.any(1))
    if blind.size:
        names = ", ".join(f"“{lab.plain(effect.names[i])}”" for i in blind[:4])
        more = f" and {len(blind) - 4} more" if len(blind) > 4 else ""
        its = "its" if len(blind) == 1 else "their"
        text += (
            f" No key is left for {names}{more}: a share of nothing is 0/0, and by convention {its} weights and "
            f"{its} output are 0."
        )
    return text


def press_text(before: order.MaskEffect, after: order.MaskEffect, cell: tuple[int, int]) -> str:
    """What a press on the board, which changed that cell first, did to its row."""
    (i, j), names = cell, [*map(lab.plain, after.names)]
    sign = (
        1 if after.allowed[i, j] else -1
    )  # the key gets weight or loses it, the others the opposite
    old, new = before.after[i], after.after[i]
    other = int((sign * (new - old)).argmin())
    largest = f"“{names[other]}” ({lab.share_text(old[other])} → {lab.share_text(new[other])})"
    if not after.allowed[i].any():
        rest = "no key is left"
    elif sign > 0:
        rest = f"it gets **{lab.share_text(new[j])}**, most of it from {largest}"
    else:
        rest = (
            f"its weight **{lab.share_text(old[j])}** goes to the others, most of it to {largest}"
        )
    count = int((before.allowed != after.allowed).sum())
    also = f" {count} cells have changed." * (count > 1)
    return f":primary[{names[i]}] may {'now' if sign > 0 else 'no longer'} attend to “{names[j]}”: {rest}.{also} "


rule_of = partial(lab.rule, "mask", changed=False, length="length")


def equation(
    effect: order.MaskEffect, mask: Choice, i: int, j: int, colour: str
) -> tuple[str, ...]:
    """The keys that query i may attend to, and its weight on key j in numbers: parts that a line may break between."""

    pick = partial(lab.coloured, colour=colour)
    query, key = lab.latex_name(effect.names[i], i), lab.latex_name(effect.names[j], j)
    keys = [int(m) for m in np.flatnonzero(effect.allowed[i])]
    first = rf"M_i = \{{\, j : {lab.mask_latex(mask)} \,\}} \quad"
    second = rf"{{M_{{{pick(query)}}} = {index_set(keys)} \quad}}"
    weight = pick(f"w_{{{query},\\,{key}}}")
    unmasked = rf"\quad \text{{without the mask }} {lab.latex(effect.before[i, j])}"
    if j not in keys:
        zero = pick(r"\mathbf{0}")
        return first, second, rf"{weight} = {zero}\quad (j = {j} \notin M_i)", rf"{{{unmasked}}}"
    powers = effect.scores[i]
    terms = sorted(sorted(keys, key=lambda m: (m != j, -powers[m]))[:3])
    below = " + ".join(f"e^{{{lab.latex(powers[m])}}}" for m in terms) + (
        r" + \cdots" if len(keys) > len(terms) else ""
    )
    fraction = rf"\frac{{e^{{{lab.latex(powers[j])}}}}}{{{below}}}"
    factor = "" if effect.factor is None else rf" \cdot {lab.latex(effect.factor[i, j])}"
    result = pick(rf"\mathbf{{{lab.latex(effect.after[i, j])}}}")
    # A part in braces never breaks over two lines.
    return first, second, weight, rf"{{= {fraction}{factor}}}", rf"{{= {result}{unmasked}}}"


def index_set(keys: list[int]) -> str:
    if not keys:
        return r"\varnothing"
    if len(keys) > 2 and keys == list(range(keys[0], keys[-1] + 1)):
        return rf"\{{{keys[0]}, \ldots, {keys[-1]}\}}"
    items = [str(j) for j in keys[:8]] + ([r"\ldots"] if len(keys) > 8 else [])
    return rf"\{{{', '.join(items)}\}}"


def stack_fact(needed: np.ndarray) -> str:
    pairs, never, most = needed.size, int((needed == 0).sum()), int(needed.max(initial=0))
    layers = "One layer connects" if most == 1 else f"**{most}** layers connect"
    if not never:
        steps = [
            f"{lab.percent(float((needed <= n).mean()))} after {n}" for n in range(1, min(most, 4))
        ]
        short = f" ({', '.join(steps)})" if steps else ""
        return f"{layers} every token with every other{short}."
    if never == pairs - len(needed):
        return "No token receives information from another, however many layers are stacked."
    return (
        f"{layers} all pairs that this mask can connect; **{never} of {pairs}** pairs are never "
        "connected, however many layers are stacked."
    )


def batch_fact(sentences: list[order.Sentence]) -> str:
    worst = max(sentences, key=lambda item: item.leak)
    masked = float(worst.weights[: worst.real, worst.real :].sum(-1).mean())
    length = len(worst.names)  # of each
    padding = sum(length - item.real for item in sentences) * length
    return (
        f"{padding} of {len(sentences) * length**2} cells belong to padding. Without a mask, the words of "
        f"“{lab.plain(' '.join(worst.names[: worst.real]))}” put **{lab.number(worst.leak)}** of their weight on padding; "
        f"with it, **{lab.number(masked)}**. A row of padding may get weights, too, but no word attends to it, so its "
        "output is never used."
    )


def torch_fact(check: order.TorchCheck | None) -> str:
    if check is None:
        return "This mask also multiplies the weights, which `nn.MultiheadAttention` cannot do."
    rows = (
        "the query that has" if check.nan_rows == 1 else f"the {check.nan_rows} queries that have"
    )
    nan = (
        f" It returns NaN for {rows} no key, where the layer of this page returns 0."
        if check.nan_rows
        else ""
    )
    without = (
        f"**{lab.percent(check.forbidden)}** of the weight goes to keys that the mask forbids"
        if check.forbidden
        else "each key would be ignored and the result would be NaN"
    )
    return (
        f"Both layers were run on this sentence with the same parameters. With `~`, `nn.MultiheadAttention` gives "
        f"the weights above; the largest difference is {lab.number(check.difference)}. Without `~`, {without}.{nan}"
    )


# The page: the mask as a board, weights with and without it, the guide, one equation, a batch; then the details.


CELL = 64  # px of a cell on a laptop, at most: of a few words all are as large as the width allows
# On a phone the sentence stands between the controls and the board, so that a press and what it does are in one screen.
STYLE = "<style>@media (max-width: 640px) { :has(> .st-key-masks-words) { order: -1 } }</style>"
PADDED = 2  # tokens of the question
FORMULA = "j <= i and i - j < 2 or j == 0"  # to try


def page() -> None:
    lab.title(
        "Masks",
        "To learn to predict the next word, a model must not see it: a mask hides the later words.",
    )
    st.html(STYLE)
    for sentence in Controls.refused():
        st.warning(sentence)
    explore()


@lab.fragment
def explore() -> None:
    row, board = st.container(), st.container()
    with board:
        figure, below = lab.picture("masks"), st.container()
        words = st.container(key=key("words"))
    conditions, settings = st.container(), lab.settings_panel("All settings", key("settings"))
    with row:
        controls = draw_controls(below, settings)
    with figure:
        result = show(controls, words, conditions)
    if result is None:
        return
    effect, cell = result
    lab.add_script(partial(script, controls, effect))
    lab.predict("masks", question(len(effect.names)))
    lab.try_this(
        "masks",
        (
            lab.Move(
                "Two words back",
                _mask("causal_local", lookback=2),
                "Each word attends to itself and the two words before it. “How far a stack of layers reaches” counts how "
                "many such layers connect the last word with the first.",
            ),
            lab.Move(
                "Hide padding",
                _mask("padding"),
                "The last two tokens count as padding. Their columns are crossed out; their rows are not.",
            ),
            lab.Move(
                "The opposite of causal",
                _mask("causal", "not"),
                "Now each word attends only to later words. The last word has no key left, so its output is 0 here.",
            ),
            lab.Move(
                "Type a rule",
                _mask("formula", text=FORMULA),
                "A field appears below the maps. The rule allows a word, the one before it, and always the first one; edit "
                "it and watch the cells.",
            ),
        ),
    )
    st.markdown("## What the mask does to one weight")
    lab.paragraph(
        "A mask sets the scores that it hides to −∞. Softmax then gives them the weight 0, and the other keys of the "
        "row share all of the weight."
    )
    st.markdown(
        " ".join(
            rf"$\displaystyle {part}$"
            for part in equation(effect, controls.mask, *cell, lab.Ink.of(lab.theme()).pick)
        ),
        text_alignment="center",
    )
    lab.caption(
        "$M_i$ is the set of keys that query $i$, the word of row $i$, may attend to; $w_{i,j}$ is its weight on key "
        "$j$, the word of column $j$. Rows and columns count from 0.",
    )
    lab.train_with("mask", controls.mask, key=key("train"))
    for pin, panel in (
        ("padded", "batched"),
        ("reach", "stacked"),
    ):  # a link to a cell opens its panel
        if key(pin) in st.query_params:
            st.session_state.setdefault(key(panel), True)
    lab.details(
        "A batch of sentences of different lengths", partial(batch, controls), key("batched")
    )
    lab.details("How far a stack of layers reaches", partial(stack, effect), key("stacked"))
    lab.details(
        "The same mask in PyTorch", partial(in_pytorch, effect, controls, cell[0]), key("pytorch")
    )
    lab.details(
        "Equation, paper, code and measures of the mask",
        partial(sources, effect, controls),
        key("sources"),
    )


def show(
    controls: lab.Values,
    words: st.delta_generator.DeltaGenerator,
    conditions: st.delta_generator.DeltaGenerator,
) -> tuple[order.MaskEffect, tuple[int, int]] | None:
    """Draw the maps, and in its places the fact and the conditions; returns the numbers and the picked cell."""
    if not controls.tokens:
        st.warning(
            "There is no token here. Type a word, or a sentence: each word becomes one token."
        )
        return None
    if controls.stale:
        st.caption(
            f"The maps show the last rule that could be read: {lab.plain(rule_of(controls.mask))}."
        )
    try:
        effect = lab.cached(
            order.mask_effect, controls.mask, controls.tokens, controls.real, controls.head
        )
    except ConfigError as error:
        st.error(lab.plain(str(error)))
        return None
    st.session_state[key("shown")] = effect.drawing  # from which a drawing would start
    before, press = st.session_state.get(key("before")), ""
    pressed: tuple[int, int] | None = None
    if controls.mask.key == "drawn" and before:
        drawn = Choice.of("drawn", drawing=before)
        earlier = lab.cached(
            order.mask_effect, drawn, controls.tokens, controls.real, controls.head
        )
        for i, j in np.argwhere(earlier.allowed != effect.allowed)[:1].tolist():
            pressed = i, j
    cell = maps(effect, controls.mask, pressed)
    if cell == pressed:
        press = press_text(earlier, effect, cell)
    with words:
        lab.fact(press + fact_text(effect, None if press else cell))
    meaning, _, _ = entry("mask", controls.mask.key).meaning.partition(". ")
    rule = rule_of(controls.mask)
    with conditions:
        lab.caption(
            f"{meaning.removesuffix('.')}: {lab.plain(rule)}{' (i: row, j: column)' * ('j' in rule)}. "
            + " ".join([f"The layer is random (seed {order.SEED}), not trained.", *controls.notes])
        )
    return effect, cell


def maps(
    effect: order.MaskEffect, mask: Choice, pressed: tuple[int, int] | None
) -> tuple[int, int]:
    # The query whose weights the mask changes most, of those that see at least the median number
    # of keys
    keys, change = effect.allowed.sum(1), np.abs(effect.after - effect.before).sum(1)
    min_keys = min(max(float(np.median(keys)), 2.0), keys.max())
    query = int(np.where(keys >= min_keys, change, -1.0).argmax())
    query, column = pressed or (query, int(effect.after[query].argmax()))
    name = lab.choice_name("mask", mask)
    count = f"{effect.allowed.sum()} of {effect.allowed.size} cells"
    # Of more tokens the cells of a board in a column are too small to click; from 600 px on the maps keep their names.
    in_columns = len(effect.names) <= 24
    left, right = (
        st.columns([1, 1.84], gap="small") if in_columns else (st.container(), st.container())
    )
    with left:
        lab.mask_board(
            effect.allowed,
            effect.names,
            key=key("board"),
            weights=effect.after,
            cell=CELL,
            on_draw=apply_drawing,
            query=query,
            title=name,
            note="query (row), key (column)",
            fact=f"{name}: {count} are allowed.",
        )
    tiles = [
        lab.Tile("With the mask", count, effect.after, effect.allowed),  # a phone shows the first
        lab.Tile("Without the mask", "every key", effect.before),
    ]
    with right:
        pin = linked(
            "maps",
            "cell",
            tiles,
            effect.names,
            fact_text(effect),
            height=420,  # and cells, as the board has
            cell=CELL,
            query=query,
            column=column,
        )
    return pin or (query, column)


def linked(
    name: str,
    pin: str,
    tiles: list[lab.Tile],
    names: Sequence[str],
    fact: str,
    height: int = 300,
    **options: Any,
) -> tuple[int, int] | None:
    """Draw maps with one pinned cell, which is in the link as `pin`."""
    return lab.write_linked(
        "masks",
        key(pin),
        lab.multiples(
            tiles,
            names,
            key=key(name),
            height=height,
            pin=lab.read_linked("masks", key(pin), (len(names), len(names))),
            fact=fact.replace("*", ""),
            **options,
        ),
    )


def in_pytorch(effect: order.MaskEffect, controls: lab.Values, query: int) -> None:
    first = max(0, min(query - MAX_KEYS // 2, len(effect.names) - MAX_KEYS))
    keys = slice(first, first + MAX_KEYS)
    row = effect.allowed[query, keys]
    heading, size = f"Query {query}: {effect.names[query]}", len(effect.names)
    lab.table(
        [heading, *effect.names[keys]],
        [
            [
                "here, F.scaled_dot_product_attention: True = may attend",
                *(str(bool(c)) for c in row),
            ],
            ["nn.MultiheadAttention: True = ignore", *(str(not c) for c in row)],
        ],
        caption=heading,
        markers=False,
    )
    st.code(
        f"# allowed: bool ({size}, {size}), True = may attend, as on this page\n"
        "attn_mask = ~allowed  # the line that converts: True = ignore\n"
        f"mha = nn.MultiheadAttention({order.D_MODEL}, {order.HEADS}, batch_first=True)\n"
        "out, weights = mha(x, x, x, attn_mask=attn_mask)\n\n"
        "out = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)  # no conversion",
        language="python",
    )
    st.markdown(
        torch_fact(lab.cached(order.torch_check, controls.mask, controls.tokens, controls.real))
    )


def stack(effect: order.MaskEffect) -> None:
    lab.fact(stack_fact(effect.needed))
    most = int(effect.needed.max(initial=0))
    left, right = st.columns([1, 1.2], gap="medium") if most > 1 else (None, st.container())
    if left is not None:  # a map in which every cell is 1 would show the mask again
        with left:
            linked(
                "stack",
                "reach",
                [
                    lab.Tile(
                        "Layers needed",
                        "until information from the key reaches the query",
                        effect.needed,
                        effect.needed > 0,
                        span=(0.0, float(most)),
                    )
                ],
                effect.names,
                stack_fact(effect.needed),
                noun="layers",
            )
            lab.caption(
                "Each layer has this mask, and the residual connection passes on what it received. Hatched: never.",
            )
    with right:
        heading = f"Each mask with its default parameters, {len(effect.names)} tokens"
        st.markdown(f"**{heading}**")
        lab.table(
            ("mask", "rule", "cells", "layers", "never"),
            [
                [name, rule, str(cells), str(layers), str(never or "–")]
                for name, rule, cells, layers, never in lab.cached(
                    order.patterns, len(effect.names)
                )
            ],
            caption=heading,
            left=2,
            markers=False,
        )
        lab.caption(
            "Cells: how many are allowed. Layers: how many connect all pairs that can be connected. Never: pairs "
            "that no number of layers connects.",
        )


def batch(controls: lab.Values) -> None:
    sentences = lab.cached(order.batch, controls.mask, controls.head)
    tiles = [
        lab.Tile(
            " ".join(item.names[: item.real]),
            f"{item.real} tokens, {len(item.names) - item.real} of padding",
            item.weights,
            item.allowed,
        )
        for item in sentences
    ]
    linked(
        "batch",
        "padded",
        tiles,
        [str(position) for position in range(len(sentences[0].names))],
        batch_fact(sentences),
        reads="position of the query (row) attends to → position of the key (column)",
    )
    lab.fact(batch_fact(sentences))


def sources(effect: order.MaskEffect, controls: lab.Values) -> None:
    maps = np.stack((effect.after, effect.before))
    entropy, distance = analysis.entropy(maps).mean(1), analysis.mean_distance(maps)
    lab.caption(
        f"The mean entropy of a row is {lab.number(entropy[0])} nats (without the mask {lab.number(entropy[1])}), and the "
        f"mean distance to the attended key {lab.number(distance[0])} tokens ({lab.number(distance[1])}). Head "
        f"{controls.head} of {order.HEADS}, d_model {order.D_MODEL}, no positions.",
    )
    mask = controls.mask
    config = order.config_of(mask)
    for choice in config.mask.walk():
        item, piece = entry("mask", choice.key), make_mask(choice, config)
        lab.entries_panel([item])
        lab.source_panel(item.build if isinstance(piece, Rule) else type(piece))
    st.markdown("The same layer in a notebook:")
    st.code(
        "from core.attention import Attention, AttentionConfig, Choice\n\n"
        f"mask = {lab.source_of(mask)}\nlayer = Attention(AttentionConfig({order.D_MODEL}, {order.HEADS}, mask=mask))\n",
        language="python",
    )


# What a reader predicts and tries on Masks.


def question(tokens: int) -> lab.Question:
    size = max(tokens, PADDED + 1)
    removed = ~order.allowed_of(
        order.steps_of(Choice("padding"), ("word",) * size, size - PADDED), 0
    )
    rows, columns = bool(removed[-PADDED:].all()), bool(removed[:, -PADDED:].all())
    rule = (
        f"A padding mask removes {int(removed.sum())} of {size * size} cells here: the last {PADDED} columns. No "
        "word attends to padding."
    )
    row = "A row of padding is still computed, but nothing reads its output."
    return lab.Question(
        f"The last {PADDED} tokens are now padding: empty, to fill a batch. Which cells must the mask hide?",
        ("Their rows", "Their columns", "Both"),
        {(True, False): 0, (False, True): 1, (True, True): 2}[rows, columns],
        (f"{rule} A row holds what its own query takes.", f"{rule} {row}", f"{rule} {row}"),
    )


def _mask(first: str, join: str = "alone", **params: object) -> dict[str, object]:
    return {
        "masks:first": first,
        "masks:join": join,
        **{f"masks:first:{first}:{name}": value for name, value in params.items()},
    }
