"""The words of the field that the pages use: what each means, and the page on which it can be seen."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
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


TERMS: tuple[Term, ...] = (
    Term(
        "[CLS]",
        "A token that some models put before every text. A model can be trained so that its last vector "
        "represents the whole text.",
        "pretrained",
    ),
    Term(
        "ablation",
        "Taking a part out of a model, such as a head, to measure what the answer loses without it.",
        "evidence",
        ("ablations",),
    ),
    Term("accuracy", "The share of predictions that are right.", "train"),
    Term(
        "ALiBi",
        "A position encoding that subtracts from each score a penalty that grows with the distance between "
        "query and key.",
        "positions",
    ),
    Term(
        "attention",
        "A step in which every token takes a weighted average of the values of its own text or of "
        "another one. The weights are computed from the tokens themselves.",
        "why",
    ),
    Term(
        "attention map",
        "The weights of one head as a table: one row for each query, one column for each key.",
        "heads",
        ("attention maps",),
    ),
    Term(
        "attention over depth",
        "In place of the residual connection: at each sublayer a token attends to the outputs of all sublayers "
        "before it, with one learned query.",
        "train",
    ),
    Term(
        "baseline", "A simple method that a result is compared with.", "head_roles", ("baselines",)
    ),
    Term(
        "batch",
        "The examples that a model sees together in one training step.",
        "train",
        marked=False,
    ),
    Term(
        "beam search",
        "A way to decode that keeps the few most probable texts at every step, not only the best one.",
        "decode",
        ("beam",),
    ),
    Term(
        "BLEU",
        "A score from 0 to 100 for a translation: how many of its word sequences also occur in the reference.",
        "why",
    ),
    Term(
        "cache",
        "The keys and values of earlier tokens, which a decoder stores so that it need not compute them "
        "again.",
        "cache",
        marked=False,
    ),
    Term(
        "causal mask",
        "A mask under which every token attends only to itself and to earlier tokens.",
        "masks",
        ("causal",),
    ),
    Term(
        "copying score",
        "Whether attending to tokens raises their own logits (1) or lowers them (−1), by a head's "
        "weights alone.",
        "circuits",
    ),
    Term(
        "cross-attention",
        "Attention whose queries come from one sequence and whose keys and values come from "
        "another, such as a translation and its source.",
        "why",
    ),
    Term(
        "d_model",
        "The width of a model: the count of numbers in the vector of each token.",
        "one_query",
    ),
    Term(
        "decile",
        "One of the nine values that divide sorted numbers into ten parts of equal size.",
        "corpus",
        ("deciles",),
    ),
    Term(
        "decoder",
        "The part of a model that writes the output, one token after another.",
        "transformer",
        ("decoders",),
    ),
    Term(
        "direct logit attribution",
        "A logit as a sum of what each part of a model adds to it on its direct way to the output.",
        "lens",
    ),
    Term(
        "dot product",
        "Two vectors multiplied number by number and summed. It is large where they point the same "
        "way.",
        "scores",
        ("dot-product",),
    ),
    Term(
        "dropout",
        "A random share of numbers is set to zero in each training step, so that a model does not depend "
        "on a few of them.",
        "train",
    ),
    Term(
        "effective rank",
        "How many directions a matrix uses, if all that it uses count equally.",
        "circuits",
    ),
    Term(
        "embedding",
        "The vector that represents a token before the first layer.",
        "transformer",
        ("embeddings",),
    ),
    Term(
        "encoder",
        "The part of a model that reads the whole input and gives one vector for each token. Without "
        "attention, a decoder gets only the last of them.",
        "transformer",
        ("encoders",),
    ),
    Term(
        "entropy",
        "How evenly a row of weights is spread: 0 when one key has everything, largest when all are equal.",
        "normalizers",
    ),
    Term("epoch", "One pass of training through all examples.", "fine_tune", ("epochs",)),
    Term(
        "experts",
        "Feed-forward layers side by side, of which each token uses a few. The others are "
        "parameters, too.",
        "cards",
        ("expert",),
    ),
    Term(
        "feed-forward",
        "The part of a Transformer layer that changes the vector of each token without using other "
        "tokens.",
        "transformer",
    ),
    Term(
        "fine-tuning",
        "Training a pretrained model further, on examples of a new task.",
        "fine_tune",
        ("fine-tuned", "fine-tune"),
    ),
    Term(
        "FLOPs",
        "Floating-point operations: additions and multiplications. They measure work, not time.",
        "efficient",
    ),
    Term(
        "gradient",
        "How much the loss changes when a number of the model changes. Training follows it downwards.",
        "train",
        ("gradients",),
    ),
    Term(
        "greedy decoding",
        "A way to decode that always takes the most probable next token.",
        "decode",
        ("greedy",),
    ),
    Term(
        "GRU",
        "Gated recurrent unit: a recurrent cell that reads a sequence word by word and changes one vector, its state, "
        "by two gates.",
        "why",
        ("GRUs",),
    ),
    Term(
        "head",
        "One of several attentions in a layer. Each has its own weights.",
        "heads",
        marked=False,
    ),
    Term(
        "head dimension",
        "The count of numbers in a query, a key or a value of one head: d_model divided by the "
        "number of heads, unless a model sets it.",
        "heads",
        ("head size",),
    ),
    Term(
        "held-out",
        "Examples that are not used in training. They show how well a model works on new data.",
        "train",
    ),
    Term(
        "hyper-connections",
        "In place of the residual connection: each token carries several sums of all outputs so far (streams), and "
        "computes how they mix and what is read of each.",
        "train",
        ("hyper-connection",),
    ),
    Term(
        "K-composition",
        "How much a head's keys read of what an earlier head writes. Q- and V-composition are the "
        "same for queries and values.",
        "circuits",
        ("Q-composition", "V-composition"),
    ),
    Term(
        "kernel",
        "The way in which attention is computed: exactly, in blocks, or by a cheaper formula.",
        "efficient",
        marked=False,
    ),
    Term(
        "Kendall's τ",
        "How far two rankings agree: 1 when they are the same, 0 without relation, −1 when one is reversed.",
        "evidence",
        ("Kendall’s τ",),
        marked=False,  # the page that uses it explains it
    ),
    Term("key", "The vector of a token that queries are compared with.", "one_query", marked=False),
    Term(
        "KV heads",
        "The heads of keys and values. With fewer of them than query heads, several query heads share "
        "one.",
        "heads",
        ("KV head",),
    ),
    Term(
        "L3·H1",
        "Head 1 of layer 3. Layers and heads are counted from 0.",
        "pretrained",
        marked=False,
    ),
    Term(
        "layer norm",
        "A step that shifts and scales each token's vector to mean 0 and variance 1, which keeps "
        "training stable.",
        "transformer",
    ),
    Term(
        "learning rate",
        "The size of a training step. Too large a rate makes the loss jump; too small a rate makes "
        "training slow.",
        "train",
    ),
    Term(
        "linear attention",
        "Attention that replaces softmax by a product of features, so that work grows with the "
        "length and not with its square.",
        "efficient",
    ),
    Term(
        "local window",
        "A mask under which every token attends only to tokens near it.",
        "masks",
        ("sliding window",),
    ),
    Term(
        "logit",
        "A number that a model gives to each possible answer before softmax turns them into probabilities.",
        "generate",
        ("logits",),
    ),
    Term(
        "logit lens",
        "Each layer's output read as if it were the last one's, which gives the answer that the model "
        "would give there.",
        "lens",
    ),
    Term(
        "loss", "How wrong the predictions are, as one number. Training makes it smaller.", "train"
    ),
    Term(
        "mask",
        "A rule that says which keys a query may attend to. Masked keys get a weight of 0.",
        "masks",
        marked=False,
    ),
    Term(
        "multi-head attention",
        "Several attentions in one layer, the heads, whose outputs are joined.",
        "heads",
    ),
    Term(
        "nats",
        "The unit of entropy and loss with the natural logarithm. One nat is 1.44 bits.",
        "normalizers",
        ("nat",),
    ),
    Term(
        "normalizer",
        "The rule that turns the scores of a query into weights, such as softmax.",
        "normalizers",
        ("normalizers",),
    ),
    Term(
        "OV circuit",
        "The product of a head's value and output matrices: what attending to a token adds to the "
        "output.",
        "circuits",
    ),
    Term(
        "padding",
        "Empty tokens that make the texts of a batch equally long. A mask hides them.",
        "masks",
    ),
    Term("parameters", "The numbers that a model learns.", "mechanisms"),
    Term(
        "perplexity",
        "The exponential of the loss: among how many equally likely tokens the model seems to choose.",
        "train",
    ),
    Term(
        "position encoding",
        "What gives attention the order of the tokens, which it ignores otherwise.",
        "positions",
        ("positional encoding", "position encodings"),
    ),
    Term(
        "prefill",
        "The first step of decoding: the whole prompt is read at once, and its keys and values are stored.",
        "cache",
    ),
    Term("pretrained", "Trained before, usually on much text, and saved.", "pretrained"),
    Term(
        "projection",
        "A product with a learned matrix that makes queries, keys or values from the vectors of the "
        "tokens.",
        "one_query",
        ("projections",),
    ),
    Term(
        "QK circuit",
        "The product of a head's query and key matrices: which queries match which keys.",
        "circuits",
    ),
    Term(
        "query", "The vector of a token that is compared with every key.", "one_query", ("queries",)
    ),
    Term(
        "residual connection",
        "The input of a block that is added to its output, so that the block only has to learn "
        "a change.",
        "transformer",
        ("residual",),
    ),
    Term(
        "RoPE",
        "Rotary position embedding: queries and keys are rotated by angles that grow with the position, so "
        "that positions enter a score only through their distance.",
        "positions",
        ("rotary",),
    ),
    Term(
        "sampling",
        "A way to decode that draws the next token at random, by its probability.",
        "generate",
    ),
    Term(
        "scaled score",
        "A score divided by √D, with what a position adds. The normalizer turns the scaled scores of a query into "
        "weights.",
        "one_query",
        ("scaled scores",),
    ),
    Term(
        "score",
        "How well a query matches a key, such as their dot product.",
        "scores",
        marked=False,
    ),
    Term(
        "seed",
        "The number that fixes all random choices. The same seed gives the same numbers again.",
        "sweeps",
        ("seeds",),
    ),
    Term(
        "self-attention",
        "Attention in which queries, keys and values come from the same sequence.",
        "one_query",
    ),
    Term("sequence accuracy", "The share of outputs in which every token is right.", "train"),
    Term(
        "singular values",
        "How much a matrix stretches each of its own directions, largest first.",
        "circuits",
    ),
    Term(
        "sink",
        "A key that gets much weight from almost every query, such as the first token. In some normalizers, "
        "an extra score that belongs to no key.",
        "normalizers",
    ),
    Term(
        "softmax",
        "The rule that turns scores into positive weights that sum to 1: e to the power of each score, "
        "divided by the sum.",
        "normalizers",
    ),
    Term(
        "state layer",
        "A layer without softmax, as Mamba or a gated delta rule: a state of fixed size replaces the keys and values of all "
        "tokens. Its matrix may have negative weights.",
        "pretrained",
        ("state layers",),
    ),
    Term("std", "Standard deviation: how far values usually lie from their mean.", "sweeps"),
    Term(
        "teacher forcing",
        "Training in which the decoder reads the correct previous tokens instead of its own "
        "output.",
        "train",
    ),
    Term(
        "temperature",
        "A number that scores are divided by before softmax. A small one makes the largest weight "
        "larger.",
        "normalizers",
    ),
    Term(
        "token",
        "A piece of text that a model reads as one: a word, a part of a word, or a punctuation mark.",
        "pretrained",
        ("tokens",),
    ),
    Term(
        "training step",
        "One change of the model, made from one batch.",
        "train",
        ("training steps",),
    ),
    Term(
        "Transformer",
        "A model of layers that each have attention and a feed-forward part, with residual "
        "connections.",
        "transformer",
        ("Transformers",),
    ),
    Term(
        "unembedding",
        "The last matrix of a language model, which gives each token of the vocabulary its logit.",
        "circuits",
    ),
    Term(
        "uniform attention",
        "Attention with the same weight for every key. Other weights are compared with it.",
        "pretrained",
        ("uniform weights",),
    ),
    Term("validation loss", "The loss on examples that are not used in training.", "train"),
    Term(
        "value",
        "The vector of a token that is added to the output, times the weight of its key.",
        "one_query",
        marked=False,
    ),
    Term(
        "weight",
        "The share, from 0 to 1, that a query takes from one key.",
        "one_query",
        marked=False,
    ),
)


@cache
def _pattern() -> tuple[re.Pattern[str], dict[str, Term]]:
    forms = {form: term for term in TERMS if term.marked for form in (term.name, *term.forms)}
    forms |= {form[0].upper() + form[1:]: term for form, term in list(forms.items())}
    names = sorted(forms, key=len, reverse=True)
    return re.compile(rf"(?<![\w·-])(?:{'|'.join(map(re.escape, names))})(?![\w·-])"), forms


# The explanation stands above its term, where no control is, or below it where the header (60 px) is; what it covers
# can still be pressed. A screen reader hears it as the description alone: "" is the text of the content for it.
STYLE = """<style>
abbr.term{text-decoration:underline dotted color-mix(in srgb,currentColor 50%,transparent);text-underline-offset:3px;
  cursor:help;border-radius:2px}
abbr.term:focus-visible{outline:2px solid var(--st-primary-color,currentColor);outline-offset:2px}
:is(p,li,td,th):has(abbr.term:is(:hover,:focus-visible)){position:relative}
[data-testid=stCaptionContainer]:has(abbr.term:is(:hover,:focus-visible)){opacity:1}
abbr.term:is(:hover,:focus-visible){anchor-name:--term;anchor-scope:--term}
abbr.term:is(:hover,:focus-visible)::after{content:attr(aria-description)/"";position:absolute;left:0;
  bottom:calc(100% + 4px);z-index:20;width:max-content;max-width:min(100%,420px);box-sizing:border-box;padding:6px 10px;
  border-radius:6px;background:#1b2330;color:#fff;font:400 14px/20px 'Source Sans',sans-serif;pointer-events:none;
  white-space:normal;text-align:left;box-shadow:0 2px 8px rgb(0 0 0 / 25%)}
@supports (anchor-name:--term){abbr.term:is(:hover,:focus-visible)::after{position:fixed;position-anchor:--term;
  max-width:min(100vw - 32px,420px);left:max(16px,min(anchor(left),100vw - 436px));bottom:calc(anchor(top) + 4px);
  margin-top:60px;position-try-fallbacks:--below}}
@position-try --below{bottom:auto;top:calc(anchor(bottom) + 4px);margin-top:0}
abbr.term:hover::after{animation:term .3s}
@keyframes term{from,to{visibility:hidden}}
</style>"""


_html = partial(escape, quote=False)


def explain(text: str, seen: set[str], clean: Callable[[str], str] = _html) -> str:
    """The text as HTML in which the first use of each term carries its explanation.

    `seen` are terms used before; `clean` makes HTML of the text between terms.
    """
    pattern, forms = _pattern()
    parts, end = [], 0
    for match in pattern.finditer(text):
        term = forms[match.group()]
        if term.name in seen:
            continue
        seen.add(term.name)
        parts += [
            clean(text[end : match.start()]),
            f'<abbr class="term" tabindex="0" aria-description="{escape(term.text)}">'
            f"{escape(match.group())}</abbr>",
        ]
        end = match.end()
    return "".join([*parts, clean(text[end:])])


# What Markdown shows unchanged: code, LaTeX, the address of a link, an escaped sign.
_LITERAL = re.compile(r"(`[^`]*`|\$[^$]*\$|\]\([^)]*\)?|\\.)")


def explain_markdown(text: str) -> str:
    """The Markdown with HTML in which the first use of each term carries its explanation, and all else is escaped.

    What Markdown shows unchanged has no `<` that it might take for a tag should it read the part anew.
    """
    seen: set[str] = set()
    parts = _LITERAL.split(re.sub(r"(?<=\w)\\-(?=\w)", "-", text))
    parts[::2] = [
        # a > may begin a quotation
        explain(part, seen, lambda text: text.replace("&", "&amp;").replace("<", "&lt;"))
        for part in parts[::2]
    ]
    parts[1::2] = [
        part.replace("<", {"$": r"\lt ", "]": "%3C"}.get(part[0], "<")) for part in parts[1::2]
    ]
    return "".join(parts)


def find_terms(text: str) -> list[Term]:
    pattern, forms = _pattern()
    return list(dict.fromkeys(forms[match.group()] for match in pattern.finditer(text)))


def terms_help(label: str) -> str | None:
    return "  \n".join(f"**{term.name}**: {term.text}" for term in find_terms(label)) or None


def matching(typed: str) -> list[Term]:
    """The terms that contain a text, by name: first the one of that name, then those whose name contains it.

    A hyphen is read as a space.
    """
    text = typed.strip().lower().replace("-", " ")
    names = {term: term.name.lower().replace("-", " ") for term in TERMS}
    return sorted(
        (term for term in TERMS if text in f"{term.name} {term.text}".lower().replace("-", " ")),
        key=lambda term: (names[term] != text, text not in names[term], names[term].lstrip("[")),
    )


# The formula of attention with the words for its parts
FORMULA = (
    r"\underbrace{\text{softmax}\Big(\frac{\overbrace{q\,k^\top}^{\text{query and key: a score}}}"
    r"{\sqrt{D}\;\text{(head size)}}\Big)}_{\text{attention weights}}\;"
    r"\underbrace{v}_{\text{values}}"
)
