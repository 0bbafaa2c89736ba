"""What each choice, preset and card is, claim sets, task draws and recommends is what was saved in the files beside this.

`make generated` writes it again: its diff shows which experiment changed.
"""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from core.attention import AXES, PRESETS, Attention, AttentionConfig, Choice, ConfigError, entry
from core.attention.config import refusals
from core.attention.cost import attention_cost, parameters
from core.attention.presets import attention_name, distinct_names
from core.claims.catalogue import CLAIMS
from core.claims.run import ClaimConfig
from core.models.cards import BY_HAND, CARDS, FORMS, MODELS, ModelCard, decoding_step
from core.studies.why import Trial
from core.tasks import TASKS, TaskConfig, make_task
from core.training import RunConfig, recommended
from tests.attention.drawing import ENTRIES, config_of
from tests.cases import snapshot


def recipes() -> dict[str, Any]:
    """The run that each task recommends for each kind of model, by both names."""
    tasks = [
        make_task(TaskConfig.of(entry.key)) for entry in TASKS if not entry.key.startswith("own")
    ]
    return {
        f"{task.key}, {kind}": recommended(task, kind).to_json()
        for task in tasks
        for kind in task.recommended
    }


# Of each task other sizes than usual, no two of them alike, and as much as is possible and no more.
DRAWN: tuple[tuple[str, dict[str, Any]], ...] = (
    ("copy", {"length": 13, "vocab": 3}),
    ("reverse", {"length": 5, "vocab": 9}),
    ("sort", {"length": 7, "vocab": 5}),
    ("recall", {"pairs": 4, "keys": 4}),
    ("induction", {"length": 16, "vocab": 16, "said": 3}),
    ("repeats", {"length": 24, "passage": 10, "gap": 2}),
    ("names", {}),
    ("addition", {"digits": 4}),
    ("numbers", {"language": "fr", "numbers": 3, "max_source": 12, "train_pairs": 1000}),
    ("dates", {"train_pairs": 1000}),
    ("language", {"languages": 2, "train_pairs": 1000}),
    ("documents", {"sentences": 5, "courts": 4}),
    ("iris", {}),
    ("digits", {"patch": "4"}),
    ("pictures", {"language": "es", "digits": 4, "patch": "4"}),
    ("series", {"period": 5, "seasons": 3, "anomalies": 0.2}),
    ("depo", {"nodes": 5, "hops": 3}),
    ("group_words", {"length": 12, "tested": 14, "items": 4}),
    ("own_text", {"length": 24}),
    ("own_text", {"length": 16, "unit": "words"}),
    ("own_text", {"length": 16, "data": "".join(map(str, range(100)))[:180]}),
    ("own_pairs", {}),
    ("own_pairs", {"data": "".join(f"{'a' * n}\t{n} b\n" for n in range(99, 129))}),
    ("own_table", {}),
    ("own_table", {"text": "name"}),
)


def draws() -> dict[str, Any]:
    """What a seed draws on both sides of each task: a run that goes on sees the batches that it would have seen."""
    found = {}
    for key, params in DRAWN:
        task, generator = make_task(TaskConfig.of(key, 3, **params)), torch.Generator()
        batch = task.batch(4, generator.manual_seed(5))
        one, held = task.draw(generator, held_out=False), task.held_out(20)
        own, label = "data" in dict(task.config.params), task.form == "label"
        found[f"{key} {params}"[:100]] = {
            "batch": [
                f"{name}: {(tensor.double().round(decimals=3) if tensor.is_floating_point() else tensor.int()).tolist()}"
                for name, tensor in vars(batch).items()
                if tensor is not None
            ],
            "drawn": str(task.display_tokens(one)),
            "held out": [f"{task.display_tokens(each)}: {task.places(each)}" for each in held[:3]],
            "task": f"{task.shape}, {task.max_source}, {task.max_target}, {task.metrics}, {task.notes}, "
            f"{task.baseline_loss:.5f}, {label and task.majority(20)}",
            "trained": str(label and task.display_tokens(task.trained()[-1])),
            "recipes": [str(one) for one in task.recommended.values() if own],
        }
    return found


EXACT = ("exact", "fused", "chunked", "local", "block_sparse")  # kernels of the same weights


def mechanisms() -> dict[str, Any]:
    """Parameters, what its weights begin as, refusals and costs of each choice, and the choices of each preset."""
    found: dict[str, Any] = {
        f"preset {preset.key}": {
            **{axis: json.dumps(getattr(preset.config(), axis).to_json()) for axis in AXES},
            "changed": preset.changed(96, 12),
            "with 12 heads": json.dumps(preset.config(96, 12).to_json()),
        }
        for preset in PRESETS
    }
    for axis, key in ENTRIES:
        config, costs = config_of(axis, key), []
        for kernel in EXACT if axis != "kernel" else (key,):
            with suppress(ConfigError):
                one = config.with_(kernel=Choice(kernel)) if axis != "kernel" else config
                for size in ((300, 300, None), (70, 110, 60), (90, 3, None), (1, 900, 700)):
                    cost = attention_cost(one, *size)
                    costs.append(f"{kernel} {size}: {cost.flops:.0f}, {cost.bytes:.0f}")
        torch.manual_seed(0)
        found[f"{axis} {key}"] = {
            "begins": {
                name: f"{tuple(one.shape)} {one.mean():z.3f} ± {one.square().mean().sqrt():.3f}"
                for name, one in Attention(config).named_parameters()
                if name.startswith(axis)
            },
            "costs": costs,
            "called": (
                attention_name(config),
                *distinct_names((config, config_of("mask", "causal"))),
            ),
            "learned": sum(parameters(config).values()),
            "parameters": [
                f"{p.key} = {p.default}: {p.low} to {p.high} by {p.step} {' '.join(p.choices)}"
                for p in entry(axis, key).params
            ],
            "refuses": " ".join(f"{other}:{name}" for other, name, _ in refusals(axis, key)),
        }
    return found


def published(one: ModelCard) -> dict[str, Any]:
    """The sizes of a card and its attentions, as they are and in small, and a decoding step with each form of cache."""
    whole = one.parameters, one.active, one.matrices, one.longest, one.token_bytes
    forms = FORMS.items() if one in MODELS.values() else ()
    return {
        "numbers": [*whole, *(one.flops(n) for n in (9, 9000)), one.cache_numbers(9000)],
        # Layers of the others stand in the table of cards.
        "layers": {
            layer.name: json.dumps(layer.config.to_json())
            for layer in one.distinct
            if one in BY_HAND
        },
        "small": one.untrained or [json.dumps(one.to_json()) for one in one.small(96, 12)],
        "steps": {
            key: str(decoding_step(one, form, 5000, 8, 2, 3e12, 9e14)) for key, form in forms
        },
    }


LOCAL, LONG = Choice.of("local", window=3), ((600, 600, None), (192, 1200, None), (768, 200, 0))
SIZES = (90, 90, None), (90, 90, 61), (2, 90, 50), (90, 7, 5)
LATENT, TWICE = Choice.of("latent", rope=6), Choice.of("softmax", temperature=2.0)
# Kernels beside choices that change what they hold, one after another, or none, and at which sizes.
BLOCKED = [Choice.of(key, block=7) for key in ("chunked", "local", "block_sparse")]
FEW: list[Choice] = [
    *(Choice.of(key, chunk=size) for key in ("linear", "ssd", "gla") for size in (3, 100)),
    Choice.of("performer", chunk=3, features=3),
    Choice.of("retention", chunk=13),
    Choice.of("ssd", chunk=13),
    Choice.of("linformer", rank=3),
]
MORE: list[Choice] = [
    *(Choice.of(key, chunk=size) for key in ("retention", "gated_delta") for size in (3, 100)),
    *(Choice.of(key, chunk=size) for key in ("delta", "kda") for size in (3, 100)),
    *(Choice.of(key, chunk=20) for key in ("delta_product", "gdn2", "trapezoid")),
    *(Choice.of(key, chunk=20) for key in ("rwkv7", "comba", "hgrn2")),
    *(Choice.of("performer", chunk=size, features=80) for size in (3, 100)),
    *(Choice.of("log_linear", chunk=size, levels=many) for size, many in ((4, 3), (100, 20))),
    Choice.of("linformer", rank=100),
    *(Choice.of("nystrom", landmarks=size, rounds=2) for size in (3, 32, 90)),
    *(Choice.of("nsa", size=size) for size in (1, 30)),
    *(Choice.of(key, block=64) for key in ("chunked", "local", "block_sparse")),
]
BESIDE: list[dict[str, Any]] = [
    {},
    {"num_heads": 1},
    {"num_heads": 2},
    {"projection": LATENT},
    {"projection": LATENT, "mask": "causal"},
    {"projection": "differential"},
    {"projection": "differential", "mask": "causal"},
    {"projection": Choice.of("grouped_query", kv_heads=2)},
    {"projection": Choice.of("grouped_query", kv_heads=2), "position": "rope"},
    {"projection": Choice.of("grouped_query", kv_heads=1), "mask": LOCAL},
    {"score": "dot", "normalizer": TWICE},
    {"score": "general"},
    {"score": "general", "mask": "causal"},
    {"score": "cosine"},
    {"score": "cosine", "position": "alibi"},
    {"score": "additive", "position": "t5", "mask": "causal"},
    {"position": "t5"},
    {"position": "alibi", "mask": "causal"},
    {"position": "deberta"},
    {"position": "shaw", "mask": "causal"},
    {"mask": "padding"},
    {"mask": Choice.of("and", LOCAL, Choice("causal"))},
    {"mask": Choice.of("strided", lookback=3, stride=20)},
    {"mask": "bigbird"},
    {"mask": "local_p"},
    {"mask": Choice.of("local_m", gaussian=True)},
    {"mask": "moba"},
    {"normalizer": "sparsemax", "mask": LOCAL},
]
ROWS: list[tuple[Choice, dict[str, Any], tuple[Any, ...]]] = [
    *((kernel, {}, SIZES) for kernel in [*FEW, *MORE, Choice("nystrom")]),
    *((Choice("fused"), beside, LONG) for beside in BESIDE[:1] + BESIDE[-3:-2]),
    *((Choice("fused"), {"position": key, "mask": "causal"}, LONG[:1]) for key in ("alibi", "t5")),
    (Choice.of("chunked", block=64), {"mask": "padding"}, LONG[2:]),
    (Choice.of("kda", chunk=3), {}, LONG[:1]),
    (Choice.of("kda", chunk=3), {"projection": LATENT}, SIZES[:1]),
    (Choice("nystrom"), {}, ((900, 40, None),)),
    *((kernel, {"score": "cosine"}, SIZES[:1]) for kernel in MORE),
    (Choice.of("nsa", size=1), {}, ((6000, 3, None),)),
    *(
        (kernel, beside, SIZES[:3])
        for kernel in [Choice("exact"), Choice("fused"), *BLOCKED, *FEW]
        for beside in BESIDE
    ),
]


def costs() -> dict[str, str]:
    """FLOPs and bytes of kernels beside other choices, by both and the sizes, where they go together."""
    found: dict[str, str] = {}
    for kernel, beside, sizes in ROWS:
        with suppress(ConfigError):
            config = AttentionConfig(**{"d_model": 40, "num_heads": 4, **beside, "kernel": kernel})
            for size in sizes:
                cost = attention_cost(config, *size)
                named = {
                    name: getattr(value, "to_json", value.__str__)()
                    for name, value in beside.items()
                }
                found[f"{kernel.to_json()} {named} {size}"] = f"{cost.flops:.0f}, {cost.bytes:.0f}"
    return found


def test_choices_claims_and_tasks_are_what_was_saved():
    found = json.loads(
        json.dumps(
            {
                "cards": {one.key: published(one) for one in CARDS},
                "claims": {claim.key: ClaimConfig(claim.key, {}).settings for claim in CLAIMS},
                "costs": costs(),
                "mechanisms": mechanisms(),
                "tasks": recipes(),
                "why": {
                    "seconds": (why := Trial(64, 30, "additive", 45.0, 3)).config(why.pair[1]),
                    "few": replace(why, seconds=0).config(why.pair[0]),
                    "counted": why.counted(why.pair[1], 900),
                    "short": why.counted(why.pair[0], 9),
                },
            },
            sort_keys=True,
            default=RunConfig.to_json,
        )
    )
    for name, parts in snapshot(Path(__file__).with_suffix(".json"), found).items():
        assert found[name] == parts


def test_tasks_draw_what_they_drew():
    found = draws()
    assert found == snapshot(Path(__file__).with_name("test_draws.json"), found)
