"""Sentences, equation and CSV of the page Head roles."""

from __future__ import annotations

import numpy as np

from core.interpret.roles import (
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
from dashboard.draw.formats import number, plain
from dashboard.draw.picture_files import csv_file

LONGEST = 38  # letters of an example's text
TABLE_HEAD = ("role", "heads", "best head", "score", "chance", "clearest example")


def rows_of(scores: RoleScores, index: int, inputs: RoleInputs) -> str:
    """The rows on which a role was measured: "454 rows of 30 example sentences"."""
    count = len(inputs.givens)
    noun = (
        inputs.what
        if count != 1
        else inputs.what.replace("sentences", "sentence").replace("lines", "line")
    )
    return (
        f"{scores.rows[index]:,} rows of {f'{count} ' if noun != 'input above' else 'the '}{noun}"
    )


def fact(scores: RoleScores, head: Head, index: int, inputs: RoleInputs) -> str:
    """A head's score in a role compared with chance, whether that is its role, and how many heads have it."""
    role, score = ROLES[index], scores.score[index][head]
    chance = _chance(scores, index, head)
    measured = f"over {rows_of(scores, index, inputs)}"
    if role.targets is None:
        line = (
            f":primary[**{scores.name(head)}**] uses **{number(score)}** of the keys that it may attend to, "
            f"{measured}; with random scores it would be {chance}."
        )
    else:
        line = (
            f":primary[**{scores.name(head)}**] puts **{number(score)}** of its weight on **{role.attends_to}**, "
            f"{measured}; with the keys shuffled, the same weights would put {chance} there."
        )
    return f"{line} {_verdict(scores, head, index)}"


def _chance(scores: RoleScores, index: int, head: Head) -> str:
    return f"{number(scores.chance[index][head])} ± {number(scores.std[index][head])}"


def _verdict(scores: RoleScores, head: Head, index: int) -> str:
    """Which role the head has, and how many others have this one."""
    own = scores.head_roles.get(head)
    others = sum(one == index for one in scores.head_roles.values())
    total = int((~np.isnan(scores.score).all(0)).sum())
    count = f"{others} of {total} heads {'has' if others == 1 else 'have'} the role {ROLES[index].name.lower()}."
    if own == index:
        return count
    if own is not None:
        return f"Its role is {ROLES[own].name.lower()}; {count}"
    even = ROLES[index].targets is None and scores.score[index][head] >= UNIFORM
    why = "its weights are nearly even" if even else "it is not clearly above chance in any"
    return f"It has no role: {why}. {count}"


def on_text(reading: Reading, kind: Kind, example: Example | None, index: int, noun: str) -> str:
    """The role of the head in one input (a text, a picture), at the row where it is clearest."""
    role = ROLES[index]
    if example is None:
        return f"No token of this {noun} can show the role {role.name.lower()}."
    rows = reading.lines(kind)[0].tokens
    query = f":primary[**{plain(rows[example.query])}**]"
    if role.targets is None:
        return f"In this {noun}, {query} has the broadest row: it uses {number(example.value)} of its keys."
    more = f" and {example.expected - 1} more" if example.expected > 1 else ""
    key = f"**{plain(rows[example.key])}**{more}"
    return (
        f"In this {noun}, {query} shows the role most clearly: it puts {number(example.value)} on {key}; "
        f"uniform attention would put {number(example.uniform)}."
    )


def equation(scores: RoleScores, head: Head, index: int) -> tuple[str, str, str]:
    """The score, the test of it against chance, and its share of the way from chance to 1, with the head's numbers."""
    score, chance, spread = (
        float(one[index][head]) for one in (scores.score, scores.chance, scores.std)
    )
    share = float(scores.share[index][head])
    if ROLES[index].targets is None:
        score_of = r"\frac{1}{|R|}\sum_{i \in R} \frac{e^{-\sum_j a_{ij}\ln a_{ij}}}{n_i}"
    else:
        score_of = r"\frac{1}{|R|}\sum_{i \in R}\ \sum_{j \in M_i} a_{ij}"
    above = ">" if score > chance + MIN_STDS * spread else r"\le"
    enough = r"\ge" if share >= MIN_SHARE else "<"
    return (
        rf"s = {score_of} = {number(score)}",
        rf"s\ {above}\ c + 3\sigma = {number(chance)} + 3\cdot{number(spread)}",
        rf"\frac{{s - c}}{{1 - c}} = {number(share)}\ {enough}\ {number(MIN_SHARE)}",
    )


def caption(scores: RoleScores, index: int, inputs: RoleInputs, model: str, cut: int) -> str:
    """Under which conditions the page's numbers hold."""
    attention = "self-attention" if scores.kind == "self" else "causal self-attention"
    on = (
        f"{len(inputs.givens)} {inputs.what}"
        if inputs.what != "input above"
        else "only the input above"
    )
    line = f"{model}, {attention}, measured on {on}."
    if ROLES[index].targets is None:
        line += (
            f" R are the {scores.rows[index]:,} rows of four keys or more, nᵢ the number of keys that row i may "
            f"attend to; c and σ are the mean and std of rows of random scores. A head with {number(UNIFORM)} or "
            "more is nearly even, as before training."
        )
    else:
        line += (
            f" R are the {scores.rows[index]:,} rows that can show the role, Mᵢ is {ROLES[index].attends_to}; c "
            "and σ are the mean and std of s when the keys of each text are shuffled, in the same way for all of "
            "its rows."
        )
    line += (
        f" The role of a head is the one in which it is furthest above chance, by at least 3 σ and "
        f"{number(MIN_SHARE)} of the way from chance to 1. First token and Broad count only where no other role "
        "does."
    )
    if cut:
        line += (
            f" {cut} of your sentences {'is' if cut == 1 else 'are'} left out: the model knows too few of the "
            "words."
        )
    return line


def table_rows(
    scores: RoleScores, inputs: RoleInputs, examples: dict[int, tuple[Reading, Example]]
) -> list[list[str]]:
    """A row a role: how many heads have it, the head that has most of it, its score and chance, and an example."""
    rows, count = [], list(scores.head_roles.values())
    for index, role in enumerate(ROLES):
        best = scores.best(index)
        if best is None:
            rows.append([role.name, "–", "–", "–", "–", "no token here can show it"])
            continue
        line = (
            example_of(*examples[index], inputs, scores.kind, index) if index in examples else "–"
        )
        rows.append(
            [
                role.name,
                str(count.count(index)),
                scores.name(best),
                number(scores.score[index][best]),
                _chance(scores, index, best),
                line,
            ]
        )
    return rows


def example_of(
    reading: Reading, example: Example, inputs: RoleInputs, kind: Kind, index: int
) -> str:
    """The clearest row of a role in one line: query → key, the weight, and its text."""
    tokens = reading.lines(kind)[0].tokens
    line = f"{tokens[example.query]} → {tokens[example.key]} {number(example.value)}"
    if ROLES[index].targets is None:
        line = f"{tokens[example.query]} uses {number(example.value)} of its keys"
    example_inputs = inputs.givens[example.reading]
    if example_inputs.picture is not None:
        return f"{line}, in picture {example.reading + 1}"
    return f"{line}, in “{_shortened(example_inputs.text)}”" if example_inputs.text else line


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def to_csv(scores: RoleScores) -> bytes:
    """Every head in every role as a table: score, chance, std, whether it counts, and the head's role."""
    roles, rows = scores.head_roles, list[list[object]]()
    for layer, head in np.ndindex(*scores.score.shape[1:]):
        for index, role in enumerate(ROLES):
            score, chance, spread = (
                one[index, layer, head] for one in (scores.score, scores.chance, scores.std)
            )
            if not np.isnan(score):
                rows.append(
                    [
                        scores.numbers[layer],
                        head,
                        role.key,
                        *(f"{x:.6f}" for x in (score, chance, spread)),
                        int(scores.rows[index]),
                        int(scores.counts[index, layer, head]),
                        int(roles.get((layer, head)) == index),
                    ]
                )
    return csv_file(
        [
            "layer",
            "head",
            "role",
            "score",
            "chance",
            "std",
            "rows",
            "above_baseline",
            "is_its_role",
        ],
        rows,
    )
