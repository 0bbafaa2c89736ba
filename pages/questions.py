"""Questions: what learners ask about attention, answered with numbers computed on the page."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import streamlit as st

from core.studies import questions
from dashboard.draw.formats import byte_size, number, operations, percent
from dashboard.draw.page_exports import Cell, Script, add_script
from dashboard.navigation import step_of
from dashboard.server.cache import cached
from dashboard.ui.links import BOUND, fragment
from dashboard.ui.panels import details, fact, next_page, paragraph, source_panel, table, title


@dataclass(frozen=True)
class Evidence:
    """A small table of computed numbers, and the sentence that it shows."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sentence: str


def scaling() -> Evidence:
    """Scores and weights with and without 1/√D."""
    rows = questions.scaling()
    last = rows[-1]
    return Evidence(
        ("D", "std of q\u00a0·\u00a0k", "largest weight, no scaling", "largest weight, 1/√D"),
        tuple(
            (str(row["D"]), *(number(row[name]) for name in ("std", "plain", "scaled")))
            for row in rows
        ),
        f"At D = {last['D']} the largest of 16 weights is {number(last['plain'])} on average without the "
        f"division and {number(last['scaled'])} with it.",
    )


def lengths(d_model: int = 512) -> Evidence:
    """FLOPs and bytes by length."""
    rows = tuple(
        (
            f"{row['tokens']:,}",
            operations(row["maps"]),
            operations(row["products"]),
            byte_size(row["bytes"]),
        )
        for row in questions.lengths(d_model)
    )
    return Evidence(
        (
            "tokens",
            "FLOPs of W_q, W_k, W_v, W_o",
            "FLOPs of q · k and weights · v",
            "weights, fp32",
        ),
        rows,
        f"The two are equal at {2 * d_model:,} tokens, twice d_model = {d_model}. "
        "Beyond that the quadratic part dominates.",
    )


def addition(d_model: int = 512) -> Evidence:
    """Two ways to join a word and a position."""
    rows = questions.addition(d_model)
    return Evidence(
        ("form", "matrix", f"numbers to learn at d_model = {d_model}"),
        tuple(
            (row["form"], f"{d_model} × {row['columns']:,}", f"{row['numbers']:,}") for row in rows
        ),
        "W(x + p) equals the concatenation with W₁ = W₂ = W; the largest difference here is "
        f"{number(rows[1]['difference'])}.",
    )


def feed_forward() -> Evidence:
    """Parameters of a layer by part."""
    rows = questions.feed_forward()
    return Evidence(
        ("part", "parameters", "share"),
        tuple((row["part"], f"{row['parameters']:,}", percent(row["share"])) for row in rows),
        f"Two thirds of a layer's parameters, {percent(rows[1]['share'])}, are in the feed-forward "
        "network.",
    )


def causality() -> Evidence:
    """The change of each output, without and with the mask."""
    rows = questions.causality()
    counts = [sum(value > 0 for value in list(row.values())[1:-1]) for row in rows]
    return Evidence(
        tuple(rows[0]),
        tuple((row["mask"], *map(number, list(row.values())[1:])) for row in rows),
        f"Without a mask {counts[0]} of the 5 earlier outputs change when the last token changes; with the "
        f"causal mask {counts[1]} do.",
    )


def reshaping() -> Evidence:
    """The tokens in each row, both ways."""
    rows = questions.reshaping()
    both = [([row["right 0"], row["right 1"]], [row["wrong 0"], row["wrong 1"]]) for row in rows]
    mixed = sum(right != wrong for right, wrong in both)

    def tokens(ids: list[int]) -> str:
        return " and ".join(sorted({f"token {index}" for index in ids}))

    return Evidence(
        ("row", "view(B, T, H, D).transpose(1, 2)", "view(B, H, T, D)"),
        tuple((row["row"], *map(tokens, each)) for row, each in zip(rows, both, strict=True)),
        f"view(B, H, T, D) puts the wrong token into {mixed} of {len(rows)} rows.",
    )


def padding() -> Evidence:
    """The outputs with a padded token, by what is masked."""
    rows = questions.padding()
    return Evidence(
        ("mask", "change of the real tokens' outputs", "size of the padded row's output"),
        tuple((row["mask"], number(row["change"]), number(row["padded"])) for row in rows),
        f"With the key masked the real outputs change by {number(rows[1]['change'])}. Masking the query as "
        "well changes only the padded row, which the loss leaves out anyway.",
    )


def cache() -> Evidence:
    """The size of the cache by form."""
    return Evidence(
        ("keys and values", "a token", "8,192 tokens"),
        tuple(
            (row["keys and values"], byte_size(row["token"]), byte_size(row["text"]))
            for row in questions.cache()
        ),
        "Queries are not stored: the query of an earlier token is never used again.",
    )


def one_row() -> Evidence:
    """All weights of a head, and one row of them."""
    rows = questions.one_row()
    whole, row = (each["numbers"] for each in rows)
    return Evidence(
        ("what", "numbers", "FLOPs"),
        tuple((row["what"], f"{row['numbers']:,}", operations(row["FLOPs"])) for row in rows),
        f"The fused kernel never stores the {whole:,} weights at once; one row is computed again for "
        f"1/{row:,} of the cost.",
    )


def families() -> Evidence:
    """The attentions of each family."""
    return Evidence(
        ("family, 2 layers a stack", "self-attention", "causal", "cross-attention"),
        tuple(tuple(map(str, row.values())) for row in questions.families()),
        "The families differ in which of the three attentions their layers have.",
    )


@dataclass(frozen=True)
class Answer:
    """A question, its answer in a few sentences, computed evidence, and the pages that show it (page key, label)."""

    question: str
    text: str
    pages: tuple[tuple[str, str], ...]
    evidence: Callable[[], Evidence] | None = None


ANSWERS = {
    "scaling": Answer(
        "Why divide by √d?",
        "A score is a sum of D products. With independent entries of mean 0 and variance 1 its standard deviation "
        "is √D, so it grows with the head size. Large scores push the softmax towards a single key, where its gradient "
        "is almost zero. Dividing by √D keeps the standard deviation of the scores near 1 at any head size.",
        (("one_query", "See variance grow with D"), ("scores", "Compare all scores")),
        scaling,
    ),
    "names": Answer(
        "Why the names query, key and value?",
        "Attention is a soft dictionary look-up. A dictionary compares a query with each key and returns the value of "
        "the key that is equal. Attention compares the query with each key by a score, turns the scores into weights "
        "that add up to 1, and returns the weighted sum of all values.",
        (("one_query", "Follow one look-up"),),
    ),
    "lengths": Answer(
        "What happens with longer sequences?",
        "Every query is compared with every key, so the number of scores grows with the square of the length. The "
        "linear maps grow only with the length itself. Kernels that skip or approximate keys, or that never store the "
        "weights, make long sequences possible.",
        (("efficient", "Measure each kernel"),),
        lengths,
    ),
    "heads": Answer(
        "Why several heads instead of one?",
        "One head has one set of weights for each query, so it can follow one relation at a time. H heads of size "
        "d_model / H cost the same and have H sets of weights: one may follow the previous token while another "
        "follows the subject.",
        (
            ("heads", "Split one attention into heads"),
            ("head_roles", "See what each trained head follows"),
        ),
    ),
    "addition": Answer(
        "Why are positions added and not concatenated?",
        "A linear map follows at once. W(x + p) = Wx + Wp, so addition is a concatenation whose two halves share one "
        "matrix. It keeps d_model, and costs no parameters. In a wide vector the model can keep tokens and positions "
        "in different directions.",
        (("positions", "See what positions do to the scores"),),
        addition,
    ),
    "feed_forward": Answer(
        "What does the feed-forward network do?",
        "Attention moves information between tokens, but its output is only a weighted sum of values. The feed-forward "
        "network then transforms each token on its own, with an activation between two linear maps. With d_ff = "
        "4·d_model it holds two thirds of a layer's parameters.",
        (("transformer", "Open the blocks of a layer"),),
        feed_forward,
    ),
    "gradients": Answer(
        "How does attention help gradients?",
        "In a recurrent network the gradient passes through every step between two words, and shrinks or grows at "
        "each. Attention connects any two words in one step. Residual connections and norms then decide how the "
        "gradient passes through many layers.",
        (
            ("why", "Compare one vector with attention"),
            ("transformer", "See the gradient by layer"),
        ),
    ),
    "masks": Answer(
        "Why does a decoder need a causal mask?",
        "A model that is trained to predict the next token must not read it. The causal mask lets each token attend to "
        "itself and to earlier tokens only. All positions can then be trained in one pass, and text can be generated "
        "one token after another.",
        (("masks", "Draw any mask"),),
        causality,
    ),
    "importance": Answer(
        "Do the weights show which words are important?",
        "Not by themselves. A large weight on a token whose value is small changes little, and later layers may undo "
        "it. To know what a head contributes, switch it off and measure how the answer changes.",
        (("evidence", "Compare weights with measured effects"),),
    ),
    "families": Answer(
        "How do BERT, GPT and T5 differ?",
        "BERT is an encoder: every token attends to every token. GPT is a decoder: each token attends to earlier ones. "
        "T5 has both stacks, joined by cross-attention.",
        (("transformer", "Draw each of the three"), ("pretrained", "Open a trained model")),
        families,
    ),
    "reshaping": Answer(
        "Why view(B, T, H, D).transpose(1, 2) and not view(B, H, T, D)?",
        "The d_model numbers of a token lie side by side in memory. view does not move numbers, it only cuts the line "
        "into pieces. Cut as (B, H, T, D), a head's row gets numbers of other tokens.",
        (("heads", "Split one attention into heads"),),
        reshaping,
    ),
    "padding": Answer(
        "Why are padded keys masked, and padded queries not?",
        "A padded key would receive weight from real tokens and change their outputs. A padded query only makes an "
        "extra row of output, which nothing reads and the loss leaves out.",
        (("masks", "Combine a padding mask with others"),),
        padding,
    ),
    "one_row": Answer(
        "Why does the fused kernel return no weights?",
        "It goes through the keys in blocks, keeps a running maximum and sum, and never stores all weights at once. "
        "This is where its speed and its small memory come from. A row of weights can be computed again when it is "
        "needed.",
        (("efficient", "Compare exact and fused"),),
        one_row,
    ),
    "cache": Answer(
        "What is in the key/value cache?",
        "When a model generates, each new token needs the keys and values of all tokens before it. They do not change, "
        "so they are stored. Sharing keys and values between heads, or storing a smaller latent, makes the cache "
        "smaller.",
        (("heads", "Share keys between heads"), ("generate", "Generate token by token")),
        cache,
    ),
}


IMPORTS = {
    "torch": "import torch",
    "attend": "from core.attention import attend",
    "build_model": "from core.models import ModelConfig, build_model",
    "Shape": "from core.models.base import Shape",
    "seeded_rng": "from core.seeding import seeded_rng",
}
VALUES = "[[value for value in row.values() if not isinstance(value, str)] for row in rows]"
DRAW = """
import pandas as pd

pd.DataFrame(rows)
"""


def script(answer: Answer) -> Script:
    """The numbers of the answer's table, by the function that computed them here."""
    assert answer.evidence is not None
    study = getattr(questions, answer.evidence.__name__)
    source = inspect.getsource(study)
    body = (f"{inspect.getsource(questions.normal)}\n\n" if "normal(" in source else "") + source
    lines = [line for name, line in IMPORTS.items() if re.search(rf"\b{name}\b", body)]
    imports = "\n".join(lines).replace("import torch\n", "import torch\n\n", 1)
    code = f"""
{imports}


{body}

rows = {study.__name__}()
for row in rows:
    print(row)
"""
    rows = [[value for value in row.values() if not isinstance(value, str)] for row in study()]
    return Script(
        (Cell(answer.question, code, DRAW, f"table:{answer.question}"),), {VALUES: np.array(rows)}
    )


def page() -> None:
    """Draw the questions and the selected answer side by side."""
    title(
        "Questions",
        "What learners ask about attention. Most answers have numbers that this page computes.",
    )
    explore()
    next_page("questions")


@fragment
def explore() -> None:
    """Draw the list of questions and, beside it, the selected answer, which rerun alone."""
    questions, answer = st.columns([2, 3], gap="large")
    key = questions.radio(
        "Question",
        list(ANSWERS),
        key="questions:question",
        label_visibility="collapsed",
        format_func=lambda key: ANSWERS[key].question,
        **BOUND,
    )
    with answer:
        show(ANSWERS[key or "scaling"])


def show(selected: Answer) -> None:
    """Draw the words of an answer, its table, what that shows, and the links."""
    paragraph(f"## {selected.question}\n\n{selected.text}")
    if selected.evidence is not None:
        evidence = cached(selected.evidence)
        table(evidence.head, evidence.rows, caption=selected.question, markers=False)
        fact(evidence.sentence)
        add_script(partial(script, selected))
    for page_key, label in selected.pages:
        step = step_of(page_key)
        st.page_link(step.page(), label=f"{label}: {step.title}", icon=step.icon, query_params={})
    if selected.evidence is not None:
        details(
            "The function that computed this",
            partial(source_panel, getattr(questions, selected.evidence.__name__)),
            "questions:source",
        )
