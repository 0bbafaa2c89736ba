"""A model's parts and gradients on eight held-out examples, its attention on the first, and gradients by depth."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.entries import refuse_if
from core.interpret.trace import AttentionTrace, Kind
from core.models import Model, ModelConfig, Residual, build_model
from core.models.base import hooked
from core.models.model_summary import Part, record_outputs, summarize
from core.pretrained.hf_conversion import load_lab_decoder
from core.pretrained.load import WRITER
from core.runs.runs import Run
from core.seeding import seeded_rng
from core.tasks import PAD, SPECIALS, Example, Task, TaskConfig, make_task
from core.training.evaluate import objective, read_example

BATCH, SEEDS, SEEDED = 8, 3, "seeded"
TEMPERATURES = (0.1, 0.25, 0.5, 0.7, 1.0, 1.3, 1.6, 2.0, 3.0)
MAX_NEXT = 8  # of the likeliest next tokens


@dataclass(frozen=True)
class Subject:
    """A model: of a run (its id, its folder, and the step of the checkpoint), from a seed, or the writer with a text."""

    config: ModelConfig
    task: TaskConfig
    run: str = SEEDED
    step: int = 0
    seed: int = 0
    folder: Path | None = None
    text: str = ""  # that the writer reads

    @property
    def seeded(self) -> bool:
        return self.folder is None and not self.text


def writer_controls(text: str) -> Subject:
    """A trained model, the lab's writer, with a text.

    ValueError for a text without a token, and for one that is too long.
    """
    model, task = load_lab_decoder(WRITER)
    count = len(task.tokens(text))
    refuse_if(
        not 0 < count <= task.max_source,
        f"The text has {count} tokens; the writer reads 1 to {task.max_source}. Take a text of that length.",
    )
    return Subject(model.config, task.config, WRITER, text=text)


Instead = tuple[float, str, float]  # the answer's probability, the likeliest token and its


@dataclass(frozen=True)
class Stream:
    """The next token of a text as a decoder computes it: the last token's vector, read as if no layer followed it.

    nostalgebraist 2020, "interpreting GPT: the logit lens": the last norm and the output layer read each vector.
    `shares` (1 + 2 × layers, tokens) are the probabilities after the embedding, and after attention and feed-forward of
    each layer, of the answer, the likeliest other token of the text, and all that lead before; the answer leads from
    reading `lead` on. Of all heads, `head` of `layer` adds most to its logit; there the last token's largest weight,
    `weight`, is on `key`. Without the head `needed` (layer, head, its key) the answer is least probable.
    `says` has the likeliest next token and its probability at each reading and token of the text. `moved` (1 + 2 × layers,
    T) is how far attention, and each whole layer, moves a token's vector, as a share of the vector's length.
    """

    tokens: tuple[str, ...]
    shares: np.ndarray
    lead: int
    layer: int
    head: int
    key: int
    weight: float
    needed: tuple[int, int, int]
    says: tuple[tuple[tuple[str, float], ...], ...]
    moved: np.ndarray
    without: Instead  # the head
    without_needed: Instead
    without_add: Instead  # where no sublayer's sum has what was there
    heads: int  # of all layers
    choices: int  # the tokens of the vocabulary
    following: tuple[str, ...]  # the likeliest tokens
    at_temperature: tuple[tuple[float, tuple[float, ...]], ...]  # each with their probabilities

    def leader(self, at: int) -> tuple[str, float]:
        best = int(self.shares[at].argmax())
        return self.tokens[best], float(self.shares[at, best])


def run_controls(run: Run, name: str) -> Subject:
    """A trained model from a checkpoint of its run, which is named so."""
    config = run.config()
    return Subject(config.model, config.task, name, run.default_step(), folder=run.path)


@dataclass(frozen=True)
class Measurements:
    """The tree of a model's parts, its maps on the first example, and that example's tokens.

    `mixes` says whether its feed-forward network mixes tokens.
    """

    tree: Part
    trace: AttentionTrace
    loss: float
    outputs: dict[str, np.ndarray]  # of each part, (T, C) of the first example; "…+": the sums
    tokens: dict[Kind, tuple[str, ...]]  # the rows of each kind of attention
    # for each output position, the most probable token and its probability
    predicted: tuple[tuple[str, float], ...]
    mixes: bool
    stream: Stream | None = None  # of a text that the writer reads


def seeded(config: ModelConfig, task: Task, seed: int) -> Model:
    """A fresh model whose weights follow from the seed alone; torch's generator is left as it was."""
    with seeded_rng(seed):
        return build_model(config, task.shape).eval()


def model_of(controls: Subject) -> tuple[Model, Task]:
    """The model in eval mode, and its task; ValueError when a run's weights cannot be read."""
    if controls.folder is not None:
        return Run(controls.folder).model(controls.step)
    if controls.run == WRITER:
        return load_lab_decoder(WRITER)
    task = make_task(controls.task)
    return seeded(controls.config, task, controls.seed), task


def measurements(controls: Subject) -> Measurements:
    """Parameters, FLOPs and the loss, measured on one forward and backward pass, and the maps of the first example."""
    model, task = model_of(controls)
    if controls.text:  # what follows its last token is not known
        tokens = tuple(task.tokens(controls.text))
        examples: Sequence[Example] = [Example(tokens, (*tokens[1:], SPECIALS[PAD]))]
        model = deepcopy(model).requires_grad_(True)
    else:
        examples = task.held_out(BATCH)[:BATCH]
    tree, loss = tree_of(model, task, examples)
    with record_outputs(model) as outputs:
        reading = read_example(model, controls.config, task, examples[0])
    arrays = {
        path: output[0].float().numpy() for path, output in outputs.items() if output.ndim == 3
    }
    return Measurements(
        tree,
        reading.trace,
        loss,
        arrays,
        {one.kind: one.queries for one in reading.trace.maps},
        reading.predicted,
        mixes_tokens(model, controls),
        residual_stream(model, task, examples[0], arrays, reading.trace) if controls.text else None,
    )


def tree_of(model: Model, task: Task, examples: Sequence[Example]) -> tuple[Part, float]:
    """The parts of a model by one pass over a batch, forward and backward, and the loss."""
    batch, goal, losses = task.collate(examples), objective(task), []

    def loss(logits: torch.Tensor) -> torch.Tensor:
        losses.append(goal.loss(logits, batch))
        return losses[-1]

    tree = summarize(model, (batch.source, batch.source_mask, batch.target_in), loss)
    return tree, losses[0].item()


@torch.no_grad()
def residual_stream(
    model: Any,
    task: Task,
    example: Example,
    outputs: dict[str, np.ndarray],
    trace: AttentionTrace,
) -> Stream:
    """The stream at the last token of a plain decoder with RMSNorm before; `outputs` are (T, C) by part.

    They get those of the sums after each sublayer.
    """
    states = [outputs["target"]]
    for layer in range(len(model.layers)):
        states += [states[-1] + outputs[f"layers.{layer}.causal"], outputs[f"layers.{layer}"]]
        sums = (f"layers.{layer}.around_{part}+" for part in ("causal", "feed_forward"))
        outputs.update(zip(sums, states[-2:], strict=True))
    stream = np.stack(states)  # (1 + 2 × layers, T, C)
    readings = model.output(model.norm(torch.from_numpy(stream))).softmax(-1)
    shares, likeliest = readings[:, -1], readings.max(-1)
    before = stream[[0, *(i - 1 if i % 2 else i - 2 for i in range(1, len(stream)))]]
    leaders, top = shares.argmax(-1).tolist(), shares[-1].topk(MAX_NEXT).indices.tolist()
    lead = max((i + 1 for i, leader in enumerate(leaders) if leader != top[0]), default=0)
    names = [task.shown(token) for token in task.target_vocab.tokens]
    without, written = without_heads(model, task, example)
    # The last norm divides all that was added by one number.
    added = written @ (model.norm.weight * model.output.weight[top[0]])
    layer, head = divmod(int(added.argmax()), written.shape[1])
    needed = divmod(int(without[..., top[0]].argmin()), written.shape[1])
    weights = np.stack([one.weights[:, -1] for one in trace.of("causal").maps])  # (L, H, T)
    key = int(weights[layer, head].argmax())
    others = [i for i in task.target_vocab.encode(example.source) if i != top[0]]
    other = max(others, key=shares[-1].__getitem__, default=top[1])
    following = list(dict.fromkeys([top[0], other, *reversed(leaders)]))
    logits = torch.from_numpy(outputs["output"][-1])
    batch, alone = task.collate([example]), drop_residual(deepcopy(model))
    bare = alone(batch.source, batch.source_mask, batch.target_in).logits[0, -1].softmax(-1)

    def instead(shares: torch.Tensor) -> Instead:
        return float(shares[top[0]]), names[int(shares.argmax())], float(shares.max())

    return Stream(
        tuple(names[i] for i in following),
        shares[:, following].numpy(),
        lead,
        layer,
        head,
        key,
        float(weights[layer, head, key]),
        (*needed, int(weights[needed].argmax())),
        tuple(
            tuple((names[token], share) for token, share in zip(*row, strict=True))
            for row in zip(likeliest.indices.tolist(), likeliest.values.tolist(), strict=True)
        ),
        np.linalg.norm(stream - before, axis=-1) / np.linalg.norm(before, axis=-1),
        instead(without[layer, head]),
        instead(without[needed]),
        instead(bare),
        without.shape[0] * without.shape[1],
        len(names),
        tuple(names[i] for i in top),
        tuple(
            (temperature, tuple((logits / temperature).softmax(-1)[top].tolist()))
            for temperature in TEMPERATURES
        ),
    )


@torch.no_grad()
def without_heads(model: Any, task: Task, example: Example) -> tuple[torch.Tensor, torch.Tensor]:
    """The next token of a decoder with the output of each head set to 0, and what each head writes.

    Probabilities (layers, heads, V), and vectors (layers, heads, C) at the last token.
    """
    batch, logits = task.collate([example] * model.layers[0].causal.config.num_heads), []
    written: list[torch.Tensor] = []

    def silence(module: torch.nn.Linear, inputs: tuple[torch.Tensor]) -> torch.Tensor:
        heads = len(inputs[0])  # the batch has a row for each
        mixed = inputs[0].unflatten(-1, (heads, -1))
        each = module.weight.unflatten(-1, (heads, -1))
        written.append(torch.einsum("hd,chd->hc", mixed[0, -1], each))
        return (mixed * (1 - torch.eye(heads))[:, None, :, None]).flatten(-2)

    for layer in model.layers:
        with hooked([layer.causal.projection.output.register_forward_pre_hook(silence)]):
            output = model(batch.source, batch.source_mask, batch.target_in)
        logits.append(output.logits[:, -1])
    return torch.stack(logits).softmax(-1), torch.stack(written)


@torch.no_grad()
def mixes_tokens(model: Model, controls: Subject) -> bool:
    """Whether changing one token changes another one's output of the last layer's feed-forward network."""
    layer: Any = [module for module in model.modules() if hasattr(module, "feed_forward")][-1]
    x = torch.randn(
        1, 5, controls.config.d_model, generator=torch.Generator().manual_seed(controls.seed)
    )
    changed = x.clone()
    changed[0, 0] += 1
    return not torch.equal(layer.feed_forward(x)[0, 1:], layer.feed_forward(changed)[0, 1:])


@dataclass(frozen=True)
class Depth:
    """By layer over SEEDS models: mean and standard deviation of the gradient's norm, and the output's std."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    output: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """The first layer's gradient over the last one's."""
        return self.mean[0] / self.mean[-1]


def drop_residual(model: Model) -> Model:
    """Take the residual sums out of a model, in place: x ← f(norm(x)), or norm(f(x)); it is returned.

    He 2016, "Deep Residual Learning", adds them; Dong 2021 proves that of attention without them all tokens become one.
    """
    for module in model.modules():
        if isinstance(module, Residual):
            module.leave = partial(_leave_nothing, module.leave)  # type: ignore[method-assign]
    return model


def _leave_nothing(
    leave: Callable[..., torch.Tensor], passed: torch.Tensor, change: torch.Tensor
) -> torch.Tensor:
    return leave(torch.zeros_like(passed), change)


def by_depth(
    config: ModelConfig, task_config: TaskConfig, layers: int, norm: Any, add: bool = True
) -> Depth:
    """Untrained models of that depth, with the norm before or after: each layer of the last stack.

    Xiong 2020, section 3.3, measured on the task instead of bounded. Without `add` they have no residual sums.
    """
    task = make_task(task_config)
    examples = task.held_out(BATCH)[:BATCH]
    config = replace(config, layers=layers, norm=norm, dropout=0.0)
    config = config if add else replace(config, residual="plain")
    models = [seeded(config, task, seed) for seed in range(SEEDS)]
    trees = [tree_of(one if add else drop_residual(one), task, examples)[0] for one in models]
    measured = [
        [(part.gradient, part.std) for part in tree.layers()[-layers:]]  # the decoder's, if any
        for tree in trees
    ]
    gradients, outputs = np.array(measured, dtype=float).transpose(2, 0, 1)  # (seeds, layers)
    rows = gradients.mean(0), gradients.std(0), outputs.mean(0)
    return Depth(*(tuple(row.tolist()) for row in rows))
