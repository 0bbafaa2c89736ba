"""Successor heads: orders from a vocabulary, and a head that is planted by hand among random ones."""

import numpy as np
import pytest
import torch

from core.interpret import head_tests
from core.interpret.circuits import HeadMatrices, Vocabularies, read_heads, read_vocabularies
from core.interpret.head_tests import item_logits, score_successors, token_orders
from core.pretrained import PretrainedError, load_lab_model, load_minilm


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
    ids = [token for each in order_ids for token in each]
    size = len(ids)
    embedding = torch.zeros(len(minilm.tokenizer), size)
    embedding[ids] = torch.eye(size)
    following = torch.zeros(size, size)
    for each in order_ids:
        for one, other in zip(each, each[1:], strict=False):
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
