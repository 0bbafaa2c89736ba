"""What a reader predicts and tries on The Transformer."""

from __future__ import annotations

from core.training.sweeps import SAME
from dashboard.widgets.guide import Move, Question

FRESH = {"transformer:weights": "seeded", "transformer:pattern": SAME}
TRANSLATOR = {**FRESH, "transformer:task": "reverse", "transformer:kind": "transformer"}
DECODER = {**FRESH, "transformer:task": "reverse", "transformer:kind": "decoder"}
NORMS_PANEL = "transformer:norms"  # the panel that compares both norms
MOVES = (
    Move("Decoder only", DECODER,
         "One stack is left: the input and the output are one sequence, and there is no cross-attention. GPT is "
         "built like this."),
    Move("Classifier of images", {**FRESH, "transformer:task": "digits", "transformer:kind": "classifier"},
         "The model is only an encoder. Patches of an image take the place of words. The Vision Transformer is built "
         "like this."),
    Move("Norm before", {**TRANSLATOR, "transformer:norm": "pre", NORMS_PANEL: True},
         "The norm moves into each sublayer, so no norm is on the path from the input to the output. The last "
         "panel compares both in deep models: a first layer whose gradient is near 0 hardly learns."),
    Move("Twelve layers", {**TRANSLATOR, "transformer:layers": 12},
         "All layers have the same shape, so attention’s share of the parameters hardly changes."),
    Move("Layers of Gemma 3", {**DECODER, "transformer:pattern": "gemma3", "transformer:layers": 6},
         "Five layers attend to a short window and one to the whole text: a coloured bar marks the kind. Open layers 0 "
         "and 5 and compare their maps. A long text then takes little memory in five layers of six."),
)
OPTIONS = ("All tokens", "The tokens before it", "Only the token at its own position")


def question(mixes: dict[str, bool]) -> Question:
    """What an output depends on without attention; `mixes` says whether feed_forward mixes tokens, as measured."""
    why = ("One token’s vector was changed and the others were left as they were. After attention the other tokens’ "
           "vectors differ; after the feed-forward network they are equal to the last digit. Norms and residual "
           "connections process each token alone, too, so only attention moves information between tokens.")
    return Question("Take all attention blocks away. On which tokens could the output at one position still depend?",
                    OPTIONS, 0 if mixes["feed_forward"] else 2, (why,) * 3)
