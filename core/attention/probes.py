"""check: whether a function or a layer is the attention that its author means, found by probes from outside.

Attention is linear in its values, so identity values give the very weights of any function of q, k and v, without a look
into its code. The probes ask what the usual faults change: a masked key that is felt, a later token that is felt, scores
that spread with the head size, a rotation that depends on the place itself, a bias with the wrong sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from core.attention.base import Steps, repeat_heads
from core.attention.config import AXES, AttentionConfig, example_config
from core.attention.decoding import Cache
from core.attention.layer import Attention
from core.attention.subjects import (
    FORMS,
    SEED,
    Form,
    Heads,
    Recorder,
    Subject,
    T,
    Tokens,
    name_of,
    of_heads,
    of_tokens,
    tried,
    undisturbed,
    why_failed,
)
from core.entries import Choice, ConfigError, Entry, refuse_if
from core.plugins import describe

SIZES = 16, 256  # of heads, between which the spread of scores is compared
HIDDEN = [1, 4, 5]  # keys that a mask hides
VISIBLE = (~torch.isin(torch.arange(T), torch.tensor(HIDDEN))).expand(T, T)
SMALL = 1e-5  # of the largest weight: what is less is none
PARTS = 4, 1, 1, 3  # of T tokens, one after another with a cache
NO_MASK = f"it takes none of {', '.join(FORMS)}"

Level = Literal["fault", "warning", "property"]


@dataclass(frozen=True, eq=False)
class Finding:
    """What a probe found: a sentence with cause and numbers, and two maps (T, S), theirs and what would be right.

    A `fault` is wrong whatever the author means; a `warning` is wrong unless it is meant; a `property` is a choice.
    """

    probe: str
    level: Level
    text: str
    got: Float[Tensor, "T S"] | None = None
    expected: Float[Tensor, "T S"] | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Findings:
    """All that a check found, and the probes that could not be tried, each with the reason."""

    kind: str
    all: tuple[Finding, ...]
    untried: dict[str, str]

    @property
    def faults(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.all if one.level == "fault")

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """The faults and the warnings."""
        return tuple(one for one in self.all if one.level != "property")

    def __repr__(self) -> str:
        lines = [f"{one.level}: {one.text}" for one in self.all]
        for why in dict.fromkeys(self.untried.values()):
            names = ", ".join(name for name, reason in self.untried.items() if reason == why)
            lines.append(f"not tried: {names} ({why.rstrip('.')})")
        count = len(self.faults)
        return "\n".join([f"{self.kind}: {count or 'no'} fault{'s'[: count != 1]}", *lines])


def check(
    thing: Any, *, causal: bool | None = None, heads: int = 3, x: Tensor | None = None
) -> Findings:
    """Whether `thing` is attention as its author means it: each usual fault by its cause, with numbers and two maps.

    `thing` is f(q, k, v, …) to (B, H, T, D), an nn.Module of x (B, T, C), a score_mod or mask_mod of flex_attention, a
    function of transformers' AttentionInterface, or a layer, a config or a registered Entry of this lab. `causal` says
    whether no later token may be felt; None: either. `heads` is the H of q, k, v, and `x` an example input of a module
    whose width cannot be seen. Modules are called in eval mode. ConfigError for anything else, or what cannot run.
    """
    if isinstance(thing, Entry):
        axis = next((axis for axis, entries in AXES.items() if thing in entries), "")
        refuse_if(not axis, f"{thing.key} is on no axis yet; register it, which checks it.")
        thing = example_config(axis, thing.key, 24, 3)
    with undisturbed(thing, SEED):
        if isinstance(thing, AttentionConfig):
            thing = Attention(thing, add_positions=True).eval()
        return _checked(thing, _subjects(thing, heads, x), causal)


def _subjects(thing: Any, heads: int, x: Tensor | None) -> list[Subject]:
    """The thing as a function of heads, or as one of tokens; a layer of this lab is both."""
    if not isinstance(thing, nn.Module):
        return [tried(thing, of_heads(thing, heads))]
    subjects: list[Subject] = []
    with suppress(ConfigError):  # where its q, k and v are tokens, as of nn.MultiheadAttention
        subjects.append(tried(thing, of_heads(thing, heads)))
    if not subjects or isinstance(thing, Attention):
        subjects.append(of_tokens(thing, x))
    return subjects


def _checked(thing: Any, subjects: list[Subject], causal: bool | None) -> Findings:
    findings: dict[str, Finding] = {}
    untried: dict[str, str] = {}
    for subject in subjects:
        subject = replace(subject, forms=_fitting(subject), meant=causal)
        for name in OF_TOKENS if isinstance(subject, Tokens) else PROBES:
            try:
                for finding in PROBES[name](subject):
                    findings.setdefault(finding.probe, finding)
            except Exception as error:
                untried.setdefault(name, why_failed(error))
            if name in STOPS and any(
                one.level == "fault" or one.probe == "values" for one in findings.values()
            ):
                break  # what follows would be measured on noise
    if isinstance(thing, Attention):
        findings |= {finding.text: finding for finding in _parts(thing)}
    return Findings(f"{name_of(thing)}, {subjects[0].kind}", tuple(findings.values()), untried)


def _fitting(subject: Subject) -> tuple[Form, ...]:
    """The form of a mask that it takes: the first that hides and shows, else the first that it runs with."""
    runs: list[tuple[float, Form]] = []
    for form in subject.forms:
        with suppress(Exception):  # another form may run
            map = replace(subject, forms=(form,)).map(VISIBLE)[..., VISIBLE[0], :]
            runs.append((_peak(map[..., HIDDEN]) if map[..., 1:, 0].any() else torch.inf, form))
    runs.sort(key=lambda run: not run[0] < SMALL)
    return tuple(form for _, form in runs) or subject.forms


# The probes. Each yields what it found; an error that it meets is why it could not be tried.

Case = tuple[object, str, Level, str]


def _first(
    *cases: Case, got: Tensor | None = None, expected: Tensor | None = None
) -> Iterator[Finding]:
    """The first case that applies: probe, level and text."""
    for applies, probe, level, text in cases:
        if applies:
            yield Finding(probe, level, text, got, expected)
            return


def _plain(q: Tensor, k: Tensor, seen: Tensor | None = None) -> Tensor:
    """The map of softmax(q kᵀ / √D) of the first head, of the cells that are seen."""
    scores = q[0, 0] @ k[0, 0].mT * q.shape[-1] ** -0.5
    scores = scores if seen is None else scores.masked_fill(~seen, -torch.inf)
    return scores.softmax(-1).nan_to_num(0.0)


def _same(one: Tensor, other: Tensor, tolerance: float = 1e-4) -> bool:
    return torch.allclose(one, other, tolerance, tolerance * float(other.abs().amax()))


def _peak(x: Tensor) -> float:
    """The largest size of a number; 0 of none."""
    return float(x.abs().max()) if x.numel() else 0.0


def _repeatable(subject: Subject) -> Iterator[Finding]:
    one, other = (subject(*subject.draw()) for _ in range(2))
    return _first(
        (
            not _same(one, other),
            "repeatable",
            "fault",
            f"Two calls on the same numbers differ by up to {_peak(one - other):.2g}: dropout is on in eval mode, or "
            "something else draws random numbers.",
        )
    )


def _rows(subject: Subject) -> Iterator[Finding]:
    """Over what weights sum to 1; those of a module are the results of its softmaxes between tokens."""
    right: Tensor | None = None
    if isinstance(subject, Heads):
        maps = [subject.map()]
        q, k, _ = subject.draw()
        right = _plain(q, k, maps[0][0, 0] != 0)
    else:
        with Recorder() as recorder:
            subject(*subject.draw())
        softmaxes = [x for name, x in recorder.results if name == "softmax"]
        maps = [x.view(-1, *x.shape[-3:]) for x in softmaxes if x.shape[-2:] == (T, T)]
    for weights in maps:
        sums = weights.sum(-1)
        wrong = ((sums - 1).abs().minimum(sums.abs()) > 1e-3).any()  # 0 of a query that sees no key
        text = f"The weights of a query sum to {float(sums.min()):.2f} … {float(sums.max()):.2f}"
        cases: list[Case] = [
            (
                wrong and _same(weights.sum(dim), torch.ones(1), 1e-3),
                "rows",
                "fault",
                f"{text}; over {name} they sum to 1: the softmax is over the wrong dimension; take dim=-1, the keys.",
            )
            for dim, name in ((-2, "queries"), (1, "heads"), (0, "sequences"))
        ]
        yield from _first(
            *cases,
            (wrong, "rows", "property", f"{text}, not to 1."),
            got=weights[0, 0],
            expected=right,
        )


def _sequences(subject: Subject) -> Iterator[Finding]:
    """What one query, or another sequence, changes of the output of others."""
    given = subject.draw()
    before = subject(*given)
    mixed = _peak((subject(*(torch.cat((x[:1], x[1:] + 1)) for x in given)) - before)[0])
    where = "as by a view where a transpose belongs."
    yield from _first(
        (
            mixed > 1e-4,
            "sequences",
            "fault",
            f"Another sequence of the batch changes the output, by up to {mixed:.2g}: sequences are mixed, {where}",
        )
    )
    if isinstance(subject, Tokens):
        return
    q, k, v = given
    other = q.clone()
    other[0, 0, 2] += 1
    changed = (subject(other, k, v) - before)[0].abs().amax(-1)
    others = _peak(changed[:, torch.arange(T) != 2])
    yield from _first(
        (
            others > 1e-4 > _peak(changed[:, 2]),
            "sequences",
            "fault",
            f"A query changes not its own output but that of others, by up to {others:.2g}: heads and tokens are mixed, "
            f"{where}",
        ),
        (
            others > 1e-4,
            "sequences",
            "property",
            "A query changes the rows of others, as a convolution over queries does.",
        ),
        (
            _peak(changed[1:, 2]) > 1e-4,
            "sequences",
            "property",
            "A head's query changes other heads: their scores or weights are mixed.",
        ),
    )


def _values(subject: Heads) -> Iterator[Finding]:
    """The output is weights · v, which all maps below rely on."""
    q, k, v = subject.draw()
    one = torch.eye(1, v.shape[-1]).expand_as(v)  # the same at all keys
    weights = subject.map()
    added, out, channels = (subject(q, k, x) for x in (0 * v, v, one))
    same = _same(out - added, weights @ repeat_heads(v, weights.shape[1]), 1e-3)
    turned = F.normalize(channels - added, dim=-1)
    leaks = _peak((turned - turned[:, :, -1:])[..., 1:])
    return _first(
        (
            not same and leaks > 1e-2,
            "values",
            "fault",
            f"A value that is the same at all keys comes out in another direction at each query (by up to {leaks:.2f}): "
            "values are rotated, or moved between heads and tokens by a view without a transpose; rotate q and k alone.",
        ),
        (
            not same,
            "values",
            "property",
            "The output is not weights · v of one weight a key: values, or the output, are changed on their way. No map "
            "can be read.",
        ),
        (
            _peak(added) > 1e-4,
            "added",
            "property",
            "Something is added to weights · v, as relative values are.",
        ),
    )


def _later(subject: Subject) -> Iterator[Finding]:
    """What is felt of later tokens: as the function is, and with its flag for a causal mask."""
    ahead = torch.arange(T) - torch.arange(T)[:, None]  # j − i
    for flag in (False, True)[: 1 + subject.causal]:
        meant = flag or (None if subject.causal else subject.meant)
        level: Level = "fault" if meant else "warning"
        felt = subject.map(causal=flag).abs().amax((0, 1))
        seen = felt > SMALL * felt.max()
        later, earlier = felt[ahead > 0], felt[ahead < 0]
        reach, most = int((ahead * seen).max()), f"up to {_peak(later):.2g}"
        band = torch.equal(seen, ahead <= reach)
        though = f"Later tokens are felt, with a {'weight' if isinstance(subject, Heads) else 'change'} {most}, though causal"
        yield from _first(
            (
                not seen[ahead != 0].any(),
                "later tokens",
                "warning",
                "No other token is felt"
                + (
                    "."
                    if isinstance(subject, Heads)
                    else ", as where an output projection begins at 0."
                ),
            ),
            (
                not seen[1:][ahead[1:] >= 0].any(),  # the first query then sees none, or all alike
                "itself",
                level,
                "No query sees its own token, only earlier ones: the diagonal of the causal mask is −1; take 0.",
            ),
            (
                not seen[ahead > 0].any() and meant is False,
                "later tokens",
                "warning",
                "No later token is felt, though causal = False.",
            ),
            (
                not seen[ahead > 0].any(),
                "later tokens",
                "property",
                f"{'With its flag for it' if flag else 'As it is'} it is causal: no later token is felt.",
            ),
            (
                not seen[ahead < 0].any(),
                "later tokens",
                level,
                "Only later tokens are felt, no earlier one: the causal mask is inverted.",
            ),
            (
                band and reach < T - 1,
                "later tokens",
                level,
                f"A query feels the next {'token' if reach == 1 else f'{reach} tokens'}, by {most}: the diagonal of the "
                f"causal mask is {reach}; take 0.",
            ),
            (
                meant and _peak(later) < 1e-2 * float(earlier.mean()),
                "later tokens",
                level,
                f"{though}: what hides them is too small a number; take −∞.",
            ),
            (meant and band, "later tokens", level, f"{though}: no causal mask is applied."),
            (
                meant,
                "later tokens",
                level,
                f"{though}: heads or tokens are mixed, as by a view without a transpose.",
            ),
            got=felt,
            expected=felt.tril(),
        )


def _mask(subject: Subject) -> Iterator[Finding]:
    refuse_if(not subject.forms, NO_MASK)
    rows, others = VISIBLE[0], ~torch.eye(T, dtype=torch.bool)
    whole, masked = subject.map(), subject.map(VISIBLE)
    before, after = ((map * others)[..., rows, :] for map in (whole, masked))
    hidden, visible, least = after[..., HIDDEN].abs(), after[..., rows], SMALL * _peak(before)
    own = _peak(before[..., HIDDEN]) <= least
    refuse_if(own, "without it, too, the keys that it would hide are not felt")
    felt, right = _peak(hidden) > least, whole[0, 0] * VISIBLE
    if isinstance(subject, Heads):
        q, k, _ = subject.draw()
        right = _plain(q, k, right != 0)
    return _first(
        (
            _same(before, after),
            "mask",
            "fault",
            "A mask that hides three keys changes nothing: it is ignored.",
        ),
        (
            not after.isfinite().all(),
            "mask",
            "fault",
            "With a mask that hides three keys the output is not finite.",
        ),
        (
            felt and _peak(visible) <= least,
            "mask",
            "fault",
            "A mask hides the visible keys and shows the hidden ones: it is inverted; True = may attend, but in a "
            "key_padding_mask.",
        ),
        (
            felt and _same(hidden.amax(-1), hidden.amin(-1), 1e-3),
            "mask",
            "fault",
            f"Hidden keys all get one weight, up to {_peak(hidden):.2g}: the mask makes their score 0, and e⁰ = 1; fill it "
            "with −∞.",
        ),
        (
            felt,
            "mask",
            "fault",
            f"Hidden keys are still felt, by up to {_peak(hidden):.2g}: what the mask adds to their scores is too small a "
            "number; take −∞.",
        ),
        (
            _same(visible, before[..., rows])
            and _same(whole.sum(-1), torch.ones(1), 1e-3)
            and masked.sum(-1).min() < 0.999,
            "mask",
            "fault",
            f"Hidden keys get no weight, but the others keep theirs, and a row sums to {float(masked.sum(-1).min()):.2g}: "
            "the mask is applied after the softmax.",
        ),
        got=masked[0, 0],
        expected=right,
    )


def _dead(subject: Subject) -> Iterator[Finding]:
    refuse_if(not subject.forms, NO_MASK)
    out = subject(*subject.draw(), mask=torch.zeros_like(VISIBLE))
    return _first(
        (
            not out.isfinite().all(),
            "dead row",
            "warning",
            "A query that sees no key gives NaN, which reaches the loss of its whole batch; 0 would be right.",
        )
    )


def _log_rows(subject: Heads, q: Tensor, k: Tensor) -> Tensor:
    """log weights of the visible keys of the last query, less their mean: its scores, where weights are a softmax."""
    rows = subject.weights(q, k, size=q.shape[-1])[:, :, -1].flatten(0, 1)
    seen = rows[0] > 0
    refuse_if(
        not torch.equal(rows > 0, seen.expand_as(rows))
        or not _same(rows.sum(-1), torch.ones(1), 1e-3),
        "weights that do not sum to 1, or are 0, tell no scores",
    )
    log = rows[:, seen].log()
    return log - log.mean(-1, keepdim=True)


def _scale(subject: Heads) -> Iterator[Finding]:
    spreads, slopes, bent = list[float](), list[float](), 0.0
    for size in SIZES:
        q, k, _ = (0.3 * x for x in subject.draw(2, size=size, batch=8))
        biases = _log_rows(subject, 0 * q, k)
        scored, twice = (_log_rows(subject, by * q, k) - biases for by in (1, 2))
        dots = (q[:, :, -1:] @ repeat_heads(k, q.shape[1]).mT).squeeze(2)
        usual = (dots - dots.mean(-1, keepdim=True)).std() * size**-0.5
        spreads.append(float(scored.std() / usual) + 1e-9)
        slopes.append(float((twice * scored).sum() / scored.square().sum().clamp(min=1e-12)))
        bent = max(bent, _peak(twice - slopes[-1] * scored) / (_peak(twice) + 1e-9))
    (small, large), slope = spreads, slopes[0]
    at = f"At head sizes {SIZES[0]} and {SIZES[1]} scores spread {small:.3g} and {large:.3g} times as far as q·k / √D"
    return _first(
        (small < 1e-4, "scale", "property", "Weights do not depend on the queries."),
        (
            abs(slope - 1) < 0.05,
            "scale",
            "property",
            "Weights do not change with the length of queries, as by cosine scores.",
        ),
        (
            abs(slope - 2) > 0.1 or bent > 0.1,
            "scale",
            "property",
            f"Scores are no dot products: twice a query gives about {slope:.2f} times its score.",
        ),
        (
            large > 2 * small,
            "scale",
            "warning",
            f"{at}: they are not divided by √D, or by one number for all D.",
        ),
        (
            large < small / 2,
            "scale",
            "warning",
            f"{at}: they are divided by D, or by √D twice; divide by √D once.",
        ),
        (
            max(abs(math.log(small)), abs(math.log(large))) > 0.7,
            "scale",
            "property",
            f"{at}: they have a temperature of their own.",
        ),
        got=subject.weights(3 * q, 3 * k, size=q.shape[-1])[0, 0],
        expected=_plain(3 * q, 3 * k),
    )


def _scores(subject: Heads, q: Tensor, k: Tensor) -> Float[Tensor, "B H T S"]:
    """The scores beside that of the first key, whose k is 0: log w_ij − log w_i0; NaN where either is hidden."""
    log = subject.weights(q, k).log()
    scores = log - log[..., :1]
    return scores.masked_fill(~scores.isfinite(), torch.nan)


def _varies(cells: Tensor, along: Tensor) -> float:
    """The largest spread of a cell (…, T, N) among those of one number in `along`, NaN left out."""
    groups = [cells[..., along == number] for number in along.unique()]
    spreads = [
        one.nan_to_num(-torch.inf).amax(-1) - one.nan_to_num(torch.inf).amin(-1) for one in groups
    ]
    return float(torch.stack(spreads).clamp(min=0).max())


def _places(subject: Heads) -> Iterator[Finding]:
    """Equal queries and equal keys: what of their scores the places change, alone and where the two meet."""
    q, k, _ = subject.draw(3)
    a, b = (x[:, :, :1].expand_as(x).clone() for x in (q, k))
    b[:, :, 0] = 0
    pairs = (0 * a, 0 * b), (0 * a, b), (a, 0 * b), (a, b), (2 * a, b)
    neither, of_keys, of_queries, both, twice = (_scores(subject, *pair) for pair in pairs)
    met = (both - of_keys - of_queries + neither)[..., 1:]
    refuse_if(not met.isfinite().any(), "too many weights are 0, which tell no scores")
    double = (twice - of_keys - 2 * (of_queries - neither))[..., 1:].nan_to_num(0.0)
    i, j = torch.arange(T)[:, None].expand(-1, T - 1), torch.arange(1, T).expand(T, -1)
    own = met[:, :, range(1, T), range(T - 1)].flatten(0, 1)  # i = j
    size, apart = _peak(met.nan_to_num(0.0)), _varies(met, i - j)
    singular = torch.linalg.svdvals(own[:, own.isfinite().all(0)])
    # One row of numbers for all contents is a factor of the place, as a temperature by length, and no rotation.
    rank_one = len(singular) < 2 or float(singular[1]) <= 0.05 * float(singular[0])
    linear = _same(2 * met.nan_to_num(0.0), double, 0.02)
    turns = not rank_one and size > 1e-3 and linear
    # a rotation changes the product itself; a bias under a soft cap hardly does
    rotated = linear and _varies(met, 0 * i) > 0.05 * size
    zeros = met.nan_to_num(1.0).abs().amax((0, 1)) < 1e-5  # whatever the content
    steps = [(x[..., :-1] - x[..., 1:])[..., 1:] for x in (neither, of_keys, of_queries)]
    back = (i - j)[:, :-1]
    absolute = max(_varies(step, back) for step in steps) > 1e-2
    rises = steps[0].where(steps[0].isfinite() & (back > 0), torch.inf).amin((0, 2, 3))
    grows = not absolute and rises.min() > -1e-5 and (rises[rises.isfinite()] > 1e-4).any()
    bias = subject.weights(0 * a, 0 * b)[0, 0]
    yield from _first(
        (
            grows,
            "bias",
            "fault",
            f"Without content, each place further back adds {float(rises.min()):.2g} or more to a score: the bias grows "
            "with distance, so its sign is wrong; nearer keys should score more.",
        ),
        got=bias,
        expected=F.normalize((bias > 0) / bias.clamp(min=1e-9), 1, -1),
    )
    text = f"Equal queries and keys at one place score differently from place to place, by up to {apart:.2g}: "
    got = met[0, 0].nan_to_num(0.0)
    right = torch.stack([got[i - j == n].mean() for n in (i - j).flatten()]).view_as(got)
    yield from _first(
        (
            subject.kind == "a score_mod" and size > 1e-3 and zeros.any() and not zeros.all(),
            "mask",
            "warning",
            "The content of some keys is not felt, though they have weight: their scores are multiplied by 0, and e⁰ = 1; to "
            "hide them, fill with −∞.",
        ),
        (
            turns and _varies(met, j) < 0.02 * apart,
            "positions",
            "fault",
            f"{text}keys are rotated, queries are not.",
        ),
        (
            turns and _varies(met, i) < 0.02 * apart,
            "positions",
            "fault",
            f"{text}queries are rotated, keys are not.",
        ),
        (
            turns,
            "positions",
            "fault",
            f"{text}the rotation depends on the place itself, not on i − j; rotate q and k by one rule, each by its place.",
        ),
        (
            absolute or apart > 0.02 * size + 1e-3,
            "positions",
            "property",
            "Scores depend on the places of query and key themselves, as by absolute positions, not on i − j alone.",
        ),
        (
            _varies(met, 0 * i) > 1e-3,
            "positions",
            "property",
            f"Scores depend on the distance i − j, by {'a rotation' if rotated else 'more than a bias or a rotation'}.",
        ),
        (
            max(_peak(step.nan_to_num(0.0)) for step in steps) > 1e-3,
            "positions",
            "property",
            "Scores depend on the distance i − j, by a bias.",
        ),
        (
            True,
            "positions",
            "property",
            "The order of keys is not felt: it has no positions of its own.",
        ),
        got=got,
        expected=right,
    )


def _lengths(subject: Heads) -> Iterator[Finding]:
    q, k, _ = subject.draw(queries=5)
    try:
        first_rows = subject.weights(q, k, causal=subject.causal)[:, :, 0]
    except Exception as error:
        text = f"5 queries beside {T} keys fail, as a cache or cross-attention needs them. {describe(error)}"
        return _first((True, "lengths", "warning", text))
    hides = _peak(subject.map(causal=subject.causal).triu(1)) <= SMALL
    sees = int((first_rows.abs().amax((0, 1)) > SMALL).sum())
    text = f"Of 5 queries beside {T} keys the first sees {sees}: the causal rule is aligned"
    return _first(
        (
            hides and sees == 1,
            "lengths",
            "property",
            f"{text} top left; a cache needs bottom right.",
        ),
        (
            hides and sees == T - 4,
            "lengths",
            "property",
            f"{text} bottom right, as a cache needs.",
        ),
    )


def _grouped(subject: Heads) -> Iterator[Finding]:
    refuse_if(subject.fixed, subject.fixed)
    q, k, v = replace(subject, heads=(4, 2, 2)).draw()
    try:
        out = subject(q, k, v)
    except Exception:
        raise ConfigError("it takes as many heads of k and v as of q") from None
    return _first(
        (
            _same(out, subject(q, *(x.repeat_interleave(2, 1) for x in (k, v)))),
            "grouped heads",
            "property",
            "It takes grouped heads: two heads in a row share k and v.",
        ),
        (
            _same(out, subject(q, *(x.repeat(1, 2, 1, 1) for x in (k, v)))),
            "grouped heads",
            "fault",
            "Of 4 heads and 2 of k and v, heads 0 and 2 share, and 1 and 3: repeat stands where repeat_interleave belongs.",
        ),
    )


def _gradients(subject: Subject) -> Iterator[Finding]:
    """Along one random direction of each input, beside the difference of two outputs."""
    random = torch.Generator().manual_seed(6)
    kind = torch.float32 if subject.fixed else torch.float64
    given = [x.to(kind, copy=True).requires_grad_() for x in subject.draw(4)]
    with torch.enable_grad():
        out = subject(*given)
    weight = torch.randn(out.shape, generator=random).to(out)
    gradients = torch.autograd.grad(out, given, weight, allow_unused=True, materialize_grads=True)
    for at, own in enumerate(gradients):
        step = torch.randn(own.shape, generator=random).to(own)
        step /= step.norm()
        moved = ([*given[:at], given[at] + by * step, *given[at + 1 :]] for by in (1e-3, -1e-3))
        ends = [(subject(*one) * weight).double().sum() for one in moved]
        number, taken = float(ends[0] - ends[1]) / 2e-3, float((own * step).sum())
        text = (
            f"Along a step of {'qkv'[at] if len(given) > 1 else 'x'} the output changes by {number:.3g}, its gradient says "
            f"{taken:.3g}"
        )
        wrong = abs(taken - number) > 0.03 * max(abs(number), abs(taken)) + 0.02
        yield from _first(
            (
                wrong and abs(number) < 1e-3,
                "gradients",
                "property",
                f"{text}: it is passed straight through.",
            ),
            (
                wrong and taken == 0,
                "gradients",
                "fault",
                f"{text}: no gradient reaches it, as behind detach() or .data.",
            ),
            (wrong, "gradients", "fault", f"{text}: its backward is wrong."),
        )


def _large(subject: Heads) -> Iterator[Finding]:
    q, k, v = subject.draw()
    broken = not subject(20 * q, 20 * k, v).isfinite().all()
    yield from _first(
        (
            broken,
            "large scores",
            "fault",
            "Scores of some hundreds give NaN or ∞ in float32: e^x overflows; subtract the largest score of each row "
            "first, as softmax does.",
        )
    )
    refuse_if(subject.fixed, subject.fixed)
    for name in () if broken else ("bfloat16", "float16"):
        half = [x.to(getattr(torch, name)) for x in (4 * q, 4 * k, v)]
        why, out = "", q
        try:
            out = subject(*half, mask=VISIBLE if subject.forms else None)
        except Exception as error:
            why = describe(error)
        yield from _first(
            (why, "half precision", "warning", f"In {name} it does not run. {why}"),
            (
                not out.isfinite().all(),
                "half precision",
                "fault",
                f"In {name} the output is NaN or ∞ for scores of some tens: a number overflows.",
            ),
        )


def in_parts(
    layer: Attention, x: Tensor, sizes: Sequence[int], record: bool = False
) -> list[Steps]:
    """The steps of a layer that reads x in parts of these sizes, one after another with a cache."""
    cache, parts = Cache(), list[Steps]()
    for part in x.split(sizes, 1):
        steps, cache = layer.step(part, cache, record)
        parts.append(steps)
    return parts


def _parts(layer: Attention) -> Iterator[Finding]:
    """Cached steps, and chunks of another size, against the whole."""
    tokens = of_tokens(layer, None)
    x, felt, kernel = tokens.x, tokens.map(), layer.config.kernel
    outs: dict[str, Tensor] = {}
    if _peak(felt.triu(1)) <= SMALL * _peak(felt) and not tokens.needs_mask:
        outs["Token by token, with a cache,"] = torch.cat(
            [steps.merged for steps in in_parts(layer, x, PARTS)], 1
        )
    if "chunk" in kernel.kwargs:
        kernel = Choice.of(kernel.key, **kernel.kwargs | {"chunk": 2})
        short = Attention(layer.config.with_(kernel=kernel), layer.add_positions).eval()
        short.load_state_dict(layer.state_dict())
        outs["In chunks of 2 tokens"] = short(x, record=False).merged
    whole = tokens(x)
    for how, out in outs.items():
        text = f"{how} the output differs from that of the whole text by up to {_peak(out - whole):.2g}."
        yield from _first((not _same(out, whole, 1e-3), "parts", "fault", text))


PROBES: dict[str, Callable[[Any], Iterator[Finding]]] = {
    "repeatable": _repeatable,
    "rows": _rows,
    "sequences": _sequences,
    "values": _values,
    "later tokens": _later,
    "mask": _mask,
    "scale": _scale,
    "positions": _places,
    "dead row": _dead,
    "lengths": _lengths,
    "grouped heads": _grouped,
    "gradients": _gradients,
    "large scores": _large,
}
OF_TOKENS = "repeatable", "rows", "sequences", "later tokens", "mask", "dead row", "gradients"
STOPS = "repeatable", "rows", "sequences", "values"
