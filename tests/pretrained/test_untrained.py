"""A model before it learned: the same shape, other weights, by its seed, and nothing around it changed."""

from concurrent.futures import ThreadPoolExecutor

import torch

from core.pretrained import load_lab_model, load_minilm, read
from core.pretrained.load import untrained
from tests.cases import each
from tests.tiny_models import tiny


@each("name", ["bert_encoder", "numbers", "induction"])
def test_same_shape_other_weights_by_the_seed(name):
    trained = tiny(name) if name == "bert_encoder" else load_lab_model(name)
    before = {key: value.clone() for key, value in trained.model.state_dict().items()}
    state = torch.get_rng_state()
    first, again, other = (untrained(trained, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state), "torch's generator is left as it was"
    assert all(torch.equal(value, before[key]) for key, value in trained.model.state_dict().items())
    same = {
        key: torch.equal(value, again.model.state_dict()[key])
        for key, value in first.model.state_dict().items()
    }
    assert all(same.values()), "the seed alone decides"
    queries = [
        key for key in before if key.endswith(("query.weight", "q_proj.weight", "c_attn.weight"))
    ]
    assert queries
    for key in queries:
        assert not torch.equal(first.model.state_dict()[key], before[key])
        assert not torch.equal(first.model.state_dict()[key], other.model.state_dict()[key])
    assert (first.head, first.reads, first.recordable) == (
        trained.head,
        trained.reads,
        trained.recordable,
    )


def test_untrained_bert_attends_almost_evenly():
    trace = read(untrained(load_minilm()), "The animal didn't cross the street.").trace
    tokens = len(trace.map(0).keys)
    assert abs(trace.map(0).weights - 1 / tokens).max() < 0.05


def test_sessions_that_draw_at_the_same_time_get_what_their_seeds_say():
    def drawn(at: int) -> dict[str, torch.Tensor]:
        return untrained((tiny("bert"), tiny("llama"))[at % 2], 3).model.state_dict()

    alone = [drawn(0), drawn(1)]
    with ThreadPoolExecutor(2) as threads:
        for at, state in enumerate(threads.map(drawn, range(24))):
            assert all(torch.equal(value, alone[at % 2][key]) for key, value in state.items())
