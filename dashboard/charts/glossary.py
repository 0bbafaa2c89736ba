"""The words of the field that the pages use: what each means, and the page on which it can be seen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from html import escape


@dataclass(frozen=True)
class Term:
    """A word, its explanation, and the key of a page that shows it.

    `forms` are its other forms in sentences; a term that is also an everyday word is not marked in sentences.
    """

    name: str
    text: str
    page: str
    forms: tuple[str, ...] = ()
    marked: bool = True


def _everyday(name: str, text: str, page: str) -> Term:
    return Term(name, text, page, marked=False)


TERMS: tuple[Term, ...] = (
    Term("[CLS]", "A token that some models put before every text. Its last vector stands for the whole text.",
         "pretrained"),
    Term("accuracy", "The share of predictions that are right.", "train"),
    Term("ALiBi", "A position encoding that subtracts from each score a penalty that grows with the distance between "
         "query and key.", "positions"),
    Term("attention", "A step in which every token takes a weighted average of the values of other tokens. The weights "
         "are computed from the tokens themselves.", "why"),
    Term("attention map", "The weights of one head as a table: one row for each query, one column for each key.",
         "heads", ("attention maps",)),
    Term("baseline", "A simple method that a result is compared with.", "head_roles", ("baselines",)),
    _everyday("batch", "The examples that a model sees together in one training step.", "train"),
    Term("beam search", "A way to decode that keeps the few most probable texts at every step, not only the best one.",
         "decode", ("beam",)),
    Term("BLEU", "A score from 0 to 100 for a translation: how many of its word sequences also occur in the reference.",
         "train"),
    Term("causal mask", "A mask under which every token attends only to itself and to earlier tokens.", "masks",
         ("causal",)),
    Term("cross-attention", "Attention whose queries come from one sequence and whose keys and values come from "
         "another, such as a translation and its source.", "why"),
    Term("d_model", "The width of a model: the count of numbers in the vector of each token.", "one_query"),
    Term("decoder", "The part of a model that writes the output, one token after another.", "transformer",
         ("decoders",)),
    Term("dot product", "Two vectors multiplied number by number and summed. It is large where they point the same "
         "way.", "scores", ("dot-product",)),
    Term("dropout", "A random share of numbers that is set to zero during training, so that a model relies on none of "
         "them alone.", "train"),
    Term("embedding", "The vector that stands for a token, before the first layer.", "transformer", ("embeddings",)),
    Term("encoder", "The part of a model that reads the whole input and gives one vector for each token.",
         "transformer", ("encoders",)),
    Term("entropy", "How evenly a row of weights is spread: 0 when one key has everything, largest when all are equal.",
         "normalizers"),
    Term("epoch", "One pass of training through all examples.", "fine_tune", ("epochs",)),
    Term("feed-forward", "The part of a Transformer layer that changes each token's vector by itself, without looking "
         "at other tokens.", "transformer"),
    Term("fine-tuning", "Training a pretrained model further, on examples of one's own task.", "fine_tune",
         ("fine-tuned", "fine-tune")),
    Term("FLOPs", "Floating-point operations: additions and multiplications. They measure work, not time.",
         "efficient"),
    Term("gradient", "How much the loss changes when a number of the model changes. Training follows it downwards.",
         "train", ("gradients",)),
    Term("greedy decoding", "A way to decode that always takes the most probable next token.", "decode", ("greedy",)),
    _everyday("head", "One attention among several that run side by side in a layer. Each has its own weights.",
              "heads"),
    Term("head dimension", "The count of numbers in a query, a key or a value of one head: d_model divided by the "
         "number of heads.", "heads", ("head size",)),
    Term("held-out", "Examples that are not used in training. They show whether a model has learned more than what it "
         "has seen.", "train"),
    _everyday("kernel", "The way in which attention is computed: exactly, in blocks, or by a cheaper formula.",
              "efficient"),
    _everyday("key", "The vector of a token that queries are compared with.", "one_query"),
    Term("KV heads", "The heads that have keys and values of their own. With fewer of them than query heads, several "
         "queries share one.", "heads", ("KV head",)),
    _everyday("L3·H1", "Head 1 of layer 3. Layers and heads are counted from 0.", "pretrained"),
    Term("layer norm", "A step that shifts and scales each token's vector to mean 0 and variance 1, which keeps "
         "training stable.", "transformer"),
    Term("learning rate", "The size of a training step. Too large a rate makes the loss jump; too small a rate makes "
         "training slow.", "train"),
    Term("linear attention", "Attention that replaces softmax by a product of features, so that work grows with the "
         "length and not with its square.", "efficient"),
    Term("local window", "A mask under which every token attends only to tokens near it.", "masks",
         ("sliding window",)),
    Term("logit", "A number that a model gives to each possible answer before softmax turns them into probabilities.",
         "generate", ("logits",)),
    Term("loss", "How wrong the predictions are, as one number. Training makes it smaller.", "train"),
    _everyday("mask", "A rule that says which keys a query may attend to. Masked keys get a weight of 0.", "masks"),
    Term("multi-head attention", "Several attentions side by side, whose outputs are joined.", "heads"),
    Term("nats", "The unit of entropy and loss with the natural logarithm. One nat is 1.44 bits.", "normalizers",
         ("nat",)),
    Term("normalizer", "The rule that turns the scores of a query into weights, such as softmax.", "normalizers",
         ("normalizers",)),
    Term("padding", "Empty tokens that make the texts of a batch equally long. A mask hides them.", "masks"),
    Term("parameters", "The numbers that a model learns.", "mechanisms"),
    Term("perplexity", "The exponential of the loss: among how many equally likely tokens the model seems to choose.",
         "train"),
    Term("position encoding", "What tells attention the order of the tokens, which it cannot see otherwise.",
         "positions", ("positional encoding", "position encodings")),
    Term("pretrained", "Trained before, usually on much text, and saved.", "pretrained"),
    Term("projection", "A product with a learned matrix that makes queries, keys or values from the vectors of the "
         "tokens.", "one_query", ("projections",)),
    Term("query", "The vector with which a token asks: it is compared with every key.", "one_query", ("queries",)),
    Term("residual connection", "The input of a block that is added to its output, so that the block only has to learn "
         "a change.", "transformer", ("residual",)),
    Term("RoPE", "Rotary position embedding: queries and keys are rotated by angles that grow with the position, so "
         "that a score depends on the distance.", "positions", ("rotary",)),
    Term("sampling", "A way to decode that draws the next token at random, by its probability.", "generate"),
    _everyday("score", "How well a query matches a key, before the normalizer turns scores into weights.", "scores"),
    Term("seed", "The number that fixes all random choices. The same seed gives the same numbers again.", "sweeps",
         ("seeds",)),
    Term("self-attention", "Attention in which queries, keys and values come from the same sequence.", "one_query"),
    Term("sequence accuracy", "The share of outputs in which every token is right.", "train"),
    Term("sink", "Extra weight in the softmax that goes to no key.", "normalizers"),
    Term("softmax", "The rule that turns scores into positive weights that sum to 1: e to the power of each score, "
         "divided by the sum.", "normalizers"),
    Term("std", "Standard deviation: how far values usually lie from their mean.", "sweeps"),
    Term("teacher forcing", "Training in which the decoder reads the right previous tokens and not its own output.",
         "train"),
    Term("temperature", "A number that scores are divided by before softmax. A small one makes the largest weight "
         "larger.", "normalizers"),
    Term("token", "A piece of text that a model reads as one: a word, a part of a word, or a sign.", "pretrained",
         ("tokens",)),
    Term("training step", "One change of the model, made from one batch.", "train", ("training steps",)),
    Term("Transformer", "A model of layers that each have attention and a feed-forward part, with residual "
         "connections.", "transformer", ("Transformers",)),
    Term("validation loss", "The loss on examples that are not used in training.", "train"),
    _everyday("value", "The vector of a token that is added to the output, times the weight of its key.", "one_query"),
    _everyday("weight", "The share of a query's attention that one key gets, from 0 to 1.", "one_query"),
)


@cache
def _pattern() -> tuple[re.Pattern[str], dict[str, Term]]:
    """What finds a marked term in a sentence, longest first, and the term of each form."""
    forms = {form: term for term in TERMS if term.marked for form in (term.name, *term.forms)}
    forms |= {form[0].upper() + form[1:]: term for form, term in list(forms.items())}
    names = sorted(forms, key=len, reverse=True)
    return re.compile(rf"(?<![\w·-])(?:{'|'.join(map(re.escape, names))})(?![\w·-])"), forms


STYLE = """<style>
abbr.term{text-decoration:underline dotted color-mix(in srgb,currentColor 50%,transparent);text-underline-offset:3px;
  cursor:help;border-radius:2px}
p:has(>abbr.term:focus){position:relative}
abbr.term:focus-visible{outline:2px solid var(--st-primary-color,currentColor);outline-offset:2px}
abbr.term:focus::after{content:attr(title);position:absolute;left:0;top:calc(100% + 4px);z-index:20;
  width:max-content;max-width:min(100%,420px);box-sizing:border-box;padding:6px 10px;border-radius:6px;
  background:#1b2330;color:#fff;font:400 14px/20px 'Source Sans',sans-serif;box-shadow:0 2px 8px rgb(0 0 0 / 25%)}
</style>"""


def explain(text: str, seen: set[str]) -> str:
    """The text as HTML in which the first use of each term carries its explanation; `seen` are terms used before."""
    pattern, forms = _pattern()
    parts, end = [], 0
    for match in pattern.finditer(text):
        term = forms[match.group()]
        if term.name in seen:
            continue
        seen.add(term.name)
        parts += [escape(text[end:match.start()], quote=False), _term_html(term, match.group())]
        end = match.end()
    return "".join([*parts, escape(text[end:], quote=False)])


def _term_html(term: Term, text: str) -> str:
    return f'<abbr class="term" tabindex="0" title="{escape(term.text)}">{escape(text)}</abbr>'
