"""The page's sentences and tables, from the numbers on the page."""

from __future__ import annotations

from collections.abc import Sequence

from core.cards.cache_sizes import FORMS, PublishedModel, Step, cache_bytes, intensity
from dashboard.charts.numbers import byte_size, duration, number, operations, percent
from dashboard.views.cache.compute import Decoding
from dashboard.views.cache.decoding import Pair
from dashboard.views.cache.paging import Paging
from dashboard.widgets.panels import plain

HEAD = ("stored as", "a token", "8k tokens", "128k tokens", "of multi-head", "FLOPs a byte")
SHORT, LONG = 8192, 131072


def plural(count: int, word: str) -> str:
    """1 sequence, 2 sequences."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def step_fact(decoding: Decoding, step: int) -> str:
    """What the layer computes and reads at a step, and what it would compute without a cache."""
    counts, last = decoding.counts[step], plain(decoding.tokens[decoding.last(step)])
    if step == 0:
        return (f"Prefill reads the prompt at once: the layer computes **{counts.computed['q']} queries, keys and "
                "values** and stores the keys and values. It reads nothing, as nothing is stored yet.")
    vectors = ", ".join(f"{count} {name}" for name, count in zip(
        ("query", "key"), (counts.computed["q"], counts.computed["k"]), strict=True))
    return (f"At step {step} the layer computes **{vectors} and {counts.computed['v']} value**, for “{last}”, and "
            f"reads {counts.read} stored keys and values; without a cache it would compute {counts.without} of each. "
            "No query is stored: only its own token reads it.")


def step_note(decoding: Decoding, step: int, head: tuple[int, int]) -> str:
    """The conditions of the picture."""
    unknown = f" Not in the vocabulary, read as unknown: {', '.join(decoding.unknown)}." if decoding.unknown else ""
    last = plain(decoding.tokens[decoding.last(step)])
    return (f"Each strip is a vector of 16 numbers of head L{head[0]}·H{head[1]} of the lab's trained decoder, purple "
            "below 0 and green above; k and v as the cache holds them. In this model two query heads share one head of "
            f"keys and values. The last column is the weight that “{last}” gives to each token.{plain(unknown)}")


def race_fact(pair: Pair, count: int, name: str) -> str:
    """Whether the tokens are equal, how long each way took, and how many tokens were computed."""
    cached, whole = sum(pair.cached.seconds[:count]), sum(pair.whole.seconds[:count])
    same = "the same tokens" if pair.same(count) else "**different tokens**"
    return (f"Both ways write {same}, {count} of them. With the cache it takes **{duration(cached)}**, without it "
            f"**{duration(whole)}**, {number(pair.ratio(count))} times as long. Each layer computes q, k and v of "
            f"{sum(pair.cached.computed[:count]):,} tokens with it, of {sum(pair.whole.computed[:count]):,} without.")


def race_note(pair: Pair, count: int, where: str, words: str) -> str:
    """How it was measured, the last step both ways, and what was written."""
    ways = [(each.computed[count - 1], duration(each.seconds[count - 1])) for each in (pair.cached, pair.whole)]
    return (f"{where} The first step reads the prompt, the same work both ways. Step {count} computes {ways[0][0]} "
            f"token with the cache, in {ways[0][1]}, and {ways[1][0]} tokens without it, in {ways[1][1]}: a machine "
            f"computes many tokens at once, so that the time grows less than the tokens do. Written: {plain(words)}")


def size_rows(model: PublishedModel, number_bytes: int) -> list[list[str]]:
    """A row a form: bytes a token and at two lengths, the share of multi-head's, and FLOPs a byte."""
    full = cache_bytes(model, FORMS["multi_head"], LONG, number_bytes)
    rows = []
    for form in FORMS.values():
        sizes = [cache_bytes(model, form, length, number_bytes) for length in (1, SHORT, LONG)]
        token = "–" if form.state else byte_size(sizes[0])
        rows.append([form.name, token, *map(byte_size, sizes[1:]), percent(sizes[2] / full),
                     number(intensity(model, form, LONG, number_bytes))])
    return rows


def size_fact(model: PublishedModel, number_bytes: int) -> str:
    """The bytes a token of the model's own cache, beside another form's."""
    own, other = FORMS[model.form], FORMS["multi_head" if model.form != "multi_head" else "grouped_query"]
    sizes = [cache_bytes(model, form, 1, number_bytes) for form in (own, other)]
    long = cache_bytes(model, own, LONG, number_bytes)
    return (f"{model.name.partition(',')[0]} stores **{sizes[0]:,} bytes** for each token ({own.name.lower()}), "
            f"{byte_size(long)} at {LONG:,} tokens; {other.name.lower()} would store {sizes[1]:,} for each.")


def size_note(model: PublishedModel, number_bytes: int) -> str:
    """The sizes that the numbers come from."""
    return (f"{model.layers} layers of {model.heads} heads of {model.head_dim} numbers, {number_bytes} bytes each. "
            f"Published with {model.kv_heads if model.form != 'latent' else 'latent vectors instead of'} KV heads. "
            "Calculated: numbers a token, times layers, times bytes; no model is built. Both axes are logarithmic. The "
            "last column divides the operations of attention for one new token by the bytes of cache that it reads.")


def bound_fact(model: PublishedModel, step: Step, length: int, batch: int, machine: float) -> str:
    """Which of memory and computing bounds a decoding step, and the numbers behind it."""
    reads = byte_size(step.weight_bytes + step.cache_bytes)
    memory = step.bound == "memory"
    why = "more" if memory else "fewer"
    return (f"**{'Memory' if memory else 'Computing'} bounds decoding** at {length:,} tokens and "
            f"{plural(batch, 'sequence')}: a step does {operations(step.flops)}FLOPs and reads {reads}, "
            f"{number(step.intensity)} FLOPs a byte. The machine does {number(machine)} in the time in which it reads "
            f"one byte, which is {why}. Reading takes {duration(step.reading)}, computing {duration(step.computing)}.")


def bound_note(model: PublishedModel, step: Step) -> str:
    """What is read."""
    total = step.weight_bytes + step.cache_bytes
    experts = " It has experts: a step reads at most those that its tokens use." if model.active else ""
    return (f"{percent(step.cache_bytes / total)} of what a step reads is the cache, the rest the parameters. All "
            "sequences share the parameters, so more sequences give more FLOPs a byte of them; each has its own cache, "
            f"whose FLOPs a byte stay the same.{experts} Calculated, as if reading and computing were perfect.")


def paging_fact(paging: Paging, token_bytes: int) -> str:
    """The share of empty places in pages and in reserved room, and the bytes between the two."""
    fewer = paging.reserved - paging.paged
    return (f"{paging.used:,} tokens take {plural(len(paging.pages), 'page')} of {paging.size}: "
            f"**{percent(paging.wasted(paging.paged))}** of their places are empty. With room for the longest reserved "
            f"for each, **{percent(paging.wasted(paging.reserved))}** would be: pages take "
            f"{byte_size(abs(fewer) * token_bytes)} {'less' if fewer >= 0 else 'more'}.")


def lengths_note(lengths: Sequence[int], size: int) -> str:
    """How the drawing is read."""
    return (f"Each square holds {size} tokens; its filled part holds keys and values. Left, in the order of the "
            "sequences, with room for the longest; right, in the order of memory: a sequence takes a new page only "
            "when its last one is full, and a table tells which pages are its own.")
