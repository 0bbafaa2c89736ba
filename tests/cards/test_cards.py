"""Model cards: their numbers are those of transformers' own models at the published sizes."""

import pytest
import torch

from core.cards import CARDS, card
from tests.cards.published import PUBLISHED


def published(key, **changes):
    """The model of a card in transformers, on the meta device, with some sizes changed."""
    import transformers
    kind, auto, own = PUBLISHED[key]
    config = transformers.AutoConfig.for_model(kind, **{**own, **changes})
    with torch.device("meta"):
        return getattr(transformers, auto).from_config(config)


def test_every_card_has_an_oracle_but_the_one_that_is_not_in_transformers():
    assert {one.key for one in CARDS} - set(PUBLISHED) == {"retnet"} and len(CARDS) == 21


@pytest.mark.parametrize("key", PUBLISHED)
def test_parameters_are_those_of_transformers_to_the_last_one(key):
    assert card(key).parameters == sum(weight.numel() for weight in published(key).parameters())
