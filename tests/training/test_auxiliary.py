"""The loss of a lightning indexer: what it is, that it alone trains the indexer, and that it chooses better keys."""

from typing import Any

import torch

from core.attention import Attention, AttentionConfig, Choice
from core.attention.layer import find_indexer
from core.attention.masks.content import indexer_loss, selection
from core.attention.score_block import ScoreBlock
from core.models import ModelConfig
from core.tasks import TaskConfig
from core.training.config import RunConfig
from core.training.loop import indexer_losses, one_step, prepare, train
from tests.cases import each

B, T, C, H, KEYS = 3, 11, 24, 3, 3
LIGHTNING = Choice.of("lightning", keys=KEYS, heads=2, size=8)


def run_config(mask, **changes):
    """A decoder like DeepSeek-V3.2's on the recall task, in small: latents and an indexer."""
    model = ModelConfig.transformer(
        32,
        4,
        2,
        64,
        kind="decoder",
        norm="pre",
        mask=mask,
        projection=Choice.of("latent", latent=32, rope=4),
    )
    return RunConfig(task=TaskConfig.of("recall"), model=model, learning_rate=3e-3, **changes)


@each(
    "beside",
    [
        {},
        {"position": "alibi"},
        {"projection": "latent"},
        {"kernel": "block_sparse"},
        {"mask": Choice.of("and", Choice("causal"), LIGHTNING)},
    ],
)
def test_the_loss_is_the_divergence_from_full_attention(beside):
    """Of the same weights under a causal mask, forward and by steps; no gradient reaches anything but the indexer."""
    layer = Attention(AttentionConfig(C, H, **{"mask": LIGHTNING} | beside))
    full = Attention(layer.config.with_(mask="causal", kernel="exact"))
    full.load_state_dict(layer.state_dict(), strict=False)
    x, indexer = torch.randn(B, T, C, requires_grad=True), find_indexer(layer.mask)
    scores = indexer.index_scores(ScoreBlock.whole(T, T, x=x, context=x))
    expected = indexer_loss(scores, full(x).weights, torch.ones(T, T, dtype=torch.bool).tril())
    for steps in (layer(x), layer(x, record=False), layer.step(x)[0]):
        torch.testing.assert_close(steps.indexer_loss, expected)
    layer.zero_grad()
    layer(x, record=False).indexer_loss.backward()
    own = {id(weight) for weight in indexer.parameters()}
    assert x.grad is None and all(
        (weight.grad is not None) == (id(weight) in own) for weight in layer.parameters()
    )


def test_padding_is_no_key_that_is_predicted():
    layer, real = (
        Attention(AttentionConfig(C, H, mask=LIGHTNING)),
        torch.arange(T) < torch.tensor([[T], [7], [4]]),
    )
    full, x = Attention(layer.config.with_(mask="causal")), torch.randn(B, T, C)
    full.load_state_dict(layer.state_dict(), strict=False)
    indexer: Any = layer.mask
    scores = indexer.index_scores(ScoreBlock.whole(T, T, x=x, context=x))
    allowed = torch.ones(T, T, dtype=torch.bool).tril() & real[:, None]
    torch.testing.assert_close(
        layer(x, key_mask=real).indexer_loss,
        indexer_loss(scores, full(x, key_mask=real).weights, allowed),
    )


def test_it_is_computed_in_training_alone():
    layer, x = Attention(AttentionConfig(C, H, mask=LIGHTNING)), torch.randn(B, T, C)
    with torch.no_grad():
        assert layer(x).indexer_loss is None
    assert layer.eval()(x).indexer_loss is None
    assert Attention(AttentionConfig(C, H, mask="causal"))(x).indexer_loss is None


def test_a_step_of_another_model_is_untouched_and_none_keeps_a_hook():
    for mask, losses in ((LIGHTNING, 2), (Choice("causal"), 0)):
        session = prepare(run_config(mask))
        batch = session.task.batch(4, session.data)
        with indexer_losses(session.model) as collected:
            session.model(batch.source, batch.source_mask, batch.target_in)
        assert len(collected) == losses
        assert not any(module._forward_hooks for module in session.model.modules())
        assert (float(one_step(session, 1).indexer) > 0) == (losses > 0)


def test_records_have_the_loss_where_there_is_an_indexer():
    for mask, known in ((LIGHTNING, True), (Choice("causal"), False)):
        records = list(
            train(run_config(mask, steps=4, record_every=2, held_out=10, decode_every=100))
        )
        assert [record.indexer_loss is not None for record in records[1:-1]] == [known] * len(
            records[1:-1]
        )
        assert records[0].indexer_loss is None


def recalls(session):
    """The recall of each layer's choice, of the keys that full attention weighs most, on held-out texts."""
    batch, results = session.task.collate(session.held_out[:32]), []

    def look(layer, given, steps):
        inputs = layer.kernel_inputs(steps.q, steps.k, steps.v, *given[:1] * 2)
        full = torch.softmax(
            (steps.q @ steps.k.mT * steps.scale).masked_fill(
                inputs.block.j > inputs.block.i, -torch.inf
            ),
            -1,
        )
        results.append(selection(layer.mask.parts[1](inputs.block), full, KEYS).recall)

    layers = [module for module in session.model.modules() if isinstance(module, Attention)]
    hooks = [layer.register_forward_hook(look) for layer in layers]
    with torch.no_grad():
        session.model.eval()(batch.source, batch.source_mask, batch.target_in, record=True)
    for hook in hooks:
        hook.remove()
    return results


def test_the_recall_of_the_indexer_rises_in_training():
    session = prepare(run_config(LIGHTNING, steps=100))
    before = recalls(session)
    for step in range(1, 101):
        one_step(session, step)
    after = recalls(session)
    assert max(after) > max(before) + 0.1 and min(after) > min(before) + 0.02, (before, after)
