"""Whether a head looks at the token that is said next: worked by hand, and on the lab's own models."""

import numpy as np
import pytest

from core.interpret.trace import (
    AttentionMap,
    AttentionTrace,
    count_eligible_steps,
    induction_score,
    most_informative_head,
    uniform_induction_score,
)
from core.models.decoding import SearchSettings
from core.pretrained import ModelInputs, load_lab_model
from core.pretrained.generate import generate, prepare_generation, score_continuation

KEYS, TOKENS = (
    (7, 8, 9, 8),
    (8, 5, 9),
)  # the first step can look back at 8, the second at nothing, the third at 9


def item(layer=0, fill=None, kind="causal"):
    rows = [[0.25, 0.75, 0, 0], [0, 0, 1, 0], [0, 0.5, 0.5, 0]] if fill is None else fill
    weights = np.array([[[1, 0, 0, 0]] * 3, rows], dtype=np.float32)
    mask = np.tril(np.ones((3, 4), dtype=bool), 1)[None]
    return AttentionMap(
        kind,
        layer,
        weights,
        ("a", "b", "c"),
        ("p", "q", "r", "s"),
        mask if kind == "causal" else None,
    )


def test_the_weight_on_the_token_that_is_said_is_a_mean_over_the_steps_that_can():
    assert induction_score(item(), KEYS, TOKENS) == pytest.approx([0, (0.75 + 0.5) / 2])
    assert uniform_induction_score(item(), KEYS, TOKENS) == pytest.approx((1 / 2 + 1 / 4) / 2)
    assert (
        item().visible[0].sum(-1).tolist() == [2, 3, 4]
        and count_eligible_steps(item(), KEYS, TOKENS) == 2
    )
    assert (
        induction_score(item(), KEYS, (1, 2, 3)) is None
        and uniform_induction_score(item(), KEYS, (1, 2, 3)) == 0
    )


def test_the_telling_head_copies_or_else_is_the_sharpest_off_the_first_place():
    blunt = item(1, [[0.5, 0.5, 0, 0], [0.4, 0.3, 0.3, 0], [0.25] * 4])
    trace = AttentionTrace((blunt, item()), "made")
    assert most_informative_head(trace, KEYS, TOKENS) == (1, 1)
    assert most_informative_head(trace, (1, 1, 1, 1), (2, 3, 4)) == (1, 1), (
        "never head 0, which rests on the first place"
    )
    crossed = AttentionTrace((item(kind="cross"),), "made")
    assert most_informative_head(crossed, KEYS, TOKENS) == (0, 0), (
        "the first place of a source is as good as any"
    )


def test_the_lab_s_language_model_copies_far_above_even_and_its_first_layer_does_not():
    model = load_lab_model("induction")
    given = ModelInputs("her red boat sank near the long blue lake . her red boat")
    started = prepare_generation(model, given)
    tokens = generate(model, given, SearchSettings(longest=10)).hypotheses[0].tokens
    trace = score_continuation(model, started, tokens).trace
    keys = (*started.read.ids, *tokens[:-1])
    below, above = (float(induction_score(one, keys, tokens).max()) for one in trace.maps)
    assert above > 0.5 > below and above > 4 * uniform_induction_score(trace.map(1), keys, tokens)
