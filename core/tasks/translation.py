"""Tasks of translation: numbers to words, dates between languages, a made-up language."""

import itertools
import re
from bisect import bisect_left, bisect_right
from dataclasses import replace
from datetime import date, timedelta
from functools import cached_property, lru_cache

import torch
from jaxtyping import Int

from core.entries import Param, quote, refuse_if
from core.tasks import recipes
from core.tasks.base import (
    PAD,
    Batch,
    Example,
    Task,
    TaskConfig,
    TaskEntry,
    Vocabulary,
    choose,
    is_held_out,
)

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
    20_000,
    1000,
    50_000,
    1000,
    meaning="number of pairs that are generated before training",
)
NUMBERS: TaskEntry = TaskEntry(
    "numbers",
    "Number words",
    "Translate English number words to German or French.",
    "Each output attends to the words of its number, so the map is a staircase. Within a German number it steps back, "
    "as ones come before tens.",
    lambda config: Numbers(config, NUMBERS),
    (
        Param(
            "language",
            "Language",
            "de",
            choices=("de", "fr"),
            labels=("German", "French"),
            meaning="language that the numbers are translated to",
        ),
        Param(
            "numbers", "Numbers", 10, 2, 10, 1, meaning="largest number of numbers in one source"
        ),
        Param(
            "max_source",
            "Longest source",
            60,
            10,
            80,
            1,
            meaning="largest number of words in one source",
        ),
        PAIRS,
    ),
)
DATES: TaskEntry = TaskEntry(
    "dates",
    "Dates",
    "Translate a date in English, German or French to year-month-day.",
    "The output attends to the end of the source for the year, then to the month, then to the day.",
    lambda config: Dates(config, DATES),
    (replace(PAIRS, default=10_000),),
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
    "Classify the language of a number that is spelled letter by letter.",
    "The class attends to pairs of letters that only its language has.",
    lambda config: WhichLanguage(config, LANGUAGE),
    (
        Param(
            "languages",
            "Languages",
            6,
            2,
            len(LANGUAGES),
            1,
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
