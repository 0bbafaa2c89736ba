"""Words, characters and roles over builds of the tokenizers that transformers ships, and of others that people make."""

import json
import unicodedata
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
import transformers
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from core.interpret.map_transform import group_by_word
from core.interpret.roles import Text, delimiter, same_word
from core.pretrained.base import Line, text_line
from core.pretrained.generate import Answer, mask_word, output_id, output_name
from core.tokens import bare_piece, is_sign, join_pieces, words_in

TEXT = "The cat didn't see 3 猫 in Zürich, (well-known) مرحبا हिन्दी 🙂 好き ไป! the cat sat."
WORDS = (
    "The cat didn't see 3 猫 in Zürich , ( well-known ) مرحبا हिन्दी 🙂 好 き ไ ป ! the cat sat ."
).split()
# Words of which some are pieces.
TRAINED = [*WORDS, *("the cats see knows sits well catty in the sees " * 3).split()]

# Those of the text tokenizers that transformers makes without files.
SHIPPED = """Albert Bart Barthez Bert BigBird Blenderbot CLIP Camembert CodeLlama Cohere DPRQuestionEncoder Deberta
DebertaV2 FNet Funnel GPT2 GPTNeoX Gemma Herbert LED Llama Luke Lxmert MBart50 MBart MLuke MPNet MobileBert Mvp Nllb
Nougat OpenAIGPT Qwen2 Qwen3_5 Reformer RemBert Roberta SeamlessM4T Siglip2 Splinter T5 Tipsv2 Whisper XGLM
XLMRoberta XLNet""".split()


def shipped(name: str) -> Any:
    tokenizer = getattr(transformers, f"{name}Tokenizer")()
    # Word by word: a merge over a space would be a token of two words.
    return tokenizer.train_new_from_iterator([f" {word}" for word in TRAINED], 420)


def made(model: Any, trainer: Any = None, **parts: Any) -> Any:
    tokenizer = Tokenizer(model)
    for part, value in parts.items():
        if value is not None:
            setattr(tokenizer, part, value)
    if trainer is not None:
        tokenizer.train_from_iterator([f" {word}" for word in TRAINED], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def fallback(unigram: bool, letters: str = "", **parts: Any) -> Any:
    """Llama's kind: bytes for what the vocabulary lacks, here all but ASCII."""
    alphabet = sorted({*letters, "▁", *map(chr, range(33, 127))})
    words = ["▁The", "▁the", "▁c", "at", "▁see", "▁cat"]
    if unigram:
        table = [("[UNK]", 0.0), *((one, -9.0) for one in BYTES)]
        table += [(one, -5.0) for one in alphabet] + [(one, -2.0) for one in words]
        return made(models.Unigram(table, 0, byte_fallback=True), **parts)
    merges = [("a", "t"), ("▁", "t"), ("h", "e"), ("▁t", "he"), ("▁", "c"), ("▁c", "at")]
    vocab = ["[UNK]", *BYTES, *alphabet, *("".join(pair) for pair in merges)]
    ids = {piece: index for index, piece in enumerate(vocab)}
    return made(models.BPE(ids, merges, unk_token="[UNK]", byte_fallback=True), **parts)


def metaspace(scheme: str, split: bool, replacement: str = "▁") -> dict[str, Any]:
    return {
        "pre_tokenizer": pre_tokenizers.Metaspace(replacement, scheme, split),
        "decoder": decoders.Metaspace(replacement, scheme, split),
    }


def bpe(**options: Any) -> Any:
    return trainers.BpeTrainer(vocab_size=420, special_tokens=["[UNK]"], **options)


def byte_bpe(*before: Any, **options: Any) -> Any:
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, **options)
    return made(
        models.BPE(),
        bpe(initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
        pre_tokenizer=pre_tokenizers.Sequence([*before, level]),
        decoder=decoders.ByteLevel(),
    )


def prepend() -> Any:
    return normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])


def characters(*, spaces: bool) -> Any:
    letters = {*TEXT} if spaces else {*TEXT} - {" "}
    vocab = {one: index for index, one in enumerate(["[UNK]", *sorted(letters)])}
    rule = pre_tokenizers.Split(Regex("" if spaces else r"\s"), "isolated" if spaces else "removed")
    parts = [rule, *([] if spaces else [pre_tokenizers.Split(Regex(r"\S"), "isolated")])]
    model = models.WordLevel(vocab, unk_token="[UNK]")
    return made(model, pre_tokenizer=pre_tokenizers.Sequence(parts))


def word_pieces(pre_tokenizer: Any, decoder: Any = None) -> Any:
    trainer = trainers.WordPieceTrainer(vocab_size=420, special_tokens=["[UNK]"])
    return made(
        models.WordPiece(unk_token="[UNK]"), trainer, pre_tokenizer=pre_tokenizer, decoder=decoder
    )


def with_added() -> Any:
    tokenizer = shipped("GPT2")
    tokenizer.add_tokens(
        [AddedToken("Zürich", normalized=False), AddedToken("猫", normalized=False)]
    )
    return tokenizer


SPACES = pre_tokenizers.WhitespaceSplit()
MADE: dict[str, Callable[[], Any]] = {
    "BPE at white space, no marks, no decoder": lambda: made(
        models.BPE(unk_token="[UNK]"), bpe(), pre_tokenizer=pre_tokenizers.Whitespace()
    ),
    "BPE, </w>": lambda: made(
        models.BPE(unk_token="[UNK]", end_of_word_suffix="</w>"),
        bpe(end_of_word_suffix="</w>"),
        pre_tokenizer=SPACES,
        decoder=decoders.BPEDecoder(),
    ),
    "BPE, ##": lambda: made(
        models.BPE(unk_token="[UNK]", continuing_subword_prefix="##"),
        bpe(continuing_subword_prefix="##"),
        pre_tokenizer=SPACES,
    ),
    "word pieces at spaces": lambda: word_pieces(SPACES, decoders.WordPiece()),
    "word pieces, no decoder": lambda: word_pieces(pre_tokenizers.BertPreTokenizer()),
    "words": lambda: made(
        models.WordLevel(unk_token="[UNK]"),
        trainers.WordLevelTrainer(special_tokens=["[UNK]"]),
        pre_tokenizer=pre_tokenizers.Whitespace(),
    ),
    "characters": lambda: characters(spaces=True),
    "characters without spaces": lambda: characters(spaces=False),
    "byte BPE": byte_bpe,
    "byte BPE, no expression": lambda: byte_bpe(use_regex=False),
    "byte BPE, digits": lambda: byte_bpe(pre_tokenizers.Digits(individual_digits=True)),
    "byte BPE, Llama 3": lambda: byte_bpe(
        pre_tokenizers.Split(
            Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"), "isolated"
        ),
        use_regex=False,
    ),
    "single bytes": lambda: made(
        models.BPE(
            {one: at for at, one in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, []
        ),
        pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=False),
    ),
    "added words": with_added,
    "Llama 2": lambda: fallback(
        False,
        normalizer=prepend(),
        decoder=decoders.Sequence(
            [
                decoders.Replace("▁", " "),
                decoders.ByteFallback(),
                decoders.Fuse(),
                decoders.Strip(" ", 1, 0),
            ]
        ),
    ),
    "Llama 2, no decoder": lambda: fallback(False, normalizer=prepend()),
    "Gemma": lambda: fallback(
        False,
        normalizer=normalizers.Replace(" ", "▁"),
        pre_tokenizer=pre_tokenizers.Split(" ", "merged_with_previous"),
        decoder=decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        ),
    ),
    **{
        f"{'unigram' if unigram else 'BPE'}, bytes, {scheme}, split {split}": (
            partial(fallback, unigram, **metaspace(scheme, split))
        )
        for unigram in (False, True)
        for scheme in ("always", "first", "never")
        for split in (True, False)
    },
    "unigram, all letters": lambda: fallback(
        True, TEXT.replace(" ", ""), **metaspace("always", False)
    ),
    "another sign for a space": lambda: made(
        models.BPE(unk_token="[UNK]"), bpe(), **metaspace("always", True, "_")
    ),
    "ByT5": transformers.ByT5Tokenizer,
    "Perceiver": transformers.PerceiverTokenizer,
    "CANINE": transformers.CanineTokenizer,
}


def from_sentencepiece(name: str, folder: Path) -> Any:
    """A slow tokenizer over a model that sentencepiece itself trains."""
    lines = folder / "lines.txt"
    lines.write_text("\n".join([" ".join(TRAINED)] * 40), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(lines), model_prefix=str(folder / "m"), vocab_size=320, hard_vocab_limit=False,
        character_coverage=1.0, minloglevel=2, byte_fallback=name == "SpeechT5",
        model_type="bpe" if name == "GPTSw3" else "unigram",
    )  # fmt: skip
    return getattr(transformers, f"{name}Tokenizer")(str(folder / "m.model"))


def ctrl(folder: Path) -> Any:
    """Words that go on with @@."""
    merges = ["t h", "th e</w>", "c a", "ca t</w>", "s e", "se e</w>"]
    pieces = {one for word in TRAINED for letter in word for one in (letter, f"{letter}</w>")}
    pieces |= {merge.replace(" ", "") for merge in merges}
    names = [one.removesuffix("</w>") if one.endswith("</w>") else f"{one}@@" for one in pieces]
    (folder / "vocab.json").write_text(
        json.dumps({one: index for index, one in enumerate(["<unk>", *sorted(names)])}),
        encoding="utf-8",
    )
    (folder / "merges.txt").write_text("#version\n" + "\n".join(merges) + "\n", encoding="utf-8")
    return transformers.CTRLTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))


FROM_FILES = ["BertGeneration", "GPTSw3", "SpeechT5", "CTRL"]


@cache
def build(name: str, folder: Path) -> Any:
    if name in FROM_FILES:
        return ctrl(folder) if name == "CTRL" else from_sentencepiece(name, folder)
    return MADE[name]() if name in MADE else shipped(name)


@pytest.fixture(params=[*SHIPPED, *MADE, *FROM_FILES])
def tokenizer(request, tmp_path_factory) -> Any:
    names = [*SHIPPED, *MADE, *FROM_FILES]
    return build(request.param, _folder(tmp_path_factory, names.index(request.param)))


def line_of(tokenizer: Any, *texts: str) -> Line:
    encoding = tokenizer(*texts)
    return text_line(tokenizer, encoding["input_ids"], encoding, texts)


def plain(text: str) -> str:
    """The letters, without case, accents and widths: what a tokenizer may change."""
    letters = unicodedata.normalize("NFKD", text.casefold())
    return "".join(one for one in letters if unicodedata.category(one)[0] != "M")


def merged(line: Line) -> Iterator[tuple[str, list[int]]]:
    for group in group_by_word(line.word):
        if line.word[group[0]] is not None:
            yield join_pieces([line.tokens[at] for at in group]), list(group)


def test_words_are_those_of_the_text(tokenizer):
    line = line_of(tokenizer, TEXT)
    words = [plain(word) for word, _ in merged(line)]
    expected = [plain(word) for word in WORDS]
    assert words == [one for one in expected if one in words], line.tokens
    # What is left out is unknown, and up to three words are one unknown token.
    left = [one for one in expected if one not in words]
    assert len(left) <= 3 * sum(
        token in map(str, tokenizer.all_special_tokens) for token in line.tokens
    )


def _folder(factory: pytest.TempPathFactory, number: int) -> Path:
    folder = factory.getbasetemp() / f"tokenizer{number}"
    folder.mkdir(exist_ok=True)
    return folder


def test_tokens_are_readable_and_parts_of_character_say_so(tokenizer):
    line = line_of(tokenizer, TEXT)
    assert not any("\ufffd" in one or "Ġ" in one or "▁" in one for one in line.tokens)
    for word, group in merged(line):
        pieces = [line.tokens[at] for at in group]
        parts = [one for one in pieces if one.startswith("<0x")]
        for one in parts:
            named, _, place = one.partition(" ")
            first, size, sign = place.split()[0], int(place.split()[2]), place.split()[4]
            start, _, end = first.partition("–")
            data = bytes(int(byte[2:], 16) for byte in named.strip("<>").split("><"))
            assert data == sign.encode()[int(start) - 1 : int(end or start)]
            assert size == len(sign.encode()) and sign in word
        # The first letters of a word are not marked as a continuation; those after it are.
        letters = [one for one in pieces if one != "␣"]
        assert not letters[0].startswith("##")
        if not any(one == bare_piece(one) and one.isalnum() for one in letters[1:]):
            continue
        assert is_bert(tokenizer), pieces


def is_bert(tokenizer: Any) -> bool:
    """Whether tokens without ## stand after a word's first in the vocabulary itself: the t of BERT's didn ' t."""
    return type(tokenizer._tokenizer.model).__name__ == "WordPiece"


def test_roles_are_those_of_the_words(tokenizer):
    text = Text(line_of(tokenizer, f"{TEXT} مرحبا 猫 sat"))
    words = [
        join_pieces([text.line.tokens[at] for at in group])
        for group in group_by_word(text.line.word)
    ]
    of_token = [
        word
        for word, group in zip(words, group_by_word(text.line.word), strict=True)
        for _ in group
    ]
    same, delimits = same_word(text), np.asarray(delimiter(text).any(0))
    for at, word in enumerate(of_token):
        if text.line.special[at] or at == 0:
            continue
        assert delimits[at] == is_sign(bare_piece(text.line.tokens[at])), text.line.tokens[at]
        others = [
            j for j, other in enumerate(of_token)
            if other.lower() == word.lower() and not is_sign(word) and text.line.word[j] != text.line.word[at]
            and text.ordinary[j] and abs(j - at) > 1
        ]  # fmt: skip
        assert list(same[at].nonzero()[0]) == others, word
    known = [word.lower() for word in words]
    for word in ("مرحبا", "猫", "sat", "cat"):
        if known.count(word) > 1:
            assert same[[one.lower() for one in of_token].index(word)].any(), word


UNUSUAL = "the cat\u202fsat\u00a0in\u3000the\u2009well\u2028sees\tthe cat\u200dsat Na\u00efve"


def test_unusual_spaces_and_invisible_signs_are_named(tokenizer):
    text = Text(line_of(tokenizer, UNUSUAL))
    for token in text.line.tokens:
        assert ("<0x" in token) == (" of " in token), token  # of which character a byte is
    if not tokenizer.is_fast or type(tokenizer).__name__ in ("LlamaTokenizer", "Tipsv2Tokenizer"):
        return  # a sign that has no token here leaves no trace
    # As the tokenizer's own normalizer leaves it.
    normalizer = tokenizer.backend_tokenizer.normalizer
    left = normalizer.normalize_str(UNUSUAL) if normalizer else UNUSUAL
    words = [plain(word).strip() for word, _ in merged(text.line)]
    expected = plain(left.replace("\u2581", " ")).split()
    hidden = text.ordinary.sum() < len(text.line) - tokenizer.num_special_tokens_to_add()
    assert hidden or words == expected, text.line.tokens
    assert hidden or [*dict.fromkeys(filter(None, text.words))] == [
        *dict.fromkeys(word.lower() for word, _ in merged(text.line) if word != "␣")
    ]


def pretrained_of(tokenizer: Any, head: str) -> Any:
    return SimpleNamespace(head=head, tokenizer=tokenizer, name="m", lock=Lock(), model=None)


def test_a_masked_word_is_that_word(tokenizer):
    if not (tokenizer.mask_token and tokenizer.is_fast):
        pytest.skip("it fills no masks, or does not say where its tokens stand")
    line, mask = line_of(tokenizer, TEXT), str(tokenizer.mask_token)
    for word, group in merged(line):
        masked = mask_word(pretrained_of(tokenizer, "masked"), TEXT, line.word[group[0]])
        before, after = masked.split(mask)
        assert TEXT.startswith(before) and TEXT.endswith(after)
        assert plain(TEXT[len(before) : len(TEXT) - len(after)]) == plain(word)


def test_the_name_of_a_token_leads_back_to_it(tokenizer):
    if isinstance(tokenizer, transformers.CanineTokenizer):
        pytest.skip("its models predict no token")
    pretrained, ids = pretrained_of(tokenizer, "next"), range(min(len(tokenizer), 300))
    answer = Answer("next", torch.zeros(len(ids)))
    for one in ids:
        assert output_id(pretrained, answer, output_name(pretrained, answer, one)) == one


def test_unknown_signs_part_words():
    vocab = {one: at for at, one in enumerate(["[UNK]", *"abcd"])}
    tokenizer = made(
        models.WordLevel(vocab, unk_token="[UNK]"),
        normalizer=normalizers.Replace(Regex(r"[-\u200c]"), ""),
        pre_tokenizer=pre_tokenizers.Split(Regex(r"\S"), "isolated"),
    )
    for text, words in (("ab-cd", ["ab", "cd"]), ("ab\u200ccd", ["abcd"]), ("ab cd", ["ab", "cd"])):
        assert [word for word, _ in merged(line_of(tokenizer, text))] == words


def test_words_of_two_texts_are_apart(tokenizer):
    first, second = "the cat sat", "sat in the cat"
    line = line_of(tokenizer, first, second)
    # Splinter puts a sign of its own between them.
    words = [plain(word) for word, _ in merged(line) if word != "."]
    assert words == [*first.split(), *second.split()], line.tokens


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("can't stop.", ["can't", "stop", "."]),
        ("“Yes…” she said -- (U.S.)", ["“", "Yes", "…", "”", "she", "said", "--", "(", "U.S", ".", ")"]),
        ("a\nb", ["a", "\n", "b"]),
        ("日本語 ไทย x好y", ["日", "本", "語", "ไ", "ท", "ย", "x", "好", "y"]),
        ("हिन्दी में, 👩‍👩‍👧 3.14", ["हिन्दी", "में", ",", "👩‍👩‍👧", "3.14"]),
        ("  x  ", ["x", ""]), ("", []), ("?!", ["?", "!"]),
    ],
)  # fmt: skip
def test_a_word_is_what_stands_between_spaces_and_signs(text, words):
    numbers = words_in(text)
    assert len(numbers) == len(text)
    letters = [list[str]() for _ in range(numbers[-1] + 1)] if numbers else []
    for sign, number in zip(text, numbers, strict=True):
        letters[number].append(sign)
    assert ["".join(one).strip(" ") for one in letters] == words
