"""CoNLL-U: the project's own file, what is read of one, and what is refused by line."""

import re
from collections import Counter

import pytest

from core.entries import ConfigError
from core.interpret.syntax import OWN, RELATIONS, own_parses, parse_conllu
from tests.cases import each


def rows(*lines: str) -> str:
    """Lines of "ID FORM UPOS HEAD DEPREL MISC" as CoNLL-U."""
    out = []
    for line in lines:
        number, form, upos, head, relation, misc = line.split()
        out.append("\t".join([number, form, "_", upos, "_", "_", head, relation, "_", misc]))
    return "\n".join(out) + "\n"


DOG = ("1 Dogs NOUN 2 nsubj _", "2 bark VERB 0 root SpaceAfter=No", "3 . PUNCT 2 punct _")


def test_the_own_sentences_have_enough_of_every_relation_and_say_what_their_headers_say():
    parses = own_parses()
    headers = re.findall(r"^# text = (.*)$", OWN.read_text("utf-8"), re.MULTILINE)
    assert [parse.text for parse in parses] == headers and len(set(headers)) == len(headers) == 179
    counts = {
        relation.key: sum(len(relation.pairs(parse)) for parse in parses) for relation in RELATIONS
    }
    assert counts == {
        "subject": 180,
        "object": 171,
        "determiner": 337,
        "adjective": 206,
        "antecedent": 74,
        "passive": 45,
    }


def test_own_pairs_are_of_the_parts_of_speech_that_their_relation_joins():
    ends = {
        "subject": ("VERB", {"NOUN", "PROPN", "PRON"}),
        "object": ("VERB", {"NOUN", "PROPN", "PRON"}),
        "determiner": ("NOUN", {"DET"}),
        "adjective": ("ADJ", {"NOUN"}),
        "passive": ("VERB", {"AUX"}),
        "antecedent": ("PRON", {"NOUN", "PROPN"}),
    }
    wrong = [
        (parse.text, parse.words[source].form, parse.words[target].form)
        for parse in own_parses()
        for relation in RELATIONS
        for source, target in relation.pairs(parse)
        if parse.words[source].upos != ends[relation.key][0]
        or parse.words[target].upos not in ends[relation.key][1]
    ]
    assert not wrong
    distances = Counter(
        target - source for parse in own_parses() for source, target in RELATIONS[3].pairs(parse)
    )
    assert distances.most_common(1)[0][1] < 0.7 * sum(distances.values())  # no offset answers it


def test_a_sentence_gives_its_pairs_in_both_directions():
    [parse] = [parse for parse in own_parses() if parse.text.startswith("A long, narrow staircase")]
    adjective, verb_object = RELATIONS[3], RELATIONS[1]
    forms = [word.form for word in parse.words]
    assert [(forms[a], forms[b]) for a, b in adjective.pairs(parse)] == [
        ("long", "staircase"),
        ("narrow", "staircase"),
        ("damp", "cellar"),
    ]
    assert adjective.targets(parse, reverse=True) == {
        forms.index("staircase"): {1, 3},
        forms.index("cellar"): {11},
    }
    assert [(forms[a], forms[b]) for a, b in verb_object.pairs(parse)] == [("led", "visitors")]
    assert (adjective.name(), adjective.name(reverse=True)) == (
        "Adjective → noun",
        "Noun → adjective",
    )


def test_contractions_are_divided_where_they_add_up_and_empty_nodes_are_skipped():
    text = "# a comment\n" + rows(
        "1-2 don't _ _ _ _",
        "1 do AUX 3 aux _",
        "2 n't PART 3 advmod _",
        "3 go VERB 0 root _",
        "3.1 x VERB _ _ _",
        "4-5 au _ _ _ SpaceAfter=No",
        "4 à ADP 5 case _",
        "5 le DET 3 obl _",
    )
    [parse] = parse_conllu(text)
    assert parse.text == "don't go au" and parse.line == 2
    assert [word.span for word in parse.words] == [(0, 2), (2, 5), (6, 8), None, None]
    assert parse_conllu("\ufeff" + rows(*DOG).replace("\n", "\r\n"))[0].text == "Dogs bark."


@each("lines, error", [
    (("1 Dogs NOUN 2 nsubj _", "3 bark VERB 0 root _"), "Line 2: its ID is '3'; the next word of this sentence is 2"),
    (("1 Dogs NOUN 7 nsubj _", "2 bark VERB 0 root _"), "Line 1: its HEAD is 7, and the sentence has 2 words"),
    (("1 Dogs NOUN x nsubj _", "2 bark VERB 0 root _"), "Line 1: its HEAD is 'x'; expected a whole number"),
    (("1 Dogs NOUN 2 nsubj _", "2 bark VERB 1 root _"), "line 1 needs one root (HEAD 0): none of its words"),
    (("1 Dogs NOUN 0 root _", "2 bark VERB 0 root _"), "needs one root (HEAD 0): lines 1, 2 are all roots"),
    ((*DOG[:2], "3 x X 4 dep _", "4 y X 3 dep _"), "Line 3: 'x' does not lead to the root"),
    (("1 She PRON 2 nsubj Antecedent=1", "2 left VERB 0 root _"), "Line 1: the antecedent of 'She' must be another"),
    (("1 She PRON 2 nsubj Antecedent=0", "2 left VERB 0 root _"), "Line 1: the antecedent of 'She' must be another"),
    (("1-9 Dogs _ _ _ _", *DOG), "Line 1: the range ends at word 9, and there are 3"),
])  # fmt: skip
def test_what_is_no_tree_is_refused_by_its_line(lines, error):
    with pytest.raises(ConfigError, match=re.escape(error)):
        parse_conllu(rows(*lines))


def test_what_is_no_conllu_is_refused():
    with pytest.raises(ConfigError, match="Line 2 has 1 columns; CoNLL-U has ten"):
        parse_conllu("# x\nDogs bark.")
    with pytest.raises(ConfigError, match="no sentence in this file"):
        parse_conllu("# only a comment\n\n")
    with pytest.raises(ConfigError, match="more than 200 words"):
        parse_conllu(rows("1 a X 0 root _", *(f"{n} a X 1 dep _" for n in range(2, 203))))
    with pytest.raises(ConfigError, match="at most 2,000,000"):
        parse_conllu("#" * 2_000_001)
