"""What heads can do by their weights alone: the matrices of each head, its OV and QK circuits, and compositions.

Elhage et al. 2021, A Mathematical Framework for Transformer Circuits.
"""

from core.pretrained.circuits.composition import (
    Composer,
    CompositionKind,
    Compositions,
    composition,
    compositions,
    random_composition,
)
from core.pretrained.circuits.heads import HeadMatrices, read_heads
from core.pretrained.circuits.measures import copying_scores, effective_rank, ov_factors, qk_factors
from core.pretrained.circuits.vocabulary import Vocabularies, read_vocabularies

__all__ = [
    "Composer",
    "CompositionKind",
    "Compositions",
    "HeadMatrices",
    "Vocabularies",
    "composition",
    "compositions",
    "copying_scores",
    "effective_rank",
    "ov_factors",
    "qk_factors",
    "random_composition",
    "read_heads",
    "read_vocabularies",
]
