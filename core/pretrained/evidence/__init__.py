"""Evidence on what the answer depends on: contributions, gradients, and the effect of ablations."""

from core.pretrained.evidence.ablation import (
    Effect,
    ablate_heads,
    head_sets,
    hide_token,
    largest_effects,
    make_heads_uniform,
    single_heads,
)
from core.pretrained.evidence.contributions import (
    Contributions,
    measure_contributions,
    output_matrix,
)
from core.pretrained.evidence.outputs import output_id, output_name
from core.pretrained.evidence.question import Baseline, Quantity, Question, ask, quantity_values
from core.pretrained.evidence.tokens import answering_rows, token_scores

__all__ = [
    "Baseline",
    "Effect",
    "Contributions",
    "Quantity",
    "Question",
    "answering_rows",
    "ask",
    "head_sets",
    "largest_effects",
    "hide_token",
    "make_heads_uniform",
    "measure_contributions",
    "output_id",
    "output_matrix",
    "output_name",
    "quantity_values",
    "single_heads",
    "ablate_heads",
    "token_scores",
]
