"""Whether a head looks at the token that is said next: worked by hand, and on the lab's own models."""

import numpy as np
import pytest

from core.pretrained import Given, load_kept
from core.pretrained.generate import Settings, begin, follow, generate
from core.pretrained.looks import on_said, on_said_evenly, steps_that_can, telling_head, visible
from core.trace import AttentionMap, AttentionTrace

KEYS, SAID = (7, 8, 9, 8), (8, 5, 9)  # the first step can look back at 8, the second at nothing, the third at 9


def item(layer=0, fill=None, kind="causal"):
    weights = np.zeros((2, 3, 4), dtype=np.float32)
    weights[0] = [[1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    weights[1] = [[0.25, 0.75, 0, 0], [0, 0, 1, 0], [0, 0.5, 0.5, 0]] if fill is None else fill
    mask = np.tril(np.ones((3, 4), dtype=bool), 1)[None]
    return AttentionMap(kind, layer, weights, ("a", "b", "c"), ("p", "q", "r", "s"), mask if kind == "causal" else None)


def test_the_weight_on_the_token_that_is_said_is_a_mean_over_the_steps_that_can():
    assert on_said(item(), KEYS, SAID) == pytest.approx([0, (0.75 + 0.5) / 2])
    assert on_said_evenly(item(), KEYS, SAID) == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert visible(item()).tolist() == [2, 3, 4] and steps_that_can(item(), KEYS, SAID) == 2
    assert on_said(item(), KEYS, (1, 2, 3)) is None and on_said_evenly(item(), KEYS, (1, 2, 3)) == 0


def test_the_telling_head_copies_or_else_is_the_sharpest_off_the_first_place():
    blunt = item(1, [[0.5, 0.5, 0, 0], [0.4, 0.3, 0.3, 0], [0.25] * 4])
    trace = AttentionTrace((blunt, item()), "made")
    assert telling_head(trace, KEYS, SAID) == (1, 1)
    assert telling_head(trace, (1, 1, 1, 1), (2, 3, 4)) == (1, 1), "never head 0, which rests on the first place"
    crossed = AttentionTrace((item(kind="cross"),), "made")
    assert telling_head(crossed, KEYS, SAID) == (0, 0), "the first place of a source is as good as any"


def test_the_lab_s_language_model_copies_far_above_even_and_its_first_layer_does_not():
    model = load_kept("induction")
    given = Given("her red boat sank near the long blue lake . her red boat")
    begun = begin(model, given)
    tokens = generate(model, given, Settings(longest=10)).hypotheses[0].tokens
    trace = follow(model, begun, tokens).trace
    keys = (*begun.read.ids, *tokens[:-1])
    below, above = (float(on_said(one, keys, tokens).max()) for one in trace.maps)
    assert above > 0.5 > below and above > 4 * on_said_evenly(trace.map(1), keys, tokens)
