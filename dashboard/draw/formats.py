"""Numbers as text: the formatters of sentences, tables, tooltips and labels; `draw/components/lib/numbers.js` is their twin.

One rule, by the value alone, so that a value has one text wherever it stands on a page:

- Two decimals from 0.1 up to 100 (0.68, −35.48), one up to 1,000, none beyond, with a comma between thousands.
- Below 0.1 three decimals (0.042); where these would be zeros, one significant digit (0.0004, 3e−6).
- Just below 1, from 0.995 on, three decimals, or the four that differ from 1 (0.997, 0.9996); beyond, 0.9999.
- So 0.00 and 1.00 are written for 0 and 1 alone, up to what float32 can tell.
- Weights, probabilities and shares below 0.0001 are "under 0.0001" in sentences and under maps, and 0 up to 1e−12.
- Percentages are whole, with as many decimals below 0.5 and above 99.5 as tell them from 0 and 100 (up to 99.99); a no-break
  space stands before the sign.
- Halves are rounded up. The minus is U+2212.

Amounts with a unit (bytes, durations, operations) have three significant digits and the unit of SI that gives at most
three digits before the point: kB, MB and GB are 10³, 10⁶ and 10⁹ bytes. Whole numbers below the first unit stay whole."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import ROUND_HALF_UP, Context, Decimal

from core.entries import Choice

MINUS, SPACE = "−", "\u00a0"
THOUSANDS = (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3))
SECONDS = (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6))
WHOLE = 1e15  # a float above it has no decimals, and is written with a power of ten
DIGITS = Context(prec=350)  # of the largest float, and more
NOISE = 1e-12  # of a weight in float: it is written as 0
EXACT = 5e-7  # the error of a sum of float32 near 1


class Written(str):
    """A text with the numbers that it writes out, in full precision: a table is exported with these.

    They are named by what they add to the name of their column, such as their unit: ", bytes".
    """

    numbers: Mapping[str, float]


UNKNOWN = "unknown"  # of an amount that is NaN


def written(text: str, numbers: Mapping[str, float] | float) -> Written:
    out = Written(text)
    named = numbers if isinstance(numbers, Mapping) else {"": float(numbers)}
    out.numbers = {
        part: value if isinstance(value, int) else float(value) for part, value in named.items()
    }
    return out


def number(value: float) -> str:
    """Any real number: a weight, a probability, a cosine, a score, a loss."""
    if math.isnan(value):
        return written("not a number", value)
    size = "∞" if math.isinf(value) else _unsigned(abs(float(value)))  # of numpy's float32
    return written(MINUS + size if value < 0 else size, value)


def whole(value: int) -> str:
    """A count, with a comma between thousands."""
    return written(f"{value:,}", {"": value})


def rounded(value: float) -> float:
    """The number that `number` writes."""
    return (
        float(number(value).replace(MINUS, "-").replace(",", "")) if math.isfinite(value) else value
    )


def signed(value: float) -> str:
    """A change or a correlation: `number` with its sign, which zero has not."""
    return written(f"+{number(value)}" if value > 0 else number(value), value)


def percent(share: float | None) -> str:
    """A share of 1 as a percentage; a dash for None."""
    if share is None:
        return "–"
    value = 100 * float(share)
    if not math.isfinite(value):
        return number(value)
    size = abs(value)
    if 0 < size < 0.01:
        least = f"under{SPACE}" if value > 0 else f"over{SPACE}{MINUS}"
        return written(f"{least}0.01{SPACE}%", {", %": value})
    nearly = 99.5 <= size < 100 * (1 - EXACT)
    size = min(size, 99.99) if nearly else size
    decimals = max(0, _places(size if 0 < size < 0.5 else 100 - size if nearly else 1.0))
    text = f"{_rounded(size, decimals)}{SPACE}%"
    return written(MINUS + text if value < 0 else text, {", %": value})


def share_text(value: float) -> str:
    """A weight, a probability or a share of 1 in a sentence or under a map: `number`, without powers of ten."""
    if abs(value) <= NOISE:
        return written("0", value)
    return written(f"under{SPACE}0.0001" if 0 < value < 0.0001 else number(value), value)


def cell(text: str) -> str:
    """A written number without a zero before its point, for the cells of a grid."""
    return re.sub(r"^([+−]?)0\.(?=.*[1-9])", r"\1.", text)


def score(value: float) -> str:
    """BLEU or chrF, 0 to 100, with the one decimal that sacrebleu prints."""
    return written(_rounded(value, 1), value)


def latex(value: float) -> str:
    """`number` for an equation, where LaTeX sets the minus."""
    if math.isnan(value):
        return r"\text{NaN}"
    text = number(value).replace(MINUS, "-").replace(",", "{,}").replace("∞", r"\infty")
    return re.sub(r"e(-?\d+)$", r" \\cdot 10^{\1}", text)


def byte_size(count: float) -> str:
    """An amount of memory or of a file: 12 bytes, 655 kB, 2.1 MB; MB = 10⁶ bytes; unknown where nobody counted."""
    if math.isnan(count):
        return UNKNOWN
    scaled = _scaled(count, THOUSANDS)
    return written(f"{scaled}B" if scaled else f"{count:.0f}{SPACE}bytes", {", bytes": count})


def operations(count: float) -> str:
    """Operations or anything else counted by the million: 126, 8.39 M, 1.21 G; unknown where nobody counted."""
    if math.isnan(count):
        return UNKNOWN
    return written(_scaled(count, THOUSANDS) or f"{count:.0f}", count)


def duration(seconds: float) -> str:
    """A measured time: 40 µs, 21.8 ms, 1.25 s, 1,240 s."""
    text = _scaled(seconds, SECONDS) or f"{seconds / 1e-6:.2g}{SPACE}µs"
    return written(text, {", s": seconds})


def about_duration(seconds: float) -> str:
    """An estimated time, in whole seconds or minutes: 45 s, 8 min."""
    return (
        f"{max(1, round(seconds))}{SPACE}s"
        if seconds < 90
        else f"{round(seconds / 60):,}{SPACE}min"
    )


def _scaled(value: float, units: tuple[tuple[str, float], ...]) -> str | None:
    """Three significant digits and the largest unit that leaves one before the point; None below the smallest."""
    for unit, size in units:
        if value >= 0.9995 * size:  # 999.5 k is written 1 M
            amount = value / size
            text = _rounded(amount, max(0, 2 - math.floor(math.log10(amount * 1.0005))))
            text = text.rstrip("0").rstrip(".") if "." in text else text
            return f"{text}{SPACE}{unit}"
    return None


def _unsigned(size: float) -> str:
    if size >= WHOLE:
        return f"{size:.2e}".replace("e+", "e")
    if size >= 99.995:
        return _rounded(size, 1 if size < 999.95 else 0)
    if 0.995 <= size < 1 - EXACT:
        size = min(size, 0.9999)
        return _rounded(size, max(3, _places(1 - size)))
    if size >= 0.0995 or size == 0:
        return _rounded(size, 2)
    if float(f"{size:.0e}") >= 0.00001:
        return _rounded(size, max(3, _places(size)))
    digit, _, power = f"{size:.0e}".partition("e")
    return f"{digit}e{MINUS}{abs(int(power))}"


def _places(size: float) -> int:
    return -math.floor(math.log10(float(f"{size:.0e}")))


def _rounded(size: float, decimals: int) -> str:
    # As JavaScript's toFixed does: f-strings round 0.125 to 0.12.
    return f"{Decimal(size).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP, DIGITS):,}"


# Tokens as text.


def distinct(tokens: Sequence[str]) -> list[str]:
    """Distinct names: zero-width spaces tell equal tokens apart."""
    return [
        f"{token}{chr(0x200B) * list(tokens[:index]).count(token)}"
        for index, token in enumerate(tokens)
    ]


def numbered(tokens: Sequence[str]) -> list[str]:
    """Names for sentences: of equal tokens each with its number, as "John (2 of 2)"."""
    counts, before, names = Counter(tokens), Counter[str](), list[str]()
    for token in tokens:
        before[token] += 1
        names.append(f"{token} ({before[token]} of {n})" if (n := counts[token]) > 1 else token)
    return names


def cut(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def shorten(text: str, max_length: int = 80) -> str:
    """The two ends of a long text, cut between words where there are any: outputs of one beam differ there."""
    if len(text) <= max_length:
        return text
    start, end = text[: max_length // 2 - 1], text[-max_length // 2 + 2 :]
    first, last = start.rpartition(" ")[0] or start, end.partition(" ")[2] or end
    return f"{first} … {last}"


def spoken(text: str) -> str:
    """The words of a sentence in Markdown (bold, :primary[accent], escaped signs), as a screen reader says them."""
    words = re.sub(r":primary\[((?:\\.|[^\\\]])*+)\]?", r"\1", text).replace("**", "")
    return re.sub(r"\\([^\w\s])", r"\1", words)


def plain(text: str) -> str:
    """Typed text made safe for st.markdown: every sign that Markdown, LaTeX or Streamlit reads is escaped."""
    return "".join(f"\\{sign}" if sign in r"\`*_{}[]()#+-.!|~$<>:&^=" else sign for sign in text)


LONGEST_NAME = 12  # signs; a longer token is written as its index
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'’-.,;:!?")


def latex_signed(value: float) -> str:
    return f"({latex(value)})" if latex(value).startswith("-") else latex(value)


def added(value: float) -> str:
    return f" - {latex(-value)}" if value < 0 else f" + {latex(value)}"


def latex_name(token: str, index: int) -> str:
    """A token inside LaTeX: as it is when it is a short word, in quotes when it is a mark alone, else its index."""
    shown = token if any(map(str.isalnum, token)) else f"“{token}”"
    return (
        rf"\text{{{shown}}}"
        if len(token) <= LONGEST_NAME and set(token) <= SAFE and token
        else str(index)
    )


def listed(values: Sequence[float], max_values: int = 4) -> str:
    terms = [latex(float(value)) for value in values[:max_values]]
    more = len(values) - len(terms)
    return r",\ ".join([*terms, rf"\ldots\ {more}\text{{ more}}"] if more else terms)


def coloured(text: str, colour: str) -> str:
    return rf"\textcolor{{{colour}}}{{{text}}}"


def rule(axis: str, choice: Choice, *, changed: bool = True, **values: object) -> str:
    """The rule with its parameters and further values, joined from the parts of a composed choice.

    Other parameters that are not at their defaults follow it where `changed` ones are asked for.
    """
    from core.attention import entry  # torch comes with it

    item = entry(axis, choice.key)
    if choice.parts:
        # "causal and none" is causal, but "causal or none" is none
        joined = [
            part for part in choice.parts if part.key != "none" or choice.key in ("or", "not")
        ]
        parts = [rule(axis, part, changed=changed, **values) for part in joined or choice.parts[:1]]
        return f"not ({parts[0]})" if choice.key == "not" else f" {choice.key} ".join(parts)
    params = dict(choice.params)
    if not changed:
        return (item.short or item.name).format(**params, **values)
    text = item.name.lower()
    with suppress(KeyError):  # of a length, say
        text = item.short.format(**params)
    others = [
        f"{param.name.lower()} {params[param.key]}"
        for param in item.params
        if params.get(param.key) != param.default and f"{{{param.key}}}" not in item.short
    ]
    return ", ".join(filter(None, [text, *others]))


def mask_latex(mask: Choice) -> str:
    """The condition under which a key is allowed; of a composed mask by its parts, of a typed one as typed."""
    from core.attention import entry  # torch comes with it
    from core.attention.formula import parse

    if mask.key == "formula":
        return parse(str(mask["text"]), "mask").latex()
    if not mask.parts:
        return entry("mask", mask.key).latex.split(r",\quad w_{ij}")[0]
    parts = [mask_latex(part) for part in mask.parts]
    if mask.key == "not":
        return rf"\neg({parts[0]})"
    return {"and": r" \wedge ", "or": r" \vee "}[mask.key].join(
        [
            rf"({text})" if part.parts or r"\vee" in text else text
            for part, text in zip(mask.parts, parts, strict=True)
        ]
    )


def choice_name(axis: str, choice: Choice) -> str:
    """An entry's name; of a composed choice, those of its parts: Causal and not local window."""
    from core.attention import entry  # torch comes with it

    if not choice.parts:
        return entry(axis, choice.key).name
    parts = [lower_name(choice_name(axis, part)) for part in choice.parts]
    name = f"not {parts[0]}" if choice.key == "not" else f" {choice.key} ".join(parts)
    return name[:1].upper() + name[1:]


def lower_name(name: str) -> str:
    """A name in the middle of a sentence: ALiBi, RoPE and Vaswani 2017 keep their letters."""
    return name.lower() if name == name.capitalize() else name


STATES = {  # of a run, in words
    "queued": "waiting",
    "starting": "starting",
    "running": "running",
    "paused": "paused",
    "stopped": "stopped",
    "finished": "finished",
    "failed": "failed",
}
