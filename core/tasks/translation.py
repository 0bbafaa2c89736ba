"""Tasks of translation: numbers to words, dates between languages, which language a word is of; and of pictures:
handwritten digits to classify, and pictures of numbers to read."""

import gzip
import itertools
import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import cached_property, lru_cache

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int

from core.entries import Param, quote, refuse_if
from core.models.base import Shape
from core.tasks import recipes
from core.tasks.base import (
    BOS,
    EOS,
    PAD,
    Batch,
    Example,
    LabelledTask,
    Task,
    Vocabulary,
    choose,
    is_held_out,
    pad,
    split_sides,
)
from core.tasks.config import TaskConfig, TaskEntry
from core.tasks.sequences import decimal_digits
from core.tasks.tables import sklearn_data

LARGEST = 9999

# Morphemes of German number words: a prefix of another ("ein" of "eins") stands after it.
_GERMAN = re.compile(
    "tausend|hundert|zwanzig|zehn|zig|ßig|und|null|eins|ein|zwei|drei|vier|fünf|"
    "sechs|sech|sieben|sieb|acht|neun|elf|zwölf"
)


def spell(number: int, language: str) -> str:
    from num2words import num2words

    return str(num2words(number, lang=language))


@lru_cache(maxsize=4)
def number_words(language: str) -> tuple[tuple[str, ...], ...]:
    """The tokens of every number from 0 to 9999, in "en", "de", "fr" or "es".

    The numbers below a thousand are spelled once and joined to the thousands, as num2words joins them.
    """
    below = [split_words(spell(n, language), language) for n in range(1000)]
    words = list(below)
    for thousand in range(1, 10):
        first = split_words(spell(1000 * thousand, language), language)
        for n, tokens in enumerate(below):
            joined = ("and",) if language == "en" and 0 < n < 100 else ()
            words.append(first + joined + tokens if n else first)
    return tuple(words)


def split_words(text: str, language: str) -> tuple[str, ...]:
    """A text split at spaces, hyphens and commas, German compounds into morphemes; ValueError for unknown letters."""
    if language != "de":
        return tuple(re.split(r"[ ,-]+", text))
    morphemes = _GERMAN.findall(text)
    refuse_if(
        "".join(morphemes) != text,
        f"The German number word {quote(text)} has letters that belong to no known morpheme.",
    )
    return tuple(morphemes)


# A day as English, German and French speakers write it: the forms of Unicode's CLDR for four locales.
ENGLISH = (
    (
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ),
    ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
)
BRITISH = (ENGLISH[0], (*ENGLISH[1][:8], "Sept", *ENGLISH[1][9:]), ENGLISH[2])
GERMAN = (
    (
        "Januar",
        "Februar",
        "März",
        "April",
        "Mai",
        "Juni",
        "Juli",
        "August",
        "September",
        "Oktober",
        "November",
        "Dezember",
    ),
    (
        "Jan.",
        "Feb.",
        "März",
        "Apr.",
        "Mai",
        "Juni",
        "Juli",
        "Aug.",
        "Sept.",
        "Okt.",
        "Nov.",
        "Dez.",
    ),
    ("Montag", "Dienstag", "Mittwoch", "Donnerstag", "Freitag", "Samstag", "Sonntag"),
)
FRENCH = (
    (
        "janvier",
        "février",
        "mars",
        "avril",
        "mai",
        "juin",
        "juillet",
        "août",
        "septembre",
        "octobre",
        "novembre",
        "décembre",
    ),
    (
        "janv.",
        "févr.",
        "mars",
        "avr.",
        "mai",
        "juin",
        "juil.",
        "août",
        "sept.",
        "oct.",
        "nov.",
        "déc.",
    ),
    ("lundi", "mardi", "mercredi", "jeudi", "vendredi", "samedi", "dimanche"),
)

FORMATS = ("short", "medium", "long", "full")
LOCALES = {  # the names of months, their short ones and the days; then the four formats
    "en_US": (
        ENGLISH,
        ("{m}/{d}/{yy:02}", "{mon} {d}, {y}", "{month} {d}, {y}", "{weekday}, {month} {d}, {y}"),
    ),
    "en_GB": (
        BRITISH,
        ("{d:02}/{m:02}/{y}", "{d} {mon} {y}", "{d} {month} {y}", "{weekday}, {d} {month} {y}"),
    ),
    "de_DE": (
        GERMAN,
        (
            "{d:02}.{m:02}.{yy:02}",
            "{d:02}.{m:02}.{y}",
            "{d}. {month} {y}",
            "{weekday}, {d}. {month} {y}",
        ),
    ),
    "fr_FR": (
        FRENCH,
        ("{d:02}/{m:02}/{y}", "{d} {mon} {y}", "{d} {month} {y}", "{weekday} {d} {month} {y}"),
    ),
}


def format_day(day: date, locale: str, form: str) -> str:
    """A day in a locale's short, medium, long or full form."""
    (months, short, weekdays), forms = LOCALES[locale]
    return forms[FORMATS.index(form)].format(
        d=day.day,
        m=day.month,
        y=day.year,
        yy=day.year % 100,
        month=months[day.month - 1],
        mon=short[day.month - 1],
        weekday=weekdays[day.weekday()],
    )


def date_parts(text: str) -> tuple[range, range, range]:
    """The positions of year, month and day in a text of `format_day`; empty where it is none."""
    numbers, names = (
        [range(*m.span()) for m in re.finditer(part, text)] for part in (r"\d+", r"[^\W\d_]+")
    )
    if len(numbers) < 2 or (not names and len(numbers) < 3):
        return range(0), range(0), range(0)
    year, day = numbers[-1], numbers[0]
    if names:  # a weekday may stand before the month
        return year, names[-1], day
    # Of the short forms only the American one says the month first: slashes, and a year of two digits.
    first, second = numbers[:2]
    return (year, first, second) if "/" in text and len(year) == 2 else (year, second, first)


SEPARATOR = ";"
# A hundred years, so that a year of two digits is clear; and days of a year, of which the forms have all letters.
FIRST_DAY, DAYS, SOME = date(1950, 1, 1), 36_525, range(0, 366, 5)


class PairTask(Task):
    """A task with a pool of training pairs, made once by the seed; a batch has one source length, which recurrent cells
    read twice as fast as packed lengths."""

    @cached_property
    def pool(self) -> list[Example]:
        """The training pairs, shortest source first."""
        generator = torch.Generator().manual_seed(self.config.seed)
        pairs = [
            self.draw(generator, held_out=False) for _ in range(int(self.config["train_pairs"]))
        ]
        return sorted(pairs, key=lambda pair: len(pair.source))

    @cached_property
    def _pool_batch(self) -> Batch:
        return self.collate(self.pool)

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Random pairs of the pool of one source length."""
        pool, length_of = self.pool, lambda pair: len(pair.source)
        length = length_of(pool[choose(generator, len(pool))])
        low, high = (bisect(pool, length, key=length_of) for bisect in (bisect_left, bisect_right))
        short = batch_size - (high - low)
        if short > 0:  # too few of that length: add those beside them
            low = max(0, min(low - short // 2, len(pool) - batch_size))
            high = low + batch_size
        order = torch.randperm(min(high, len(pool)) - low, generator=generator)
        return cut(self._pool_batch, low + order[:batch_size])


def cut(batch: Batch, rows: Int[torch.Tensor, " N"]) -> Batch:
    """Rows of a batch, without the columns that are padding in all of them."""
    mask, target = batch.source_mask[rows], batch.target_out[rows]
    longest = int(mask.sum(1).max())
    source, mask = batch.source[rows, :longest], mask[:, :longest]
    if batch.target_in is None:
        return Batch(source, mask, None, target)
    size = int((target != PAD).sum(1).max())
    return Batch(source, mask, batch.target_in[rows, :size], target[:, :size])


class Numbers(PairTask):
    """One to ten numbers joined by ";": most below a thousand, some up to 9999."""

    separator = " "
    metrics = ("sequence_accuracy", "bleu")

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.english, self.words = number_words("en"), number_words(str(config["language"]))
        most = int(config["numbers"]) * (max(map(len, self.words)) + 1)
        super().__init__(
            config,
            entry,
            recipes.translation(128, 700, 600, 4e-3),
            (int(config["max_source"]), most),
            *(
                Vocabulary([SEPARATOR, *itertools.chain(*numbers)])
                for numbers in (self.english, self.words)
            ),
        )

    def tokens(self, text: str) -> list[str]:
        """Words and ";" of a typed text; numbers up to 9999 become words."""
        spelled = [
            self.english[int(t)] if t.isdecimal() and int(t) <= LARGEST else (t,)
            for t in re.findall(r"[^\W\d_]+|\d+|;", text.lower())
        ]
        return [word for words in spelled for word in words]

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        while True:
            count = 1 + choose(generator, int(self.config["numbers"]))
            small = (torch.rand(count, generator=generator) < 0.7).tolist()
            draws = torch.randint(LARGEST + 1, (count,), generator=generator).tolist()
            numbers = [n % 1000 if below else n for n, below in zip(draws, small, strict=True)]
            source = _join(self.english, numbers)
            if (
                len(source) <= self.max_source
                and is_held_out(",".join(map(str, numbers))) == held_out
            ):
                return Example(source, _join(self.words, numbers))

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """All words of the same number; for a ";" its counterpart."""
        sources, targets = _parts(example.source), _parts(example.target)
        same = dict(zip(targets, sources, strict=False))  # a typed example has no target
        return tuple(tuple(same.get(part, ())) for part in targets for _ in part)


def _parts(tokens: tuple[str, ...]) -> list[range]:
    ends = [i for i, token in enumerate(tokens) if token == SEPARATOR]
    cuts = [0, *(cut for end in ends for cut in (end, end + 1)), len(tokens)]
    return [range(low, high) for low, high in itertools.pairwise(cuts)]


def _join(words: tuple[tuple[str, ...], ...], numbers: list[int]) -> tuple[str, ...]:
    tokens: list[str] = []
    for n in numbers:
        tokens += (SEPARATOR, *words[n]) if tokens else words[n]
    return tuple(tokens)


class Dates(PairTask):
    """A date as English, German or French speakers write it, short or in full, to year-month-day; a day is held out in
    all forms."""

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        forms = {
            format_day(FIRST_DAY + timedelta(n), locale, form)
            for n in SOME
            for locale in LOCALES
            for form in FORMATS
        }
        super().__init__(
            config,
            entry,
            recipes.translation(64, 900, 900),
            (max(map(len, forms)) + 2, len("2000-01-01")),
            Vocabulary([*"0123456789", *(letter for text in forms for letter in text)]),
            Vocabulary("0123456789-"),
        )

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        while True:
            day = FIRST_DAY + timedelta(choose(generator, DAYS))
            if is_held_out(day.isoformat()) == held_out:
                text = format_day(
                    day,
                    [*LOCALES][choose(generator, len(LOCALES))],
                    FORMATS[choose(generator, len(FORMATS))],
                )
                return Example(tuple(text), tuple(day.isoformat()))

    def places(self, example: Example) -> tuple[tuple[int, ...], ...]:
        """The year's digits for the year, the month's digits or letters for the month, the day's digits for the day."""
        positions = [
            tuple(part)
            for part, digits in zip(
                date_parts("".join(example.source)), ("2000", "01", "01"), strict=True
            )
            for _ in digits
        ]
        return tuple(
            [*positions[:4], (), *positions[4:6], (), *positions[6:]][: len(example.target)]
        )


PAIRS = Param(
    "train_pairs",
    "Training pairs",
    default=20_000,
    low=1000,
    high=50_000,
    step=1000,
    meaning="number of pairs that are generated before training",
)
NUMBERS: TaskEntry = TaskEntry(
    "numbers",
    "Number words",
    meaning="Translate English number words to German or French.",
    look="Each output attends to the words of its number, so the map is a staircase. Within a German number it steps back, "
    "as ones come before tens.",
    build=lambda config: Numbers(config, NUMBERS),
    params=(
        Param(
            "language",
            "Language",
            default="de",
            choices=("de", "fr"),
            labels=("German", "French"),
            meaning="language that the numbers are translated to",
        ),
        Param(
            "numbers",
            "Numbers",
            default=10,
            low=2,
            high=10,
            step=1,
            meaning="largest number of numbers in one source",
        ),
        Param(
            "max_source",
            "Longest source",
            default=60,
            low=10,
            high=80,
            step=1,
            meaning="largest number of words in one source",
        ),
        PAIRS,
    ),
)
DATES: TaskEntry = TaskEntry(
    "dates",
    "Dates",
    meaning="Translate a date in English, German or French to year-month-day.",
    look="The output attends to the end of the source for the year, then to the month, then to the day.",
    build=lambda config: Dates(config, DATES),
    params=(replace(PAIRS, default=10_000),),
)


LANGUAGES = {
    "en": "English",
    "de": "German",
    "fr": "French",
    "es": "Spanish",
    "it": "Italian",
    "nl": "Dutch",
    "pt": "Portuguese",
    "sv": "Swedish",
}
# Letters of "eight thousand, eight hundred and seventy-eight"; and numbers that have the letters of all.
LONGEST, SPELLED = 47, (*range(100), 1200)


class WhichLanguage(PairTask):
    """A number up to 9999 in words, letter by letter; a number is held out in all languages."""

    form = "label"
    unit, whole = "letter", "words"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.languages = tuple(LANGUAGES)[: int(config["languages"])]
        self.classes = tuple(LANGUAGES[language] for language in self.languages)
        vocabularies = Vocabulary(letters(self.languages)), Vocabulary(self.classes)
        super().__init__(config, entry, recipes.LANGUAGE, (LONGEST, 1), *vocabularies)

    def tokens(self, text: str) -> list[str]:
        return list(text.strip().lower())

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        while True:
            # Half below a thousand: short words are the hard ones.
            number = choose(generator, LARGEST + 1 if choose(generator, 2) else 1000)
            if is_held_out(str(number)) == held_out:
                i = choose(generator, len(self.languages))
                return Example(tuple(spell(number, self.languages[i])), (self.classes[i],))


@lru_cache(maxsize=len(LANGUAGES))
def letters(languages: tuple[str, ...]) -> frozenset[str]:
    """All characters of the number words of these languages."""
    return frozenset(
        letter for language in languages for n in SPELLED for letter in spell(n, language)
    )


LANGUAGE: TaskEntry = TaskEntry(
    "language",
    "Which language",
    meaning="Classify the language of a number that is spelled letter by letter.",
    look="The class attends to pairs of letters that only its language has.",
    build=lambda config: WhichLanguage(config, LANGUAGE),
    params=(
        Param(
            "languages",
            "Languages",
            default=6,
            low=2,
            high=len(LANGUAGES),
            step=1,
            meaning="number of languages, in the order " + ", ".join(LANGUAGES.values()),
        ),
        replace(
            PAIRS,
            name="Training words",
            default=5_000,
            meaning="number of words that are generated before training",
        ),
    ),
)


# Handwritten digits, cut in patches: which digit is it?


SIDE = 8  # pixels of a digit


@lru_cache(maxsize=1)
def digits() -> tuple[Float[torch.Tensor, "N 8 8"], Int[torch.Tensor, " N"]]:
    """1,797 handwritten digits of 8 × 8 pixels, 0 to 1, and which they are (Alpaydin & Kaynak 1998)."""
    data = sklearn_data(
        "data/digits.csv.gz", "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
    )
    lines = gzip.decompress(data).decode().splitlines()
    numbers = torch.from_numpy(np.loadtxt(lines, delimiter=",", dtype=np.float32))
    return numbers[:, :-1].reshape(-1, SIDE, SIDE) / 16, numbers[:, -1].long()


def patches_of(pictures: Float[torch.Tensor, "N H W"], patch: int) -> Float[torch.Tensor, "N P D"]:
    """Square patches of `patch` pixels, row by row, as Dosovitskiy 2021 cuts them."""
    return rearrange(pictures, "n (r a) (c b) -> n (r c) (a b)", a=patch, b=patch)


class PictureTask(Task):
    """A task of pictures: a source is patches, named by row and column."""

    input = "patches"
    grid: tuple[int, int]

    def display_tokens(self, example: Example) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Patches by their row and column, from 1, and the target."""
        rows, columns = (range(1, size + 1) for size in self.grid)
        return tuple(f"{r},{c}" for r in rows for c in columns), example.target

    def encode(
        self, examples: Sequence[Example]
    ) -> tuple[Float[torch.Tensor, "B P D"], Bool[torch.Tensor, "B P"]]:
        source = torch.tensor([example.source for example in examples])
        return source, torch.ones(source.shape[:2], dtype=torch.bool)

    def example(self, text: str) -> Example:
        raise ValueError("A picture cannot be typed; choose one of the held-out pictures.")


class Digits(PictureTask, LabelledTask):
    """Tell which digit a picture shows."""

    unit, whole = "picture", "pictures"
    baseline_name = "logistic regression on pixels"

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        pictures, labels = digits()
        self.patch = int(config["patch"])
        self.grid = (SIDE // self.patch, SIDE // self.patch)
        patches = [
            tuple(map(tuple, picture)) for picture in patches_of(pictures, self.patch).tolist()
        ]
        super().__init__(config, entry, patches, labels.tolist(), tuple("0123456789"))
        self.recommended = recipes.DIGITS

    @property
    def shape(self) -> Shape:
        return Shape(self.patch**2, 10, self.max_source, "patches", "label", grid=self.grid)

    @property
    def baseline_loss(self) -> float:
        return math.log(10)

    def flat(self, examples: Sequence[Example]) -> Float[torch.Tensor, "N D"]:
        return self.collate(examples).source.flatten(1)


PATCH = Param(
    "patch",
    "Patch",
    default="2",
    choices=("1", "2", "4"),
    labels=("1 pixel", "2 × 2 pixels", "4 × 4 pixels"),
    meaning="size of the patch of the picture that is one token",
)
DIGITS: TaskEntry = TaskEntry(
    "digits",
    "Handwritten digits",
    meaning="Classify the digit in a picture of 8 × 8 pixels.",
    look="The class token attends to the strokes that distinguish the digits.",
    build=lambda config: Digits(config, DIGITS),
    params=(PATCH,),
)


DECIDES = 0.5  # a digit decides a word that changes with more than this share of its other values


class Pictures(PictureTask):
    """A handwritten number to its words; held-out examples share neither numbers nor digit pictures with training."""

    unit, whole = "word", "numbers"
    separator = " "
    metrics = ("sequence_accuracy", "bleu")

    def __init__(self, config: TaskConfig, entry: TaskEntry) -> None:
        self.count, self.patch = int(config["digits"]), int(config["patch"])
        self.language = str(config["language"])
        self.words = number_words(self.language)
        self.number = {words: n for n, words in enumerate(self.words)}
        first = 10 ** (self.count - 1)
        self.numbers = {
            side: torch.tensor([n for n in range(first, 10 * first) if is_held_out(str(n)) == side])
            for side in (False, True)
        }
        texts = [self.words[n] for n in range(first, 10 * first)]
        self.grid = (SIDE // self.patch, self.count * SIDE // self.patch)
        longest = self.grid[0] * self.grid[1], max(map(len, texts))
        words = Vocabulary(word for words in texts for word in words)
        super().__init__(config, entry, recipes.PICTURES, longest, words)

    @property
    def shape(self) -> Shape:
        longest = max(self.max_source, self.max_target) + 1
        return Shape(self.patch**2, len(self.target_vocab), longest, "patches", grid=self.grid)

    @cached_property
    def ids(self) -> Int[torch.Tensor, "N T"]:
        """The ids of each number's words, up to EOS, padded; a row for every number below 10 ** digits."""
        return pad([[*self.target_vocab.encode(self.words[n]), EOS] for n in range(10**self.count)])

    def batch(self, batch_size: int, generator: torch.Generator) -> Batch:
        source, numbers = self._pictures(batch_size, generator, held_out=False)
        target = self.ids[numbers]
        target = target[:, : int((target != PAD).sum(1).max())]
        words = target[:, :-1].masked_fill(target[:, :-1] == EOS, PAD)
        target_in = torch.cat((torch.full((batch_size, 1), BOS), words), dim=1)
        return Batch(source, torch.ones(source.shape[:2], dtype=torch.bool), target_in, target)

    def draw(self, generator: torch.Generator, held_out: bool) -> Example:
        source, numbers = self._pictures(1, generator, held_out)
        return Example(tuple(map(tuple, source[0].tolist())), self.words[int(numbers[0])])

    def places(self, example: Example) -> tuple[tuple[int, ...], ...] | None:
        """For each word the patches of the digit that decides it; none for a word that no single digit decides."""
        rows, columns = self.grid
        wide = SIDE // self.patch
        of_digit = [
            tuple(r * columns + digit * wide + c for r in range(rows) for c in range(wide))
            for digit in range(self.count)
        ]
        return tuple(
            of_digit[digit] if digit >= 0 else ()
            for digit in deciding(self.language, self.number[example.target])
        )

    def _pictures(
        self, count: int, generator: torch.Generator, held_out: bool
    ) -> tuple[Float[torch.Tensor, "B P D"], Int[torch.Tensor, " B"]]:
        pictures, _ = digits()
        table, sizes = self._by_digit[held_out]
        side = self.numbers[held_out]
        numbers = side[torch.randint(len(side), (count,), generator=generator)]
        each = decimal_digits(numbers, self.count)  # (B, digits)
        index = (torch.rand(each.shape, generator=generator) * sizes[each]).long()
        wide = rearrange(pictures[table[each, index]], "b k h w -> b h (k w)")
        return patches_of(wide, self.patch), numbers

    @cached_property
    def _by_digit(
        self,
    ) -> Mapping[bool, tuple[Int[torch.Tensor, "ten M"], Int[torch.Tensor, " ten"]]]:
        pictures, labels = digits()
        by_side = split_sides(
            [row.tobytes() for row in pictures.numpy()], labels.tolist(), self.config.seed
        )
        lists = {
            side: [
                [i for i in rows if int(labels[i]) == digit] for digit in labels.unique().tolist()
            ]
            for side, rows in by_side.items()
        }
        return {
            side: (pad(rows), torch.tensor(list(map(len, rows)))) for side, rows in lists.items()
        }


@lru_cache(maxsize=20_000)
def deciding(language: str, number: int) -> tuple[int, ...]:
    """For each word of a number the index of the digit that decides it, −1 where none or several do. A digit decides a
    word that changes, or goes, for most other values of this digit alone."""
    words, digits = number_words(language), str(number)
    target = words[number]
    result = []
    for i, word in enumerate(target):
        changed = []
        for j, digit in enumerate(digits):
            others = [
                other for other in "0123456789" if other != digit and not (j == 0 and other == "0")
            ]
            variants = [words[int(digits[:j] + other + digits[j + 1 :])] for other in others]
            changed.append(
                sum(len(each) <= i or each[i] != word for each in variants) / len(variants)
            )
        decisive = [j for j, share in enumerate(changed) if share > DECIDES]
        result.append(decisive[0] if len(decisive) == 1 else -1)
    return tuple(result)


PICTURES: TaskEntry = TaskEntry(
    "pictures",
    "Pictures to words",
    meaning="Write the number that several handwritten digits show, in words.",
    look="Each word attends to the digit that determines it. In a German number the ones come before the tens.",
    build=lambda config: Pictures(config, PICTURES),
    params=(
        Param(
            "language",
            "Language",
            default="de",
            choices=("en", "de", "fr", "es"),
            labels=("English", "German", "French", "Spanish"),
            meaning="language of the number",
        ),
        Param(
            "digits",
            "Digits",
            default=3,
            low=2,
            high=4,
            step=1,
            meaning="number of digits in a picture",
        ),
        Param(
            "patch",
            "Patch",
            default="4",
            choices=("2", "4", "8"),
            labels=("2 × 2 pixels", "4 × 4 pixels", "a whole digit"),
            meaning=PATCH.meaning,
        ),
    ),
)
