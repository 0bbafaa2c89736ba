"""The rules of the claims on the bottleneck, scores, regularization, adding positions and decoding."""

from core.claims.entries import positions, scores, training, why_attention
from tests.claims.made_up import World, judge


def regularized(smoothed: tuple[float, float], dropped: float, cold: float) -> World:
    of = training
    perplexities = {of.BASE: 2.0, of.SMOOTHED: smoothed[0], of.DROPPED: dropped, of.COLD: cold}
    numbers: dict = {(name, of.PERPLEXITY, None): value for name, value in perplexities.items()}
    numbers |= {(name, of.BLEU, None): 50.0 for name in perplexities} | {
        (of.SMOOTHED, of.BLEU, None): smoothed[1]
    }
    return numbers | {(name, of.ACCURACY, None): 0.5 for name in perplexities}


def test_the_rule_on_regularization():
    claim = training.REGULARIZATION
    assert judge(claim, regularized((2.4, 54.0), 1.6, 3.0), 0.002) == ("holds", ["holds"] * 4)
    assert judge(claim, regularized((1.9, 40.0), 2.5, 1.9), 0.002) == (
        "does not hold",
        ["refuted"] * 4,
    )
    assert set(judge(claim, regularized((2.05, 51.0), 1.95, 2.05), 0.4)[1]) == {"cannot be told"}


def test_the_rule_on_adding_positions():
    claim, of = positions.CONCATENATION, positions

    def world(added: float, joined: float, none: float) -> World:
        numbers = {of.ADDED: added, of.JOINED: joined, of.NONE: none}
        world: dict = {(name, of.ACCURACY, None): value for name, value in numbers.items()}
        return world | {(name, of.PARAMETERS, None): 1e4 for name in numbers}

    assert judge(claim, world(0.99, 0.98, 0.06), 0.001) == ("holds", ["holds"] * 2)
    assert judge(claim, world(0.7, 0.98, 0.9), 0.001) == ("does not hold", ["refuted"] * 2)
    assert judge(claim, world(0.9, 0.9, 0.5), 0.3) == (
        "cannot be told here",
        ["cannot be told"] * 2,
    )


def test_the_rule_on_decoding_and_the_accuracy_by_hand():
    claim, of = training.DECODING, training

    def world(forced: float, bleus: tuple[float, float, float], gained: float) -> World:
        numbers: dict = {(of.MODEL, of.FORCED, None): forced, (of.MODEL, of.FREE, None): 0.8}
        for width, value in zip((1, of.BEST, of.WIDEST), bleus, strict=True):
            numbers[of.MODEL, of.BLEU, width] = value
            numbers[of.MODEL, of.SCORE, width] = -2.0 + (gained if width == of.WIDEST else 0.0)
        return numbers

    assert judge(claim, world(0.95, (50, 55, 45), 0.5), 0.002) == ("holds", ["holds"] * 4)
    assert judge(claim, world(0.8, (55, 50, 58), -0.5), 0.002) == ("does not hold", ["refuted"] * 4)
    assert set(judge(claim, world(0.82, (50, 50, 50), 0.0), 0.5)[1]) == {"cannot be told"}
    assert of.token_accuracy([("a", "b"), ("c",)], [("a", "x", "y"), ("c",)]) == 0.5


def test_the_rule_on_the_bottleneck():
    claim, of = why_attention.BOTTLENECK, why_attention

    def world(attention: float, vector: float, others: float, seconds: float) -> World:
        ends = {of.ATTENTION: attention, of.VECTOR: vector, of.LARGE: others, of.LONGER: others}
        numbers: dict = {(name, of.EXACT, of.LONG): value for name, value in ends.items()}
        numbers |= {(of.ATTENTION, of.SECONDS, None): 10.0, (of.LONGER, of.SECONDS, None): seconds}
        return numbers | {(name, of.EXACT, of.SHORT): 0.9 for name in ends}

    assert judge(claim, world(0.85, 0.0, 0.3, 15.0), 0.001) == ("holds", ["holds"] * 6)
    assert judge(claim, world(0.3, 0.85, 0.85, 8.0), 0.001) == ("does not hold", ["refuted"] * 6)
    assert set(judge(claim, world(0.7, 0.65, 0.6, 10.0), 0.4)[1]) == {"cannot be told"}


def test_the_rule_on_scores():
    claim, of = scores.SCORES_CLAIM, scores

    def world(
        small: float, times: tuple[float, float], dot: float, scaled: float, in_time: float
    ) -> World:
        numbers: dict = {(name, of.LOSS, size): 1.0 for name in of.SCORES for size in of.SIZES}
        numbers |= {
            (of.DOT, of.LOSS, of.SIZES[0]): small,
            (of.DOT, of.LOSS, of.LARGE): dot,
            (of.SCALED, of.LOSS, of.LARGE): scaled,
        }
        numbers |= {
            (of.DOT, of.TIME, of.LARGE): times[0],
            (of.ADDITIVE, of.TIME, of.LARGE): times[1],
        }
        return numbers | {
            (of.SCALED, of.IN_TIME, None): in_time,
            (of.ADDITIVE, of.IN_TIME, None): 1.0,
        }

    assert judge(claim, world(1.0, (10, 20), 1.5, 1.0, 0.6), 0.002) == ("holds", ["holds"] * 5)
    assert judge(claim, world(2.0, (20, 10), 0.8, 2.0, 1.6), 0.002) == (
        "does not hold",
        ["refuted"] * 5,
    )
    assert set(judge(claim, world(1.0, (10, 11), 1.1, 1.2, 1.0), 0.4)[1]) == {"cannot be told"}
