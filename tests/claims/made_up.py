"""Made-up results of a claim: the numbers that a world would give, with noise from seed to seed."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from core.claims.base import CellResult, Claim, Outcome, Results, verdict

World = Mapping[tuple[str, str, float | None], float]  # condition, measure, x -> number


def results(world: World, noise: float = 0.0, seeds: int = 5) -> Results:
    """Cells of every condition; each number differs by up to `noise` times itself (1 for 0) between seeds."""
    draw = np.random.default_rng(86)
    cells = []
    for seed in range(seeds):
        for condition in dict.fromkeys(condition for condition, _, _ in world):
            values = [
                (measure, value + noise * (abs(value) or 1) * float(draw.normal()), x)
                for (of, measure, x), value in world.items()
                if of == condition
            ]
            cells.append(CellResult(condition, seed, 1.0, tuple(values)))
    return Results.of(cells)


def judge(claim: Claim, world: World, noise: float = 0.0) -> tuple[str, list[Outcome]]:
    """The verdict on a made-up world of models that have learned, and the outcome of each part."""
    claim = replace(
        claim, parts=tuple(replace(part, learned=None, room=None) for part in claim.parts)
    )
    judged = verdict(claim, claim.settle(), results(world, noise, claim.seeds))
    return judged.state, [each.outcome for each in judged.effects]
