"""A score formula typed by a person, computed on the cells: `score - 0.5*abs(i-j)`."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from core.entries import Area, Cost, Entry, LayerConfig, Param
from core.formula import Formula, parse
from core.positions.rotary import Position
from core.score_block import ScoreBlock


class Typed(Position):
    """New scores by a formula over score, i, j, h, T and S, after scale and before the mask."""

    def __init__(self, formula: str) -> None:
        super().__init__()
        self.formula: Formula = parse(formula, "score")

    def adjust(
        self, scores: Float[Tensor, "B H T S"], block: ScoreBlock
    ) -> Float[Tensor, "B H T S"]:
        return self.formula(block, scores)

    def latex(self) -> str:
        """The typed formula as an equation, which pages show instead of the entry's."""
        return r"s_{ij} \leftarrow " + self.formula.latex()


def _cost(config: LayerConfig, area: Area) -> Cost:
    """About three matrices at once."""
    return Cost(0.0, 4 * config.score_heads * area.cells * 3)


FORMULA = Entry(
    "formula",
    "Formula",
    lambda config: Typed(**config.position.kwargs),
    r"s_{ij} \leftarrow f(s_{ij}, i, j, h, T, S)",
    "A rule that you type: it computes the new score from the score, the positions i and j, the head h and the sizes "
    "T and S.",
    "",
    2024,
    "",
    (
        Param(
            "formula",
            "Formula",
            "score - 0.5*abs(i-j)",
            parse=lambda text: parse(text, "score"),
            meaning="formula of score, i, j, h, T and S with + − * / % **, comparisons, where, abs, min, max, exp, "
            "log, sqrt and others",
        ),
    ),
    short="{formula}",
    enters="scores",
    traits=frozenset({"adjusts"}),
    cost=_cost,
)
