"""Roles: the target keys of each by hand, scores and their chance on heads made by hand and random, and real models."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from core.interpret.circuits import HeadMatrices, HeadWeights, Vocabularies, head_weights
from core.interpret.head_tests import (
    TESTS,
    item_logits,
    ordinary_tokens,
    score_repeats,
    score_successors,
    token_orders,
)
from core.interpret.roles import (
    MIN_SHARE,
    ROLES,
    SENTENCES,
    RoleInputs,
    RoleScores,
    Text,
    clearest_example,
    own_lines,
    random_rows,
    rank,
    read_all,
    role_inputs,
    score_roles,
    unknown_share,
)
from core.interpret.trace import Kind, induction
from core.pretrained import PretrainedError, load_lab_model, load_minilm, read
from core.pretrained.load import prepare_model
from core.pretrained.reading import read_ids
from tests.cases import each
from tests.interpret.readings import line, random_weights, reading, softmax
from tests.tiny_models import given as inputs_for, plain, tiny

LINE = "[CLS] the cat saw the heron . the cat [SEP]"
#       0     1   2   3   4   5     6 7   8   9
BY_KEY = {role.key: role for role in ROLES}


def target_keys(key: str, text: str = LINE) -> dict[int, list[int]]:
    """For each ordinary row the keys of a role, where there are any."""
    made = Text(line(text))
    targets = BY_KEY[key].targets(made)
    rows = np.flatnonzero(targets.any(-1) & made.ordinary)
    return {int(i): np.flatnonzero(targets[i]).tolist() for i in rows}


UNKNOWN = "<s> the <unk> saw the <unk> saw"


@each(
    ("key", "text", "expected"),
    [
        # Neighbours leave out the first token and the special ones.
        ("previous", LINE, {i: [i - 1] for i in range(2, 9)}),
        ("next", LINE, {i: [i + 1] for i in range(1, 8)}),
        ("self", LINE, {i: [i] for i in range(1, 9)}),
        # The first token is no neighbour, without a special token before the others, too.
        ("first", LINE, {i: [0] for i in range(2, 9)}),
        ("previous", "a b c", {2: [1]}),
        # Delimiters are signs and end marks, for all others.
        ("delimiter", LINE, {i: [6, 9] for i in range(1, 9) if i != 6}),
        ("delimiter", "[CLS] a [UNK] b", {}),
        # The same word elsewhere, but not beside it.
        ("same", LINE, {1: [4, 7], 2: [8], 4: [1, 7], 7: [1, 4], 8: [2]}),
        ("same", "the the cat the", {0: [3], 3: [0, 1], 1: [3]}),
        ("same", ". a . b .", {}),
        ("same", "[CLS] Her ##on saw heron . [SEP]", {1: [4], 2: [4], 4: [1, 2]}),
        # The rarest word, and none where two are as rare.
        ("rare", LINE, {i: [5] for i in range(1, 9) if i != 5}),
        ("rare", "qzxa saw qzxb", {}),
        ("rare", "1,2 3,4 5,6", {}),
        # What followed before, where the text goes on alike: 7 "the" stood at 1 and 4; after it comes "cat", as after 1
        # but not as after 4. 8 ends the line: [SEP] is no "saw".
        ("induction", LINE, {1: [8], 7: [2]}),
        ("induction", "a b c a b", {0: [4], 3: [1], 4: [2]}),  # nothing follows the last token
        ("induction", "a a b", {}),
        # Two words that the model does not know look alike, yet nobody knows whether they are the same.
        ("same", UNKNOWN, {1: [4], 3: [6], 4: [1], 6: [3]}),
        ("rare", "<s> the <unk> and", {1: [3]}),
        ("induction", UNKNOWN, {6: [4]}),  # nothing follows the last
    ],
)
def test_target_keys_by_hand(key, text, expected):
    assert target_keys(key, text) == expected


def test_words_are_whole_words_in_small_letters_and_known_ones():
    heron = ("", "heron", "heron", "saw", "heron", "", "")
    assert Text(line("[CLS] Her ##on saw heron . [SEP]")).words == heron
    assert not Text(line(UNKNOWN)).ordinary[[2, 5]].any()
    assert rank("the") < rank("cat") < rank("heron") < rank("qzx")


@each("text", ["a", "[CLS] [SEP]", "[CLS] a [SEP]", ". . .", "🙂 🙂"])
@each("role", [role for role in ROLES if role.targets])
def test_short_and_odd_lines_break_nothing(role, text):
    made = Text(line(text))
    assert role.targets(made).shape == (len(made), len(made))


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
    targets = ROLES[place].targets
    scores = np.random.default_rng(place).normal(0, 0.6 if targets is None else 1.0, seen.shape)
    rest = softmax(np.where(seen, scores, -np.inf))
    on = np.zeros_like(seen) if targets is None else targets(Text(line(text))) & seen
    share = keen * on.any(-1, keepdims=True)
    return share * on / np.maximum(on.sum(-1, keepdims=True), 1) + (1 - share) * rest


def readings(lines, kind, places):
    sizes = [len(text.split()) for text in lines]
    seen = [np.tri(n, dtype=bool) if kind == "causal" else np.ones((n, n), bool) for n in sizes]
    return [
        reading(text, np.stack([made_head(text, place, one) for place in places])[None], kind)
        for text, one in zip(lines, seen, strict=True)
    ]


@each(("kind", "lines"), [("self", LINES), ("causal", CAUSAL)])
def test_a_head_made_for_a_role_has_that_role(kind, lines):
    """A causal model cannot look ahead."""
    places = [place for place, role in enumerate(ROLES) if (kind, role.key) != ("causal", "next")]
    scores = score_roles(readings(lines, kind, places), kind)
    assert {head: ROLES[role].key for (_, head), role in scores.head_roles.items()} == {
        head: ROLES[place].key for head, place in enumerate(places)
    }
    ahead = (scores.rows[at("next")] == 0, scores.best(at("next")) is None)
    assert ahead == (kind == "causal",) * 2


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
    figures = scores.score[at("previous"), 0, 0], scores.chance[at("previous"), 0, 0]
    assert figures == pytest.approx((0.3, (1 / 3 + 1 / 4) / 2))  # one of three keys, one of four


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
    mean, spread = drawn[places].mean(-1), drawn[places].std(-1)
    assert len(places) >= 7
    assert (np.abs(result.chance[places, 0, 0] - mean) < 4 * spread / 3000**0.5).all()
    np.testing.assert_allclose(result.std[places, 0, 0], spread, rtol=within)


def test_a_stripe_proves_less_than_a_pattern():
    """To look one back in every row cannot be by chance; to look at one token all the time may well hit the rarest."""
    text = LINES[2]
    size, rare = len(text.split()), text.split().index("rained")
    back = 0.2 / size + 0.8 * np.eye(size)[np.maximum(np.arange(size) - 1, 0)]
    stripe = 0.2 / size + 0.8 * np.eye(size)[[rare] * size]
    scores = score_roles([reading(text, np.stack([back, stripe])[None])])
    assert scores.score[at("rare"), 0, 1] == pytest.approx(scores.score[at("previous"), 0, 0])
    assert scores.std[at("rare"), 0, 1] > 3 * scores.std[at("previous"), 0, 0]


@each("kind", ["self", "causal"])
@each("spread", [0.0, 1.0, 1.5, 3.0])
def test_random_attention_is_none_of_these(kind, spread):
    """Nor is even attention, whose scores are all the same."""
    made = [
        reading(text, random_weights(len(text.split()), 24, seed, spread, kind == "causal"), kind)
        for seed, text in enumerate(LINES if kind == "self" else CAUSAL)
    ]
    assert score_roles(made, kind).head_roles == {}
    # For many keys e^entropy / n of N(0, 1) scores goes to e^(−1/2)
    assert random_rows(2000)[0] == pytest.approx(np.exp(-0.5), rel=0.01)


@given(st.integers(2, 12), st.integers(0, 2**31), st.floats(0.1, 20), st.booleans())
def test_bounds_hold_for_any_weights(size, seed, spread, causal):
    kind: Kind = "causal" if causal else "self"
    words = np.random.default_rng(seed).choice(["the", "fox", ".", "heron", "##s", "[SEP]"], size)
    weights = random_weights(size + 1, 3, seed, spread, causal)
    made = score_roles([reading(" ".join(["[CLS]", *words]), weights, kind)], kind)
    for figure in (made.score, made.chance):
        known = figure[~np.isnan(figure)]
        assert (known >= -1e-6).all() and (known <= 1 + 1e-6).all()
    assert (np.isnan(made.score) == np.isnan(made.std)).all()
    assert not (made.counts & np.isnan(made.score)).any()
    assert all(made.share[place, *head] >= MIN_SHARE for head, place in made.head_roles.items())


@each(("kind", "why"), [("cross", "before and after"), ("causal", "no map of kind 'causal'")])
def test_a_kind_without_roles_or_maps_is_said(kind, why):
    with pytest.raises(ValueError, match=why):
        score_roles([reading("a b", random_weights(2, 1, 0))], kind)


def test_the_clearest_row_is_the_one_with_most_weight_where_the_role_wants_it():
    """In the second line "dog" looks at the "sun" that followed it before; nowhere else is as much on it.

    The clearest row of a broad head uses most of its keys.
    """
    first, second = (
        random_weights(len(text.split()), 2, seed, 0.2, causal=True)
        for text, seed in zip(CAUSAL, (1, 0), strict=True)
    )
    second[0, 1, 7], second[0, 1, 7, 2] = 0.01, 0.93
    made = [reading(CAUSAL[0], first, "causal"), reading(CAUSAL[1], second, "causal")]
    example = clearest_example(made, "causal", BY_KEY["induction"], 0, 1)
    tokens = CAUSAL[1].split()
    assert (tokens[example.query], tokens[example.key]) == ("dog", "sun")
    assert (example.reading, example.expected) == (1, 1)
    assert (example.value, example.uniform) == (pytest.approx(0.93), pytest.approx(1 / 8))
    assert clearest_example(made, "causal", BY_KEY["next"], 0, 1) is None
    made = [reading("a b c d e f", np.stack([np.eye(6), np.eye(6)])[None] * 0.5 + 0.5 / 6)]
    made[0].trace.maps[0].weights[1, 4] = 1 / 6
    example = clearest_example(made, "self", BY_KEY["broad"], 0, 1)
    assert (example.query, example.value) == (4, pytest.approx(1.0))


@pytest.fixture(scope="module")
def minilm():
    return load_minilm()


@pytest.fixture(scope="module")
def on_sentences(minilm) -> RoleScores:
    return score_roles(read_all(minilm, role_inputs(minilm)))


def names(scores: RoleScores) -> dict[tuple[int, int], str]:
    return {head: ROLES[place].key for head, place in scores.head_roles.items()}


def test_minilm_comes_out_with_its_previous_token_heads(on_sentences):
    roles, previous = names(on_sentences), at("previous")
    assert {roles[head] for head in ((0, 2), (2, 11))} == {"previous"}
    assert (roles[1, 8], roles[2, 9], roles[3, 11]) == ("next", "same", "delimiter")
    assert on_sentences.score[previous, 0, 2] > 0.98 > 0.06 > on_sentences.chance[previous, 0, 2]
    # It reads both ways and was never asked for a next word
    assert "induction" not in roles.values()
    assert len(set(SENTENCES)) == len(SENTENCES) == 30
    assert (on_sentences.rows >= 100).all()  # every role has been looked for in many places


def test_the_lab_s_language_model_comes_out_with_induction_heads():
    pretrained = load_lab_model("induction")
    inputs = role_inputs(pretrained)
    assert inputs.what == "example sentences" and len(inputs.givens) >= 15
    scores = score_roles(read_all(pretrained, inputs), "causal")
    previous, induction = (
        min(layer for (layer, _), name in names(scores).items() if name == role)
        for role in ("previous", "induction")
    )
    assert previous < induction  # which is built on a layer that looks one back
    best = at("induction"), *scores.best(at("induction"))
    assert scores.score[best] > 0.5 > 5 * scores.chance[best]


def test_before_training_no_head_has_a_role(minilm):
    """The same class, config and tokenizer with random weights: every score is near its chance, every row near even."""
    torch.manual_seed(5)
    untrained = prepare_model(
        type(minilm.model)(minilm.model.config), minilm.tokenizer, "untrained"
    )
    scores = score_roles(read_all(untrained, role_inputs(untrained)))
    assert scores.head_roles == {}
    assert np.nanmax(scores.share[:-1]) < 0.05


def test_each_model_is_measured_on_what_it_can_read(minilm):
    """The sentences of a person go first, unless no word is known."""
    numbers, digits = (role_inputs(load_lab_model(name)) for name in ("numbers", "digits"))
    assert (numbers.what, len(numbers.givens)) == ("example lines of numbers", 16)
    assert digits.what == "handwritten digits" and digits.givens[0].picture is not None
    assert role_inputs(tiny("whisper")).givens == ()
    own = role_inputs(minilm, ("Two words.", "And three more."))
    assert own.what == "sentences of your own"
    assert [one.text for one in own.givens] == ["Two words.", "And three more."]
    assert role_inputs(load_lab_model("numbers"), ("Qwertz uiop.",)).what == numbers.what


def test_an_encoder_is_read_without_its_decoder_s_text_and_sees_the_same():
    pretrained = tiny("bart")
    counts = [len(role_inputs(pretrained, kind=kind).givens) for kind in ("self", "causal")]
    assert counts == [30, 10]
    few = RoleInputs(role_inputs(pretrained).givens[:2], "example sentences")
    given_a_text, writing_its_own = (read_all(pretrained, few, kind) for kind in ("self", "causal"))
    assert len(writing_its_own[0].target) != len(given_a_text[0].target)
    for one, other in zip(given_a_text, writing_its_own, strict=True):
        mine, theirs = (
            [item.weights for item in each.trace.of("self").maps] for each in (one, other)
        )
        np.testing.assert_array_equal(mine, theirs)


def test_lines_of_a_model_s_own_words_are_known_to_it_and_come_again():
    pretrained = tiny("bert")
    lines = own_lines(pretrained.tokenizer)
    assert lines == own_lines(pretrained.tokenizer) and len(set(lines)) == len(lines)
    assert all(unknown_share(pretrained, text) == 0 for text in lines)
    words = lines[1].split()
    assert words[: len(words) // 2] == words[len(words) // 2 :]


def test_patches_of_a_picture_have_neighbours_but_no_words():
    scores = score_roles([read(tiny("vit"), inputs_for("vit"))])
    measured = {role.key for role, rows in zip(ROLES, scores.rows, strict=True) if rows}
    assert measured == {"previous", "next", "first", "self", "broad"}


@each("family", ["bert", "gpt2", "llama", "t5", "bart", "gpt_oss", "bloom", "deberta_v2"])
def test_every_family_can_be_measured(family):
    pretrained = tiny(family)
    readings = [read(pretrained, one) for one in role_inputs(pretrained).givens[:2]]
    for kind in readings[0].trace.kinds:
        if kind != "cross":
            scores = score_roles(readings, kind)
            assert scores.rows[at("self")] > 0 and np.isfinite(scores.score[at("self")]).all()


# The standard tests of heads: random tokens that repeat, by hand and of known heads, and successors.


def by_name(scores, test: int) -> dict[str, float]:
    return {scores.name(head): float(scores.score[test][head]) for head in scores.ranked(test)}


def test_the_cells_of_a_b_c_a_b_c():
    assert [
        (test.key, list(zip(*map(np.ndarray.tolist, test.cells(3)), strict=True))) for test in TESTS
    ] == [
        ("induction", [(3, 1), (4, 2), (5, 3)]),
        ("duplicate", [(3, 0), (4, 1), (5, 2)]),
        ("previous", [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)]),
    ]


def test_the_induction_model_passes_and_its_first_layer_attends_to_the_token_before():
    """In a causal model it is the induction score of a text that repeats."""
    scores = score_repeats(load_lab_model("induction"), "causal")
    best, highest = by_name(scores, 0), [next(iter(by_name(scores, test))) for test in (0, 2)]
    assert highest == ["L1·H2", "L0·H3"] and best["L1·H2"] == pytest.approx(0.966, abs=2e-3)
    assert max(by_name(scores, 1).values()) < scores.uniform[1]
    # Uniform causal attention behind one special token: the mean of 1/27 … 1/51.
    assert scores.uniform[0] == pytest.approx(np.mean([1 / keys for keys in range(27, 52)]))
    ids, item = scores.example.lines("causal")[0].ids, scores.example.trace.of("causal").maps[1]
    assert ids[1:26] == ids[26:]
    # What follows each token of the repetition; nothing follows the last one
    expected = induction(item, ids, [-1] * 26 + [*ids[27:], -1]).heads
    queries, keys = TESTS[0].cells(scores.length)
    mine = item.weights[:, queries[:-1] + 1, keys[:-1] + 1].mean(-1)
    assert mine == pytest.approx(expected, abs=1e-6)


def test_minilm_has_a_duplicate_token_head_and_no_induction_head():
    scores = score_repeats(load_minilm())
    assert next(iter(by_name(scores, 1).items())) == ("L2·H9", pytest.approx(0.615, abs=5e-3))
    assert max(by_name(scores, 0).values()) < 0.03 and scores.uniform[0] == pytest.approx(1 / 52)
    assert by_name(scores, 2)["L0·H2"] > 0.99


@each("family, kind", [("llama", "causal"), ("bert", "self"), ("t5", "self"), ("t5", "causal")])
def test_ids_are_read_between_the_tokenizer_s_special_tokens(family, kind):
    pretrained = tiny(family)
    ids = ordinary_tokens(pretrained.tokenizer)[:6]
    reading = read_ids(pretrained, ids * 2)
    line = reading.lines(kind)[0]
    start = line.special.index(False)
    assert line.ids[start : start + 12] == (*ids, *ids)
    assert score_repeats(pretrained, kind).score.shape[0] == len(TESTS)
    if family == "bert":
        first, *_, last = pretrained.tokenizer("a").input_ids
        framed = torch.tensor([[first, *ids, *ids, last]])
        with torch.no_grad():
            expected = plain(family)(input_ids=framed, output_attentions=True).attentions[1][0]
        assert np.allclose(reading.trace.maps[1].weights, expected, atol=1e-5)


def test_too_long_a_line_and_models_without_such_tokens_are_refused():
    induction, digits = load_lab_model("induction"), load_lab_model("digits")
    for run, words in (
        (lambda: read_ids(tiny("bert"), [7] * 100), "reads at most 70 tokens; these are 102"),
        (lambda: score_repeats(digits), "no tokens to repeat"),
        (lambda: score_successors(digits), "no ordered tokens"),
        (
            lambda: score_successors(induction, kind="causal"),
            "vocabulary of induction has 4 numbers, days, months or letters",
        ),
    ):
        with pytest.raises(PretrainedError, match=words):
            run()


def test_the_items_are_single_tokens_of_the_vocabulary(minilm):
    orders = {order.name: order for order in token_orders(minilm)}
    assert set(orders) == {"numbers", "number words", "ordinals", "days", "months", "letters"}
    days = orders["days"]
    assert minilm.tokenizer.convert_ids_to_tokens(list(days.ids))[:2] == ["monday", "tuesday"]
    assert days.pairs == [(index, index + 1) for index in range(6)]
    [numbers] = token_orders(load_lab_model("numbers"))
    assert (numbers.name, numbers.items[:3]) == ("number words", ("one", "two", "three"))


def planted(minilm, order_ids: list[tuple[int, ...]]) -> HeadWeights:
    """Three heads over one-hot embeddings of the items: one adds to the successor, one to the item, one at random."""
    ids = [token for order in order_ids for token in order]
    size = len(ids)
    embedding, following = torch.zeros(len(minilm.tokenizer), size), torch.zeros(size, size)
    embedding[ids] = torch.eye(size)
    for order in order_ids:
        for one, other in zip(order, order[1:], strict=False):
            following[ids.index(one), ids.index(other)] = 1
    random = torch.randn(size, size, generator=torch.Generator().manual_seed(3))
    w_v, w_o = torch.eye(size).expand(3, -1, -1), torch.stack([random, following, torch.eye(size)])
    heads = HeadMatrices("self", 0, None, None, w_v, w_o, 3, number=4)
    tables = Vocabularies({"self": embedding}, {"self": embedding.T}, frozenset({"self"}))
    return HeadWeights((heads,), tables)


def test_a_planted_successor_head_is_found_and_a_copying_head_is_not(minilm):
    weights = planted(minilm, [order.ids for order in token_orders(minilm)])
    scores = score_successors(minilm, weights=weights)
    assert scores.name(scores.ranked()[0]) == "L4·H1"
    assert scores.score[0, 1:].tolist() == [1, 0] and scores.score[0, 0] < 0.2
    assert scores.by_embedding and scores.count == 19 + 19 + 9 + 6 + 11 + 25
    chance = (19 / 20 + 19 / 20 + 9 / 10 + 6 / 7 + 11 / 12 + 25 / 26) / scores.count
    assert scores.chance == pytest.approx(chance)


def test_the_logits_are_those_of_the_whole_vocabulary_at_the_items(minilm):
    """And MiniLM has no successor head."""
    weights = head_weights(minilm)
    heads, vocabularies = weights.heads, weights.vocabularies
    [days] = [order for order in token_orders(minilm) if order.name == "days"]
    logits = item_logits(heads[3], vocabularies, days)[8]
    for row in (0, 5):
        whole = vocabularies.written(heads[3], 8, days.ids[row])[list(days.ids)]
        assert logits[row] == pytest.approx(whole.numpy(), abs=1e-4)
    scores = score_successors(minilm, weights)
    assert scores.by_embedding and np.nanmax(scores.score) < 0.15 and scores.score.shape == (6, 12)
