"""What the page compares: the mechanisms in their order, the tokens and sizes they share, and the link that says it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.attention import AttentionConfig, ConfigError, check_sizes
from core.entries import quote
from dashboard.runtime.mechanism_codec import from_text, to_text
from dashboard.widgets.panels import plain

SENTENCE = "The animal didn't cross the street because it was too tired."
FIRST = ("", "position=alibi", "mask=local(window=3)", "kernel=linear")
FEWEST, MOST = 2, 6
SEEDED = "seeded"
LAYERS, HEADS, WIDTH = 6, 12, 384  # of all-MiniLM-L6-v2
MINILM = tuple(f"{layer}.{head}" for layer in range(LAYERS) for head in range(HEADS))
LAST_SEED, WIDEST, MOST_HEADS = 999_999, 512, 16
LENGTHS = (128, 256, 512, 1024)

Pair = tuple[int, int]
Query = Mapping[str, str | list[str]]


@dataclass(frozen=True)
class Setup:
    """All that the page's picture follows from; two equal setups draw the same."""

    mechanisms: tuple[AttentionConfig, ...]
    source: str = "3.1"  # SEEDED, or MiniLM's layer.head
    text: str = SENTENCE
    d_model: int = 16  # of the seeded layer, as its heads and the head that is drawn
    num_heads: int = 2
    head: int = 0
    seed: int = 126
    minus: Pair = (1, 0)
    length: int = 512

    @property
    def seeded(self) -> bool:
        return self.source == SEEDED

    @property
    def sizes(self) -> Pair:
        """d_model and heads in which every mechanism is drawn."""
        return (self.d_model, self.num_heads) if self.seeded else (WIDTH, HEADS)

    @property
    def place(self) -> Pair:
        """The layer and the head that is drawn."""
        if self.seeded:
            return 0, self.head
        layer, head = self.source.split(".")
        return int(layer), int(head)

    def sized(self, config: AttentionConfig) -> AttentionConfig:
        """A mechanism at the sizes compared; ConfigError where it cannot be had there."""
        d_model, num_heads = self.sizes
        return config.with_(d_model=d_model, num_heads=num_heads)


def first() -> Setup:
    """What is compared when nothing was asked for."""
    return Setup(tuple(from_text(text, (WIDTH, HEADS)) for text in FIRST))


def to_query(setup: Setup) -> dict[str, str | list[str]]:
    """The setup as the link's parameters; what is as at first sight is left out."""
    usual = first()
    found: dict[str, str | list[str]] = {}
    mechanisms = [to_text(config, sizes=False) for config in setup.mechanisms]
    if mechanisms != list(FIRST):
        found["m"] = mechanisms
    for name in ("source", "text", "seed", "length"):
        if getattr(setup, name) != getattr(usual, name):
            found[name] = str(getattr(setup, name))
    if setup.seeded and (setup.sizes, setup.head) != ((usual.d_model, usual.num_heads), usual.head):
        found["sizes"] = f"{setup.d_model}.{setup.num_heads}.{setup.head}"
    if setup.minus != usual.minus:
        found["minus"] = f"{setup.minus[0]}.{setup.minus[1]}"
    return found


def from_query(query: Query) -> tuple[Setup, list[str]]:
    """The setup that a link says, and a sentence for each thing in it that cannot be had (its usual is taken)."""
    setup, refused = first(), []
    for name, read in READERS.items():
        if name not in query:
            continue
        try:
            setup = read(setup, query[name])
        except (ConfigError, ValueError) as error:
            refused.append(f"The link's {name} is not used. {plain(str(error))}")
    return fitting(setup), refused


def fitting(setup: Setup) -> Setup:
    """The difference is of two mechanisms that are there, and the head drawn is one of the layer's."""
    last = len(setup.mechanisms) - 1
    minus = setup.minus if max(setup.minus) <= last and setup.minus[0] != setup.minus[1] else (1, 0)
    return replace(setup, minus=minus, head=min(setup.head, setup.num_heads - 1))


def _mechanisms(setup: Setup, value: str | list[str]) -> Setup:
    texts = [value] if isinstance(value, str) else list(value)
    if not FEWEST <= len(texts) <= MOST:
        raise ConfigError(f"It has {len(texts)} mechanisms; expected {FEWEST} to {MOST}.")
    return replace(setup, mechanisms=tuple(from_text(text, setup.sizes) for text in texts))


def _source(setup: Setup, value: str) -> Setup:
    if value != SEEDED and value not in MINILM:
        raise ConfigError(f"source = {quote(value)}; expected {SEEDED}, or MiniLM's layer.head from 0.0 to "
                          f"{LAYERS - 1}.{HEADS - 1}.")
    return replace(setup, source=value)


def _sizes(setup: Setup, value: str) -> Setup:
    d_model, num_heads, head = _numbers(value, 3, "sizes", "16.2.0")
    if d_model > WIDEST:
        raise ConfigError(f"d_model = {d_model}; expected 1 to {WIDEST}.")
    check_sizes(d_model, num_heads)
    if num_heads > MOST_HEADS:
        raise ConfigError(f"num_heads = {num_heads}; expected at most {MOST_HEADS} here.")
    return replace(setup, d_model=d_model, num_heads=num_heads, head=head)


def _minus(setup: Setup, value: str) -> Setup:
    a, b = _numbers(value, 2, "minus", "1.0")
    if max(a, b) >= len(setup.mechanisms) or a == b:
        raise ConfigError(f"minus = {a}.{b}; expected two different mechanisms from 0 to {len(setup.mechanisms) - 1}.")
    return replace(setup, minus=(a, b))


def _seed(setup: Setup, value: str) -> Setup:
    (seed,) = _numbers(value, 1, "seed", "126")
    if seed > LAST_SEED:
        raise ConfigError(f"seed = {seed}; expected 0 to {LAST_SEED}.")
    return replace(setup, seed=seed)


def _length(setup: Setup, value: str) -> Setup:
    (length,) = _numbers(value, 1, "length", "512")
    if length not in LENGTHS:
        raise ConfigError(f"length = {length}; expected one of {', '.join(map(str, LENGTHS))}.")
    return replace(setup, length=length)


def _numbers(value: str, count: int, name: str, example: str) -> list[int]:
    parts = value.split(".")
    if len(parts) != count or not all(part.isascii() and part.isdigit() and len(part) < 7 for part in parts):
        raise ConfigError(f"{name} = {quote(value)}; expected whole numbers such as {name}={example}.")
    return [int(part) for part in parts]


# in the order in which they lean on each other: mechanisms are made at the sizes of the source
READERS: dict[str, Callable[[Setup, Any], Setup]] = {
    "source": _source, "sizes": _sizes, "m": _mechanisms, "minus": _minus, "seed": _seed, "length": _length,
    "text": lambda setup, value: replace(setup, text=value),
}
