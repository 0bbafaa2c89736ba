"""The standard tests of heads: random tokens that repeat, by hand and of known heads, and successors."""

import numpy as np
import pytest
import torch

from core.interpret import head_tests
from core.interpret.circuits import HeadMatrices, Vocabularies, read_heads, read_vocabularies
from core.interpret.head_tests import (
    TESTS,
    first_ordinary,
    item_logits,
    ordinary_tokens,
    score_repeats,
    score_successors,
    token_orders,
)
from core.interpret.trace import induction_score
from core.pretrained import PretrainedError, load_lab_model, load_minilm
from core.pretrained.reading import read_ids
from tests.cases import each
from tests.tiny_models import plain, tiny


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
    scores = score_repeats(load_lab_model("induction"), "causal")
    best = by_name(scores, 0)
    assert next(iter(best)) == "L1·H2" and best["L1·H2"] == pytest.approx(0.966, abs=2e-3)
    assert (
        next(iter(by_name(scores, 2))) == "L0·H3"
        and max(by_name(scores, 1).values()) < scores.uniform[1]
    )
    # Uniform causal attention behind one special token: the mean of 1/27 … 1/51.
    assert scores.uniform[0] == pytest.approx(np.mean([1 / keys for keys in range(27, 52)]))


def test_in_a_causal_model_it_is_the_induction_score_of_a_text_that_repeats():
    scores = score_repeats(load_lab_model("induction"), "causal")
    ids, item = scores.example.lines("causal")[0].ids, scores.example.trace.of("causal").maps[1]
    assert ids[1:26] == ids[26:]
    generated = [-1] * 26 + [
        *ids[27:],
        -1,
    ]  # what follows each token of the repetition; nothing follows the last one
    expected = induction_score(item, ids, generated)
    queries, keys = TESTS[0].cells(scores.length)
    assert item.weights[:, queries[:-1] + 1, keys[:-1] + 1].mean(-1) == pytest.approx(
        expected, abs=1e-6
    )


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
    start = first_ordinary(reading, kind)
    assert line.ids[start : start + 12] == (*ids, *ids)
    assert score_repeats(pretrained, kind).score.shape[0] == len(TESTS)
    if family == "bert":
        first, *_, last = pretrained.tokenizer("a").input_ids
        framed = torch.tensor([[first, *ids, *ids, last]])
        with torch.no_grad():
            expected = plain(family)(input_ids=framed, output_attentions=True).attentions[1][0]
        assert np.allclose(reading.trace.maps[1].weights, expected, atol=1e-5)


def test_too_long_a_line_and_a_model_of_pictures_are_refused():
    with pytest.raises(PretrainedError, match="reads at most 70 tokens; these are 102"):
        read_ids(tiny("bert"), [7] * 100)
    with pytest.raises(PretrainedError, match="no tokens to repeat"):
        score_repeats(load_lab_model("digits"))


@pytest.fixture(scope="module")
def minilm():
    return load_minilm()


def test_the_items_are_single_tokens_of_the_vocabulary(minilm):
    orders = {order.name: order for order in token_orders(minilm)}
    assert set(orders) == {"numbers", "number words", "ordinals", "days", "months", "letters"}
    days = orders["days"]
    assert minilm.tokenizer.convert_ids_to_tokens(list(days.ids))[:2] == ["monday", "tuesday"]
    assert days.pairs == [(index, index + 1) for index in range(6)]
    numbers = token_orders(load_lab_model("numbers"))
    assert [(order.name, order.items[:3]) for order in numbers] == [
        ("number words", ("one", "two", "three"))
    ]


def planted(
    minilm, order_ids: list[tuple[int, ...]]
) -> tuple[tuple[HeadMatrices, ...], Vocabularies]:
    """Three heads over one-hot embeddings of the items: one adds to the successor, one to the item, one at random."""
    ids = [token for order in order_ids for token in order]
    size = len(ids)
    embedding = torch.zeros(len(minilm.tokenizer), size)
    embedding[ids] = torch.eye(size)
    following = torch.zeros(size, size)
    for order in order_ids:
        for one, other in zip(order, order[1:], strict=False):
            following[ids.index(one), ids.index(other)] = 1
    random = torch.randn(size, size, generator=torch.Generator().manual_seed(3))
    heads = HeadMatrices(
        "self",
        0,
        None,
        None,
        torch.eye(size).expand(3, -1, -1),
        torch.stack([random, following, torch.eye(size)]),
        3,
        number=4,
    )
    return (heads,), Vocabularies({"self": embedding}, {"self": embedding.T}, frozenset({"self"}))


def test_a_planted_successor_head_is_found_and_a_copying_head_is_not(minilm, monkeypatch):
    heads, vocabularies = planted(minilm, [order.ids for order in token_orders(minilm)])
    monkeypatch.setattr(head_tests, "read_heads", lambda pretrained: heads)
    monkeypatch.setattr(head_tests, "read_vocabularies", lambda pretrained: vocabularies)
    scores = score_successors(minilm)
    assert (scores.name(scores.ranked()[0]), scores.score[0, 1], scores.score[0, 2]) == (
        "L4·H1",
        1,
        0,
    )
    assert scores.score[0, 0] < 0.2 and scores.by_embedding
    assert scores.count == 19 + 19 + 9 + 6 + 11 + 25
    assert scores.chance == pytest.approx(
        (19 / 20 + 19 / 20 + 9 / 10 + 6 / 7 + 11 / 12 + 25 / 26) / scores.count
    )


def test_the_logits_are_those_of_the_whole_vocabulary_at_the_items(minilm):
    heads, vocabularies = read_heads(minilm), read_vocabularies(minilm)
    [days] = [order for order in token_orders(minilm) if order.name == "days"]
    for row in (0, 5):
        whole = vocabularies.written(heads[3], 8, days.ids[row])
        assert item_logits(heads[3], vocabularies, days)[8, row] == pytest.approx(
            whole[list(days.ids)].numpy(), abs=1e-4
        )


def test_minilm_has_no_successor_head(minilm):
    scores = score_successors(minilm)
    assert scores.by_embedding and np.nanmax(scores.score) < 0.15 and scores.score.shape == (6, 12)


def test_models_without_ordered_tokens_say_so():
    with pytest.raises(
        PretrainedError, match="vocabulary of induction has 4 numbers, days, months or letters"
    ):
        score_successors(load_lab_model("induction"), "causal")
    with pytest.raises(PretrainedError, match="no ordered tokens"):
        score_successors(load_lab_model("digits"))
