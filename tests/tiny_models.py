"""Every family of pretrained models at a size that is built in a moment, with a tokenizer of its own kind.

`tiny(family)` is what a page would get, `plain(family)` the same weights loaded the ordinary way with eager attention,
`save(family, folder)` the folder that both come from. Sizes are small, odd and distinct; weights are random and large
enough that the maps are far from even.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
import transformers
from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from core.pretrained import Array, ModelInputs, Pretrained, load_folder
from core.pretrained.attention_recorder import EAGER

transformers.utils.logging.disable_progress_bar()

SENTENCE = "The animal didn't cross the street because it was too tired."
OTHER = "Nine green boats wait."
TEXT = (
    SENTENCE,
    OTHER,
    "A small dog saw the green street, and the animal was tired too.",
    "Because it was late, nine small dogs didn't wait.",
    "It saw a boat cross the late street.",
)
LAYERS, HEADS, SHARED, SIZE, WIDTH = 2, 3, 2, 8, 24


class Family(NamedTuple):
    """The class of its model, the kind of its tokenizer, and its config."""

    kind: str
    reader: str
    config: dict[str, Any]


BERT = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 20,
    "max_position_embeddings": 70,
}
ROPE = {
    **BERT,
    "hidden_size": 18,
    "num_attention_heads": 6,
    "num_key_value_heads": SHARED,
    "head_dim": SIZE,
}
BART = {
    "d_model": WIDTH,
    "encoder_layers": 1,
    "decoder_layers": LAYERS,
    "encoder_attention_heads": HEADS,
    "decoder_attention_heads": HEADS,
    "encoder_ffn_dim": 20,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 70,
}
EXPERTS = {"num_local_experts": 3, "num_experts_per_tok": 2}

FAMILIES: dict[str, Family] = {
    "bert": Family("BertForMaskedLM", "wordpiece", BERT),
    "bert_encoder": Family("BertModel", "wordpiece", BERT),
    "bert_classifier": Family("BertForSequenceClassification", "wordpiece", {**BERT, "num_labels": 3}),
    "bert_labels": Family("BertForTokenClassification", "wordpiece", {**BERT, "num_labels": 3}),
    "bert_answers": Family("BertForQuestionAnswering", "wordpiece", BERT),
    "bert_decoder": Family("BertLMHeadModel", "wordpiece", {**BERT, "is_decoder": True}),
    "distilbert": Family("DistilBertForMaskedLM", "wordpiece",
                         {"dim": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 20,
                          "max_position_embeddings": 70}),
    "roberta": Family("RobertaForMaskedLM", "bytes-pair", BERT),
    "albert": Family("AlbertForMaskedLM", "unigram", {**BERT, "embedding_size": 10}),
    "electra": Family("ElectraForMaskedLM", "wordpiece", {**BERT, "embedding_size": 10}),
    "deberta_v2": Family("DebertaV2ForMaskedLM", "unigram",
                         {**BERT, "relative_attention": True, "position_buckets": 4, "pos_att_type": ["c2p", "p2c"],
                          "norm_rel_ebd": "layer_norm", "share_att_key": True}),
    "longformer": Family("LongformerForMaskedLM", "bytes-pair", {**BERT, "attention_window": [4, 8]}),
    "longformer_classifier": Family("LongformerForSequenceClassification", "bytes-pair",
                                    {**BERT, "attention_window": [4, 8], "num_labels": 3}),
    "big_bird": Family("BigBirdForMaskedLM", "unigram", {**BERT, "attention_type": "original_full"}),
    "big_bird_sparse": Family("BigBirdForMaskedLM", "unigram",
                              {**BERT, "attention_type": "block_sparse", "block_size": 2, "num_random_blocks": 1}),
    "modernbert": Family("ModernBertForMaskedLM", "bytes-pair",
                         {**BERT, "num_hidden_layers": 4, "local_attention": 6, "global_attn_every_n_layers": 3}),
    "gpt2": Family("GPT2LMHeadModel", "bytes",
                   {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": 70}),
    "gpt_neox": Family("GPTNeoXForCausalLM", "bytes", {**BERT, "rotary_pct": 0.5}),
    "gpt_neo": Family("GPTNeoForCausalLM", "bytes",
                      {"hidden_size": WIDTH, "num_layers": LAYERS, "num_heads": HEADS, "window_size": 5,
                       "attention_types": [[["global", "local"], 1]], "max_position_embeddings": 70}),
    "bloom": Family("BloomForCausalLM", "bytes", {"hidden_size": WIDTH, "n_layer": LAYERS, "n_head": HEADS}),
    "falcon": Family("FalconForCausalLM", "bytes",
                     {"hidden_size": 24, "num_hidden_layers": LAYERS, "num_attention_heads": 6, "num_kv_heads": SHARED,
                      "new_decoder_architecture": True}),
    "mpt": Family("MptForCausalLM", "bytes", {"d_model": WIDTH, "n_layers": LAYERS, "n_heads": HEADS, "max_seq_len": 70}),
    "xlnet": Family("XLNetModel", "unigram",
                    {"d_model": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "d_inner": 20}),
    "llama": Family("LlamaForCausalLM", "bytes", ROPE),
    "mistral": Family("MistralForCausalLM", "unigram-start", {**ROPE, "sliding_window": 5}),
    "qwen3": Family("Qwen3ForCausalLM", "bytes", ROPE),
    "gemma3": Family("Gemma3ForCausalLM", "unigram-start",
                     {**ROPE, "sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"],
                      "query_pre_attn_scalar": 7}),
    "gemma2": Family("Gemma2ForCausalLM", "unigram-start",
                     {**ROPE, "sliding_window": 5, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 7}),
    "gpt_oss": Family("GptOssForCausalLM", "bytes", {**ROPE, **EXPERTS, "hidden_size": WIDTH, "sliding_window": 5}),
    "deepseek_v3": Family("DeepseekV3ForCausalLM", "bytes",
                          {**BERT, "num_key_value_heads": HEADS, "q_lora_rank": 10, "kv_lora_rank": 14,
                           "qk_rope_head_dim": 4, "qk_nope_head_dim": 6, "v_head_dim": 5, "first_k_dense_replace": 1,
                           "moe_intermediate_size": 12, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
                           "topk_group": 1, "n_shared_experts": 1}),
    "diffllama": Family("DiffLlamaForCausalLM", "bytes", {**ROPE, "num_attention_heads": 4}),
    "mamba": Family("MambaForCausalLM", "bytes",
                    {"hidden_size": WIDTH, "num_hidden_layers": LAYERS, "state_size": 4, "time_step_rank": 3}),
    "t5": Family("T5ForConditionalGeneration", "unigram",
                 {"d_model": WIDTH, "num_layers": LAYERS, "num_heads": HEADS, "d_kv": SIZE,
                  "d_ff": 20, "relative_attention_num_buckets": 6, "relative_attention_max_distance": 9}),
    "bart": Family("BartForConditionalGeneration", "bytes-pair", BART),
    "bart_classifier": Family("BartForSequenceClassification", "bytes-pair", {**BART, "num_labels": 3}),
    "bart_encoder": Family("BartModel", "bytes-pair", BART),
    "marian": Family("MarianMTModel", "unigram", BART),
    "vit": Family("ViTForImageClassification", "picture",
                  {**BERT, "image_size": 12, "patch_size": 4, "num_channels": 3, "num_labels": 5}),
    "whisper": Family("WhisperForConditionalGeneration", "sound",
                      {**BART, "num_mel_bins": 6, "max_source_positions": 50, "max_target_positions": 70}),
}  # fmt: skip
WITHOUT = ("big_bird_sparse",)
# The library returns no maps of a model without softmax: tests/pretrained/test_state_layers.py
READABLE = tuple(name for name in FAMILIES if name not in (*WITHOUT, "mamba"))


@cache
def tiny(family: str) -> Pretrained:
    """The family as `load_folder` loads it; shared by all tests, as a page's model is by all sessions."""
    with tempfile.TemporaryDirectory() as folder:
        return load_folder(save(family, Path(folder)), family)


@cache
def plain(family: str) -> Any:
    """The same weights, loaded by the library alone with its eager attention: what a reading is held against."""
    with tempfile.TemporaryDirectory() as folder:
        kind = getattr(transformers, FAMILIES[family].kind)
        return kind.from_pretrained(save(family, Path(folder)), attn_implementation="eager").eval()


@contextmanager
def library_attention() -> Iterator[None]:
    """The library's eager attention alone, without our entry in its table."""
    with patch.dict(transformers.AttentionInterface._global_mapping) as table:
        table.pop(EAGER, None)
        yield


def given(family: str, text: str = SENTENCE, target: str | None = OTHER) -> ModelInputs:
    """Something that the family reads: a sentence, a pair for an encoder–decoder, a picture, a sound."""
    numbers = np.random.default_rng(3)
    reader = FAMILIES[family].reader
    if reader == "picture":
        return ModelInputs(picture=Array.of(numbers.random((9, 11, 3), dtype=np.float32)))
    if reader == "sound":
        return ModelInputs(
            sound=Array.of(numbers.normal(size=12_000).astype(np.float32)), target=target
        )
    return ModelInputs(text, target=target)


def asking(family: str) -> ModelInputs:
    """As `given`, with one word masked for a family that fills masks."""
    model, inputs = tiny(family), given(family)
    if model.head != "masked":
        return inputs
    return replace(inputs, text=inputs.text.replace("street", model.tokenizer.mask_token))


def save(family: str, folder: Path) -> Path:
    """Write the family's config, weights and tokenizer to a folder, in Hugging Face's layout."""
    kind, reader, config = FAMILIES[family]
    folder.mkdir(exist_ok=True)
    more = dict(config)
    if reader == "picture":
        options = {
            "size": {"height": 12, "width": 12},
            "image_mean": [0.4, 0.5, 0.6],
            "image_std": [0.2, 0.3, 0.4],
        }
        (folder / "preprocessor_config.json").write_text(json.dumps(options), "utf-8")
    else:
        read = tokenizer(reader)
        more |= ids_of(read, kind)
        if reader == "sound":
            read = transformers.WhisperProcessor(
                transformers.WhisperFeatureExtractor(feature_size=6, chunk_length=1), read
            )
        read.save_pretrained(folder)
    build(kind, more).save_pretrained(folder)
    return folder


def build(kind: str, config: dict[str, Any], seed: int = 5) -> Any:
    """A model of that class with random weights."""
    made = getattr(transformers, kind)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = made(made.config_class(**config)).eval()
    uneven(model, seed)
    model.tie_weights()
    return model


@torch.no_grad()
def uneven(model: Any, seed: int = 5) -> Any:
    """The model with weights larger than usual, so that maps are uneven and what is wrong shows."""
    numbers = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        if weight.is_floating_point() and weight.numel():
            noise = torch.randn(weight.shape, generator=numbers)
            weight.copy_(
                noise * weight.shape[-1] ** -0.5 if weight.ndim > 1 else weight + 0.1 * noise
            )
    return model


def ids_of(read: Any, kind: str) -> dict[str, Any]:
    """What a config says of its vocabulary."""
    ids = {"vocab_size": len(read), "pad_token_id": read.pad_token_id, "bos_token_id": read.bos_token_id,
             "eos_token_id": read.eos_token_id}  # fmt: skip
    if made := getattr(transformers, kind).config_class().is_encoder_decoder:
        ids["decoder_start_token_id"] = read.pad_token_id
    return ids | ({"forced_eos_token_id": None} if made else {})


SPECIAL = {"wordpiece": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"), "bytes": ("<|end|>", "<|pad|>"),
           "bytes-pair": ("<s>", "<pad>", "</s>", "<unk>", "<mask>"),
           "unigram": ("<pad>", "</s>", "<unk>", "[MASK]"),
           "unigram-start": ("<pad>", "</s>", "<unk>", "<s>")}  # fmt: skip
NAMES = {"wordpiece": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
         "bytes": {"bos": "<|end|>", "eos": "<|end|>", "pad": "<|pad|>"},
         "bytes-pair": {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>", "cls": "<s>",
                        "sep": "</s>"},
         "unigram": {"pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "[MASK]"},
         "unigram-start": {"pad": "<pad>", "eos": "</s>", "unk": "<unk>", "bos": "<s>"}}  # fmt: skip
# How a text and a pair are framed.
FRAMES = {"wordpiece": ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1"),
          "bytes-pair": ("<s> $A </s>", "<s> $A </s> </s> $B:1 </s>:1"),
          "unigram": ("$A </s>", "$A </s> $B:1 </s>:1"), "unigram-start": ("<s> $A", "<s> $A $B:1")}  # fmt: skip


@cache
def tokenizer(reader: str) -> Any:
    """A fast tokenizer of that kind, for a few dozen words: some words are one piece, others are two or more."""
    if reader == "sound":
        bytes_of = json.loads(tokenizer("bytes").backend_tokenizer.to_str())["model"]
        return transformers.WhisperTokenizer(
            bytes_of["vocab"], [tuple(one) for one in bytes_of["merges"]], pad_token="<|endoftext|>"
        )
    special = SPECIAL[reader]
    made = {"w": _wordpiece, "b": _bytes, "u": _unigram}[reader[0]](special)
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in special])
    if frame := FRAMES.get(reader):
        used = [(name, made.token_to_id(name)) for name in special if name in frame[1]]
        made.post_processor = processors.TemplateProcessing(
            single=frame[0], pair=frame[1], special_tokens=used
        )
    names = {f"{name}_token": value for name, value in NAMES[reader].items()}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=70, **names)


def _pieces() -> tuple[list[str], list[str]]:
    """Every letter, and the words: short ones whole, long ones cut after their third letter."""
    words = sorted({word.strip(".,").lower() for line in TEXT for word in line.split()})
    letters = sorted(set("abcdefghijklmnopqrstuvwxyz0123456789.,'?!-"))
    return letters, [
        part
        for word in words
        for part in ((word,) if len(word) < 6 else (word[:3], "+" + word[3:]))
    ]


def _wordpiece(special: tuple[str, ...]) -> Tokenizer:
    letters, words = _pieces()
    names = [
        *special,
        *letters,
        *(f"##{one}" for one in letters),
        *(word.replace("+", "##") for word in words if len(word) > 1),
    ]
    vocabulary = {name: place for place, name in enumerate(dict.fromkeys(names))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token=special[1]))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return made


def _unigram(special: tuple[str, ...]) -> Tokenizer:
    letters, words = _pieces()
    whole = [word.replace("+", "") if "+" in word else f"▁{word}" for word in words]
    scored = [(name, 0.0) for name in special] + [("▁", -5.0)] + [(one, -6.0) for one in letters]
    known = {name for name, _ in scored}
    made = Tokenizer(
        models.Unigram(
            scored + [(one, -3.0) for one in dict.fromkeys(whole) if one not in known], 2
        )
    )
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    return made


def _bytes(special: tuple[str, ...]) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=list(special),
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    made.train_from_iterator(TEXT, trainer)
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    return made
