"""Scores, their chance and the roles that come of them, on heads made by hand and on random ones."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from core.interpret.roles import MIN_SHARE, ROLES, Text, clearest_example, random_rows, score_roles
from core.interpret.trace import Kind
from tests.cases import each
from tests.roles.readings import line, random_weights, reading, softmax

LINES = (
    "[CLS] the old fox saw a heron , and the old fox saw a heron , so it ran far . [SEP]",
    "[CLS] dog sun tree ship hand king dog sun tree ship hand king [SEP]",
    "[CLS] when it rained , the cat and the orchestra went into the house . [SEP]",
)
CAUSAL = (
    "<s> the old fox saw a heron , and the old fox saw a heron , so it ran far .",
    "<s> dog sun tree ship hand king dog sun tree ship hand king",
)


def at(key: str) -> int:
    return [role.key for role in ROLES].index(key)


def made_head(text: str, place: int, seen: np.ndarray, keen: float = 0.8) -> np.ndarray:
    """A head that puts `keen` of each row evenly on its role's keys, and the rest at random on all it may see."""
    made = Text(line(text))
    targets = ROLES[place].targets
    scores = np.random.default_rng(place).normal(0, 0.6 if targets is None else 1.0, seen.shape)
    rest = np.exp(scores) * seen
    rest /= rest.sum(-1, keepdims=True)
    if targets is None:
        return rest
    on = targets(made) & seen
    some = on.any(-1, keepdims=True)
    return np.where(
        some, keen * on / np.maximum(on.sum(-1, keepdims=True), 1) + (1 - keen) * rest, rest
    )


def readings(lines, kind, places):
    out = []
    for text in lines:
        size = len(text.split())
        seen = np.tri(size, dtype=bool) if kind == "causal" else np.ones((size, size), dtype=bool)
        out.append(
            reading(text, np.stack([made_head(text, place, seen) for place in places])[None], kind)
        )
    return out


@each(("kind", "lines"), [("self", LINES), ("causal", CAUSAL)])
def test_a_head_made_for_a_role_has_that_role(kind, lines):
    places = [place for place, role in enumerate(ROLES) if (kind, role.key) != ("causal", "next")]
    head_roles = score_roles(readings(lines, kind, places), kind).head_roles
    assert {head: ROLES[role].key for (_, head), role in head_roles.items()} == {
        head: ROLES[place].key for head, place in enumerate(places)
    }


def test_a_causal_model_cannot_look_ahead():
    scores = score_roles(readings(CAUSAL, "causal", [0]), "causal")
    assert np.isnan(scores.score[at("next")]).all() and scores.rows[at("next")] == 0
    assert scores.best(at("next")) is None


def test_a_head_that_rests_and_acts_is_known_by_what_it_does():
    """Half of its weight on the first token, a third on the token before: it is a previous-token head."""
    out = []
    for text in LINES:
        size = len(text.split())
        weights = np.full((size, size), 0.2 / size) + 0.3 * np.eye(size, k=-1)
        weights[:, 0] += 1 - weights.sum(-1)
        out.append(reading(text, weights[None, None]))
    scores = score_roles(out)
    assert scores.counts[[at("previous"), at("first")]].all()
    assert scores.head_roles == {(0, 0): at("previous")}


def test_the_score_by_hand():
    """Rows 2 and 3 have a plain token before them; they give it 0.5 and 0.1."""
    weights = np.array([[1, 0, 0, 0], [0.4, 0.6, 0, 0], [0.2, 0.5, 0.3, 0], [0.3, 0.3, 0.1, 0.3]])
    scores = score_roles([reading("<s> b c d", weights[None, None], "causal")], "causal")
    assert scores.score[at("previous"), 0, 0] == pytest.approx(0.3)
    assert scores.chance[at("previous"), 0, 0] == pytest.approx(
        (1 / 3 + 1 / 4) / 2
    )  # one of three keys, one of four


def shuffles(weights, causal, count=3000):
    """Weights (1, count, T, T): each head is one shuffle of the keys, for all rows alike as far as they see them."""
    size = weights.shape[-1]
    order = np.random.default_rng(3).permuted(np.tile(np.arange(size), (count, 1)), axis=-1)
    heads = np.repeat(weights, count, 1)
    for row in range(size):
        seen = row + 1 if causal else size
        ranks = order[:, :seen].argsort(-1)
        heads[0, :, row, :seen] = np.take_along_axis(heads[0, :, row, :seen], ranks, axis=-1)
    return heads


@each(
    ("kind", "stripes", "within"),
    [
        ("self", 0.0, 0.06),
        ("self", 1.0, 0.06),
        ("self", 5.0, 0.06),
        ("causal", 0.0, 0.2),
        ("causal", 1.0, 0.35),
    ],
)
def test_chance_in_closed_form_is_what_shuffling_gives(kind, stripes, within):
    """Exactly without a mask; with a causal one the mean is exact, and the spread near."""
    lines, causal = (LINES, False) if kind == "self" else (CAUSAL, True)
    made, shuffled = [], []
    for seed, text in enumerate(lines):
        size = len(text.split())
        scores = np.random.default_rng(seed).normal(0, 1.5, (1, 1, size, size))
        scores += stripes * np.random.default_rng(seed + 7).normal(0, 1, (1, 1, 1, size))
        weights = softmax(np.where(np.tri(size, dtype=bool), scores, -np.inf) if causal else scores)
        made.append(reading(text, weights, kind))
        shuffled.append(reading(text, shuffles(weights, causal), kind))
    result, drawn = score_roles(made, kind), score_roles(shuffled, kind).score[:, 0]
    places = [place for place, role in enumerate(ROLES) if role.targets and result.rows[place]]
    assert len(places) >= 7
    spread = result.std[places, 0, 0]
    assert (
        np.abs(result.chance[places, 0, 0] - drawn[places].mean(-1))
        < 4 * drawn[places].std(-1) / 3000**0.5
    ).all()
    np.testing.assert_allclose(spread, drawn[places].std(-1), rtol=within)


def test_a_stripe_proves_less_than_a_pattern():
    """To look one back in every row cannot be by chance; to look at one token all the time may well hit the rarest."""
    text = LINES[2]
    size, rare = len(text.split()), text.split().index("rained")
    back = 0.2 / size + 0.8 * np.eye(size)[np.maximum(np.arange(size) - 1, 0)]
    stripe = 0.2 / size + 0.8 * np.eye(size)[[rare] * size]
    scores = score_roles([reading(text, np.stack([back, stripe])[None])])
    assert scores.score[at("rare"), 0, 1] == pytest.approx(scores.score[at("previous"), 0, 0])
    assert scores.std[at("rare"), 0, 1] > 3 * scores.std[at("previous"), 0, 0]


def test_a_row_of_random_scores_uses_what_theory_says():
    """For many keys e^entropy / n of N(0, 1) scores goes to e^(−1/2)."""
    assert random_rows(2000)[0] == pytest.approx(np.exp(-0.5), rel=0.01)


@each("kind", ["self", "causal"])
@each("spread", [1.0, 1.5, 3.0])
def test_random_attention_is_none_of_these(kind, spread):
    lines = LINES if kind == "self" else CAUSAL
    made = [
        reading(text, random_weights(len(text.split()), 24, seed, spread, kind == "causal"), kind)
        for seed, text in enumerate(lines)
    ]
    assert score_roles(made, kind).head_roles == {}


def test_even_attention_is_none_of_these():
    sizes = [(text, len(text.split())) for text in LINES]
    made = [reading(text, np.full((1, 2, size, size), 1 / size)) for text, size in sizes]
    assert score_roles(made).head_roles == {}


@given(st.integers(2, 12), st.integers(0, 2**31), st.floats(0.1, 20), st.booleans())
def test_bounds_hold_for_any_weights(size, seed, spread, causal):
    kind: Kind = "causal" if causal else "self"
    words = np.random.default_rng(seed).choice(["the", "fox", ".", "heron", "##s", "[SEP]"], size)
    text = " ".join(["[CLS]", *words])
    made = score_roles(
        [reading(text, random_weights(size + 1, 3, seed, spread, causal), kind)], kind
    )
    for figure in (made.score, made.chance):
        known = figure[~np.isnan(figure)]
        assert (known >= -1e-6).all() and (known <= 1 + 1e-6).all()
    assert (np.isnan(made.score) == np.isnan(made.std)).all()
    assert not (made.counts & np.isnan(made.score)).any()
    assert all(
        made.share[place, layer, head] >= MIN_SHARE
        for (layer, head), place in made.head_roles.items()
    )


def test_cross_attention_has_no_roles():
    with pytest.raises(ValueError, match="before and after"):
        score_roles([reading("a b", random_weights(2, 1, 0))], "cross")


def test_a_kind_that_is_not_there_is_said():
    with pytest.raises(ValueError, match="no map of kind 'causal'"):
        score_roles([reading("a b", random_weights(2, 1, 0))], "causal")


def test_the_clearest_row_is_the_one_with_most_weight_where_the_role_wants_it():
    """In the second line "dog" looks at the "sun" that followed it before; nowhere else is as much on it."""
    text = CAUSAL[1]
    size, tokens = len(text.split()), text.split()
    weights = random_weights(size, 2, 0, 0.2, causal=True)
    weights[0, 1, 7] = 0.01
    weights[0, 1, 7, 2] = 0.93
    made = [
        reading(
            CAUSAL[0], random_weights(len(CAUSAL[0].split()), 2, 1, 0.2, causal=True), "causal"
        ),
        reading(text, weights, "causal"),
    ]
    example = clearest_example(made, "causal", ROLES[at("induction")], 0, 1)
    assert (tokens[example.query], tokens[example.key], example.reading, example.expected) == (
        "dog",
        "sun",
        1,
        1,
    )
    assert (example.value, example.uniform) == (pytest.approx(0.93), pytest.approx(1 / 8))
    assert clearest_example(made, "causal", ROLES[at("next")], 0, 1) is None


def test_the_clearest_row_of_a_broad_head_uses_most_of_its_keys():
    made = [reading("a b c d e f", np.stack([np.eye(6), np.eye(6)])[None] * 0.5 + 0.5 / 6)]
    made[0].trace.maps[0].weights[1, 4] = 1 / 6
    example = clearest_example(made, "self", ROLES[at("broad")], 0, 1)
    assert (example.query, example.value) == (4, pytest.approx(1.0))
