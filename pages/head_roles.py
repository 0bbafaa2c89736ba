"""Head roles: what each head of a pretrained model attends to: by role, by syntactic relation, and in standard tests."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import dashboard.page as lab
from core.entries import ConfigError, Param
from core.interpret import head_tests, roles
from core.interpret.circuits import head_weights
from core.interpret.trace import AttentionMap, AttentionTrace, Head, Kind
from core.pretrained import ModelInputs, Reading
from dashboard.draw import head_roles as draw

LISTED = 6  # relations of a file with too few instances
SUCCESSOR = "Successor"
TEST_NAMES = (*(test.name for test in head_tests.TESTS), SUCCESSOR)
FILE = "head_roles:conllu"
CONLLU = Param(
    "data",
    "CoNLL-U",
    default="",
    meaning=f"sentences with their syntactic trees, at most {head_tests.MAX_PARSES} of them and "
    f"{head_tests.MAX_CHARACTERS:,} characters",
    longest=head_tests.MAX_CHARACTERS,
)
READ, LINES = "head_roles:read", "head_roles:lines"  # measurements


def head_select(key: str) -> lab.Select:
    """The head that was picked for `of`, else the first of the options, whose order the help says."""
    return lab.Select(
        "Head",
        lambda c: c.heads,
        key=key,
        of=lambda c: c.of,
        help=lambda c: f"Sorted by {c.sorted_by}. You can also click a head in a grid.",
    )


class Controls(lab.Fields, page="head_roles"):
    kinds: list[Kind]
    of: object  # what the picks belong to
    heads: list[str]
    sorted_by: str
    noun: str
    scores: roles.RoleScores
    result: head_tests.SyntaxResult
    texts: dict[str, str]
    orders: list[str]

    view = lab.Segmented(
        "Measure",
        ("Roles", "Syntax", "Standard tests"),
        help="Roles: tokens by position, word or repetition. Syntax: subjects, objects and other relations, in "
        "annotated sentences. Standard tests: random tokens that repeat.",
        also={"label_visibility": "collapsed"},
    )
    kind = lab.Select(
        "Attention",
        lambda c: {kind: lab.KINDS[kind] for kind in c.kinds},
        help=lab.KIND_HELP,
    ).optional(lambda c: len(c.kinds) > 1)
    own = lab.Text(
        "Your own sentences, one per line",
        lines=True,
        also={"height": 180, "placeholder": "\n".join(roles.SENTENCES[:4])},
        help=f"The heads are measured on them: at most {draw.MAX_SENTENCES} lines of {draw.MAX_LETTERS} letters. Left empty, "
        "the example sentences are measured.",
    )
    where = lab.Segmented[str](
        "Shown on",
        lambda c: {"here": f"Your {c.noun}", "set": "Clearest example"},
        help="Your own input, or the measured one with the clearest example of the role.",
        also={"label_visibility": "collapsed"},
    )
    role = lab.Select[str](
        "Role",
        lambda c: {
            role.key: role.name
            for role, rows in zip(roles.ROLES, c.scores.rows, strict=True)
            if rows
        },
        lambda c: roles.ROLES[roles.default_role(c.scores)].key,
        of=lambda c: c.of,
        help="The role whose scores are shown for every head.",
    )
    head = head_select("head")
    relation = lab.Select[str](
        "Relation",
        lambda c: [
            relation.name(reverse)
            for (relation, reverse), count in c.result.counts.items()
            if count >= head_tests.MIN_QUERIES
        ],
        lambda c: c.result.names[c.result.default()] if any(c.result.scores) else None,
        of=lambda c: c.of,
        help="From which word the head attends, and which word is the right one.",
    )
    word_head = head_select("syntactic")
    sentence = lab.Select[int](
        "Example sentence",
        lambda c: c.texts,
        of=lambda c: c.of,
        hidden=True,
        help="✗: the head misses a target in it. These come first.",
    )
    test = lab.Select(
        "Test",
        TEST_NAMES,
        lambda c: TEST_NAMES[head_tests.default_test(c.scores)],
        of=lambda c: c.of,
        help="Induction, duplicate and previous token: to which token each token of a repetition attends. "
        "Successor: what the head's matrices make of ordered items.",
    )
    test_head = head_select("tested")
    items = lab.Select[str](
        "Order",
        lambda c: c.orders,
        key="order",
        of=lambda c: c.of,
        help="The ordered items that the map shows.",
    )
    known = lab.SessionValue[object](
        None
    )  # the model and the head that was picked on this page or taken over
    shown = lab.SessionValue[tuple[object, Head]](
        (None, (0, 0))
    )  # the role, and its head in the last run
    picked = lab.SessionValue(("", ""))  # a head of a map, and the field that it is put into


def page() -> None:
    lab.title(
        "Head roles",
        "See what each head attends to, over many sentences.",
    )
    choice = lab.choose_model()
    with lab.input_errors():
        if choice is not None and set(choice.reading.trace.kinds) == {"cross"}:
            st.info(
                "Cross-attention connects two sequences, so roles such as “previous token” do not apply to it. The "
                "page Pretrained models shows its maps.",
                icon=":material/info:",
            )
        elif choice is not None:
            view, reads = {
                "Roles": (draw_roles, choice.inputs.text),
                "Syntax": (draw_syntax, "sentences with their parses"),
                "Standard tests": (draw_tests, "random tokens, twice, or none"),
            }[Controls.draw("view", into=lab.HERE).view]
            lab.describe(**({"text": reads} if reads else {}))
            view(choice)


def kind_and_columns(choice: lab.ModelChoice, count: int) -> tuple[Kind, list[DeltaGenerator]]:
    """The kind of attention, and `count` columns for fields, right of its own where the model has several kinds."""
    kinds = [kind for kind in choice.reading.trace.kinds if kind != "cross"]
    columns = st.columns(count + (len(kinds) > 1), vertical_alignment="bottom")
    return Controls.draw("kind", into=columns[0], kinds=kinds).kind or kinds[0], columns[-count:]


def head_field(
    name: str, options: Mapping[str, Head], of: object, column: DeltaGenerator, order: str
) -> Head:
    """The picked head of this field, also one that was picked in a map before."""
    head, field = Controls.picked.value
    if field == name:
        Controls.picked.pop()
        Controls.set(**{name: head})
    return options[
        Controls.draw(name, into=column, heads=list(options), of=of, sorted_by=order)[name]
    ]


def head_chart(
    column: DeltaGenerator, title: str, spec: lab.Spec, key: str, field: str, alt: str
) -> None:
    def pick() -> None:
        if point := lab.pressed_point(key, "head"):
            Controls.set(**{field: point["name"]})

    lab.draw_chart(
        column,
        spec,
        key=key,
        width="content",
        alt=alt,
        heading=title,
        selection_mode="head",
        on_select=pick,
    )


def head_map(
    trace: AttentionTrace,
    head: Head,
    field: str,
    name: Callable[[Head], str],
    pin: str = "",
    of: object = None,
    **options: Any,
) -> None:
    """Draw a head's map; a head that is picked in it is picked in the field, too. `pin` names its cell in the link."""
    if pin:
        options["pin"] = lab.read_linked(
            "head_roles", pin, trace.maps[head[0]].weights.shape[1:], of
        )  # type: ignore[arg-type]
    view = lab.attention_view(trace, layer=head[0], head=head[1], height=420, **options)
    if pin:
        lab.write_linked("head_roles", pin, view.pin)
    if (shown := (view.layer, view.head)) != head:
        # A field is not set after it was drawn.
        Controls.picked.value = name(shown), field
        st.rerun()


# Roles.


@lab.fragment
@lab.input_errors()
def draw_roles(choice: lab.ModelChoice) -> None:
    kind, (role_column, more_column) = kind_and_columns(choice, 2)
    more = more_column.popover("More", help="The head, your own sentences, and where it is shown")
    sentences: tuple[str, ...] = ()
    if choice.pretrained is not None and choice.pretrained.reads_text:
        sentences, trouble = draw.read_sentences(Controls.draw("own", into=more).own)
        with more, st.container(height=180):
            st.caption("The example sentences:  \n" + "  \n".join(roles.SENTENCES))
        if trouble:
            st.warning(trouble)
    with st.spinner("Measuring every head, once per model"), st.skeleton(height=240):
        inputs = lab.inputs_of(choice.ref, choice.inputs, kind, sentences)
        scores = lab.role_scores_of(choice.ref, choice.inputs, kind, sentences)
    model = f"{choice.ref} {kind}"
    # The head that was picked on another page since, and its role where it has one
    _, layers, heads = scores.score.shape
    elsewhere = lab.current_head_of(choice.ref, kind, (layers, heads))
    if elsewhere in scores.heads and Controls.known.value != (choice.ref, elsewhere):
        own = roles.ROLES[scores.head_roles.get(elsewhere, roles.default_role(scores))]
        Controls.known.value = choice.ref, elsewhere
        Controls.set(role=own.key, head=scores.name(elsewhere))
        # A widget writes into the link what a person sets in it, not what it was set to here.
        st.query_params.update(Controls.state(role=own.name, head=scores.name(elsewhere)))
    role = [role.key for role in roles.ROLES].index(
        Controls.draw("role", into=role_column, scores=scores, of=model).role
    )
    head = head_field(
        "head",
        {scores.name(head): head for head in scores.ranked(role)},
        (model, role),
        more,
        "how far they are above chance",
    )
    # Other pages get the head if the user picked it, that is, if it changed while the role did not
    of = choice.ref, kind, role
    before_of, before = Controls.shown.value
    Controls.shown.value = of, head
    if before_of == of and before != head:
        lab.choose_head(choice.ref, kind, head)
        Controls.known.value = choice.ref, head
    left, right = st.columns(2, gap="medium")
    head_chart(
        left,
        "The role of every head",
        lab.role_grid(scores, head, lab.theme()),
        "head_roles:roles",
        "head",
        "Layers by heads, each in its role's colour",
    )
    head_chart(
        right,
        f"{roles.ROLES[role].name}, score from 0 to 1",
        lab.share_grid(
            scores,
            scores.score[role],
            {each: lab.role_figure(scores, role, each) for each in scores.heads},
            ~scores.counts[role],
            head,
            lab.theme(),
            "role",
        ),
        "head_roles:scores",
        "head",
        f"Layers by heads, each with its score as {roles.ROLES[role].name.lower()}",
    )
    lab.fact(draw.role_fact(scores, head, role, inputs))
    with st.container(
        horizontal=True, horizontal_alignment="center", vertical_alignment="center", gap="medium"
    ):
        for part in draw.role_equation(scores, head, role):
            st.latex(part, width="content")
    shown, example = _one_head(choice, inputs, scores, role, head, more)
    reading = lab.reading_of(choice.ref, choice.inputs)
    own_alone = choice.pretrained is None or inputs.givens == (choice.inputs,)
    cells = (
        draw.roles_cell(inputs, scores, sentences, own_alone, role),
        draw.role_cell(scores.kind, head, shown, example, shown is choice.reading),
    )
    lab.as_python(reading=reading, also=cells)
    st.caption(
        lab.plain(
            draw.role_caption(
                scores,
                role,
                inputs,
                choice.reading.trace.source,
                len(set(sentences) - {each.text for each in inputs.givens}),
            )
        )
    )
    lab.details(
        "Papers and source",
        partial(
            lab.sources,
            "\n\n".join(
                [
                    f"**{each.name}** — {lab.plain(each.meaning)}. {each.source}"
                    for each in roles.ROLES
                ]
            ),
            roles.ROLES[role].targets or roles.share_used,
            roles.weight_on_targets,
        ),
        "head_roles:source",
    )


def _one_head(
    choice: lab.ModelChoice,
    inputs: roles.RoleInputs,
    scores: roles.RoleScores,
    role: int,
    head: Head,
    more: DeltaGenerator,
) -> tuple[Reading, roles.Example | None]:
    """Draw the head's map, on the user's input or the measured one, and its scores in all roles.

    Returns that reading, and the head's clearest example of the role among the readings that were asked.
    """
    kind, noun = scores.kind, "array" if choice.pretrained is None else choice.pretrained.reads
    noun = noun if noun in ("array", "picture", "sound") else "text"
    left, right = st.columns([1.1, 1], gap="medium", vertical_alignment="top")
    with left:
        shown, given, example = choice.reading, choice.inputs, None
        if Controls.draw("where", into=more, noun=noun).where == "set":
            readings = lab.readings_of(choice.ref, inputs, kind)
            example = roles.clearest_example(readings, kind, roles.ROLES[role], *head)
        if example is not None:
            shown, given = readings[example.reading], inputs.givens[example.reading]
        else:
            example = roles.clearest_example([shown], kind, roles.ROLES[role], *head)
        # Draw the head's map, over the picture if the model read one
        line, trace = shown.lines(kind)[0], shown.trace.of(kind)
        patches = lab.Patches.of(given.picture, line)
        head_map(
            trace,
            head,
            "head",
            scores.name,
            "pin",
            (trace.source, given),
            key="head_roles:map",
            patches=patches,
            show="both" if patches else "matrix",
            query=None if example is None else example.query,
            fact=f"Head {scores.name(head)} on {len(line)} tokens",
        )
    with right:
        lab.draw_chart(
            st,
            lab.head_bars(scores, head, lab.theme()),
            key="head_roles:bars",
            alt=f"The scores of {scores.name(head)} in every role, compared with chance",
            heading=f"{scores.name(head)} in every role; the line is chance, ± 3 standard deviations",
        )
        lab.fact(draw.text_fact(shown, kind, example, role, noun))
    # A row a role: how many heads have it, the head that has most of it, its score and chance, and an example
    examples, own = lab.examples_of(choice.ref, inputs, kind), list(scores.head_roles.values())
    lab.table(
        ("role", "heads", "best head", "score", "chance", "clearest example"),
        [
            [each.name, "–", "–", "–", "–", "no token here can show it"]
            if (best := scores.best(index)) is None
            else [
                each.name,
                str(own.count(index)),
                scores.name(best),
                lab.number(scores.score[index][best]),
                draw.chance_text(scores, index, best),
                draw.example_of(*examples[index], inputs, kind, index)
                if index in examples
                else "–",
            ]
            for index, each in enumerate(roles.ROLES)
        ],
        caption="The head with the most of each role",
        left=(0, 5),
        marks=[lab.swatch(index) for index in range(len(roles.ROLES))],
    )
    csv_button("All scores, CSV", "head-roles.csv", lambda: draw.roles_csv(scores))
    return shown, example


def csv_button(label: str, name: str, data: Callable[[], bytes]) -> None:
    st.download_button(label, data, name, "text/csv", icon=":material/download:", on_click="ignore")


# Syntax.


def draw_syntax(choice: lab.ModelChoice) -> None:
    if choice.pretrained is None:
        st.info(
            "An uploaded array has no text, so it has no syntax to show.", icon=":material/info:"
        )
        return
    kind, (relation_column, head_column, file_column) = kind_and_columns(choice, 3)
    reference = _data_field(file_column)
    # Read the sentences one by one; wait while more can be read, and no relation has ten instances yet
    model, known = (
        lab.load_model(choice.ref),
        lab.study_of(head_tests.known_sentences, choice.ref, reference),
    )

    about = choice.ref, reference, kind
    read = lab.measure_with_progress(
        READ,
        about,
        range(len(known)),
        lambda index: head_tests.reduce_parse(model, known[index], kind),
        "sentences",
        lab.UNASKED,
    )
    result = lab.shared(_score_syntax, *about, len(read))
    if max(result.counts.values(), default=0) < head_tests.MIN_QUERIES:
        if len(read) == len(known):
            counts = [f"{one.name(back)} {count}" for (one, back), count in result.counts.items()]
            st.info(
                f"No relation has {head_tests.MIN_QUERIES} instances in these sentences, so none is measured. Read: "
                f"{lab.plain(', '.join(counts[:LISTED]) or 'none')}{', …' if len(counts) > LISTED else ''}.",
                icon=":material/info:",
            )
        return
    of = f"{choice.ref} {kind} {reference}"
    name = Controls.draw("relation", into=relation_column, result=result, of=of).relation
    chosen = next(each for each in result.counts if each[0].name(each[1]) == name)
    result = result.with_relation(*chosen)
    relation = result.choices.index(chosen)
    score = result.scores[relation]
    assert score is not None
    head = head_field(
        "word_head",
        {
            result.readings.name(head): head
            for head in sorted(result.heads(), key=lambda head: -score.accuracy[head])
        },
        (of, chosen[0].key, chosen[1]),
        head_column,
        "accuracy",
    )
    left, right = st.columns(2, gap="medium")
    offset = float(score.offset_hits.mean(-1).max())
    head_chart(
        left,
        f"{result.names[relation]}, accuracy of every head",
        lab.share_grid(
            result.readings,
            score.accuracy,
            {
                each: f"{lab.percent(score.accuracy[each])} of {score.count}"
                for each in result.heads()
            },
            score.accuracy <= offset,
            head,
            lab.theme(),
            "accuracy",
            "accuracy",
        ),
        "head_roles:accuracies",
        "word_head",
        f"Layers by heads, each with its accuracy for {result.names[relation]}",
    )
    lab.draw_chart(
        right,
        lab.relation_dots(result, relation, lab.theme()),
        key="head_roles:relations",
        alt="Relations with the accuracy of their best head and of the best fixed offset",
        heading="The best head of each relation; the tick is the best fixed offset",
    )
    source, target = score.relation.ends(score.reverse)
    own, (best, low, high) = float(score.accuracy[head]), score.held_out_share
    lab.fact(
        f"From the {source}, the word to which :primary[**{result.readings.name(head)}**] attends most is the "
        f"**{target}** in **{lab.percent(own)}** of {score.count} cases. The best fixed offset, the word "
        f"{draw.offset_text(score.best_offset)}, is right in {lab.percent(offset)}. Chosen on one half of the sentences and "
        f"measured on the other, the best head reaches **{lab.percent(best)}**, with a 95 % interval from "
        f"{lab.percent(low)} to {lab.percent(high)}."
    )
    st.latex(
        r"a_{uw} = \frac{1}{|u|}\sum_{i \in u}\ \sum_{j \in w} a_{ij} \qquad "
        r"\frac{1}{|Q|}\sum_{u \in Q} \left[\arg\max_{w \neq u} a_{uw} \in T_u\right] = "
        rf"\frac{{{int(score.hits[head].sum())}}}{{{score.count}}} = {lab.number(own)}",
        width="content",
    )
    sentence, query, reading, trace = _sentence(choice, result, score, head)
    cells = draw.syntax_cells(reference, result, score, head, sentence, query, trace)
    lab.as_python(reading=reading, also=cells)
    _syntax_table(choice, reference, result, score)


def _syntax_table(
    choice: lab.ModelChoice,
    reference: str,
    result: head_tests.SyntaxResult,
    score: head_tests.RelationScore,
) -> None:
    lab.table(
        "relation|instances|best head|accuracy|95 % interval|best offset|its accuracy".split("|"),
        draw.syntax_rows(result),
        caption="The best head of each relation, and the best fixed offset",
        left=(0, 2),
        markers=False,
    )
    csv_button("All accuracies, CSV", "syntactic-heads.csv", lambda: draw.syntax_csv(result))
    lab.caption(
        lab.plain(draw.syntax_caption(result, score, choice.reading.trace.source, not reference))
    )
    lab.details(
        "Papers and source",
        partial(
            lab.sources,
            (
                "Attention between words, both directions and the best fixed offset as the baseline: "
                f"{roles.CLARK}, section 4. Relations: "
                "[Universal Dependencies](https://universaldependencies.org/u/dep/)."
            ),
            head_tests.Relation.targets,
            head_tests.word_weights,
            head_tests.score_relation,
        ),
        "head_roles:syntax-source",
    )


def _score_syntax(
    ref: lab.ModelRef, reference: str, kind: Kind, count: int
) -> head_tests.SyntaxResult:
    return head_tests.score_syntax(
        lab.load_model(ref),
        [one for _, one in sorted(lab.measurements(READ, (ref, reference, kind)).items())[:count]],
        min(head_tests.MAX_PARSES, len(lab.shared(head_tests.parses, reference)))
        - len(lab.study_of(head_tests.known_sentences, ref, reference)),
    )


def _data_field(column: DeltaGenerator) -> str:
    """The sentences of one's own, as text or a reference; "" for the lab's, also where they cannot be read."""
    lab.link_data(FILE, "")
    with column.popover("Sentences", icon=":material/account_tree:", width="stretch"):
        data = lab.data_widget(CONLLU, FILE)
        st.caption(
            "Without sentences of yours, the page measures 179 English ones, annotated by hand for it. "
            "docs/conllu.md in the repository describes the format."
        )
    try:
        if (count := len(lab.shared(head_tests.parses, data))) > head_tests.MAX_PARSES:
            st.caption(
                f"Of its {count:,} sentences the first {head_tests.MAX_PARSES} are measured."
            )
    except ConfigError as error:
        st.warning(lab.plain(str(error)))
        return ""
    return data


def _sentence(
    choice: lab.ModelChoice,
    result: head_tests.SyntaxResult,
    score: head_tests.RelationScore,
    head: Head,
) -> tuple[int, int, Reading, AttentionTrace]:
    """Draw a sentence with the weights from its queries, and its map of words; returns it, its query, and the model's
    reading of it in tokens and in words.

    The sentences in which the head is wrong come first.
    """
    queries = head_tests.queries_by_sentence(result, score, head)
    name, sentences = result.readings.name(head), result.readings.sentences
    # A link has the sentence's number: its label has the verdict on this head.
    drawn = Controls.draw(
        "sentence",
        into=lab.HERE,
        texts={
            str(index + 1): f"{index + 1} {'✓' if all(query.right for query in each) else '✗'} "
            f"{sentences[index].parse.text}"
            for index, each in queries.items()
        },
        of=(choice.ref, name, score.relation.key, score.reverse),
    )
    sentence = int(drawn.sentence) - 1
    parse, tokens = sentences[sentence].parse, sentences[sentence].tokens
    target = parse.text if lab.load_model(choice.ref).reads == "pair" else None
    reading = lab.reading_of(choice.ref, ModelInputs(parse.text, target=target))
    trace = head_tests.word_trace(reading, parse, tokens, result.readings.kind)
    st.html(lab.SENTENCE_STYLE)
    st.html(lab.query_lines(parse, trace.head(*head), queries[sentence], lab.theme()))
    st.caption(
        f"Each word on the colour of its weight from the framed word, in {lab.plain(name)} of "
        f"{lab.plain(trace.source)}; the right answer is underlined."
    )
    query = queries[sentence][0].word
    head_map(
        trace,
        head,
        "word_head",
        result.readings.name,
        "word_pin",
        (choice.ref, sentence),
        key="head_roles:words",
        query=query,
        fact=f"Head {name} on {len(parse.words)} words",
        caption="Between words; what goes to special tokens is missing.",
    )
    return sentence, query, reading, trace


# Standard tests.


def draw_tests(choice: lab.ModelChoice) -> None:
    if choice.pretrained is None:
        st.info(
            "An uploaded array reads no other text, so it cannot be tested.", icon=":material/info:"
        )
        return
    kind, (test_column, head_column) = kind_and_columns(choice, 2)
    ref = choice.ref
    # Read the lines of random tokens one by one; of fewer than two there is no interval
    model, lines = lab.load_model(ref), lab.study_of(head_tests.random_lines, ref)
    read = lab.measure_with_progress(
        LINES,
        (ref, kind),
        range(len(lines)),
        lambda index: head_tests.line_scores(head_tests.read_line(model, kind, lines[index]), kind),
        "lines of random tokens",
        lab.UNASKED,
    )
    if len(read) < 2:  # of one there is no interval
        return
    example = lab.study_of(head_tests.read_line, ref, kind, tuple(lines[0]))
    scores = head_tests.join_lines(kind, example, list(read.values()))
    lab.recorded(head_tests.score_repeats, (ref, kind), scores)
    of = f"{ref} {kind}"
    drawn = Controls.draw("test", into=test_column, scores=scores, of=of)
    test = TEST_NAMES.index(drawn.test)
    if is_successor := drawn.test == SUCCESSOR:
        with st.spinner("Reading the weights of every head, once per model"):
            ranks = lab.study_of(head_tests.score_successors, ref, kind, given=(head_weights,))
    ranked = ranks.ranked() if is_successor else scores.ranked(test)
    head = head_field(
        "test_head", {scores.name(head): head for head in ranked}, (of, test), head_column, "score"
    )
    if is_successor:
        cell = draw.successor_cell(ranks, head, _successor(choice, ranks, head))
        lab.as_python(scores=ranks, also=[cell])
    else:
        _repeats(choice, scores, test, head)
        lab.as_python(scores=scores, also=[draw.repeats_cell(scores, test, head)])
    lab.table(
        ("test", "best head", "score", "uniform", "heads above twice uniform", "weight on"),
        draw.repeat_rows(scores),
        caption="The best head of each test",
        left=(0, 1, 5),
        markers=False,
    )
    csv_button("All scores, CSV", "standard-tests.csv", lambda: draw.repeats_csv(scores))
    drawn_of = " A cell is faint where its interval reaches twice uniform attention. The map shows the first line."
    lab.caption(
        lab.plain(
            f"{choice.reading.trace.source}, {draw.ATTENTION[scores.kind]}, {scores.lines} lines of "
            f"{scores.length} different random tokens of its vocabulary, twice in a row, "
            "between the special tokens that its tokenizer adds. ± is the 95 % interval over the "
            "lines, for all heads at once. Random tokens have no meaning, so these scores show position and identity alone; "
            "on sentences, "
            f"Roles measures.{'' if is_successor else drawn_of}"
        )
    )
    lab.details(
        "Papers and source",
        partial(
            lab.sources,
            "\n\n".join(
                [
                    *(
                        f"**{one.name}** — weight on {one.attends_to}. {one.source}"
                        for one in head_tests.TESTS
                    ),
                    f"**Successor** — the successor of a number, a day, a month or a letter. {head_tests.GOULD}",
                ]
            ),
            head_tests.score_successors,
            head_tests.RepeatTest.cells,
            head_tests.score_repeats,
        ),
        "head_roles:tests-source",
    )


def _repeats(
    choice: lab.ModelChoice, scores: head_tests.RepeatScores, test: int, head: Head
) -> None:
    left, right = st.columns([1, 1.1], gap="medium")
    head_chart(
        left,
        f"{head_tests.TESTS[test].name}, score from 0 to 1",
        lab.share_grid(
            scores,
            scores.score[test],
            {each: draw.score_text(scores, test, each) for each in sorted(scores.ranked(test))},
            ~scores.passes[test],
            head,
            lab.theme(),
        ),
        "head_roles:tests",
        "test_head",
        f"Layers by heads, each with its score in the test {head_tests.TESTS[test].name}",
    )
    with right:
        head_map(
            scores.example.trace.of(scores.kind),
            head,
            "test_head",
            scores.name,
            "test_pin",
            (choice.ref, scores.kind),
            key="head_roles:test-map",
            show="matrix",
            query=draw.first_query(scores, test),
            fact=f"Head {scores.name(head)} on {scores.length} random tokens, twice",
        )
    best, others = scores.ranked(test)[0], ""
    if not scores.passes[test][best]:
        others = " No head of this model passes the test."
    elif best != head:
        others = (
            f" {scores.name(best)} has the highest score, {draw.score_text(scores, test, best)}."
        )
    lab.fact(
        f"On random tokens that repeat, :primary[**{scores.name(head)}**] puts **{draw.score_text(scores, test, head)}** "
        f"of its weight on **{head_tests.TESTS[test].attends_to}**; uniform attention puts "
        f"{lab.number(float(scores.uniform[test]))} there.{others}"
    )
    # The score with the head's number; n random tokens stand at 1 … n and again at n + 1 … 2n
    offset, value = head_tests.TESTS[test].offset, lab.number(float(scores.score[test][head]))
    mean = r"\frac{1}{2n - 1}\sum_{i=2}^{2n} a_{i,\,i-1}"
    if offset is not None:
        key = "i + 1" if offset else "i"
        mean = rf"\frac{{1}}{{n}}\sum_{{i=1}}^{{n}} a_{{n+i,\,{key}}}"
    st.latex(rf"s = {mean} = {value} \qquad n = {scores.length}", width="content")


def _successor(choice: lab.ModelChoice, scores: head_tests.SuccessorScores, head: Head) -> int:
    left, right = st.columns([1, 1.1], gap="medium")
    ends = {each: scores.interval(each) for each in sorted(scores.ranked())}
    faint = np.ones(scores.score.shape, dtype=bool)
    for each, (low, _) in ends.items():
        faint[each] = low <= scores.chance
    head_chart(
        left,
        "Successor, share of items from 0 to 1",
        lab.share_grid(
            scores,
            scores.score,
            {
                each: f"{lab.percent(scores.score[each])}, 95 % interval {lab.percent(low)} to {lab.percent(high)}"
                for each, (low, high) in ends.items()
            },
            faint,
            head,
            lab.theme(),
            "items",
            "share of items",
        ),
        "head_roles:tests",
        "test_head",
        "Layers by heads, each with the share of items whose successor it ranks highest",
    )
    with right:
        names = [order.name for order in scores.orders]
        index = names.index(
            Controls.draw("items", into=lab.HERE, orders=names, of=str(choice.ref)).items
        )
        # What the head adds to the logit of each item of the order, where it attends to each
        items, values = scores.orders[index].items, np.nan_to_num(scores.logits[index])
        head_map(
            AttentionTrace(
                tuple(
                    AttentionMap("self", layer, one, items, items, None, scores.numbers[layer])
                    for layer, one in enumerate(values)
                ),
                choice.reading.trace.source,
            ),
            head,
            "test_head",
            scores.name,
            key="head_roles:order-map",
            signed=True,
            scale="largest",
            show="matrix",
            reads="attending to the row adds to the logit of the column",
            fact=f"What {scores.name(head)} adds to the logits of {names[index]}",
        )
    # How many successors the head ranks highest, beside chance, and whether any head is above it
    best, (low, high) = scores.ranked()[0], ends[head]
    others = ""
    if ends[best][0] <= scores.chance:
        others = " No head of this model is a successor head."
    elif best != head:
        others = (
            f" {scores.name(best)} has the highest share, {lab.percent(float(scores.score[best]))}."
        )
    lab.fact(
        f"From {scores.count} ordered items, :primary[**{scores.name(head)}**] raises the "
        f"successor most of its order in **{lab.percent(float(scores.score[head]))}**, with a 95 % interval from "
        f"{lab.percent(low)} to {lab.percent(high)}; random ranks would do so in {lab.percent(scores.chance)}.{others}"
    )
    st.latex(
        r"s = \frac{1}{|I|}\sum_{x \in I} \left[\arg\max_{y \in O_x}\ (W_E W_V W_O W_U)_{xy} = x + 1\right] = "
        rf"\frac{{{scores.hits(head)}}}{{{scores.count}}} = {lab.number(float(scores.score[head]))}",
        width="content",
    )
    orders = ", ".join(f"{len(order.items)} {order.name}" for order in scores.orders)
    embedded = " This model has no unembedding; its embedding, transposed, stands for it."
    lab.caption(
        lab.plain(
            f"{choice.reading.trace.source}, from its weights alone: what a head adds to the "
            f"logits where it attends to an item, without any text. The orders O are {orders}, "
            "those that are single tokens; I are the items with a successor. Biases "
            "and the first feed-forward network are left out; the gains of norms are folded in. A cell is faint where "
            "its interval reaches chance; of many heads the best one is above chance by luck more often than one."
            f"{embedded if scores.by_embedding else ''}"
        )
    )
    return index
