"""Head roles: what each head of a pretrained model attends to: by role, by syntactic relation, and in standard tests."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import streamlit as st

import dashboard.page as lab
from core.entries import ConfigError, Param
from core.interpret.circuits import head_weights
from core.interpret.head_tests import (
    GOULD,
    MAX_CHARACTERS,
    MAX_PARSES,
    MIN_QUERIES,
    TESTS,
    Relation,
    RelationScore,
    RepeatScores,
    RepeatTest,
    SuccessorScores,
    SyntaxResult,
    default_test,
    join_lines,
    known_sentences,
    line_scores,
    parses,
    queries_by_sentence,
    random_lines,
    read_line,
    reduce_parse,
    score_relation,
    score_repeats,
    score_successors,
    score_syntax,
    word_trace,
    word_weights,
)
from core.interpret.roles import (
    CLARK,
    MIN_SHARE,
    MIN_STDS,
    ROLES,
    SENTENCES,
    UNIFORM,
    Example,
    RoleInputs,
    RoleScores,
    clearest_example,
    default_role,
    share_used,
    weight_on_targets,
)
from core.interpret.trace import AttentionMap, AttentionTrace, Head, Kind
from core.pretrained import ModelInputs, Reading

MAX_SENTENCES, MAX_LETTERS = 60, 400
LISTED = 6  # relations of a file with too few instances
SUCCESSOR = "Successor"
TEST_NAMES = (*(test.name for test in TESTS), SUCCESSOR)


ROLE, HEAD, SHOWN, KNOWN = (f"head_roles:{key}" for key in ("role", "head", "shown", "known"))
RELATION, WORD_HEAD, SENTENCE, FILE = (
    f"head_roles:{key}" for key in ("relation", "syntactic", "sentence", "conllu")
)
ATTENTION = {"self": "self-attention", "causal": "causal self-attention"}
CONLLU = Param(
    "data",
    "CoNLL-U",
    default="",
    meaning=f"sentences with their syntactic trees, at most {MAX_PARSES} of them and "
    f"{MAX_CHARACTERS:,} characters",
    longest=MAX_CHARACTERS,
)
TEST, TEST_HEAD = (f"head_roles:{key}" for key in ("test", "tested"))
READ, LINES = (f"head_roles:{key}" for key in ("read", "lines"))  # measurements


def head_select(key: str) -> lab.Select:
    """The head that was picked for `of`, else the first of the options, whose order the help says."""
    return lab.Select(
        "Head",
        lambda values: values.heads,
        key=key,
        of=lambda values: values.of,
        help=lambda values: f"Sorted by {values.order}. You can also click a head in a grid.",
    )


class Controls(lab.Fields, page="head_roles"):
    view = lab.Segmented(
        "Measure",
        ("Roles", "Syntax", "Standard tests"),
        help="Roles: tokens by position, word or repetition. Syntax: subjects, objects and other relations, in "
        "annotated sentences. Standard tests: random tokens that repeat.",
        also={"label_visibility": "collapsed"},
    )
    kind = lab.Select(
        "Attention",
        lambda values: {kind: lab.KINDS[kind] for kind in values.kinds},
        help=lab.KIND_HELP,
    ).optional(lambda values: len(values.kinds) > 1)
    own = lab.Text(
        "Your own sentences, one per line",
        lines=True,
        also={"height": 180, "placeholder": "\n".join(SENTENCES[:4])},
        help=f"The heads are measured on them: at most {MAX_SENTENCES} lines of {MAX_LETTERS} letters. Left empty, "
        "the example sentences are measured.",
    )
    where = lab.Segmented[str](
        "Shown on",
        lambda values: {"here": f"Your {values.noun}", "set": "Clearest example"},
        help="Your own input, or the measured one with the clearest example of the role.",
        also={"label_visibility": "collapsed"},
    )
    role = lab.Select[str](
        "Role",
        lambda values: {
            role.key: role.name
            for role, rows in zip(ROLES, values.scores.rows, strict=True)
            if rows
        },
        lambda values: ROLES[default_role(values.scores)].key,
        of=lambda values: values.of,
        help="The role whose scores are shown for every head.",
    )
    head = head_select("head")
    relation = lab.Select[str](
        "Relation",
        lambda values: [
            relation.name(reverse)
            for (relation, reverse), count in values.result.counts.items()
            if count >= MIN_QUERIES
        ],
        lambda values: (
            values.result.names[values.result.default()] if any(values.result.scores) else None
        ),
        of=lambda values: values.of,
        help="From which word the head attends, and which word is the right one.",
    )
    word_head = head_select("syntactic")
    sentence = lab.Select[int](
        "Example sentence",
        lambda values: values.texts,
        of=lambda values: values.of,
        hidden=True,
        help="✗: the head misses a target in it. These come first.",
    )
    test = lab.Select(
        "Test",
        TEST_NAMES,
        lambda values: TEST_NAMES[default_test(values.scores)],
        of=lambda values: values.of,
        help="Induction, duplicate and previous token: to which token each token of a repetition attends. "
        "Successor: what the head's matrices make of ordered items.",
    )
    test_head = head_select("tested")
    order = lab.Select[str](
        "Order",
        lambda values: values.orders,
        of=lambda values: values.of,
        help="The ordered items that the map shows.",
    )


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
            draw, reads = {
                "Roles": (draw_roles, choice.inputs.text),
                "Syntax": (draw_syntax, "sentences with their parses"),
                "Standard tests": (draw_tests, "random tokens, twice, or none"),
            }[Controls.draw("view", into=lab.HERE).view]
            lab.describe(**({"text": reads} if reads else {}))
            draw(choice)


def kind_and_columns(choice: lab.ModelChoice, count: int) -> tuple[Kind, list[Any]]:
    """The kind of attention, and `count` columns for fields, right of its own where the model has several kinds."""
    kinds = [kind for kind in choice.reading.trace.kinds if kind != "cross"]
    columns = st.columns(count + (len(kinds) > 1), vertical_alignment="bottom")
    return Controls.draw("kind", into=columns[0], kinds=kinds).kind or kinds[0], columns[-count:]


def head_field(name: str, options: Mapping[str, Head], of: object, column: Any, order: str) -> Head:
    """The picked head of this field, also one that was picked in a map before."""
    key = Controls.declared[name].key_of(Controls())
    if picked := st.session_state.pop(f"{key}:picked", None):
        st.session_state[key] = picked
    return options[Controls.draw(name, into=column, heads=list(options), of=of, order=order)[name]]


def head_chart(column: Any, title: str, spec: lab.Spec, key: str, field: str, alt: str) -> None:
    def pick() -> None:
        if point := lab.pressed_point(key, "head"):
            st.session_state[field] = point["name"]

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
        st.session_state[f"{field}:picked"] = name(shown)
        st.rerun()


# Roles.


@lab.fragment
@lab.input_errors()
def draw_roles(choice: lab.ModelChoice) -> None:
    kind, (role_column, more_column) = kind_and_columns(choice, 2)
    more = more_column.popover("More", help="The head, your own sentences, and where it is shown")
    sentences: tuple[str, ...] = ()
    if choice.pretrained is not None and choice.pretrained.reads_text:
        sentences, trouble = read_sentences(Controls.draw("own", into=more).own)
        with more, st.container(height=180):
            st.caption("The example sentences:  \n" + "  \n".join(SENTENCES))
        if trouble:
            st.warning(trouble)
    with st.spinner("Measuring every head, once per model"), st.skeleton(height=240):
        inputs = lab.inputs_of(choice.ref, choice.inputs, kind, sentences)
        scores = lab.role_scores_of(choice.ref, choice.inputs, kind, sentences)
    model = f"{choice.ref} {kind}"
    # The head that was picked on another page since, and its role where it has one
    state, elsewhere = (
        st.session_state,
        lab.current_head_of(choice.ref, kind, scores.score.shape[1:]),
    )  # type: ignore[arg-type]
    if elsewhere in scores.heads and state.get(KNOWN) != (choice.ref, elsewhere):
        own = ROLES[scores.head_roles.get(elsewhere, default_role(scores))]
        state[KNOWN] = choice.ref, elsewhere
        state[ROLE], state[HEAD] = own.key, scores.name(elsewhere)
        # A widget writes into the link what a person sets in it, not what it was set to here.
        st.query_params[ROLE], st.query_params[HEAD] = own.name, scores.name(elsewhere)
        for field in (ROLE, HEAD):
            state.pop(f"{field}:of", None)
    role = [role.key for role in ROLES].index(
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
    before_of, before = state.get(SHOWN, (None, head))
    state[SHOWN] = of, head
    if before_of == of and before != head:
        lab.choose_head(choice.ref, kind, head)
        state[KNOWN] = choice.ref, head
    left, right = st.columns(2, gap="medium")
    head_chart(
        left,
        "The role of every head",
        lab.role_grid(scores, head, lab.theme()),
        "head_roles:roles",
        HEAD,
        "Layers by heads, each in its role's colour",
    )
    head_chart(
        right,
        f"{ROLES[role].name}, score from 0 to 1",
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
        HEAD,
        f"Layers by heads, each with its score as {ROLES[role].name.lower()}",
    )
    lab.fact(role_fact(scores, head, role, inputs))
    with st.container(
        horizontal=True, horizontal_alignment="center", vertical_alignment="center", gap="medium"
    ):
        for part in role_equation(scores, head, role):
            st.latex(part, width="content")
    shown, example = _one_head(choice, inputs, scores, role, head, more)
    lab.add_script(
        partial(roles_script, choice, inputs, scores, sentences, role, head, shown, example)
    )
    st.caption(
        lab.plain(
            role_caption(
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
                [f"**{each.name}** — {lab.plain(each.meaning)}. {each.source}" for each in ROLES]
            ),
            ROLES[role].targets or share_used,
            weight_on_targets,
        ),
        "head_roles:source",
    )


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


def _one_head(
    choice: lab.ModelChoice,
    inputs: RoleInputs,
    scores: RoleScores,
    role: int,
    head: Head,
    more: Any,
) -> tuple[Reading, Example | None]:
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
            example = clearest_example(readings, kind, ROLES[role], *head)
        if example is not None:
            shown, given = readings[example.reading], inputs.givens[example.reading]
        else:
            example = clearest_example([shown], kind, ROLES[role], *head)
        # Draw the head's map, over the picture if the model read one
        line, trace = shown.lines(kind)[0], shown.trace.of(kind)
        patches = lab.Patches.of(given.picture, line)
        head_map(
            trace,
            head,
            HEAD,
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
        lab.fact(text_fact(shown, kind, example, role, noun))
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
                _chance(scores, index, best),
                example_of(*examples[index], inputs, kind, index) if index in examples else "–",
            ]
            for index, each in enumerate(ROLES)
        ],
        caption="The head with the most of each role",
        left=(0, 5),
        marks=[lab.swatch(index) for index in range(len(ROLES))],
    )
    csv_button("All scores, CSV", "head-roles.csv", lambda: roles_csv(scores))
    return shown, example


def csv_button(label: str, name: str, data: Callable[[], bytes]) -> None:
    st.download_button(label, data, name, "text/csv", icon=":material/download:", on_click="ignore")


def rows_of(scores: RoleScores, index: int, inputs: RoleInputs) -> str:
    count = len(inputs.givens)
    noun = re.sub("(sentence|line)s", r"\1", inputs.what) if count == 1 else inputs.what
    return f"{scores.rows[index]:,} rows of {'the' if noun == 'input above' else count} {noun}"


def role_fact(scores: RoleScores, head: Head, index: int, inputs: RoleInputs) -> str:
    role, score = ROLES[index], scores.score[index][head]
    chance, measured = (
        lab.number(scores.chance[index][head]),
        f"over {rows_of(scores, index, inputs)}",
    )
    line = (
        f":primary[**{scores.name(head)}**] puts **{lab.number(score)}** of its weight on **{role.attends_to}**, "
        f"{measured}; with the keys shuffled, the same weights would put {chance} there."
    )
    if role.targets is None:
        line = (
            f":primary[**{scores.name(head)}**] uses **{lab.number(score)}** of the keys that it may attend to, "
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


def _chance(scores: RoleScores, index: int, head: Head) -> str:
    chance, std = scores.chance[index][head], scores.std[index][head]
    return lab.written(f"{lab.number(chance)} ± {lab.number(std)}", {"": chance, ", std": std})


def text_fact(reading: Reading, kind: Kind, example: Example | None, index: int, noun: str) -> str:
    role, tokens = ROLES[index], reading.lines(kind)[0].tokens
    if example is None:
        return f"No token of this {noun} can show the role {role.name.lower()}."
    start = f"In this {noun}, :primary[**{lab.plain(tokens[example.query])}**]"
    if role.targets is None:
        return f"{start} has the broadest row: it uses {lab.number(example.value)} of its keys."
    more = f" and {example.expected - 1} more" if example.expected > 1 else ""
    return (
        f"{start} shows the role most clearly: it puts {lab.number(example.value)} on "
        f"**{lab.plain(tokens[example.key])}**{more}; uniform attention would put {lab.number(example.uniform)}."
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
        rf"s = \frac{{1}}{{|R|}}\sum_{{i \in R}}{row} = {lab.number(score)}",
        rf"s\ {above}\ c + 3\sigma = {lab.number(chance)} + 3\cdot{lab.number(spread)}",
        rf"\frac{{s - c}}{{1 - c}} = {lab.number(share)}\ {enough}\ {lab.number(MIN_SHARE)}",
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
            f"deviation of rows of random scores. A head with {lab.number(UNIFORM)} or more is nearly even, as before "
            f"training."
        )
    left_out = f" {cut} of your sentences {'is' if cut == 1 else 'are'} left out: the model knows too few of the words."
    return (
        f"{model}, {ATTENTION[scores.kind]}, measured on {on}. R are the {scores.rows[index]:,} {measured} "
        f"The role of a head is the one in which it is furthest above chance, by at least 3 σ and "
        f"{lab.number(MIN_SHARE)} of the way from chance to 1. First token and Broad count only where no other role does."
        f"{left_out if cut else ''}"
    )


def example_of(
    reading: Reading, example: Example, inputs: RoleInputs, kind: Kind, index: int
) -> str:
    tokens, given = reading.lines(kind)[0].tokens, inputs.givens[example.reading]
    line = f"{tokens[example.query]} → {tokens[example.key]} {lab.number(example.value)}"
    if ROLES[index].targets is None:
        line = f"{tokens[example.query]} uses {lab.number(example.value)} of its keys"
    if given.picture is not None:
        return f"{line}, in picture {example.reading + 1}"
    text = lab.cut(given.text, 38)
    return f"{line}, in “{text}”" if text else line


def roles_csv(scores: RoleScores) -> bytes:
    return lab.picture_files.csv_file(
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
    model, known = lab.load_model(choice.ref), lab.study_of(known_sentences, choice.ref, reference)

    about = choice.ref, reference, kind
    read = lab.measure_with_progress(
        READ,
        about,
        range(len(known)),
        lambda index: reduce_parse(model, known[index], kind),
        "sentences",
        lab.UNASKED,
    )
    result = lab.shared(_score_syntax, *about, len(read))
    if max(result.counts.values(), default=0) < MIN_QUERIES:
        if len(read) == len(known):
            counts = [f"{one.name(back)} {count}" for (one, back), count in result.counts.items()]
            st.info(
                f"No relation has {MIN_QUERIES} instances in these sentences, so none is measured. Read: "
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
        WORD_HEAD,
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
        f"{_offset(score.best_offset)}, is right in {lab.percent(offset)}. Chosen on one half of the sentences and "
        f"measured on the other, the best head reaches **{lab.percent(best)}**, with a 95 % interval from "
        f"{lab.percent(low)} to {lab.percent(high)}."
    )
    st.latex(
        r"a_{uw} = \frac{1}{|u|}\sum_{i \in u}\ \sum_{j \in w} a_{ij} \qquad "
        r"\frac{1}{|Q|}\sum_{u \in Q} \left[\arg\max_{w \neq u} a_{uw} \in T_u\right] = "
        rf"\frac{{{int(score.hits[head].sum())}}}{{{score.count}}} = {lab.number(own)}",
        width="content",
    )
    sentence, query, trace = _sentence(choice, result, score, head)
    lab.add_script(
        partial(syntax_script, choice, reference, result, score, head, sentence, query, trace)
    )
    _syntax_table(choice, reference, result, score)


def _syntax_table(
    choice: lab.ModelChoice, reference: str, result: SyntaxResult, score: RelationScore
) -> None:
    lab.table(
        "relation|instances|best head|accuracy|95 % interval|best offset|its accuracy".split("|"),
        syntax_rows(result),
        caption="The best head of each relation, and the best fixed offset",
        left=(0, 2),
        markers=False,
    )
    csv_button("All accuracies, CSV", "syntactic-heads.csv", lambda: syntax_csv(result))
    lab.caption(
        lab.plain(syntax_caption(result, score, choice.reading.trace.source, not reference))
    )
    lab.details(
        "Papers and source",
        partial(
            lab.sources,
            (
                "Attention between words, both directions and the best fixed offset as the baseline: "
                f"{CLARK}, section 4. Relations: "
                "[Universal Dependencies](https://universaldependencies.org/u/dep/)."
            ),
            Relation.targets,
            word_weights,
            score_relation,
        ),
        "head_roles:syntax-source",
    )


def _score_syntax(ref: lab.ModelRef, reference: str, kind: Kind, count: int) -> SyntaxResult:
    return score_syntax(
        lab.load_model(ref),
        [one for _, one in sorted(lab.measurements(READ, (ref, reference, kind)).items())[:count]],
        min(MAX_PARSES, len(lab.shared(parses, reference)))
        - len(lab.study_of(known_sentences, ref, reference)),
    )


def _data_field(column: Any) -> str:
    """The sentences of one's own, as text or a reference; "" for the lab's, also where they cannot be read."""
    lab.link_data(FILE, "")
    with column.popover("Sentences", icon=":material/account_tree:", width="stretch"):
        data = lab.data_widget(CONLLU, FILE)
        st.caption(
            "Without sentences of yours, the page measures 179 English ones, annotated by hand for it. "
            "docs/conllu.md in the repository describes the format."
        )
    try:
        if (count := len(lab.shared(parses, data))) > MAX_PARSES:
            st.caption(f"Of its {count:,} sentences the first {MAX_PARSES} are measured.")
    except ConfigError as error:
        st.warning(lab.plain(str(error)))
        return ""
    return data


def _sentence(
    choice: lab.ModelChoice, result: SyntaxResult, score: RelationScore, head: Head
) -> tuple[int, int, AttentionTrace]:
    """Draw a sentence with the weights from its queries, and its map of words; returns it, its query and the maps.

    The sentences in which the head is wrong come first.
    """
    queries = queries_by_sentence(result, score, head)
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
    trace = word_trace(
        lab.reading_of(choice.ref, ModelInputs(parse.text, target=target)),
        parse,
        tokens,
        result.readings.kind,
    )
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
        WORD_HEAD,
        result.readings.name,
        "word_pin",
        (choice.ref, sentence),
        key="head_roles:words",
        query=query,
        fact=f"Head {name} on {len(parse.words)} words",
        caption="Between words; what goes to special tokens is missing.",
    )
    return sentence, query, trace


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
            lab.percent((best := score.held_out_share)[0]),
            lab.written(
                f"{lab.percent(best[1])} to {lab.percent(best[2])}",
                {", low, %": 100 * best[1], ", high, %": 100 * best[2]},
            ),
            _offset(score.best_offset),
            lab.percent(float(score.offset_held_out.mean())),
        ]
        for name, score in zip(result.names, result.scores, strict=True)
    ]


def syntax_csv(result: SyntaxResult) -> bytes:
    return lab.picture_files.csv_file(
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


def _offset(offset: int) -> str:
    side = "after" if offset > 0 else "before"
    return f"just {side}" if abs(offset) == 1 else f"{abs(offset)} {side}"


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
    model, lines = lab.load_model(ref), lab.study_of(random_lines, ref)
    read = lab.measure_with_progress(
        LINES,
        (ref, kind),
        range(len(lines)),
        lambda index: line_scores(read_line(model, kind, lines[index]), kind),
        "lines of random tokens",
        lab.UNASKED,
    )
    if len(read) < 2:  # of one there is no interval
        return
    scores = join_lines(
        kind, lab.study_of(read_line, ref, kind, tuple(lines[0])), list(read.values())
    )
    of = f"{ref} {kind}"
    drawn = Controls.draw("test", into=test_column, scores=scores, of=of)
    test = TEST_NAMES.index(drawn.test)
    if is_successor := drawn.test == SUCCESSOR:
        with st.spinner("Reading the weights of every head, once per model"):
            ranks = lab.study_of(score_successors, ref, kind, given=(head_weights,))
    ranked = ranks.ranked() if is_successor else scores.ranked(test)
    head = head_field(
        "test_head", {scores.name(head): head for head in ranked}, (of, test), head_column, "score"
    )
    if is_successor:
        lab.add_script(
            partial(successor_script, choice, kind, ranks, head, _successor(choice, ranks, head))
        )
    else:
        _repeats(choice, scores, test, head)
        lab.add_script(partial(repeats_script, choice, scores, test, head))
    lab.table(
        ("test", "best head", "score", "uniform", "heads above twice uniform", "weight on"),
        repeat_rows(scores),
        caption="The best head of each test",
        left=(0, 1, 5),
        markers=False,
    )
    csv_button("All scores, CSV", "standard-tests.csv", lambda: repeats_csv(scores))
    drawn_of = " A cell is faint where its interval reaches twice uniform attention. The map shows the first line."
    lab.caption(
        lab.plain(
            f"{choice.reading.trace.source}, {ATTENTION[scores.kind]}, {scores.lines} lines of "
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
                        for one in TESTS
                    ),
                    f"**Successor** — the successor of a number, a day, a month or a letter. {GOULD}",
                ]
            ),
            score_successors,
            RepeatTest.cells,
            score_repeats,
        ),
        "head_roles:tests-source",
    )


def first_query(scores: RepeatScores, test: int) -> int:
    queries, _ = TESTS[test].cells(scores.example.lines(scores.kind)[0].special)
    return int(queries[0])


def _repeats(choice: lab.ModelChoice, scores: RepeatScores, test: int, head: Head) -> None:
    left, right = st.columns([1, 1.1], gap="medium")
    head_chart(
        left,
        f"{TESTS[test].name}, score from 0 to 1",
        lab.share_grid(
            scores,
            scores.score[test],
            {each: _figure(scores, test, each) for each in sorted(scores.ranked(test))},
            ~scores.passes[test],
            head,
            lab.theme(),
        ),
        "head_roles:tests",
        TEST_HEAD,
        f"Layers by heads, each with its score in the test {TESTS[test].name}",
    )
    with right:
        head_map(
            scores.example.trace.of(scores.kind),
            head,
            TEST_HEAD,
            scores.name,
            "test_pin",
            (choice.ref, scores.kind),
            key="head_roles:test-map",
            show="matrix",
            query=first_query(scores, test),
            fact=f"Head {scores.name(head)} on {scores.length} random tokens, twice",
        )
    best, others = scores.ranked(test)[0], ""
    if not scores.passes[test][best]:
        others = " No head of this model passes the test."
    elif best != head:
        others = f" {scores.name(best)} has the highest score, {_figure(scores, test, best)}."
    lab.fact(
        f"On random tokens that repeat, :primary[**{scores.name(head)}**] puts **{_figure(scores, test, head)}** "
        f"of its weight on **{TESTS[test].attends_to}**; uniform attention puts "
        f"{lab.number(float(scores.uniform[test]))} there.{others}"
    )
    # The score with the head's number; n random tokens stand at 1 … n and again at n + 1 … 2n
    offset, value = TESTS[test].offset, lab.number(float(scores.score[test][head]))
    mean = r"\frac{1}{2n - 1}\sum_{i=2}^{2n} a_{i,\,i-1}"
    if offset is not None:
        key = "i + 1" if offset else "i"
        mean = rf"\frac{{1}}{{n}}\sum_{{i=1}}^{{n}} a_{{n+i,\,{key}}}"
    st.latex(rf"s = {mean} = {value} \qquad n = {scores.length}", width="content")


def _successor(choice: lab.ModelChoice, scores: SuccessorScores, head: Head) -> int:
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
        TEST_HEAD,
        "Layers by heads, each with the share of items whose successor it ranks highest",
    )
    with right:
        names = [order.name for order in scores.orders]
        index = names.index(
            Controls.draw("order", into=lab.HERE, orders=names, of=str(choice.ref)).order
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
            TEST_HEAD,
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


def repeat_rows(scores: RepeatScores) -> list[list[str]]:
    return [
        [
            test.name,
            scores.name(best := scores.ranked(index)[0]),
            _figure(scores, index, best),
            lab.number(scores.uniform[index]),
            str(scores.passes.sum((1, 2))[index]),
            test.attends_to,
        ]
        for index, test in enumerate(TESTS)
    ]


def repeats_csv(scores: RepeatScores) -> bytes:
    return lab.picture_files.csv_file(
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


def _figure(scores: RepeatScores, test: int, head: Head) -> str:
    score, margin = float(scores.score[test][head]), float(scores.margin[test][head])
    return lab.written(f"{lab.number(score)} ± {lab.number(margin)}", {"": score, " ±": margin})


# The views as Python.


def roles_script(
    choice: lab.ModelChoice,
    inputs: RoleInputs,
    scores: RoleScores,
    sentences: tuple[str, ...],
    role: int,
    head: Head,
    shown: Reading,
    example: Example | None,
) -> lab.Script:
    kind, here = scores.kind, shown is choice.reading
    own = choice.pretrained is None or inputs.givens == (choice.inputs,)
    texts = f"sentences = {lab.source_of(list(sentences))}\n" if sentences else ""
    read = f"""{texts}texts = role_inputs(model, {"sentences" if sentences else "()"}, {kind!r})  # {inputs.what}
readings = read_all(model, texts, {kind!r})"""
    index = 0 if example is None else example.reading
    return lab.Script(
        (
            lab.model_cell(choice.ref, None if choice.pretrained is None else choice.inputs),
            lab.Cell(
                "The score of every head in nine roles over many inputs, with its level when the keys are shuffled.",
                f"""
from core.interpret.roles import ROLES, {"" if own else "read_all, role_inputs, "}score_roles

{"readings = [reading]" if own else read}
scores = score_roles(readings, {kind!r})  # (roles, layers, heads)
role = [one.key for one in ROLES].index({ROLES[role].key!r})
print(ROLES[role].name, "most in", scores.name(scores.best(role)))
for head, one in scores.head_roles.items():
    print(scores.name(head), ROLES[one].name)
""",
                GRID_CODE.format(values="scores.score[role]"),
                "head_roles:scores",
            ),
            lab.Cell(
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
            ),
        ),
        {
            **{f"scores.{name}": getattr(scores, name) for name in ("score", "chance", "std")},
            "scores.score[role]": scores.score[role],
            "[[*head, one] for head, one in scores.head_roles.items()]": np.array(
                [[*key, value] for key, value in scores.head_roles.items()]
            ),
            "weights": shown.trace.of(kind).head(*head),
        },
    )


def syntax_script(
    choice: lab.ModelChoice,
    reference: str,
    result: SyntaxResult,
    score: RelationScore,
    head: Head,
    sentence: int,
    query: int,
    trace: AttentionTrace,
) -> lab.Script:
    kind = result.readings.kind
    return lab.Script(
        (
            lab.model_cell(choice.ref),
            lab.Cell(
                "Every head on parsed sentences: how often its top word is the one that a relation asks for.",
                f"""
from core.interpret.head_tests import parses, read_parse, read_parses, relations_in, score_relation, word_trace

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
            ),
            lab.Cell(
                "One head on one sentence, between words.",
                f"""
sentence = readings.sentences[{sentence}]
trace = word_trace(read_parse(model, sentence.parse), sentence.parse, sentence.tokens, {kind!r})
weights = trace.head({head[0]}, {head[1]})  # (words, words)
""",
                map_code(head, query),
                "head_roles:words",
            ),
        ),
        {
            "accuracy": score.accuracy,
            "score.offset_hits.mean(-1)": score.offset_hits.mean(-1),
            "score.best": np.array(score.best),
            "score.best_offset": np.array(score.best_offset),
            "weights": trace.head(*head),
        },
    )


def repeats_script(
    choice: lab.ModelChoice, scores: RepeatScores, test: int, head: Head
) -> lab.Script:
    return lab.Script(
        (
            lab.model_cell(choice.ref),
            lab.Cell(
                "Every head on random tokens that repeat: its weight on the keys of three tests.",
                f"""
from core.interpret.head_tests import TESTS, score_repeats

scores = score_repeats(model, {scores.kind!r})  # (tests, layers, heads), over lines of {scores.length} tokens, twice
test = scores.score[{test}]  # {TESTS[test].name}
print("best head", scores.name(scores.ranked({test})[0]), test.max())
trace = scores.example.trace.of({scores.kind!r})
weights = trace.head({head[0]}, {head[1]})  # (T, S) of the first line
""",
                map_code(head, first_query(scores, test)),
                "head_roles:test-map",
            ),
        ),
        {
            "scores.score": scores.score,
            "weights": scores.example.trace.of(scores.kind).head(*head),
        },
    )


def successor_script(
    choice: lab.ModelChoice, kind: Kind, scores: SuccessorScores, head: Head, order: int
) -> lab.Script:
    return lab.Script(
        (
            lab.model_cell(choice.ref),
            lab.Cell(
                "How often each head's matrices raise the successor of a number, a day or a letter most.",
                f"""
import numpy as np

from core.interpret.head_tests import score_successors

scores = score_successors(model, kind={kind!r})
print("best head", scores.name(scores.ranked()[0]), scores.score.max(), "of", scores.count, "items")
order = scores.orders[{order}]
logits = np.nan_to_num(scores.logits[{order}][{head[0]}, {head[1]}])  # (items, items): from an item, added to each
""",
                """
from dashboard.show import show_maps

show_maps({order.name: logits}, order.items, order.items)
""",
                "head_roles:order-map",
            ),
        ),
        {"scores.score": scores.score, "logits": np.nan_to_num(scores.logits[order][head])},
    )


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
