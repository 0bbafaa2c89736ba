"""Model cards: published models, or one from a config, layer by layer, with their sizes, caches and costs."""

from functools import partial
from html import escape
from itertools import groupby

import streamlit as st

from core.attention import AXES, AttentionConfig
from core.attention.presets.base import name as choice_name
from core.models.cards import (
    CARDS,
    KINDS,
    LENGTHS,
    LONG,
    SHORT,
    AttentionLayer,
    Kind,
    ModelCard,
    cache,
    card,
    curve,
    curves,
)
from dashboard.page import (
    CATEGORIES,
    HERE,
    PICK,
    Cell,
    Fields,
    MultiSelect,
    Script,
    Select,
    Theme,
    Values,
    add_script,
    byte_size,
    caption,
    details,
    draw_chart,
    fact,
    fragment,
    number,
    operations,
    paragraph,
    percent,
    plain,
    size_figure,
    source_of,
    source_panel,
    step_of,
    table,
    theme,
    title,
)
from dashboard.server.jobs import LimitReached, admit_upload
from dashboard.ui.mechanism import to_text
from dashboard.ui.run_setup import train_small

# The controls of the page: the model, and those whose caches are compared with its own.


COMPARED = ("llama3", "deepseek_v32", "qwen3_next")
ALONE = "none"
MAX_CHARACTERS = 200_000  # of a pasted config
MAX_BESIDE = 5  # models beside the chosen one: six curves in a figure


key = "cards:{}".format  # a widget's key, which is also its name in the link


def name(model: str) -> str:
    return f"{card(model).name} · {card(model).year}"


FIELDS = Fields(
    "cards",
    model=Select(
        "Model",
        [one.key for one in CARDS],
        "gemma3",
        text=name,
        help="The published model whose card is drawn below.",
    ),
    compared=MultiSelect(
        f"Up to {MAX_BESIDE} models",
        [one.key for one in CARDS if one.stores],
        COMPARED,
        text=name,
        max_options=MAX_BESIDE,
        help="Models whose caches are drawn beside that of the chosen one.",
    ),
    beside=Select(
        "Beside",
        [ALONE, *(one.key for one in CARDS)],
        ALONE,
        text=lambda one: "No other model" if one == ALONE else name(one),
        help="A second model, of which is listed what differs from the first.",
    ),
)


# The page's sentences and tables, from the cards.


REFERENCE = "llama2"  # stores the keys and values of every head in every layer
LAYER = AttentionConfig()


def figures(one: ModelCard) -> list[str]:
    return [
        f"{one.parameters:,}",
        percent(one.active / one.parameters),
        byte_size(one.token_bytes) if one.stores and one.known else "–",
        *(size_text(cache(one, length)) for length in (SHORT, LONG)),
        operations(one.flops(read(one))) if one.known else "–",
    ]


FIGURES = (
    "parameters",
    "used by a token",
    "cache, first token",
    "at 8k tokens",
    "at 128k tokens",
    "FLOPs a token",
)


def differences(one: ModelCard, other: ModelCard) -> list[list[str]]:
    """What differs between two models: a name, and how it is in each."""

    def described(model: ModelCard) -> dict[str, str]:
        choices = {
            axis: ", ".join(
                dict.fromkeys(
                    choice_name(axis, getattr(layer.config, axis), full=True)
                    for layer in model.distinct
                    if layer.config is not None
                )
            )
            for axis in AXES
        }
        return {
            "layers": str(len(model.blocks)),
            "attentions": "; ".join(
                f"{count} × {layer.name}" for layer, count in model.distinct.items()
            ),
            **choices,
            "width": f"{model.d_model:,}",
            "vocabulary": f"{model.vocabulary:,}",
            "output map": "the word embeddings" if model.tied else "its own",
            **dict(zip(FIGURES, figures(model), strict=True)),
        }

    mine, theirs = described(one), described(other)
    return [
        [name, mine[name] or "–", theirs[name] or "–"]
        for name in mine
        if mine[name] != theirs[name]
    ]


def size_text(size: int | None) -> str:
    return "–" if size is None else byte_size(size)


def billions(count: int | None) -> str:
    return "–" if count is None else number(count / 1e9)


def read(one: ModelCard) -> int:
    """The number of tokens that a token attends to where FLOPs are given: SHORT, or the longest text."""
    return min(SHORT, one.longest or SHORT)


def fact_text(one: ModelCard) -> str:
    if not one.known:
        return (
            f"{one.name} has **{operations(one.parameters)}** parameters. Its cache is not counted, as the lab does not "
            "have all of its attentions."
        )
    if not one.stores:
        return (
            f"{one.name} reads a whole text at once: **nothing is stored**, and each of {read(one):,} tokens takes "
            f"{operations(one.flops(read(one)))} FLOPs."
        )
    other, length = card(REFERENCE), min(LONG, one.longest or LONG)
    size, late = one.cache_bytes(length), one.late_bytes(length)
    grows = (
        f": {byte_size(late)} for each token" if late else ", and nothing more for a further token"
    )
    if late and byte_size(late * length) != byte_size(size):
        grows += f", and {byte_size(size - late * length)} that do not grow"
    if late != one.token_bytes:
        grows += f". Until its windows are full, a token adds {byte_size(one.token_bytes)}"
    beside = (
        ""
        if one.key == REFERENCE
        else f" {other.name} would store {byte_size(other.cache_bytes(length))}."
    )
    return f"{one.name} stores **{byte_size(size)}** at {length:,} tokens{grows}.{beside}"


def note(one: ModelCard) -> str:
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
    published = f" Published as {one.published} billion parameters." if one.published else ""
    checked = (
        "The number of parameters equals that of transformers' own model, to the last one."
        if one.key != "retnet"
        else "transformers has no such model to compare with."
    )
    return (
        f"Calculated from its sizes, no model is loaded: numbers of 2 bytes, and two FLOPs for each number that a "
        f"token is multiplied with, of weights, keys and values, at {read(one):,} tokens.{unfolded}{experts}"
        f"{window}{remark} Sizes of {plain(one.checkpoint)}, from {plain(one.source)}.{published} {checked}"
    )


def part_rows(one: ModelCard) -> list[list[str]]:
    return [
        [name, f"{count:,}", percent(count / one.parameters)]
        for name, count in one.parameter_rows.items()
    ]


def layer_text(layer: AttentionLayer, count: int) -> str:
    config = layer.config
    choices = [
        choice_name(axis, choice, full=True)
        for axis in AXES
        if config and (choice := getattr(config, axis)) != getattr(LAYER, axis)
    ]
    extras = "".join(
        f" {plain(extra.name)}: {abs(extra.parameters):,} parameters "
        f"{'more' if extra.parameters > 0 else 'fewer'}, {plain(extra.reason)}."
        for extra in layer.extras
    )
    heads = (
        f"{config.num_heads} heads of {config.head_dim}. {plain('; '.join(choices))}"
        if config
        else "none of the lab's attentions"
    )
    layers = f"{count} layers, each of" if count > 1 else "one layer of"
    return (
        f"**{plain(layer.name[:1].upper() + layer.name[1:])}**, {layers} {layer.parameters:,} parameters: {heads}."
        f"{extras}"
    )


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


# A card that is read from a config of the reader: pasted, in a file, or on the hub.


READ, TEXT, WRONG, FRESH = "read", key("text"), key("wrong"), key("fresh")


def shown(values: Values) -> ModelCard:
    """The card that was read, until another model is chosen; else the chosen one."""
    one, at = st.session_state.get(key("read"), (None, None))
    return one if one is not None and at == values.model else card(values.model)


def drawn_curves(one: ModelCard, values: Values) -> dict[str, list[tuple[int, int]]]:
    """The caches of the card that is shown and of those beside it."""
    own = {one.name: points} if (points := curve(one)) else {}
    return own | curves(values.compared)


def read_config(model: str) -> None:
    """Three fields for a config; what they hold becomes the card that is shown."""
    state = st.session_state
    turn = state.setdefault(FRESH, 0)  # empty fields after each reading
    pasted = st.text_area(
        "config.json, pasted",
        key=key(f"pasted:{turn}"),
        height=120,
        max_chars=MAX_CHARACTERS,
        help="The whole file, as it stands beside the weights of a model.",
    )
    file = st.file_uploader(
        "or a file",
        ["json"],
        key=key(f"file:{turn}"),
        max_upload_size=1,
        help="A config.json of at most 1 MB.",
    )
    repo = st.text_input(
        "or a model of the Hugging Face hub",
        key=key(f"hub:{turn}"),
        placeholder="owner/name",
        help="The name in the address of the model's page; only its config.json is downloaded.",
    )
    caption("Only the config is read: no weights are loaded, and no code of the model is run.")
    if not (pasted or file or repo):
        return
    from core.pretrained.base import PretrainedError
    from core.pretrained.cards import parse_card
    from core.pretrained.hub import config_bytes, parse
    from dashboard.ui.model_picker import secret

    try:
        text, called = pasted, "The pasted config"
        if file is not None:
            admit_upload(file)
            text, called = file.getvalue().decode("utf-8-sig", "replace"), file.name
        elif repo and not pasted:
            called, revision = parse(repo)
            with st.spinner(f"Reading the config of {plain(called)}"):
                text = config_bytes(called, revision, token=secret("HF_TOKEN")).decode()
        with st.spinner("Building the model without its weights"):
            state[key("read")], state[TEXT] = (parse_card(text, called), model), text
        state.pop(WRONG, None)
    except (PretrainedError, LimitReached) as error:
        state[WRONG] = str(error)
    state[FRESH] = turn + 1
    st.rerun()


# What the page computes as Python.


def script(values: Values) -> Script:
    one = shown(values)
    tokens = read(one)
    length = min(LONG, one.longest or LONG)
    drawn = drawn_curves(one, values)
    source = (
        f"from core.models.cards import card\n\none = card({one.key!r})"
        if one.key != READ
        else f"from core.pretrained.cards import parse_card\n\none = parse_card({st.session_state[TEXT]!r}, {one.name!r})"
    )
    own = "{one.name: curve(one)} | " if one.key == READ and one.name in drawn else ""
    keys = values.compared if one.key == READ else (values.model, *values.compared)
    cells = (
        Cell(
            "The layers of one published model, its parameters, its cache, and the FLOPs of a token.",
            f"""
{source}
for layer, count in one.distinct.items():
    print(count, "×", layer.kind)
parameters, active, flops = one.parameters, one.active, one.flops({tokens})  # FLOPs of a token that reads {tokens:,}
cached, size = one.token_bytes, one.cache_bytes({length}) if one.stores else 0  # bytes of a token, of {length:,} tokens
print(f"{{parameters:,}} parameters, {{active:,}} used by a token; {{flops:.3g}} FLOPs, {{size:,}} bytes")
""",
            results={
                "parameters": one.parameters,
                "active": one.active,
                "flops": one.flops(tokens),
                "cached": one.token_bytes,
                "size": one.cache_bytes(length) if one.stores else 0,
            },
        ),
        Cell(
            "Bytes of the cache of one sequence by its length, of this model and of those beside it.",
            f"""
from core.models.cards import curve, curves

sizes = {own}curves({source_of(keys)})  # (tokens, bytes) of each model
""",
            """
import altair as alt
import pandas as pd

rows = [(name, *point) for name, points in sizes.items() for point in points]
alt.Chart(pd.DataFrame(rows, columns=["model", "tokens", "bytes"])).mark_line(point=True).encode(
    alt.X("tokens").scale(type="log", base=2), alt.Y("bytes").scale(type="log"), color="model")
""",
            "cards:sizes",
            {f"sizes[{name!r}]": points for name, points in drawn.items()},
        ),
    )
    return Script(cells if drawn else cells[:1])


# The page: the layers of all models, the card of one, and caches by length.


STYLE = """<style>
.cards{--hair:color-mix(in srgb,currentColor 10%,transparent);font-size:14px;line-height:20px}
.cards table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
.cards th,.cards td{padding:1px 8px;border-bottom:1px solid var(--hair);text-align:right;font-weight:400;
  white-space:nowrap}
.cards th:first-child,.cards td.strip{text-align:left} .cards td.strip{width:60%}
.cards thead th{opacity:.62}
.cards .layers{display:flex;align-items:flex-end;gap:1px;height:16px}
.cards .layers i{flex:1 1 5px;max-width:9px;min-width:1px;border-radius:1px;box-sizing:border-box}
.cards .large{height:32px;gap:2px} .cards .large i{max-width:22px;border-radius:2px}
.cards p{display:flex;flex-wrap:wrap;gap:4px 12px;margin:0 0 8px;font-size:13px;line-height:18px}
.cards .layers+p{margin-top:8px}
.cards p span{display:flex;align-items:flex-end;gap:6px} .cards p b{display:flex;align-items:flex-end;height:16px}
.cards p i{display:block;width:10px;border-radius:2px;box-sizing:border-box}
@media (max-width:640px){.cards table,.cards tbody{display:block}.cards thead{display:none}
  .cards tr{display:flex;flex-wrap:wrap;border-bottom:1px solid var(--hair);padding:4px 0}
  .cards th,.cards td{border:0;padding:0 10px 0 0}.cards td.strip{order:9;width:100%;padding:2px 0}}
</style>"""


def page() -> None:
    title(
        "Model cards",
        f"Which attention each layer of {len(CARDS)} published models has, and what it costs.",
    )
    st.html(STYLE)
    models()
    details("The code that just ran", partial(source_panel, ModelCard), key("sources"))


@fragment
def models() -> None:
    left, middle, right, last = st.columns([5, 5, 4, 4], gap="small", vertical_alignment="bottom")
    values = FIELDS.draw("model", into=left)
    values = FIELDS.draw("beside", into=middle, **values)
    with right, st.popover("Compare caches", icon=":material/show_chart:", width="stretch"):
        values = FIELDS.draw("compared", into=HERE, **values)
    with last, st.popover("Read a config", icon=":material/upload_file:", width="stretch"):
        read_config(values.model)
    add_script(partial(script, values))
    meanings = {
        "full": "all tokens",
        "window": "a window, chunk or blocks",
        "latent": "small vectors",
        "linear": "a fixed state",
        "no positions": "without order",
        "none": "few tokens or none",
        "unknown": "not in the lab",
    }
    legend = "".join(
        f'<span><b><i style="{cell_style(kind, theme())}"></i></b>{kind}: {meanings[kind]}</span>'
        for kind in KINDS
    )
    # The style marks a model in the table below, which itself is never sent again.
    st.html(
        f"<div class=\"cards\"><p>{legend}</p><style>.cards tr[data-model='{values.model}'] "
        f"th{{font-weight:600;color:{PICK[theme()]}}}</style></div>"
    )
    with st.container():  # the table below keeps its place
        if wrong := st.session_state.get(WRONG):
            st.error(plain(wrong))
        one = shown(values)
        st.markdown(f"## {plain(one.name)}")
        if one.key == READ:
            paragraph(
                "Read from the config that you gave. Choose a model above to see its card again."
            )
        else:
            paragraph(f"{plain(one.different)} [Source]({one.url}) · {plain(one.checkpoint)}")
        other = None if values.beside in (ALONE, one.key) else card(values.beside)
        second = f"<p>{escape(other.name)}</p>{strip(other, theme(), large=True)}" if other else ""
        st.html(f'<div class="cards">{strip(one, theme(), large=True)}{second}</div>')
        table(
            FIGURES,
            [figures(one)],
            caption=f"The figures of {one.name}",
            left=0,
            markers=False,
        )
        fact(fact_text(one))
        caption(note(one))
        if other:
            st.markdown(f"### What differs from {other.name}")
            table(
                ("", one.name, other.name),
                differences(one, other),
                caption=f"What differs between {one.name} and {other.name}",
                markers=False,
            )
    st.markdown("## All models")
    head = "".join(
        f'<th scope="col">{words}</th>'
        for words in (
            "model",
            "year",
            '<span style="float:left">layers</span>',
            "parameters, 10⁹",
            "GB at 128k tokens",
        )
    )
    body = "".join(
        f'<tr data-model="{one.key}"><th scope="row">{escape(one.name)}</th><td>{one.year}</td>'
        f'<td class="strip">{strip(one, theme())}</td><td>{billions(one.parameters)}</td>'
        f"<td>{billions(cache(one, LONG))}</td></tr>"
        for one in CARDS
    )
    st.html(
        f'<div class="cards"><table aria-label="The layers of {len(CARDS)} published models">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    few, many = card("mamba2"), card(REFERENCE)
    fact(
        f"At {LONG:,} tokens {few.name} stores **{byte_size(few.cache_bytes(LONG))}** of states and {many.name} "
        f"**{byte_size(many.cache_bytes(LONG))}** of keys and values, with about as many parameters."
    )
    attentions(one)
    st.markdown(f"## The cache of {plain(one.name)} beside others")
    if sizes := drawn_curves(one, values):
        draw_chart(
            st,
            size_figure(sizes, list(sizes), LENGTHS, theme(), powers=6),
            key=key("sizes"),
            alt="Bytes of the cache by the length of the text, a line each model",
        )
        caption(
            "Bytes of the cache of one sequence, numbers of 2 bytes; both axes are logarithmic. "
            "Caches below 1 MB lie on the lowest line."
            + " A curve ends where a model has no more positions."
            * any(points[-1][0] < LENGTHS[-1] for points in sizes.values()),
        )


def attentions(one: ModelCard) -> None:
    st.markdown(f"## The attentions of {plain(one.name)}")
    for layer, count in one.distinct.items():
        paragraph(f"- {layer_text(layer, count)}")
    step = step_of("compare")
    if one.untrained:
        caption(plain(one.untrained))
    else:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            train_small(one, key=key("train"))
            st.page_link(
                step.page(),
                label="See these attentions in small, side by side",
                icon=step.icon,
                width="content",
                query_params=link(one),
            )
    details(
        "What its parameters are for",
        partial(
            table,
            ("part", "parameters", "share"),
            part_rows(one),
            caption=f"The parameters of {one.name}",
            markers=False,
        ),
        key("parts"),
    )


# The layers of a model as a strip of cells, alone and for all models in a table, as HTML.


def strip(card: ModelCard, theme: Theme, large: bool = False) -> str:
    layers = card.layers
    cells = "".join(
        f'<i title="layer {at}: {escape(layer.name)}" style="{cell_style(layer.kind, theme)}"></i>'
        for at, layer in enumerate(layers, 1)
    )
    names = [layer.name for layer in layers]
    runs = [(name, len(list(group))) for name, group in groupby(names)]
    shown = ", ".join(f"{count} {name}" for name, count in runs[:6])
    words = f"{len(names)} layers: {shown}{', and so on' * (len(runs) > 6)}"
    return f'<div class="layers{" large" * large}" role="img" aria-label="{escape(words)}">{cells}</div>'


def cell_style(kind: Kind, theme: Theme) -> str:
    # A kind differs in height or outline too, so that it is told without colours; what sees or stores less is lower.
    height = {"window": 50, "latent": 75, "linear": 25, "none": 12}.get(kind, 100)
    colour = CATEGORIES[theme][KINDS.index(kind)]
    look = (
        f"border:2px solid {colour}"
        if kind in ("no positions", "unknown")
        else f"background:{colour}"
    )
    return f"height:{height}%;{look}"
