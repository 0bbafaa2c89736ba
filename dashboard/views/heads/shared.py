"""Shared keys and values: what a decoder keeps of each token, in closed form and as bytes that were held."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from html import escape

import streamlit as st

from core.attention import entry
from dashboard.charts.numbers import byte_size, number
from dashboard.charts.palette import CATEGORIES
from dashboard.components.multiples import Tile, multiples
from dashboard.runtime.cache import cached
from dashboard.views.heads import compute
from dashboard.views.heads.compute import Kept
from dashboard.views.heads.controls import Asked, key
from dashboard.views.heads.text import equation
from dashboard.widgets.panels import fact, theme
from dashboard.widgets.table import table

TALLEST = 190
BYTES = 4  # of a number, fp32
SYMBOLS = r"2HD,\quad 2GD,\quad 2D,\quad R + R_\mathrm{rope}"
LONGEST = 42  # percent of the width, which leaves room for names and amounts
BREAK = '<div style="flex-basis:100%;height:0"></div>'


def picture(asked: Asked) -> Callable[[], None]:
    """The same head under four ways to hold keys; the sentence. Returns what draws the rest."""
    ways = compute.ways(asked.d_model, asked.heads, asked.kv_heads, asked.latent)
    found = [cached(compute.kept, config, asked.tokens, asked.seed, asked.length) for config in ways]
    tiles = [Tile(name_of(each), f"{each.numbers} numbers a token", each.weights[asked.head]) for each in found]
    multiples(tiles, asked.tokens, key=key("shared"), height=TALLEST, query=row_of(found[0], asked.head),
              link=key("maps"), fact=f"Head {asked.head} of {asked.heads} under four ways to hold keys and values")
    fact(sentence(asked, found))
    return partial(below, asked, found)


def below(asked: Asked, found: Sequence[Kept]) -> None:
    """The equation, and what each keeps, as bars and as a table."""
    equation(SYMBOLS, f"= {numbers(found)} numbers a token")
    left, right = st.columns([0.36, 0.64], gap="medium")
    left.html(bars(asked, found))
    with right:
        rows(found)
    st.caption(conditions(asked, found))


def name_of(found: Kept) -> str:
    return entry("projection", found.config.projection.key).name


def row_of(found: Kept, head: int) -> int:
    """The query whose largest weight is largest."""
    return int(found.weights[head].max(-1).argmax())


def sentence(asked: Asked, found: Sequence[Kept]) -> str:
    many, grouped, one, latent = found
    heads = "1 shared key head" if asked.kv_heads == 1 else f"{asked.kv_heads} shared key heads"
    said = (f"Of {asked.length:,} tokens multi-head attention holds **{byte_size(many.bytes)}** a layer; {heads} "
            f"{byte_size(grouped.bytes)}, a single one {byte_size(one.bytes)}, a latent vector with its turned key "
            f"{byte_size(latent.bytes)}.")
    if many.alike is None or one.alike is None:
        return said
    return (f"{said} With one key head for all, two heads share **{number(one.alike)}** of their weight instead of "
            f"{number(many.alike)}: they look {'more' if one.alike > many.alike else 'less'} alike.")


def numbers(found: Sequence[Kept]) -> str:
    """What is kept of a token under each."""
    return ",   ".join(f"{each.numbers:,}" for each in found)


def bars(asked: Asked, found: Sequence[Kept]) -> str:
    """Bytes held, a bar for each, with the amount at its end; plain HTML, since a chart costs each rerun its time."""
    most, said = max(each.bytes for each in found), ", ".join(f"{name_of(f)} {byte_size(f.bytes)}" for f in found)
    lines = "".join(
        f'<div style="flex:0 0 104px;text-align:right">{escape(name_of(each))}</div><div style="height:18px;'
        f'border-radius:2px;width:{round(LONGEST * each.bytes / most, 1)}%;background:{colour}"></div>'
        f"<div>{byte_size(each.bytes)}</div>{BREAK}"
        for each, colour in zip(found, CATEGORIES[theme()], strict=False))
    heading = f"Kept of {asked.length:,} tokens, one layer"
    return (f'<div role="img" aria-label="{escape(said)}" style="font-size:13px;line-height:18px">'
            f'<div style="font-size:14px;font-weight:600;margin-bottom:8px">{heading}</div>'
            f'<div style="display:flex;flex-wrap:wrap;gap:10px 8px;align-items:center">{lines}</div></div>')


def rows(found: Sequence[Kept]) -> None:
    head = ["keys and values", "numbers a token", "bytes held", "parameters", "in common"]
    body = [[name_of(each), f"{each.numbers:,}", f"{each.bytes:,}", f"{each.parameters:,}",
             "–" if each.alike is None else number(each.alike)] for each in found]
    table(head, body, caption="What is kept of a token under four ways to hold keys and values")


def conditions(asked: Asked, found: Sequence[Kept]) -> str:
    as_said = all(each.bytes == BYTES * each.numbers * asked.length for each in found)
    formula = "as many as the formula says" if as_said else "not as many as the formula says"
    return " ".join([
        f"Bytes are those of the tensors that were held of {asked.length:,} random tokens, fp32, one layer, {formula}; "
        f"a number has {BYTES}. Shared key heads are the means of the multi-head layer's, as grouped-query models are "
        "made from one; latent attention has weights of its own, and a turned key beside the latent vector. In common "
        f"is the weight that two heads put on the same words. Seed {asked.seed}.", *asked.notes])
