"""Generation against Hugging Face's own generate, with the same settings, over families with a cache and without."""

import copy
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest
import torch
import transformers

from core.interpret.evidence import Question, ask
from core.models.decoding import Sampling, SearchSettings
from core.pretrained import ModelInputs, PretrainedError, encode, load_lab_model, load_minilm
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
    tokens = row[len(started.prompt.prefix_tokens) :].tolist()
    stops = [place for place, token in enumerate(tokens) if token in end_tokens(tiny(family))]
    return tuple(tokens[: stops[0] + 1] if stops else tokens)


def best_of(family: str, what: ModelInputs | None = None, **settings):
    inputs = given(family, target=None) if what is None else what
    return generate(tiny(family), inputs, SearchSettings(**settings)).hypotheses[0]


def prepared(family: str, **more):
    return prepare_generation(tiny(family), given(family, **{"target": None} | more))


@each("repeats", [0, 2])
@each("family", LAST + BOTH)
def test_greedy_says_what_hugging_face_says(family, repeats):
    started = prepared(family)
    expected = theirs(family, started, no_repeat_ngram_size=repeats).sequences[0]
    ours = best_of(family, no_repeat=repeats, longest=LONG).tokens
    assert ours == generated_tokens(family, started, expected)


@each(("width", "alpha", "repeats"), [(2, 0.0, 0), (3, 1.0, 2), (5, 2.0, 0)])
@each("family", ["gpt2", "bloom", "mistral", "t5", "marian", "bart"])
def test_beams_are_those_of_hugging_face(family, width, alpha, repeats):
    model, what, started = tiny(family), given(family, target=None), prepared(family)
    settings = SearchSettings(
        "beam", width=width, length_penalty=alpha, no_repeat=repeats, longest=LONG
    )
    ours = generate(model, what, settings).hypotheses
    expected = theirs(
        family,
        started,
        num_beams=width,
        num_return_sequences=width,
        length_penalty=alpha,
        no_repeat_ngram_size=repeats,
        output_scores=True,
    )
    rows = [generated_tokens(family, started, row) for row in expected.sequences]
    assert [one.tokens for one in ours] == rows
    scores = pytest.approx(expected.sequences_scores.tolist(), rel=1e-4, abs=1e-4)
    assert [one.score for one in ours] == scores


@each("family", ["gpt2", "gemma3", "t5"])
def test_each_sampled_step_has_the_distribution_of_hugging_face(family):
    """Temperature, top-k, top-p and forbidden repeats together, at every step of what generate drew; to 1e-5."""
    model, started = tiny(family), prepared(family)
    filters = {"temperature": 1.4, "top_k": 17, "top_p": 0.8}
    settings = SearchSettings("sampling", no_repeat=2, longest=LONG, **filters)  # type: ignore[arg-type]
    with torch.random.fork_rng():
        torch.manual_seed(3)
        more = {"do_sample": True, "no_repeat_ngram_size": 2, "output_scores": True}
        expected = theirs(family, started, **filters, **more)
    tokens = generated_tokens(family, started, expected.sequences[0])
    path = score_continuation(model, started, tokens)
    assert len(tokens) > 2
    for step, scores in enumerate(expected.scores[: len(tokens)]):
        ours = step_probabilities(model, started, settings, tokens[:step], path.logits[step])
        torch.testing.assert_close(ours, scores[0].softmax(-1), rtol=1e-4, atol=1e-5)


def test_what_a_model_forces_and_forbids_is_obeyed_as_hugging_face_obeys_it():
    free, started = best_of("marian", longest=6).tokens, prepared("marian")
    options = {
        "bad_words_ids": [[free[0]], [free[1]]],
        "forced_bos_token_id": 7,
        "forced_eos_token_id": 1,
        "begin_suppress_tokens": [9],
        "suppress_tokens": [11],
    }
    other = copy.deepcopy(tiny("marian").model)
    vars(other.generation_config).update(options)
    model, what = replace(tiny("marian"), model=other), given("marian", target=None)
    tokens = generate(model, what, SearchSettings(longest=6)).hypotheses[0].tokens
    expected = theirs("marian", started, max_new_tokens=6, **options).sequences[0]
    assert tokens == generated_tokens("marian", started, expected) and tokens[0] == 7
    assert tokens[-1] == 1 and not {free[0], free[1]} & set(tokens[1:])


@each("family", ["gpt2", "mistral", "gemma3", "bert_decoder", "bloom", "marian", "t5", "whisper"])
def test_what_is_followed_is_what_was_said(family):
    """Every candidate's probability again, by one pass without a cache, and rows that see only what stood before."""
    settings = SearchSettings("beam", width=3, longest=7)
    tree = generate(tiny(family), given(family, target=None), settings)
    best = tree.hypotheses[-1]
    path = score_continuation(tiny(family), prepared(family), best.tokens)
    logp = path.logits.log_softmax(-1)[range(len(best)), best.tokens]
    candidates = [tree.candidates[place].logp for place in tree.path(best.leaf)]
    assert logp.tolist() == pytest.approx(candidates, abs=1e-4)
    assert path.trace.kinds == (("cross", "causal") if family in BOTH else ("causal",))
    for one in path.trace.maps:
        assert len(one.queries) == len(best) and not one.weights[~one.visible].any()
        assert one.weights.sum(-1) == pytest.approx(1, abs=1e-5)


def test_the_attention_of_a_new_token_is_the_models_own_row():
    """Against the rows of the whole text, read by the same weights without us, to 1e-6."""
    started, tokens = prepared("llama"), best_of("llama", longest=5).tokens
    path = score_continuation(tiny("llama"), started, tokens)
    ids = torch.tensor([[*started.read.ids, *tokens[:-1]]])
    with torch.no_grad():
        rows = plain("llama")(ids, output_attentions=True).attentions
    for own, one in zip(rows, path.trace.maps, strict=True):
        new = own[0, :, len(started.read) - 1 :]
        torch.testing.assert_close(torch.from_numpy(one.weights), new, atol=1e-6, rtol=0)


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
    steps = generate_steps(model, prepared("gpt2"), SearchSettings(longest=12))
    *_, tree = islice(steps, 3)
    assert max(one.step for one in tree.candidates) == 2 and not tree.hypotheses
    assert isinstance(steps, Generator)
    steps.close()
    assert model.lock.acquire(timeout=1)
    model.lock.release()


@each("strategy", ["greedy", "beam"])
def test_an_answer_can_be_begun_for_the_model(strategy):
    """Against generate with decoder_input_ids; the attention is that of the new tokens alone."""
    what = given("marian", target="nine small")
    started = prepare_generation(tiny("marian"), what)
    prefix = started.prompt.prefix_tokens
    assert len(prefix) > 2 and started.room == 70 - len(prefix)
    more = {
        "decoder_input_ids": torch.tensor([prefix]),
        "num_beams": 3 if strategy == "beam" else 1,
    }
    expected = theirs("marian", started, **more).sequences[0]
    tokens = best_of("marian", what, strategy=strategy, width=3, longest=LONG).tokens
    assert tokens == generated_tokens("marian", started, expected)
    path, new = score_continuation(tiny("marian"), started, tokens), len(tokens)
    shapes = {one.kind: one.weights.shape[1:] for one in path.trace.maps}
    assert shapes == {"cross": (new, len(started.read)), "causal": (new, new + len(prefix) - 1)}


@each(
    ("words", "do"),
    {
        "does not generate text": lambda: prepared("bert"),
        "fills all 70 tokens": lambda: prepare_generation(
            tiny("gpt2"), given("gpt2", "street " * 200)
        ),
        "temperature": lambda: best_of("gpt2", strategy="sampling", temperature=0),
        "no token": lambda: score_continuation(tiny("gpt2"), prepared("gpt2"), []),
        "gives no embedding": lambda: similarities(tiny("gpt2"), [ModelInputs("The animal")] * 2),
        "two or more": lambda: most_similar(torch.ones(1, 1)),
        r"write \[MASK\]": lambda: ask(tiny("bert"), Question(ModelInputs(SENTENCE))),
        "no word 99": lambda: mask_word(tiny("bert"), SENTENCE, 99),
        "cannot fill masks": lambda: mask_word(tiny("gpt2"), SENTENCE, 1),
        "not a token, a class or an embedding": lambda: answer_of(
            tiny("bert_encoder"), {}, SimpleNamespace(logits=torch.zeros(1, 3, 2))
        ),
    }.items(),
)
def test_what_cannot_say_anything_says_why(words, do):
    with pytest.raises((PretrainedError, ValueError), match=words):
        do()


def test_a_text_is_never_longer_than_the_model_reads():
    what = given("gpt2", "street " * 12)
    started = prepare_generation(tiny("gpt2"), what)
    assert started.room == (70 - len(started.read)) == len(best_of("gpt2", what, longest=500))
    # Closing marks are taken from a text that goes on.
    tokens = prepared("bert_decoder").read.tokens
    assert (tokens[0], tokens[-1]) == ("[CLS]", ".")


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


@each("family", ["bert", "roberta"])
def test_a_word_is_masked_where_it_stands(family):
    model, text = tiny(family), "The animal, tired, saw the street."
    masked = mask_word(model, text, 3)
    assert masked == text.replace("tired", model.tokenizer.mask_token)
    place = ask(model, Question(ModelInputs(masked))).answer.position
    assert encode(model, ModelInputs(masked))[1].ids[place] == model.tokenizer.mask_token_id


def test_classes_have_their_names():
    model = tiny("bert_classifier")
    result = answer(model, given("bert_classifier"))
    assert display_names(model, result, [2, 0]) == ("LABEL_2", "LABEL_0")


def test_an_embedding_has_no_words_and_counts_real_tokens_alone():
    states = torch.tensor([[[3.0, 0.0], [0.0, 1.0], [9.0, 9.0]]])
    mean = mean_state(states, torch.tensor([[1, 1, 0]]))
    torch.testing.assert_close(mean, torch.tensor([3.0, 1.0]) / 10**0.5)
    result = answer(tiny("bert_encoder"), given("bert_encoder"))
    assert top_candidates(tiny("bert_encoder"), result) == ()
    assert float(result.vector.norm()) == pytest.approx(1.0)


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
    with torch.no_grad():
        batches = (model.tokenizer(text, return_tensors="pt") for text in texts)
        means = [model.model(**batch).last_hidden_state[0].mean(0) for batch in batches]
    states = torch.nn.functional.normalize(torch.stack(means), dim=-1)
    torch.testing.assert_close(table, states @ states.T, atol=1e-5, rtol=1e-5)
    assert most_similar(table) == (0, 2) and most_similar(table, 1)[0] == 1


def test_minilm_finds_the_sentence_that_means_the_same():
    texts = [
        "The animal didn't cross the street because it was too tired.",
        "The bank raised its interest rates.",
        "The dog was too exhausted to walk over the road.",
    ]
    table = similarities(load_minilm(), [ModelInputs(text) for text in texts])
    assert most_similar(table, 0) == (0, 2) and table[0, 2] > 0.6 > 0.3 > table[0, 1]
