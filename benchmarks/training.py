"""Training tokens/s of the same model three times: ours, built from nn.Transformer's layers, and x-transformers.

Encoder, decoder-only and encoder–decoder: 4 layers (2 and 2), d 128, 4 heads, feed-forward 512 with GELU, pre-norm, no
dropout, no positions, T 128, batch 16: embedding, stack, head, backward, AdamW. One thread, as runs are trained, and
CPU seconds, so that a busy machine weighs on none. Then what a run spends beside its steps: on recording attention, and
on making data.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from x_transformers import Decoder as XDecoder, Encoder as XEncoder

from benchmarks.timing import Row, clock_of, median_ratio, rounds
from core.attention.cost import CPU
from core.models import Encoder, ModelConfig, Shape, build_model
from core.tasks import TaskConfig, make_task
from core.training import prepare, recommended
from core.training.evaluate import frames
from core.training.loop import one_step

WIDTH, HEADS, INNER, LENGTH, BATCH, WORDS, DEEP = 128, 4, 512, 128, 16, 256, 4
SHAPE = Shape(WORDS, WORDS, LENGTH + 1, one_vocabulary=True)
TORCH, XT = "nn.Transformer's layers", "x-transformers"


def ours(kind: str, layers: int) -> ModelConfig:
    return ModelConfig.transformer(
        WIDTH, HEADS, layers, INNER, kind=kind, norm="pre", activation="gelu"
    )


class Peer(nn.Module):
    """Embeddings, a stack from elsewhere, a head."""

    def __init__(self, stack: nn.Module, call: Callable[..., Tensor], both: bool = False) -> None:
        super().__init__()
        self.stack, self.call = stack, call
        self.source, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.target = nn.Embedding(WORDS, WIDTH) if both else None

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        fed = (
            (self.source(source),)
            if self.target is None
            else (self.source(source), self.target(target))
        )
        return self.head(self.call(self.stack, *fed))


class OwnEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder(ours("transformer", DEEP))

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)[0]


class Own(nn.Module):
    """One of our models on a source without padding."""

    def __init__(self, kind: str, layers: int) -> None:
        super().__init__()
        self.model, self.fed = build_model(ours(kind, layers), SHAPE), kind == "transformer"
        self.register_buffer("real", torch.ones(BATCH, LENGTH, dtype=torch.bool))

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        return self.model(source, self.real, target if self.fed else None).logits


def torch_encoder(layers: int) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        WIDTH, HEADS, INNER, 0.0, "gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, layers, nn.LayerNorm(WIDTH), enable_nested_tensor=False)


def torch_both(layers: int) -> nn.Transformer:
    layer = nn.TransformerDecoderLayer(
        WIDTH, HEADS, INNER, 0.0, "gelu", batch_first=True, norm_first=True
    )
    return nn.Transformer(
        WIDTH,
        batch_first=True,
        custom_encoder=torch_encoder(layers),
        custom_decoder=nn.TransformerDecoder(layer, layers, nn.LayerNorm(WIDTH)),
    )


def x_stack(kind: type[nn.Module], layers: int, **more: bool) -> nn.Module:
    return kind(
        dim=WIDTH,
        depth=layers,
        heads=HEADS,
        attn_dim_head=WIDTH // HEADS,
        attn_flash=True,
        ff_mult=4,
        **more,
    )


def contenders() -> dict[str, dict[str, nn.Module]]:
    future = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    half = DEEP // 2

    def causal(stack: nn.Module, x: Tensor) -> Tensor:
        return stack(x, mask=future, is_causal=True)

    def across(stack: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return stack(x, y, tgt_mask=future, tgt_is_causal=True)

    x_both = nn.ModuleList([x_stack(XEncoder, half), x_stack(XDecoder, half, cross_attend=True)])
    plain = lambda stack, x: stack(x)  # noqa: E731
    return {
        "encoder": {
            "ours": Peer(OwnEncoder(), plain),
            TORCH: Peer(torch_encoder(DEEP), plain),
            XT: Peer(x_stack(XEncoder, DEEP), plain),
        },
        "decoder only": {
            "ours": Own("decoder", DEEP),
            TORCH: Peer(torch_encoder(DEEP), causal),
            XT: Peer(x_stack(XDecoder, DEEP), plain),
        },
        "encoder–decoder": {
            "ours": Own("transformer", half),
            TORCH: Peer(torch_both(half), across, both=True),
            XT: Peer(x_both, lambda both, x, y: both[1](y, context=both[0](x)), both=True),
        },
    }


def trainer(model: nn.Module) -> Callable[[], None]:
    """One training step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    source, target = torch.randint(WORDS, (2, BATCH, LENGTH)).unbind()

    def step() -> None:
        loss = F.cross_entropy(model(source, target).flatten(0, 1), target.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def rows(count: int = 7, times: int = 1, device: str = CPU) -> list[Row]:
    torch.manual_seed(0)
    usual = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # not around the steps, whose optimizer would then wait for the GPU
        with torch.device(device):
            steps = {
                name: {who: trainer(model) for who, model in made.items()}
                for name, made in contenders().items()
            }
        results = [
            row for name, each in steps.items() for row in speeds(name, each, count, times, device)
        ]
        return results + beside_the_steps(device)
    finally:
        torch.set_num_threads(usual)


def speeds(
    name: str, steps: Mapping[str, Callable[[], object]], count: int, times: int, device: str
) -> list[Row]:
    taken = rounds(steps, count, times, clock_of(device), device)
    speed = {who: BATCH * LENGTH / statistics.median(seconds) for who, seconds in taken.items()}
    return [
        Row(
            f"training, {name}, tokens/s",
            peer,
            f"{speed['ours']:,.0f}",
            f"{speed[peer]:,.0f}",
            median_ratio(taken[peer], taken["ours"]),
            "≥ 1.00",
        )
        for peer in steps
        if peer != "ours"
    ]


def beside_the_steps(device: str, count: int = 20) -> list[Row]:
    """In shares of a recipe's own steps: keeping the attention of its watched examples, and making its data."""
    times = []
    for key, kind in (
        ("reverse", "transformer"),
        ("numbers", "transformer"),
        ("topics", "decoder"),
    ):
        config = recommended(make_task(TaskConfig.of(key)), kind, device=device)
        session = prepare(config)
        watched = session.held_out[: config.num_examples]
        taken = rounds(
            {
                "step": partial(one_step, session, 1),
                "data": partial(session.task.batch, config.batch_size, session.data),
                "frames": partial(
                    frames, session.model, config.model, session.task, watched, session.device
                ),
            },
            count,
            clock=clock_of(device),
            device=device,
        )
        cost = {what: statistics.fmean(seconds) for what, seconds in taken.items()}
        text = f"{kind}, every {config.record_every} steps"
        for what, share, budget in (
            ("recording attention", cost["frames"] / (cost["step"] * config.record_every), "≤ 5 %"),
            ("making data", cost["data"] / cost["step"], "< 5 %"),
        ):
            times.append(
                Row(
                    f"{what}, share of training, {key}",
                    text,
                    f"{share:.1%}",
                    "–",
                    float("nan"),
                    budget,
                )
            )
    return times
