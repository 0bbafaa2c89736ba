"""A new model guesses: its loss is near ln V, whatever its kind, size and vocabulary, tied or not."""

import math
from typing import Any

import torch
from torch.nn import functional as F

from core.models import MODELS, ModelConfig, Shape, build_model
from core.models.config import RECURRENT
from tests.cases import each

LENGTH, ROWS = 16, 64
STYLES: dict[str, dict[str, Any]] = {
    "original": {"position": "sinusoidal"},
    "GPT-2": {"norm": "pre", "activation": "gelu", "position": "learned", "output_bias": False},
    "Llama": {
        "norm": "pre",
        "normalization": "rms",
        "activation": "swiglu",
        "position": "rope",
        "output_bias": False,
    },
}
KINDS = [
    kind for kind in MODELS if kind not in ("classifier", "one_token", "forecaster", "hierarchical")
]  # to tokens
CASES = [(kind, style) for kind in KINDS for style in (("",) if kind in RECURRENT else STYLES)]


def initial_loss(kind: str, style: str, size: int, words: int, one: bool, tied: bool) -> float:
    """Of 1024 tokens at random; the model's weights are of the same seed, tied or not."""
    if kind in RECURRENT:
        config = ModelConfig.recurrent(
            size, "dot", 2, kind=kind, projection="multi_head", tied=tied
        )
    else:
        config = ModelConfig.transformer(size, 2, 4, kind=kind, tied=tied, **STYLES[style])
    torch.manual_seed(0)
    model = build_model(config, Shape(words, words, LENGTH, one_vocabulary=one)).eval()
    source, target = torch.randint(words, (2, ROWS, LENGTH))
    with torch.no_grad():
        logits = model(source, torch.ones_like(source, dtype=torch.bool), target).logits
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), target[:, 1:].flatten()).item()


@each("kind, style", CASES)
@each("size", [16, 64, 128])
@each("words", [16, 65, 1000])
@each("one", [False, True])
def test_the_first_loss_is_that_of_a_guess(kind, style, size, words, one):
    free, tied = (
        initial_loss(kind, style, size, words, one, flag) - math.log(words)
        for flag in (False, True)
    )
    assert abs(free) < 0.3  # logits of variance 1/3, PyTorch's initial output layer, add 1/6
    assert abs(tied) < max(0.1, abs(free))
