"""Generation against Hugging Face's own generate, with the same settings, over families with a cache and without."""

import copy
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
import transformers

from core.interpret.evidence import Question, ask
from core.models.decoding import Sampling, SearchSettings
from core.pretrained import ModelInputs, PretrainedError, encode, load_lab_model, load_minilm, read
from core.pretrained.answers import (
    MODEL_TASKS,
    answer,
    answer_of,
    display_names,
    mask_word,
    mean_state,
    most_similar,
    similarities,
    task_of,
    top_candidates,
)
from core.pretrained.generate import (
    decode_text,
    generate,
    generate_steps,
    prepare_generation,
    score_continuation,
    step_probabilities,
    token_names,
)
from core.pretrained.reading import end_tokens
from tests.cases import each
from tests.pretrained.test_attention_recorder import built
from tests.tiny_models import SENTENCE, asking, given, plain, tiny

LAST = (
    "gpt2",
    "gpt_neox",
    "bloom",
    "llama",
    "mistral",
    "qwen3",
    "gemma3",
    "gemma2",
    "gpt_oss",
    "deepseek_v3",
    "bert_decoder",
)
BOTH = ("t5", "bart", "marian", "whisper")
LONG = 9


def theirs(family, started, **more):
    """Hugging Face's generate on the same ids, by a copy of the model that was loaded without us."""
    # What makes ours and theirs the same search: a bound on the end of beams that is exact, and no search of its own.
    options = {
        "max_new_tokens": LONG,
        "early_stopping": "never",
        "num_beams": 1,
        "do_sample": False,
        "return_dict_in_generate": True,
        **more,
    }
    if options["num_beams"] == 1:
        del options["early_stopping"]
    if (
        family == "whisper"
    ):  # its own generate cuts the sound into pieces; this is the one that all others have
        return transformers.GenerationMixin.generate(plain(family), **started.batch, **options)
    if (
        family == "t5"
    ):  # its cache is made for as many layers as the encoder has, which here are fewer
        options["use_cache"] = False
    if started.batch is not None:
        return plain(family).generate(**started.batch, **options)
    ids = torch.tensor([started.read.ids])
    return plain(family).generate(ids, attention_mask=torch.ones_like(ids), **options)


def generated_tokens(family, started, row):
    """What generate said, up to the end mark."""
    tokens = row[len(started.prompt.prefix_tokens) :].tolist()
    stops = [place for place, token in enumerate(tokens) if token in end_tokens(tiny(family))]
    return tuple(tokens[: stops[0] + 1] if stops else tokens)


@each("repeats", [0, 2])
@each("family", LAST + BOTH)
def test_greedy_says_what_hugging_face_says(family, repeats):
    model = tiny(family)
    started = prepare_generation(model, given(family, target=None))
    hypothesis = generate(
        model, given(family, target=None), SearchSettings(no_repeat=repeats, longest=LONG)
    ).hypotheses[0]
    expected = theirs(family, started, no_repeat_ngram_size=repeats).sequences[0]
    assert hypothesis.tokens == generated_tokens(family, started, expected)


@each(("width", "alpha", "repeats"), [(2, 0.0, 0), (3, 1.0, 2), (5, 2.0, 0)])
@each("family", ["gpt2", "bloom", "mistral", "t5", "marian", "bart"])
def test_beams_are_those_of_hugging_face(family, width, alpha, repeats):
    """The same outputs in the same order, and the same scores to 1e-4."""
    model, what = tiny(family), given(family, target=None)
    started = prepare_generation(model, what)
    settings = SearchSettings(
        "beam", width=width, length_penalty=alpha, no_repeat=repeats, longest=LONG
    )
    hypotheses = generate(model, what, settings).hypotheses
    expected = theirs(
        family,
        started,
        num_beams=width,
        num_return_sequences=width,
        length_penalty=alpha,
        no_repeat_ngram_size=repeats,
        output_scores=True,
    )
    assert [one.tokens for one in hypotheses] == [
        generated_tokens(family, started, row) for row in expected.sequences
    ]
    torch.testing.assert_close(
        torch.tensor([one.score for one in hypotheses]),
        expected.sequences_scores,
        rtol=1e-4,
        atol=1e-4,
    )


@each("family", ["gpt2", "gemma3", "t5"])
def test_each_sampled_step_has_the_distribution_of_hugging_face(family):
    """Temperature, top-k, top-p and forbidden repeats together, at every step of what generate drew; to 1e-5."""
    model = tiny(family)
    started = prepare_generation(model, given(family, target=None))
    settings = SearchSettings(
        "sampling", temperature=1.4, top_k=17, top_p=0.8, no_repeat=2, longest=LONG
    )
    with torch.random.fork_rng():
        torch.manual_seed(3)
        expected = theirs(
            family,
            started,
            do_sample=True,
            temperature=1.4,
            top_k=17,
            top_p=0.8,
            no_repeat_ngram_size=2,
            output_scores=True,
        )
    tokens = generated_tokens(family, started, expected.sequences[0])
    path = score_continuation(model, started, tokens)
    assert len(tokens) > 2
    for step, scores in enumerate(expected.scores[: len(tokens)]):
        ours = step_probabilities(model, started, settings, tokens[:step], path.logits[step])
        torch.testing.assert_close(ours, scores[0].softmax(-1), rtol=1e-4, atol=1e-5)


def test_samples_come_as_often_as_they_are_likely():
    """Chi-square over the first token of 200 draws from five seeds, against the 0.999 quantile."""
    model, what = tiny("gpt2"), given("gpt2")
    started = prepare_generation(model, what)
    how = SearchSettings("sampling", temperature=0.7, top_k=6, samples=200, longest=1)
    counts: dict[int, int] = {}
    for seed in range(5):
        *_, tree = generate_steps(model, started, replace(how, seed=seed))
        for one in tree.hypotheses:
            counts[one.tokens[0]] = counts.get(one.tokens[0], 0) + one.samples
    likely = step_probabilities(
        model, started, how, (), score_continuation(model, started, [0]).logits[0]
    )
    assert set(counts) <= set(likely.nonzero()[:, 0].tolist()) and sum(counts.values()) == 1000
    expected = {token: 1000 * float(likely[token]) for token in likely.nonzero()[:, 0].tolist()}
    assert (
        sum((counts.get(token, 0) - n) ** 2 / n for token, n in expected.items()) < 20.5
    )  # five degrees of freedom


def test_what_a_model_forces_and_forbids_is_obeyed_as_hugging_face_obeys_it():
    model, own = tiny("marian"), plain("marian")
    started = prepare_generation(model, given("marian", target=None))
    free = (
        generate(model, given("marian", target=None), SearchSettings(longest=6))
        .hypotheses[0]
        .tokens
    )
    options = {
        "bad_words_ids": [[free[0]], [free[1]]],
        "forced_bos_token_id": 7,
        "forced_eos_token_id": 1,
        "begin_suppress_tokens": [9],
        "suppress_tokens": [11],
    }
    other = copy.deepcopy(model.model)
    for name, value in options.items():
        setattr(other.generation_config, name, value)
    model = replace(model, model=other)
    tokens = (
        generate(model, given("marian", target=None), SearchSettings(longest=6))
        .hypotheses[0]
        .tokens
    )
    expected = own.generate(
        **started.batch, max_new_tokens=6, do_sample=False, num_beams=1, **options
    )[0]
    assert tokens == generated_tokens("marian", started, expected) and tokens[0] == 7
    assert tokens[-1] == 1 and not {free[0], free[1]} & set(tokens[1:])


@each("family", ["gpt2", "mistral", "gemma3", "bert_decoder", "bloom", "marian", "t5", "whisper"])
def test_what_is_followed_is_what_was_said(family):
    """Every candidate's probability again, by one pass without a cache, and rows that see only what stood before."""
    model, what = tiny(family), given(family, target=None)
    started = prepare_generation(model, what)
    tree = generate(model, what, SearchSettings("beam", width=3, longest=7))
    best = tree.hypotheses[-1]
    path = score_continuation(model, started, best.tokens)
    logp = path.logits.log_softmax(-1)
    for step, place in enumerate(tree.path(best.leaf)):
        assert float(logp[step, tree.candidates[place].token]) == pytest.approx(
            tree.candidates[place].logp, abs=1e-4
        )
    assert path.trace.kinds == (("cross", "causal") if family in BOTH else ("causal",))
    for one in path.trace.maps:
        assert len(one.queries) == len(best.tokens)
        assert (one.weights * (1 - (one.mask[0] if one.mask is not None else 1)) == 0).all()
        assert one.weights.sum(-1) == pytest.approx(1, abs=1e-5)


def test_the_attention_of_a_new_token_is_the_models_own_row():
    """Against the rows of the whole text, read by the same weights without us, to 1e-6."""
    model, what = tiny("llama"), given("llama")
    started = prepare_generation(model, what)
    tokens = generate(model, what, SearchSettings(longest=5)).hypotheses[0].tokens
    path = score_continuation(model, started, tokens)
    ids = torch.tensor([[*started.read.ids, *tokens[:-1]]])
    with torch.no_grad():
        rows = plain("llama")(ids, output_attentions=True).attentions
    for layer, one in enumerate(path.trace.maps):
        torch.testing.assert_close(
            torch.from_numpy(one.weights),
            rows[layer][0, :, len(started.read) - 1 :],
            atol=1e-6,
            rtol=0,
        )


def test_the_same_seed_draws_the_same_beside_other_sessions_and_leaves_the_process_alone():
    settings = SearchSettings("sampling", samples=6, longest=12)

    def drawn(seed: int) -> list[tuple[int, ...]]:
        hypotheses = generate(tiny("gpt2"), given("gpt2"), replace(settings, seed=seed)).hypotheses
        return [one.tokens for one in hypotheses]

    state, alone = torch.get_rng_state(), drawn(11)
    with ThreadPoolExecutor(4) as sessions:
        first, other, again, third = sessions.map(drawn, (11, 12, 11, 13))
    assert first == again == alone and len({str(one) for one in (first, other, third)}) == 3
    assert torch.equal(state, torch.get_rng_state())


def test_a_search_can_be_left_after_any_step():
    model = tiny("gpt2")
    steps = generate_steps(
        model, prepare_generation(model, given("gpt2")), SearchSettings(longest=12)
    )
    for _ in range(3):
        tree = next(steps)
    assert max(one.step for one in tree.candidates) == 2 and not tree.hypotheses
    assert isinstance(steps, Generator)
    steps.close()
    assert model.lock.acquire(timeout=1)
    model.lock.release()


def test_closing_marks_are_taken_from_a_text_that_goes_on():
    started = prepare_generation(tiny("bert_decoder"), given("bert_decoder"))
    assert started.read.tokens[0] == "[CLS]" and started.read.tokens[-1] == "."


@each("strategy", ["greedy", "beam"])
def test_an_answer_can_be_begun_for_the_model(strategy):
    """Against generate with decoder_input_ids; the attention is that of the new tokens alone."""
    what = given("marian", target="nine small")
    started = prepare_generation(tiny("marian"), what)
    assert len(started.prompt.prefix_tokens) > 2 and started.room == 70 - len(
        started.prompt.prefix_tokens
    )
    hypothesis = generate(
        tiny("marian"), what, SearchSettings(strategy, width=3, longest=LONG)
    ).hypotheses[0]
    expected = theirs(
        "marian",
        started,
        decoder_input_ids=torch.tensor([started.prompt.prefix_tokens]),
        num_beams=3 if strategy == "beam" else 1,
    ).sequences[0]
    assert hypothesis.tokens == generated_tokens("marian", started, expected)
    path = score_continuation(tiny("marian"), started, hypothesis.tokens)
    shapes = {one.kind: one.weights.shape[1:] for one in path.trace.maps}
    assert shapes == {
        "cross": (len(hypothesis), len(started.read)),
        "causal": (len(hypothesis), len(hypothesis) + len(started.prompt.prefix_tokens) - 1),
    }


def test_an_encoder_decoder_reads_what_it_says_itself():
    """Also where encoder and decoder have different depths, which generate's own cache cannot hold."""
    model, what = tiny("t5"), given("t5", target=None)
    tokens = generate(model, what, SearchSettings(longest=64)).hypotheses[0].tokens
    target = read(model, what).target
    assert target is not None and target.ids[1:] == (
        tokens[:-1] if tokens[-1] in end_tokens(model) else tokens
    )


def test_what_cannot_say_anything_says_why():
    with pytest.raises(PretrainedError, match="does not generate text"):
        prepare_generation(tiny("bert"), given("bert"))
    with pytest.raises(PretrainedError, match="fills all 70 tokens"):
        prepare_generation(tiny("gpt2"), given("gpt2", "street " * 200))
    with pytest.raises(ValueError, match="temperature"):
        generate(tiny("gpt2"), given("gpt2"), SearchSettings("sampling", temperature=0))
    with pytest.raises(ValueError, match="no token"):
        score_continuation(tiny("gpt2"), prepare_generation(tiny("gpt2"), given("gpt2")), [])


def test_a_text_is_never_longer_than_the_model_reads():
    model = tiny("gpt2")
    started = prepare_generation(model, given("gpt2", "street " * 12))
    assert started.room == 70 - len(started.read)
    best = generate(model, given("gpt2", "street " * 12), SearchSettings(longest=500)).hypotheses[0]
    assert len(best) == started.room


def test_tokens_are_named_as_they_are_read():
    model = tiny("gpt2")
    ids = model.tokenizer(" the street.")["input_ids"]
    names = token_names(model, ids)
    assert "".join(names[one].removeprefix("##") for one in ids) == "thestreet."
    assert SearchSettings(temperature=0.5, top_k=3, top_p=0.9).sampling == Sampling(0.5, 3, 0.9)
    assert decode_text(model, [*ids, model.tokenizer.eos_token_id]) == "the street."


# Answers as a person reads them: the likeliest words, a word masked in its place, and what is said when none is.


@each("family", ["bert", "gpt2", "bert_classifier", "t5"])
def test_the_likeliest_words_of_an_answer(family):
    baseline = ask(tiny(family), Question(asking(family)))
    best = top_candidates(baseline.pretrained, baseline.answer, 3)
    probabilities = answer(baseline.pretrained, baseline.question.inputs).probabilities
    assert [one.id for one in best] == probabilities.topk(3).indices.tolist()
    assert best[0].probability == pytest.approx(baseline.value) and best[0].word == baseline.word
    assert all(one.word.strip() for one in best)


def test_a_model_of_masks_asks_for_one():
    batch, *_ = encode(tiny("bert"), ModelInputs(SENTENCE))
    with pytest.raises(PretrainedError, match=r"write \[MASK\]"):
        ask(tiny("bert"), Question(ModelInputs(SENTENCE)))
    assert "input_ids" in batch


@each("family", ["bert", "roberta"])
def test_a_word_is_masked_where_it_stands(family):
    model = tiny(family)
    text = "The animal, tired, saw the street."
    words = ["The", "animal", ",", "tired", ",", "saw", "the", "street", "."]
    masked = mask_word(model, text, words.index("tired"))
    assert masked == text.replace("tired", model.tokenizer.mask_token)
    place = ask(model, Question(ModelInputs(masked))).answer.position
    assert encode(model, ModelInputs(masked))[1].ids[place] == model.tokenizer.mask_token_id
    with pytest.raises(PretrainedError, match="no word 99"):
        mask_word(model, text, 99)
    with pytest.raises(PretrainedError, match="cannot fill masks"):
        mask_word(tiny("gpt2"), text, 1)


def test_classes_have_their_names_and_tokens_are_words():
    model = tiny("bert_classifier")
    result = answer(model, given("bert_classifier"))
    assert display_names(model, result, [2, 0]) == ("LABEL_2", "LABEL_0")
    model = tiny("gpt2")
    result = answer(model, given("gpt2"))
    ids = model.tokenizer("The animal was tired")["input_ids"]
    assert (
        "".join(word.removeprefix("##") for word in display_names(model, result, ids)).lower()
        == "theanimalwastired"
    )


def test_an_embedding_has_no_words_and_counts_real_tokens_alone():
    states = torch.tensor([[[3.0, 0.0], [0.0, 1.0], [9.0, 9.0]]])
    torch.testing.assert_close(
        mean_state(states, torch.tensor([[1, 1, 0]])), torch.tensor([3.0, 1.0]) / 10**0.5
    )
    model = tiny("bert_encoder")
    result = answer(model, given("bert_encoder"))
    assert top_candidates(model, result) == () and float(result.vector.norm()) == pytest.approx(1.0)


def test_an_answer_that_is_none_of_these_is_said():
    class Output:
        logits = torch.zeros(1, 3, 2)

    with pytest.raises(PretrainedError, match="not a token, a class or an embedding"):
        answer_of(tiny("bert_encoder"), {}, Output())


# Which job each family of models does, and how alike two embeddings are.


@each(
    ("key", "families"),
    {
        "fill": ("bert", "roberta"),
        "classify": ("bert_classifier",),
        "embed": ("bert_encoder",),
        "next": ("gpt2", "llama", "bert_decoder"),
        "translate": ("t5", "marian", "whisper"),
        "picture": ("vit",),
    }.items(),
)
def test_the_job_is_that_of_the_last_layer(key, families):
    jobs = {family: task_of(tiny(family)) for family in families}
    assert {job.key for job in jobs.values()} == {key}
    assert "whisper" not in jobs or jobs["whisper"].name == "Transcribe speech"


@each(
    ("model_type", "head"),
    [
        ("xlnet", "none"),
        ("bert", "none"),
        ("xlm", "masked"),
        ("cpmant", "none"),
        ("gpt2", "next"),
        ("qwen2_vl", "next"),
        ("qwen2_audio", "next"),
        ("t5gemma", "seq2seq"),
    ],
)
def test_what_sees_the_tokens_that_follow_does_not_predict_them(model_type, head):
    model = built(model_type)
    assert model.head == head
    if head == "none":
        with pytest.raises(PretrainedError, match="sees the tokens that follow"):
            prepare_generation(model, ModelInputs("A dog."))


def test_every_job_names_models_that_do_it():
    assert len({job.key for job in MODEL_TASKS}) == len(MODEL_TASKS)
    for job in MODEL_TASKS:
        assert job.hub.count("/") == 1
        if job.lab_model:
            model = load_minilm() if job.key == "embed" else load_lab_model(job.lab_model)
            assert task_of(model) == job


def test_likeness_is_the_cosine_of_the_mean_states():
    model = tiny("bert_encoder")
    texts = ["The animal was tired.", "Nine green boats wait.", "The animal was tired."]
    table = similarities(model, [ModelInputs(text) for text in texts])
    states = []
    for text in texts:
        batch = model.tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            states.append(model.model(**batch).last_hidden_state[0].mean(0))
    expected = torch.nn.functional.cosine_similarity(states[0], states[1], dim=0)
    assert table[0, 1] == pytest.approx(float(expected), abs=1e-5)
    assert torch.allclose(table, table.T) and torch.allclose(table.diagonal(), torch.ones(3))
    assert table[0, 2] == pytest.approx(1, abs=1e-5) and most_similar(table) == (0, 2)
    assert most_similar(table, 1)[0] == 1
    assert answer(model, ModelInputs(texts[0])).vector.norm() == pytest.approx(1, abs=1e-5)


def test_minilm_finds_the_sentence_that_means_the_same():
    texts = [
        "The animal didn't cross the street because it was too tired.",
        "The bank raised its interest rates.",
        "The dog was too exhausted to walk over the road.",
    ]
    table = similarities(load_minilm(), [ModelInputs(text) for text in texts])
    assert most_similar(table, 0) == (0, 2) and table[0, 2] > 0.6 > 0.3 > table[0, 1]


def test_a_model_without_embeddings_and_a_sentence_alone_are_told():
    with pytest.raises(PretrainedError, match="gives no embedding"):
        similarities(tiny("gpt2"), [ModelInputs("The animal"), ModelInputs("was tired")])
    with pytest.raises(ValueError, match="two or more"):
        most_similar(torch.ones(1, 1))
