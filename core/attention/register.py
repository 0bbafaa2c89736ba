"""register: a mechanism from outside on one of the six axes, checked and tried on a few numbers before it is added."""

import dataclasses
import hashlib
import inspect
import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from core import plugins
from core.attention.base import Steps
from core.attention.config import AXES, MODS, AttentionConfig, Function, adapt, example_config
from core.attention.kernels.exact import AttentionInputs
from core.attention.kernels.implied import real_keys
from core.attention.layer import Attention
from core.attention.positions import enters
from core.attention.probes import check, in_parts
from core.entries import (
    KEY,
    READS,
    TRAITS,
    Area,
    Choice,
    ConfigError,
    Cost,
    Entry,
    LayerConfig,
    Param,
    param_complaints,
    quote,
    refuse_if,
    variants,
)
from core.files import lab_path, server_folder, write_atomically

B, T, S, C, H = 2, 5, 7, 24, 3  # of the inputs on which an entry is tried
LENGTHS = 1, 67  # of more inputs
PARTS = 3, 1, 1, 2  # of S tokens that are read one after another
BROKEN = "not finite on random numbers of both signs, with a mask that hides some keys, and all keys of one row."
PLACES = {"position": ("x", "q, k", "scores")}  # what `enters` may be
USUAL = AttentionConfig()
UNKNOWN = Cost(math.nan, math.nan, math.nan)
# choices by which an axis that a kernel says to read shows in its output
READ_BY = {"score": "cosine", "position": "alibi", "mask": "local", "normalizer": "sparsemax"}


def register(axis: str | Function, entry: Entry | None = None, *, replace: bool = False) -> Entry:
    """Add an entry from outside to an axis: configs, pages, runs and tests then know its key. Returns the entry.

    `register(mod)` adds a score_mod or a mask_mod of flex_attention under its own name (`entry_of_mod`).
    Its `build` may also return a plain function: score(q, k), normalizer(scores, mask), mask(i, j), or the bias
    position(i, j). It is built and run on a few numbers first. ConfigError, a ValueError, says what is missing or
    wrong; the lab's own keys cannot be replaced, and an earlier registration only with `replace`. What `check` says
    against it is a warning; its faults stand in `core.plugins.faults`.
    """
    source = sys._getframe(1).f_code.co_filename
    if entry is None and not isinstance(axis, str):
        axis, entry = entry_of_mod(axis)
    refuse_if(axis not in AXES, f"axis = {quote(axis)}; expected one of {', '.join(AXES)}.")
    refuse_if(
        not isinstance(entry, Entry),
        f"register({quote(axis)}, …) takes an Entry; got {quote(entry)}. A score_mod or a mask_mod goes alone: "
        "register(score_mod).",
    )
    assert isinstance(axis, str) and entry is not None
    refuse_if(
        not isinstance(entry.key, str) or not KEY.fullmatch(entry.key),
        f"{axis}: key = {quote(entry.key)}; expected up to 40 lower-case letters, digits and _, "
        "as in cosine_power.",
    )
    owner = f"{axis} = {entry.key}"
    for wrong in _complaints(axis, entry, owner):
        raise ConfigError(wrong)
    before = next((item for item in AXES[axis] if item.key == entry.key), None)
    refuse_if(before and not before.source, f"{owner} is one of the lab's own; take another key.")
    if before and not replace:
        raise ConfigError(
            f"{owner} is registered already, by {Path(before.source).name}; take another key, or "
            "register(…, replace=True)."
        )
    build = entry.build
    made = dataclasses.replace(
        entry,
        source=source,
        name=f"{entry.name} (plug-in)",
        short=entry.short or entry.name.lower(),
        build=lambda *args, **params: adapt(axis, build(*args, **params), entry.key),
    )
    if entry.cost is Entry.__dataclass_fields__["cost"].default:
        costs: dict[str, Callable[[LayerConfig, Area], Cost]]
        costs = {"score": partial(count_cost, made), "kernel": lambda config, area: UNKNOWN}
        made = dataclasses.replace(made, cost=costs.get(axis, entry.cost))
    if axis == "kernel":
        made = dataclasses.replace(
            made,
            build=lambda config: _guard(
                entry.key, entry.reads, adapt(axis, build(config), entry.key)
            ),
            refuse=partial(_refuse_unread, entry),
        )
    entries = AXES[axis]
    place = entries.index(before) if before else len(entries)

    def take_back() -> None:
        plugins.faults.pop(owner, None)
        entries[place : place + 1] = [before] if before else []

    entries[place : place + 1] = [made]
    causes: list[str] = []
    try:
        alarms = _checked(axis, made)
    except Exception as error:
        with suppress(Exception):  # what fails the trial may run, and check names the cause of more
            causes = [text for text, level in _alarms(axis, made).items() if level == "fault"]
        take_back()
        reason = (
            str(error) if isinstance(error, ConfigError) else plugins.describe(error, Path(source))
        )
        if causes:
            reason += f" Check finds: {' '.join(causes)}"
        raise ConfigError(f"{axis} = {entry.key} was not added. {reason}") from error
    plugins.undo.append(take_back)
    plugins.faults[owner] = tuple(text for text, level in alarms.items() if level == "fault")
    for alarm in alarms:
        warnings.warn(f"{owner} was added. {alarm}", RuntimeWarning, stacklevel=2)
    return made


def entry_of_mod(mod: Function) -> tuple[str, Entry]:
    """The axis and the entry of a function as flex_attention takes it; ConfigError for another.

    score_mod(score, b, h, q_idx, kv_idx) is a position, which changes the scaled scores; mask_mod(b, h, q_idx, kv_idx)
    is a mask. A further argument with a number as its default is a parameter, from a tenth to ten times of it. The
    docstring is the meaning.
    """
    refuse_if(not callable(mod), f"register takes a function or an axis; got {quote(mod)}.")
    key, taken = getattr(mod, "__name__", ""), inspect.signature(mod).parameters
    needed = [name for name, one in taken.items() if one.default is one.empty]
    axis = next((one for one, (_, names) in MODS.items() if len(names) == len(needed)), "")
    refuse_if(
        not axis,
        f"{key} takes ({', '.join(taken)}); register takes score_mod(score, b, h, q_idx, kv_idx), "
        "mask_mod(b, h, q_idx, kv_idx), or an axis and an Entry.",
    )
    defaults = {name: taken[name].default for name in taken if name not in needed}
    for name, value in defaults.items():
        refuse_if(
            not isinstance(value, int | float) or not value,
            f"{key}: {name} = {quote(value)}; a parameter's default is a number other than 0.",
        )
    params = tuple(
        Param(
            name,
            name.replace("_", " ").capitalize(),
            default=float(value),
            low=min(value / 10, value * 10),
            high=max(value / 10, value * 10),
            step=abs(value) / 10,
            meaning=f"{name} of {key}",
        )
        for name, value in defaults.items()
    )
    of_scores, name = axis == "position", key.replace("_", " ")
    kind = "score_mod" if of_scores else "mask_mod"
    summary = " ".join((inspect.getdoc(mod) or "").split("\n\n")[0].split())
    return axis, Entry(
        key,
        name.capitalize(),
        build=partial(_position_of if of_scores else _mask_of, mod),
        latex=rf"\operatorname{{{name}}}({'s_{ij}, ' * of_scores}b, h, i, j)",
        meaning=summary if len(summary) > 20 else f"{key}, a {kind} of flex_attention.",
        paper="",
        year=datetime.now().year,
        params=params,
        enters="scores" if of_scores else "",
        traits=frozenset({"adjusts"}) if of_scores else frozenset(),
    )


def _position_of(mod: Function, config: LayerConfig) -> Function:
    return partial(mod, **config.position.kwargs)


def _mask_of(mod: Function, config: LayerConfig, parts: Any, **params: Any) -> Function:
    return partial(mod, **params)


@cache
def _lab_hash() -> bytes:
    """Of the code that tries an entry out."""
    files = sorted(lab_path("core/attention").rglob("*.py"))
    return hashlib.blake2b(b"".join(map(Path.read_bytes, files))).digest()


def _checked(axis: str, entry: Entry) -> dict[str, str]:
    """Try an entry out, and what `check` says against it, with the level of each sentence.

    Once for each state of its file, of those that it names, of helpers, of the lab and of PyTorch, as trying takes
    seconds, which a line on stderr says. ConfigError, or the entry's own error, where it fails.
    """
    path = Path(entry.source)
    stored: Path | None = None
    if plugins.folder() is not None and path.parent == plugins.folder():
        digest = hashlib.blake2b(_lab_hash() + f"{torch.__version__} {axis} {entry.key}".encode())
        text = path.read_text(encoding="utf-8")
        for file in sorted(path.parent.glob("*.py")):
            if file.stem in text or file.stem.startswith("_") or file == path:
                digest.update(file.read_bytes())
        stored = server_folder() / "checks" / f"{digest.hexdigest()[:32]}.json"
        with suppress(OSError, ValueError):
            return dict(json.loads(stored.read_text(encoding="utf-8")))
        print(f"Trying out {axis} = {entry.key} of {path.name}, once", file=sys.stderr, flush=True)
    _try_out(axis, entry)
    alarms = _alarms(axis, entry)
    if stored is not None:
        with suppress(OSError):
            stored.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(stored, json.dumps(alarms).encode())
    return alarms


def _alarms(axis: str, entry: Entry) -> dict[str, str]:
    """What `check` says against an entry, and of a kernel under mask = causal, with the level of each sentence."""
    checks: list[tuple[Entry | AttentionConfig, bool | None]] = [(entry, None)]
    if axis == "kernel":
        with suppress(ConfigError):  # where the two do not go together
            checks.append((AttentionConfig(C, H, kernel=entry.key, mask="causal"), True))
    alarms: dict[str, str] = {}
    for thing, causal in checks:
        alarms |= {one.text: one.level for one in check(thing, causal=causal).alarms}
    return alarms


# A kernel from outside computes softmax(q kᵀ / √D) v, and of the other axes what it says to read.


def _refuse_unread(entry: Entry, config: LayerConfig) -> ConfigError | str | None:
    """The entry's own refusal, else that of the first choice which the kernel would ignore."""
    masks = {"none", "padding"} if "padding" in entry.reads else {"none"}
    if entry.traits & {"state", "own positions"}:  # it goes from token to token
        masks.add("causal")
    of_scores = any(config.has("position", one) for one in ("adjusts", "values"))
    ignored = {
        "score": (config.score != USUAL.score, "scaled_dot"),
        "position": ("scores" in enters(config.position) or of_scores, "rope"),
        "mask": (not {one.key for one in config.mask.leaves()} <= masks, "none"),
        "normalizer": (config.normalizer != USUAL.normalizer, "softmax"),
        "projection": (config.has("projection", "folds"), "multi_head"),
        "dropout": (config.dropout > 0, "0"),
    }
    for axis, (chosen, usual) in ignored.items():
        if chosen and axis not in entry.reads:
            value = getattr(config, axis)
            return ConfigError(
                f"kernel = {entry.key} does not read {axis}, so {axis} = "
                f"{_written(value, usual)} would be ignored",
                axes=("kernel", axis),
                **{axis: usual, "kernel": "exact"},
            )
    return entry.refuse(config)


def _written(value: Choice | float, usual: str) -> str:
    """A choice by its key, and by its parameters where the key is the usual one."""
    if not isinstance(value, Choice):
        return f"{value:g}"
    params = [f"{name} = {one}" for name, one in value.params if value.key == usual]
    return f"{value.key} with {', '.join(params)}" if params else value.key


def _guard(key: str, reads: tuple[str, ...], kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, which refuses what a call has and it does not read."""
    if isinstance(kernel, torch.nn.Module):
        kernel.register_forward_pre_hook(partial(_refuse_given, key, reads))
        return kernel
    return partial(_guarded, key, reads, kernel)


def _refuse_given(
    key: str, reads: tuple[str, ...], kernel: Any, given: tuple[AttentionInputs, ...]
) -> None:
    inputs = given[0]
    masks = inputs.call_mask is not None or inputs.block.key_mask is not None
    attends, usual = inputs.position is None, inputs.q.shape[-1] ** -0.5
    unread = {  # `attend` takes these two with a call; they are no choice of a config
        "scale": attends and inputs.score.scale != usual and "score" not in reads,
        "temperature": attends and inputs.normalizer.temperature != 1 and "normalizer" not in reads,
        "bias": inputs.call_bias is not None and "position" not in reads,
        "mask": masks and not {"mask", "padding"} & {*reads},
    }
    for name in (name for name, is_given in unread.items() if is_given):
        raise ConfigError(
            f"kernel = {key} reads no {name}", f"no {name}", axes=("kernel",), kernel="exact"
        )
    if "mask" not in reads:
        real_keys(inputs, key)  # refuses a mask of cells


def _guarded(
    key: str, reads: tuple[str, ...], kernel: Callable[..., Any], inputs: AttentionInputs
) -> Any:
    _refuse_given(key, reads, kernel, (inputs,))
    return kernel(inputs)


def _check_reads(entry: Entry) -> None:
    """ConfigError where a choice that a kernel says to read changes nothing."""
    x = torch.randn(B, S, C)
    for axis, key in READ_BY.items():
        if axis not in entry.reads:
            continue
        try:
            config = AttentionConfig(C, H, kernel=entry.key)
            layers = [Attention(one).eval() for one in (config, config.with_(**{axis: key}))]
        except ConfigError:  # it refuses that one itself
            continue
        layers[1].load_state_dict(layers[0].state_dict(), strict=False)
        one, other = (layer(x, record=False).merged for layer in layers)
        refuse_if(
            torch.allclose(one, other, atol=1e-6),
            f"It says that it reads {axis}, and {axis} = {key} changes nothing.",
        )


def count_cost(entry: Entry, config: LayerConfig, area: Area) -> Cost:
    """The FLOPs of a score without a `cost`, counted while it runs without numbers; a Product's own product apart."""
    shapes = (
        (1, config.score_heads, length, config.qk_dim) for length in (area.queries, area.keys)
    )
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        entry.build(config)(*map(torch.empty, shapes))
    product = (
        2.0 * area.cells * config.score_heads * config.qk_dim if "product" in entry.traits else 0.0
    )
    return Cost(counter.get_total_flops() - product)


def _complaints(axis: str, entry: Entry, owner: str) -> Iterator[str]:
    """Sentences about the fields that are missing or malformed."""
    texts, functions = (
        {name: getattr(entry, name) for name in names}
        for names in (("name", "latex", "meaning"), ("build", "cost", "tables", "refuse"))
    )
    reads = sorted(READS) if axis == "kernel" else []
    places = PLACES.get(axis, ("",))
    known = sorted(TRAITS[axis])
    checks: list[tuple[bool, str]] = [
        *(
            (
                isinstance(text, str) and bool(text.strip()),
                f"{name} = {quote(text)}; expected a text",
            )
            for name, text in texts.items()
        ),
        (
            len(str(entry.meaning)) > 20,
            f"meaning = {quote(entry.meaning)}; expected a sentence of more than 20 characters",
        ),
        (isinstance(entry.year, int), f"year = {quote(entry.year)}; expected a whole number"),
        *(
            (callable(function), f"{name} = {quote(function)}; expected a function")
            for name, function in functions.items()
        ),
        (
            entry.enters in places,
            f"enters = {quote(entry.enters)}; expected one of {', '.join(map(repr, places))}",
        ),
        *(
            (
                trait in known,
                f"trait {quote(trait)}; the traits of this axis are {', '.join(known) or 'none'}",
            )
            for trait in sorted(entry.traits, key=str)
        ),
        *(
            (
                one in reads,
                f"reads {quote(one)}; of the other axes this one may read {', '.join(reads) or 'none'}",
            )
            for one in entry.reads
        ),
    ]
    yield from (f"{owner}: {text}." for fits, text in checks if not fits)
    yield from param_complaints(entry.params, owner)


def _try_out(axis: str, entry: Entry) -> None:
    """Run the entry with its defaults and with each parameter at its least and at each choice; ConfigError, or the
    entry's own error, where it fails."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(86)
        for params in variants(entry.params):
            try:
                config = example_config(axis, entry.key, C, H, **params)
            except ConfigError:
                if not params:
                    raise
                continue  # it refuses its own parameter, as a page will say
            layer = Attention(config, add_positions=True)
            _run(axis, layer)
            for length in LENGTHS:
                _check_steps(layer(torch.randn(B, length, C)))
            if axis == "normalizer":
                # rows with masked keys are those of the visible keys alone
                scores, seen = torch.randn(B, H, T, S), torch.arange(S) % 3 > 0
                among = layer.normalizer(scores, seen)[..., seen]
                refuse_if(
                    not torch.allclose(among, layer.normalizer(scores[..., seen], None), atol=1e-5),
                    "Masked keys change the weights of the others: masked scores are the least finite number, so "
                    "give them one that your formula ignores, as in scores.masked_fill(~mask, 0).",
                )
            if "reads length" not in entry.traits:
                _read_in_parts(axis, config)
        if axis == "kernel":
            _check_reads(entry)


def _run(axis: str, layer: Attention) -> None:
    """Run a layer on two sequences, or on one where it refuses two, and check its steps."""
    x, context = (torch.randn(B, length, C, requires_grad=True) for length in (T, S))
    mask = torch.rand(T, S) < 0.6
    mask[1], mask[2, 0] = False, True  # a row that sees no key, and one that sees some
    inputs: dict[str, Any] = {"context": context, "mask": mask}
    try:
        steps = layer(x, **inputs)
    except ConfigError as refusal:
        if not refusal.take:
            raise
        inputs = {} if axis == "kernel" else {"mask": mask[:, :T]}
        steps = layer(x, **inputs)
    _check_steps(steps).square().sum().backward()
    gradients = [tensor.grad for tensor in (x, *layer.parameters()) if tensor.grad is not None]
    refuse_if(
        not all(gradient.isfinite().all() for gradient in gradients), f"Its gradient is {BROKEN}"
    )
    layer.eval()
    fast, slow = (_check_steps(layer(x, record=record, **inputs)) for record in (False, True))
    refuse_if(
        not torch.allclose(fast, slow, rtol=1e-3, atol=1e-4),
        "It gives another output when its steps are not recorded.",
    )


def _read_in_parts(axis: str, config: AttentionConfig) -> bool:
    """Steps with a cache give what the whole text gives, whatever the weights: a convolution may begin as identity.
    False where there is nothing to try, as the choice is not for a decoder."""
    mask = Choice("causal") if axis != "mask" else Choice.of("and", Choice("causal"), config.mask)
    try:
        config = config.with_(mask=mask)
    except ConfigError:
        return False
    layer, x = Attention(config, add_positions=True).eval(), torch.randn(B, S, C)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        for record in (False, True):
            try:
                whole = _check_steps(layer(x, record=record))
            except ConfigError:
                return False
            outs = [_check_steps(steps) for steps in in_parts(layer, x, PARTS, record)]
            refuse_if(
                not torch.allclose(
                    torch.cat(outs, dim=1), whole, rtol=1e-3, atol=1e-3 * float(whole.abs().amax())
                ),
                "Token by token, with a cache, it gives another output than for the whole text: what "
                "a token reads of earlier ones must be in what extend stores, and nothing may read "
                "later ones under mask = causal.",
            )
    return True


def _check_steps(steps: Steps) -> Tensor:
    """The layer's output; ConfigError unless shapes, masked weights and output are right."""
    refuse_if(not isinstance(steps, Steps), f"It returned {quote(steps)}; a kernel returns Steps.")
    (heads, queries), keys = steps.q.shape[1:3], steps.k.shape[2]
    if steps.merged is None or steps.merged.shape != (B, queries, C):
        raise ConfigError(
            f"Its output is {None if steps.merged is None else tuple(steps.merged.shape)}; expected "
            f"(B, T, C) = {(B, queries, C)}."
        )
    scores = None if steps.raw is None else tuple(steps.raw.shape)
    refuse_if(
        scores is not None and scores[1:] != (heads, queries, keys),
        f"Its scores are {scores}; expected (B, H, T, S) = {(B, heads, queries, keys)}.",
    )
    weights = steps.normalized if steps.normalized is not None else steps.weights
    refuse_if(
        steps.mask is not None
        and weights is not None
        and bool(weights[~steps.mask.expand_as(weights)].any()),
        "It gives weight to a key that the mask hides; set masked cells to 0 at the end.",
    )
    refuse_if(not steps.merged.isfinite().all(), f"Its output is {BROKEN}")
    return steps.merged
