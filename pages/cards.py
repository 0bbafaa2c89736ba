"""Model cards: published models, or one from a config, layer by layer, with their sizes, caches and costs."""

from functools import partial
from html import escape
from itertools import groupby

import streamlit as st

import dashboard.page as lab
from core.attention import AXES, AttentionConfig
from core.attention.presets.base import name as choice_name
from core.attention.text import to_text
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

# The controls of the page: the model, and those whose caches are compared with its own.


COMPARED = ("llama3", "deepseek_v32", "qwen3_next")
ALONE = "none"
MAX_CHARACTERS = 200_000  # of a pasted config
MAX_BESIDE = 5  # models beside the chosen one: six curves in a figure


key = "cards:{}".format  # a widget's key, which is also its name in the link


def name(model: str) -> str:
    return f"{card(model).name} · {card(model).year}"


class Controls(lab.Fields, page="cards"):
    model = lab.Select(
        "Model",
        [one.key for one in CARDS],
        "gemma3",
        text=name,
        help="The published model whose card is drawn below.",
    )
    compared = lab.MultiSelect(
        f"Up to {MAX_BESIDE} models",
        [one.key for one in CARDS if one.stores],
        COMPARED,
        text=name,
        max_options=MAX_BESIDE,
        help="Models whose caches are drawn beside that of the chosen one.",
    )
    beside = lab.Select(
        "Beside",
        [ALONE, *(one.key for one in CARDS)],
        ALONE,
        text=lambda one: "No other model" if one == ALONE else name(one),
        help="A second model, of which is listed what differs from the first.",
    )


# The page's sentences and tables, from the cards.


REFERENCE = "llama2"  # stores the keys and values of every head in every layer
LAYER = AttentionConfig()


def figures(one: ModelCard) -> list[str]:
    return [
        lab.whole(one.parameters),
        lab.percent(one.active / one.parameters),
        lab.byte_size(one.token_bytes) if one.stores and one.known else "–",
        *(size_text(cache(one, length)) for length in (SHORT, LONG)),
        lab.operations(one.flops(read(one))) if one.known else "–",
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
    return "–" if size is None else lab.byte_size(size)


def billions(count: int | None) -> str:
    return "–" if count is None else lab.number(count / 1e9)


def read(one: ModelCard) -> int:
    """The number of tokens that a token attends to where FLOPs are given: SHORT, or the longest text."""
    return min(SHORT, one.longest or SHORT)


def fact_text(one: ModelCard) -> str:
    if not one.known:
        return (
            f"{one.name} has **{lab.operations(one.parameters)}** parameters. Its cache is not counted, as the lab does not "
            "have all of its attentions."
        )
    if not one.stores:
        return (
            f"{one.name} reads a whole text at once: **nothing is stored**, and each of {read(one):,} tokens takes "
            f"{lab.operations(one.flops(read(one)))} FLOPs."
        )
    other, length = card(REFERENCE), min(LONG, one.longest or LONG)
    size, late = one.cache_bytes(length), one.late_bytes(length)
    grows = (
        f": {lab.byte_size(late)} for each token"
        if late
        else ", and nothing more for a further token"
    )
    if late and lab.byte_size(late * length) != lab.byte_size(size):
        grows += f", and {lab.byte_size(size - late * length)} that do not grow"
    if late != one.token_bytes:
        grows += f". Until its windows are full, a token adds {lab.byte_size(one.token_bytes)}"
    beside = (
        ""
        if one.key == REFERENCE
        else f" {other.name} would store {lab.byte_size(other.cache_bytes(length))}."
    )
    return f"{one.name} stores **{lab.byte_size(size)}** at {length:,} tokens{grows}.{beside}"


def note(one: ModelCard) -> str:
    window = f" It has positions for {one.longest:,} tokens only." if one.longest else ""
    experts = (
        f" A token uses {lab.operations(one.active)} of the parameters: it is sent to some of the experts."
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
        f"{window}{remark} Sizes of {lab.plain(one.checkpoint)}, from {lab.plain(one.source)}.{published} {checked}"
    )


def part_rows(one: ModelCard) -> list[list[str]]:
    return [
        [name, f"{count:,}", lab.percent(count / one.parameters)]
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
        f" {lab.plain(extra.name)}: {abs(extra.parameters):,} parameters "
        f"{'more' if extra.parameters > 0 else 'fewer'}, {lab.plain(extra.reason)}."
        for extra in layer.extras
    )
    heads = (
        f"{config.num_heads} heads of {config.head_dim}. {lab.plain('; '.join(choices))}"
        if config
        else "none of the lab's attentions"
    )
    layers = f"{count} layers, each of" if count > 1 else "one layer of"
    return (
        f"**{lab.plain(layer.name[:1].upper() + layer.name[1:])}**, {layers} {layer.parameters:,} parameters: {heads}."
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


def shown(values: Controls) -> ModelCard:
    """The card that was read, until another model is chosen; else the chosen one."""
    one, at = st.session_state.get(key("read"), (None, None))
    return one if one is not None and at == values.model else card(values.model)


def drawn_curves(one: ModelCard, values: Controls) -> dict[str, list[tuple[int, int]]]:
    """The caches of the card that is shown and of those beside it."""
    own = {one.name: points} if (points := curve(one)) else {}
    return own | curves(tuple(values.compared))


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
    lab.caption("Only the config is read: no weights are loaded, and no code of the model is run.")
    if not (pasted or file or repo):
        return
    from core.pretrained.base import PretrainedError
    from core.pretrained.cards import parse_card
    from core.pretrained.hub import config_bytes, parse

    try:
        text, called = pasted, "The pasted config"
        if file is not None:
            lab.limits.admit_upload(file)
            text, called = file.getvalue().decode("utf-8-sig", "replace"), file.name
        elif repo and not pasted:
            called, revision = parse(repo)
            with st.spinner(f"Reading the config of {lab.plain(called)}"):
                text = config_bytes(called, revision, token=lab.secret("HF_TOKEN")).decode()
        with st.spinner("Building the model without its weights"):
            state[key("read")], state[TEXT] = (parse_card(text, called), model), text
        state.pop(WRONG, None)
    except (PretrainedError, lab.limits.LimitReached) as error:
        state[WRONG] = str(error)
    state[FRESH] = turn + 1
    st.rerun()


# What the page computes as Python.


def script(values: Controls) -> lab.Script:
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
        lab.Cell(
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
        lab.Cell(
            "Bytes of the cache of one sequence by its length, of this model and of those beside it.",
            f"""
from core.models.cards import curve, curves

sizes = {own}curves({lab.source_of(keys)})  # (tokens, bytes) of each model
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
    return lab.Script(cells if drawn else cells[:1])


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
    lab.title(
        "Model cards",
        f"Which attention each layer of {len(CARDS)} published models has, and what it costs.",
    )
    st.html(STYLE)
    models()
    lab.details("The code that just ran", partial(lab.source_panel, ModelCard), key("sources"))


@lab.fragment
def models() -> None:
    left, middle, right, last = st.columns([5, 5, 4, 4], gap="small", vertical_alignment="bottom")
    values = Controls.draw("model", into=left)
    values = Controls.draw("beside", into=middle, **values)
    with right, st.popover("Compare caches", icon=":material/show_chart:", width="stretch"):
        values = Controls.draw("compared", into=lab.HERE, **values)
    with last, st.popover("Read a config", icon=":material/upload_file:", width="stretch"):
        read_config(values.model)
    lab.add_script(partial(script, values))
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
        f'<span><b><i style="{cell_style(kind, lab.theme())}"></i></b>{kind}: {meanings[kind]}</span>'
        for kind in KINDS
    )
    # The style marks a model in the table below, which itself is never sent again.
    st.html(
        f"<div class=\"cards\"><p>{legend}</p><style>.cards tr[data-model='{values.model}'] "
        f"th{{font-weight:600;color:{lab.PICK[lab.theme()]}}}</style></div>"
    )
    with st.container():  # the table below keeps its place
        if wrong := st.session_state.get(WRONG):
            st.error(lab.plain(wrong))
        one = shown(values)
        st.markdown(f"## {lab.plain(one.name)}")
        if one.key == READ:
            lab.paragraph(
                "Read from the config that you gave. Choose a model above to see its card again."
            )
        else:
            lab.paragraph(
                f"{lab.plain(one.different)} [Source]({one.url}) · {lab.plain(one.checkpoint)}"
            )
        other = None if values.beside in (ALONE, one.key) else card(values.beside)
        second = (
            f"<p>{escape(other.name)}</p>{strip(other, lab.theme(), large=True)}" if other else ""
        )
        st.html(f'<div class="cards">{strip(one, lab.theme(), large=True)}{second}</div>')
        lab.table(
            FIGURES,
            [figures(one)],
            caption=f"The figures of {one.name}",
            left=0,
            markers=False,
        )
        lab.fact(fact_text(one))
        lab.caption(note(one))
        if other:
            st.markdown(f"### What differs from {other.name}")
            lab.table(
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
        f'<td class="strip">{strip(one, lab.theme())}</td><td>{billions(one.parameters)}</td>'
        f"<td>{billions(cache(one, LONG))}</td></tr>"
        for one in CARDS
    )
    st.html(
        f'<div class="cards"><table aria-label="The layers of {len(CARDS)} published models">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )
    few, many = card("mamba2"), card(REFERENCE)
    lab.fact(
        f"At {LONG:,} tokens {few.name} stores **{lab.byte_size(few.cache_bytes(LONG))}** of states and {many.name} "
        f"**{lab.byte_size(many.cache_bytes(LONG))}** of keys and values, with about as many parameters."
    )
    attentions(one)
    st.markdown(f"## The cache of {lab.plain(one.name)} beside others")
    if sizes := drawn_curves(one, values):
        lab.draw_chart(
            st,
            lab.size_figure(sizes, list(sizes), LENGTHS, lab.theme(), powers=6),
            key=key("sizes"),
            alt="Bytes of the cache by the length of the text, a line each model",
        )
        lab.caption(
            "Bytes of the cache of one sequence, numbers of 2 bytes; both axes are logarithmic. "
            "Caches below 1 MB lie on the lowest line."
            + " A curve ends where a model has no more positions."
            * any(points[-1][0] < LENGTHS[-1] for points in sizes.values()),
        )


def attentions(one: ModelCard) -> None:
    st.markdown(f"## The attentions of {lab.plain(one.name)}")
    for layer, count in one.distinct.items():
        lab.paragraph(f"- {layer_text(layer, count)}")
    step = lab.step_of("compare")
    if one.untrained:
        lab.caption(lab.plain(one.untrained))
    else:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            lab.train_small(one, key=key("train"))
            st.page_link(
                step.page(),
                label="See these attentions in small, side by side",
                icon=step.icon,
                width="content",
                query_params=link(one),
            )
    lab.details(
        "What its parameters are for",
        partial(
            lab.table,
            ("part", "parameters", "share"),
            part_rows(one),
            caption=f"The parameters of {one.name}",
            markers=False,
        ),
        key("parts"),
    )


# The layers of a model as a strip of cells, alone and for all models in a table, as HTML.


def strip(card: ModelCard, theme: lab.Theme, large: bool = False) -> str:
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


def cell_style(kind: Kind, theme: lab.Theme) -> str:
    # A kind differs in height or outline too, so that it is told without colours; what sees or stores less is lower.
    height = {"window": 50, "latent": 75, "linear": 25, "none": 12}.get(kind, 100)
    colour = lab.CATEGORIES[theme][KINDS.index(kind)]
    look = (
        f"border:2px solid {colour}"
        if kind in ("no positions", "unknown")
        else f"background:{colour}"
    )
    return f"height:{height}%;{look}"
