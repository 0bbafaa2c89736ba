"""Questions: each with its answer, the table of its numbers, and the sentence that these show."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from core.studies import questions
from core.studies.heads import KEYS
from dashboard.draw.formats import byte_size, number, operations, percent, whole

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
    # of the first page, where these numbers stand there too
    query: Mapping[str, str] = field(default_factory=dict)


ANSWERS = {
    "scaling": Answer(
        *questions.ANSWERS["scaling"],
        (("one_query", "See the weights at three sizes"), ("scores", "Compare all scores")),
        questions.scaling,
        {
            "D": col("D"),
            "std of q\u00a0·\u00a0k": col("std", number),
            "largest weight, no scaling": col("plain", number),
            "largest weight, 1/√D": col("scaled", number),
        },
        lambda rows: (
            f"At D = {rows[-1]['D']} the largest of {KEYS} weights is {number(rows[-1]['plain'])} on average without "
            f"the division and {number(rows[-1]['scaled'])} with it."
        ),
        {"one:start": "simple", "one:stage": "3 Scale", "one:root:predict": "Show me"},
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
            "tokens": col("tokens", whole),
            "FLOPs of W_q, W_k, W_v, W_o": col("maps", operations),
            "FLOPs of q · k and weights · v": col("products", operations),
            "weights, fp32": col("bytes", byte_size),
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
            "parameters": col("parameters", whole),
            "FLOPs at 1,024 tokens": col("FLOPs", operations),
        },
        lambda rows: (
            f"At d_model = {questions.D_MODEL}, with {rows[-1]['heads']} heads a query has {rows[-1]['heads']} sets of "
            f"weights instead of 1, for the same {rows[-1]['parameters']:,} parameters and "
            f"{operations(rows[-1]['FLOPs'])} FLOPs."
        ),
    ),
    "addition": Answer(
        *questions.ANSWERS["addition"],
        (("positions", "See what positions do to the scores"),),
        questions.addition,
        {
            "form": col("form"),
            "matrix": col("columns", f"{questions.D_MODEL} × {{:,}}".format),
            f"numbers to learn at d_model = {questions.D_MODEL}": col("numbers", whole),
        },
        lambda rows: (
            "W(x + p) equals the concatenation with W₁ = W₂ = W; the largest difference here is "
            f"{number(rows[1]['difference'])}."
        ),
    ),
    "feed_forward": Answer(
        *questions.ANSWERS["feed_forward"],
        (("transformer", "Open the blocks of a layer"),),
        questions.feed_forward,
        {
            "part": col("part"),
            "parameters": col("parameters", whole),
            "share": col("share", percent),
        },
        lambda rows: (
            f"Two thirds of a layer's parameters at d_model = {questions.D_MODEL}, {percent(rows[1]['share'])}, are in the "
            "feed-forward network."
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
        {"mask": col("mask")} | {f"output {at}": col(f"output {at}", number) for at in range(6)},
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
            "change of the real tokens' outputs": col("change", number),
            "size of the padded row's output": col("padded", number),
        },
        lambda rows: (
            f"With the key masked the real outputs change by {number(rows[1]['change'])}. Masking the query as well "
            "changes only the padded row, which the loss leaves out anyway."
        ),
    ),
    "one_row": Answer(
        *questions.ANSWERS["one_row"],
        (("efficient", "Compare exact and fused"),),
        questions.one_row,
        {
            "what": col("what"),
            "numbers": col("numbers", whole),
            "FLOPs": col("FLOPs", operations),
        },
        lambda rows: (
            f"At {rows[1]['numbers']:,} tokens the fused kernel never stores the {rows[0]['numbers']:,} weights at once; one "
            f"row is computed again for 1/{rows[1]['numbers']:,} of the cost."
        ),
    ),
    "cache": Answer(
        *questions.ANSWERS["cache"],
        (("cache", "See what each token stores"), ("heads", "Share keys between heads")),
        questions.cache,
        {
            "keys and values": col("keys and values"),
            "a token": col("token", byte_size),
            "8,192 tokens": col("text", byte_size),
        },
        lambda rows: (
            "Of 32 layers with heads of size 128, in bf16. Queries are not stored: the query of an earlier token is never "
            "used again."
        ),
    ),
}
