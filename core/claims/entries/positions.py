"""Positions and distance: extrapolation, adding or appending positions, the path between two tokens."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch
import torch.nn.functional as F

from core.attention import Attention, AttentionConfig
from core.attention.positions.relative import sinusoids
from core.attention.properties import shift_error, sinusoid_shift
from core.claims.base import (
    VASWANI,
    Claim,
    ClaimSettings,
    Figure,
    Learned,
    Number,
    Part,
    Pick,
    Published,
    Results,
    SeedValues,
    Source,
    Stop,
    difference,
    ratio,
)
from core.claims.experiment import Trained, fewest_seconds, fit, numbers, trained_for
from core.entries import Choice, Param
from core.models import Model, ModelConfig, build_model
from core.seeding import seeded_generator, seeded_layer, seeded_normal
from core.tasks import TaskConfig
from core.training.evaluate import bits_by_length, until

LENGTH = 64  # of the windows in training
LENGTHS = (LENGTH, 2 * LENGTH, 4 * LENGTH)
TEXT = TaskConfig.of("topics", length=LENGTH)
NONE, SINUSOIDAL, LEARNED, ROPE, YARN, ALIBI = (
    "no positions",
    "sinusoidal",
    "learned",
    "RoPE",
    "RoPE, scaled by YaRN",
    "ALiBi",
)
POSITIONS = {
    NONE: Choice("none"),
    SINUSOIDAL: Choice("sinusoidal"),
    LEARNED: Choice.of("learned", max_len=LENGTHS[-1]),
    ROPE: Choice("rope"),
    YARN: Choice("rope"),
    ALIBI: Choice("alibi"),
}
SCALED = Choice.of("yarn", factor=4.0, original=LENGTH)  # in place of RoPE, after training
BITS, ORDER, SHIFT = "Bits a character", "Change where the order changes", "Error of the linear map"


def measure(condition: str, seed: int, settings: ClaimSettings, stop: Stop) -> Iterator[Number]:
    """What a change of order changes, the map of a shift, and a trained model's bits at each length."""
    yield ORDER, order_change(POSITIONS[condition], seed), None
    if condition == NONE:
        return  # it has nothing to extrapolate
    if condition == SINUSOIDAL:
        yield SHIFT, shift(1 + seed), None
    model = ModelConfig.transformer(
        64, 4, 2, kind="decoder", norm="pre", position=POSITIONS[condition]
    )
    result = trained_for(TEXT, model, seed, settings, stop, batch_size=16, decode_every=2)
    reader = scaled(result) if condition == YARN else result.model
    for length, bits in bits_by_length(reader, TEXT, LENGTHS).items():
        yield BITS, bits, length


@torch.no_grad()
def order_change(position: Choice, seed: int) -> float:
    """‖f(Px) − P f(x)‖ / ‖f(x)‖ of an attention layer f without a mask and a random order P of 32 random inputs."""
    layer = seeded_layer(AttentionConfig(64, 4, position=position), seed)
    x = seeded_normal(1, 32, 64, seed=seed, name="claim.x")
    order = torch.randperm(32, generator=seeded_generator(seed, "claim.order"))
    first, second = layer(x).merged, layer(x[:, order]).merged
    assert first is not None and second is not None  # a layer's call always merges
    return float((second - first[:, order]).norm() / first.norm())


def shift(by: int) -> float:
    """The error of the linear map from PE(i) to PE(i + by), relative to PE."""
    table = sinusoids(torch.arange(4 * LENGTH, dtype=torch.float64), 64)
    return shift_error(sinusoid_shift(table[by]), table, by)


def scaled(result: Trained) -> Model:
    """The trained model with its rotary angles scaled."""
    config: ModelConfig = result.model.config  # type: ignore[assignment]  # every model has one
    model = build_model(
        config.with_attentions(lambda one: one.with_(position=SCALED)), result.task.shape
    )
    model.load_state_dict(result.model.state_dict())
    return model.eval()


def learned(*conditions: str) -> Learned:
    """Models with these positions have learned the text at the length of training."""
    return Learned(BITS, high=2.75, x=LENGTH, conditions=conditions, unit="positive")


def _rise(condition: str, seed: SeedValues, length: int = LENGTHS[-1]) -> float:
    return seed.one(condition, BITS, length) - seed.one(condition, BITS, LENGTH)


def _lasts_longest(results: Results) -> int:
    rises = [results.mean_of(partial(_rise, condition)) for condition in (SINUSOIDAL, ROPE, ALIBI)]
    return rises.index(min(rises)) if min(rises) <= 0.1 else 3


POSITIONS_CLAIM = Claim(
    key="positions",
    name="Positions beyond the training length",
    subject="Positions",
    statement="Without positions attention does not see the order; sinusoidal and learned positions fail beyond the "
    "length of training, RoPE lasts longer, scaled RoPE longer still, and ALiBi extrapolates.",
    source=Source(
        authors="Press, Ofir and Smith, Noah A. and Lewis, Mike",
        title="Train Short, Test Long: Attention with Linear Biases Enables Input Length Extrapolation",
        year=2022,
        url="https://arxiv.org/abs/2108.12409",
    ),
    refutation="Without positions a change of the order changes the outputs by more than 0.01 %, or with sinusoidal "
    "ones by less than 1 %; no linear map takes PE(i) to PE(i + k); at four times the length, sinusoidal, "
    "learned or rotary positions lose less than 0.25 bits a character, or ALiBi loses 0.1; at twice the "
    "length RoPE loses no less than sinusoidal positions; YaRN does not win back 0.1 bits.",
    guess=Pick(
        "Models learn windows of 64 characters. Which one predicts the characters of windows of 256 as well?",
        (
            "The one with sinusoidal positions",
            "The one with RoPE",
            "The one with ALiBi",
            "None of them",
        ),
        _lasts_longest,
    ),
    settings=(
        Param(
            "steps",
            "Training steps",
            default=1500,
            low=25,
            high=5000,
            step=25,
            meaning="how long each model learns the text",
        ),
    ),
    conditions=lambda settings: tuple(POSITIONS),
    measure=measure,
    parts=(
        Part(
            "Without positions, attention does not see the order.",
            lambda seed: seed.one(NONE, ORDER),
            "change of the outputs",
            high=1e-4,
            unit="positive",
        ),
        Part(
            "With sinusoidal positions it does.",
            lambda seed: seed.one(SINUSOIDAL, ORDER),
            "change of the outputs",
            low=0.01,
            unit="positive",
        ),
        Part(
            "PE(i + k) is a linear map of PE(i).",
            lambda seed: seed.one(SINUSOIDAL, SHIFT),
            "error of the map",
            high=1e-3,
            unit="positive",
        ),
        Part(
            "Sinusoidal positions do not extrapolate.",
            lambda seed: _rise(SINUSOIDAL, seed),
            "bits lost at 4 times the length",
            low=0.25,
            learned=learned(SINUSOIDAL),
        ),
        Part(
            "Learned positions do not.",
            lambda seed: _rise(LEARNED, seed),
            "bits lost at 4 times the length",
            low=0.25,
            learned=learned(LEARNED),
        ),
        Part(
            "RoPE does not.",
            lambda seed: _rise(ROPE, seed),
            "bits lost at 4 times the length",
            low=0.25,
            learned=learned(ROPE),
        ),
        Part(
            "At twice the length, RoPE loses less than sinusoidal positions.",
            lambda seed: _rise(SINUSOIDAL, seed, LENGTHS[1]) - _rise(ROPE, seed, LENGTHS[1]),
            "bits lost by sinusoidal positions, less those lost by RoPE",
            low=0.0,
            learned=learned(SINUSOIDAL, ROPE),
        ),
        Part(
            "Scaled RoPE loses less than RoPE.",
            difference((ROPE, BITS, LENGTHS[-1]), (YARN, BITS, LENGTHS[-1])),
            "bits won by YaRN at 4 times the length",
            low=0.1,
            learned=learned(ROPE),
        ),
        Part(
            "ALiBi extrapolates.",
            lambda seed: _rise(ALIBI, seed),
            "bits lost at 4 times the length",
            high=0.1,
            learned=learned(ALIBI),
        ),
    ),
    figures=(
        Figure(
            "Bits a character on unseen windows, trained at 64 characters",
            BITS,
            x="length",
            unit="positive",
            log="x",
        ),
        Figure(
            "Change of an attention layer's outputs where the order of the inputs changes",
            ORDER,
            unit="positive",
        ),
    ),
    limits="One text (the Python reference, by characters), two layers, a few hundred steps: the models are far from "
    "their best at any length. The learned table has rows up to 256, of which training reaches 64. YaRN scales "
    "a trained model without the fine-tuning of its authors. That ALiBi extrapolates does not show that it "
    "uses the longer context.",
    tried="A pilot with one seed and 50 steps, 10 s of a core: about 4 bits at any length and no loss above 0.11 "
    "bits, as models that young hardly read beyond the last character. Then 225 steps, about as many as five "
    "seeds can take within 180 s of a core. "
    "The first result had 225 steps and 5 seeds, in which not all models had learned, so that it measured "
    "who learns sooner. The steps were raised to 1,500, and a criterion of learning was added; the bounds stay.",
    published=(
        Published(
            place="abstract",
            url="https://arxiv.org/abs/2108.12409",
            columns=("Positions", "Trained at", "Tested at", "Perplexity"),
            rows=(
                ("sinusoidal", "2,048", "2,048", "the same"),
                ("ALiBi", "1,024", "2,048", "the same, trained 11 % faster with 11 % less memory"),
            ),
            setting="Language models of 1.3 billion parameters.",
        ),
        Published(
            place="section 4.1",
            url="https://arxiv.org/abs/2108.12409",
            columns=("Positions", "Trained at", "Tested at", "Perplexity"),
            rows=(
                ("sinusoidal", "3,072", "3,072", "18.67"),
                ("ALiBi", "3,072", "3,072", "17.60"),
                ("ALiBi", "512", "512", "19.73"),
                ("ALiBi", "512", "3,072", "18.40"),
            ),
            setting="WikiText-103.",
        ),
        Published(
            place="Vaswani et al. 2017, table 3, row E and the base model",
            url=VASWANI.url,
            columns=("Positions", "Perplexity", "BLEU"),
            rows=(("sinusoidal", "4.92", "25.8"), ("learned", "4.92", "25.7")),
            setting="English to German, development set newstest2013.",
        ),
    ),
    scope="in models of d_model 64 with 2 layers that read characters",
)


ADDED, JOINED = "added", "concatenated"
ACCURACY, PARAMETERS = "Accuracy", "Parameters"
LEARNED_PLACES = Learned(ACCURACY, 0.99)
NUM_LETTERS, LETTERS, WIDTH, HEADS, HELD_OUT = 16, 26, 32, 2, 500


class Reverser(torch.nn.Module):
    """Embedding, positions in one of three ways, one layer of attention and feed-forward: a letter for each place."""

    def __init__(self, condition: str) -> None:
        super().__init__()
        of_positions = WIDTH // 2 if condition == JOINED else WIDTH if condition == ADDED else 0
        self.joined = condition == JOINED
        self.letters = torch.nn.Embedding(LETTERS, WIDTH - of_positions if self.joined else WIDTH)
        self.positions = torch.nn.Embedding(NUM_LETTERS, of_positions) if of_positions else None
        self.attention = Attention(AttentionConfig(WIDTH, HEADS))
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.output = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 2 * WIDTH), torch.nn.ReLU(), torch.nn.Linear(2 * WIDTH, LETTERS)
        )

    def forward(self, letters: torch.Tensor) -> torch.Tensor:
        """Logits (B, T, V) of letters (B, T)."""
        x = self.letters(letters)
        if self.positions is not None:
            places = self.positions.weight.expand(len(x), -1, -1)
            x = torch.cat([x, places], -1) if self.joined else x + places
        logits: torch.Tensor = self.output(self.norm(x + self.attention(x).merged))
        return logits


def measure_concatenation(
    condition: str, seed: int, settings: ClaimSettings, stop: Stop
) -> Iterator[Number]:
    """The accuracy of each letter of a reversed line after training, and the model's size."""
    torch.manual_seed(seed)
    model, draw = Reverser(condition), torch.Generator().manual_seed(seed)

    def loss() -> torch.Tensor:
        lines = torch.randint(LETTERS, (64, NUM_LETTERS), generator=draw)
        return F.cross_entropy(model(lines).flatten(0, 1), lines.flip(1).flatten())

    fit(model, loss, int(settings["steps"]), 3e-3, stop)
    lines = torch.randint(LETTERS, (HELD_OUT, NUM_LETTERS), generator=draw)
    with torch.no_grad():
        right = model.eval()(lines).argmax(-1) == lines.flip(1)
    parameters = sum(weight.numel() for weight in model.parameters())
    yield from numbers({ACCURACY: float(right.float().mean()), PARAMETERS: parameters})


CONCATENATION = Claim(
    key="concatenation",
    name="Adding positions",
    subject="Positions",
    statement="Positions are added to the tokens' vectors rather than concatenated, and nothing is lost by it.",
    source=replace(VASWANI, part="section 3.5"),
    refutation="At equal width the model that adds is more than 2 points less accurate than the one that "
    "concatenates; or the model without positions learns the task as well.",
    guess=Pick(
        "Both models have 32 numbers a token. One adds position to letter, one keeps 16 for each. Which "
        "reverses lines better?",
        ("The one that adds", "Both the same, within 2 points", "The one that concatenates"),
        lambda results: (
            1
            + (results.mean(JOINED, ACCURACY) > results.mean(ADDED, ACCURACY) + 0.02)
            - (results.mean(ADDED, ACCURACY) > results.mean(JOINED, ACCURACY) + 0.02)
        ),
    ),
    settings=(
        Param(
            "steps",
            "Training steps",
            default=500,
            low=50,
            high=3000,
            step=50,
            meaning="how long each model learns to reverse",
        ),
    ),
    conditions=lambda settings: (ADDED, JOINED, NONE),
    measure=measure_concatenation,
    parts=(
        Part(
            "Adding loses nothing against concatenating.",
            difference((ADDED, ACCURACY), (JOINED, ACCURACY)),
            "accuracy added − concatenated",
            low=-0.02,
            unit="gain",
            resolution=0.003,
            learned=LEARNED_PLACES,
        ),
        Part(
            "Without positions the task cannot be learned.",
            lambda seed: seed.one(NONE, ACCURACY),
            "accuracy",
            high=0.5,
            unit="share",
            resolution=0.003,
            learned=LEARNED_PLACES,
        ),
    ),
    figures=(
        Figure("Accuracy on reversed lines", ACCURACY, unit="share"),
        Figure("Parameters", PARAMETERS, unit="positive"),
    ),
    limits="Learned positions, lines of 16 letters, one layer of width 32. With 26 letters, 16 numbers a letter are "
    "plenty; a large vocabulary may need the whole width.",
    tried="A pilot with 2 seeds and 50 steps, to see that it runs.",
    no_published="The paper adds without a comparison and prints no figure.",
    scope=f"in models of d_model {WIDTH} with 1 layer that reverse {NUM_LETTERS} letters",
)


ATTENTION, RECURRENT = "attention", "recurrent (GRU)"
DISTANCES = (1, 2, 4, 8, 16, 32, 64)
PATH_LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
SIZE = 64  # d
GRADIENT, SECONDS, FLOPS = "Gradient over distance", "Seconds a sequence", "FLOPs a sequence"
WAITING = "Seconds of n tokens in a row over n at once"
Layer = Callable[[torch.Tensor], torch.Tensor]


def measure_path(
    condition: str, seed: int, settings: ClaimSettings, stop: Stop
) -> Iterator[Number]:
    """Gradients of an untrained causal layer, then its seconds and FLOPs at each length."""
    layer = build(condition, seed)
    for distance, norm in gradients(layer, seed).items():
        yield GRADIENT, norm, distance
    for length in until(stop, PATH_LENGTHS):
        x = seeded_normal(1, length, SIZE, seed=seed, name="claim.x")
        seconds = forward_seconds(layer, x, int(settings["rounds"]))
        yield from numbers({SECONDS: seconds, FLOPS: flops(condition, length, SIZE)}, length)
        if length == PATH_LENGTHS[3]:
            at_once = forward_seconds(
                layer, x.transpose(0, 1).contiguous(), int(settings["rounds"])
            )
            yield WAITING, seconds / at_once, None


def build(condition: str, seed: int) -> Layer:
    """A causal layer of size 64 as it begins: multi-head attention with its projections, or a GRU."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if condition == RECURRENT:
            cells = torch.nn.GRU(SIZE, SIZE, batch_first=True)
            return lambda x: cells(x)[0]
        attention = Attention(AttentionConfig(SIZE, 4, mask="causal")).eval()

    def attend(x: torch.Tensor) -> torch.Tensor:
        merged = attention(x, record=False).merged
        assert merged is not None  # a layer's call always merges
        return merged

    return attend


def gradients(layer: Layer, seed: int) -> dict[int, float]:
    """The norm of the gradient from the last output to the input so many positions before, over that at distance 1."""
    x = seeded_normal(
        32, max(DISTANCES) + 1, SIZE, seed=seed, name="claim.gradient"
    ).requires_grad_()
    toward = seeded_normal(32, SIZE, seed=seed, name="claim.toward")
    (gradient,) = torch.autograd.grad((layer(x)[:, -1] * toward).sum(), x)
    norms = gradient.norm(dim=(0, 2))
    return {distance: float(norms[-1 - distance] / norms[-2]) for distance in DISTANCES}


@torch.no_grad()
def forward_seconds(layer: Layer, x: torch.Tensor, rounds: int) -> float:
    return fewest_seconds(lambda: layer(x), rounds)


def flops(condition: str, n: int, d: int) -> float:
    """In closed form, those of matrix products: 12 n d² of a GRU's six, 8 n d² + 4 n² d of attention with its four."""
    return 12.0 * n * d**2 if condition == RECURRENT else 8.0 * n * d**2 + 4.0 * n**2 * d


def crossing(seed: SeedValues, measure: str) -> float:
    """The length at which attention begins to cost more, on a straight line between the logarithms of two lengths.

    The first or last length where the curves do not cross between them.
    """
    attention, recurrent = (seed.curve(condition, measure) for condition in (ATTENTION, RECURRENT))
    ratios = {length: attention[length] / recurrent[length] for length in attention}
    above = [length for length, ratio in ratios.items() if ratio >= 1]
    if not above or above[0] == min(ratios):
        return above[0] if above else max(ratios)
    last = max(length for length in ratios if length < above[0])
    low, high = (torch.tensor(ratios[length]).log() for length in (last, above[0]))
    share = float(-low / (high - low))
    return float(last * (above[0] / last) ** share)


def _crossing_over_size(seed: SeedValues) -> float:
    return crossing(seed, SECONDS) / SIZE


PATH = Claim(
    key="path",
    name="Path length and parallelism",
    subject="Why attention",
    statement="Attention connects all positions by a path of length 1 and works on them in parallel; it is faster than "
    "a recurrent layer where a sequence is shorter than the model is wide: n² d against n d².",
    source=replace(VASWANI, part="section 4 and table 1"),
    refutation="At a distance of 64 a recurrent layer keeps 1 % of the gradient at distance 1, or attention less than "
    "10 %; a recurrent layer takes less than twice the seconds for 256 tokens in a row as for 256 at once; "
    "attention is not faster where n = d; its seconds do not grow by at least 2.5 times from 4,096 to "
    "8,192 tokens, or those of a recurrent layer by 2.5 times; attention begins to take longer at a length "
    "that is not within half and twice d.",
    guess=Pick(
        "A layer of width d = 64: from which length on does attention take longer than a recurrent layer, on "
        "one core of a CPU?",
        (
            "From fewer than 32 tokens on",
            "From 32 to 128 tokens on",
            "Only from more than 128 tokens on",
        ),
        lambda results: (
            (results.mean_of(_crossing_over_size) >= 0.5)
            + (results.mean_of(_crossing_over_size) > 2)
        ),
    ),
    settings=(
        Param(
            "rounds",
            "Rounds",
            default=9,
            low=3,
            high=50,
            step=1,
            meaning="calls of which the fastest counts",
        ),
    ),
    conditions=lambda settings: (ATTENTION, RECURRENT),
    measure=measure_path,
    parts=(
        Part(
            "A recurrent layer loses the gradient over distance.",
            lambda seed: seed.one(RECURRENT, GRADIENT, DISTANCES[-1]),
            "gradient at distance 64 over that at 1",
            high=0.01,
            unit="positive",
        ),
        Part(
            "Attention keeps it.",
            lambda seed: seed.one(ATTENTION, GRADIENT, DISTANCES[-1]),
            "gradient at distance 64 over that at 1",
            low=0.1,
            unit="times",
        ),
        Part(
            "A recurrent layer waits for each token.",
            lambda seed: seed.one(RECURRENT, WAITING),
            "seconds of 256 tokens in a row over 256 at once",
            low=2.0,
            unit="times",
        ),
        Part(
            "Where n = d, attention is faster.",
            ratio((RECURRENT, SECONDS, SIZE), (ATTENTION, SECONDS, SIZE)),
            "seconds of the recurrent layer over attention's",
            low=1.0,
            unit="times",
        ),
        Part(
            "Attention's seconds grow faster than the length.",
            ratio((ATTENTION, SECONDS, PATH_LENGTHS[-1]), (ATTENTION, SECONDS, PATH_LENGTHS[-2])),
            "seconds at 8,192 tokens over 4,096",
            low=2.5,
            unit="times",
        ),
        Part(
            "A recurrent layer's grow with the length.",
            ratio((RECURRENT, SECONDS, PATH_LENGTHS[-1]), (RECURRENT, SECONDS, PATH_LENGTHS[-2])),
            "seconds at 8,192 tokens over 4,096",
            high=2.5,
            unit="times",
        ),
        Part(
            "They cross near n = d.",
            _crossing_over_size,
            "measured crossing over d",
            low=0.5,
            high=2.0,
            unit="times",
        ),
    ),
    figures=(
        Figure(
            "Gradient from the last output to an input before it",
            GRADIENT,
            x="distance",
            unit="positive",
            log="xy",
        ),
        Figure("CPU seconds a sequence", SECONDS, x="length", unit="positive", log="xy"),
        Figure(
            "FLOPs a sequence, in closed form: 8 n d² + 4 n² d against 12 n d²",
            FLOPS,
            x="length",
            unit="positive",
            log="xy",
        ),
    ),
    limits="Untrained layers: training can keep a recurrent layer's gradient alive, and can make attention forget. One "
    "core, one sequence, width 64; on a GPU the steps that must wait cost far more. In closed form the two "
    "cross exactly at n = d, as both kinds of layer have their projections; the seconds differ by what each "
    "call costs beside its products.",
    tried="A pilot with one seed and lengths up to 2,048, 0.7 s of a core: attention took 0.1 ms against 0.7 ms at 64 "
    "tokens and 11 against 26 ms at 2,048, so that the curves did not cross; two longer lengths were added.",
    no_published="Vaswani et al. give table 1 in orders of growth, without a measurement.",
    timed=True,
    scope="in one untrained layer of d_model 64",
)
