"""The questions and the things to try on this page; each answer is computed from what the page shows."""

from __future__ import annotations

from dashboard.charts.numbers import byte_size, number
from dashboard.views.heads.compute import CacheSize, Split, TwoMaps
from dashboard.views.heads.controls import Controls, key
from dashboard.widgets.guide import Move, Question

MEANING = {
    "split": "A head has its own queries, keys and values, so several heads attend to different words at the same "
             "time. Every head reads the whole vector $x$ of a word. The columns of $W_q$, $W_k$ and $W_v$ are "
             "divided: each head has $D = C / H$ of the $C$ columns. The outputs of the heads stand side by side, $C$ "
             "numbers again, and a fourth matrix, $W_o$, mixes them into the word's new vector. $W_{o,h}$ are the $D$ "
             "rows of $W_o$ that belong to head $h$, so the new vector is a sum with one part from each head. "
             "$Q_h$, $K_h$ and $V_h$ are the queries, keys and values of head $h$, a row for each word.",
    "shared": "This is for later; the path goes on without it. A decoder stores the keys and values of all earlier "
              "tokens, because every new token attends to them. "
              "Query heads that share one head of keys and values make this cache smaller.",
    "subtract": "This is for later; the path goes on without it. A differential head makes two maps and subtracts λ "
                "times the second from the first. The weight that "
                "both maps put on the same key cancels.",
}


def split_question(controls: Controls, one: Split, many: Split) -> Question | None:
    """Whether several heads have more parameters than one; None for one head."""
    if many.heads == 1:
        return None
    counts = one.parameters, many.parameters
    same = (f"Both have {counts[0]:,} parameters: the matrices $W_q$, $W_k$, $W_v$ and $W_o$ are the same. "
            f"{many.heads} heads divide the {controls.d_model} columns of the first three into {many.heads} groups of "
            f"{controls.head_dim}.")
    return Question(f"The layer is used with one head, or with {many.heads} heads. Which has more parameters?",
                    ("one head", "both the same", f"{many.heads} heads"),
                    1 if counts[0] == counts[1] else 0 if counts[0] > counts[1] else 2,
                    (f"{same} One head is wider, not larger.", same,
                     f"{same} More heads give more maps, not more parameters."))


def shared_question(controls: Controls, half: CacheSize, full: CacheSize) -> Question:
    """How the cache grows when the text becomes twice as long."""
    growth = full.bytes / half.bytes
    sizes = (f"For {controls.length // 2:,} tokens the cache of multi-head attention has {byte_size(half.bytes)}, for "
             f"{controls.length:,} tokens {byte_size(full.bytes)}: every token adds a key and a value to each head.")
    return Question("The text becomes twice as long. How does the cache of each projection grow?",
                    ("it keeps its size", "to twice its size", "to four times its size"),
                    0 if growth < 1.5 else 1 if growth < 3 else 2,
                    (f"{sizes} Only a model that forgets old tokens keeps its size.", sizes,
                     f"{sizes} The number of scores becomes four times as large, but scores are not stored."))


def subtract_question(maps: TwoMaps) -> Question:
    """The sum of a row of the difference."""
    total, weight = float(maps.difference.sum(1).mean()), maps.weight
    options = (0.0, 1 - weight, 1.0)
    sums = (f"A row of the first map has the sum 1, and a row of the second λ = {number(weight)} after the "
            f"multiplication. Their difference has the sum {number(total)}.")
    return Question("The weights of a softmax have the sum 1 in each row. What is the sum of a row of A₁ − λA₂?",
                    ("0", "1 − λ", "1"), min(range(3), key=lambda index: abs(options[index] - total)),
                    (f"{sums} It would be 0 only with λ = 1.", sums, f"{sums} It would be 1 only with λ = 0."))


def moves(idea: str) -> tuple[Move, ...]:
    """Three things to try for each idea."""
    random = Move("Random weights", {key("weights"): "random"},
                  "The heads differ here by chance. In MiniLM, training made them different.")
    ideas = {
        "split": Move("One head or many", {key("idea"): "split"},
                      "The same numbers are shown as one head and as several heads."),
        "shared": Move("Later: share keys and values", {key("idea"): "shared"},
                       "Fewer heads of keys and values need a smaller cache. The last column of the table says how "
                       "similar the maps of two heads are then."),
        "subtract": Move("Later: subtract two maps", {key("idea"): "subtract"},
                         "In the map A₁ − λA₂, purple cells are weights below 0. A softmax alone cannot make them."),
    }
    first = Move("MiniLM's first layer", {key("weights"): "minilm", key("layer"): 0},
                 "In head 2 of layer 0 nearly all weight is on the token before.")
    others = [move for name, move in ideas.items() if name != idea]
    return (first, random, *others) if idea == "split" else (random, *others)
