"""How tokens are written: white space is seen, and what a vocabulary lacks is told from marks."""

from core.pretrained import read
from core.pretrained.base import readable
from core.tokens import token_text
from tests.cases import each
from tests.tiny_models import given, tiny


@each(
    ("token", "text"),
    [
        ("cat", "cat"),
        ("  ", "␣␣"),
        (" ", "␣"),
        ("\n", "↵"),
        ("\n\n", "↵↵"),
        ("\t", "⇥"),
        (" cat", "␣cat"),
        ("a\nb", "a↵b"),
        (".\n", ".↵"),
        ("not there", "not there"),
        ("", "∅"),
        ("\u200b", "U+200B"),
        ("\x00", "U+0000"),
        ("\u00a0", "␣"),
        ("🙂", "🙂"),
        ("é", "é"),
    ],
)
def test_every_token_can_be_seen(token, text):
    assert token_text(token) == text and token_text(text) == text


def test_a_piece_of_white_space_alone_is_not_an_empty_box():
    tokenizer = tiny("gpt2").tokenizer
    for piece, text in (
        ("ĠĠ", "␣␣"),
        ("Ċ", "↵"),
        ("ĊĊ", "↵↵"),
        ("Ġ", "␣"),
        ("Ġthe", "the"),
        ("ĠĠthe", "␣the"),
        (".Ċ", ".↵"),
    ):
        assert readable(tokenizer, piece, True) == text


def test_unknown_words_are_told_apart_from_special_tokens():
    line = read(tiny("bert"), given("bert", "The 山 saw the 川 [MASK] street 🙂.")).source
    assert line.tokens.count("[UNK]") == sum(line.unknown) == 3
    assert line.count == f"{len(line)} tokens (3 special, 3 unknown)"
    assert read(tiny("gpt2"), given("gpt2", "The dog")).source.count.endswith("tokens")


def test_a_mark_with_another_use_is_not_an_unknown_word():
    """GPT-2's unknown token is its end mark too."""
    tokenizer = tiny("gpt2").tokenizer
    line = read(tiny("gpt2"), given("gpt2", f"The dog{tokenizer.eos_token}")).source
    assert line.special[-1] and not any(line.unknown) and line.count.endswith("(1 special)")
