"""What a reader predicts and tries on The Transformer."""

from __future__ import annotations

from dashboard.widgets.guide import Move, Question
from dashboard.widgets.layer_pattern import SAME

FRESH = {"transformer:weights": "seeded", "transformer:pattern": SAME}
TRANSLATOR = {**FRESH, "transformer:task": "reverse", "transformer:kind": "transformer"}
DECODER = {**FRESH, "transformer:task": "reverse", "transformer:kind": "decoder"}
MOVES = (
    Move("Decoder only", DECODER,
         "One stack is left: the input and the output are one sequence, and there is no cross-attention. GPT is "
         "built like this."),
    Move("Classifier of images", {**FRESH, "transformer:task": "digits", "transformer:kind": "classifier"},
         "The model is only an encoder. Patches of an image take the place of words. The Vision Transformer is built "
         "like this."),
    Move("Norm before", {**TRANSLATOR, "transformer:norm": "pre"},
         "The norm moves into each sublayer, so no norm is on the path from the input to the output. The last figure "
         "compares both in deep models: where the gradient of the first layer is near 0, that layer hardly learns."),
    Move("Twelve layers", {**TRANSLATOR, "transformer:layers": 12},
         "All layers have the same shape, so attention’s share of the parameters hardly changes."),
    Move("Layers of Gemma 3", {**DECODER, "transformer:pattern": "gemma3", "transformer:layers": 6},
         "Five layers attend to a short window and one to the whole text: a coloured bar marks the kind. Open layers 0 "
         "and 5 and compare their maps. A long text then takes little memory in five layers of six."),
)
OPTIONS = ("Attention only", "The feed-forward network only", "Both")


def question(mixes: dict[str, bool]) -> Question:
    """Which sublayers let one token read another; `mixes` says it of attention and feed_forward, as measured."""
    answer = {(True, False): 0, (False, True): 1, (True, True): 2}[mixes["attention"], mixes["feed_forward"]]
    why = ("One token’s vector was changed and the others were left as they were. After attention the other tokens’ "
           "vectors differ; after the feed-forward network they are equal to the last digit.")
    return Question("In one layer, which block lets a token read another token?", OPTIONS, answer, (why,) * 3)
