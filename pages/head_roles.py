"""Head roles: what each head of a pretrained model attends to: by role, by syntactic relation, and in standard tests."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import dashboard.page as lab
from core.entries import ConfigError, Param
from core.interpret import head_tests, roles
from core.interpret.circuits import head_weights
from core.interpret.trace import AttentionTrace, Head, Kind
from core.pretrained import ModelInputs, Reading
from dashboard.draw import head_roles as draw

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
        help="✓: the head finds each target. After the first of these come all in which it misses one, ✗.",
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
    # the model and the head that was picked on this page or taken over
    known = lab.SessionValue[object](None)
    # the role, and its head in the last run
    shown = lab.SessionValue[tuple[object, Head]]((None, (0, 0)))
    pin, word_pin, test_pin = (lab.CellField(f"{name}pin") for name in ("", "word_", "test_"))
    picked = lab.SessionValue(("", ""))  # a head of a map, and the field that it is put into


def page() -> None:
    lab.title(
        "Head roles",
        "Each square is a head, each row a layer: its colour says which tokens it takes from, over many sentences.",
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
    pin: lab.CellField,
    of: object,
    *,
    key: str,
    query: int | None,
    fact: str,
    caption: str | None = None,
    show: Literal["both", "matrix"] = "matrix",
    patches: lab.Patches | None = None,
) -> None:
    """Draw a head's map, whose `pin` in the link is a cell `of` something; a head picked in it is the field's, too."""
    layer, number = head
    rows, columns = trace.maps[layer].weights.shape[1:]
    view = lab.attention_view(
        trace,
        key=key,
        layer=layer,
        head=number,
        query=query,
        pin=pin.pinned((rows, columns), of),
        show=show,
        patches=patches,
        fact=fact,
        caption=caption,
        height=420,
    )
    pin.pin(view.pin)
    take_head(view, head, field, name)


def take_head(view: lab.ViewState, head: Head, field: str, name: Callable[[Head], str]) -> None:
    """Put another head that was picked in a map into its field."""
    if (shown := (view.layer, view.head)) != head:
        # A field is not set after it was drawn.
        Controls.picked.value = name(shown), field
        st.rerun()


# Roles.


@lab.fragment
@lab.input_errors()
def draw_roles(choice: lab.ModelChoice) -> None:
    left, right = st.columns([1.1, 1], gap="medium")  # above the controls: a phone shows it first
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
    role, head = picked_role(choice.ref, scores, role_column, more)
    head_chart(
        left,
        "The role of every head",
        lab.role_grid(scores, head, lab.theme()),
        "head_roles:roles",
        "head",
        "Layers by heads, each in its role's colour",
    )
    with right:
        lab.fact(draw.role_fact(scores, head, role, inputs))
        lab.role_line(scores.head_roles, len(scores.heads), inputs.name, "square")
    shown, example = one_head(choice, inputs, scores, role, head, more)
    results: dict[str, Any] = {} if example is None else {"example": example}
    query = None if example is None else example.query
    lab.as_python(
        reading=lab.reading_of(choice.ref, choice.inputs),
        scores=scores,
        **results,
        trace=shown.trace,
        draw={
            "head_roles:scores": draw.GRID_CODE.format(values=f"scores.score[{role}]"),
            "head_roles:map": draw.map_code(head, query, f"trace.of({kind!r})"),
        },
        also=[draw.roles_cell(scores, role)],
    )
    with lab.settings_panel("How a head gets its role: every head's score, and the test"):
        head_chart(
            st.container(),
            f"{roles.ROLES[role].name}: share of {'its keys' if roles.ROLES[role].targets is None else 'its weight'}",
            draw.role_chart(scores, role, head, lab.theme()),
            "head_roles:scores",
            "head",
            f"Layers by heads, each with its score as {roles.ROLES[role].name.lower()}",
        )
        for part in draw.role_equation(scores, head, role):
            st.latex(part, width="content")
        left_out = len(set(sentences) - {each.text for each in inputs.givens})
        model = choice.reading.trace.source
        caption = draw.role_caption(scores, role, inputs, model, left_out)
        st.caption(lab.plain(f"{caption} {choice.reading.note or ''}"))
    rule = roles.ROLES[role].targets or roles.share_used
    papers("source", draw.ROLE_PAPERS, rule, roles.weight_on_targets)


def picked_role(
    ref: lab.ModelRef, scores: roles.RoleScores, column: DeltaGenerator, more: DeltaGenerator
) -> tuple[int, Head]:
    """Draw the role and the head; a head that was picked on another page since comes with its own role."""
    kind, shape = scores.kind, scores.score.shape[1:]
    elsewhere = lab.current_head_of(ref, kind, shape)
    if elsewhere in scores.heads and Controls.known.value != (ref, elsewhere):
        own = roles.ROLES[scores.head_roles.get(elsewhere, roles.default_role(scores))]
        Controls.known.value = ref, elsewhere
        Controls.set(role=own.key, head=scores.name(elsewhere))
        # A widget writes into the link what a person sets in it, not what it was set to here.
        st.query_params.update(Controls.state(role=own.name, head=scores.name(elsewhere)))
    model = f"{ref} {kind}"
    picked = Controls.draw("role", into=column, scores=scores, of=model).role
    role = [one.key for one in roles.ROLES].index(picked)
    heads = {scores.name(head): head for head in scores.ranked(role)}
    head = head_field("head", heads, (model, role), more, "how far they are above chance")
    # Other pages get the head if the user picked it, that is, if it changed while the role did not
    before_of, before = Controls.shown.value
    of = ref, kind, role
    Controls.shown.value = of, head
    if before_of == of and before != head:
        lab.choose_head(ref, kind, head)
        Controls.known.value = ref, head
    return role, head


def one_head(
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
    kind, noun = scores.kind, "input" if choice.pretrained is None else choice.pretrained.reads
    noun = noun if noun in ("input", "picture", "sound") else "text"
    left, right = st.columns([1.1, 1], gap="medium", vertical_alignment="top")
    with left:
        shown, given, example = choice.reading, choice.inputs, None
        of = kind, roles.ROLES[role].key, head
        if Controls.draw("where", into=more, noun=noun).where == "set":
            readings = lab.readings_of(choice.ref, inputs, kind)
            example = lab.computed(roles.role_example, readings, *of)
        if example is not None:
            shown, given = readings[example.reading], inputs.givens[example.reading]
        else:
            example = lab.computed(roles.role_example, [shown], *of)
        # Draw the head's map, over the picture if the model read one
        line, trace = shown.lines(kind)[0], shown.trace.of(kind)
        patches = lab.Patches.of(given.picture, line)
        head_map(
            trace,
            head,
            "head",
            scores.name,
            Controls.pin,
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
            heading=f"{scores.name(head)} in every role; the line is what chance gives",
        )
        lab.fact(draw.text_fact(shown, kind, example, role, noun))
    lab.table(
        ("role", "heads", "best head", "score", "chance", "clearest example"),
        draw.role_rows(scores, lab.examples_of(choice.ref, inputs, kind), inputs),
        caption="The head with the most of each role",
        left=(0, 5),
        marks=[lab.swatch(index) for index in range(len(roles.ROLES))],
    )
    csv_button("All scores, CSV", "head-roles.csv", lambda: draw.roles_csv(scores))
    return shown, example


def papers(name: str, text: str, *functions: object) -> None:
    show = partial(lab.sources, text, *functions)
    lab.details("Papers and source", show, f"head_roles:{name}")


def csv_button(label: str, name: str, data: Callable[[], bytes]) -> None:
    st.download_button(label, data, name, "text/csv", icon=":material/download:", on_click="ignore")


# Syntax.


def draw_syntax(choice: lab.ModelChoice) -> None:
    if choice.pretrained is None:
        st.info(
            "Maps without their model have no text, so they have no syntax to show.",
            icon=":material/info:",
        )
        return
    kind, (relation_column, head_column, file_column) = kind_and_columns(choice, 3)
    reference = sentences_field(file_column)
    result = syntax_result(choice.ref, reference, kind)
    if result is None:
        return
    of = f"{choice.ref} {kind} {reference}"
    name = Controls.draw("relation", into=relation_column, result=result, of=of).relation
    result = lab.computed(head_tests.with_relation, result, name)
    relation = result.names.index(name)
    score = result.scores[relation]
    assert score is not None
    heads = sorted(result.heads(), key=lambda head: -score.accuracy[head])
    head = head_field(
        "word_head",
        {result.readings.name(head): head for head in heads},
        (of, score.relation.key, score.reverse),
        head_column,
        "accuracy",
    )
    left, right = st.columns(2, gap="medium")
    head_chart(
        left,
        f"{name}, accuracy of every head",
        draw.accuracy_chart(result, score, head, lab.theme()),
        "head_roles:accuracies",
        "word_head",
        f"Layers by heads, each with its accuracy for {name}",
    )
    lab.draw_chart(
        right,
        lab.relation_dots(result, relation, lab.theme()),
        key="head_roles:relations",
        alt="Relations with the accuracy of their best head and of the best fixed offset",
        heading="The best head of each relation; the tick is the best fixed offset",
    )
    lab.fact(draw.syntax_fact(result.readings, score, head))
    st.latex(draw.syntax_latex(score, head), width="content")
    reading, trace, query = one_sentence(choice, result, score, head)
    lab.as_python(
        score=score,
        reading=reading,
        trace=trace,
        draw={
            "head_roles:accuracies": draw.GRID_CODE.format(values="score.accuracy"),
            "head_roles:words": draw.map_code(head, query),
        },
        also=[draw.syntax_cell(score)],
    )
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
    rules = head_tests.Relation.targets, head_tests.word_weights, head_tests.score_relation
    papers("syntax-source", draw.SYNTAX_PAPERS, *rules)


def syntax_result(ref: lab.ModelRef, reference: str, kind: Kind) -> head_tests.SyntaxResult | None:
    """The scores over the sentences, read one by one; None while more can be read, and no relation has ten instances."""
    model, about = lab.load_model(ref), (ref, reference, kind)
    known = lab.study_of(head_tests.known_sentences, ref, reference)
    read = lab.measure_with_progress(
        READ,
        about,
        range(len(known)),
        lambda index: head_tests.reduce_parse(model, known[index], kind),
        "sentences",
        lab.UNASKED,
    )
    result = lab.shared(_score_syntax, *about, len(read))
    if max(result.counts.values(), default=0) >= head_tests.MIN_QUERIES:
        return lab.recorded(head_tests.measure_syntax, about, result)
    if len(read) == len(known):
        st.info(draw.too_few(result), icon=":material/info:")
    return None


def _score_syntax(
    ref: lab.ModelRef, reference: str, kind: Kind, count: int
) -> head_tests.SyntaxResult:
    read = sorted(lab.measurements(READ, (ref, reference, kind)).items())[:count]
    known = lab.study_of(head_tests.known_sentences, ref, reference)
    given = min(head_tests.MAX_PARSES, len(lab.shared(head_tests.parses, reference)))
    parts = [part for _, part in read]
    return head_tests.score_syntax(
        head_tests.join_readings(lab.load_model(ref), parts, given - len(known))
    )


def sentences_field(column: DeltaGenerator) -> str:
    """The sentences of one's own, as text or a reference; "" for the lab's, also where they cannot be read."""
    lab.link_data(FILE, "")
    with column.popover("Sentences", icon=":material/account_tree:", width="stretch"):
        data = lab.data_widget(CONLLU, FILE)
        st.caption(
            "Without sentences of yours, the page measures 179 English ones, annotated by hand for it. A relation of your "
            "own needs no tree: a line `# text = Paris is to France what Rome is to Italy`, and below it a line such as "
            "`1 4 capital` for each pair, the numbers of two words and a name. docs/conllu.md describes both formats."
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


def one_sentence(
    choice: lab.ModelChoice,
    result: head_tests.SyntaxResult,
    score: head_tests.RelationScore,
    head: Head,
) -> tuple[Reading, AttentionTrace, int]:
    """Draw a sentence with the weights from its queries, beside it one in which the head does otherwise, and its map.

    Returns the model's reading of the first in tokens and in words, and its first query.
    """
    queries = head_tests.queries_by_sentence(result, score, head)
    name = result.readings.name(head)
    # A link has the sentence's number: its label has the verdict on this head.
    drawn = Controls.draw(
        "sentence",
        into=lab.HERE,
        texts=draw.sentence_labels(result, queries),
        of=(choice.ref, name, score.relation.key, score.reverse),
    )
    sentence = int(drawn.sentence) - 1
    finds = {index: all(query.right for query in each) for index, each in queries.items()}

    def weights_in(index: int) -> tuple[Reading, AttentionTrace]:
        parse = result.readings.sentences[index].parse
        target = parse.text if lab.load_model(choice.ref).reads == "pair" else None
        reading = lab.reading_of(choice.ref, ModelInputs(parse.text, target=target))
        trace = lab.computed(head_tests.sentence_trace, reading, result, index)
        lab.chart_title(
            f"{name} {'finds each' if finds[index] else 'misses a'} target in sentence {index + 1}"
        )
        st.html(lab.query_lines(parse, trace.head(*head), queries[index], lab.theme()))
        return reading, trace

    st.html(lab.SENTENCE_STYLE)
    reading, trace = weights_in(sentence)
    if (
        other := next((index for index in queries if finds[index] != finds[sentence]), None)
    ) is not None:
        weights_in(other)
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
        Controls.word_pin,
        (choice.ref, sentence),
        key="head_roles:words",
        query=query,
        show="both",
        fact=f"Head {name} on {len(trace.maps[0].queries)} words of sentence {sentence + 1}",
        caption="Between words; what goes to special tokens is missing.",
    )
    return reading, trace, query


# Standard tests.


def draw_tests(choice: lab.ModelChoice) -> None:
    if choice.pretrained is None:
        st.info(
            "Maps without their model read no other text, so they cannot be tested.",
            icon=":material/info:",
        )
        return
    kind, (test_column, head_column) = kind_and_columns(choice, 2)
    ref, model_name = choice.ref, choice.reading.trace.source
    # Read the lines of random tokens one by one
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
        successor(ranks, head, str(ref), model_name)
    else:
        repeats(scores, test, head, (ref, kind))
    lab.table(
        ("test", "best head", "score", "uniform", "heads above twice uniform", "weight on"),
        draw.repeat_rows(scores),
        caption="The best head of each test",
        left=(0, 1, 5),
        markers=False,
    )
    csv_button("All scores, CSV", "standard-tests.csv", lambda: draw.repeats_csv(scores))
    lab.caption(lab.plain(draw.tests_caption(scores, model_name, with_map=not is_successor)))
    rules = head_tests.score_successors, head_tests.RepeatTest.cells, head_tests.score_repeats
    papers("tests-source", draw.TEST_PAPERS, *rules)


def repeats(scores: head_tests.RepeatScores, test: int, head: Head, of: object) -> None:
    left, right = st.columns([1, 1.1], gap="medium")
    head_chart(
        left,
        f"{head_tests.TESTS[test].name}, score from 0 to 1",
        draw.test_chart(scores, test, head, lab.theme()),
        "head_roles:tests",
        "test_head",
        f"Layers by heads, each with its score in the test {head_tests.TESTS[test].name}",
    )
    special = scores.example.lines(scores.kind)[0].special
    query = int(head_tests.TESTS[test].cells(special)[0][0])
    with right:
        head_map(
            scores.example.trace.of(scores.kind),
            head,
            "test_head",
            scores.name,
            Controls.test_pin,
            of,
            key="head_roles:test-map",
            query=query,
            fact=f"Head {scores.name(head)} on {scores.length} random tokens, twice",
        )
    lab.fact(draw.repeats_fact(scores, test, head))
    st.latex(draw.repeats_latex(scores, test, head), width="content")
    lab.as_python(
        scores=scores,
        trace=scores.example.trace,
        draw={"head_roles:test-map": draw.map_code(head, query, f"trace.of({scores.kind!r})")},
        also=[
            draw.best_cell(f"scores.ranked({test})[0]  # of the test {head_tests.TESTS[test].name}")
        ],
    )


def successor(scores: head_tests.SuccessorScores, head: Head, ref: str, model_name: str) -> None:
    left, right = st.columns([1, 1.1], gap="medium")
    head_chart(
        left,
        "Successor, share of items from 0 to 1",
        draw.successor_chart(scores, head, lab.theme()),
        "head_roles:tests",
        "test_head",
        "Layers by heads, each with the share of items whose successor it ranks highest",
    )
    with right:
        names = [order.name for order in scores.orders]
        order = names.index(Controls.draw("items", into=lab.HERE, orders=names, of=ref).items)
        view = lab.attention_view(
            scores.trace(order, model_name),
            key="head_roles:order-map",
            layer=head[0],
            head=head[1],
            height=420,
            signed=True,
            scale="largest",
            show="matrix",
            reads="attending to the row adds to the logit of the column",
            fact=f"What {scores.name(head)} adds to the logits of {names[order]}",
        )
        take_head(view, head, "test_head", scores.name)
    lab.fact(draw.successor_fact(scores, head))
    st.latex(draw.successor_latex(scores, head), width="content")
    lab.caption(lab.plain(draw.successor_caption(scores, model_name)))
    lab.as_python(scores=scores, also=[draw.best_cell("scores.ranked()[0]")])
