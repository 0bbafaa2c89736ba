"""The OV copying score of every head: a measure of its weights alone, beside those of texts."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from core.interpret.circuits import copying_scores, read_heads, read_vocabularies
from core.interpret.trace import Kind, to_numpy
from core.pretrained.base import Pretrained, PretrainedError


def copying(pretrained: Pretrained, kind: Kind, shape: tuple[int, int]) -> Float[np.ndarray, "L H"]:
    """The copying score of each head, −1 to 1; nan where the model has no tokens, or no matrices of single heads."""
    scores = np.full(shape, np.nan)
    try:
        vocabularies = read_vocabularies(pretrained)
        for heads in read_heads(pretrained):
            if heads.kind == kind and (values := copying_scores(heads, vocabularies)) is not None:
                scores[heads.layer, : len(values)] = to_numpy(values)
    except PretrainedError:
        scores[:] = np.nan
    return scores
