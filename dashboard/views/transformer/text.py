"""Sentences of the page The Transformer."""

from __future__ import annotations

from core.models.model_summary import Part
from dashboard.draw.formats import byte_size, number, percent
from dashboard.draw.model_diagram import is_attention
from dashboard.views.transformer.compute import BATCH, SEEDS, Depth, Measurements
from dashboard.widgets.panels import plain


def of_model(whole: Part) -> str:
    """The shares of attention and feed-forward in the parameters and the FLOPs."""
    parts = [part for part in whole.walk() if part.children and is_attention(part.path)]
    forward = [part for part in whole.walk() if part.path.endswith("feed_forward")]
    share = {
        name: (
            sum(part.parameters for part in group) / whole.parameters,
            sum(part.flops for part in group) / whole.flops,
        )
        for name, group in (("attention", parts), ("feed-forward", forward))
    }
    return (
        f"Attention has **{percent(share['attention'][0])}** of the {whole.parameters:,} parameters and takes "
        f"**{percent(share['attention'][1])}** of the FLOPs; the feed-forward networks have "
        f"{percent(share['feed-forward'][0])} and take {percent(share['feed-forward'][1])}."
    )


def of_memory(result: Measurements) -> str:
    """The conditions, and the memory that training takes."""
    whole = result.tree
    return (
        f"Measured on one forward and backward pass over {BATCH} held-out examples; loss {number(result.loss)}. "
        "FLOPs are those of the matrix products of the forward pass. “For backward” is what the backward pass "
        f"needs of this batch, {byte_size(whole.bytes)} in all. The weights take {byte_size(4 * whole.parameters)} "
        f"in fp32; training with AdamW takes {byte_size(16 * whole.parameters)} with gradients and two moments. "
        "A bar is the part's share of the model."
    )


def of_depth(after: Depth, before: Depth, layers: int) -> str:
    """The effect of the norms on the first layer's gradient."""
    return (
        f"With {layers} layers and the norm after the sum, the gradient of the first layer is "
        f"**{number(after.ratio)} ×** that of the last layer. With the norm before the sublayer, it is "
        f"**{number(before.ratio)} ×**."
    )


def of_depth_conditions(after: Depth, before: Depth) -> str:
    return (
        f"Untrained models of this shape, mean of {SEEDS} seeds, the same {BATCH} examples. First layer: "
        f"{number(after.mean[0])} ± {number(after.std[0])} after, {number(before.mean[0])} ± "
        f"{number(before.std[0])} before."
    )


ABOUT = {
    "source": "Each input token becomes a vector of d_model numbers, looked up in a learned table: a network "
    "computes with numbers.",
    "Linear map of the input": "A linear map turns the numbers of each patch of the image, or of each value of the "
    "series, into a vector of d_model numbers.",
    "Column embedding": "Each column of the table becomes a vector of d_model numbers: a number by a linear map, a "
    "category by a learned table.",
    "target": "Each output token so far becomes a vector of d_model numbers, looked up in a learned table. This "
    "example has its right output, which begins with a start mark: at each position the model predicts the "
    "token that follows (teacher forcing). A model in use gets its own outputs here, one after the other.",
    "both": "Each token becomes a vector of d_model numbers, looked up in a learned table. Input and output are one "
    "sequence: the input, a start mark, then the right output so far (teacher forcing). From the start mark on "
    "the model predicts the token that follows.",
    "places": "A vector that depends only on the position is added: attention itself ignores the order of tokens.",
    "attention": "Every token attends to every token of the same sequence, so its vector can take in what the "
    "others say. Each head has its own weights.",
    "causal": "Each token attends to itself and to the tokens before it. The causal mask removes those after "
    "it, which the model must predict.",
    "cross": "Each output token attends to the whole input and takes in the part that it needs: queries come from the "
    "decoder, keys and values from the encoder.",
    "feed_forward": "Attention moves information between tokens. Here each token’s vector is processed on its own: two "
    "linear maps with an activation between them compute new features.",
    "add": "The residual connection: the sublayer's input is added to its output, so that it is passed on and "
    "gradients reach the first layers.",
    "norm": "Each token's vector is normalized before the sublayer reads it, so that its numbers keep one range.",
    "add_norm": "The sublayer's input is added to its output (the residual connection), so that it is passed on. Then "
    "each token's vector is normalized, so that its numbers keep one range in every layer.",
    "last_norm": "Each token's vector is normalized once more after the last layer, so that the output layer reads one "
    "range.",
    "output": "A linear map turns each vector into one logit for each possible answer. Softmax turns logits into "
    "probabilities.",
    "layer": "One layer: attention between the tokens, then the same feed-forward network for each token.",
}


def about(part: Part) -> str:
    """What a part does, in a sentence."""
    path, last = part.path, part.path.rpartition(".")[2]
    if last.isdecimal():
        return ABOUT["layer"]
    if last.endswith("places"):
        return ABOUT["places"]
    if path == "target" and part.title == "Word embedding":
        return ABOUT["both"]
    if last.startswith("around_"):
        return ABOUT["add_norm"]
    if path in ("norm", "encoder.norm"):
        return ABOUT["last_norm"]
    return ABOUT.get(part.title, ABOUT.get(last, ""))


def of_cross_rows(tokens: tuple[str, ...]) -> str:
    """Why the rows of cross-attention have other names than the decoder's input: it is shifted by one."""
    return (
        f"A row is named after the token that the model predicts there. The decoder reads the token before it: its "
        f"input is the output shifted by one, with {plain('<bos>')} in front, so row 0 reads {plain('<bos>')} and "
        f"predicts {plain(tokens[0])}."
    )


def predictions(result: Measurements) -> tuple[str, ...]:
    """What the model predicts for the example, with the probability of each answer."""
    if not result.predicted:
        return ()
    shown = " · ".join(f"{token} {percent(share)}" for token, share in result.predicted[:24])
    return (f"Most probable at each position: {shown}",)
