"""Syntactic heads: words from tokens, top words, accuracy in two halves, and MiniLM's figures."""

import numpy as np
import pytest
import torch

from core.interpret.syntax import (
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
from tests.roles.test_conllu import rows
from tests.tiny_models import tiny

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
    parse = own_parses()[0]
    from transformers import AutoModel

    model = AutoModel.from_pretrained(
        minilm.model.config._name_or_path, attn_implementation="eager"
    ).eval()
    encoding = minilm.tokenizer(parse.text, return_tensors="pt")
    with torch.no_grad():
        maps = [one[0] for one in model(**encoding, output_attentions=True).attentions]
    numbers = encoding.word_ids(0)  # one word of the tokenizer is one of the file in this sentence
    assert max(number for number in numbers if number is not None) == len(parse) - 1
    [top] = [each.top for each in read_parses(minilm, [parse]).sentences]
    for layer, head, query in np.ndindex(top.shape):
        tokens = [index for index, number in enumerate(numbers) if number == query]
        to = [
            sum(
                float(maps[layer][head, i, j])
                for i in tokens
                for j, number in enumerate(numbers)
                if number == key
            )
            if key != query
            else -1
            for key in range(len(parse))
        ]
        assert top[layer, head, query] == int(np.argmax(to))


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
    readings = read_parses(minilm, own_parses())
    assert (len(readings.sentences), readings.left_out) == (179, 0)
    best = {}
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
    with pytest.raises(
        PretrainedError, match="knows the words of 0 of the 179 sentences; syntax needs 10"
    ):
        read_parses(load_lab_model("numbers"), own_parses())
    with pytest.raises(PretrainedError, match="reads no text"):
        read_parses(load_lab_model("digits"), own_parses())
