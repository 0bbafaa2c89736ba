"""One seeding for all pages: weights and inputs depend on the seed and on their name alone, whatever else is drawn.

A training run seeds its whole process instead (core.training.loop), and `seeded_rng` starts a model as it does.
"""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from core.attention import Attention, AttentionConfig, MultiHead
from core.attention.projections.multi_head import GroupedQuery
from core.memory import ByteLRUCache

LAMBDA_STD = 0.1  # of the vectors that make a differential layer's λ, as training starts them
TABLE_STD = 0.5  # training starts a table of positions near 0, which no picture would show
_RNG_LOCK = threading.Lock()  # torch's generator is shared by all threads


def seeded_generator(seed: int, name: str) -> torch.Generator:
    """A CPU generator for this seed and name."""
    digest = hashlib.blake2b(
        f"{seed}:{name}".encode("utf-8", "surrogatepass"), digest_size=7
    ).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest))


def seeded_normal(*shape: int, seed: int, name: str) -> torch.Tensor:
    """Standard normal numbers of that shape."""
    return torch.randn(shape, generator=seeded_generator(seed, name))


def seed_layer(layer: torch.nn.Module, seed: int) -> None:
    """Draw the weights of a layer in place, each by its own name, so that equal names and shapes get equal weights.

    A weight that the module starts at one value (a gain, a bias, a sink) stays as it is.
    """
    for name, weight in layer.named_parameters():
        if bool((weight != weight.flatten()[0]).any()):
            table = TABLE_STD if name.startswith("position") else float(weight.shape[-1] ** -0.5)
            std = LAMBDA_STD if "lambda" in name else table
            weight.normal_(std=std, generator=seeded_generator(seed, name))


_layers = ByteLRUCache({"layers": (50_000_000, 48)})


def seeded_layer(config: AttentionConfig, seed: int) -> Attention:
    """The layer of a config with seeded weights, in eval mode; shared by all sessions, so never change it."""

    def make() -> Attention:
        layer = Attention(config, add_positions=True).eval().requires_grad_(False)
        seed_layer(layer, seed)
        return layer

    return _layers.get("layers", (config, seed), make)


def pooled_layer(config: AttentionConfig, seed: int) -> Attention:
    """The seeded layer; shared keys and values are the means of the multi-head layer's, so that both can be compared.

    Ainslie et al. 2023 make a grouped-query model of a multi-head one in this way.
    """
    if config.projection.key not in ("grouped_query", "multi_query"):
        return seeded_layer(config, seed)
    many = seeded_layer(AttentionConfig(config.d_model, config.num_heads), seed).projection
    assert isinstance(many, MultiHead)
    layer = Attention(config).eval().requires_grad_(False)
    layer.projection = GroupedQuery.pooled(many, config.kv_heads).requires_grad_(False)
    return layer


@contextmanager
def seeded_rng(seed: int) -> Iterator[None]:
    """Torch's process-wide generator seeded as in a training run, one thread at a time; restored afterwards."""
    with _RNG_LOCK, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield
