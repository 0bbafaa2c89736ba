"""Model cards: published models, layer by layer, as configs of this lab; and the size of their caches."""

from dataclasses import dataclass

from core.attention import AttentionConfig, Choice
from core.models.cards.base import ModelCard
from core.models.cards.published import CARDS


def card(key: str) -> ModelCard:
    """The card of that key; KeyError lists the keys there are."""
    known = {one.key: one for one in CARDS}
    if key not in known:
        raise KeyError(f"{key} is no model card; expected one of {', '.join(known)}.")
    return known[key]


LENGTHS = tuple(2**power for power in range(10, 21))  # 1k to 1M tokens
SHORT, LONG = 8192, 131072


def cache(one: ModelCard, length: int) -> int | None:
    """Bytes of the cache of one sequence; None where nothing is stored or known, or a text of that length has no
    positions."""
    if not one.stores or not one.known or (one.longest and length > one.longest):
        return None
    return one.cache_bytes(length)


def curve(one: ModelCard) -> list[tuple[int, int]]:
    """Its cache's bytes at each length that it can have."""
    return [(length, size) for length in LENGTHS if (size := cache(one, length)) is not None]


def curves(keys: tuple[str, ...]) -> dict[str, list[tuple[int, int]]]:
    """By name of a model that stores something, its curve."""
    known = [card(key) for key in dict.fromkeys(keys)]
    return {one.name: points for one in known if (points := curve(one))}


LATENT, ROTARY, WINDOW, GROUPS = 512, 64, 4096, 8


# Those whose layers all store alike.
MODELS = {
    key: card(key) for key in ("olmo2", "llama2", "llama3", "qwen3", "deepseek_v2") if CARDS[9:]
}


@dataclass(frozen=True)
class Form:
    """A way to store keys and values: its projection, and what bounds the tokens that it stores."""

    name: str
    projection: str
    window: int | None = None  # tokens stored at most
    state: bool = False  # one state for the whole text

    def config(self, model: ModelCard) -> AttentionConfig:
        """The layer with this projection at the model's sizes; nothing is built."""
        params = {
            "latent": {"latent": LATENT, "rope": ROTARY},
            "grouped_query": {"kv_heads": GROUPS},
            "keys_as_values": {"kv_heads": model.attention.num_heads},
        }.get(self.projection, {})
        size = model.attention.num_heads * model.attention.head_dim
        return AttentionConfig(
            size, model.attention.num_heads, Choice.of(self.projection, **params)
        )


FORMS = {
    "multi_head": Form("Multi-head", "multi_head"),
    "grouped_query": Form(f"Grouped-query ({GROUPS})", "grouped_query"),
    "multi_query": Form("Multi-query", "multi_query"),
    "latent": Form("Latent (MLA)", "latent"),
    "window": Form(f"Window of {WINDOW:,}", "multi_head", window=WINDOW),
    "keys_as_values": Form("Keys as values", "keys_as_values"),
    "linear": Form("Linear state", "multi_head", state=True),
}


def layer_numbers(model: ModelCard, form: Form, length: int) -> int:
    """Numbers that one layer stores of one sequence.

    A linear state is, for each head, the sum of k vᵀ (D × D) and the sum of k (D).
    """
    heads, size = model.attention.num_heads, model.attention.head_dim
    if form.state:
        return heads * size * (size + 1)
    return form.config(model).sizes.cache * min(length, form.window or length)


def cache_bytes(model: ModelCard, form: Form, length: int, number_bytes: int) -> int:
    """Bytes that all layers store of one sequence."""
    return len(model.layers) * layer_numbers(model, form, length) * number_bytes


def layer_flops(model: ModelCard, form: Form, length: int) -> int:
    """Operations of one layer's attention for one new token: q · k and weights · v, a multiply and an add each.

    The latent form scores and sums latents (absorbed matrices); a linear state is written and read, 2 D² each.
    """
    heads, size = model.attention.num_heads, model.attention.head_dim
    if form.state:
        return 4 * heads * size * (size + 1)
    per_key = 2 * LATENT + ROTARY if form.projection == "latent" else 2 * size
    return 2 * heads * per_key * min(length, form.window or length)


def intensity(model: ModelCard, form: Form, length: int, number_bytes: int) -> float:
    """Operations of attention for each byte of cache that is read, or of a state that is read and written."""
    moved = layer_numbers(model, form, length) * number_bytes * (2 if form.state else 1)
    return layer_flops(model, form, length) / moved


@dataclass(frozen=True)
class Step:
    """One decoding step of a batch: its operations, the bytes it reads, and the seconds that each takes."""

    flops: float
    weight_bytes: float
    cache_bytes: float
    computing: float
    reading: float

    @property
    def intensity(self) -> float:
        return self.flops / (self.weight_bytes + self.cache_bytes)

    @property
    def bound(self) -> str:
        """What takes longer: "memory" or "computing"."""
        return "memory" if self.reading > self.computing else "computing"


def decoding_step(
    model: ModelCard,
    form: Form,
    length: int,
    batch: int,
    number_bytes: int,
    bandwidth: float,
    speed: float,
) -> Step:
    """One new token for each of `batch` sequences, on a machine of `bandwidth` bytes and `speed` operations a second.

    A token takes 2 operations for each parameter that it uses. A batch reads each parameter once; of a model of experts
    at most those of all its tokens.
    """
    flops = batch * (2 * model.active + len(model.layers) * layer_flops(model, form, length))
    weights = min(model.parameters, model.active * batch) * number_bytes
    stored = batch * cache_bytes(model, form, length, number_bytes) * (2 if form.state else 1)
    return Step(flops, weights, stored, flops / speed, (weights + stored) / bandwidth)
