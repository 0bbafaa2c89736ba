"""Head roles: its sentences of numbers, its equations, its tables, and its script beside the recorded calls."""

from collections.abc import Mapping, Sequence

import numpy as np

from core.interpret.head_tests import (
    GOULD,
    MIN_QUERIES,
    RELATIONS,
    TESTS,
    Query,
    RelationScore,
    RepeatScores,
    SuccessorScores,
    SyntaxReadings,
    SyntaxResult,
)
from core.interpret.roles import (
    CLARK,
    MIN_SHARE,
    MIN_STDS,
    ROLES,
    UNIFORM,
    Example,
    RoleInputs,
    RoleScores,
)
from core.interpret.trace import Head, Kind
from core.pretrained import Reading
from dashboard.draw import picture_files
from dashboard.draw.components import Cell
from dashboard.draw.figures import Spec, Theme
from dashboard.draw.formats import cut, number, percent, plain, plural, written
from dashboard.draw.grids import role_figure, share_grid

ROLE_PAPERS = "\n\n".join(f"**{one.name}** — {plain(one.meaning)}. {one.source}" for one in ROLES)
SYNTAX_PAPERS = (
    "Attention between words, both directions and the best fixed offset as the baseline: "
    f"{CLARK}, section 4. Relations: "
    "[Universal Dependencies](https://universaldependencies.org/u/dep/)."
)
TEST_PAPERS = "\n\n".join(
    [
        *(f"**{one.name}** — weight on {one.attends_to}. {one.source}" for one in TESTS),
        f"**Successor** — the successor of a number, a day, a month or a letter. {GOULD}",
    ]
)
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


# Layers by heads, each with its share: in a role, of right words, in a test, of successors.


def role_chart(scores: RoleScores, role: int, head: Head, theme: Theme) -> Spec:
    texts = {each: role_figure(scores, role, each) for each in scores.heads}
    return share_grid(scores, scores.score[role], texts, ~scores.counts[role], head, theme, "role")


def accuracy_chart(result: SyntaxResult, score: RelationScore, head: Head, theme: Theme) -> Spec:
    """Faint where the best fixed offset is at least as good."""
    shares, names = score.accuracy, ("accuracy", "accuracy")
    texts = {each: f"{percent(shares[each])} of {score.count}" for each in result.heads()}
    faint = shares <= float(score.offset_hits.mean(-1).max())
    return share_grid(result.readings, shares, texts, faint, head, theme, *names)


def test_chart(scores: RepeatScores, test: int, head: Head, theme: Theme) -> Spec:
    texts = {each: score_text(scores, test, each) for each in sorted(scores.ranked(test))}
    return share_grid(scores, scores.score[test], texts, ~scores.passes[test], head, theme)


def successor_chart(scores: SuccessorScores, head: Head, theme: Theme) -> Spec:
    """Faint where the interval reaches chance."""
    texts, faint = dict[Head, str](), np.ones(scores.score.shape, dtype=bool)
    for each in sorted(scores.ranked()):
        low, high = scores.interval(each)
        faint[each] = low <= scores.chance
        texts[each] = (
            f"{percent(scores.score[each])}, 95 % interval {percent(low)} to {percent(high)}"
        )
    return share_grid(scores, scores.score, texts, faint, head, theme, "items", "share of items")


def role_fact(scores: RoleScores, head: Head, index: int, inputs: RoleInputs) -> str:
    role, score = ROLES[index], scores.score[index][head]
    chance, measured = (
        number(scores.chance[index][head]),
        f"over {plural(scores.rows[index], 'row')} of {inputs.name}",
    )
    line = (
        f":primary[**{scores.name(head)}**] takes **{number(score)}** from **{role.attends_to}**, "
        f"{measured}; with the keys shuffled, the same weights would take {chance}."
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
        f"{start} shows the role most clearly: it takes {number(example.value)} from "
        f"**{plain(tokens[example.key])}**{more}; uniform attention would take {number(example.uniform)}."
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
        f"{model}, {ATTENTION[scores.kind]}, measured on {inputs.name}. R are the {scores.rows[index]:,} {measured} "
        f"The role of a head is the one in which it is furthest above chance, by at least 3 σ and "
        f"{number(MIN_SHARE)} of the way from chance to 1. First token and Broad count only where no other role does."
        f"{left_out if cut else ''}"
    )


def role_rows(
    scores: RoleScores,
    examples: Mapping[int, tuple[Reading, Example]],
    inputs: RoleInputs,
) -> list[list[str]]:
    """A row a role: how many heads have it, the head that has most of it, its score and chance, and an example."""
    own = list(scores.head_roles.values())
    return [
        [role.name, "–", "–", "–", "–", "no token here can show it"]
        if (best := scores.best(index)) is None
        else [
            role.name,
            str(own.count(index)),
            scores.name(best),
            number(scores.score[index][best]),
            chance_text(scores, index, best),
            example_of(*examples[index], inputs, scores.kind, index) if index in examples else "–",
        ]
        for index, role in enumerate(ROLES)
    ]


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
    few = sum(one is None for one in result.scores)
    unjudged = f" {plural(few, 'relation')} with fewer than {MIN_QUERIES} instances {'is' if few == 1 else 'are'} not judged."
    return (
        f"{model}, {len(readings.sentences)} sentences {'annotated by hand for this page' if own else 'of your file'}. "
        f"Q are the {score.count} instances of the {source}; "
        f"T is its {target}. A word's weight is the sum over its tokens as a key and their mean as a query. "
        "Special tokens and the word itself are left out. The grid shows accuracy on all sentences, faint where "
        f"the best fixed offset is at least as good. The best of {sum(readings.heads)} heads would be chosen on the "
        "sentences that measure it; so the table chooses head and offset on the even sentences, measures them on the "
        "odd ones, and the other way round. The interval is Wilson's."
        f"{causal if readings.kind == 'causal' else ''}{left_out if readings.left_out else ''}{unjudged if few else ''}"
    )


def too_few(result: SyntaxResult) -> str:
    """Why nothing is measured: the instances of the relations, of which six are named."""
    counts = [f"{one.name(back)} {count}" for (one, back), count in result.counts.items()]
    return (
        f"No relation has {MIN_QUERIES} instances in these sentences, so none is measured. Read: "
        f"{plain(', '.join(counts[:6]) or 'none')}{', …' if len(counts) > 6 else ''}."
    )


def sentence_labels(result: SyntaxResult, queries: Mapping[int, Sequence[Query]]) -> dict[str, str]:
    """The sentences by their numbers from 1, with the verdict on a head."""
    return {
        str(index + 1): f"{index + 1} {'✓' if all(query.right for query in each) else '✗'} "
        f"{result.readings.sentences[index].parse.text}"
        for index, each in queries.items()
    }


def syntax_fact(readings: SyntaxReadings, score: RelationScore, head: Head) -> str:
    source, target = score.relation.ends(score.reverse)
    (best, low, high), (_, hits) = score.held_out_share, score.offset_held_out
    return (
        f"From the {source}, the word from which :primary[**{readings.name(head)}**] takes most is the "
        f"**{target}** in **{percent(float(score.accuracy[head]))}** of {score.count} cases. Chosen on one half of the "
        f"sentences and measured on the other, the best head reaches **{percent(best)}**, with a 95 % interval from "
        f"{percent(low)} to {percent(high)}, and the best fixed offset, the word {offsets_text(score)}, "
        f"{percent(float(hits.mean()))}."
    )


def syntax_latex(score: RelationScore, head: Head) -> str:
    return (
        r"a_{uw} = \frac{1}{|u|}\sum_{i \in u}\ \sum_{j \in w} a_{ij} \qquad "
        r"\frac{1}{|Q|}\sum_{u \in Q} \left[\arg\max_{w \neq u} a_{uw} \in T_u\right] = "
        rf"\frac{{{int(score.hits[head].sum())}}}{{{score.count}}} = {number(float(score.accuracy[head]))}"
    )


def syntax_rows(result: SyntaxResult) -> list[list[str]]:
    """A row a relation and direction that is judged, those of the file's own first.

    It has the heads chosen on either half, their accuracy, and the offsets chosen likewise.
    """
    return [
        [
            name,
            str(score.count),
            ", ".join(dict.fromkeys(map(result.readings.name, score.held_out[0]))),
            percent((best := score.held_out_share)[0]),
            written(
                f"{percent(best[1])} to {percent(best[2])}",
                {", low, %": 100 * best[1], ", high, %": 100 * best[2]},
            ),
            offsets_text(score),
            percent(float(score.offset_held_out[1].mean())),
        ]
        for own in (True, False)
        for name, score in zip(result.names, result.scores, strict=True)
        if score is not None and own == (score.relation not in RELATIONS)
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


def offsets_text(score: RelationScore) -> str:
    """The offsets that are chosen on either half, one where they are the same."""
    sides = [f"{abs(one)} {'after' if one > 0 else 'before'}" for one in score.offset_held_out[0]]
    return " or ".join(dict.fromkeys(one.replace("1 ", "just ", one[:2] == "1 ") for one in sides))


def repeats_fact(scores: RepeatScores, test: int, head: Head) -> str:
    best, others = scores.ranked(test)[0], ""
    if not scores.passes[test][best]:
        others = " No head of this model passes the test."
    elif best != head:
        others = f" {scores.name(best)} has the highest score, {score_text(scores, test, best)}."
    return (
        f"On random tokens that repeat, :primary[**{scores.name(head)}**] takes **{score_text(scores, test, head)}** "
        f"from **{TESTS[test].attends_to}**; uniform attention takes "
        f"{number(float(scores.uniform[test]))}.{others}"
    )


def repeats_latex(scores: RepeatScores, test: int, head: Head) -> str:
    """The score with the head's number; n random tokens stand at 1 … n and again at n + 1 … 2n."""
    offset, value = TESTS[test].offset, number(float(scores.score[test][head]))
    mean = r"\frac{1}{2n - 1}\sum_{i=2}^{2n} a_{i,\,i-1}"
    if offset is not None:
        key = "i + 1" if offset else "i"
        mean = rf"\frac{{1}}{{n}}\sum_{{i=1}}^{{n}} a_{{n+i,\,{key}}}"
    return rf"s = {mean} = {value} \qquad n = {scores.length}"


def tests_caption(scores: RepeatScores, model: str, with_map: bool) -> str:
    drawn = " A cell is faint where its interval reaches twice uniform attention. The map shows the first line."
    return (
        f"{model}, {ATTENTION[scores.kind]}, {scores.lines} lines of "
        f"{scores.length} different random tokens of its vocabulary, twice in a row, "
        "between the special tokens that its tokenizer adds. ± is the 95 % interval over the "
        "lines, for all heads at once. Random tokens have no meaning, so these scores show position and identity alone; "
        "on sentences, "
        f"Roles measures.{drawn if with_map else ''}"
    )


def successor_fact(scores: SuccessorScores, head: Head) -> str:
    """How many successors the head ranks highest, beside chance, and whether any head is above it."""
    best, (low, high) = scores.ranked()[0], scores.interval(head)
    others = ""
    if scores.interval(best)[0] <= scores.chance:
        others = " No head of this model is a successor head."
    elif best != head:
        others = (
            f" {scores.name(best)} has the highest share, {percent(float(scores.score[best]))}."
        )
    return (
        f"From {scores.count} ordered items, :primary[**{scores.name(head)}**] raises the "
        f"successor most of its order in **{percent(float(scores.score[head]))}**, with a 95 % interval from "
        f"{percent(low)} to {percent(high)}; random ranks would do so in {percent(scores.chance)}.{others}"
    )


def successor_latex(scores: SuccessorScores, head: Head) -> str:
    return (
        r"s = \frac{1}{|I|}\sum_{x \in I} \left[\arg\max_{y \in O_x}\ (W_E W_V W_O W_U)_{xy} = x + 1\right] = "
        rf"\frac{{{scores.hits(head)}}}{{{scores.count}}} = {number(float(scores.score[head]))}"
    )


def successor_caption(scores: SuccessorScores, model: str) -> str:
    orders = ", ".join(f"{len(order.items)} {order.name}" for order in scores.orders)
    embedded = " This model has no unembedding; its embedding, transposed, stands for it."
    return (
        f"{model}, from its weights alone: what a head adds to the "
        f"logits where it attends to an item, without any text. The orders O are {orders}, "
        "those that are single tokens; I are the items with a successor. Biases "
        "and the first feed-forward network are left out; the gains of norms are folded in. A cell is faint where "
        "its interval reaches chance; of many heads the best one is above chance by luck more often than one."
        f"{embedded if scores.by_embedding else ''}"
    )


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


def map_code(head: Head, query: int | None, trace: str = "trace") -> str:
    return f"""
from dashboard.show import show

show({trace}, layer={head[0]}, head={head[1]}{"" if query is None else f", query={query}"})
"""


# Code that draws layers by heads.
GRID_CODE = """
import altair as alt
import pandas as pd

cells = [{{"layer": layer, "head": head, "score": float(score)}}
         for layer, row in enumerate({values}) for head, score in enumerate(row)]
alt.Chart(pd.DataFrame(cells)).mark_rect().encode(x="head:O", y="layer:O", color="score:Q")
"""


# What its script tells beside the recorded calls.


def roles_cell(scores: RoleScores, role: int) -> Cell:
    heads = [[*head, index] for head, index in scores.head_roles.items()]
    return Cell(
        "The heads that have a role.",
        f"""
from core.interpret.roles import ROLES

print(ROLES[{role}].name, "most in", scores.name(scores.best({role})))
for head, one in scores.head_roles.items():
    print(scores.name(head), ROLES[one].name)
""",
        results={"[[*head, one] for head, one in scores.head_roles.items()]": heads},
    )


def syntax_cell(score: RelationScore) -> Cell:
    numbers = {
        "score.accuracy": score.accuracy,
        "score.best": score.best,
        "score.offset_held_out[0]": score.offset_held_out[0],
        "score.offset_held_out[1].mean()": score.offset_held_out[1].mean(),
    }
    return Cell(
        "The best head, and the best fixed offset of either half on the other.",
        """
print(score.relation.name(score.reverse), score.best, score.accuracy.max())
print(score.offset_held_out[0], score.offset_held_out[1].mean())
""",
        results=numbers,
    )


def best_cell(best: str) -> Cell:
    return Cell(
        "The best head.",
        f"""
best = {best}
print(scores.name(best), scores.score[..., *best])
""",
    )
