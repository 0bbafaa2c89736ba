"""One query, step by step: its words, its equations with their numbers, and its charts."""

import math
import re
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

import numpy as np

from core.attention import AXES, AttentionConfig, Choice, entry, preset
from core.attention.positions import enters, entries_of
from core.attention.presets import preset_of
from core.studies import heads as study
from dashboard.draw import step_view
from dashboard.draw.components import Cell
from dashboard.draw.curves import Curve, line_chart
from dashboard.draw.figures import Ink, Spec, config, layer, series_encoding, titled_figure
from dashboard.draw.formats import (
    added,
    coloured,
    latex,
    latex_name,
    latex_signed,
    listed,
    mask_latex,
    number,
    plain,
    plural,
    rounded,
    rule,
    share_text,
)

PLAIN = ("self_attention", "vaswani")  # presets that have nothing to compare
MEANING = {
    1: "Three matrices, which training learns, turn the vector x of a word "
    "into a query (what the word looks for), a key (what it is found by) and a value (what it passes on).",
    2: "The score of a query and a key says how well they fit. A dot product multiplies them number by number and adds "
    "the products.",
    3: "A score adds D products, where D is the count of numbers in a query. Dividing by √D keeps the scores at the "
    "same size for every D. Some models also add a bias here, such as a penalty for distance.",
    4: "The mask sets the scaled score to −∞ for every key that the query may not attend to, so its weight becomes 0.",
    5: "The normalizer turns the scaled scores of the allowed keys into weights. Softmax makes them positive, with sum 1. "
    "It divides by the temperature τ first: below 1 the weights are sharper, above 1 flatter.",
    6: "The output is the sum of the values v, each multiplied by its weight. It is the new vector of the word. A weight "
    "alone does not tell how much a word adds: that is weight × value, and later layers may undo it.",
}
STRUT = r"\rule[-1em]{0pt}{2.35em}"
FRACTIONS = {0.5: "½", 0.25: "¼", 0.125: "⅛", 0.75: "¾"}


def stage_words(
    config: AttentionConfig, reading: step_view.Reading, real: int | None, typed: bool
) -> tuple[tuple[str, str, str, str], ...]:
    """Title, short name, rule and column head of the six stages."""
    source = "Q, K, V given" if typed else rule("projection", config.projection, changed=False)
    places = enters(config.position)
    position = ", x + position" if "x" in places else ", rotated" if "q, k" in places else ""
    score = rule("score", config.score, changed=False)
    head = score if len(score) <= 8 else "score"  # a longer rule does not fit over a column
    normalizer = entry("normalizer", config.normalizer.key)
    name, params = normalizer.name.lower(), {param.key: param for param in normalizer.params}
    changed = "".join(
        f", {params[key].name.lower()} {value if isinstance(value, bool | str) else short_number(float(value))}"
        for key, value in config.normalizer.params
        if value != params[key].default
    )
    mask = question = rule("mask", config.mask, changed=False, length=real)
    if config.mask.key != "none":  # the rule, and the question put to each key
        mask, question = f"allow {mask}", re.sub(r"\bi\b", str(reading.query), mask) + " ?"
    folded = f", {rule('projection', config.projection, changed=False)}" if reading.folded else ""
    factor = ", × factor" if reading.reweighed else ""
    return (
        ("Project", "q", source + position, "k"),
        ("Score", head, score, head),
        ("Scale + bias" if reading.bias is not None else "Scale", *scale_words(reading)),
        ("Mask", "mask", mask, question),
        ("Normalize", name, name + changed + factor + folded, "weight"),
        (
            "Weigh values",
            "out",
            "Σ w·v" + (" + positions" if reading.position_values is not None else ""),
            "weight × v",
        ),
    )


def short_number(value: float) -> str:
    if value in FRACTIONS:
        return FRACTIONS[value]
    if 0 < value < 1 and (1 / value).is_integer() and 1 / value <= 4096:
        return f"1/{1 / value:.0f}"
    return f"{value:.4g}".replace("-", "−")


def scale_words(reading: step_view.Reading) -> tuple[str, str, str]:
    """Short name, rule, column head."""
    factor, head, dims = "", "", reading.q.shape[1]
    if is_root(reading) and reading.scale != 1:
        factor, head = f"÷ √{dims}", f"÷{short_number(round(math.sqrt(dims), 2))}"
    elif reading.scale != 1:
        factor, head = (f"{sign}{short_number(reading.scale)}" for sign in ("× ", "×"))
    effects = ["+ bias"] * (reading.bias is not None) + ["adjusted"] * reading.adjusted
    if reading.bias is not None:
        slope = slope_of(reading.bias[reading.query], reading.query)
        head = (
            f"{head} {'+ bias' if slope is None else f'− {short_number(slope)}·distance'}".strip()
        )
    if reading.adjusted:
        head = f"{head}, adjusted" if head else "adjusted"
    words = ", ".join([factor] * bool(factor) + effects) or "unchanged"
    return effects[-1] if effects else "scale", words, head or "unchanged"


def is_root(reading: step_view.Reading) -> bool:
    return math.isclose(reading.scale, reading.q.shape[1] ** -0.5, rel_tol=1e-6)


def slope_of(bias: np.ndarray, query: int) -> float | None:
    """What one step of distance takes from a query's scores, read from its bias; None where it is not linear."""
    distance = np.abs(np.arange(len(bias)) - query)
    slope = round(0.0 - float(bias[distance.argmax()]) / max(1.0, float(distance.max())), 9)
    return slope if np.allclose(bias, -slope * distance, atol=1e-4) and slope >= 0 else None


def reasons_text(reading: step_view.Reading, real: int | None) -> dict[int, str]:
    """Why each masked key of the picked query is masked, as far as the row itself shows it.

    Padding; later, where no later key is visible; too far, where visible keys end nearer; else masked.
    """
    i, allowed = reading.query, reading.allowed[reading.query]
    visible = np.flatnonzero(allowed)

    def reason(j: int) -> str:
        if real is not None and j >= real:
            return "padding"
        if j > i and not (visible > i).any():
            return "comes later"
        beyond = [abs(int(n) - i) for n in visible if (n - i) * (j - i) >= 0]
        return "too far" if i in visible and abs(j - i) > max(beyond, default=0) else "masked"

    return {int(j): reason(int(j)) for j in np.flatnonzero(~allowed)}


MAX_TERMS, LEAST = 6, r"-\infty"
BREAK = " \\\\ "  # where a long line may be broken


Pick = Callable[[str], str]
Made = tuple[np.ndarray, list[np.ndarray]]  # x and the matrices of a projection


# The equation of each stage: symbolic, and with the live numbers of one query and one key.


def equation(
    reading: step_view.Reading, config: AttentionConfig, stage: int, focus: int, colour: str
) -> tuple[str, ...]:
    """LaTeX of a stage (1 to 6) for the picked query and a key, marked in `colour`: symbols, then numbers in parts."""
    write = (
        project_latex,
        score_latex,
        scale_latex,
        allowed_latex,
        normalize_latex,
        weighted_sum_latex,
    )[stage - 1]
    symbols, live = write(reading, config, focus, lambda text: coloured(text, colour))
    return symbols, *live.split(BREAK)


def equation_text(parts: Sequence[str], reading: step_view.Reading, made: Made | None) -> str:
    """The parts of an equation as Markdown, between which a narrow page breaks; with the sum that makes a query."""
    parts = list(parts)
    if made is not None:
        x, (w_q, *_) = made
        result = reading.q[reading.query, 0]
        (first, *terms), sign = products(x[reading.query], w_q[:, 0], MAX_TERMS, result)
        parts += [r"\quad\text{Its first number: }", first, *(f"+ {term}" for term in terms)]
        parts += [rf"{sign} \mathbf{{{latex(result)}}}"]
    # A part in braces never breaks, and the strut keeps the lines of a narrow page apart.
    symbols, *live = (rf"$\displaystyle {{{STRUT} {part}}}$" for part in parts)
    return f"{symbols} \u2003 {' '.join(live)}"


def first_latex(axis: str, choice: Choice) -> str:
    """The first equation of an entry; a typed formula has its own."""
    item = entry(axis, choice.key)
    for param in item.params:
        if param.parse is not None and callable(
            latex := getattr(param.parse(str(choice[param.key])), "latex", None)
        ):
            return str(latex())
    return item.latex.split(r",\quad")[0]


def pair_latex(reading: step_view.Reading, j: int) -> str:
    return f"{latex_name(reading.name, reading.query)},\\,{latex_name(reading.keys[j], j)}"


def vector_latex(values: np.ndarray) -> str:
    return f"({listed(values.tolist())})"


def project_latex(
    reading: step_view.Reading, config: AttentionConfig, j: int, pick: Pick
) -> tuple[str, str]:
    i = reading.query
    symbols = first_latex("projection", config.projection)
    # later stages show the rest
    symbols = symbols if symbols.startswith("q_i") else "q_i = x_i W_q"
    places = enters(config.position)
    if "q, k" in places:
        symbols = f"q_i = R_i({symbols.removeprefix('q_i = ')})"
    if "x" in places:
        symbols = symbols.replace("x_i", "(x_i + p_i)")
    return symbols, pick(f"q_{{{latex_name(reading.name, i)}}}") + " = " + vector_latex(
        reading.q[i]
    )


def equals(shown: float, result: float) -> str:
    """= where the numbers as they are drawn give the result as it is drawn, else ≈."""
    return "=" if number(shown) == number(result) else r"\approx"


def products(
    left: np.ndarray, right: np.ndarray, most: int, result: float
) -> tuple[list[str], str]:
    """The first products of two vectors and the sum of the others, then = or ≈, as what is shown adds up to the result."""
    shown = [rounded(a) * rounded(b) for a, b in zip(left[:most], right[:most], strict=True)]
    terms = [
        rf"{latex_signed(a)} \cdot {latex_signed(b)}"
        for a, b in zip(left[:most], right[:most], strict=True)
    ]
    if len(left) > most:
        rest = float(left[most:] @ right[most:])
        shown.append(rounded(rest))
        terms.append(rf"\underbrace{{{latex_signed(rest)}}}_{{{len(left) - most}\text{{ more}}}}")
    return terms, equals(sum(shown), result)


def score_latex(
    reading: step_view.Reading, config: AttentionConfig, j: int, pick: Pick
) -> tuple[str, str]:
    i, result = reading.query, reading.raw[reading.query, j]
    left, value = pick(f"s_{{{pair_latex(reading, j)}}}"), pick(rf"\mathbf{{{latex(result)}}}")
    if not math.isclose(float(reading.q[i] @ reading.k[j]), result, rel_tol=1e-4, abs_tol=1e-4):
        rule = re.sub(r"(?<! ) */ *\\sqrt\{D\}$", "", first_latex("score", config.score))
        return f"s_{{ij}} = {rule}", f"{left} = {value}"
    terms, sign = products(reading.q[i], reading.k[j], 4, result)
    return r"s_{ij} = q_i \cdot k_j", f"{left} = {' + '.join(terms)} {sign} {value}"


def scale_latex(
    reading: step_view.Reading, config: AttentionConfig, j: int, pick: Pick
) -> tuple[str, str]:
    i, dims = reading.query, reading.q.shape[1]
    symbols, live, shown = "s_{ij}", latex(reading.raw[i, j]), rounded(reading.raw[i, j])
    if reading.scale != 1 and is_root(reading):
        symbols, live = r"\frac{s_{ij}}{\sqrt{D}}", rf"\frac{{{live}}}{{\sqrt{{{dims}}}}}"
        shown /= dims**0.5
    elif reading.scale != 1:
        factor = latex(reading.scale)
        symbols, live = (
            rf"{factor}\, s_{{ij}}",
            rf"{factor} \cdot {latex_signed(reading.raw[i, j])}",
        )
        shown *= rounded(reading.scale)
    rules = [
        first_latex("position", leaf)
        for leaf in config.position.leaves()
        if not config.position.parts or enters(leaf) == {"scores"}
    ]
    rule = (r",\quad " if any("arrow" in rule for rule in rules) else " + ").join(rules)
    if reading.bias is not None:
        live += added(float(reading.bias[i, j]))
        shown += rounded(reading.bias[i, j])
        if not reading.adjusted:
            symbols += rule if rule.startswith("-") else f" + {rule}"
    left, result = (
        pick(f"b_{{{pair_latex(reading, j)}}}"),
        pick(rf"\mathbf{{{latex(reading.scores[i, j])}}}"),
    )
    if reading.adjusted:  # the rule is of the whole score, from the left of the arrow
        return (
            rule if "=" in rule or "arrow" in rule else f"b_{{ij}} = {rule}",
            rf"{left}:\ {live} \;\to\; {result}",
        )
    sign = equals(shown, reading.scores[i, j])
    return f"b_{{ij}} = {symbols}", f"{left} = {live} {sign} {result}"


def allowed_latex(
    reading: step_view.Reading, config: AttentionConfig, j: int, pick: Pick
) -> tuple[str, str]:
    i, allowed = reading.query, bool(reading.allowed[reading.query, j])
    rule = mask_latex(config.mask)
    left, value = pick(f"b_{{{pair_latex(reading, j)}}}"), latex(reading.scores[i, j])
    result = pick(rf"\mathbf{{{value if allowed else LEAST}}}")
    return (
        rf"b_{{ij}} \leftarrow \begin{{cases}} b_{{ij}} & {rule} \\ -\infty & \text{{else}} \end{{cases}}",
        rf"{left} = {result}\quad (i = {i},\ j = {j})",
    )


def normalize_latex(
    reading: step_view.Reading, config: AttentionConfig, j: int, pick: Pick
) -> tuple[str, str]:
    """The normalizer's rule and result; every number of a softmax, and each map where a projection combines them."""
    i = reading.query
    left, value = (
        pick(f"w_{{{pair_latex(reading, j)}}}"),
        pick(rf"\mathbf{{{latex(reading.weights[i, j])}}}"),
    )
    if reading.folded:
        maps = r",\quad ".join(
            f"a_{n + 1} = {latex(each[i, j])}" for n, each in enumerate(reading.normalized)
        )
        return first_latex("projection", config.projection), rf"{maps}{BREAK}\to\; {left} = {value}"
    if reading.reweighed:
        unfactored = float(reading.normalized[0][i, j])
        factor = float(reading.weights[i, j]) / unfactored if unfactored else 1.0
        return (
            r"w_{ij} = g_{ij}\, a_{ij}",
            rf"{left} = {latex(factor)} \cdot {latex(unfactored)} = {value}",
        )
    # The normalizer's equation, in b instead of s where b is free, as the stage before writes it
    rule = entry("normalizer", config.normalizer.key).latex
    rule = rule if "b_{i" in rule else rule.replace("s_{i", "b_{i")
    if not reading.allowed[i, j]:
        return rule, f"{left} = " + pick(r"\mathbf{0}") + r"\quad (\text{masked})"
    if config.has("normalizer", "softmax"):
        return softmax_latex(reading, config, j, left, value)
    total = rf"{BREAK}\quad \textstyle\sum_m w_{{im}} = {latex(reading.sum)}"
    return rule, f"{left} = {value}{'' if reading.sums_to_one else total}"


def softmax_latex(
    reading: step_view.Reading, config: AttentionConfig, j: int, left: str, value: str
) -> tuple[str, str]:
    i, tau = reading.query, float(config.normalizer["temperature"])
    allowed = [int(m) for m in reading.allowed[i].nonzero()[0]]
    top = r"b_{ij}" if tau == 1 else r"b_{ij} / \tau"
    # The keys that a sum runs over; m alone where the mask's rule is long
    rule = mask_latex(config.mask)
    short = config.mask.key != "none" and len(rule) <= 24 and re.search(r"\bj\b", rule)
    sum_over = re.sub(r"\bj\b", "m", rule) if short else "m"
    symbols = (
        rf"w_{{ij}} = \frac{{e^{{{top}}}}}{{\sum_{{{sum_over}}} e^{{{top.replace('j', 'm')}}}}}"
        + rf",\ \tau = {latex(tau)}" * (tau != 1)
    )
    powers = {m: reading.scores[i, m] / tau for m in allowed}
    heaviest = sorted(allowed, key=lambda m: (m != j, -powers[m]))[:MAX_TERMS]
    terms = " + ".join(in_order(allowed, heaviest, lambda m: f"e^{{{latex(powers[m])}}}"))
    live = rf"{left} ={BREAK}\frac{{e^{{{latex(powers[j])}}}}}{{{terms}}}"
    if max(abs(p) for p in powers.values()) < 8:  # above it e^s is a long number
        top_value, total = math.exp(powers[j]), sum(math.exp(p) for p in powers.values())
        drawn = (
            math.exp(rounded(powers[j])),
            sum(math.exp(rounded(p)) for p in powers.values()),
        )
        sign = max(equals(drawn[0], top_value), equals(drawn[1], total))  # ≈ where either differs
        live += rf"{BREAK}{sign} \frac{{{latex(top_value)}}}{{{latex(total)}}}"
        sign = equals(rounded(top_value) / rounded(total), reading.weights[i, j])
        return symbols, f"{live} {sign} {value}"
    return symbols, f"{live} = {value}"


def weighted_sum_latex(
    reading: step_view.Reading, config: AttentionConfig, j: int, pick: Pick
) -> tuple[str, str]:
    i = reading.query
    allowed = [int(m) for m in reading.allowed[i].nonzero()[0]]
    largest = sorted(allowed, key=lambda m: (m != j, -abs(reading.weights[i, m])))[:MAX_TERMS]
    values = [rf"v_{{{latex_name(name, m)}}}" for m, name in enumerate(reading.keys)]
    terms = in_order(allowed, largest, lambda m: rf"{latex(reading.weights[i, m])}\,{values[m]}")
    symbols = r"o_i = \sum_j w_{ij}\, v_j"
    if reading.position_values is not None:
        symbols += " + p_i"
        terms += [vector_latex(reading.position_values[i])] if terms else []
    middle = f"{BREAK}+ ".join(terms).replace("+ -", "- ")
    left, out = pick(f"o_{{{latex_name(reading.name, i)}}}"), vector_latex(reading.out[i])
    live = f"{left} = " + f"{BREAK}= ".join(filter(None, (middle, out)))
    if j in allowed:
        live += rf"{BREAK}\quad {values[j]} = {vector_latex(reading.v[j])}"
    return symbols, live


def in_order(keys: Sequence[int], shown: Sequence[int], write: Callable[[int], str]) -> list[str]:
    """The terms of the shown keys in the sentence's order, with dots in the place of the others."""
    terms = [write(m) if m in shown else r"\cdots" for m in keys]
    return [term for before, term in pairwise(["", *terms]) if (before, term) != (r"\cdots",) * 2]


Parts = list[list[str]]  # [text, style]; style "", "pick" or "strong"


MARKS = {
    ".": "the full stop",
    ",": "the comma",
    "?": "the question mark",
    "!": "the exclamation mark",
    ";": "the semicolon",
    ":": "the colon",
}
WHY_MASKED = {
    "padding": "is padding, so ",
    "too far": "is too far, so ",
    "comes later": "comes later, so ",
}


def token_name(token: str) -> str:
    return MARKS.get(token, token)


# One measured sentence for each stage, the conditions under which it holds, and the sentence on √D.


def facts_fact(
    reading: step_view.Reading,
    config: AttentionConfig,
    stage: int,
    whys: dict[int, str],
    head: int = 0,
) -> Parts:
    is_finite = np.isfinite(reading.out[reading.query]).all()
    if not is_finite or not reading.sees:
        nothing = " may attend to no key: every weight is 0 and its output is 0."
        beyond = " has an output that is not a number: the sizes are beyond float32."
        return [[reading.name, "pick"], [nothing if is_finite else beyond, ""]]
    if stage == 1:
        return project_fact(reading, config, head)
    return (score_fact, scale_fact, mask_fact, normalize_fact, weighted_sum_fact)[stage - 2](
        reading, config, whys
    )


def project_fact(reading: step_view.Reading, config: AttentionConfig, head: int) -> Parts:
    i, numbers = reading.query, plural(reading.q.shape[1], "number")
    if reading.queries != reading.keys:
        text = f" is a query of {numbers}. It is compared with {len(reading.keys)} keys."
    elif np.array_equal(reading.k[i], reading.v[i]):
        text = f" has a query of {numbers}, and a key that is also its value."
    else:
        text = ": three matrices turn its vector x into query, key and value."
    return [[reading.name, "pick"], [text + sharing(config, head), ""]]


def sharing(config: AttentionConfig, head: int) -> str:
    group = config.num_heads // config.kv_heads
    if group <= 1:
        return ""
    others = [f"{n}" for n in range(config.num_heads) if n // group == head // group and n != head]
    named = " and ".join(filter(None, (", ".join(others[:-1]), others[-1])))
    return (
        f" Head {head} shares key and value head {head // group} of {config.kv_heads} with "
        f"head{'s' * (group > 2)} {named}."
    )


def score_fact(reading: step_view.Reading, config: AttentionConfig, whys: dict[int, str]) -> Parts:
    raw = reading.raw[reading.query]
    top = token_name(reading.keys[raw.argmax()])
    rest = f"The mean of its {raw.size} scores is {number(raw.mean())}."
    return [
        [reading.name, "pick"],
        [f" has its highest score with {top}, ", ""],
        [number(raw.max()), "strong"],
        [f". {rest if raw.size > 1 else 'It is the only key.'}", ""],
    ]


def scale_fact(reading: step_view.Reading, config: AttentionConfig, whys: dict[int, str]) -> Parts:
    raw, scores = reading.raw[reading.query], reading.scores[reading.query]
    grows = reading.scale > 1
    factor = number(reading.scale if grows else 1 / reading.scale)
    named = {
        f"{'multiplying' if grows else 'dividing'} by {factor}": reading.scale != 1,
        f"the bias of {position(config)}": reading.bias is not None,
        f"the rule of {position(config)}": reading.adjusted,
    }
    changes = [change for change, holds in named.items() if holds]
    if not changes:
        return [
            ["Nothing is divided and nothing is added: the highest and the lowest score of ", ""],
            [reading.name, "pick"],
            [f" still differ by {number(np.ptp(raw))}.", ""],
        ]
    subject = " and ".join(changes) + (" change" if len(changes) > 1 else " changes")
    return [
        [
            f"{subject[0].upper()}{subject[1:]} the difference between the highest and the lowest score of ",
            "",
        ],
        [reading.name, "pick"],
        [f" from {number(np.ptp(raw))} to ", ""],
        [number(np.ptp(scores)), "strong"],
        [".", ""],
    ]


def position(config: AttentionConfig) -> str:
    return " and ".join(item.name for item in entries_of(config.position))


def mask_fact(reading: step_view.Reading, config: AttentionConfig, whys: dict[int, str]) -> Parts:
    hidden = len(reading.keys) - reading.sees
    if not hidden:
        allowed = f"all {len(reading.keys)} keys" if len(reading.keys) > 1 else "the only key"
        query, later = hidden_from(reading)
        hint = f" “Hide later words from {query}”, below, masks some." * (later > 0)
        return [
            ["No key is masked here: ", ""],
            [reading.name, "pick"],
            [f" may attend to {allowed}.{hint}", ""],
        ]
    end = "."
    if config.has("normalizer", "softmax"):
        scores = reading.scores[reading.query] / float(config.normalizer["temperature"])
        softmax = np.exp(scores - np.logaddexp.reduce(scores))
        lost = number(softmax[list(whys)].sum())
        end = f"; without the mask they would get {lost} of the weight."
    return [
        ["The mask removes ", ""],
        [f"{hidden} of {len(reading.keys)}", "strong"],
        [" keys for ", ""],
        [reading.name, "pick"],
        [end, ""],
    ]


def normalize_fact(
    reading: step_view.Reading, config: AttentionConfig, whys: dict[int, str]
) -> Parts:
    i, best = reading.query, reading.best
    top = int(reading.raw[i].argmax())
    target = (
        "itself"
        if best == i and reading.queries == reading.keys
        else token_name(reading.keys[best])
    )
    parts = [
        [reading.name, "pick"],
        [" takes ", ""],
        [share_text(reading.weights[i, best]), "strong"],
        [f" from {target}" + ("." if not target.endswith(".") else ""), ""],
    ]
    end, cost = "", float(reading.raw[i, top] * reading.scale - reading.scores[i, top])
    if reading.folded:
        first, *rest = (number(each[i, best]) for each in reading.normalized)
        end = (
            f" By the first map it takes {first}, by the second {', '.join(rest)}. Its row sums to "
            f"{number(reading.sum)}."
        )
    elif not reading.sums_to_one:
        before = f"; before the mask’s factor it was {number(reading.normalized[0][i].sum())}"
        end = f" Its row sums to {number(reading.sum)}{before * reading.reweighed}."
    elif (
        top == best
        and config.has("normalizer", "softmax")
        and config.normalizer["temperature"] != 1
    ):
        scores = reading.scores[i][reading.allowed[i]]
        end = f" At temperature 1 it would take {share_text(np.exp(scores.max() - np.logaddexp.reduce(scores)))}."
    elif top == best:
        even = f"Equal weights would be {number(1 / reading.sees)} for each of {reading.sees} keys."
        end = f" {even if reading.sees > 1 else 'It may attend to no other key.'}"
    elif top in whys or cost >= 5e-3:  # else equal scores, split by rounding, which no digit shows
        removes = f"{position(config)} subtracts {number(cost)}"
        if top in whys:
            removes = f"{WHY_MASKED.get(whys[top], '')}the mask removes it"
        named = MARKS.get(reading.keys[top], "").capitalize() or reading.keys[top]
        high = number(reading.raw[i, top])
        end = f" {named} has the highest score, {high}, but {removes}."
    return [*parts, [end, ""]]


def weighted_sum_fact(
    reading: step_view.Reading, config: AttentionConfig, whys: dict[int, str]
) -> Parts:
    i, lengths = reading.query, np.linalg.norm(reading.v, axis=1)
    main = int((np.abs(reading.weights[i]) * lengths).argmax())
    end = (
        f". It takes most from {token_name(reading.keys[main])}: weight {share_text(reading.weights[i, main])} × a value "
        f"of length {number(float(lengths[main]))}."
    )
    if main != (top := reading.best):
        end += (
            f" A larger weight, {share_text(reading.weights[i, top])} on {token_name(reading.keys[top])}, adds less: its "
            f"value has length {number(float(lengths[top]))}."
        )
    if reading.position_values is not None:
        added = number(float(np.linalg.norm(reading.position_values[i])))
        end += f" What {position(config)} adds to the values has length {added}."
    return [
        ["The output of ", ""],
        [reading.name, "pick"],
        [" has length ", ""],
        [number(float(np.linalg.norm(reading.out[i]))), "strong"],
        [end, ""],
    ]


def hidden_from(reading: step_view.Reading) -> tuple[str, int]:
    """Of which query a causal mask hides words, and how many: of the picked one, or the first where none comes later."""
    if reading.queries != reading.keys:
        return reading.name, 0
    last = len(reading.keys) - 1
    query = reading.query if reading.query < last else 0
    return reading.queries[query], last - query


def notes_on(
    reading: step_view.Reading, config: AttentionConfig, learned: bool, made: bool
) -> list[str]:
    """Whether numbers are random (`learned` ones are), how a query is `made`, and what the picture leaves out."""
    tokens, dims = max(len(reading.queries), len(reading.keys)), reading.q.shape[1]
    item, cells = entry("kernel", config.kernel.key), step_view.MAP_CELLS
    first = "Q, K and V are the typed ones, so every number can be checked by hand."
    if learned:
        first = "Random numbers, as before training" + (
            "." if made else ": from which word most is taken has no meaning yet."
        )
    does = (
        "gives the same output without them."
        if "same" in item.traits
        else "computes other weights. The page Cost and speed shows them."
    )
    notes = {
        first: True,
        "Each number of x multiplies its row of W; columns add up.": made,
        f"The steps of the exact kernel are shown; kernel = {item.key} {does}": item.key != "exact",
        f"The maps show {cells} of {tokens} tokens, those around the query.": tokens > cells,
        f"The first {cells} of {dims} dimensions are drawn; all of them are in every number.": dims
        > cells,
    }
    return [note for note, holds in notes.items() if holds]


def preset_words(config: AttentionConfig | None) -> list[str]:
    """The preset's changes against Vaswani 2017, a sentence each; none where there is no preset."""
    name = preset_of(config)
    if config is None or name is None or name in PLAIN:
        return []
    item = preset(name)
    changes = item.changed(config.d_model, config.num_heads) or (item.meaning,)
    name = item.name if str(item.year) in item.name else f"{item.name} ({item.paper} {item.year})"
    return [f"{name} compared with Vaswani 2017" if len(changes) > 1 else name, *changes]


def largest_fact(points: tuple[study.Scaling, ...]) -> str:
    dims, (plain, scaled) = points[-1].dims, points[-1].largest
    return (
        f"At D = {dims} one of {study.KEYS} keys gets **{number(plain)}** of the weight on average. After "
        f"÷ √{dims} it gets **{number(scaled)}**."
    )


def scaling_fact(points: tuple[study.Scaling, ...]) -> str:
    last, even = points[-1], math.log(study.KEYS)
    return (
        f"At D = {last.dims} the scores have variance {number(last.variance[0])}, and the entropy of the weights is "
        f"{number(last.entropy[0] / even)} of that of uniform weights. After ÷ √{last.dims} the scores have variance "
        f"{number(last.variance[1])}, and the entropy is {number(last.entropy[1] / even)}."
    )


NAMES = ["without √D", "divided by √D"]


SMALL, LARGE = 4, 64  # head sizes of the question on √D
MUCH = 0.8  # an entropy below this share of the other's is much lower
ROOT_QUESTION = f"Scores are not divided by √D. What happens to the weights when D grows from {SMALL} to {LARGE}?"
ROOT_ANSWERS = (
    "one key gets most",
    "they stay the same",
    "they become more equal",
)


def root_answer(points: tuple[study.Scaling, ...]) -> tuple[int, str]:
    """Which of ROOT_ANSWERS is measured, and its reason."""
    small, large = (next(point for point in points if point.dims == at) for at in (SMALL, LARGE))
    ratio = large.entropy[0] / small.entropy[0]
    return 0 if ratio < MUCH else 2 if ratio > 1 / MUCH else 1, (
        f"A score adds D products, so scores grow with √D: they vary by {number(small.variance[0] ** 0.5)} at D = {SMALL} "
        f"and by {number(large.variance[0] ** 0.5)} at D = {LARGE}. Softmax then picks one word: the largest of "
        f"{study.KEYS} weights is {number(large.largest[0])}; divided by √{LARGE}, {number(large.largest[1])}."
    )


def undivided_text(reading: step_view.Reading, config: AttentionConfig) -> str:
    """The largest weight of the picked word without the division by √D, and with it; by softmax without a bias."""
    dims = reading.q.shape[1]
    is_plain = (
        config.position.key == "none" and config.has("normalizer", "softmax") and not reading.folded
    )
    if not is_plain or config.normalizer["temperature"] != 1:
        return f"The score is q · k alone: √{dims} times as large as when it is divided by √{dims}."
    row = np.where(reading.allowed, reading.raw, -np.inf)[reading.query].astype(float)
    best = int(row.argmax())
    whole, divided = (
        number(float(np.exp(scores[best] - np.logaddexp.reduce(scores))))
        for scores in (row, row / dims**0.5)
    )
    return (
        f"{plain(reading.name)} takes {whole} from {plain(reading.keys[best])}; divided by √{dims} it would take "
        f"{divided}. Step 3 shows it for larger D."
    )


def unchanged_text(config: AttentionConfig, named: Collection[str]) -> str:
    """Which choices, out of sight in the settings, a move leaves as they are: those that no plain layer has; "" for none."""
    names = [
        f"{axis} {entry(axis, choice.key).name}"
        for axis in AXES
        if axis not in named
        and (choice := getattr(config, axis)).key != getattr(AttentionConfig(), axis).key
    ]
    warmth = config.normalizer.kwargs.get("temperature", 1.0)
    if "normalizer" not in named and warmth != 1.0:
        names.append(f"temperature {warmth:g}")
    return f" Unchanged: {', '.join(names)}." if names else ""


MEASURES = ("Variance", "Entropy")


def scaling_chart(points: tuple[study.Scaling, ...], measure: str, ink: Ink) -> Spec:
    """One of the measures against the head size, with and without √D; the entropy beside that of uniform weights."""
    curves = [
        Curve(
            name,
            [(p.dims, getattr(p, measure.lower())[at]) for p in points],
            (),
            ink.series[1 - at],
            1 - at,
        )
        for at, name in enumerate(NAMES)
    ]
    heading, is_entropy, even = (
        f"{measure} of the scores",
        measure == "Entropy",
        math.log(study.KEYS),
    )
    if is_entropy:
        heading = f"Entropy of the weights, nats (uniform: ln {study.KEYS})"
        uniform = [(dims, even) for dims in study.DIMS]
        curves.append(Curve(f"uniform: {number(even)}", uniform, (), ink.quiet, 3))
    domain = (0, 5) if is_entropy else None
    return line_chart(
        heading, "head size D", curves, ink, log=not is_entropy, log_x=True, domain=domain
    )


def largest_chart(points: tuple[study.Scaling, ...], ink: Ink) -> Spec:
    rows = [
        {"D": f"D = {p.dims}", "value": value, "text": number(value), "series": name}
        for p in points
        if p.dims in (4, 64, 512)
        for name, value in zip(NAMES, p.largest, strict=True)
    ]
    colour = {"color": series_encoding("series", NAMES, [ink.series[1], ink.series[0]])}
    encoding = {
        "x": {
            "field": "D",
            "type": "nominal",
            "sort": None,
            "axis": {"title": None, "labelAngle": 0},
        },
        "y": {
            "field": "value",
            "type": "quantitative",
            "scale": {"domain": [0, 1]},
            "axis": {"title": None, "tickCount": 3},
        },
        "xOffset": {"field": "series", "sort": NAMES},
        **colour,
    }
    figure = titled_figure(
        "Largest weight of a query, mean",
        [
            layer("bar", rows, encoding),
            layer("text", rows, {**encoding, "text": {"field": "text"}}, dy=-7, fontSize=13),
            *[
                layer(
                    "text",
                    rows[at : at + 1],
                    {
                        "text": {"field": "series"},
                        "x": {"value": 4},
                        "y": {"value": 8 + 18 * at},
                        **colour,
                    },
                    align="left",
                    fontSize=13,
                )
                for at in range(len(NAMES))
            ],
        ],
        190,
        ink,
    )
    return figure | {"config": config(ink)}


def head_cell(config: AttentionConfig, reading: step_view.Reading, head: int, half: int) -> Cell:
    """The picked head of the recorded `steps`, by the names of the page; of several maps of scores, the picked one."""
    each = config.score_heads // config.num_heads
    scores = head * each + half
    about = f"  # its scores are those of {scores} of {config.score_heads}" if each > 1 else ""
    names = ("q", "k", "v", "raw", "scores", "allowed", "weights", "out")
    return Cell(
        "One head of the layer; the picked query is one row.",
        f"""
import torch

query, head, of_scores = {reading.query}, {head}, {scores}{about}
q, k, v = steps.q[0, of_scores], steps.k[0, of_scores], steps.v[0, head]  # (T, D), (S, D), (S, D)
raw, scores = steps.raw[0, of_scores], steps.scores[0, of_scores]  # (T, S): q · k, then scaled and with the bias
allowed = torch.ones_like(scores, dtype=torch.bool) if steps.mask is None else (
    steps.mask.expand(steps.scores.shape)[0, of_scores])
weights, out = steps.weights[0, head], steps.out[0, head]  # (T, S), and their sum of the values (T, D)
print("weights of the query", weights[query].tolist(), "output", out[query].tolist())
""",
        f"""
from dashboard.show import show_maps

queries, keys = {list(reading.queries)!r}, {list(reading.keys)!r}
show_maps({{"Scores": scores, "Weights": weights}}, queries, keys, row=query)
""",
        "one:view",
        {name: getattr(reading, name) for name in names},
    )
