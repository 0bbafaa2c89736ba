"""What the page computes as Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dashboard.draw.scripts import Cell, Script
from dashboard.views.claims.compute import ClaimResult, LabResult, OwnRun

ALL = "The verdict on every claim, computed from the numbers that ship with the lab."
ONE = "The verdict on one claim from the lab's measurement: the mean of each part over the seeds, and its interval."
OWN = "The same from a run of one's own."
VERDICTS = """
from collections import Counter

from core.claims.catalogue import CLAIMS
from core.claims.shipped import shipped
from core.claims.base import verdict

verdicts = {}
for claim in CLAIMS:
    if (result := shipped(claim)) is not None:
        verdicts[claim.key] = verdict(claim, result.settings, result.results)
        print(f"{verdicts[claim.key].state:>20}  {claim.statement}")
print(Counter(each.state for each in verdicts.values()))
"""
PRINT = """
print(judged.state)
for effect in judged.effects:
    print(f"{effect.outcome:>14}  {effect.part.statement}: {effect.mean:.3g} [{effect.low:.3g}, {effect.high:.3g}]")
"""


def index(results: Sequence[LabResult]) -> Script:
    """The verdicts on all claims."""
    parts = [effect.mean for _, measured in results for effect in measured.verdict.effects]
    return Script(
        (Cell(ALL, VERDICTS),),
        {"[effect.mean for each in verdicts.values() for effect in each.effects]": np.array(parts)},
    )


def script(lab: LabResult | None, own: OwnRun | None) -> Script:
    """The verdict on one claim, from the lab's numbers and from the reader's own."""
    cells: list[Cell] = []
    results: dict[str, np.ndarray] = {}
    if lab is not None:
        code = f"""
from core.claims.catalogue import claim_of
from core.claims.shipped import shipped
from core.claims.base import verdict

claim = claim_of({lab[1].claim.key!r})
result = shipped(claim)  # measured by: {lab[0].command}
judged = verdict(claim, result.settings, result.results)
"""
        cells.append(Cell(ONE, code + PRINT.lstrip()))
        results |= effects_of("judged", lab[1])
    if own is not None and own.measured.seeds:
        code = f"""
from core.claims.catalogue import claim_of
from core.claims.run import find_group
from core.claims.base import verdict

claim, group = claim_of({own.measured.claim.key!r}), find_group({own.group.id!r})
own = verdict(claim, group.config.settings, group.results())
print(own.state, [(effect.part.statement, effect.mean) for effect in own.effects])
"""
        cells.append(Cell(OWN, code))
        results |= effects_of("own", own.measured)
    return Script(tuple(cells), results)


def effects_of(name: str, measured: ClaimResult) -> dict[str, np.ndarray]:
    """The means and intervals of the parts."""
    effects = measured.verdict.effects
    return {
        f"[[effect.mean, effect.low, effect.high] for effect in {name}.effects]": np.array(
            [[effect.mean, effect.low, effect.high] for effect in effects]
        )
    }
