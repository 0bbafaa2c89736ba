"""Use a model: fill a mask, classify, compare sentences, go on, translate, read a picture, beside the attention."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import streamlit as st
import torch

import dashboard.page as lab
from core.interpret.evidence import Effect, Question, ablate_heads
from core.interpret.trace import to_numpy
from core.pretrained import ModelInputs, Pretrained, PretrainedError, model_inputs
from core.pretrained.generate import (
    MODEL_TASKS,
    Candidate,
    ModelTask,
    answer_of,
    cosines,
    decode_text,
    mask_word,
    maskable_words,
    most_similar,
    task_of,
    top_candidates,
)
from core.pretrained.hub import is_allowed
from core.pretrained.reading import embedding, token_labels
from core.studies import use_model as study

PAGE = "use_model"
WITHOUT_HEADS = "use_model:heads"  # the answer without each head, for all sessions


def answer_question(ref: lab.ModelRef, question: Question) -> study.Answer:
    """The model's answer; PretrainedError if this model cannot answer the question."""
    return study.answer_with_maps(
        lab.baseline_of(ref, question), lab.reading_of(ref, question.inputs)
    )


# The controls: the sentences to compare, the word to mask or to explain, and the start of a long measurement.


class Controls(lab.Fields, page="use_model"):
    more = lab.Text(
        "Other sentences, one per line",
        "The dog was too exhausted to walk over the road.\n"
        "Because it was raining, she took an umbrella.\n"
        "He forgot his umbrella and got wet.\n"
        "The bank raised its interest rates again.\n"
        "Money costs more to borrow this year.",
        lines=True,
        help="Each is compared with the text above and with the others.",
        also={"max_chars": 6_000, "height": 150},
    )


def pick_word(label: str, tokens: Sequence[str], default: int, key: str) -> int:
    return lab.linked_number(
        PAGE,
        label,
        key,
        dict(enumerate(map(lab.plain, lab.distinct(tokens)))),
        default,
        "The page shows the answer for this word and the head that it depends on most.",
        f"{PAGE}:word",
        most_in_sight=40,
    )


# What the page computes as Python.


def embed_script(
    choice: lab.ModelChoice,
    compared: Sequence[tuple[str, ModelInputs]],
    table: np.ndarray,
    answer: study.Answer,
    head: study.Head,
) -> lab.Script:
    imports = {
        "from core.pretrained.generate import cosines",
        "from core.pretrained.reading import embedding",
    }
    others = "*map(ModelInputs, names[1:])"
    if choice.inputs.picture is not None:
        parts = [lab.inputs_lines(choice.ref, inputs) for _, inputs in compared[1:]]
        imports |= {more for lines, _ in parts for more in lines}
        others = ", ".join(line for _, line in parts)
    return lab.Script(
        (
            lab.model_cell(choice.ref, answer.baseline.question.inputs),
            lab.Cell(
                "The cosine of the embeddings of each pair.",
                f"""
{lab.import_block(imports)}

names = {lab.source_of([name for name, _ in compared])}
table = cosines([embedding(model, one) for one in (inputs, {others})])  # (N, N)
print(table)
""",
                """
import altair as alt
import pandas as pd

pairs = pd.DataFrame([{"row": names[i], "column": names[j], "cosine": float(table[i, j])}
                      for i in range(len(names)) for j in range(len(names))])
alt.Chart(pairs).mark_rect().encode(x=alt.X("column:N", sort=None), y=alt.Y("row:N", sort=None), color="cosine:Q")
""",
                "Similarity of each pair of sentences",
                {"table": table},
            ),
            _ask(
                answer.baseline.question,
                "print(baseline.value)",
                {"baseline.value": answer.baseline.value},
            ),
            _head(answer, head),
        )
    )


def answer_script(
    choice: lab.ModelChoice,
    answer: study.Answer,
    predictions: Sequence[Candidate],
    head: study.Head,
) -> lab.Script:
    return lab.Script(
        (
            lab.model_cell(choice.ref, answer.baseline.question.inputs),
            _ask(
                answer.baseline.question,
                """
likeliest = top_candidates(model, baseline.answer, 8)  # id, word, probability
for one in likeliest:
    print(f"{one.word} {one.probability:.3f}")
""",
                {
                    "[one.probability for one in likeliest]": [
                        one.probability for one in predictions
                    ],
                    "[one.id for one in likeliest]": [one.id for one in predictions],
                },
                """
import altair as alt
import pandas as pd

alt.Chart(pd.DataFrame(likeliest)).mark_bar().encode(x="probability:Q", y=alt.Y("word:N", sort=None))
""",
                "The likeliest next tokens"
                if answer.baseline.answer.kind == "next"
                and answer.baseline.question.position is not None
                else "The likeliest answers",
            ),
            _head(answer, head),
        )
    )


def _ask(
    question: Question, more: str, results: Mapping[str, Any], draw: str = "", picture: str = ""
) -> lab.Cell:
    imports = {f"from core.interpret.evidence import {name}" for name in ("Question", "ask")} | (
        {"from core.pretrained.generate import top_candidates"} if draw else set()
    )
    return lab.Cell(
        "The model's answer, and the likeliest tokens or classes."
        if draw
        else "What is measured: the cosine of one pair.",
        f"""
{lab.import_block(imports)}

baseline = ask(model, {lab.question_code(question)})
{more.strip()}
""",
        draw,
        picture,
        results,
    )


def _head(answer: study.Answer, head: study.Head) -> lab.Cell:
    """The map of the shown head, and where it was measured what the answer loses without each head."""
    text, results = "The map of one head.", {"weights": answer.trace.head(head.index, head.head)}
    code = f"""
trace = reading.trace.of({answer.trace.kinds[0]!r})
weights = trace.head({head.index}, {head.head})  # (T, S)
"""
    if head.effect is not None:
        results["changes"] = np.array([effect.change for effect in answer.effects.values()])
        text = "The answer without each head, and the map of one of them."
        code = f"""
import numpy as np

from core.interpret.evidence import ablate_heads
{code}
heads = [(item.kind, item.layer, head) for item in trace.maps for head in range(len(item.weights))]
changes = np.array([ablate_heads(baseline, frozenset({{head}})).change for head in heads])
print("depends most on", heads[abs(changes).argmax()], changes[abs(changes).argmax()])
"""
    return lab.Cell(
        text,
        code,
        f"""
from dashboard.show import show

show(trace, layer={head.index}, head={head.head}, query={head.row})
""",
        "use_model:head",
        results,
    )


# Sentences of the page: the fact of each job, the conditions, and the jobs of other models.


def answer_fact(answer: study.Answer, predictions: Sequence[Candidate], head: study.Head) -> str:
    first, count = predictions[0], len(answer.baseline.answer.probabilities)  # type: ignore[arg-type]
    next_best = "".join(
        f", ahead of **{lab.plain(second.word)}** with {lab.share_text(second.probability)}"
        for second in predictions[1:2]
    )
    subjects = {
        "mask": "The masked word",
        "next": "The next token",
        "class": "The class",
        "span": "The answer",
    }
    return (
        f"{subjects[answer.baseline.answer.kind]} is :primary[**{lab.plain(first.word)}**] with "
        f"**{lab.share_text(first.probability)}**{next_best}; chance is 1 in {count:,}. "
        f"{head_fact(answer, head, first.word)}"
    )


def head_fact(answer: study.Answer, head: study.Head, word: str) -> str:
    key, weight, uniform = _attends(answer, head)
    return (
        f"Head **{head.name}** attends most to **{key}**, with {weight} of its weight (uniform attention: "
        f"{uniform}). {_without(answer, head, word)}"
    )


def _without(answer: study.Answer, head: study.Head, word: str) -> str:
    if head.effect is None:
        return "The effect of each head on the answer is not measured yet."
    quantity = f"the {answer.baseline.quantity} of **{lab.plain(word)}**"
    stays = f"{quantity} stays at {lab.number(answer.baseline.value)}"
    if abs(head.effect.change) >= 5e-4:  # else it is none
        return f"Without it {quantity} would be {_instead(answer, head.effect)}: {_rank(answer, head)}."
    return (
        f"Without it {stays}: {_rank(answer, head)}."
        if head.before
        else f"T{stays[1:]} without any one of the {_heads(answer)}: no single head decides it."
    )


def _instead(answer: study.Answer, effect: Effect) -> str:
    """A value and the full model's; their difference, where both have the same text."""
    value, was = lab.number(effect.value), lab.number(answer.baseline.value)
    if value != was:
        return f"{value} instead of {was}"
    return f"{lab.number(abs(effect.change))} {'more' if effect.change > 0 else 'less'} than {was}"


def _rank(answer: study.Answer, head: study.Head) -> str:
    return f"{head.before or 'none'} of {_heads(answer)} {('change' if head.before > 1 else 'changes')} it more"


def _heads(answer: study.Answer) -> str:
    return f"{len(answer.heads)} heads{(' of cross-attention' if answer.trace.kinds == ('cross',) else '')}"


def pair_fact(
    table: np.ndarray,
    names: Sequence[str],
    pair: tuple[int, int],
    answer: study.Answer,
    head: study.Head,
) -> str:
    """The similarity of the picked pair, the mean of all pairs, and the head with the largest effect on it."""
    others = table[np.triu_indices(len(names), 1)]
    first, second = (lab.plain(lab.cut(names[index], 40)) for index in pair)
    out = (
        f":primary[**“{first}”**] is most similar to **“{second}”**: their cosine is "
        f"**{lab.number(float(table[pair]))}**; the mean of all {len(others)} pairs is {lab.number(float(others.mean()))}."
    )
    if head.effect is None:
        return out
    value = lab.number(head.effect.value)
    if value == lab.number(answer.baseline.value):
        value = _instead(answer, head.effect)
    # a vector is compared with itself before
    alone = "the cosine of its vector with the original one is"
    verb = "it would be" if answer.baseline.question.against else alone
    return f"{out} Without head **{head.name}** {verb} {value}; {_rank(answer, head)}."


def _attends(answer: study.Answer, head: study.Head) -> tuple[str, str, str]:
    """The key with the head's largest weight in its row, that weight, and that of uniform attention, as text."""
    item, grid = answer.trace.maps[head.index], answer.baseline.source.grid
    weights, keys = item.weights[head.head, head.row], item.keys
    best, key = int(weights.argmax()), ""
    if grid is not None and answer.trace.kinds != ("causal",):
        place = best - (len(answer.baseline.source) - grid[0] * grid[1])
        if 0 <= place < grid[0] * grid[1]:
            key = f"the patch in row {place // grid[1]}, column {place % grid[1]}"
    return (
        lab.plain(key or lab.numbered(keys)[best]),
        lab.share_text(weights[best]),
        lab.number(1 / len(keys)),
    )


def conditions(answer: study.Answer, head: study.Head) -> str:
    method = (
        f"All {len(answer.heads)} heads were switched off one by one, and the model was run again each time."
        if head.effect is not None
        else "No head was switched off."
    )
    return lab.plain(
        f"{answer.baseline.pretrained.name}, {len(answer.baseline.source)} tokens, fp32 on the CPU. {method} A "
        "weight shows where a head attends; only switching the head off shows what it contributes to the answer."
    )


# The page Use a model: its task, its answer, the head that the answer depends on most, and other tasks' models.


LONGEST, TIP = 24, 120  # signs of a sentence at the matrix, and under the pointer


def page() -> None:
    lab.title(
        "Use a model",
        "Let a model do its task, and see the head that its answer depends on most.",
    )
    lab.fragment_unless_measuring(_view)


def _view() -> None:
    choice = lab.choose_model(needs=("model",), at_once=False)
    if choice is not None and choice.pretrained is not None:
        pretrained, own = choice.pretrained, None
        with lab.input_errors():
            task = task_of(pretrained)
            {
                "embed": embed,
                "fill": fill,
                "classify": probabilities,
                "label": label,
                "span": probabilities,
                "next": probabilities,
                "translate": translate,
                "picture": probabilities,
            }[task.key](choice, pretrained)
            own = task

        def others() -> None:
            if own is not None:
                st.markdown(
                    f"**{own.name}**: {lab.plain(pretrained.name)} {own.does}. It has {own.needs}. Other tasks need "
                    "other models."
                )
            for other in MODEL_TASKS:
                if own is None or other.name != own.name:
                    _other(other)
            lab.source_panel(answer_of)
            lab.source_panel(ablate_heads)

        lab.details("Other tasks and source", others, "use_model:others")


def embed(choice: lab.ModelChoice, pretrained: Pretrained) -> None:
    left, right = st.columns([1.15, 1], gap="large")
    with left:
        chart = st.container()
        if pretrained.reads == "picture":
            names = model_inputs.pictures(int(getattr(pretrained.model.config, "num_channels", 3)))[
                :8
            ]
            pairs = ((name, ModelInputs(picture=model_inputs.picture(name))) for name in names)
            compared = [
                ("This picture", choice.inputs),
                *(pair for pair in pairs if pair[1] != choice.inputs),
            ]
        else:
            names = study.sentences(choice.inputs.text, Controls.draw(into=lab.HERE).more)
            inputs = (choice.inputs, *map(ModelInputs, names[1:]))
            compared = list(zip(names, inputs, strict=False))  # there may be no sentence
    if len(compared) < 2:
        raise PretrainedError(
            "There is nothing to compare with: write one more sentence, in a new line."
        )
    names = tuple(name for name, _ in compared)
    table = to_numpy(
        cosines([lab.study_of(embedding, choice.ref, inputs) for _, inputs in compared])
    )
    pair = most_similar(torch.from_numpy(table), 0)
    with chart:
        st.markdown(
            f"**{task_of(pretrained).name}**: how similar each pair is",
            help="The outlined pair is the input above (0) and what is most similar to it. Pressing a cell changes "
            "nothing: for another pair, change the input.",
        )
        lab.draw_chart(
            st,
            *lab.split_data(similarity_chart(table, names, pair, lab.theme())),
            width="stretch",
            alt="Similarity of each pair of sentences",
        )
    with right:
        lab.read_inputs(choice)
        answer, head = head_map(
            choice,
            Question(choice.inputs, against="" if choice.inputs.picture else names[pair[1]]),
            "this similarity",
        )
        lab.add_script(partial(embed_script, choice, compared, table, answer, head))
    lab.fact(pair_fact(table, names, pair, answer, head))
    st.latex(
        rf"\cos(\mathbf a, \mathbf b) = \frac{{\mathbf a \cdot \mathbf b}}{{\lVert \mathbf a \rVert \, "
        rf"\lVert \mathbf b \rVert}} = {lab.number(float(table[pair]))}",
        width="content",
    )
    lab.caption(conditions(answer, head))


def fill(choice: lab.ModelChoice, pretrained: Pretrained) -> None:
    lab.read_inputs(choice)
    inputs, line = choice.inputs, choice.reading.source
    if (
        pretrained.tokenizer.mask_token_id not in line.ids
    ):  # mask a word, at first the last long one
        maskable = maskable_words(line)
        numbers, words = list(maskable), list(maskable.values())
        long = [i for i, word in enumerate(words) if word.isalpha() and len(word) >= 4]
        picked = pick_word(
            "Masked word", words, [0, *long][-1], f"use_model:masked:{inputs.text[:80]}"
        )
        inputs = replace(inputs, text=mask_word(pretrained, inputs.text, numbers[picked]))
    question, mask = Question(inputs), lab.plain(pretrained.tokenizer.mask_token)
    _answer(
        choice,
        question,
        pretrained,
        answer_fact,
        lab.plain(inputs.text).replace(
            mask, f"**{lab.plain(answer_question(choice.ref, question).baseline.word or '')}**", 1
        ),
    )


def probabilities(choice: lab.ModelChoice, pretrained: Pretrained) -> None:
    lab.read_inputs(choice)
    more = link = ""
    if pretrained.head == "next":
        written = lab.plain(lab.study_of(study.continuation_text, choice.ref, choice.inputs))
        more = f"… {lab.plain(' '.join(choice.inputs.text.split()[-6:]))} **{written}** …"
        link = "Generate: continue this text"
    if pretrained.head == "span" and not choice.inputs.second:
        more = "The text is the question: write the passage that answers it as Sentence B."
    _answer(choice, Question(choice.inputs), pretrained, answer_fact, more, link)


def label(choice: lab.ModelChoice, pretrained: Pretrained) -> None:
    lab.read_inputs(choice)
    line = choice.reading.source
    labels = lab.study_of(token_labels, choice.ref, choice.inputs)
    words = [at for at, special in enumerate(line.special) if not special] or [0]
    key = f"use_model:word:{choice.inputs.text[:80]}:{choice.inputs.second or ''}"
    position = words[pick_word("Token", [line.tokens[at] for at in words], 0, key)]
    _answer(choice, Question(choice.inputs, position=position), pretrained, answer_fact)
    lab.table(
        ["token", "label", "probability"],
        [
            [line.tokens[at], labels[at].word, lab.share_text(labels[at].probability)]
            for at in words
        ],
        caption="The likeliest label of each token",
        left=2,
        markers=False,
    )


def _answer(
    choice: lab.ModelChoice,
    question: Question,
    pretrained: Pretrained,
    tell: Callable[[study.Answer, Sequence[Candidate], study.Head], str],
    more: str = "",
    link: str = "",
    token: str = "",
) -> None:
    """Draw the likeliest answers with `more` text and a `link` to Generate below, the head's map, and what `tell` says
    of both; of the written `token` on the right of its map."""
    answer = answer_question(choice.ref, question)
    predictions = top_candidates(pretrained, answer.baseline.answer, 8)
    columns = st.columns([1.2, 0.8] if token else [0.8, 1.2], gap="large")
    left, right = reversed(columns) if token else columns
    with left:
        st.markdown(f"**{task_of(pretrained).name}**")
        lab.draw_chart(
            st,
            lab.bars(
                {"model": torch.tensor([one.probability for one in predictions])},
                [one.word for one in predictions],
                0,
                lab.Ink.of(lab.theme()),
                limit=220,
            ),
            width="stretch",
            alt="The likeliest next tokens" if token else "The likeliest answers",
        )
        if more:
            st.markdown(more)
        if link:
            generate = lab.step_of("generate")
            st.page_link(generate.page(), label=link, icon=generate.icon)
    with right:
        answer, head = head_map(choice, question, f"“{lab.plain(token or predictions[0].word)}”")
        lab.add_script(partial(answer_script, choice, answer, predictions, head))
    lab.fact(tell(answer, predictions, head))
    lab.caption(conditions(answer, head))


def translate(choice: lab.ModelChoice, pretrained: Pretrained) -> None:
    lab.read_inputs(choice)
    produced, inputs = choice.reading.produced, choice.inputs
    assert produced is not None
    words = [position for position, special in enumerate(produced.special) if not special] or [0]
    key = f"use_model:word:{inputs.text[:80]}:{inputs.target or ''}"
    position = words[
        pick_word(
            "Word of the output",
            [produced.tokens[position] for position in words],
            study.first_crossing(choice.reading, words),
            key,
        )
    ]

    def tell(answer: study.Answer, predictions: Sequence[Candidate], head: study.Head) -> str:
        (key, weight, uniform), word = _attends(answer, head), answer.baseline.word or ""
        return (
            f"{'The model reads your target' if inputs.target else 'The model writes'} "
            f"**{lab.plain(decode_text(pretrained, produced.ids))}**. For :primary[**{lab.plain(word)}**], head "
            f"**{head.name}** puts **{weight}** of its weight on **{key}**; uniform attention would put {uniform} "
            f"there. {_without(answer, head, word)}"
        )

    question, token = Question(inputs, position=position), produced.tokens[position]
    _answer(choice, question, pretrained, tell, link="Generate: see it step by step", token=token)


def head_map(
    choice: lab.ModelChoice, question: Question, noun: str
) -> tuple[study.Answer, study.Head]:
    """Draw the map of the head on which the answer depends most, over a picture's patches; a user may pick another."""
    answer = answer_question(choice.ref, question)
    baseline, heads = answer.baseline, answer.heads
    if baseline.pretrained.recordable:  # else heads cannot be switched off
        effects = lab.measure_with_progress(
            WITHOUT_HEADS,
            (choice.ref, question),
            heads,
            lambda head: ablate_heads(baseline, frozenset({head})),
            "heads",
        )
        if len(effects) == len(heads):
            answer = replace(answer, effects=effects)
    patches, first = (
        lab.Patches.of(choice.inputs.picture, baseline.source),
        study.default_head(answer),
    )
    st.markdown(
        f"**Head {first.name}**, "
        + (f"on which {noun} depends most" if first.effect else "with the largest weight")
    )
    maps, usual, of = answer.trace.maps, (first.index, first.head), (choice.ref, question)
    linked = lab.read_linked(PAGE, "head", (len(maps), max(len(item.weights) for item in maps)), of)
    layer, head = linked if linked and linked[1] < len(maps[linked[0]].weights) else usual
    pin = lab.read_linked(PAGE, "pin", maps[layer].weights.shape[1:], of)  # type: ignore[arg-type]
    view = lab.attention_view(
        answer.trace,
        key="use_model:head",
        layer=layer,
        head=head,
        pin=pin,
        query=first.row,
        patches=patches,
        show="matrix" if patches is None else "both",
        height=420 if patches is None else 260,
        fact=f"Head {first.name}: its row of {answer.trace.maps[first.index].queries[first.row]} is picked",
    )
    lab.write_linked(
        PAGE, "head", None if (view.layer, view.head) == usual else (view.layer, view.head)
    )
    lab.write_linked(PAGE, "pin", view.pin)
    return answer, study.head_at(answer, view.layer, view.head)


def _other(job: ModelTask) -> None:
    description, buttons = st.columns([1.2, 1], vertical_alignment="center")
    description.markdown(f"**{job.name}**: {job.does}. It needs {job.needs}.")
    button = partial(st.button, on_click=lab.select_model)
    with buttons.container(horizontal=True):
        if job.lab_model:
            button(
                job.lab_model,
                key=f"use_model:use:{job.key}",
                args=(job.lab_model,),
                help="One of the lab's own models; no download.",
            )
        if is_allowed(job.hub):
            button(
                f"{job.hub.partition('/')[2]}, {lab.byte_size(1e6 * job.megabytes)}",
                key=f"use_model:hub:{job.key}",
                args=(job.hub,),
                help=f"{job.hub} of the Hugging Face hub. Its size is shown before anything is "
                "downloaded.",
            )


# Figures of the page Use a model: the similarity of all pairs of inputs, and the likeliest answers as bars.


def similarity_chart(
    table: np.ndarray, names: Sequence[str], picked: tuple[int, int], theme: lab.Theme
) -> lab.Spec:
    """Cosines of all pairs, with their numbers; purple below 0, green above, the picked pair outlined.

    The names are marks, so that another sentence changes the rows alone, and no figure is built anew.
    """
    ink = lab.Ink.of(theme)
    labels = [f"{i}" for i in range(len(names))]
    tipped = [lab.cut(name, TIP) for name in names]
    rows = [
        {
            "row": labels[i],
            "column": labels[j],
            "value": float(table[i, j]),
            "text": lab.number(float(table[i, j])),
            "one": tipped[i],
            "other": tipped[j],
            "dark": bool(abs(table[i, j]) > 0.55),
        }
        for i in range(len(names))
        for j in range(len(names))
    ]
    across = {
        **lab.axis_style(ink),
        "orient": "top",
        "labelAngle": 0,
        "labelFontSize": 13,
        "labelColor": ink.text,
    }
    at: dict[str, Any] = {
        "y": {"field": "row", "type": "ordinal", "sort": labels, "title": None, "axis": None},
        "x": {"field": "column", "type": "ordinal", "sort": labels, "title": None, "axis": across},
    }
    pair = [
        row
        for row in rows
        if {row["row"], row["column"]} == {labels[picked[0]], labels[picked[1]]}
        and row["row"] != row["column"]
    ]
    return lab.figure(
        [
            lab.layer(
                "rect",
                rows,
                {
                    **at,
                    "color": {
                        "field": "value",
                        "type": "quantitative",
                        "legend": None,
                        "scale": {
                            "domain": [-1, 1],
                            "range": list(lab.SIGNED[theme]),
                            "interpolate": "rgb",
                        },
                    },
                    "tooltip": [
                        {"field": name, "type": "nominal", "title": title}
                        for name, title in (("one", "row"), ("text", "cosine"), ("other", "column"))
                    ],
                },
            ),
            lab.layer("rect", pair, at, filled=False, stroke=ink.pick, strokeWidth=2.25),
            lab.layer(
                "text",
                rows,
                {
                    **at,
                    "text": {"field": "text", "type": "nominal"},
                    "color": {
                        "condition": {"test": "datum.dark", "value": lab.PAGE[theme]},
                        "value": ink.text,
                    },
                },
                fontSize=11,
            ),
            lab.layer(
                "text",
                [
                    {"row": label, "name": f"{label}  {lab.cut(name, LONGEST)}"}
                    for label, name in zip(labels, names, strict=True)
                ],
                {"y": at["y"], "text": {"field": "name", "type": "nominal"}},
                x=0,
                dx=-6,
                align="right",
                fontSize=13,
                color=ink.text,
                tooltip=False,
            ),
        ],
        height=max(150, 40 * len(names)),
    )
