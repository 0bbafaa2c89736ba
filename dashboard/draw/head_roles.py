"""Head roles: its sentences of numbers, its equations, its tables, and its script beside the recorded calls."""

import re
from collections.abc import Sequence

import numpy as np

from core.interpret.head_tests import (
    MAX_PARSES,
    TESTS,
    RelationScore,
    RepeatScores,
    SuccessorScores,
    SyntaxResult,
)
from core.interpret.roles import (
    MIN_SHARE,
    MIN_STDS,
    ROLES,
    UNIFORM,
    Example,
    RoleInputs,
    RoleScores,
)
from core.interpret.trace import AttentionTrace, Head, Kind
from core.pretrained import Reading
from dashboard.draw import picture_files
from dashboard.draw.components import Cell, source_of
from dashboard.draw.formats import cut, number, percent, plain, written

MAX_SENTENCES, MAX_LETTERS = 60, 400
ATTENTION = {"self": "self-attention", "causal": "causal self-attention"}


def read_sentences(typed: str) -> tuple[tuple[str, ...], str | None]:
    lines = [" ".join(line.split()) for line in typed.splitlines() if line.strip()]
    short = [line for line in dict.fromkeys(lines) if len(line) <= MAX_LETTERS]
    long = sum(len(line) > MAX_LETTERS for line in lines)
    errors = (
        f"There are {len(short)} lines; the first {MAX_SENTENCES} are measured."
        if len(short) > MAX_SENTENCES
        else "",
        f"{long} of the lines have more than {MAX_LETTERS} letters and are left out."
        if long
        else "",
    )
    return tuple(short[:MAX_SENTENCES]), " ".join(filter(None, errors)) or None


def rows_of(scores: RoleScores, index: int, inputs: RoleInputs) -> str:
    count = len(inputs.givens)
    noun = re.sub("(sentence|line)s", r"\1", inputs.what) if count == 1 else inputs.what
    return f"{scores.rows[index]:,} rows of {'the' if noun == 'input above' else count} {noun}"


def role_fact(scores: RoleScores, head: Head, index: int, inputs: RoleInputs) -> str:
    role, score = ROLES[index], scores.score[index][head]
    chance, measured = (
        number(scores.chance[index][head]),
        f"over {rows_of(scores, index, inputs)}",
    )
    line = (
        f":primary[**{scores.name(head)}**] puts **{number(score)}** of its weight on **{role.attends_to}**, "
        f"{measured}; with the keys shuffled, the same weights would put {chance} there."
    )
    if role.targets is None:
        line = (
            f":primary[**{scores.name(head)}**] uses **{number(score)}** of the keys that it may attend to, "
            f"{measured}; with random scores it would be {chance}."
        )
    # Which role the head has, and how many others have this one
    own = scores.head_roles.get(head)
    others = list(scores.head_roles.values()).count(index)
    count = f"{others} of {len(scores.heads)} heads {'has' if others == 1 else 'have'} the role {role.name.lower()}."
    if own is not None:
        return (
            f"{line} {count if own == index else f'Its role is {ROLES[own].name.lower()}; {count}'}"
        )
    why = "it is not clearly above chance in any"
    if role.targets is None and score >= UNIFORM:
        why = "its weights are nearly even"
    return f"{line} It has no role: {why}. {count}"


def chance_text(scores: RoleScores, index: int, head: Head) -> str:
    chance, std = scores.chance[index][head], scores.std[index][head]
    return written(f"{number(chance)} ± {number(std)}", {"": chance, ", std": std})


def text_fact(reading: Reading, kind: Kind, example: Example | None, index: int, noun: str) -> str:
    role, tokens = ROLES[index], reading.lines(kind)[0].tokens
    if example is None:
        return f"No token of this {noun} can show the role {role.name.lower()}."
    start = f"In this {noun}, :primary[**{plain(tokens[example.query])}**]"
    if role.targets is None:
        return f"{start} has the broadest row: it uses {number(example.value)} of its keys."
    more = f" and {example.expected - 1} more" if example.expected > 1 else ""
    return (
        f"{start} shows the role most clearly: it puts {number(example.value)} on "
        f"**{plain(tokens[example.key])}**{more}; uniform attention would put {number(example.uniform)}."
    )


def role_equation(scores: RoleScores, head: Head, index: int) -> tuple[str, str, str]:
    score, chance, spread, share = (
        float(one[index][head]) for one in (scores.score, scores.chance, scores.std, scores.share)
    )
    row = r"\ \sum_{j \in M_i} a_{ij}"
    if ROLES[index].targets is None:
        row = r" \frac{e^{-\sum_j a_{ij}\ln a_{ij}}}{n_i}"
    above = ">" if score > chance + MIN_STDS * spread else r"\le"
    enough = r"\ge" if share >= MIN_SHARE else "<"
    return (
        rf"s = \frac{{1}}{{|R|}}\sum_{{i \in R}}{row} = {number(score)}",
        rf"s\ {above}\ c + 3\sigma = {number(chance)} + 3\cdot{number(spread)}",
        rf"\frac{{s - c}}{{1 - c}} = {number(share)}\ {enough}\ {number(MIN_SHARE)}",
    )


def role_caption(scores: RoleScores, index: int, inputs: RoleInputs, model: str, cut: int) -> str:
    on = (
        "only the input above"
        if inputs.what == "input above"
        else f"{len(inputs.givens)} {inputs.what}"
    )
    measured = (
        f"rows that can show the role, Mᵢ is {ROLES[index].attends_to}; c and σ are the mean and standard "
        "deviation of s when the keys of each text are shuffled, in the same way for all of its rows."
    )
    if ROLES[index].targets is None:
        measured = (
            "rows of four keys or more, nᵢ the number of keys that row i may attend to; c and σ are the mean and standard "
            f"deviation of rows of random scores. A head with {number(UNIFORM)} or more is nearly even, as before "
            f"training."
        )
    left_out = f" {cut} of your sentences {'is' if cut == 1 else 'are'} left out: the model knows too few of the words."
    return (
        f"{model}, {ATTENTION[scores.kind]}, measured on {on}. R are the {scores.rows[index]:,} {measured} "
        f"The role of a head is the one in which it is furthest above chance, by at least 3 σ and "
        f"{number(MIN_SHARE)} of the way from chance to 1. First token and Broad count only where no other role does."
        f"{left_out if cut else ''}"
    )


def example_of(
    reading: Reading, example: Example, inputs: RoleInputs, kind: Kind, index: int
) -> str:
    tokens, given = reading.lines(kind)[0].tokens, inputs.givens[example.reading]
    line = f"{tokens[example.query]} → {tokens[example.key]} {number(example.value)}"
    if ROLES[index].targets is None:
        line = f"{tokens[example.query]} uses {number(example.value)} of its keys"
    if given.picture is not None:
        return f"{line}, in picture {example.reading + 1}"
    text = cut(given.text, 38)
    return f"{line}, in “{text}”" if text else line


def roles_csv(scores: RoleScores) -> bytes:
    return picture_files.csv_file(
        "layer head role score chance std rows above_baseline is_its_role".split(),
        [
            [
                scores.numbers[layer],
                head,
                role.key,
                *(f"{one[at]:.6f}" for one in (scores.score, scores.chance, scores.std)),
                int(scores.rows[index]),
                int(scores.counts[at]),
                int(scores.head_roles.get((layer, head)) == index),
            ]
            for layer, head in np.ndindex(*scores.score.shape[1:])
            for index, role in enumerate(ROLES)
            if not np.isnan(scores.score[at := (index, layer, head)])
        ],
    )


def syntax_caption(result: SyntaxResult, score: RelationScore, model: str, own: bool) -> str:
    readings, (source, target) = result.readings, score.relation.ends(score.reverse)
    causal = " A causal model attends only to earlier words, so only these are asked for."
    left_out = f" {readings.left_out} sentences are left out: the model knows too few of their words, or cuts them."
    return (
        f"{model}, {len(readings.sentences)} sentences {'annotated by hand for this page' if own else 'of your file'}. "
        f"Q are the {score.count} instances of the {source}; "
        f"T is its {target}. A word's weight is the sum over its tokens as a key and their mean as a query. "
        "Special tokens and the word itself are left out. The grid shows accuracy on all sentences, faint where "
        f"the best fixed offset is at least as good. The best of {sum(readings.heads)} heads would be chosen on the "
        "sentences that measure it; so the table chooses head and offset on the even sentences, measures them on the "
        "odd ones, and the other way round. The interval is Wilson's."
        f"{causal if readings.kind == 'causal' else ''}{left_out if readings.left_out else ''}"
    )


def syntax_rows(result: SyntaxResult) -> list[list[str]]:
    """A row a relation and direction: the heads chosen on either half, their accuracy and that of the best offset."""
    return [
        [name, "fewer than 10", *"–––––"]
        if score is None
        else [
            name,
            str(score.count),
            ", ".join(dict.fromkeys(map(result.readings.name, score.held_out[0]))),
            percent((best := score.held_out_share)[0]),
            written(
                f"{percent(best[1])} to {percent(best[2])}",
                {", low, %": 100 * best[1], ", high, %": 100 * best[2]},
            ),
            offset_text(score.best_offset),
            percent(float(score.offset_held_out.mean())),
        ]
        for name, score in zip(result.names, result.scores, strict=True)
    ]


def syntax_csv(result: SyntaxResult) -> bytes:
    return picture_files.csv_file(
        ["layer", "head", "relation", "direction", "hits", "instances", "accuracy"],
        [
            [
                result.readings.numbers[head[0]],
                head[1],
                relation.key,
                "reverse" if reverse else "forward",
                int(score.hits[head].sum()),
                score.count,
                f"{score.accuracy[head]:.6f}",
            ]
            for (relation, reverse), score in zip(result.choices, result.scores, strict=True)
            if score is not None
            for head in result.heads()
        ],
    )


def offset_text(offset: int) -> str:
    side = "after" if offset > 0 else "before"
    return f"just {side}" if abs(offset) == 1 else f"{abs(offset)} {side}"


def first_query(scores: RepeatScores, test: int) -> int:
    queries, _ = TESTS[test].cells(scores.example.lines(scores.kind)[0].special)
    return int(queries[0])


def repeat_rows(scores: RepeatScores) -> list[list[str]]:
    return [
        [
            test.name,
            scores.name(best := scores.ranked(index)[0]),
            score_text(scores, index, best),
            number(scores.uniform[index]),
            str(scores.passes.sum((1, 2))[index]),
            test.attends_to,
        ]
        for index, test in enumerate(TESTS)
    ]


def repeats_csv(scores: RepeatScores) -> bytes:
    return picture_files.csv_file(
        ["layer", "head", "test", "score", "margin", "uniform"],
        [
            [
                scores.numbers[head[0]],
                head[1],
                test.key,
                f"{scores.score[index][head]:.6f}",
                f"{scores.margin[index][head]:.6f}",
                f"{scores.uniform[index]:.6f}",
            ]
            for index, test in enumerate(TESTS)
            for head in sorted(scores.ranked(index))
        ],
    )


def score_text(scores: RepeatScores, test: int, head: Head) -> str:
    score, margin = float(scores.score[test][head]), float(scores.margin[test][head])
    return written(f"{number(score)} ± {number(margin)}", {"": score, " ±": margin})


def map_code(head: Head, query: int | None) -> str:
    return f"""
from dashboard.show import show

show(trace, layer={head[0]}, head={head[1]}{"" if query is None else f", query={query}"})
"""


# Code that draws layers by heads.
GRID_CODE = """
import altair as alt
import pandas as pd

cells = [{{"layer": layer, "head": head, "score": float(score)}}
         for layer, row in enumerate({values}) for head, score in enumerate(row)]
alt.Chart(pd.DataFrame(cells)).mark_rect().encode(x="head:O", y="layer:O", color="score:Q")
"""


# Its script, after the model and one of its readings.


def roles_cell(
    inputs: RoleInputs, scores: RoleScores, sentences: Sequence[str], own: bool, role: int
) -> Cell:
    """The score of every head in every role; `own`: on the reading of the page's own input alone."""
    texts = f"sentences = {source_of(list(sentences))}\n" if sentences else ""
    read = f"""{texts}texts = role_inputs(model, {"sentences" if sentences else "()"}, {scores.kind!r})  # {inputs.what}
readings = read_all(model, texts, {scores.kind!r})"""
    heads = [[*head, index] for head, index in scores.head_roles.items()]
    return Cell(
        "The score of every head in nine roles over many inputs, with its level when the keys are shuffled.",
        f"""
from core.interpret.roles import ROLES, {"" if own else "read_all, role_inputs, "}score_roles

{"readings = [reading]" if own else read}
scores = score_roles(readings, {scores.kind!r})  # (roles, layers, heads)
role = [one.key for one in ROLES].index({ROLES[role].key!r})
print(ROLES[role].name, "most in", scores.name(scores.best(role)))
for head, one in scores.head_roles.items():
    print(scores.name(head), ROLES[one].name)
""",
        GRID_CODE.format(values="scores.score[role]"),
        "head_roles:scores",
        {
            **{f"scores.{name}": getattr(scores, name) for name in ("score", "chance", "std")},
            "scores.score[role]": scores.score[role],
            "[[*head, one] for head, one in scores.head_roles.items()]": heads,
        },
    )


def role_cell(kind: Kind, head: Head, shown: Reading, example: Example | None, here: bool) -> Cell:
    index = 0 if example is None else example.reading
    return Cell(
        "One head where it shows one role most clearly.",
        f"""
from core.interpret.roles import clearest_example

example = clearest_example({"[reading]" if here else "readings"}, {kind!r}, ROLES[role], {head[0]}, {head[1]})
trace = {"reading" if here else f"readings[{index}]"}.trace.of({kind!r})
weights = trace.head({head[0]}, {head[1]})  # (T, S)
print(example)
""",
        map_code(head, None if example is None else example.query),
        "head_roles:map",
        {"weights": shown.trace.of(kind).head(*head)},
    )


def syntax_cells(
    reference: str,
    result: SyntaxResult,
    score: RelationScore,
    head: Head,
    sentence: int,
    query: int,
    trace: AttentionTrace,
) -> list[Cell]:
    kind = result.readings.kind
    return [
        Cell(
            "Every head on parsed sentences: how often its top word is the one that a relation asks for.",
            f"""
from core.interpret.head_tests import parses, read_parses, relations_in, score_relation, word_trace

sentences = parses({reference!r})[:{MAX_PARSES}]
readings = read_parses(model, sentences, {kind!r})
relation = next(one for one in relations_in(sentences) if one.key == {score.relation.key!r})
score = score_relation(readings, relation, reverse={score.reverse})
accuracy = score.accuracy  # (layers, heads), over {score.count} queries
print(relation.name({score.reverse}), "best head", readings.name(score.best), accuracy.max())
print("best fixed offset", score.best_offset, score.offset_hits.mean(-1).max())
""",
            GRID_CODE.format(values="accuracy"),
            "head_roles:accuracies",
            {
                "accuracy": score.accuracy,
                "score.offset_hits.mean(-1)": score.offset_hits.mean(-1),
                "score.best": score.best,
                "score.best_offset": score.best_offset,
            },
        ),
        Cell(
            "One head on the sentence, between words.",
            f"""
sentence = readings.sentences[{sentence}]
trace = word_trace(reading, sentence.parse, sentence.tokens, {kind!r})
weights = trace.head({head[0]}, {head[1]})  # (words, words)
""",
            map_code(head, query),
            "head_roles:words",
            {"weights": trace.head(*head)},
        ),
    ]


def repeats_cell(scores: RepeatScores, test: int, head: Head) -> Cell:
    return Cell(
        f"One head on the first line of {scores.length} tokens, twice.",
        f"""
best = scores.ranked({test})[0]  # of the test {TESTS[test].name}
print("best head", scores.name(best), scores.score[{test}][best])
trace = scores.example.trace.of({scores.kind!r})
weights = trace.head({head[0]}, {head[1]})  # (T, S)
""",
        map_code(head, first_query(scores, test)),
        "head_roles:test-map",
        {"weights": scores.example.trace.of(scores.kind).head(*head)},
    )


def successor_cell(scores: SuccessorScores, head: Head, order: int) -> Cell:
    return Cell(
        "What one head adds to each item, from each.",
        f"""
import numpy as np

print("best head", scores.name(scores.ranked()[0]), scores.score.max(), "of", scores.count, "items")
order = scores.orders[{order}]
logits = np.nan_to_num(scores.logits[{order}][{head[0]}, {head[1]}])  # (items, items)
""",
        """
from dashboard.show import show_maps

show_maps({order.name: logits}, order.items, order.items)
""",
        "head_roles:order-map",
        {"scores.score": scores.score, "logits": np.nan_to_num(scores.logits[order][head])},
    )
