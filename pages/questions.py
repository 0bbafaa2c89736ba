"""Questions: what learners ask about attention, answered with numbers computed on the page."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.studies import questions

Row = dict[str, Any]


def col(name: str, write: Callable[[Any], str] = str) -> Callable[[Row], str]:
    """A column of a table: what is written of that number of a row."""
    return lambda row: write(row[name])


def tokens(way: str) -> Callable[[Row], str]:
    return lambda row: " and ".join(sorted({f"token {row[f'{way} {at}']}" for at in range(2)}))


@dataclass(frozen=True)
class Answer:
    """A question, its answer in a few sentences, and the pages that show it (page key, label).

    The evidence is a function of core.studies.questions, the columns of the table of its rows by their heads, and the
    sentence that these show.
    """

    question: str
    text: str
    pages: tuple[tuple[str, str], ...]
    study: Callable[[], list[Row]] | None = None
    columns: Mapping[str, Callable[[Row], str]] = field(default_factory=dict)
    sentence: Callable[[list[Row]], str] = lambda rows: ""


ANSWERS = {
    "scaling": Answer(
        *questions.ANSWERS["scaling"],
        (("one_query", "See variance grow with the size"), ("scores", "Compare all scores")),
        questions.scaling,
        {
            "d": col("D"),
            "std of q\u00a0·\u00a0k": col("std", lab.number),
            "largest weight, no scaling": col("plain", lab.number),
            "largest weight, 1/√d": col("scaled", lab.number),
        },
        lambda rows: (
            f"At d = {rows[-1]['D']} the largest of 16 weights is {lab.number(rows[-1]['plain'])} on average without "
            f"the division and {lab.number(rows[-1]['scaled'])} with it."
        ),
    ),
    "names": Answer(
        *questions.ANSWERS["names"],
        (("one_query", "Follow one look-up"),),
    ),
    "lengths": Answer(
        *questions.ANSWERS["lengths"],
        (("efficient", "Measure each kernel"),),
        questions.lengths,
        {
            "tokens": col("tokens", lab.whole),
            "FLOPs of W_q, W_k, W_v, W_o": col("maps", lab.operations),
            "FLOPs of q · k and weights · v": col("products", lab.operations),
            "weights, fp32": col("bytes", lab.byte_size),
        },
        lambda rows: (
            f"The two are equal at {2 * questions.D_MODEL:,} tokens, twice d_model = {questions.D_MODEL}. Beyond that the "
            "quadratic part dominates."
        ),
    ),
    "heads": Answer(
        *questions.ANSWERS["heads"],
        (
            ("heads", "Split one attention into heads"),
            ("head_roles", "See what each trained head follows"),
        ),
        questions.heads,
        {
            "heads": col("heads"),
            "numbers in a head": col("size"),
            "parameters": col("parameters", lab.whole),
            "FLOPs at 1,024 tokens": col("FLOPs", lab.operations),
        },
        lambda rows: (
            f"With {rows[-1]['heads']} heads a query has {rows[-1]['heads']} sets of weights instead of 1, for the same "
            f"{rows[-1]['parameters']:,} parameters and {lab.operations(rows[-1]['FLOPs'])} FLOPs."
        ),
    ),
    "addition": Answer(
        *questions.ANSWERS["addition"],
        (("positions", "See what positions do to the scores"),),
        questions.addition,
        {
            "form": col("form"),
            "matrix": col("columns", f"{questions.D_MODEL} × {{:,}}".format),
            f"numbers to learn at d_model = {questions.D_MODEL}": col("numbers", lab.whole),
        },
        lambda rows: (
            "W(x + p) equals the concatenation with W₁ = W₂ = W; the largest difference here is "
            f"{lab.number(rows[1]['difference'])}."
        ),
    ),
    "feed_forward": Answer(
        *questions.ANSWERS["feed_forward"],
        (("transformer", "Open the blocks of a layer"),),
        questions.feed_forward,
        {
            "part": col("part"),
            "parameters": col("parameters", lab.whole),
            "share": col("share", lab.percent),
        },
        lambda rows: (
            f"Two thirds of a layer's parameters, {lab.percent(rows[1]['share'])}, are in the feed-forward network."
        ),
    ),
    "gradients": Answer(
        *questions.ANSWERS["gradients"],
        (
            ("why", "Compare one vector with attention"),
            ("transformer", "See the gradient by layer"),
        ),
    ),
    "masks": Answer(
        *questions.ANSWERS["masks"],
        (("masks", "Draw any mask"),),
        questions.causality,
        {"mask": col("mask")}
        | {f"output {at}": col(f"output {at}", lab.number) for at in range(6)},
        lambda rows: (
            "Without a mask {} of the 5 earlier outputs change when the last token changes; with the causal mask {} "
            "do."
        ).format(*(sum(row[f"output {at}"] > 0 for at in range(5)) for row in rows)),
    ),
    "importance": Answer(
        *questions.ANSWERS["importance"],
        (("evidence", "Compare weights with measured effects"),),
    ),
    "families": Answer(
        *questions.ANSWERS["families"],
        (("transformer", "Draw each of the three"), ("pretrained", "Open a trained model")),
        questions.families,
        {
            "family, 2 layers a stack": col("family"),
            "self-attention": col("attention"),
            "causal": col("causal"),
            "cross-attention": col("cross"),
        },
        lambda rows: "The families differ in which of the three attentions their layers have.",
    ),
    "reshaping": Answer(
        *questions.ANSWERS["reshaping"],
        (("heads", "Split one attention into heads"),),
        questions.reshaping,
        {
            "row": col("row"),
            "view(B, T, H, D).transpose(1, 2)": tokens("right"),
            "view(B, H, T, D)": tokens("wrong"),
        },
        lambda rows: (
            "view(B, H, T, D) puts the wrong token into "
            f"{sum(any(row[f'right {at}'] != row[f'wrong {at}'] for at in range(2)) for row in rows)} of {len(rows)} "
            "rows."
        ),
    ),
    "padding": Answer(
        *questions.ANSWERS["padding"],
        (("masks", "Combine a padding mask with others"),),
        questions.padding,
        {
            "mask": col("mask"),
            "change of the real tokens' outputs": col("change", lab.number),
            "size of the padded row's output": col("padded", lab.number),
        },
        lambda rows: (
            f"With the key masked the real outputs change by {lab.number(rows[1]['change'])}. Masking the query as well "
            "changes only the padded row, which the loss leaves out anyway."
        ),
    ),
    "one_row": Answer(
        *questions.ANSWERS["one_row"],
        (("efficient", "Compare exact and fused"),),
        questions.one_row,
        {
            "what": col("what"),
            "numbers": col("numbers", lab.whole),
            "FLOPs": col("FLOPs", lab.operations),
        },
        lambda rows: (
            f"The fused kernel never stores the {rows[0]['numbers']:,} weights at once; one row is computed again for "
            f"1/{rows[1]['numbers']:,} of the cost."
        ),
    ),
    "cache": Answer(
        *questions.ANSWERS["cache"],
        (("heads", "Share keys between heads"), ("generate", "Generate token by token")),
        questions.cache,
        {
            "keys and values": col("keys and values"),
            "a token": col("token", lab.byte_size),
            "8,192 tokens": col("text", lab.byte_size),
        },
        lambda rows: "Queries are not stored: the query of an earlier token is never used again.",
    ),
}


def script(answer: Answer) -> lab.Script:
    assert answer.study is not None
    name = answer.study.__name__
    return lab.Script(
        (
            lab.Cell(
                answer.question,
                f"""
from core.studies.questions import {name}

rows = {name}()
for row in rows:
    print(row)
""",
                """
import pandas as pd

pd.DataFrame(rows)
""",
                f"table:{answer.question}",
            ),
        ),
        {
            "[[value for value in row.values() if not isinstance(value, str)] for row in rows]": np.array(
                [
                    [value for value in row.values() if not isinstance(value, str)]
                    for row in lab.cached(answer.study)
                ]
            )
        },
    )


class Controls(lab.Fields, page="questions"):
    question = lab.Select(
        "Question",
        {key: answer.question for key, answer in ANSWERS.items()},
        help="What learners ask about attention.",
        also={"width": 540},
    )


def page() -> None:
    lab.title("Questions", "What learners ask, most answered with numbers.")
    explore()


@lab.fragment
def explore() -> None:
    selected = ANSWERS[Controls.draw(into=lab.HERE).question]
    lab.paragraph(selected.text)
    if selected.study is not None:
        rows = lab.cached(selected.study)
        lab.table(
            list(selected.columns),
            [[write(row) for write in selected.columns.values()] for row in rows],
            caption=selected.question,
            markers=False,
        )
        lab.fact(selected.sentence(rows))
        lab.add_script(partial(script, selected))
    with st.container(horizontal=True):
        for page_key, label in selected.pages:
            step = lab.step_of(page_key)
            st.page_link(step.page(), label=label, icon=step.icon, query_params={}, help=step.title)
    if selected.study is not None:
        lab.details("Code", partial(lab.source_panel, selected.study), "questions:source")
