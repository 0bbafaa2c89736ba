"""The rule of every claim, on made-up data that confirms it, refutes it, and is too noisy to tell."""

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from core.attention import Attention, AttentionConfig
from core.attention.cost import attention_cost, parameters
from core.attention.positions.relative import sinusoids
from core.claims import experiment
from core.claims.base import CellResult, Claim, Outcome, Pick, Results, SeedValues, combine, verdict
from core.claims.catalogue import CLAIMS, claim_of
from core.claims.entries import (
    cost,
    heads,
    meaning,
    positions,
    scores,
    training,
    why_attention as why,
)
from core.claims.experiment import Trained, session_of
from core.entries import Choice
from core.models import ModelConfig, build_model
from core.models.base import Shape
from core.models.transformer import Residual
from core.tasks import Batch, TaskConfig, make_task
from core.training.config import RunConfig
from core.training.loop import Session, prepare
from core.training.record import Bucket, Record
from tests.cases import instance, snapshot

# Made-up results of a claim: the numbers that a world would give, with noise from seed to seed.
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
    return Results(tuple(cells))


def judge(claim: Claim, world: World, noise: float = 0.0) -> tuple[str, list[Outcome]]:
    """The verdict on a made-up world of models that have learned, and the outcome of each part."""
    claim = replace(
        claim, parts=tuple(replace(part, learned=None, room=None) for part in claim.parts)
    )
    judged = verdict(claim, claim.settle(), results(world, noise, claim.seeds))
    return judged.state, [each.outcome for each in judged.effects]


def of(measure: str, values: Mapping[str, float], x: float | None = None) -> dict:
    return {(condition, measure, x): value for condition, value in values.items()}


def rows(conditions: Sequence[str], measures: Mapping[str, Sequence[float]]) -> dict:
    return {
        (condition, measure, None): value
        for measure, values in measures.items()
        for condition, value in zip(conditions, values, strict=True)
    }


def curve(condition: str, measure: str, xs, value) -> dict:
    return {(condition, measure, x): value(x) for x in xs}


def advantages(parameters, seconds, accuracy, mass):
    """One head has 100 parameters; the seconds are those of one head, four, and cells at the last length."""
    models = (why.ONE, why.FOUR, why.RECURRENT)
    return (
        of(why.PARAMETERS, dict(zip(models, (100.0, parameters, 60.0), strict=True)))
        | of(why.MASS, dict(zip(models, (mass[0], *mass), strict=True)))
        | of(why.ACCURACY, dict(zip(models, (accuracy, accuracy, 0.5), strict=True)))
        | of(why.STEP_SECONDS, dict(zip(models, seconds, strict=True)), why.LENGTHS[-1])
    )


def bottleneck(attention, vector, others, seconds):
    ends = {why.ATTENTION: attention, why.VECTOR: vector, why.LARGE: others, why.LONGER: others}
    return (
        of(why.EXACT, ends, why.LONG)
        | of(why.EXACT, dict.fromkeys(ends, 0.9), why.SHORT)
        | of(why.SECONDS, {why.ATTENTION: 10.0, why.LONGER: seconds})
    )


def iris(accuracy, logistic, parameters, differ, sepals):
    both = (why.TOKENS, why.ROW)
    return (
        of(why.HELD_OUT_ACCURACY, dict.fromkeys(both, accuracy) | {why.LOGISTIC: logistic})
        | of(why.EPOCHS, dict.fromkeys(both, 20.0))
        | of(why.DIFFER, dict.fromkeys(both, differ))
        | of(why.IRIS_PARAMETERS, {why.TOKENS: parameters})
        | of(why.SEPALS, {why.TOKENS: sepals})
    )


def causal(open_loss, open_last, masked_last, changes):
    return rows(
        (training.MASKED, training.OPEN),
        {
            training.TEACHER: (2.0, open_loss),
            training.GENERATION: (masked_last, open_last),
            training.PADDING: changes,
        },
    )


def norm(*bits, growth):
    world = of(training.BITS, dict(zip(training.CONDITIONS, bits, strict=True)))
    world |= of(training.FREQUENCIES, {training.BARE: 4.8})
    for condition in training.CONDITIONS:
        rises = growth if "post" in condition else 1 / growth
        world |= curve(condition, training.GRADIENT, range(1, 9), lambda x: rises ** ((x - 1) / 7))  # noqa: B023
    return world


def regularization(perplexity, bleu, dropped, cold):
    return rows(
        (training.BASE, training.SMOOTHED, training.DROPPED, training.COLD),
        {
            training.PERPLEXITY: (2.0, perplexity, dropped, cold),
            training.BLEU: (50.0, bleu, 50.0, 50.0),
            training.ACCURACY: [0.5] * 4,
        },
    )


def decoding(forced, bleus, gained):
    model, widths = training.MODEL, (1, training.BEST, training.WIDEST)
    return (
        of(training.FORCED, {model: forced})
        | of(training.FREE, {model: 0.8})
        | curve(model, training.BLEU, widths, dict(zip(widths, bleus, strict=True)).get)
        | curve(model, training.SCORE, widths, lambda x: -2.0 + gained * (x == training.WIDEST))
    )


def costs(powers, linear_at_128, lost, fused=0.1):
    """Seconds that grow with these powers of the length (full and fused, linear, local)."""
    full, linear, local = powers
    starts = {
        cost.FULL: (1.0, full),
        cost.FUSED: (fused, full),
        cost.LINEAR: (linear_at_128, linear),
        cost.LOCAL: (0.5, local),
    }
    rest = {cost.FULL: 0.9, cost.LINEAR: 0.9 - lost, cost.LOCAL: 0.9 - lost}
    world = of(cost.RECALL, rest) | of(cost.INDUCTION, rest)
    for condition, (start, power) in starts.items():
        world |= {
            (condition, cost.SECONDS, x): start * (x / cost.LENGTHS[0]) ** power
            for x in cost.LENGTHS
        }
    return world


def ladder(bits, parameters, latency):
    return rows(
        [*cost.SIZES],
        {
            cost.BITS: bits,
            cost.ACCURACY: [0.5] * 3,
            cost.PARAMETERS: [parameters**step for step in range(3)],
            cost.LATENCY: [latency**step for step in range(3)],
        },
    )


def groups(grouped, single, cache=64.0):
    return rows(
        (cost.MULTI_HEAD, cost.GROUPED, cost.MULTI_QUERY),
        {cost.BITS: (3.0, grouped, single), cost.CACHE: (256.0, cache, 256.0)},
    )


def hybrid(stack, sixth, local, cache=0.25, sixth_cache=0.17):
    exact = {
        cost.HYBRID_FULL: 0.9,
        cost.HYBRID_STACK: stack,
        cost.HYBRID_LOCAL: local,
        cost.SIX_FULL: 0.95,
        cost.ONE_IN_SIX: sixth,
    }
    caches = {cost.HYBRID_STACK: 100 * cache, cost.ONE_IN_SIX: 100 * sixth_cache}
    return of(cost.EXACT, exact) | of(cost.LONG_CACHE, dict.fromkeys(exact, 100.0) | caches)


def many_heads(one, eight, reversed_by_eight, cost_of_a_head):
    names = (heads.ONE, heads.FOUR, heads.EIGHT)
    return (
        of(heads.BITS, dict(zip(names, (one, eight, eight), strict=True)))
        | of(heads.ACCURACY, dict(zip(names, (0.9, 0.9, reversed_by_eight), strict=True)))
        | curve(
            heads.EIGHT,
            heads.PRUNED,
            [count / 16 for count in range(17)],
            lambda x: eight + cost_of_a_head * 16 * x,
        )
    )


def induction(start, end, fall, score=0.1, loss=3.0):
    """Two layers: the score rises from `start` to `end` of the training, and the loss falls meanwhile; one layer."""
    world: dict = {}
    for x in range(0, 101, 2):
        share = min(1.0, max(0.0, (x / 100 - start) / (end - start)))
        world |= of(heads.SCORE, {heads.TWO: 0.05 + 0.9 * share, heads.ONE_LAYER: score}, x)
        world |= of(heads.LOSS, {heads.TWO: 3.0 - fall * share, heads.ONE_LAYER: loss}, x)
    return world


def roles(ranks, left, effect):
    return rows(
        (heads.SENTENCES_OF, heads.MESSAGES),
        {heads.RANKS: [ranks] * 2, heads.SCORE_LEFT: [left] * 2, heads.EFFECT: [effect] * 2},
    )


def explanation(context, other, alone, guided):
    """τ with context and alone, the divergence of other weights, the accuracy by the GRU's weights."""
    return (
        of(meaning.BY_GRADIENT, {meaning.CONTEXT: context})
        | of(meaning.BY_ABLATION, {meaning.CONTEXT: context, meaning.ALONE: alone})
        | of(meaning.OTHER, {meaning.CONTEXT: other})
        | of(meaning.ACCURACY, {meaning.GUIDED: guided, meaning.UNIFORM: 0.7})
    )


def sinks(weight, others, hidden):
    return rows([*meaning.CHOICES], {meaning.WEIGHT: (weight, others, others, others)}) | of(
        meaning.HIDDEN, {meaning.SOFTMAX: hidden}
    )


def extrapolation(order, error, *, sinusoidal, learned, rope, yarn, alibi):
    """The bits at twice and at four times the length of training, where all have 3."""
    rises = {
        positions.SINUSOIDAL: sinusoidal,
        positions.LEARNED: learned,
        positions.ROPE: rope,
        positions.YARN: yarn,
        positions.ALIBI: alibi,
    }
    world = of(positions.ORDER, dict.fromkeys(positions.POSITIONS, 0.5) | {positions.NONE: order})
    world |= of(positions.SHIFT, {positions.SINUSOIDAL: error})
    for condition, bits in rises.items():
        at = dict(zip(positions.LENGTHS, (3.0, *bits), strict=True))
        world |= curve(condition, positions.BITS, at, at.get)
    return world


def concatenation(added, joined, none):
    return rows(
        (positions.ADDED, positions.JOINED, positions.NONE),
        {positions.ACCURACY: (added, joined, none)},
    )


def path(decay, attention_decay, crosses_at, waiting):
    """Seconds as n · crosses_at for a recurrent layer and n² for attention."""
    attention, cells = positions.ATTENTION, positions.RECURRENT
    distances, lengths = positions.DISTANCES, positions.PATH_LENGTHS
    return (
        of(positions.WAITING, {cells: waiting, attention: 1.0})
        | curve(cells, positions.GRADIENT, distances, lambda x: decay ** (x - 1))
        | curve(attention, positions.GRADIENT, distances, lambda x: attention_decay ** (x - 1))
        | curve(cells, positions.SECONDS, lengths, lambda x: x * crosses_at)
        | curve(attention, positions.SECONDS, lengths, lambda x: x**2)
    )


def kinds_of_score(small, times, dot, scaled, in_time):
    even = dict.fromkeys(scores.SCORES, 1.0)
    return (
        of(scores.LOSS, even | {scores.DOT: small}, scores.SIZES[0])
        | of(scores.LOSS, even | {scores.DOT: dot, scores.SCALED: scaled}, scores.LARGE)
        | of(scores.TIME, {scores.DOT: times[0], scores.ADDITIVE: times[1]}, scores.LARGE)
        | of(scores.IN_TIME, {scores.SCALED: in_time, scores.ADDITIVE: 1.0})
    )


def scaling(gradient, accuracy, variance=1.0):
    divided, unscaled, sizes = scores.DIVIDED, scores.UNSCALED, scores.KEY_SIZES
    world = curve(divided, scores.VARIANCE, sizes, lambda x: variance)
    world |= curve(unscaled, scores.VARIANCE, sizes, float)
    world |= curve(divided, scores.GRADIENT, sizes, lambda x: 0.2)
    world |= curve(unscaled, scores.GRADIENT, sizes, lambda x: 0.2 if x == sizes[0] else gradient)
    for size in scores.TRAINED:
        world |= of(scores.ACCURACY, {divided: 0.99, unscaled: accuracy}, size)
    return world


def differential(accuracy, answer, noise):
    """Softmax is right in 0.8, with 0.6 of the weight on the answer and 0.3 on other pairs."""
    return rows(
        (scores.SOFTMAX, scores.DIFFERENTIAL),
        {
            scores.RECALL_ACCURACY: (0.8, accuracy),
            scores.ANSWER: (0.6, answer),
            scores.NOISE: (0.3, noise),
        },
    )


def topk(*few):
    """4 bits where each sees itself alone, 3 with all keys; with FEW keys what is given."""
    conditions = (scores.LARGEST, scores.INDEXER, scores.LATEST)
    bits = dict(zip(conditions, few, strict=True))
    return {
        (name, scores.BITS, k): 4.0 if k == 1 else bits[name] if k == scores.FEW else 3.0
        for name in conditions
        for k in scores.COUNTS
    }


FLAT = dict.fromkeys(("sinusoidal", "learned", "yarn"), (3.0, 3.0))
# Of each claim three worlds and their noise: one that confirms it, one that refutes it, one that tells nothing. Where it
# is not so of all parts, the outcome of each: + holds, - refuted, ? cannot be told.
RULES: dict = {
    "advantages": (
        (advantages(400.0, (1.0, 1.05, 3.0), 0.9, (0.9, 0.2)), 0.001),
        (advantages(100.0, (1.0, 2.0, 0.5), 0.4, (0.2, 0.9)), 0.001),
        (advantages(101.0, (1.0, 1.25, 1.1), 0.52, (0.5, 0.5)), 0.3),
    ),
    "bottleneck": (
        (bottleneck(0.85, 0.0, 0.3, 15.0), 0.001),
        (bottleneck(0.3, 0.85, 0.85, 8.0), 0.001),
        (bottleneck(0.7, 0.65, 0.6, 10.0), 0.4),
    ),
    "iris": (
        (iris(0.96, 0.9, 15_000, 0.1, 0.8), 0.001, "+++++?"),  # ten seeds of ten may be nine of ten
        (iris(0.8, 0.9, 102_467, 0.0, 0.2), 0.0),
        (iris(0.96, 0.95, 15_000, 0.01, 0.7), 0.5),
    ),
    "causal": (
        (causal(0.1, 6.0, 2.0, (1e-7, 0.1)), 0.01),
        (causal(2.0, 2.0, 4.0, (1e-2, 1e-6)), 0.001),
        (causal(1.0, 2.1, 2.2, (1e-5, 1e-3)), 0.5),
    ),
    "norm": (
        (norm(4.5, 3.5, 3.5, 3.5, 4.8, growth=4.0), 0.001),
        (norm(3.5, 3.5, 4.0, 3.5, 3.5, growth=0.5), 0.001),
        (norm(3.6, 3.5, 3.6, 3.5, 4.7, growth=1.1), 0.4),
    ),
    "regularization": (
        (regularization(2.4, 54.0, 1.6, 3.0), 0.002),
        (regularization(1.9, 40.0, 2.5, 1.9), 0.002),
        (regularization(2.05, 51.0, 1.95, 2.05), 0.4),
    ),
    "decoding": (
        (decoding(0.95, (50, 55, 45), 0.5), 0.002),
        (decoding(0.8, (55, 50, 58), -0.5), 0.002),
        (decoding(0.82, (50, 50, 50), 0.0), 0.5),
    ),
    "cost": (
        (costs((2.0, 1.0, 1.0), 0.5, 0.3), 0.002),
        (costs((1.0, 2.0, 2.0), 0.5, 0.0), 0.001),
        (costs((1.8, 1.2, 1.2), 2.6, 0.05, 0.5), 0.3),
    ),
    "ladder": (
        (ladder((3.5, 3.2, 3.0), 5.0, 1.5), 0.001),
        (ladder((3.0, 3.2, 3.5), 2.0, 4.0), 0.001),
        (ladder((3.2, 3.1, 3.0), 3.2, 2.0), 0.5),
    ),
    "groups": (
        (groups(3.0, 3.1), 0.002),
        (groups(3.2, 3.1, 128.0), 0.002),
        (groups(3.03, 3.03, 76.0), 0.05),
    ),
    "hybrid": (
        (hybrid(0.9, 0.95, 0.3), 0.005),
        (hybrid(0.5, 0.5, 0.5, 0.5, 0.5), 0.005),
        (hybrid(0.85, 0.9, 0.65, 0.3, 0.2), 0.2),
    ),
    "heads": (
        (many_heads(3.2, 3.0, 0.9, 0.004), 1e-4),
        (many_heads(3.0, 3.0, 0.99, 0.02), 1e-4),
        (many_heads(3.05, 3.0, 0.92, 0.004), 0.01),
    ),
    "induction": (
        (induction(0.5, 0.6, 2.5), 0.002),
        (induction(0.1, 0.9, 0.5, 0.9, 2.5), 0.002),
        (induction(0.4, 0.62, 1.2, 0.6, 2.9), 0.5),
    ),
    "roles": (
        (roles(0.95, 0.9, 0.6), 0.01),
        (roles(0.4, 0.5, -0.1), 0.01),
        (roles(0.8, 0.8, 0.3), 0.4),
    ),
    "explanation": (
        (explanation(0.3, 0.6, 0.8, 0.8), 0.01),
        (explanation(0.7, 0.1, 0.7, 0.6), 0.01),
        (explanation(0.5, 0.35, 0.6, 0.72), 0.4),
    ),
    "sinks": (
        (sinks(0.8, 0.1, 0.5), 0.01),
        (sinks(0.3, 0.3, 0.01), 0.01),
        (sinks(0.5, 0.25, 0.1), 0.3),
    ),
    "positions": (
        (
            extrapolation(
                1e-7,
                1e-7,
                sinusoidal=(5, 6),
                learned=(4, 6),
                rope=(3.5, 5),
                yarn=(3.2, 4),
                alibi=(3, 2.9),
            ),
            1e-5,
        ),
        (extrapolation(0.5, 0.5, **FLAT, rope=(3.2, 3.0), alibi=(4, 5)), 1e-3, "-+-------"),
        (
            extrapolation(
                1e-3,
                1e-3,
                sinusoidal=(3.2, 3.3),
                learned=(3, 3.3),
                rope=(3.1, 3.3),
                yarn=(3.1, 3.2),
                alibi=(3, 3),
            ),
            1.0,
            "?+???????",  # sinusoidal positions see the order fifty-fold
        ),
    ),
    "concatenation": (
        (concatenation(0.99, 0.98, 0.06), 0.001),
        (concatenation(0.7, 0.98, 0.9), 0.001),
        (concatenation(0.9, 0.9, 0.5), 0.3),
    ),
    "path": (
        (path(0.5, 1.0, 1.1 * positions.SIZE, 10.0), 0.001),
        (path(1.0, 0.5, 40.0 * positions.SIZE, 1.0), 0.001, "---+++-"),
        (path(0.93, 0.965, 1.5 * positions.SIZE, 2.0), 0.7),
    ),
    "scores": (
        (kinds_of_score(1.0, (10, 20), 1.5, 1.0, 0.6), 0.002),
        (kinds_of_score(2.0, (20, 10), 0.8, 2.0, 1.6), 0.002),
        (kinds_of_score(1.0, (10, 11), 1.1, 1.2, 1.0), 0.4),
    ),
    "scaling": (
        (scaling(0.02, 0.5), 0.01),
        (scaling(0.2, 0.99, 3.0), 0.01, "-+-+-"),
        (scaling(0.1, 0.97), 0.6),
    ),
    "differential": (
        (differential(0.95, 0.9, 0.05), 0.01),
        (differential(0.7, 0.5, 0.4), 0.01),
        (differential(0.82, 0.62, 0.15), 0.3),
    ),
    "topk": (
        (topk(3.01, 3.05, 3.3), 0.001),
        (topk(3.3, 3.5, 3.1), 0.001),
        (topk(3.05, 3.1, 3.12), 0.1),
    ),
}
SAYS: dict[str, Outcome] = {"+": "holds", "-": "refuted", "?": "cannot be told"}


@pytest.mark.parametrize("key", [claim.key for claim in CLAIMS])
def test_the_rule_confirms_refutes_and_abstains(key):
    claim = claim_of(key)
    for sign, (world, noise, *outcomes) in zip(SAYS, RULES[key], strict=True):
        parts = [SAYS[one] for one in (outcomes or [sign * len(claim.parts)])[0]]
        assert judge(claim, world, noise) == (combine(parts), parts)


def test_a_guess_is_answered_by_the_numbers():
    confirmed, refuted, _ = (results(world) for world, *_ in RULES["advantages"])
    answer = instance(why.ADVANTAGES.guess, Pick).answer
    assert (answer(confirmed), answer(refuted)) == (2, 0)
    best = results(ladder((3.5, 3.2, 3.4), 5.0, 1.5))
    assert instance(cost.LADDER.guess, Pick).answer(best) == 1


# What the claims measure, against plain arithmetic.


LINE = Shape(11, 11, 12, one_vocabulary=True)
SOURCE = torch.randint(4, 11, (3, 12), generator=torch.Generator().manual_seed(0))


def decoder(*sizes, seed=0, **more) -> Any:
    torch.manual_seed(seed)
    return build_model(ModelConfig.transformer(*sizes, kind="decoder", **more), LINE).eval()


def test_the_tutorials_model_is_counted_by_hand_and_a_step_takes_time():
    attention, feed_forward, norms = 4 * 64 * 64 + 4 * 64, 2 * 64 * 256 + 256 + 64, 4 * 64
    both = 2 * (attention + feed_forward + norms)
    by_hand = (4 * 64 + 64) + both + (64 * 32 + 32) + (32 * 3 + 3)
    assert why.tutorial_parameters() == by_hand == 102_467
    model = ModelConfig.transformer(8, 1, position="sinusoidal")
    run = RunConfig(TaskConfig.of("reverse", length=4), model, batch_size=2)
    assert why.step_seconds(session_of(run, 0)) > 0


def test_the_parts_of_training_by_hand():
    assert (
        training.padding_change(0, masked=True) == pytest.approx(0, abs=1e-6)
        and training.padding_change(0, masked=False) > 1e-3
    )
    task: Any = make_task(TaskConfig.of("topics", length=32))
    tokens = [task.source_vocab.encode([token])[0] for token in "etxt"]
    task.ids = torch.tensor(tokens)  # e once, x once, t twice, and every token once more
    task.corpus = SimpleNamespace(held_out=("t", "e"))
    total = 4 + len(task.source_vocab)
    bits = -(math.log2(3 / total) + math.log2(2 / total)) / 2
    assert training.frequency_bits(task) == pytest.approx(bits, rel=1e-5)
    outputs, targets = [("a", "b"), ("c",)], [("a", "x", "y"), ("c",)]
    assert training.token_accuracy(outputs, targets) == 0.5


def test_gradients_are_of_each_layer_and_residuals_can_go():
    model = ModelConfig.transformer(8, 2, 2, kind="decoder", norm="pre")
    session = prepare(RunConfig(TaskConfig.of("copy"), model))
    norms = training.layer_gradients(session)
    assert (
        len(norms) == 2
        and min(norms) > 0
        and all(weight.grad is None for weight in session.model.parameters())
    )
    training.remove_residuals(session.model)
    around = [module for module in session.model.modules() if isinstance(module, Residual)]
    x = torch.randn(1, 3, 8)
    assert len(around) == 4 and all(torch.equal(one.leave(x, -x), -x) for one in around)


def test_the_exponent_is_that_of_the_curve_and_each_condition_fits_the_layer():
    seed = SeedValues(dict(costs((2.0, 1.0, 1.5), 0.5, 0.0)))
    assert cost._exponent(cost.LOCAL, seed) == pytest.approx(1.5)
    kernels = [
        AttentionConfig(128, 4, **cost.choices(condition)).kernel.key
        for condition in cost.COST.conditions({})
    ]
    assert kernels == ["exact", "fused", "linear", "local"]


@pytest.mark.parametrize(
    ("condition", "numbers"),
    [(cost.MULTI_HEAD, 256), (cost.GROUPED, 64), (cost.MULTI_QUERY, 32)],
)
def test_the_cache_holds_keys_and_values_of_each_layer(condition, numbers):
    """2 layers · 2 (key and value) · heads of keys · 8 dimensions."""
    model = decoder(64, 8, 2, position="rope", projection=cost.PROJECTIONS[condition])
    batch = SimpleNamespace(source=SOURCE[:1], source_mask=SOURCE[:1] > 0)
    task: Any = SimpleNamespace(held_out=lambda n: None, collate=lambda examples: batch)
    assert cost.cached_numbers(Trained(model, task, ())) == numbers


def test_a_window_caches_two_tokens_and_one_layer_of_four_sees_all():
    """64 numbers for the key and 64 for the value of each token."""
    sizes = {name: cost.cached(cost.stack(layers), 10) for name, layers in cost.PATTERNS.items()}
    assert sizes == {
        cost.HYBRID_FULL: 4 * 10 * 128,
        cost.HYBRID_STACK: (10 + 3 * 2) * 128,
        cost.HYBRID_LOCAL: 4 * 2 * 128,
        cost.SIX_FULL: 6 * 10 * 128,
        cost.ONE_IN_SIX: (10 + 5 * 2) * 128,
    }
    model = build_model(cost.stack(cost.PATTERNS[cost.HYBRID_STACK]), LINE).eval()
    maps = model(SOURCE[:1, :9], SOURCE[:1, :9] > 0, record=True).maps["causal"]
    assert [int((steps.weights[0, 0, -1] > 0).sum()) for steps in maps] == [2, 2, 2, 9]


def test_a_head_without_its_columns_adds_nothing():
    model = decoder(8, 2, 1, norm="pre")
    full = model(SOURCE, SOURCE > 0, record=True)
    projection = model.layers[0].causal.projection
    copy: Any = heads.without(model, [(0, 1)])
    out = full.maps["causal"][0].out  # (B, H, T, D)
    alone = torch.nn.functional.linear(
        out[:, 0], projection.output.weight[:, :4], projection.output.bias
    )
    pruned = copy.layers[0].causal.projection.merge(out, out[:, 0].repeat(1, 1, 2))
    torch.testing.assert_close(pruned, alone)
    assert bool((projection.output.weight != 0).all())  # the model itself is as it was


def test_crossings_agreement_and_the_score_that_is_left_by_hand():
    curve = {0.0: 0.0, 10.0: 0.2, 20.0: 1.0}
    assert [heads.crossing(curve, level) for level in (0.6, 0.1, 2.0)] == pytest.approx(
        [15, 5, 20]
    ) and heads.at(curve, 15.0) == pytest.approx(0.6)
    first = np.array([[[0.1, 0.2], [0.3, 0.8]], [[0.6, 0.1], [0.2, 0.3]]])
    assert heads.mean_agreement(first, first**2) == pytest.approx(1) and heads.score_left(
        first, first / 2
    ) == pytest.approx(0.5)
    second = first.copy()
    second[0] = second[0].max() - second[0]
    assert heads.mean_agreement(first, second) == pytest.approx(0) and heads.score_left(
        first, second
    ) == pytest.approx((0.0 / 0.8 + 0.6 / 0.6) / 2)


def test_even_attention_scores_its_share():
    """Without scores each output attends evenly to all it sees; the words to repeat are 2 to 5 places on."""
    task = make_task(TaskConfig.of("induction", length=8, vocab=16, said=2))
    model = build_model(ModelConfig.transformer(16, 2, kind="decoder"), task.shape).eval()
    for name, weight in model.named_parameters():
        if "query" in name or name.startswith("output"):
            weight.data.zero_()
    expected = (task.baseline_loss, (1 / 11 + 1 / 12) / 2)
    assert heads.on_repeated(model, task) == pytest.approx(expected)


@pytest.mark.parametrize("condition", meaning.CHOICES)
def test_a_hidden_first_token_gets_weight_from_itself_alone(condition):
    plain = ModelConfig.transformer(16, 4, 2, kind="decoder", position="rope")
    torch.manual_seed(0)
    model = build_model(meaning.variant(plain, condition), LINE).eval()
    batch = Batch(SOURCE, SOURCE > 0, None, SOURCE)
    assert meaning.weight_on_first(model, batch) > 0
    hidden = meaning.without_first(model)
    for steps in hidden(batch.source, batch.source_mask, record=True).maps["causal"]:
        assert (
            not steps.weights[:, :, 1:, 0].any()
            and (steps.weights[:, :, 0, 0] > 0).all()
            and not steps.weights.triu(1).any()
        )
    assert meaning.weight_on_first(hidden, batch) == 0 and meaning.loss(
        hidden, batch
    ) != meaning.loss(model, batch)


@pytest.fixture
def words():
    source = torch.randint(4, 9, (5, 8), generator=torch.Generator().manual_seed(3))
    source[1, 6:] = 0
    return Batch(source, source > 0, None, torch.zeros(5, dtype=torch.long))


def reader(context=False):
    task: Any = SimpleNamespace(shape=Shape(9, 3, 8, output="label"))
    torch.manual_seed(1)
    return meaning.Reader(task, context).eval().requires_grad_(False)


def test_distances_by_hand():
    same, first, second = torch.tensor([[[0.5, 0.5]], [[1.0, 0.0]], [[0.0, 1.0]]])
    assert (float(meaning.distance(first, second)), float(meaning.distance(same, first))) == (
        1,
        0.5,
    )
    apart = [float(meaning.divergence(*pair)) for pair in ((same, same), (first, second))]
    assert apart == pytest.approx([0, math.log(2)], abs=1e-6)


def test_ablation_renormalizes_the_weights_and_the_gradient_holds_them_fixed(words):
    model = reader()
    states = model.letters(words.source)
    weights = model.weights(states, words.source_mask)
    left = weights.clone()
    left[:, 2] = 0
    expected = meaning.distance(
        model.classify(states, left / left.sum(-1, keepdim=True)).softmax(-1),
        model.classify(states, weights).softmax(-1),
    )
    assert (
        torch.allclose(meaning.by_ablation(model, words)[:, 2], expected, atol=1e-6)
        and not meaning.by_ablation(model, words)[1, 6:].any()
    )
    model = reader()
    states = model.letters(words.source)
    weights = model.weights(states, words.source_mask)
    grown = states.clone()
    grown[0, 3] *= 1.001
    p, q = (model.classify(each, weights).softmax(-1)[0] for each in (states, grown))
    slope = float((q - p)[int(p.argmax())]) / 0.001
    assert float(meaning.by_gradient(model, words)[0, 3]) == pytest.approx(abs(slope), rel=0.05)


@pytest.mark.parametrize("context", [False, True])
def test_weights_agree_with_themselves_and_do_not_matter_to_a_constant(context, words):
    model = reader(context)
    weights = meaning.own_weights(
        model, model.states(model.letters(words.source), words.source_mask), words
    )
    assert (
        meaning.agreement(model, words, weights) == pytest.approx(1)
        and meaning.agreement(model, words, -weights) == pytest.approx(-1)
        and meaning.by_permutation(model, words, 0) > 0
    )
    model.output.weight.zero_()
    assert meaning.by_permutation(model, words, 0) == 0
    # One letter of eight, against even weights, is 0.5 away.
    assert meaning.other_weights(model, words) > 0.45


def test_a_layer_without_positions_sees_no_order_and_a_running_mean_passes_all_gradient():
    none, rope = (positions.order_change(Choice(key), 0) for key in ("none", "rope"))
    assert none < 1e-5 < 0.1 < rope
    measured = positions.measure(positions.NONE, 0, {}, lambda: False)
    assert [number[0] for number in measured] == [positions.ORDER] and positions.shift(3) < 1e-5
    # sin i, cos i: a turn by one radian a position
    table = sinusoids(torch.arange(8, dtype=torch.float64), 2)
    turned = math.cos(3.0) * table[2, 0] + math.sin(3.0) * table[2, 1]
    assert float(turned) == pytest.approx(float(table[5, 0]), abs=1e-6)
    norms = positions.gradients(lambda x: x.cumsum(1), 0)
    assert norms == pytest.approx(dict.fromkeys(positions.DISTANCES, 1.0))


@pytest.mark.parametrize(
    ("at", "expected"),
    [(96.0, 96.0), (1.0, positions.PATH_LENGTHS[0]), (1e9, positions.PATH_LENGTHS[-1])],
)
def test_the_crossing_of_a_line_and_a_square(at, expected):
    seed = SeedValues(dict(path(1.0, 1.0, at, 1.0)))
    assert positions.crossing(seed, positions.SECONDS) == pytest.approx(expected)


def test_flops_are_those_of_the_layer_and_cross_at_the_width():
    attention, cells, size = positions.ATTENTION, positions.RECURRENT, positions.SIZE
    assert positions.flops(attention, 64, 64) == positions.flops(cells, 64, 64)
    config = AttentionConfig(size, 4, mask="causal")
    # Each weight once a token, without biases.
    products = 2 * 16 * (sum(parameters(config).values()) - 4 * size)
    expected = attention_cost(config, 16, 16).flops + products
    assert positions.flops(attention, 16, size) == expected
    weights = sum(weight.numel() for weight in torch.nn.GRU(size, size, bias=False).parameters())
    assert positions.flops(cells, 16, size) == 2 * 16 * weights


def test_the_jacobian_is_autograds_and_answer_and_noise_are_shares_of_a_row():
    drawn = torch.randn(3, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows = [torch.autograd.functional.jacobian(lambda row: row.softmax(-1), row) for row in drawn]
    expected = float(torch.stack([row.norm() for row in rows]).mean())
    assert scores.jacobian_norm(drawn.softmax(-1)) == pytest.approx(expected)
    weights = torch.zeros(1, 2 * scores.PAIRS + 3)
    weights[0, 3], weights[0, 2] = 0.5, 0.1  # the answer, and the key of its pair
    weights[0, 6], weights[0, 9] = -0.2, 0.1  # other pairs
    weights[0, -1] = 0.1
    shares = scores.answer_and_noise(weights, torch.tensor([3]))
    assert shares == pytest.approx((0.5, 0.3))


def test_both_models_have_as_many_weights():
    """Differential attention has four more vectors a layer, which make λ."""
    plain, differential = (
        sum(weight.numel() for weight in build_model(scores.model_of(name), LINE).parameters())
        for name in (scores.SOFTMAX, scores.DIFFERENTIAL)
    )
    assert differential - plain == 2 * 4 * 32


@pytest.mark.parametrize("condition", [scores.LARGEST, scores.INDEXER, scores.LATEST])
def test_each_query_keeps_as_many_keys_as_said(condition):
    lightning = Choice.of("lightning", keys=scores.WINDOW)
    model = decoder(16, 2, 2, norm="pre", position="rope", mask=lightning)
    before = model(SOURCE, SOURCE > 0).logits
    for count in (1, 5, scores.WINDOW):
        output = scores.keep(model, condition, count)(SOURCE, SOURCE > 0, record=True)
        for steps in output.maps["causal"]:
            seen = (steps.weights > 0).sum(-1)
            assert torch.equal(seen, torch.arange(1, 13).clamp(max=count).expand_as(seen))
        assert count < scores.WINDOW or torch.allclose(output.logits, before, atol=1e-5)
    layers = [layer for layer in model.modules() if isinstance(layer, Attention)]
    assert layers and all(layer.indexer.keys == scores.WINDOW for layer in layers)
    (latest, _) = scores.keep(model, scores.LATEST, 2)(SOURCE, SOURCE > 0, record=True).maps[
        "causal"
    ]
    assert torch.equal(latest.weights[0, 0] > 0, torch.ones(12, 12).tril().triu(-1).bool())


# What each experiment trains and measures, without its training: as it was when its result was shipped.


SAVED = Path(__file__).with_name("experiments")  # `make snapshots` writes them again
FEW = {  # smaller than in the claims: how many are measured is not what is shown here
    (cost, "LENGTHS"): cost.LENGTHS[:2],
    (heads, "WINDOWS"): 6,
    (heads, "ITEMS"): 12,
    (meaning, "ITEMS"): 12,
    (meaning, "WORDS"): 6,
    (meaning, "TRIALS"): 3,
    (meaning, "SEARCH"): 4,
    (positions, "PATH_LENGTHS"): positions.PATH_LENGTHS[:4],
    (positions, "bits_by_length"): partial(positions.bits_by_length, windows=2),
    (scores, "ITEMS"): 12,
    (scores, "WINDOWS"): 6,
    (training, "WINDOWS"): 6,
    (training, "SOURCES"): 2,
    (why, "LENGTHS"): why.LENGTHS[:2],
}


@pytest.fixture
def trains(monkeypatch) -> dict[str, float]:
    """What a measure would train: the checksum of each config, or the steps, the rate and the first loss."""
    found: dict[str, float] = {}
    for (module, name), value in FEW.items():
        monkeypatch.setattr(module, name, value)
    last = Record(8, loss=2.0, token_accuracy=0.5, sequence_accuracy=0.25, bleu=50.0, final=True)
    seen = replace(last, expected=((0.25, 0.5),), buckets=(Bucket("1–10", 9, 0.25, 50.0),))

    def noted(config: RunConfig) -> tuple[Record, ...]:
        text = json.dumps(config.to_json(), sort_keys=True)
        found[f"{len(found)} {zlib.crc32(text.encode()):08x}"] = config.steps
        return Record(0), seen

    def whole(session: Session, stop: object = None) -> Trained:
        return Trained(session.model.eval(), session.task, noted(session.config))

    def fit(model, loss, steps, rate, stop) -> None:
        found[f"{len(found)} {steps} steps at {rate}"] = loss().item()

    monkeypatch.setattr(heads, "train", lambda config, *_: noted(config))
    for module in (experiment, training):
        monkeypatch.setattr(module, "train_whole", whole)
    for module in (meaning, positions, training):
        monkeypatch.setattr(module, "fit", fit)
    return found


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.key)
def test_an_experiment_is_what_it_was(claim, trains):
    lowest = {param.key: param.low for param in claim.settings if param.low is not None}
    settings, now = claim.settle(lowest), {}
    for condition in claim.conditions(settings):
        trains.clear()
        meaning.trained_reader.cache_clear()
        for name, value, x in claim.measure(condition, 1, settings, lambda: False):
            taken = "econds" in name  # another at each time
            trains[name if x is None else f"{name} at {x:g}"] = 0.0 if taken else float(value)
        now[condition] = {name: float(f"{value:.5g}") for name, value in trains.items()}
    saved = snapshot(SAVED / f"{claim.key}.json", now)
    assert now.keys() == saved.keys()
    for condition, numbers in now.items():
        assert numbers == pytest.approx(saved[condition], rel=2e-3, abs=1e-5), condition
