"""The evidence of each answer: its numbers as a small table of text, and the sentence that they show."""

from __future__ import annotations

from dataclasses import dataclass

from core.studies import questions
from dashboard.draw.formats import byte_size, number, operations, percent


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
