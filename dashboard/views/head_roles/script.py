"""What the views of the page compute as Python: roles, syntax, and tests on random tokens."""

from __future__ import annotations

import numpy as np

from core.interpret.head_tests import TESTS, RepeatScores, SuccessorScores
from core.interpret.roles import ROLES
from core.interpret.trace import AttentionTrace, Head
from dashboard.draw.scripts import Cell, Script, source_of
from dashboard.ui.model_picker import ModelChoice
from dashboard.ui.models import model_cell
from dashboard.views.head_roles.compute import HeadReading, Measurements
from dashboard.views.head_roles.standard.controls import Controls as TestControls
from dashboard.views.head_roles.syntax.compute import CHOICES, MOST_SENTENCES, SyntaxResult
from dashboard.views.head_roles.syntax.controls import Controls as SyntaxControls

SCORES = "The score of every head in nine roles over many inputs, with its level when the keys are shuffled."
CLEAREST = "One head where it shows one role most clearly."
SYNTAX = (
    "Every head on parsed sentences: how often its top word is the one that a relation asks for."
)
SENTENCE = "One head on one sentence, between words."
REPEATS = "Every head on random tokens that repeat: its weight on the keys of three tests."
SUCCESSORS = (
    "How often each head's matrices raise the successor of a number, a day or a letter most."
)


def roles_script(
    choice: ModelChoice,
    measurements: Measurements,
    sentences: tuple[str, ...],
    role: int,
    head: Head,
    shown: HeadReading,
) -> Script:
    """The scores of every head, and the picked head's map on the page's input or on the measured one."""
    scores, kind = measurements.scores, measurements.scores.kind
    here = shown.reading is choice.reading
    index = 0 if shown.example is None else shown.example.reading
    among = "[reading]" if here else "readings"
    example = f"""
from core.interpret.roles import clearest_example

example = clearest_example({among}, {kind!r}, ROLES[role], {head[0]}, {head[1]})
trace = {"reading" if here else f"readings[{index}]"}.trace.of({kind!r})
weights = trace.head({head[0]}, {head[1]})  # (T, S)
print(example)
"""
    heads = [[*key, value] for key, value in scores.head_roles.items()]
    measure = _roles(choice, measurements, sentences, role)
    return Script(
        (
            model_cell(choice.ref, None if choice.pretrained is None else choice.inputs),
            Cell(SCORES, measure, _grid("scores.score[role]"), "head_roles:scores"),
            Cell(
                CLEAREST,
                example,
                _show(head, None if shown.example is None else shown.example.query),
                "head_roles:map",
            ),
        ),
        {
            "scores.score": scores.score,
            "scores.chance": scores.chance,
            "scores.std": scores.std,
            "scores.score[role]": scores.score[role],
            "[[*head, one] for head, one in scores.head_roles.items()]": np.array(heads),
            "weights": shown.reading.trace.of(kind).head(*head),
        },
    )


def _roles(
    choice: ModelChoice, measurements: Measurements, sentences: tuple[str, ...], role: int
) -> str:
    kind, what = measurements.scores.kind, measurements.inputs.what
    own = choice.pretrained is None or measurements.inputs.givens == (choice.inputs,)
    texts = f"sentences = {source_of(list(sentences))}\n" if sentences else ""
    read = f"""{texts}texts = role_inputs(model, {"sentences" if sentences else "()"}, {kind!r})  # {what}
readings = read_all(model, texts, {kind!r})"""
    return f"""
from core.interpret.roles import ROLES, {"" if own else "read_all, role_inputs, "}score_roles

{"readings = [reading]" if own else read}
scores = score_roles(readings, {kind!r})  # (roles, layers, heads)
role = [one.key for one in ROLES].index({ROLES[role].key!r})
print(ROLES[role].name, "most in", scores.name(scores.best(role)))
for head, one in scores.head_roles.items():
    print(scores.name(head), ROLES[one].name)
"""


def syntax_script(
    choice: ModelChoice,
    controls: SyntaxControls,
    result: SyntaxResult,
    sentence: int,
    query: int,
    trace: AttentionTrace,
) -> Script:
    """The accuracy of every head in one relation, and the picked head's weights between the words of a sentence."""
    kind, (relation, reverse) = result.readings.kind, CHOICES[controls.relation]
    score = result.scores[controls.relation]
    assert score is not None
    stored = controls.reference
    parses = (
        f"parse_conllu(reading.read({stored!r}))[:{MOST_SENTENCES}]" if stored else "own_parses()"
    )
    measure = f"""
from core.interpret.syntax import {"parse_conllu" if stored else "own_parses"}
from core.interpret.syntax import RELATIONS
from core.interpret.syntax import read_parse, read_parses, score_relation, word_trace
{"from core.tasks import reading" if stored else ""}
readings = read_parses(model, {parses}, {kind!r})
relation = next(one for one in RELATIONS if one.key == {relation.key!r})
score = score_relation(readings, relation, reverse={reverse})
accuracy = score.accuracy  # (layers, heads), over {score.count} queries
print(relation.name({reverse}), "best head", readings.name(score.best), accuracy.max())
print("best fixed offset", score.best_offset, score.offset_hits.mean(-1).max())
"""
    words = f"""
sentence = readings.sentences[{sentence}]
trace = word_trace(read_parse(model, sentence.parse), sentence.parse, sentence.tokens, {kind!r})
weights = trace.head({controls.head[0]}, {controls.head[1]})  # (words, words)
"""
    return Script(
        (
            model_cell(choice.ref),
            Cell(SYNTAX, measure, _grid("accuracy"), "head_roles:accuracies"),
            Cell(SENTENCE, words, _show(controls.head, query), "head_roles:words"),
        ),
        {
            "accuracy": score.accuracy,
            "score.offset_hits.mean(-1)": score.offset_hits.mean(-1),
            "score.best": np.array(score.best),
            "score.best_offset": np.array(score.best_offset),
            "weights": trace.head(*controls.head),
        },
    )


def repeats_script(choice: ModelChoice, controls: TestControls, scores: RepeatScores) -> Script:
    """The scores of every head in one test, and its map of the first line."""
    head, trace = controls.head, scores.example.trace.of(scores.kind)
    measure = f"""
from core.interpret.head_tests import TESTS, score_repeats

scores = score_repeats(model, {scores.kind!r})  # (tests, layers, heads), over lines of {scores.length} tokens, twice
test = scores.score[{controls.test}]  # {TESTS[controls.test].name}
print("best head", scores.name(scores.ranked({controls.test})[0]), test.max())
trace = scores.example.trace.of({scores.kind!r})
weights = trace.head({head[0]}, {head[1]})  # (T, S) of the first line
"""
    queries, _ = TESTS[controls.test].cells(scores.length)
    return Script(
        (
            model_cell(choice.ref),
            Cell(
                REPEATS, measure, _show(head, int(queries[0]) + scores.start), "head_roles:test-map"
            ),
        ),
        {"scores.score": scores.score, "weights": trace.head(*head)},
    )


def successor_script(
    choice: ModelChoice, controls: TestControls, scores: SuccessorScores, order: int
) -> Script:
    """The scores of every head, and what the picked one adds to the logits of one order."""
    head = controls.head
    measure = f"""
import numpy as np

from core.interpret.head_tests import score_successors

scores = score_successors(model, {controls.kind!r})
print("best head", scores.name(scores.ranked()[0]), scores.score.max(), "of", scores.count, "items")
order = scores.orders[{order}]
logits = np.nan_to_num(scores.logits[{order}][{head[0]}, {head[1]}])  # (items, items): from an item, added to each
"""
    draw = """
from core.show import show_maps

show_maps({order.name: logits}, order.items, order.items)
"""
    return Script(
        (model_cell(choice.ref), Cell(SUCCESSORS, measure, draw, "head_roles:order-map")),
        {"scores.score": scores.score, "logits": np.nan_to_num(scores.logits[order][head])},
    )


def _show(head: Head, query: int | None) -> str:
    return f"""
from core.show import show

show(trace, layer={head[0]}, head={head[1]}{"" if query is None else f", query={query}"})
"""


def _grid(values: str) -> str:
    return f"""
import altair as alt
import pandas as pd

cells = [{{"layer": layer, "head": head, "score": float(score)}}
         for layer, row in enumerate({values}) for head, score in enumerate(row)]
alt.Chart(pd.DataFrame(cells)).mark_rect().encode(x="head:O", y="layer:O", color="score:Q")
"""
