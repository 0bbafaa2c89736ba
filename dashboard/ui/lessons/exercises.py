"""The lessons that ship. `make generated` writes their files; the right answers are computed by core."""

from collections.abc import Callable, Sequence

import torch

from core.attention import Attention, AttentionConfig, Choice, ConfigError, attend
from core.attention.cost import attention_cost
from core.attention.positions.relative import alibi_slopes, bucket
from core.seeding import seeded_layer, seeded_normal
from dashboard.ui.lessons import FOLDER, Lesson, make_question, to_json

QUERIES, KEYS, VALUES = (
    [[1.0, 2.0], [0.0, 1.0]],
    [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]],
    [[10.0], [20.0], [30.0]],
)
SENTENCE = "The cat chased a mouse because it was hungry."
HEADS, SIZE = 4, 64  # of Positions and of Cost and speed
SEED = 126


FIRST = "The cat chased a mouse"


def first_steps() -> Lesson:
    weights = torch.tensor([1.0, 2.0]).softmax(0)
    keys = ("the keys of all words", "the values of all words", "the queries of the other words")
    return Lesson(
        "Query, key and value",
        "One word takes from all words.\n\nIts query is compared with every key, which gives scores. Softmax makes "
        "weights of them, and the output is the sum of the values times these weights. Press *Next: Score*, and go on "
        "to the last step.",
        "one_query",
        (("one:start", "simple"), ("one:tokens", FIRST), ("one:query", "cat")),
        (),
        (
            make_question(
                "choice",
                "What is the query of **cat** compared with?",
                keys[0],
                options=keys,
                hint="See the step *2 Score*.",
            ),
            make_question(
                "numbers",
                "Two keys have the scores 1 and 2. Which weight does softmax give to the second?",
                f"{weights[1]:.4f}",
                tolerance=0.006,
                hint="Divide e² by e¹ + e².",
            ),
            make_question(
                "numbers",
                "With these weights and the values 10 and 20, what is the output?",
                f"{float(weights @ torch.tensor([10.0, 20.0])):.4f}",
                tolerance=0.1,
                hint="Add up each value times its weight.",
            ),
        ),
    )


def first_masks() -> Lesson:
    causal = torch.ones(5, 5, dtype=torch.bool).tril()
    words = FIRST.split()
    seen = ", ".join(word for word, allowed in zip(words, causal[2], strict=True) if allowed)
    weights = torch.tensor([0.5, 0.3, 0.2])
    masked = weights.log().masked_fill(torch.tensor([True, False, False]), -torch.inf).softmax(0)
    return Lesson(
        "What a mask hides",
        "A mask says which words each word may attend to.\n\nOn the page ✓ means may attend, ✕ may not. A row is the "
        "word that attends, a column the word that it attends to.",
        "masks",
        (("masks:tokens", FIRST),),
        (),
        (
            make_question(
                "choice",
                "With a causal mask, which words may **chased** attend to?",
                seen,
                options=(", ".join(words[:2]), seen, ", ".join(words[3:]), ", ".join(words)),
                hint="See the row of **chased**.",
            ),
            make_question(
                "numbers",
                "How many of the 25 cells does a causal mask leave for five words?",
                str(int(causal.sum())),
                hint="Count the ✓ of each row: 1, 2, …",
            ),
            make_question(
                "numbers",
                "The weights of three words are 0.5, 0.3 and 0.2. A mask hides the first word before the softmax. "
                "Which weight does the second get?",
                f"{masked[1]:.4f}",
                tolerance=0.006,
                hint="The weights that are left still add up to 1, in the same proportion.",
            ),
        ),
    )


def attention() -> Lesson:
    steps = attend(*(torch.tensor(rows)[None, None] for rows in (QUERIES, KEYS, VALUES)))
    weights, out = (torch.as_tensor(each).flatten().tolist() for each in (steps.weights, steps.out))
    rows = "q = [[1, 2], [0, 1]], k = [[1, 0], [0, 1], [1, 1]]"
    return Lesson(
        "Implement attention",
        "Write attention in your own notebook, then as formulas.\n\nWrite a function that takes queries q, keys k and "
        "values v, one row for each token, and returns the weights and the output of scaled dot-product attention. "
        "Paste what it returns below. You can also try formulas on the page: open *Change or remove a "
        "mechanism*, press *Formula*, type one for its position, and watch its map change.",
        "compare",
        (("m", "score=scaled_dot"), ("m", "position=formula(formula=score)")),
        (),
        (
            make_question(
                "numbers",
                f"Paste the weights that your function gives for {rows}: 2 rows of 3 numbers.",
                _typed(weights),
                tolerance=0.006,
                hint="Divide q · k by √2, then apply softmax to each row.",
            ),
            make_question(
                "numbers",
                "The same q and k, and v = [[10], [20], [30]]: what is the output of each query?",
                _typed(out),
                tolerance=0.06,
                hint="Each output is the sum of the values times the weights.",
            ),
            make_question(
                "mask",
                "Type a causal mask: query i may attend to key j only where j is not later.",
                "j <= i",
                hint="i counts queries, j counts keys, both from 0.",
            ),
            make_question(
                "mask",
                "Type a sliding window: each token attends to itself and to the two tokens before "
                "it, and to no other.",
                "j <= i and i - j < 3",
                hint="Join two conditions with `and`.",
            ),
            make_question(
                "score",
                "Type a score that loses 0.5 for each step between query and key, in both "
                "directions.",
                "score - 0.5*abs(i-j)",
                hint="abs(i-j) is the number of steps.",
            ),
        ),
    )


def patterns() -> Lesson:
    from core.interpret.roles import ROLES, read_all, role_inputs, score_roles
    from core.pretrained import load_minilm, read

    model = load_minilm()
    trace = read(model, SENTENCE).trace
    tokens = list(trace.map(0).keys)
    it, cat = tokens.index("it"), tokens.index("cat")
    strongest = max(
        (float(item.weights[head, it, cat]), item.layer, head)
        for item in trace.maps
        for head in range(len(item.weights))
    )
    roles = score_roles(read_all(model, role_inputs(model))).head_roles
    heads = {
        role.key: [head for head, index in roles.items() if ROLES[index] is role] for role in ROLES
    }
    return Lesson(
        "Find patterns in a trained model",
        "Look for heads that do one thing, in a model that was trained on sentences.\n\nThe page shows all 72 heads of "
        "MiniLM on one sentence. Pick a head in the grid, then a word. Write a head as L3·H1: layer 3, head 1, both "
        "counted from 0.",
        "pretrained",
        (("inside:text", SENTENCE),),
        ("pretrained:order", "pretrained:scale", "pretrained:from"),
        (
            make_question(
                "text",
                "In which head does **it** take most from **cat**?",
                _names([strongest[1:]]),
                hint="Pick **it** as the query, and go through the heads.",
            ),
            make_question(
                "numbers",
                "How much does **it** take from **cat** in that head?",
                _typed(strongest[:1]),
                tolerance=0.01,
                hint="Point at the cell: row it, column cat.",
            ),
            make_question(
                "text",
                "Name a head in which most words attend to the word **after** them.",
                _names(heads["next"]),
                hint="Its map has a line just above the diagonal.",
            ),
            make_question(
                "text",
                "Name a head in which most words attend to the word **before** them.",
                _names(heads["previous"]),
                hint="Its map has a line just below the diagonal.",
            ),
        ),
    )


def variants() -> Lesson:
    names = {
        "dot": "Dot product",
        "scaled_dot": "Scaled dot product",
        "general": "General",
        "cosine": "Cosine",
    }
    layers = {key: seeded_layer(AttentionConfig(16, 1, score=Choice(key)), SEED) for key in names}
    learned = sum(weight.numel() for weight in layers["general"].score.parameters())
    q, k = (seeded_normal(1, 1, 64, 16, seed=SEED, name=name) for name in ("q", "k"))

    def scores(key: str, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(layers[key].attend_heads(q, k, k, k[:, 0], k[:, 0]).scores)

    (lopsided,) = (
        key
        for key in names
        if not torch.allclose(scores(key, q, k), scores(key, k, q).mT, atol=1e-4)
    )
    (steady,) = (
        key for key in names if torch.allclose(scores(key, 2 * q, k), scores(key, q, k), atol=1e-4)
    )
    ratio = float((scores("dot", q, k) / scores("scaled_dot", q, k)).median())
    return Lesson(
        "Compare variants of the score",
        "The same queries and keys, scored by every rule.\n\nChange *Head size D* and *Query length ×*, and "
        "read the table below the pictures. Some answers need a little algebra: check them against the table.",
        "scores",
        (),
        ("scores:show",),
        (
            make_question(
                "numbers",
                "How many numbers does the score General learn at head size D = 16?",
                str(learned),
                hint="It is a matrix between query and key.",
            ),
            make_question(
                "choice",
                "Which score may change when query and key are swapped?",
                names[lopsided],
                options=tuple(names.values()),
                hint="See the column *symmetric*.",
            ),
            make_question(
                "choice",
                "Which score stays the same when the query is doubled?",
                names[steady],
                options=tuple(names.values()),
                hint="See the column *query × 2*.",
            ),
            make_question(
                "numbers",
                "At D = 16, how many times as large is the dot product as the scaled one?",
                f"{ratio:g}",
                tolerance=0.01,
                hint="The scaled one is divided by √D.",
            ),
        ),
    )


def positions() -> Lesson:
    names = {"sinusoidal": "Sinusoidal", "learned": "Learned", "rope": "RoPE"}
    (steady,) = (key for key in names if _shift_change(key) < 1e-4)
    tables = {"sinusoidal": "Sinusoidal", "learned": "Learned", "rope": "RoPE", "alibi": "ALiBi"}
    (refused,) = (key for key in tables if not _reads(key, 17))
    buckets = bucket(torch.arange(0, -64, -1)).tolist()
    shared = next(at for at in range(63) if buckets[at] == buckets[at + 1])
    return Lesson(
        "Relative positions and extrapolation",
        "Some encodings count from the start of the text, others by distance.\n\nChoose encodings, and see *By "
        "distance* and *Shift*. Then think of a text that is longer than all texts of the training.",
        "positions",
        (("positions:position", "ALiBi · 2022"), ("positions:idea", "By distance")),
        ("positions:seed",),
        (
            make_question(
                "numbers",
                f"ALiBi with {HEADS} heads: by how much does head 0 lower a score at distance 10? "
                "Type it without a minus sign.",
                f"{10 * float(alibi_slopes(HEADS)[0]):g}",
                tolerance=0.01,
                hint="Its slope is 2 to the power −8/4. Times the distance, and without a minus sign.",
            ),
            make_question(
                "choice",
                "All words move five positions later. With which encoding do their scores stay the "
                "same?",
                names[steady],
                options=tuple(names.values()),
                hint="Open *Shift*.",
            ),
            make_question(
                "choice",
                "A model was built for 16 positions. Which encoding cannot read a 17th token at "
                "all?",
                tables[refused],
                options=tuple(tables.values()),
                hint="Which of them has one learned vector for each position?",
            ),
            make_question(
                "numbers",
                "T5 with 32 buckets, both directions: which is the smallest distance that shares "
                "its bucket with the next one?",
                str(shared),
                hint="Choose *T5 buckets* and *By distance*.",
            ),
        ),
    )


def efficient() -> Lesson:
    def flops(kernel: str, tokens: int) -> float:
        return attention_cost(
            AttentionConfig(HEADS * SIZE, HEADS, kernel=Choice(kernel)), tokens, tokens
        ).flops

    numbers = torch.empty(HEADS, 4096, 4096, device="meta")
    equal = next(
        tokens for tokens in range(1, 4096) if flops("linear", tokens) <= flops("exact", tokens)
    )
    return Lesson(
        "Efficient attention",
        "What attention costs as the text grows.\n\nThe page shows what each kernel took, beside what a formula says. "
        f"All questions are about {HEADS} heads of {SIZE} numbers, as on the page.",
        "efficient",
        (),
        ("efficient:backward",),
        (
            make_question(
                "numbers",
                "How many MB (a million bytes) do the weights of all 4 heads take for 4,096 "
                "tokens, 4 bytes for each number?",
                f"{numbers.nbytes / 1e6:g}",
                tolerance=1.0,
                hint="There is a weight for each head, query and key.",
            ),
            make_question(
                "numbers",
                "The text becomes twice as long. How many times as many FLOPs does exact "
                "attention need?",
                f"{flops('exact', 4096) / flops('exact', 2048):g}",
                tolerance=0.05,
                hint="Open *All numbers of each kernel*: how they grow stands after the FLOPs.",
            ),
            make_question(
                "numbers",
                "And linear attention?",
                f"{flops('linear', 4096) / flops('linear', 2048):g}",
                tolerance=0.05,
                hint="It never compares each query with each key.",
            ),
            make_question(
                "numbers",
                "From about how many tokens on does linear attention need fewer FLOPs than exact "
                "attention?",
                str(equal),
                tolerance=4.0,
                hint="Exact attention needs about 4 T² D FLOPs for each head, linear attention 4 T D².",
            ),
        ),
    )


LESSONS: dict[str, Callable[[], Lesson]] = {
    "first_steps": first_steps,
    "first_masks": first_masks,
    "attention": attention,
    "patterns": patterns,
    "variants": variants,
    "positions": positions,
    "efficient": efficient,
}


def _shift_change(key: str, tokens: int = 6, shift: int = 5) -> float:
    layer = seeded_layer(AttentionConfig(HEADS * 16, HEADS, position=Choice(key)), SEED)
    x, before = (
        seeded_normal(1, count, HEADS * 16, seed=SEED, name=name)
        for count, name in ((tokens, "x"), (shift, "before"))
    )
    with torch.inference_mode():
        first, later = layer(x).scores, layer(torch.cat((before, x), 1)).scores
        assert first is not None and later is not None
        return float((later[..., shift:, shift:] - first).abs().max())


def _reads(key: str, tokens: int) -> bool:
    choice = Choice.of(key, max_len=16) if key == "learned" else Choice(key)
    layer = Attention(AttentionConfig(HEADS * 16, HEADS, position=choice), add_positions=True)
    try:
        layer(torch.zeros(1, tokens, HEADS * 16))
    except ConfigError:
        return False
    return True


def _typed(values: Sequence[float]) -> str:
    return " ".join(f"{value:.4f}" for value in values)


def _names(heads: Sequence[tuple[int, int]]) -> str:
    return "\n".join(f"L{layer}·H{head}\n{layer}·{head}" for layer, head in heads)


if __name__ == "__main__":
    for name, build in LESSONS.items():
        (FOLDER / f"{name}.json").write_text(to_json(build(), indent=1) + "\n", "utf-8")
