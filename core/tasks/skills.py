"""Tasks that ask for answers at marked places of a source, as benchmarks of recall, of state and of depth do.

Each follows the generator that its authors published; docs/scoreboard.md says in what it differs.
"""

import itertools
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Int

from core.entries import Param, refuse_if
from core.tasks import recipes
from core.tasks.base import PAD, SPECIALS, Example, Form, RowTask, Vocabulary, choose
from core.tasks.config import TaskConfig, TaskEntry
from core.tasks.sequences import SYLLABLES

POWER = 0.01  # of the gaps between a pair and its query (Zoology 2023, appendix C)
Numbers = tuple[Int[torch.Tensor, "N S"], Int[torch.Tensor, "N S"]]


class MarkedTask(RowTask):
    """A source and, at some of its places, an answer that a causal model gives there.

    Training draws lengths from `lengths`; held-out sources are from half of the longest one up, and every second one
    is longer than all of training, up to `tested`, where that is more.
    """

    form: Form = "marked"
    separator, unit, whole = " ", "token", "sequences"
    everywhere = False  # whether training asks for every next token, as language models are trained

    def __init__(
        self,
        config: TaskConfig,
        entry: TaskEntry,
        names: tuple[str, ...],
        lengths: tuple[int, int],
        tested: int = 0,
    ) -> None:
        self.lengths, self.names, self.tested = lengths, names, max(tested, lengths[1])
        longest = self.size(self.tested)
        vocabulary = Vocabulary(names)
        super().__init__(config, entry, recipes.SKILL, (longest, longest), vocabulary)
        self.longest_trained = self.size(lengths[1]) if self.tested > lengths[1] else 0
        self.ids = torch.tensor([*vocabulary.encode(names), PAD])

    def size(self, length: int) -> int:
        """The tokens of a source of a length."""
        return length

    def numbers(
        self, count: int, length: int, generator: torch.Generator, held_out: bool
    ) -> Numbers:
        """Sources and answers as indices of `names`; an answer of −1 where nothing is asked."""
        raise NotImplementedError

    def sized(self, generator: torch.Generator, held_out: bool) -> Callable[..., Any]:
        low, high = self.lengths
        if held_out:
            low = max(low, high // 2)
            if self.tested > high and choose(generator, 2):
                low, high = high + 1, self.tested
        length = low + choose(generator, high - low + 1)
        return partial(self.rows, length=length, held_out=held_out)

    def rows(
        self,
        count: int,
        generator: torch.Generator,
        length: int | None = None,
        held_out: bool = True,
    ) -> Numbers:
        length = self.lengths[1] if length is None else length
        source, answers = self.numbers(count, length, generator, held_out)
        if self.everywhere and not held_out:
            following = torch.cat((source[:, 1:], answers[:, -1:]), 1)
            answers = torch.where(answers < 0, following, answers)
        return self.ids[source], self.ids[answers]


def distinct(
    count: int, high: int, size: int, generator: torch.Generator
) -> Int[torch.Tensor, "N K"]:
    """Rows of different random numbers below `high`."""
    return torch.rand(count, high, generator=generator).argsort(1)[:, :size]


def numbered(letter: str, count: int) -> tuple[str, ...]:
    """Names of tokens: k1, k2, …"""
    return tuple(f"{letter}{number}" for number in range(1, count + 1))


def at_end(source: Int[torch.Tensor, "N S"], answers: Int[torch.Tensor, "N A"]) -> Numbers:
    """Sources whose last places ask for these answers."""
    marked = torch.full_like(source, -1)
    marked[:, -answers.shape[1] :] = answers
    return source, marked


def values_after(
    source: Sequence[str], answers: Sequence[str], end: int | None = None
) -> tuple[tuple[int, ...], ...]:
    """Of each answer the place after the last earlier occurrence of the token that asks, among the first `end` tokens."""
    places, last = list[tuple[int, ...]](), dict[str, int]()
    for i, (token, answer) in enumerate(zip(source, answers, strict=True)):
        places.append((last[token],) if answer != SPECIALS[PAD] and token in last else ())
        if end is None or i < end:
            last[token] = i + 1
    return tuple(places)


class MultiQueryRecall(MarkedTask):
    """Pairs of key and value, then keys among fillers, near ones more often (Arora 2023, zoology's multiquery_ar). Some
    keys are written again, with another value, which alone counts (forgetting_mqar)."""

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        length, self.pairs, self.updates, self.vocab = (
            int(config[name]) for name in ("length", "pairs", "updates", "vocab")
        )
        self.keys = self.vocab // 2
        names = (".", *numbered("k", self.keys - 1), *numbered("v", self.vocab - self.keys))
        super().__init__(config, entry, names, (length, length))

    def numbers(
        self, count: int, length: int, generator: torch.Generator, held_out: bool
    ) -> Numbers:
        draw, kinds = partial(torch.randint, generator=generator), self.vocab - self.keys
        keys = 1 + distinct(count, self.keys - 1, self.pairs, generator)
        values = distinct(count, kinds, self.pairs, generator)
        again = distinct(count, self.pairs, self.updates, generator)
        other = (values.gather(1, again) + draw(1, kinds, again.shape)) % kinds
        written = torch.cat((keys, keys.gather(1, again)), 1)
        context = torch.stack((written, self.keys + torch.cat((values, other), 1)), 2).flatten(1)
        start = context.shape[1]
        near = torch.arange(1, (length - start) // 2 + 1) ** (POWER - 1)
        gaps = torch.multinomial(near.expand(count, -1), self.pairs, generator=generator)
        source = draw(self.vocab, (count, length))
        source[:, :start] = context
        queried, values = start + 2 * gaps, self.keys + values.scatter(1, again, other)
        answers = torch.full_like(source, -1).scatter(1, queried, values)
        return source.scatter(1, queried, keys), answers

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """The value of the last pair with that key."""
        end = 2 * (self.pairs + self.updates)
        return values_after(example.source, self.answers(example), end)


class InContextRecall(MarkedTask):
    """Pairs of key and value; a key that comes again asks for its value (Poli 2024, MAD). A share of the pairs is noise
    of other tokens (MAD's noisy recall)."""

    everywhere = True

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        length, self.vocab, self.noise_vocab = (
            int(config[name]) for name in ("length", "vocab", "noise_vocab")
        )
        self.noise, self.keys = float(config["noise"]), self.vocab // 2
        names = numbered("k", self.keys) + numbered("v", self.vocab - self.keys)
        names += numbered("n", self.noise_vocab)
        super().__init__(config, entry, names, (length, length))

    def size(self, length: int) -> int:
        return 2 * (length // 2) - 1  # the last value is only asked

    def numbers(
        self, count: int, length: int, generator: torch.Generator, held_out: bool
    ) -> Numbers:
        draw, pairs = partial(torch.randint, generator=generator), length // 2
        keys = draw(self.keys, (count, pairs))
        values = draw(self.keys, self.vocab, (count, self.keys))
        real = torch.rand(count, pairs, generator=generator) >= self.noise
        real.scatter_(1, draw(pairs - 1, (count, 1)), True)  # there is a pair to ask for
        # The last pair asks for one of the different keys before it.
        first = (real & ~seen(keys, real))[:, :-1]
        queried = torch.multinomial(first.float(), 1, generator=generator)
        keys[:, -1:], real[:, -1] = keys.gather(1, queried), True
        answers = torch.where(seen(keys, real) & real, values.gather(1, keys), -1)
        noise = draw(self.vocab, self.vocab + max(1, self.noise_vocab), (count, pairs, 2))
        shown = torch.stack((keys, values.gather(1, keys)), 2)
        source = torch.where(real[..., None], shown, noise).flatten(1)
        marked = torch.stack((answers, torch.full_like(answers, -1)), 2).flatten(1)
        return source[:, :-1], marked[:, :-1]

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """The value of the last pair with that key."""
        return values_after(example.source, self.answers(example))


def seen(keys: Int[torch.Tensor, "N P"], real: Bool[torch.Tensor, "N P"]) -> Any:
    """Whether each key is that of an earlier real pair (N, P)."""
    same = (keys[:, :, None] == keys[:, None, :]) & real[:, None, :]
    return same.tril(-1).any(2)


class FuzzyRecall(MarkedTask):
    """Recall of keys and values of one to three tokens, without a mark between them; held-out keys have three (MAD)."""

    everywhere, most = True, 3

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        length, self.vocab = int(config["length"]), int(config["vocab"])
        self.keys = (self.vocab - 1) // 2
        names = (*numbered("k", self.keys), *numbered("v", self.vocab - 1 - self.keys), ".")
        super().__init__(config, entry, names, (length, length))

    def numbers(
        self, count: int, length: int, generator: torch.Generator, held_out: bool
    ) -> Numbers:
        rng = random.Random(choose(generator, 2**31))
        rows = [self._row(rng, length + 1, held_out) for _ in range(count)]
        source, answers = torch.tensor(rows).unbind(1)
        return source[:, :-1], answers[:, 1:]

    def _row(self, rng: random.Random, length: int, held_out: bool) -> list[list[int]]:
        """A source and its answers, as MAD's code writes them; each begins with padding."""

        def motif(low: int, high: int, longest: bool) -> tuple[int, ...]:
            return tuple(
                rng.sample(range(low, high), self.most if longest else rng.randint(1, self.most))
            )

        key, value = motif(0, self.keys, held_out), motif(self.keys, self.vocab - 1, False)
        end = length - 1 - len(key) - len(value) - 2 * self.most
        # In MAD's code the key that is asked last may come too late to be shown before.
        from_here, pairs = rng.randrange(max(1, end - 2 * self.most)), {key: value}
        source, answers, shown = list[int](), list[int](), set[tuple[int, ...]]()
        while len(source) < end:
            one = motif(0, self.keys, held_out)
            if len(source) >= from_here and key not in shown:
                one = key
            value_of = pairs.setdefault(one, motif(self.keys, self.vocab - 1, False))
            source += one + value_of
            answers += [-1] * len(one) + (list(value_of) if one in shown else [-1] * len(value_of))
            shown.add(one)
        source += key + value
        answers += [-1] * len(key) + [*value]
        before = length - len(source)
        return [[self.vocab - 1] * before + source, [-1] * before + answers]


class SelectiveCopy(MarkedTask):
    """Tokens among blanks, then a mark, after which the tokens are asked one by one, without the blanks (MAD)."""

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        length, self.copied, self.vocab = (
            int(config[name]) for name in ("length", "copied", "vocab")
        )
        names = (*numbered("t", self.vocab), ".", "copy")
        super().__init__(config, entry, names, (length, length))

    def numbers(
        self, count: int, length: int, generator: torch.Generator, held_out: bool
    ) -> Numbers:
        tokens = torch.randint(self.vocab, (count, self.copied), generator=generator)
        blanks = length - 2 * self.copied - 1
        before = torch.randint(self.copied, (count, blanks, 1), generator=generator)
        at = torch.arange(self.copied) + (before <= torch.arange(self.copied)).sum(1)
        source = torch.full((count, length), self.vocab).scatter(1, at, tokens)
        source[:, -self.copied - 1] = self.vocab + 1
        return at_end(source, tokens)

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """The token that is asked."""
        tokens = [i for i, token in enumerate(example.source) if token not in (".", "copy")]
        before = len(example.source) - self.copied
        return ((),) * before + tuple((place,) for place in tokens[: self.copied])


class Memorize(MarkedTask):
    """Keys, each followed by a mark where its value is asked: the same for all of training, and never shown (MAD)."""

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        length, self.keys = int(config["length"]), int(config["keys"])
        names = (*numbered("k", self.keys), *numbered("v", self.keys), "?")
        super().__init__(config, entry, names, (length, length))
        shuffled = torch.Generator().manual_seed(config.seed)
        self.values = self.keys + torch.randperm(self.keys, generator=shuffled)

    def numbers(
        self, count: int, length: int, generator: torch.Generator, held_out: bool
    ) -> Numbers:
        keys = torch.randint(self.keys, (count, length // 2), generator=generator)
        source = torch.stack((keys, torch.full_like(keys, 2 * self.keys)), 2).flatten(1)
        return source, torch.stack((torch.full_like(keys, -1), self.values[keys]), 2).flatten(1)

    def size(self, length: int) -> int:
        return 2 * (length // 2)


class Parity(MarkedTask):
    """Bits; at the last one, whether the ones are odd in number (Delétang 2022; NX-AI's formal_language)."""

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        length, tested = int(config["length"]), int(config["tested"])
        super().__init__(config, entry, ("0", "1"), (3, length), tested)

    def numbers(
        self, count: int, length: int, generator: torch.Generator, held_out: bool
    ) -> Numbers:
        bits = torch.randint(2, (count, length), generator=generator)
        return at_end(bits, bits.sum(1, keepdim=True) % 2)


OPERATORS = "+-*"


class Arithmetic(MarkedTask):
    """An expression modulo a number, asked at the sign of equality."""

    modulus = 23

    def expression(self, rng: random.Random, length: int) -> tuple[Sequence[str], int]:
        """Tokens and value."""
        raise NotImplementedError

    def numbers(
        self, count: int, length: int, generator: torch.Generator, held_out: bool
    ) -> Numbers:
        rng = random.Random(choose(generator, 2**31))
        made = [self.expression(rng, length) for _ in range(count)]
        source = torch.tensor([[*map(self.names.index, (*text, "="))] for text, _ in made])
        return at_end(source, torch.tensor([[value % self.modulus] for _, value in made]))


class ModularArithmetic(Arithmetic):
    """A sum of digits (Delétang 2022). Without brackets, × binds before + and −."""

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.modulus, self.brackets = int(config["modulus"]), config["brackets"] == "yes"
        self.operators = OPERATORS if config["multiply"] == "yes" else OPERATORS[:2]
        names = (*map(str, range(self.modulus)), *OPERATORS, "(", ")", "=")
        super().__init__(config, entry, names, (4, int(config["length"])), int(config["tested"]))

    def size(self, length: int) -> int:
        return length if self.brackets else 2 * (length // 2)

    def expression(self, rng: random.Random, length: int) -> tuple[str, int]:
        return (self._nested if self.brackets else self._flat)(rng, self.size(length) - 1)

    def _flat(self, rng: random.Random, length: int) -> tuple[str, int]:
        """x op x … of an odd length; sums of products."""
        text = str(rng.randrange(self.modulus))
        for _ in range(length // 2):
            text += rng.choice(self.operators) + str(rng.randrange(self.modulus))
        total, product, sign = 0, int(text[0]), 1
        for operator, digit in zip(text[1::2], text[2::2], strict=True):
            if operator == "*":
                product *= int(digit)
            else:
                total += sign * product
                product, sign = int(digit), 1 if operator == "+" else -1
        return text, total + sign * product

    def _nested(self, rng: random.Random, length: int) -> tuple[str, int]:
        """(left op right), the shorter ones as d, −d, (d) and (−d)."""
        if length < 5:
            digit = rng.randrange(self.modulus)
            form = ("{}", "-{}", "({})", "(-{})")[length - 1]
            return form.format(digit), -digit if "-" in form else digit
        split = rng.randrange(1, length - 3)
        left, a = self._nested(rng, split)
        right, b = self._nested(rng, length - 3 - split)
        operator = rng.choice(self.operators)
        value = {"+": a + b, "-": a - b, "*": a * b}[operator]
        return f"({left}{operator}{right})", value % self.modulus


class GroupWords(MarkedTask):
    """Permutations; at each place, the product of all so far (Merrill 2024; Petty's word-problem)."""

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        elements = [*itertools.permutations(range(int(config["items"])))]
        # a · b: first a, then b.
        self.table = torch.tensor(
            [[elements.index(tuple(b[i] for i in a)) for b in elements] for a in elements]
        )
        names = tuple("".join(str(i + 1) for i in one) for one in elements)
        lengths = int(config["length"]), int(config["length"])  # each beginning is a shorter one
        super().__init__(config, entry, names, lengths, int(config["tested"]))

    def numbers(
        self, count: int, length: int, generator: torch.Generator, held_out: bool
    ) -> Numbers:
        source = torch.randint(len(self.table), (count, length), generator=generator)
        so_far = itertools.accumulate(source.T, lambda a, b: self.table[a, b])
        return source, torch.stack([*so_far], 1)


class FlipFlop(MarkedTask):
    """Instructions, each with a bit: write, ignore, and read, which asks for the bit last written (Liu 2023)."""

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.ignored = float(config["ignored"])
        length, tested = int(config["length"]), int(config["tested"])
        super().__init__(config, entry, ("0", "1", "w", "i", "r"), (length, length), tested)

    def size(self, length: int) -> int:
        return 2 * (length // 2)

    def numbers(
        self, count: int, length: int, generator: torch.Generator, held_out: bool
    ) -> Numbers:
        steps = length // 2
        shares = torch.tensor([(1 - self.ignored) / 2, self.ignored, (1 - self.ignored) / 2])
        kinds = 2 + torch.multinomial(
            shares.expand(count, -1), steps, replacement=True, generator=generator
        )
        kinds[:, 0], kinds[:, -1] = 2, 4
        bits = torch.randint(2, (count, steps), generator=generator)
        written = torch.where(kinds == 2, torch.arange(steps), 0).cummax(1).values
        bits = torch.where(kinds == 4, bits.gather(1, written), bits)
        queried = torch.where(kinds == 4, bits, -1)
        source = torch.stack((kinds, bits), 2).flatten(1)
        return source, torch.stack((queried, torch.full_like(queried, -1)), 2).flatten(1)

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """The bit last written."""
        last, places = 0, list[tuple[int, ...]]()
        for i, token in enumerate(example.source):
            last = i + 1 if token == "w" else last
            places.append((last,) if token == "r" else ())
        return tuple(places)


class Depo(MarkedTask):
    """The edges of a cycle in random order, then queries: which node comes `hops` after this one (Allen-Zhu 2025)? Here a
    node is one token."""

    queries = 4

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.hops, nodes = int(config["hops"]), int(config["nodes"])
        names = (*numbered("n", nodes), *numbered("+", self.hops), "=")
        super().__init__(config, entry, names, (max(3, nodes // 2), nodes))

    def size(self, length: int) -> int:
        return 2 * length + 4 * min(length, self.queries) - 1

    def numbers(
        self, count: int, length: int, generator: torch.Generator, held_out: bool
    ) -> Numbers:
        nodes = self.lengths[1]
        cycle = distinct(count, nodes, length, generator)
        order = distinct(count, length, length, generator)
        edges = torch.stack(
            (cycle.gather(1, order), cycle.gather(1, (order + 1) % length)), 2
        ).flatten(1)
        at = distinct(count, length, min(length, self.queries), generator)
        hops = torch.randint(1, self.hops + 1, at.shape, generator=generator)
        reached = cycle.gather(1, (at + hops) % length)
        equal = torch.full_like(at, len(self.names) - 1)
        queried = torch.stack((nodes + hops - 1, cycle.gather(1, at), equal, reached), 2).flatten(1)
        source, nothing = torch.cat((edges, queried), 1), torch.full_like(at, -1)
        answers = torch.stack((nothing, nothing, reached, nothing), 2).flatten(1)
        return at_end(source[:, :-1], answers[:, :-1])


class MentalArithmetic(Arithmetic):
    """An expression in prefix notation, after its number of operators (Mano, Allen-Zhu 2025)."""

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        names = (*map(str, range(self.modulus)), *OPERATORS, "=", *numbered("L", 16))
        super().__init__(config, entry, names, (1, int(config["length"])))

    def size(self, length: int) -> int:
        return 2 * length + 3

    def expression(self, rng: random.Random, length: int) -> tuple[list[str], int]:
        text, value = self._prefix(rng, length)
        return [f"L{length}", *text], value

    def _prefix(self, rng: random.Random, length: int) -> tuple[list[str], int]:
        """Operator, left and right, of `length` operators together."""
        if length == 0:
            number = rng.randrange(self.modulus)
            return [str(number)], number
        split = rng.randint(0, length - 1)
        operator = rng.choice(OPERATORS)
        left, a = self._prefix(rng, split)
        right, b = self._prefix(rng, length - 1 - split)
        value = {"+": a + b, "-": a - b, "*": a * b}[operator]
        return [operator, *left, *right], value % self.modulus


class PhoneBook(MarkedTask):
    """Names, each with its number, then one of the names, whose digits are asked (Jelassi 2024)."""

    digits = 3

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.people = int(config["people"])
        names = (*map(str, range(10)), *SYLLABLES[: self.people], "?")
        entries, tested = int(config["entries"]), int(config["tested"])
        super().__init__(config, entry, names, (entries, entries), tested)

    def size(self, length: int) -> int:
        return length * (self.digits + 1) + self.digits + 1

    def numbers(
        self, count: int, length: int, generator: torch.Generator, held_out: bool
    ) -> Numbers:
        people = 10 + distinct(count, self.people, length, generator)[..., None]
        digits = torch.randint(10, (count, length, self.digits), generator=generator)
        book = torch.cat((people, digits), 2)
        chosen = torch.randint(length, (count, 1, 1), generator=generator)
        queried = book.gather(1, chosen.expand(-1, -1, self.digits + 1))[:, 0]
        mark = torch.full((count, 1), len(self.names) - 1)
        return at_end(torch.cat((book.flatten(1), mark, queried[:, :-1]), 1), queried[:, 1:])


class StringCopy(MarkedTask):
    """Letters, a mark, and the letters again, each asked before it is read (Jelassi 2024)."""

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.letters = int(config["vocab"])
        names = (*numbered("t", self.letters), "copy")
        lengths = min(int(config["shortest"]), int(config["length"])), int(config["length"])
        super().__init__(config, entry, names, lengths, int(config["tested"]))

    def size(self, length: int) -> int:
        return 2 * length

    def numbers(
        self, count: int, length: int, generator: torch.Generator, held_out: bool
    ) -> Numbers:
        letters = torch.randint(self.letters, (count, length), generator=generator)
        mark = torch.full((count, 1), self.letters)
        return at_end(torch.cat((letters, mark, letters[:, :-1]), 1), letters)

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """The letter that is asked."""
        length = len(example.source) // 2
        return ((),) * (len(example.source) - length) + tuple((i,) for i in range(length))


def whole(key: str, name: str, default: int, low: int, high: int, meaning: str) -> Param:
    return Param(key, name, default=default, low=low, high=high, step=1, meaning=meaning)


def length_param(default: int, low: int = 12, high: int = 512) -> Param:
    return whole("length", "Length", default, low, high, "tokens of the longest source of training")


def tested_param(default: int, high: int = 1024) -> Param:
    return whole(
        "tested",
        "Tested up to",
        default,
        0,
        high,
        "length of the longest held-out source; 0 for that of training",
    )


def yes_no(key: str, name: str, default: str, meaning: str) -> Param:
    return Param(key, name, default=default, choices=("no", "yes"), meaning=meaning)


def check_mqar(length: int, pairs: int, updates: int, vocab: int) -> None:
    needed = 4 * pairs + 2 * updates
    refuse_if(
        length % 2 == 1 or length < needed,
        f"length = {length} must be even and have room for the pairs and the queries; take length ≥ {needed}.",
    )
    refuse_if(
        updates > pairs,
        f"updates = {updates} write keys again, of which there are pairs = {pairs}; take updates ≤ {pairs}.",
    )
    refuse_if(
        vocab // 2 <= pairs,
        f"vocab = {vocab} has too few keys for pairs = {pairs}; take vocab ≥ {2 * pairs + 2}.",
    )


def check_noise(noise: float, noise_vocab: int, **params: int) -> None:
    refuse_if(
        noise > 0 and noise_vocab == 0,
        "noise > 0 needs tokens of its own; take noise_vocab ≥ 1, or noise = 0.",
    )


def check_copied(length: int, copied: int, vocab: int) -> None:
    refuse_if(
        length < 2 * copied + 2,
        f"length = {length} has no room for copied = {copied} tokens twice and a blank; take length ≥ "
        f"{2 * copied + 2}.",
    )


def check_people(people: int, entries: int, tested: int) -> None:
    refuse_if(
        people < max(entries, tested),
        f"people = {people} are fewer than the entries of a book, {max(entries, tested)}; take more people.",
    )


def skill(
    key: str,
    name: str,
    meaning: str,
    look: str,
    build: Callable[[TaskConfig, TaskEntry], MarkedTask],
    params: tuple[Param, ...],
    check: Callable[..., None] = lambda **params: None,
) -> TaskEntry:
    """The entry of a skill in the menu of tasks."""
    entry: TaskEntry = TaskEntry(
        key,
        name,
        meaning=meaning,
        look=look,
        build=lambda config: build(config, entry),
        params=params,
        check=check,
    )
    return entry


NO_PLACE = (
    "No place alone decides: each answer depends on everything before it. Two layers of softmax do not learn it in these "
    "steps."
)
SKILLS = (
    skill(
        "mqar",
        "Multi-query recall",
        "Pairs of key and value, then keys among fillers. Answer each key by its value.",
        "A key that asks attends to the value after the same key in the pairs.",
        MultiQueryRecall,
        (
            length_param(32, 16),
            whole("pairs", "Pairs", 4, 1, 64, "number of pairs"),
            whole(
                "updates", "Updates", 0, 0, 32, "keys that are written again, with another value"
            ),
            whole(
                "vocab", "Vocabulary", 64, 8, 8192, "different keys, values and fillers together"
            ),
        ),
        check_mqar,
    ),
    skill(
        "in_context_recall",
        "In-context recall",
        "Pairs of key and value. A key that comes again is answered by its value.",
        "A key that comes again attends to the value after the same key.",
        InContextRecall,
        (
            length_param(32),
            whole("vocab", "Vocabulary", 16, 8, 128, "different keys and values together"),
            Param(
                "noise",
                "Noise",
                default=0.0,
                low=0.0,
                high=0.95,
                step=0.05,
                meaning="share of the pairs that are noise",
            ),
            whole("noise_vocab", "Noise tokens", 16, 0, 64, "different tokens of noise"),
        ),
        check_noise,
    ),
    skill(
        "fuzzy_recall",
        "Fuzzy recall",
        "Keys and values of one to three tokens. A key that comes again is answered by its value.",
        "The end of a key attends to the value after the same key, of which each token counts.",
        FuzzyRecall,
        (
            length_param(64, 32),
            whole(
                "vocab", "Vocabulary", 16, 8, 128, "different tokens of keys and values together"
            ),
        ),
    ),
    skill(
        "selective_copy",
        "Selective copying",
        "Tokens among blanks, then a mark. Give the tokens one by one, without the blanks.",
        "Each answer attends to one token, past the blanks.",
        SelectiveCopy,
        (
            length_param(48),
            whole("copied", "Tokens", 8, 4, 64, "number of tokens to copy"),
            whole("vocab", "Vocabulary", 14, 4, 128, "different tokens"),
        ),
        check_copied,
    ),
    skill(
        "memorize",
        "Memorization",
        "Each key has one value, in all texts. Answer it, though no text shows it.",
        "Nothing: the value is in the weights, not in the text.",
        Memorize,
        (
            length_param(32),
            whole("keys", "Keys", 64, 8, 4096, "different keys"),
        ),
    ),
    skill(
        "parity",
        "Parity",
        "Bits. Say at the end whether the ones are even or odd in number.",
        NO_PLACE,
        Parity,
        (length_param(24), tested_param(48)),
    ),
    skill(
        "modular_arithmetic",
        "Modular arithmetic",
        "A sum of digits. Give it modulo a number, at the sign of equality.",
        NO_PLACE,
        ModularArithmetic,
        (
            length_param(20),
            tested_param(40),
            whole("modulus", "Modulus", 5, 2, 10, "the digits are those below it"),
            yes_no("brackets", "Brackets", "no", "whether the expression has brackets"),
            yes_no("multiply", "Multiplication", "yes", "whether it has ×"),
        ),
    ),
    skill(
        "group_words",
        "Products of permutations",
        "Permutations of a few things. Give at each the product of all so far.",
        NO_PLACE,
        GroupWords,
        (
            length_param(16, 8),
            tested_param(32),
            whole("items", "Items", 3, 3, 5, "how many things are permuted: 3 for S₃, 5 for S₅"),
        ),
    ),
    skill(
        "flip_flop",
        "Flip-flop",
        "Write, ignore or read a bit. Each read is answered by the bit last written.",
        "Each read attends to the bit of the last write, past all that are ignored.",
        FlipFlop,
        (
            length_param(32, 24),
            tested_param(64),
            Param(
                "ignored",
                "Ignored",
                default=0.8,
                low=0.0,
                high=0.98,
                step=0.02,
                meaning="share of the instructions that are ignored",
            ),
        ),
    ),
    skill(
        "depo",
        "Steps along a cycle",
        "The edges of a cycle in random order. Say which node comes some steps after another.",
        "One step a layer: from a node to the node after it.",
        Depo,
        (
            whole("nodes", "Nodes", 4, 4, 64, "nodes of the longest cycle"),
            whole("hops", "Steps", 2, 1, 16, "the most steps that are asked"),
        ),
    ),
    skill(
        "mano",
        "Mental arithmetic",
        "An expression in prefix notation. Give its value modulo 23.",
        NO_PLACE,
        MentalArithmetic,
        (whole("length", "Operators", 3, 2, 16, "operators of the longest expression"),),
    ),
    skill(
        "phone_book",
        "Phone book",
        "Names with numbers, then one of the names. Give its number, digit by digit.",
        "Each digit attends to the digit after the same name.",
        PhoneBook,
        (
            whole("entries", "Entries", 4, 2, 32, "names in a book"),
            tested_param(0, 64),
            whole("people", "Names", 32, 8, 200, "different names"),
        ),
        check_people,
    ),
    skill(
        "string_copy",
        "String copy",
        "Letters, then a mark. Give the letters again, one by one.",
        "Each letter attends to the same place of the first string: a diagonal.",
        StringCopy,
        (
            length_param(16, 8, 256),
            whole("shortest", "Shortest", 2, 1, 256, "letters of the shortest source of training"),
            tested_param(32, 512),
            whole("vocab", "Letters", 26, 4, 64, "different letters"),
        ),
    ),
)
