"""What is read of a text, and what is said when it is not all of it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from core.pretrained import ModelInputs, PretrainedError, load_folder, load_minilm, read
from core.pretrained.answers import Answer, display_names
from core.pretrained.base import first_line, text_line
from core.pretrained.generate import token_names
from core.pretrained.load import ImageProcessor, max_tokens_of, positions
from core.pretrained.reading import MAX_CHARACTERS, encode, sampling_rate
from tests.cases import each
from tests.tiny_models import OTHER, SENTENCE, save, tiny


def test_sessions_that_cut_and_sessions_that_do_not_share_one_tokenizer():
    minilm = load_minilm()
    texts = ("word " * 900, "word " * 30) * 2

    def lengths(text: str) -> set[int]:
        return {encode(minilm, ModelInputs(text))[0]["input_ids"].shape[1] for _ in range(40)}

    with ThreadPoolExecutor(len(texts)) as threads:
        assert list(threads.map(lengths, texts)) == [{512}, {32}] * 2


@each("family", ["bart", "t5"])
def test_a_target_that_is_cut_is_said_to_be(family):
    pretrained = tiny(family)
    reading = read(pretrained, ModelInputs(SENTENCE, target=f"{OTHER} " * 200))
    assert len(reading.target) == pretrained.max_tokens
    assert (
        "The target has" in reading.cut
        and f"at most {pretrained.max_tokens - 1} are read" in reading.cut
    )
    assert read(pretrained, ModelInputs(SENTENCE, target=OTHER)).cut is None


def test_sentence_b_is_bounded_as_the_text_is():
    reading = read(tiny("bert"), ModelInputs(SENTENCE, second="a" * (MAX_CHARACTERS + 1)))
    assert f"{MAX_CHARACTERS + 1:,} characters" in reading.cut


def test_a_tokenizer_that_would_leave_out_the_beginning_leaves_out_the_end(tmp_path):
    import transformers

    save("gpt2", tmp_path)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path, truncation_side="left")
    tokenizer.save_pretrained(tmp_path)
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).truncation_side == "left"
    pretrained = load_folder(tmp_path, "left")
    cut, whole = (
        encode(pretrained, ModelInputs(text))[1] for text in (f"{SENTENCE} " * 30, SENTENCE)
    )
    assert cut.ids[:5] == whole.ids[:5]


def test_an_answer_beyond_the_vocabulary_is_told_by_its_number():
    pretrained = tiny("gpt2")
    beyond = (
        len(pretrained.tokenizer) + 3
    )  # the table of T5 and of Qwen is larger than their vocabulary
    assert token_names(pretrained, [beyond]) == {beyond: f"[{beyond}]"}
    assert display_names(pretrained, Answer("next"), [beyond]) == (f"[{beyond}]",)
    assert text_line(pretrained.tokenizer, [5, beyond]).tokens[1].endswith(f"[{beyond}]")


def test_a_decoder_of_sound_has_the_places_that_its_config_names():
    import transformers

    config = transformers.WhisperConfig(
        d_model=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=8,
        decoder_ffn_dim=8,
        vocab_size=60,
        max_target_positions=21,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model = transformers.WhisperForConditionalGeneration(config)
    assert (
        positions(model)
        == max_tokens_of(model)
        == model.model.decoder.embed_positions.num_embeddings
        == 21
    )


def test_sound_is_made_at_the_rate_that_the_model_takes():
    from transformers import Wav2Vec2FeatureExtractor

    alone = replace(tiny("whisper"), tokenizer=Wav2Vec2FeatureExtractor(sampling_rate=8_000))
    assert (sampling_rate(alone), sampling_rate(tiny("whisper"))) == (8_000, 16_000)


def test_an_error_that_says_nothing_is_told_by_its_class():
    assert first_line(ValueError("one\ntwo")) == "one"
    assert first_line(ValueError()) == "ValueError()"


def test_a_file_that_asks_for_giant_pictures_is_refused(tmp_path):
    file = tmp_path / "preprocessor_config.json"
    file.write_text('{"size": {"height": 100000, "width": 100000}}', encoding="utf-8")
    with pytest.raises(PretrainedError, match="100,000 × 100,000 pixels"):
        ImageProcessor.of(tmp_path)
    file.write_text('{"size": {"height": 512, "width": 384}}', encoding="utf-8")
    assert ImageProcessor.of(tmp_path).size == (512, 384)
