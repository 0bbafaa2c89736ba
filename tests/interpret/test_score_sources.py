"""A score split by what wrote its query and its key: parts add up, and are what plain formulas give."""

import numpy as np
import pytest
import torch

from core.interpret.evidence import break_down_weight, layer_attentions
from core.interpret.score_sources import explain_score
from core.pretrained import PretrainedError
from tests.cases import each
from tests.pretrained.test_attention_recorder import GIVEN, built
from tests.tiny_models import tiny, uneven

FAMILIES = (
    "gpt2", "llama", "gemma2", "gemma3_text", "qwen3", "deepseek_v3", "bert", "t5", "qwen3_next", "granite",
    "gpt_neox", "olmo2", "falcon_h1", "mixtral", "modernbert", "vit", "whisper", "opt", "bloom", "albert", "cohere",
)  # fmt: skip


def seen_cell(attention):
    # A query and an earlier key that it sees.
    rows, keys = attention.q.shape[1], attention.k.shape[1]
    query = min(6, rows - 1)
    seen = torch.ones(1, rows, keys) if attention.allowed is None else attention.allowed
    return query, int(seen[-1, min(query, seen.shape[1] - 1)].nonzero()[0])


@each("model_type", FAMILIES)
def test_parts_add_up_to_the_models_own_score(model_type):
    pretrained = built(model_type)
    uneven(pretrained.model)
    layers = layer_attentions(pretrained, GIVEN)
    for kind, layer in {kind: (kind, layer) for kind, layer in layers}.values():
        attention = layers[kind, layer]
        query, key = seen_cell(attention)
        head = len(attention.q) - 1
        own = break_down_weight(attention, head, query, key)
        split = explain_score(pretrained, GIVEN, layer, head, query, key, kind)
        largest = max(1e-3, float(np.abs(split.parts).max()))
        assert split.score == pytest.approx(
            own.dot * own.scale + (own.bias or 0), abs=1e-5 * largest
        )
        assert split.capped == pytest.approx(own.score, abs=1e-5 * largest)
        assert split.moved_shares.sum() == pytest.approx(1)
        assert {"head"} < {one.part for one in split.q_sources}
