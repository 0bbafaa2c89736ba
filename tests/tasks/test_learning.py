"""The tasks can be learned with the settings they recommend: short runs, generously judged."""

import torch
import torch.nn.functional as F

from core.models import ModelConfig, build_model
from core.models.decoding import greedy
from core.tasks import PAD, TaskConfig, make_task
from core.tasks.metrics import exact_match
from tests.cases import each


def learned(task, recipe, steps):
    """A model after `steps` of its recipe, the rate rising and then falling as the recipe says."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    model = build_model(ModelConfig.from_json(recipe.model), task.shape)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate)
    shape = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, recipe.learning_rate, steps, pct_start=0.1
    )
    for _ in range(steps):
        batch = task.batch(recipe.batch_size, generator)
        logits = model(batch.source, batch.source_mask, batch.target_in).logits
        loss = F.cross_entropy(logits.flatten(0, 1), batch.target_out.flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        shape.step()
    return model.eval(), float(loss.detach())


def exact(task, model, n):
    held = task.held_out(n)
    batch = task.collate(held)
    output = greedy(model, batch.source, batch.source_mask, task.max_target + 1).tolist()
    return exact_match(
        [task.target_vocab.decode(row) for row in output], [example.target for example in held]
    )


@each("key", ["reverse", "copy"])
def test_a_small_transformer_learns_to_look_at_the_right_place(key):
    task = make_task(TaskConfig.of(key, length=5, vocab=10))
    model, _ = learned(task, task.recommended["transformer"], 160)
    assert exact(task, model, 200) > 0.9
    held = task.held_out(50)
    batch = task.collate(held)
    weights = (
        model(batch.source, batch.source_mask, batch.target_in, record=True)
        .maps["cross"][0]
        .weights
    )
    places = torch.tensor([task.expected(example) for example in held])[:, None, :, None].expand(
        -1, 2, -1, 1
    )
    mass = weights[:, :, :-1].gather(3, places).mean((0, 2, 3))
    assert mass.max() > 0.5, "one head at least looks where the task says"


def test_dates_fall_below_guessing_at_once():
    task = make_task(TaskConfig.of("dates", train_pairs=2000))
    _, loss = learned(task, task.recommended["recurrent"], 60)
    assert loss < 0.8 * task.baseline_loss


def test_two_runs_of_one_seed_are_one_run():
    task = make_task(TaskConfig.of("numbers", train_pairs=1000, numbers=2))
    recipe = task.recommended["recurrent"]
    (first, loss), (second, again) = learned(task, recipe, 3), learned(task, recipe, 3)
    assert loss == again
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )
