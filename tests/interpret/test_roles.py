"""Roles, standard tests and syntax of heads: by hand, on random heads, and on real models."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy import stats
from scipy.special import softmax

from core.entries import ConfigError
from core.interpret import corpus
from core.interpret.circuits import HeadMatrices, HeadWeights, Vocabularies, head_weights
from core.interpret.head_tests import (
    CHOICES,
    OWN,
    RELATIONS,
    TESTS,
    ParsedReading,
    SyntaxReadings,
    SyntaxResult,
    item_logits,
    line_scores,
    ordinary_tokens,
    parse_conllu,
    parses as parses_of,
    random_lines,
    read_line,
    read_parse,
    read_parses,
    relations_in,
    score_relation,
    score_repeats,
    score_successors,
    token_orders,
    wilson_interval,
    with_relation,
    word_tokens,
    word_trace,
    word_weights,
)
from core.interpret.roles import (
    MIN_SHARE,
    ROLES,
    SENTENCES,
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
from core.interpret.trace import AttentionMap, AttentionTrace, Kind, induction
from core.pretrained import (
    Line,
    PretrainedError,
    Reading,
    load_lab_model,
    load_minilm,
    read,
    untrained,
)
from tests.cases import each
from tests.tiny_models import given as inputs_for, tiny

# Lines, maps and readings made by hand.

SPECIAL = ("[CLS]", "[SEP]", "[UNK]", "<s>", "</s>")


def line(text: str) -> Line:
    # The tokens that stand apart in the text; ## continues a word.
    tokens = tuple(text.split())
    special = tuple(token in SPECIAL for token in tokens)
    word, count = [], -1
    for token, hidden in zip(tokens, special, strict=True):
        count += not hidden and not token.startswith("##")
        word.append(None if hidden else count)
    return Line(tuple(range(len(tokens))), tokens, special, tuple(word), (0,) * len(tokens))


def reading(text: str, weights: np.ndarray, kind: Kind = "self") -> Reading:
    # A model of as many layers and heads as weights (L, H, T, T) has.
    source = line(text)
    mask = np.tri(len(source), dtype=bool)[None] if kind == "causal" else None
    maps = tuple(
        AttentionMap(kind, layer, one.astype(np.float32), source.tokens, source.tokens, mask)
        for layer, one in enumerate(weights)
    )
    return Reading(AttentionTrace(maps, "made by hand"), source)


def random_weights(
    size: int, heads: int, seed: int, spread: float = 1.0, causal: bool = False
) -> np.ndarray:
    # Weights (1, H, T, T) of random scores.
    scores = np.random.default_rng(seed).normal(0, spread, (1, heads, size, size))
    return softmax(
        np.where(np.tri(size, dtype=bool), scores, -np.inf) if causal else scores, axis=-1
    )


LINE = "[CLS] the cat saw the heron . the cat [SEP]"
#       0     1   2   3   4   5     6 7   8   9
BY_KEY = {role.key: role for role in ROLES}
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
    # For each ordinary row the keys of a role, where there are any.
    made = Text(line(text))
    targets = BY_KEY[key].targets(made)
    rows = np.flatnonzero(targets.any(-1) & made.ordinary).tolist()
    assert {i: np.flatnonzero(targets[i]).tolist() for i in rows} == expected


@each("text", ["a", "[CLS] [SEP]", "[CLS] a [SEP]", ". . .", "🙂 🙂"])
@each("role", [role for role in ROLES if role.targets])
def test_short_and_odd_lines_break_nothing(role, text):
    made = Text(line(text))
    assert role.targets(made).shape == (len(made.line), len(made.line))


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
    # A head that puts `keen` of each row evenly on its role's keys, and the rest at random on all it may see.
    targets = ROLES[place].targets
    scores = np.random.default_rng(place).normal(0, 0.6 if targets is None else 1.0, seen.shape)
    rest = softmax(np.where(seen, scores, -np.inf), axis=-1)
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
    # A causal model cannot look ahead.
    places = [place for place, role in enumerate(ROLES) if (kind, role.key) != ("causal", "next")]
    scores = score_roles(readings(lines, kind, places), kind)
    assert {head: ROLES[role].key for (_, head), role in scores.head_roles.items()} == {
        head: ROLES[place].key for head, place in enumerate(places)
    }
    ahead = (scores.rows[at("next")] == 0, scores.best(at("next")) is None)
    assert ahead == (kind == "causal",) * 2


def test_head_that_rests_and_acts_is_known_by_what_it_does():
    # Half of its weight on the first token, a third on the token before: it is a previous-token head.
    out = []
    for text in LINES:
        size = len(text.split())
        weights = np.full((size, size), 0.2 / size) + 0.3 * np.eye(size, k=-1)
        weights[:, 0] += 1 - weights.sum(-1)
        out.append(reading(text, weights[None, None]))
    scores = score_roles(out)
    assert scores.counts[[at("previous"), at("first")]].all() and scores.head_roles == {
        (0, 0): at("previous")
    }


def test_the_score_by_hand():
    # Rows 2 and 3 have a plain token before them; they give it 0.5 and 0.1.
    weights = np.array([[1, 0, 0, 0], [0.4, 0.6, 0, 0], [0.2, 0.5, 0.3, 0], [0.3, 0.3, 0.1, 0.3]])
    scores = score_roles([reading("<s> b c d", weights[None, None], "causal")], "causal")
    assert scores.rows[at("broad")] == 1  # the last, of four keys
    figures = scores.score[at("previous"), 0, 0], scores.chance[at("previous"), 0, 0]
    assert figures == pytest.approx((0.3, (1 / 3 + 1 / 4) / 2))  # one of three keys, one of four


def shuffles(weights, causal, count=3000):
    # Weights (1, count, T, T): each head is one shuffle of the keys, for all rows alike as far as they see them.
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
    # Exactly without a mask; with a causal one the mean is exact, and the spread near.
    lines, causal = (LINES, False) if kind == "self" else (CAUSAL, True)
    made, shuffled = [], []
    for seed, text in enumerate(lines):
        size = len(text.split())
        scores = np.random.default_rng(seed).normal(0, 1.5, (1, 1, size, size))
        scores += stripes * np.random.default_rng(seed + 7).normal(0, 1, (1, 1, 1, size))
        weights = softmax(
            np.where(np.tri(size, dtype=bool), scores, -np.inf) if causal else scores, axis=-1
        )
        made.append(reading(text, weights, kind))
        shuffled.append(reading(text, shuffles(weights, causal), kind))
    result, drawn = score_roles(made, kind), score_roles(shuffled, kind).score[:, 0]
    places = [place for place, role in enumerate(ROLES) if role.targets and result.rows[place]]
    mean, spread = drawn[places].mean(-1), drawn[places].std(-1)
    assert (
        len(places) >= 7
        and (np.abs(result.chance[places, 0, 0] - mean) < 4 * spread / 3000**0.5).all()
    )
    np.testing.assert_allclose(result.std[places, 0, 0], spread, rtol=within)


@each(
    ("text", "word", "ratio", "proven"),
    [(LINES[2], "rained", 3, True), ("[CLS] the heron saw the old cat [SEP]", "heron", 2, False)],
)
def test_a_stripe_proves_less_than_a_pattern(text, word, ratio, proven):
    # To look one back in every row cannot be by chance; to look at one token all the time may well hit the rarest.
    size, rare = len(text.split()), text.split().index(word)
    back = 0.2 / size + 0.8 * np.eye(size)[np.maximum(np.arange(size) - 1, 0)]
    stripe = 0.2 / size + 0.8 * np.eye(size)[[rare] * size]
    scores = score_roles([reading(text, np.stack([back, stripe])[None])])
    assert scores.score[at("rare"), 0, 1] == pytest.approx(scores.score[at("previous"), 0, 0])
    assert scores.std[at("rare"), 0, 1] > ratio * scores.std[at("previous"), 0, 0]
    assert scores.counts[at("previous"), 0, 0] and scores.counts[at("rare"), 0, 1] == proven


@each("kind", ["self", "causal"])
@each("spread", [0.0, 1.0, 1.5, 3.0])
def test_random_attention_is_none_of_these(kind, spread):
    # Nor is even attention, whose scores are all the same.
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
    assert (np.isnan(made.score) == np.isnan(made.std)).all() and not (
        made.counts & np.isnan(made.score)
    ).any()
    assert all(made.share[place, *head] >= MIN_SHARE for head, place in made.head_roles.items())


def test_the_clearest_row_is_the_one_with_most_weight():
    # In the second line "dog" looks at the "sun" that followed it before; nowhere else is as much on it.
    # The clearest row of a broad head uses most of its keys.
    first, second = (
        random_weights(len(text.split()), 2, seed, 0.2, causal=True)
        for text, seed in zip(CAUSAL, (1, 0), strict=True)
    )
    second[0, 1, 7], second[0, 1, 7, 2] = 0.01, 0.93
    made = [reading(CAUSAL[0], first, "causal"), reading(CAUSAL[1], second, "causal")]
    example = clearest_example(made, "causal", BY_KEY["induction"], 0, 1)
    tokens = CAUSAL[1].split()
    assert (tokens[example.query], tokens[example.key]) == ("dog", "sun") and (
        example.reading,
        example.expected,
    ) == (1, 1)
    assert (example.value, example.uniform) == (pytest.approx(0.93), pytest.approx(1 / 8))
    assert clearest_example(made, "causal", BY_KEY["next"], 0, 1) is None
    made = [reading("a b c d e f", np.stack([np.eye(6), np.eye(6)])[None] * 0.5 + 0.5 / 6)]
    made[0].trace.maps[0].weights[1, 4] = 1 / 6
    example = clearest_example(made, "self", BY_KEY["broad"], 0, 1)
    assert (example.query, example.value) == (4, pytest.approx(1.0))
    # Of rows that are as clear that of the longest words, of which eight letters count, and no piece
    words, back = "<s> fox elephant crocodile alligator lion ##s", np.eye(7, k=-1)
    for back[3, 2], query in ((0.951, 3), (0.949, 4)):
        made = [reading(words, back[None, None] / 2)]
        assert clearest_example(made, "self", BY_KEY["previous"], 0, 0).query == query


def test_the_marked_row_is_the_one_that_was_chosen():
    weights = random_weights(5, 2, seed=4)
    one = reading("the cat saw the dog", weights)
    previous = [weights[0, 1, row, row - 1] for row in range(2, 5)]  # the first key may be a sink
    best = corpus.marked_row(one, "self", corpus.BY_KEY["previous"], (0, 1), np.inf)
    worst = corpus.marked_row(one, "self", corpus.BY_KEY["previous"], (0, 1), -np.inf)
    middle = corpus.marked_row(one, "self", corpus.BY_KEY["previous"], (0, 1), sorted(previous)[1])
    assert [each.value for each in (best, middle, worst)] == pytest.approx(sorted(previous)[::-1])
    assert best.query == 2 + int(np.argmax(previous)) and best.expected.nonzero()[0].tolist() == [
        best.query - 1
    ]
    assert best.key == weights[0, 1, best.query].argmax()
    assert corpus.marked_row(one, "self", corpus.BY_KEY["induction"], (0, 1), np.inf) is None


@each(
    ("key", "of_row", "rows", "expected"),
    [
        ("entropy", lambda row: -(row * np.log(row)).sum(), range(1, 7), 0),
        ("ablation", np.max, range(1, 7), 0),
        ("broad", lambda row: np.exp(-(row * np.log(row)).sum()) / len(row), range(3, 7), 0),
        ("delimiter", lambda row: row[3], (4, 5, 6), 1),
    ],
)
def test_a_row_is_marked_by_each_kind_of_measure(key, of_row, rows, expected):
    weights = random_weights(7, 2, seed=4, causal=True)
    one = reading(
        "<s> the cat . the dog saw", np.concatenate([weights[:, ::-1], weights]), "causal"
    )
    values = {row: of_row(weights[0, 1, row, : row + 1]) for row in rows}
    for near, pick in ((np.inf, max), (-np.inf, min)):
        marked = corpus.marked_row(one, "causal", corpus.BY_KEY[key], (1, 1), near)
        query = pick(values, key=values.__getitem__)
        assert (marked.query, marked.expected.sum()) == (
            query,
            expected,
        ) and marked.value == pytest.approx(values[query])


@pytest.fixture(scope="module")
def minilm():
    return load_minilm()


def names(scores: RoleScores) -> dict[tuple[int, int], str]:
    return {head: ROLES[place].key for head, place in scores.head_roles.items()}


def test_minilm_comes_out_with_its_previous_token_heads(minilm):
    scores = score_roles(read_all(minilm, role_inputs(minilm)))
    roles, previous = names(scores), at("previous")
    assert {roles[head] for head in ((0, 2), (2, 11))} == {"previous"}
    assert (roles[1, 8], roles[2, 9], roles[3, 11]) == ("next", "same", "delimiter")
    assert scores.score[previous, 0, 2] > 0.98 > 0.06 > scores.chance[previous, 0, 2]
    # It reads both ways and was never asked for a next word
    assert "induction" not in roles.values() and len(set(SENTENCES)) == len(SENTENCES) == 30
    assert (scores.rows >= 100).all()  # every role has been looked for in many places


def test_the_lab_s_language_model_comes_out():
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
    # The same class, config and tokenizer with random weights: every score is near its chance, every row near even.
    scores = score_roles(read_all(untrained(minilm), role_inputs(minilm)))
    assert scores.head_roles == {} and np.nanmax(scores.share[:-1]) < 0.05


def test_each_model_is_measured_on_what_it_can_read(minilm):
    # The sentences of a person go first, unless no word is known.
    numbers, digits = (role_inputs(load_lab_model(name)) for name in ("numbers", "digits"))
    assert (numbers.what, len(numbers.givens)) == ("example lines of numbers", 16)
    assert (
        digits.what == "handwritten digits"
        and digits.givens[0].picture is not None
        and role_inputs(tiny("whisper")).givens == ()
    )
    own = role_inputs(minilm, ("Two words.",))
    assert own.what == "sentences of your own" and [one.text for one in own.givens] == [
        "Two words."
    ]
    # One unknown word in five is as many as may be
    shares = [f"one two three {more}" for more in ("four qwertz", "qwertz", "")]
    what = (role_inputs(load_lab_model("numbers"), (text,)).what for text in shares)
    assert [*what] == [own.what, numbers.what, own.what]


def test_an_encoder_is_read_without_its_decoder_s_text():
    pretrained = tiny("bart")
    counts = {kind: len(role_inputs(pretrained, kind=kind).givens) for kind in ("self", "causal")}
    assert counts == {"self": 30, "causal": 10}
    few = role_inputs(
        pretrained, [item.text for item in role_inputs(pretrained).givens[:2]], "causal"
    )
    assert len(few.givens) == 2
    given_a_text, writing_its_own = (read_all(pretrained, few, kind) for kind in ("self", "causal"))
    assert len(writing_its_own[0].target) != len(given_a_text[0].target)
    for one, other in zip(given_a_text, writing_its_own, strict=True):
        mine, theirs = (
            [item.weights for item in each.trace.of("self").maps] for each in (one, other)
        )
        np.testing.assert_array_equal(mine, theirs)


def test_lines_of_a_model_s_own_words_are_known_to_it():
    pretrained = tiny("bert")
    lines = own_lines(pretrained.tokenizer)
    assert lines == own_lines(pretrained.tokenizer) and len(set(lines)) == len(lines)
    assert [len(text.split()) for text in lines] == [8, 16] * 8
    assert [unknown_share(pretrained, text) for text in (*lines, "")] == [0] * 16 + [1]
    words = lines[1].split()
    assert words[: len(words) // 2] == words[len(words) // 2 :]


# The standard tests of heads: random tokens that repeat, by hand and of known heads, and successors.


def by_name(scores, test: int) -> dict[str, float]:
    return {scores.name(head): float(scores.score[test][head]) for head in scores.ranked(test)}


def test_the_induction_model_passes():
    # In a causal model it is the induction score of a text that repeats.
    model = load_lab_model("induction")
    scores, lines = score_repeats(model, "causal"), random_lines(model)
    each_line = [line_scores(read_line(model, "causal", line), "causal") for line in lines]
    quantile = stats.t.ppf(1 - 0.025 / np.size(each_line[0]), len(lines) - 1)
    margin = quantile * np.std(each_line, 0, ddof=1) / len(lines) ** 0.5
    np.testing.assert_allclose(scores.margin, margin, rtol=1e-6)
    best, highest = by_name(scores, 0), [next(iter(by_name(scores, test))) for test in (0, 2)]
    assert highest == ["L1·H2", "L0·H3"] and best["L1·H2"] == pytest.approx(0.966, abs=2e-3)
    assert max(by_name(scores, 1).values()) < scores.uniform[1]
    # Uniform causal attention behind one special token: the mean of 1/27 … 1/51.
    assert scores.uniform[0] == pytest.approx(np.mean([1 / keys for keys in range(27, 52)]))
    ids, item = scores.example.lines("causal")[0].ids, scores.example.trace.of("causal").maps[1]
    assert ids[1:26] == ids[26:] == tuple(lines[0])
    # What follows each token of the repetition; nothing follows the last one
    expected = induction(item, ids, [-1] * 26 + [*ids[27:], -1]).heads
    queries, keys = TESTS[0].cells([True] + 2 * scores.length * [False])
    assert item.weights[:, queries[:-1], keys[:-1]].mean(-1) == pytest.approx(expected, abs=1e-6)


def test_no_head_of_a_random_model_passes():
    # Its weights are uniform but for a little, which is the same on each line
    for name in ("gpt2", "llama", "bert"):
        model = tiny(name)
        kind: Kind = "self" if name == "bert" else "causal"
        assert not score_repeats(model, kind).passes.any()
    assert score_repeats(load_lab_model("induction"), "causal").passes[0].any()


def test_minilm_has_a_duplicate_token_head():
    scores = score_repeats(load_minilm())
    assert next(iter(by_name(scores, 1).items())) == ("L2·H9", pytest.approx(0.615, abs=5e-3))
    assert (
        max(by_name(scores, 0).values()) < 0.03
        and scores.uniform[0] == pytest.approx(1 / 52)
        and by_name(scores, 2)["L0·H2"] > 0.99
    )


@each(
    ("run", "words"),
    [
        (lambda: score_repeats(load_lab_model("digits")), "no tokens to repeat"),
        *(
            (lambda kind=kind: score_roles([reading("a b", random_weights(2, 1, 0))], kind), why)
            for kind, why in (("cross", "before and after"), ("causal", "no map of kind 'causal'"))
        ),
        (lambda: random_lines(replace(tiny("bert"), max_tokens=11)), "too few tokens"),
        (
            lambda: read_parses(tiny("bert"), 9 * known_and_not()[:1] + known_and_not()[1:]),
            "9 of the 11",
        ),
        (lambda: score_successors(load_lab_model("digits")), "no ordered tokens"),
        (
            lambda: score_successors(load_lab_model("induction"), kind="causal"),
            "vocabulary of induction has 4 numbers, days, months or letters",
        ),
        (
            lambda: read_parses(load_lab_model("numbers"), parses_of("")),
            "knows the words of 0 of the 179 sentences; syntax needs 10",
        ),
        (lambda: read_parses(load_lab_model("digits"), parses_of("")), "reads no text"),
        (lambda: read_parses(tiny("bert"), ()), "no sentences; give it those"),
        *(
            (
                lambda name=name, kind=kind: read_parses(tiny(name), known_and_not()[:1], kind),
                f"has no {kind} attention; it has {own}",
            )
            for name, kind, own in (
                ("bert", "causal", "self"),
                ("gpt2", "cross", "causal"),
                ("gpt2", "self", "causal"),
            )
        ),
    ],
)
def test_too_long_a_line_is_refused(run, words):
    pytest.raises((PretrainedError, ValueError), run).match(words)


def test_the_items_are_single_tokens_of_the_vocabulary(minilm):
    orders = {order.name: order for order in token_orders(minilm)}
    assert set(orders) == {"numbers", "number words", "ordinals", "days", "months", "letters"}
    assert {len(line) for line in random_lines(replace(minilm, max_tokens=13))} == {4}
    days = orders["days"]
    assert minilm.tokenizer.convert_ids_to_tokens(list(days.ids))[:2] == ["monday", "tuesday"]
    assert (
        days.pairs == [(index, index + 1) for index in range(6)]
        and len(ordinary_tokens(minilm.tokenizer)) == 2000
    )
    [numbers] = token_orders(load_lab_model("numbers"))
    assert (numbers.name, numbers.items[:3]) == ("number words", ("one", "two", "three"))


def planted(minilm, order_ids: list[tuple[int, ...]]) -> HeadWeights:
    # Three heads over one-hot embeddings of the items: one adds to the successor, one to the item, one at random.
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


def test_a_planted_successor_head_is_found(minilm, monkeypatch):
    monkeypatch.setattr("core.interpret.head_tests.MIN_ITEMS", 89)  # as many as there are
    scores = score_successors(
        minilm, weights=planted(minilm, [order.ids for order in token_orders(minilm)])
    )
    assert (
        scores.name(scores.ranked()[0]) == "L4·H1"
        and scores.score[0, 1:].tolist() == [1, 0]
        and scores.score[0, 0] < 0.2
    )
    assert scores.by_embedding and scores.count == 19 + 19 + 9 + 6 + 11 + 25
    chance = (19 / 20 + 19 / 20 + 9 / 10 + 6 / 7 + 11 / 12 + 25 / 26) / scores.count
    assert scores.chance == pytest.approx(chance)


def test_logits_are_those_of_whole_vocabulary_at_items(minilm):
    # And MiniLM has no successor head.
    weights = head_weights(minilm)
    heads, vocabularies = weights.heads, weights.vocabularies
    [days] = [order for order in token_orders(minilm) if order.name == "days"]
    logits = item_logits(heads[3], vocabularies, days)[8]
    for row in (0, 5):
        assert logits[row] == pytest.approx(
            vocabularies.written(heads[3], 8, days.ids[row])[list(days.ids)].numpy(), abs=1e-4
        )
    scores = score_successors(minilm, weights)
    assert scores.by_embedding and np.nanmax(scores.score) < 0.15 and scores.score.shape == (6, 12)


# Syntax: CoNLL-U and what is refused of it, the own sentences, and the heads that follow their relations.


def conllu(*lines: str) -> str:
    # Lines of "ID FORM UPOS HEAD DEPREL MISC" as CoNLL-U.
    return "".join(
        f"{number}\t{form}\t_\t{upos}\t_\t_\t{head}\t{relation}\t_\t{misc}\n"
        for number, form, upos, head, relation, misc in (text.split() for text in lines)
    )


DOG = ("1 Dogs NOUN 2 nsubj _", "2 bark VERB 0 root SpaceAfter=No", "3 . PUNCT 2 punct _")


def test_the_own_sentences_have_enough_of_every_relation():
    parses = parses_of("")
    headers = re.findall(r"^# text = (.*)$", OWN.read_text("utf-8"), re.MULTILINE)
    assert [parse.text for parse in parses] == headers and len(set(headers)) == len(headers) == 179
    assert {
        relation.key: sum(len(relation.pairs(parse)) for parse in parses) for relation in RELATIONS
    } == {
        "subject": 180,
        "object": 171,
        "determiner": 337,
        "adjective": 206,
        "antecedent": 74,
        "passive": 45,
    }


def test_own_pairs_are_of_their_parts_of_speech():
    ends = {
        "subject": ("VERB", {"NOUN", "PROPN", "PRON"}),
        "object": ("VERB", {"NOUN", "PROPN", "PRON"}),
        "determiner": ("NOUN", {"DET"}),
        "adjective": ("ADJ", {"NOUN"}),
        "passive": ("VERB", {"AUX"}),
        "antecedent": ("PRON", {"NOUN", "PROPN"}),
    }
    assert not [
        (parse.text, parse.words[source].form, parse.words[target].form)
        for parse in parses_of("")
        for relation in RELATIONS
        for source, target in relation.pairs(parse)
        if parse.words[source].upos != ends[relation.key][0]
        or parse.words[target].upos not in ends[relation.key][1]
    ]
    distances = Counter(
        target - source for parse in parses_of("") for source, target in RELATIONS[3].pairs(parse)
    )
    assert distances.most_common(1)[0][1] < 0.7 * sum(distances.values())  # no offset answers it


def test_a_sentence_gives_its_pairs_in_both_directions():
    [parse] = [
        parse for parse in parses_of("") if parse.text.startswith("A long, narrow staircase")
    ]
    adjective, verb_object = RELATIONS[3], RELATIONS[1]
    forms = [word.form for word in parse.words]
    assert [(forms[a], forms[b]) for a, b in adjective.pairs(parse)] == [
        ("long", "staircase"),
        ("narrow", "staircase"),
        ("damp", "cellar"),
    ]
    assert adjective.targets(parse, reverse=True) == {
        forms.index("staircase"): {1, 3},
        forms.index("cellar"): {11},
    }
    assert [(forms[a], forms[b]) for a, b in verb_object.pairs(parse)] == [("led", "visitors")]
    [first] = parse_conllu(conllu("1 Bark VERB 0 root _", "2 dogs NOUN 1 nsubj _"))
    assert RELATIONS[0].pairs(first) == [(0, 1)]
    assert (adjective.name(), adjective.name(reverse=True)) == (
        "Adjective → noun",
        "Noun → adjective",
    )


def test_contractions_are_divided_where_they_add_up():
    text = "# a comment\n" + conllu(
        "1-2 don't _ _ _ _",
        "1 do AUX 3 aux _",
        "2 n't PART 3 advmod _",
        "3 go VERB 0 root _",
        "3.1 x VERB _ _ _",
        "4-5 au _ _ _ SpaceAfter=No",
        "4 à ADP 5 case _",
        "5 le DET 3 obl _",
    )
    [parse] = parse_conllu(text)
    assert (
        parse.text == "don't go au"
        and parse.line == 2
        and [word.span for word in parse.words] == [(0, 2), (2, 5), (6, 8), None, None]
    )
    for end in ("\r\n", " \n"):
        assert parse_conllu("\ufeff" + conllu(*DOG).replace("\n", end))[0].text == "Dogs bark."
    assert len(parse_conllu(conllu(*WORDS[:-1]))[0].words) == 200


@pytest.mark.parametrize("sign", "\u2028 \u2029 \x85 \x0b \x0c \x1c \x1d \x1e".split(" "))
def test_only_a_line_feed_ends_a_line(sign):
    text = conllu("1 Dogs NOUN 2 nsubj _", "2 bark VERB 0 root _").replace("Dogs", f"Do{sign}gs")
    assert [word.form for word in parse_conllu(text)[0].words] == [f"Do{sign}gs", "bark"]
    assert [word.form for word in parse_conllu(text.replace("\n", "\r\n"))[0].words][1] == "bark"


def test_every_relation_of_a_file_can_be_scored():
    tree = conllu(
        "1 Old ADJ 2 amod _", "2 city NOUN 3 compound _", "3 walls NOUN 4 nsubj:pass _", "4 fell VERB 0 root _",
        "5 in ADP 6 case _", "6 spring NOUN 4 obl _",
    )  # fmt: skip
    given = parse_conllu("\n\n".join([tree] * 12))
    relations = {one.key: one for one in relations_in(given)}
    assert {"amod", "compound", "nsubj:pass", "case", "obl", "subject"} <= set(relations)
    assert "root" not in relations
    assert relations["obl"].pairs(given[0]) == [(3, 5)] and relations["case"].pairs(given[0]) == [
        (5, 4)
    ]
    for family, kind in (("bert", "self"), ("gpt2", "causal")):  # the model's own kind by itself
        readings = read_parses(tiny(family), given)
        assert readings.kind == kind
        result = SyntaxResult(readings, tuple(score_relation(readings, *one) for one in CHOICES))
        for (relation, reverse), count in result.counts.items():
            score = score_relation(readings, relation, reverse)
            assert (score.count if score else 0) == (count if count >= 10 else 0)
            wider = with_relation(result, relation.name(reverse))
            assert (relation, reverse) in wider.choices and len(wider.scores) == len(wider.names)


def test_labels_of_ones_own_are_two_columns_of_word_numbers():
    text = (
        "# text = The cat chased the dog\n1\t2\n# a comment\n4\t5\n\n# text = A dog ran\n2 3 runs\n"
    )
    first, second = parse_conllu(text)
    assert (first.text, first.pairs) == ("The cat chased the dog", (("pair", 0, 1), ("pair", 3, 4)))
    assert second.pairs == (("runs", 1, 2),) and second.words[1].span == (2, 5)
    pairs, runs = (one for one in relations_in((first, second)) if one.label)
    assert pairs.pairs(first) == [(0, 1), (3, 4)] and not pairs.pairs(second)
    assert runs.targets(second, reverse=True) == {2: {1}}
    for line in ("1\t6", "0\t1", "1\t1", "1\tx"):
        pytest.raises(ConfigError, parse_conllu, f"# text = a b c d e\n{line}").match("Line 2")


WORDS = ["1 a X 0 root _", *(f"{n} a X 1 dep _" for n in range(2, 202))]


@each("text, error", [*((conllu(*lines), error) for *lines, error in (
    ("1 Dogs NOUN 2 nsubj _", "3 bark VERB 0 root _", "Line 2: its ID is '3'; the next word of this sentence is 2"),
    ("1 Dogs NOUN 7 nsubj _", "2 bark VERB 0 root _", "Line 1: its HEAD is 7, and the sentence has 2 words"),
    ("1 Dogs NOUN x nsubj _", "2 bark VERB 0 root _", "Line 1: its HEAD is 'x'; expected a whole number"),
    ("1 Dogs NOUN 2 nsubj _", "2 bark VERB 1 root _", "line 1 needs one root (HEAD 0): none of its words"),
    ("1 Dogs NOUN 0 root _", "2 bark VERB 0 root _", "needs one root (HEAD 0): lines 1, 2 are all roots"),
    (*DOG[:2], "3 x X 4 dep _", "4 y X 3 dep _", "Line 3: 'x' does not lead to the root"),
    ("1 She PRON 2 nsubj Antecedent=1", "2 left VERB 0 root _", "Line 1: the antecedent of 'She' must be another"),
    ("1 She PRON 2 nsubj Antecedent=0", "2 left VERB 0 root _", "Line 1: the antecedent of 'She' must be another"),
    ("1-9 Dogs _ _ _ _", *DOG, "Line 1: the range ends at word 9, and there are 3"),
    ("1-1 Dogs _ _ _ _", *DOG, "Line 1: the range '1-1' does not begin at the next word"),
    ("2-3 Dogs _ _ _ _", *DOG, "Line 1: the range '2-3' does not begin at the next word"),
    ("1-2 Dogs _ _ _ _", DOG[0], "2-3 bark _ _ _ _", *DOG[1:], "Line 3: the range '2-3' overlaps the one before"),
    ("1-2 Dogs _ _ _ _", "1-3 Dogs _ _ _ _", *DOG, "Line 2: the range '1-3' overlaps the one before"),
    ("1 Dogs NOUN ² nsubj _", "2 bark VERB 0 root _", "Line 1: its HEAD is '²'; expected a whole number"),
    ("1 Dogs NOUN 99999 nsubj _", "2 bark VERB 0 root _", "Line 1: its HEAD is 99999, and the sentence has 2"),
    ("1 Dogs NOUN 100000 nsubj _", "2 bark VERB 0 root _", "its HEAD is '100000'; expected a whole number"),
    (*WORDS, "more than 200 words"))),
    ("# x\nDogs bark.", "Line 2 has 1 columns; CoNLL-U has ten"),
    ("# only a comment\n\n", "no sentence in this file"), ("#" * 2_000_000, "no sentence in this file"),
    ("#" * 2_000_001, "at most 2,000,000"),
])  # fmt: skip
def test_what_is_no_tree_is_refused_by_its_line(text, error):
    pytest.raises(ConfigError, parse_conllu, text).match(re.escape(error))


CROSSES = conllu(
    "1 The DET 2 det _",
    "2 animal NOUN 3 nsubj _",
    "3 saw VERB 0 root _",
    "4 a DET 6 det _",
    "5 green ADJ 6 amod _",
    "6 street NOUN 3 obj SpaceAfter=No",
    "7 , PUNCT 9 punct _",
    "8 it PRON 9 nsubj Antecedent=2",
    "9 waited VERB 3 conj SpaceAfter=No",
    "10 . PUNCT 3 punct _",
)


def known_and_not() -> tuple:
    # A sentence that a tiny model knows, and two of words that it does not.
    return *parse_conllu(CROSSES), *parse_conllu("\n".join(2 * [conllu("1 ☃ X 0 root _")]))


@each(
    "family, kind",
    [
        ("bert", "self"),
        ("llama", "causal"),
        ("mistral", "causal"),
        ("t5", "self"),
        ("t5", "causal"),
    ],
)
def test_the_tokens_of_a_word_spell_it(family, kind):
    pretrained, [parse] = tiny(family), parse_conllu(CROSSES)
    reading = read_parse(pretrained, parse)
    line, words = reading.lines(kind)[0], word_tokens(pretrained, parse, reading, kind)
    spelled = [
        "".join(line.tokens[index].removeprefix("##").strip(" ·▁") for index in word)
        for word in words
    ]
    assert [
        text
        for text, word in zip(spelled, parse.words, strict=True)
        if text not in (word.form.lower(), word.form)
    ] == []
    assert word_trace(reading, parse, words, kind).maps[0].weights.shape[1:] == (10, 10)
    [one] = read_parses(pretrained, [parse], kind).sentences
    assert (one.top < np.arange(10)).all() == (kind == "causal")
    if family == "bert":  # which knows ten of eleven
        readings = read_parses(pretrained, 10 * [parse] + [known_and_not()[1]], kind)
        assert (len(readings.sentences), readings.left_out) == (10, 1)
        # Of which some are too long
        cut = read_parses(replace(pretrained, max_tokens=40), 10 * [parse] + [*parses_of("")[:3]])
        assert (len(cut.sentences), cut.left_out) == (11, 2)


def test_the_top_words_are_those_of_the_plain_model(minilm):
    parse = parses_of("")[0]
    encoding = minilm.tokenizer(parse.text, return_tensors="pt")
    with torch.no_grad():
        maps = [one[0] for one in minilm.model(**encoding, output_attentions=True).attentions]
    numbers = encoding.word_ids(0)  # one word of the tokenizer is one of the file in this sentence
    assert max(number for number in numbers if number is not None) == len(parse.words) - 1
    member = torch.tensor(
        [[float(number == word) for number in numbers] for word in range(len(parse.words))]
    )
    [top] = [each.top for each in read_parses(minilm, [parse]).sentences]
    for layer, weights in enumerate(maps):
        words = (member @ weights @ member.T) * (1 - torch.eye(len(parse.words)))
        assert (top[layer] == words.argmax(-1).numpy()).all()


def with_tops(tops: list[list[int]], kind: Kind = "self", count: int = 12) -> SyntaxReadings:
    # Sentences "The animal saw … ." whose heads have these top words from each word, by head and word.
    [parse] = parse_conllu(CROSSES)
    tokens = tuple((index,) for index in range(len(parse.words)))
    one = ParsedReading(parse, tokens, np.asarray(tops, np.int16)[None])
    return SyntaxReadings(kind, (one,) * count, 0, (4,), (len(tops),))


def test_a_head_of_a_relation_beats_any_offset():
    nothing = [-1] * 10
    of_noun = [*nothing[:4], 5, *nothing[5:]]  # "green" to "street"
    readings = with_tops([nothing, of_noun])
    score = score_relation(readings, RELATIONS[3])
    assert (
        score.count == 12
        and score.accuracy.tolist() == [[0, 1]]
        and readings.name(score.best) == "L4·H1"
    )
    assert score.offset_held_out[0] == [1, 1] and score.offset_hits.mean() == 1
    both = score_relation(
        with_tops([[*nothing[:2], 1, *nothing[3:8], 7, 0], nothing]), RELATIONS[0]
    )
    assert both.count == 24 and both.accuracy.tolist() == [[1, 0]]  # saw → animal, waited → it


def test_the_head_is_picked_on_one_half_of_the_sentences():
    readings = with_tops([[-1] * 10, [-1] * 10])
    sentences = []
    # head 0 is right in even sentences, head 1 in odd ones
    for index, one in enumerate(readings.sentences):
        top = one.top.copy()
        top[0, index % 2, 4] = 5
        sentences.append(ParsedReading(one.parse, one.tokens, top))
    score = score_relation(SyntaxReadings("self", tuple(sentences), 0, (0,), (2,)), RELATIONS[3])
    heads, hits = score.held_out
    assert score.accuracy.max() == 0.5 and heads == ((0, 0), (0, 1)) and hits.sum() == 0
    assert score.offset_held_out[1].all()


def test_a_decoder_is_asked_only_for_words_before():
    # nouns follow their adjectives
    assert score_relation(with_tops([[-1] * 10], "causal"), RELATIONS[3]) is None
    score = score_relation(with_tops([[-1] * 10], "causal"), RELATIONS[3], reverse=True)
    assert score.offsets.tolist() == [-1] and score.count == 12
    few, enough = (
        score_relation(with_tops([[-1] * 10], count=count), RELATIONS[3]) for count in (9, 10)
    )
    assert few is None is not enough


def test_minilm_s_heads_follow_syntax_beyond_any_offset(minilm):
    readings, best = read_parses(minilm, parses_of("")[::2]), {}
    assert (len(readings.sentences), readings.left_out) == (90, 0)
    for relation in RELATIONS:
        score = score_relation(readings, relation)
        best[relation.key] = (
            readings.name(score.best),
            round(float(score.held_out[1].mean()), 2),
            *dict.fromkeys(score.offset_held_out[0]),
            round(float(score.offset_held_out[1].mean()), 2),
        )
    assert best == {
        "subject": ("L1·H9", 0.57, -1, 0.57),
        "object": ("L3·H1", 0.88, 2, 0.46),
        "determiner": ("L4·H7", 0.69, -1, 0.6),
        "adjective": ("L4·H6", 0.86, 1, 0.61),
        "antecedent": ("L3·H1", 0.68, -2, 0.29),
        "passive": ("L1·H6", 0.9, -1, 0.57),
    }


@each(("found", "expected"), [
    # Words are whole ones in small letters; what is unknown is not ordinary.
    (lambda: Text(line("[CLS] Her ##on saw heron . [SEP]")).words, ("", "heron", "heron", "saw", "heron", "", "")),
    (lambda: Text(line(UNKNOWN)).ordinary[[2, 5]].any(), False),
    (lambda: (lambda ranks: (ranks[:2], ranks == sorted(ranks), ranks[-3:]))(
        [rank(word) for word in ("a", "I", "the", "cat", "heron", "qzx", "b", "1990")]), ([0, 0], True, [30_522] * 3)),
    # Patches of a picture have neighbours but no words.
    (lambda: [role.key for role, count in zip(
        ROLES, score_roles([read(tiny("vit"), inputs_for("vit"))]).rows, strict=True) if count],
     ["previous", "next", "first", "self", "broad"]),
    # The cells of a b c a b c.
    (lambda: [[*zip(*map(np.ndarray.tolist, test.cells(6 * [False])), strict=True)] for test in TESTS],
     [[(3, 1), (4, 2), (5, 3)], [(3, 0), (4, 1), (5, 2)], [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)]]),
    # A word's weight is the sum over key tokens and the mean over query tokens; token 0 is special.
    (lambda: word_weights(np.array([[[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.2, 0.2], [0.3, 0.3, 0.2, 0.2],
                                     [0.4, 0.2, 0.2, 0.2]]]), [(1, 2), (3,), ()])[0],
     pytest.approx(np.array([[(0.1 + 0.2 + 0.3 + 0.2) / 2, 0.2, 0], [0.4, 0.2, 0], [0, 0, 0]]))),
    # Brown et al. 2001, equation 4.
    (lambda: wilson_interval(8, 10), pytest.approx((0.490, 0.943), abs=1e-3)),
    (lambda: wilson_interval(20, 20), pytest.approx((0.839, 1), abs=1e-3)),
    (lambda: (wilson_interval(0, 1)[0], wilson_interval(0, 20)[0]), (0, 0)),
])  # fmt: skip
def test_a_value_is_that_by_hand(found, expected):
    assert found() == expected
