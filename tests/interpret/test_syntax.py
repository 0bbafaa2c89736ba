"""Syntax: CoNLL-U and what is refused of it, the project's own sentences, and the heads that follow their relations."""

import re
from collections import Counter

import numpy as np
import pytest
import torch

from core.entries import ConfigError
from core.interpret.syntax import (
    OWN,
    RELATIONS,
    ParsedReading,
    SyntaxReadings,
    own_parses,
    parse_conllu,
    read_parse,
    read_parses,
    score_relation,
    wilson_interval,
    word_tokens,
    word_trace,
    word_weights,
)
from core.interpret.trace import Kind
from core.pretrained import PretrainedError, load_lab_model, load_minilm
from tests.cases import each
from tests.tiny_models import tiny


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
    long = rows("1 a X 0 root _", *(f"{n} a X 1 dep _" for n in range(2, 203)))
    for text, error in (
        ("# x\nDogs bark.", "Line 2 has 1 columns; CoNLL-U has ten"),
        ("# only a comment\n\n", "no sentence in this file"),
        (long, "more than 200 words"),
        ("#" * 2_000_001, "at most 2,000,000"),
    ):
        with pytest.raises(ConfigError, match=error):
            parse_conllu(text)


CROSSES = rows(
    "1 The DET 2 det _",
    "2 animal NOUN 3 nsubj _",
    "3 saw VERB 0 root _",
    "4 a DET 6 det _",
    "5 green ADJ 6 amod _",
    "6 street NOUN 3 obj SpaceAfter=No",
    "7 , PUNCT 9 punct _",
    "8 it PRON 9 nsubj Antecedent=2",
    "9 waited VERB 3 conj SpaceAfter=No",
    "10 . PUNCT 3 punct _",
)


@pytest.fixture(scope="module")
def minilm():
    return load_minilm()


def test_a_word_s_weight_is_the_sum_over_key_tokens_and_the_mean_over_query_tokens():
    weights = np.array(
        [[[0.1, 0.2, 0.3, 0.4], [0.5, 0.1, 0.2, 0.2], [0.3, 0.3, 0.2, 0.2], [0.4, 0.2, 0.2, 0.2]]]
    )
    words = word_weights(weights, [(1, 2), (3,), ()])  # token 0 is special
    assert words[0] == pytest.approx(
        np.array([[(0.1 + 0.2 + 0.3 + 0.2) / 2, 0.2, 0], [0.4, 0.2, 0], [0, 0, 0]])
    )


@each(
    "family, kind",
    [
        ("bert", "self"),
        ("llama", "causal"),
        ("mistral", "causal"),
        ("t5", "self"),
        ("t5", "causal"),
    ],
)
def test_the_tokens_of_a_word_spell_it(family, kind):
    pretrained, [parse] = tiny(family), parse_conllu(CROSSES)
    reading = read_parse(pretrained, parse)
    line, words = reading.lines(kind)[0], word_tokens(pretrained, parse, reading, kind)
    spelled = [
        "".join(line.tokens[index].removeprefix("##").strip(" ·▁") for index in word)
        for word in words
    ]
    assert [
        text
        for text, word in zip(spelled, parse.words, strict=True)
        if text not in (word.form.lower(), word.form)
    ] == []
    assert word_trace(reading, parse, words, kind).maps[0].weights.shape[1:] == (10, 10)
    assert len(read_parses(pretrained, [parse], kind).sentences) == 1


def test_the_top_words_are_those_of_the_plain_model(minilm):
    from transformers import AutoModel

    parse, folder = own_parses()[0], minilm.model.config._name_or_path
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    encoding = minilm.tokenizer(parse.text, return_tensors="pt")
    with torch.no_grad():
        maps = [one[0] for one in model(**encoding, output_attentions=True).attentions]
    numbers = encoding.word_ids(0)  # one word of the tokenizer is one of the file in this sentence
    assert max(number for number in numbers if number is not None) == len(parse) - 1
    member = torch.tensor(
        [[float(number == word) for number in numbers] for word in range(len(parse))]
    )
    [top] = [each.top for each in read_parses(minilm, [parse]).sentences]
    for layer, weights in enumerate(maps):
        words = (member @ weights @ member.T) * (1 - torch.eye(len(parse)))
        assert (top[layer] == words.argmax(-1).numpy()).all()


def made(tops: list[list[int]], kind: Kind = "self", count: int = 12) -> SyntaxReadings:
    """Sentences "The animal saw … ." whose heads have these top words from each word, by head and word."""
    [parse] = parse_conllu(CROSSES)
    tokens = tuple((index,) for index in range(len(parse)))
    one = ParsedReading(parse, tokens, np.asarray(tops, np.int16)[None])
    return SyntaxReadings(kind, (one,) * count, 0, (4,), (len(tops),))


def test_a_head_that_follows_a_relation_is_better_than_any_offset():
    nothing = [-1] * 10
    of_noun = [*nothing[:4], 5, *nothing[5:]]  # "green" to "street"
    readings = made([nothing, of_noun])
    score = score_relation(readings, RELATIONS[3])
    assert (
        score.count == 12
        and score.accuracy.tolist() == [[0, 1]]
        and readings.name(score.best) == "L4·H1"
    )
    assert score.best_offset == 1 and score.offset_hits.mean() == 1
    both = score_relation(made([[*nothing[:2], 1, *nothing[3:8], 7, 0], nothing]), RELATIONS[0])
    assert both.count == 24 and both.accuracy.tolist() == [[1, 0]]  # saw → animal, waited → it


def test_the_head_is_picked_on_one_half_of_the_sentences_and_measured_on_the_other():
    readings = made([[-1] * 10, [-1] * 10])
    sentences = []
    for index, one in enumerate(
        readings.sentences
    ):  # head 0 is right in even sentences, head 1 in odd ones
        top = one.top.copy()
        top[0, index % 2, 4] = 5
        sentences.append(ParsedReading(one.parse, one.tokens, top))
    score = score_relation(SyntaxReadings("self", tuple(sentences), 0, (0,), (2,)), RELATIONS[3])
    heads, hits = score.held_out
    assert score.accuracy.max() == 0.5 and heads == ((0, 0), (0, 1)) and hits.sum() == 0
    assert score.offset_held_out.all()


def test_a_decoder_is_asked_only_for_words_before():
    assert (
        score_relation(made([[-1] * 10], "causal"), RELATIONS[3]) is None
    )  # nouns follow their adjectives
    score = score_relation(made([[-1] * 10], "causal"), RELATIONS[3], reverse=True)
    assert score.offsets.tolist() == [-1] and score.count == 12
    assert score_relation(made([[-1] * 10], count=9), RELATIONS[3]) is None  # fewer than ten


def test_the_interval_is_wilson_s():
    assert wilson_interval(8, 10) == pytest.approx(
        (0.490, 0.943), abs=1e-3
    )  # Brown et al. 2001, equation 4
    assert wilson_interval(0, 20)[0] == 0 and wilson_interval(20, 20) == pytest.approx(
        (0.839, 1), abs=1e-3
    )


def test_minilm_s_heads_follow_syntax_beyond_any_offset(minilm):
    readings, best = read_parses(minilm, own_parses()), {}
    assert (len(readings.sentences), readings.left_out) == (179, 0)
    for relation in RELATIONS:
        score = score_relation(readings, relation)
        best[relation.key] = (
            readings.name(score.best),
            round(float(score.held_out[1].mean()), 2),
            score.best_offset,
            round(float(score.offset_held_out.mean()), 2),
        )
    assert best == {
        "subject": ("L1·H9", 0.61, -1, 0.58),
        "object": ("L3·H1", 0.81, 2, 0.49),
        "determiner": ("L0·H5", 0.66, -1, 0.62),
        "adjective": ("L3·H1", 0.83, 1, 0.62),
        "antecedent": ("L3·H1", 0.76, -2, 0.35),
        "passive": ("L1·H6", 0.89, -1, 0.56),
    }


def test_models_without_english_or_without_text_say_so():
    english = "knows the words of 0 of the 179 sentences; syntax needs 10"
    for name, words in ("numbers", english), ("digits", "reads no text"):
        with pytest.raises(PretrainedError, match=words):
            read_parses(load_lab_model(name), own_parses())
