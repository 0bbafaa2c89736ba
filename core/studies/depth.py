"""Over depth: which earlier outputs each sublayer of a trained model reads, of each token and on average."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from core.entries import refuse_if
from core.hooks import hooked
from core.interpret.trace import AttentionMap, AttentionTrace
from core.models import Model, ModelConfig, map_tokens
from core.models.transformer import DepthAttention, Residual, StreamMixing
from core.runs.runs import Run
from core.studies.decode import Checkpoint
from core.tasks import Example, Task
from core.training import axis_tokens, watched_examples

PARTS = {
    "attention": "attention",
    "causal": "attention",
    "cross": "cross-attention",
    "feed_forward": "feed-forward",
}
EMBEDDING, OUTPUT = "embedding", "output"


@dataclass(frozen=True, eq=False)
class DepthMap:
    """A stack of N − 1 sublayers: `shares` (T, N, N) of what each token reads at a sublayer (row), and at the end, of the
    embedding and each sublayer's output (column).

    A share is the weight with which that output enters, over the sum of the row's weights: the norm that follows takes
    out their sum. Rows sum to 1; what comes later has 0. With plain residuals all weights are 1.
    """

    stack: str
    tokens: tuple[str, ...]
    readers: tuple[str, ...]
    outputs: tuple[str, ...]
    shares: Float[Tensor, "T N N"]

    def trace(self, token: int | None = None) -> AttentionTrace:
        """The map of one token, or the mean over all of them."""
        one = self.shares.mean(0) if token is None else self.shares[token]
        visible = torch.ones_like(one, dtype=torch.bool).tril()
        shown = AttentionMap(
            "causal", 0, one[None].numpy(), self.readers, self.outputs, visible.numpy()
        )
        return AttentionTrace((shown,), source="over depth")


@torch.no_grad()
def depth_maps(
    model: Model, config: ModelConfig, task: Task, example: Example
) -> tuple[DepthMap, ...]:
    """One map a stack, the encoder's first, from one pass over an example.

    ConfigError for post-norm, which rescales the sum after each sublayer, so that no weights lead back to the outputs.
    """
    refuse_if(
        config.norm == "post",
        "A post-norm model rescales the sum after each sublayer, so no weights say what of an earlier output is left; "
        "take norm = pre.",
    )
    recorded, batch = dict[str, tuple[Tensor, ...]](), task.collate([example])

    def record(path: str, module: nn.Module, inputs: object, output: tuple[Tensor, ...]) -> None:
        recorded[path] = output

    with hooked(
        module.register_forward_hook(partial(record, path))
        for path, module in model.named_modules()
        if isinstance(module, DepthAttention | StreamMixing)
    ):
        model.eval()(batch.source, batch.source_mask, batch.target_in)
    around = [path for path, module in model.named_modules() if isinstance(module, Residual)]
    maps = []
    for stack, prefix, kind in (("encoder", "encoder.", "self"), ("decoder", "", "causal")):
        paths = [path for path in around if path.startswith("encoder.") == bool(prefix)]
        if not paths:
            continue
        tokens, _ = map_tokens(config, kind, *axis_tokens(task, example))
        rows = _rows(recorded, paths, prefix, len(tokens))
        shares = torch.zeros(len(rows[0]), len(rows), len(rows))
        for at, row in enumerate(rows):
            shares[:, at, : at + 1] = row / row.sum(-1, keepdim=True)
        names = tuple(map(sublayer_name, paths))
        maps.append(DepthMap(stack, tokens, (*names, OUTPUT), (EMBEDDING, *names), shares))
    return tuple(maps)


def _rows(
    recorded: Mapping[str, tuple[Tensor, ...]], paths: Sequence[str], prefix: str, length: int
) -> list[Float[Tensor, "T n"]]:
    """The weights of the outputs so far, at each sublayer and at the end of a stack."""
    if f"{paths[0]}.read" in recorded:  # attention over depth: its own weights
        return [recorded[f"{path}.read"][1][0] for path in (*paths, f"{prefix}norm")]
    if f"{paths[0]}.mixing" not in recorded:  # the plain sum
        return [torch.ones(length, count) for count in range(1, len(paths) + 2)]
    # Hyper-connections: what each stream holds of each output, followed through all mixing
    mixing = [[one[0] for one in recorded[f"{path}.mixing"]] for path in paths]
    length, streams = mixing[0][0].shape
    held, rows = torch.ones(length, streams, 1), list[Tensor]()  # (T, n, outputs so far)
    for read, write, mix in mixing:
        rows.append((read[:, None] @ held)[:, 0])
        held = torch.cat((mix @ held, write[..., None]), dim=-1)
    return [*rows, held.mean(1)]


def sublayer_name(path: str) -> str:
    """Such as L2 attention, of layers.2.around_causal."""
    above, _, part = path.rpartition(".around_")
    return f"L{above.rpartition('.')[2]} {PARTS[part]}"


def of_checkpoint(checkpoint: Checkpoint, example: int) -> tuple[DepthMap, ...]:
    """The maps of a run's weights on one of its watched examples."""
    run = Run(checkpoint.path)
    config = run.config()
    model, task = run.model(checkpoint.step)
    watched = watched_examples(config.task, config.num_examples)
    return depth_maps(model, config.model, task, watched[example])


@dataclass(frozen=True)
class Reading:
    """The share of an output in what a sublayer reads, and the share if all were equal."""

    reader: str
    output: str
    share: float
    equal: float


def farthest(depth: DepthMap) -> Reading:
    """The reading that is most above an equal share, of all that skip the latest output."""
    mean = depth.shares.mean(0)
    equal = 1 / torch.arange(1, len(mean) + 1.0)[:, None]
    row, column = divmod(int((mean / equal).tril(-1).argmax()), len(mean))
    return Reading(
        depth.readers[row], depth.outputs[column], float(mean[row, column]), float(equal[row])
    )
