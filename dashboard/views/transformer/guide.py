"""What a reader predicts and tries on The Transformer."""

from __future__ import annotations

from dashboard.widgets.guide import Move, Question

TRANSLATOR = {"transformer:weights": "seeded", "transformer:task": "reverse", "transformer:kind": "transformer"}
MOVES = (
    Move("Decoder only",
         {"transformer:weights": "seeded", "transformer:task": "reverse", "transformer:kind": "decoder"},
         "One stack is left: the input and the output are one sequence, and there is no cross-attention. GPT is "
         "built like this."),
    Move("Classifier of images",
         {"transformer:weights": "seeded", "transformer:task": "digits", "transformer:kind": "classifier"},
         "The model is only an encoder. Patches of an image take the place of words. The Vision Transformer is built "
         "like this."),
    Move("Norm before", {**TRANSLATOR, "transformer:norm": "pre"},
         "The norm moves into each sublayer, so no norm is on the path from the input to the output. The last figure "
         "compares both in deep models: where the gradient of the first layer is near 0, that layer hardly learns."),
    Move("Twelve layers", {**TRANSLATOR, "transformer:layers": 12},
         "All layers have the same shape, so attention’s share of the parameters hardly changes."),
)
OPTIONS = ("Attention only", "The feed-forward network only", "Both")


def question(mixes: dict[str, bool]) -> Question:
    """Which sublayers let one token read another; `mixes` says it of attention and feed_forward, as measured."""
    answer = {(True, False): 0, (False, True): 1, (True, True): 2}[mixes["attention"], mixes["feed_forward"]]
    why = ("One token’s vector was changed and the others were left as they were. After attention the other tokens’ "
           "vectors differ; after the feed-forward network they are equal to the last digit.")
    return Question("In one layer, which block lets a token read another token?", OPTIONS, answer, (why,) * 3)
