"""Use a model: fill a mask, classify, compare sentences, go on, translate, read a picture, beside the attention."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import streamlit as st
import torch

import dashboard.page as lab
from core.interpret.evidence import Question, ablate_heads
from core.interpret.trace import to_numpy
from core.pretrained import ModelInputs, Pretrained, PretrainedError, generate, model_inputs
from core.pretrained.hub import is_allowed
from core.pretrained.reading import embedding, token_labels
from core.studies import use_model as study
from dashboard.draw import use_model as draw

PAGE = "use_model"
SIMILARITY = "Similarity of each pair of sentences"
WITHOUT_HEADS = "use_model:heads"  # the answer without each head, for all sessions


def answer_question(ref: lab.ModelRef, question: Question) -> study.Answer:
    """The model's answer; PretrainedError if this model cannot answer the question."""
    baseline, reading = lab.baseline_of(ref, question), lab.reading_of(ref, question.inputs)
    return lab.computed(study.answer_with_maps, baseline, reading)


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
    label: str
    tokens: Sequence[str]
    usual: int
    line: str
    word = lab.TokenField(
        lambda c: c.label,
        lambda c: dict(enumerate(map(lab.plain, lab.distinct(c.tokens)))),
        lambda c: c.usual,
        key=lambda c: c.line,
        link="use_model:word",
        max_options=40,
        help="The page shows the answer for this word and the head that it depends on most.",
        also=lambda c: {"width": lab.room(170)} if len(c.tokens) > 40 else {},
    )
    head, pin = lab.CellField("head"), lab.CellField("pin")


def pick_word(label: str, tokens: Sequence[str], usual: int, line: str) -> int:
    given = {"label": label, "tokens": tokens, "usual": usual, "line": line}
    return Controls.draw("word", into=lab.HERE, **given).word


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
            task = generate.task_of(pretrained)
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
            for other in generate.MODEL_TASKS:
                if own is None or other.name != own.name:
                    _other(other)
            lab.source_panel(generate.answer_of)
            lab.source_panel(ablate_heads)

        lab.details("Other tasks and source", others, "use_model:others")


def embed(choice: lab.ModelChoice, pretrained: Pretrained) -> None:
    left, right = st.columns([1.15, 1], gap="large")
    with left:
        chart, words = (
            st.container(),
            st.container(),
        )  # the sentence stands before a phone's second picture
        if pretrained.reads == "picture":
            names = lab.pictures_for(pretrained)[:8]
            pairs = ((name, ModelInputs(picture=model_inputs.picture(name))) for name in names)
            compared = [
                ("This picture", choice.inputs),
                *(pair for pair in pairs if pair[1] != choice.inputs),
            ]
        else:
            other = Controls.draw("more", into=st.popover("Other sentences")).more
            names = study.sentences(choice.inputs.text, other)
            inputs = (choice.inputs, *map(ModelInputs, names[1:]))
            compared = list(zip(names, inputs, strict=False))  # there may be no sentence
    if len(compared) < 2:
        raise PretrainedError(
            "There is nothing to compare with: write one more sentence, in a new line."
        )
    names = tuple(name for name, _ in compared)
    inputs = tuple(one for _, one in compared)
    vectors = [lab.study_of(embedding, choice.ref, one) for one in inputs]
    table = lab.recorded(
        study.similarities, (choice.ref, inputs), to_numpy(generate.cosines(vectors))
    )
    pair = generate.most_similar(torch.from_numpy(table), 0)
    with chart:
        st.markdown(
            f"**{generate.task_of(pretrained).name}**: yours (0) and {lab.plural(len(names) - 1, 'example')}, how similar "
            "each pair is",
            help="The outlined pair is the input above (0) and what is most similar to it. Pressing a cell changes "
            "nothing: for another pair, change the input.",
        )
        lab.draw_chart(
            st,
            *lab.split_data(draw.similarity_chart(table, names, pair, lab.theme())),
            width="stretch",
            alt=SIMILARITY,
        )
    with right:
        lab.read_inputs(choice)
        answer, head = head_map(
            choice,
            Question(choice.inputs, against="" if choice.inputs.picture else names[pair[1]]),
            "this similarity",
        )
    lab.as_python(
        table=table,
        trace=answer.trace,
        draw={SIMILARITY: draw.similarity_code(names)},
        also=[draw.head_cell(answer, head)],
    )
    with words:
        lab.fact(draw.pair_fact(table, names, pair, answer, head))
    st.latex(draw.cosine_latex(float(table[pair])), width="content")
    lab.caption(draw.conditions(answer, head))


def fill(choice: lab.ModelChoice, pretrained: Pretrained) -> None:
    lab.read_inputs(choice)
    inputs, line = choice.inputs, choice.reading.source
    if (
        pretrained.tokenizer.mask_token_id not in line.ids
    ):  # mask a word, at first the last long one
        maskable = generate.maskable_words(line)
        numbers, words = list(maskable), list(maskable.values())
        long = [i for i, word in enumerate(words) if word.isalpha() and len(word) >= 4]
        picked = pick_word("Masked word", words, [0, *long][-1], f"masked:{inputs.text[:80]}")
        inputs = replace(inputs, text=generate.mask_word(pretrained, inputs.text, numbers[picked]))
    question, mask = Question(inputs), lab.plain(pretrained.tokenizer.mask_token)
    _answer(
        choice,
        question,
        pretrained,
        draw.answer_fact,
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
    _answer(choice, Question(choice.inputs), pretrained, draw.answer_fact, more, link)


def label(choice: lab.ModelChoice, pretrained: Pretrained) -> None:
    lab.read_inputs(choice)
    line = choice.reading.source
    labels = lab.study_of(token_labels, choice.ref, choice.inputs)
    words = [at for at, special in enumerate(line.special) if not special] or [0]
    key = f"word:{choice.inputs.text[:80]}:{choice.inputs.second or ''}"
    position = words[pick_word("Token", [line.tokens[at] for at in words], 0, key)]
    _answer(choice, Question(choice.inputs, position=position), pretrained, draw.answer_fact)
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
    tell: Callable[[study.Answer, Sequence[generate.Candidate], study.Head], str],
    more: str = "",
    link: str = "",
    token: str = "",
) -> None:
    """Draw the likeliest answers with `more` text and a `link` to Generate below, the head's map, and what `tell` says
    of both; of the written `token` on the right of its map."""
    answer = answer_question(choice.ref, question)
    likeliest = generate.top_candidates(pretrained, answer.baseline.answer, 8)
    lab.recorded(generate.top_candidates, (choice.ref, answer.baseline.answer, 8), likeliest)
    title = "The likeliest next tokens" if token else "The likeliest answers"
    columns = st.columns([1.2, 0.8] if token else [0.8, 1.2], gap="large")
    left, right = reversed(columns) if token else columns
    with left:
        st.markdown(f"**{generate.task_of(pretrained).name}**")
        lab.draw_chart(
            st,
            lab.bars(
                {"model": torch.tensor([one.probability for one in likeliest])},
                [one.word for one in likeliest],
                0,
                lab.Ink.of(lab.theme()),
                limit=220,
            ),
            width="stretch",
            alt=title,
        )
        if more:
            st.markdown(more)
        if link:
            step = lab.step_of("generate")
            st.page_link(step.page(), label=link, icon=step.icon)
    with right:
        answer, head = head_map(choice, question, f"“{lab.plain(token or likeliest[0].word)}”")
    lab.as_python(
        likeliest=likeliest,
        trace=answer.trace,
        draw={title: draw.LIKELIEST},
        also=[draw.head_cell(answer, head)],
    )
    lab.fact(tell(answer, likeliest, head))
    lab.caption(draw.conditions(answer, head))


def translate(choice: lab.ModelChoice, pretrained: Pretrained) -> None:
    lab.read_inputs(choice)
    produced, inputs = choice.reading.produced, choice.inputs
    assert produced is not None
    words = [position for position, special in enumerate(produced.special) if not special] or [0]
    key = f"word:{inputs.text[:80]}:{inputs.target or ''}"
    position = words[
        pick_word(
            "Word of the output",
            [produced.tokens[position] for position in words],
            study.first_crossing(choice.reading, words),
            key,
        )
    ]

    def tell(
        answer: study.Answer, predictions: Sequence[generate.Candidate], head: study.Head
    ) -> str:
        (key, weight, uniform), word = draw.attends(answer, head), answer.baseline.word or ""
        return (
            f"{'The model reads your target' if inputs.target else 'The model writes'} "
            f"**{lab.plain(generate.decode_text(pretrained, produced.ids))}**. For :primary[**{lab.plain(word)}**], head "
            f"**{head.name}** takes **{weight}** from **{key}**; uniform attention would take {uniform}. "
            f"{draw.without(answer, head, word)}"
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
    heading = st.container()
    maps, usual, of = answer.trace.maps, (first.index, first.head), (choice.ref, question)
    linked = Controls.head.pinned((len(maps), max(len(item.weights) for item in maps)), of)
    layer, head = linked if linked and linked[1] < len(maps[linked[0]].weights) else usual
    queries, keys = maps[layer].weights.shape[1:]
    view = lab.attention_view(
        answer.trace,
        key="use_model:head",
        layer=layer,
        head=head,
        pin=Controls.pin.pinned((queries, keys), of),
        query=first.row,
        patches=patches,
        show="matrix" if patches is None else "both",
        height=420 if patches is None else 260,
        fact=f"Head {study.head_at(answer, layer, head).name}: its row of {maps[layer].queries[first.row]} is picked",
    )
    Controls.head.pin(None if (view.layer, view.head) == usual else (view.layer, view.head))
    Controls.pin.pin(view.pin)
    head_shown = study.head_at(answer, view.layer, view.head)
    most = f"on which {noun} depends most" if first.effect else "with the largest weight"
    if (view.layer, view.head) != usual:
        most = f"picked here; {first.name} is the one {most}"
    heading.markdown(f"**Head {head_shown.name}**, {most}")
    return answer, head_shown


def _other(job: generate.ModelTask) -> None:
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
