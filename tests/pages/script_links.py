"""Pages in other states than at first sight, by the whole names of their links."""

from dashboard.draw.questions import ANSWERS

TYPED = """Say "no" \\ ''' \"\"\" é世 {x}"""
LINKS: list[tuple[str, dict[str, str]]] = [
    ("start", {"start:sentence": "two hundred and forty two", "start:q1": "0.5"}),
    (
        "one_query",
        {
            "one:source": "Matrices Q, K, V",
            "one:matrices": "1,2;3,4|1,0;0,1;1,1|0.5,0.3;0.8,0.2;0.1,0.9",
        },
    ),
    (
        "one_query",
        {
            "one:start": "layer",
            "one:tokens": TYPED,
            "one:head": "2",
            "one:mask": "padding",
            "one:projection": "differential",
        },
    ),
    ("heads", {"heads:idea": "One head or many", "heads:weights": "Random", "heads:tokens": TYPED}),
    ("heads", {"heads:idea": "Shared keys and values", "heads:tokens": TYPED, "heads:layer": "1"}),
    (
        "heads",
        {"heads:idea": "Shared keys and values", "heads:weights": "Random", "heads:seed": "5"},
    ),
    ("heads", {"heads:idea": "Two maps, subtracted", "heads:weights": "MiniLM"}),
    (
        "heads",
        {"heads:idea": "Two maps, subtracted", "heads:weights": "Random", "heads:d_model": "128"},
    ),
    ("positions", {"positions:idea": "The encoding"}),
    ("positions", {"positions:idea": "By distance"}),
    ("positions", {"positions:idea": "Shift"}),
    ("positions", {"positions:position": "RoPE · 2021", "positions:idea": "The encoding"}),
    (
        "positions",
        {
            "positions:position": "RoPE · 2021",
            "positions:idea": "The encoding",
            "positions:query": "20",
            "positions:apart": "5",
        },
    ),
    ("positions", {"positions:position": "RoPE · 2021", "positions:idea": "By distance"}),
    ("positions", {"positions:position": "RoPE · 2021", "positions:idea": "Shift"}),
    (
        "positions",
        {
            "positions:position": "ALiBi · 2022",
            "positions:idea": "Shuffle the words",
            "positions:tokens": TYPED,
        },
    ),
    ("positions", {"positions:position": "ALiBi · 2022", "positions:idea": "The encoding"}),
    ("positions", {"positions:position": "ALiBi · 2022", "positions:idea": "By distance"}),
    (
        "transformer",
        {
            "transformer:run": "seeded",
            "transformer:kind": "Decoder only",
            "transformer:head": "1-1",
        },
    ),
    (
        "scores",
        {
            "scores:show": "Scores",
            "scores:stretch": "4.0",
            "scores:dims": "8",
            "scores:tokens": TYPED,
        },
    ),
    (
        "normalizers",
        {
            "normalizers:scores": "1, x, -2, 3.5",
            "normalizers:temperature": "0.5",
            "normalizers:spread": "2.0",
        },
    ),
    ("mechanisms", {"mechanisms:axis": "Kernels"}),
    *(
        ("questions", {"questions:question": answer.question})
        for answer in [*ANSWERS.values()][1:]  # the first is what the page opens with
        if answer.study
    ),
    ("compare", {"source": "seeded", "m": "score=additive", "text": TYPED, "length": "128"}),
    (
        "efficient",
        {"efficient:sentence": TYPED, "efficient:implied_causal": "true", "efficient:head": "2"},
    ),
    (
        "cache",
        {
            "cache:prompt": TYPED,
            "cache:step": "5",
            "cache:count": "16",
            "cache:model": "DeepSeek-V2, 2024",
        },
    ),
    ("scoreboard", {"scoreboard:mechanism": "Linear"}),
    ("masks", {"masks:first": "Local window", "masks:join": "and", "masks:tokens": TYPED}),
    (
        "pretrained",
        {
            "inside:model": "induction",
            "inside:text": 'the old king \'said\' "no" \\ """ the old king',
            "pretrained:order": "Both by weight",
            "pretrained:sinks": "true",
            "head": "1.2",
            "pin": "3.1",
        },
    ),
    (
        "pretrained",
        {
            "inside:text": "Tokenizers segment words. Ünïcödé, 日本\n{a} \\n",
            "inside:second": "It's cold.",
            "pretrained:words": "true",
            "pretrained:special": "true",
            "pretrained:sentences": "A → B",
        },
    ),
    (
        "pretrained",
        {
            "inside:model": "digits",
            "inside:picture": "Digit 7",
            "pretrained:order": "Keys by weight",
        },
    ),
    (
        "inside_weight",
        {
            "inside:model": "induction",
            "inside:text": 'the old "king" \\ walked',
            "head": "1.3",
            "cell": "4.1",
        },
    ),
    ("inside_weight", {"inside:model": "numbers", "inside_weight:kind": "Decoder"}),
    ("why_key", {"inside:model": "induction", "head": "1.3", "cell": "4.1"}),
    (
        "evidence",
        {
            "inside:model": "names",
            "evidence:quantity": "logit difference",
            "head": "1.1",
            "at": "9",
        },
    ),
    ("evidence", {"inside:model": "digits", "inside:picture": "Digit 2"}),
    (
        "evidence",
        {"inside:model": "names", "evidence:way": "mean", "evidence:quantity": "logit difference"},
    ),
    ("evidence", {"inside:model": "numbers", "evidence:way": "patched in"}),
    ("evidence", {"inside:text": 'It\'s "so".', "evidence:against": 'That\\ isn\'t """it""".'}),
    ("lens", {"inside:model": "numbers", "inside:text": "seven ; ninety"}),
    (
        "lens",
        {
            "lens:view": "Who wrote it",
            "inside:model": "induction",
            "inside:text": 'the old "king" \\ walked . the old',
        },
    ),
    (
        "circuits",
        {
            "inside:model": "numbers",
            "circuits:kind": "V: values",
            "circuits:head": "decoder L0·H2",
            "circuits:token": "hundred",
        },
    ),
    ("circuits", {"inside:model": "digits"}),
    (
        "head_roles",
        {
            "head_roles:own": 'It\'s a "dog".\nThe cat\\ sat.\nDogs bark and dogs run.',
            "head_roles:where": "Clearest example",
        },
    ),
    ("head_roles", {"inside:model": "numbers", "head_roles:kind": "Decoder"}),
    ("head_roles", {"head_roles:view": "Standard tests", "inside:model": "induction"}),
    ("head_roles", {"head_roles:view": "Standard tests", "head_roles:test": "Successor"}),
    (
        "corpus",
        {"corpus:view": "Queries and keys", "corpus:x": "OV copying", "corpus:head": "L4·H2"},
    ),
    ("corpus", {"inside:model": "digits", "corpus:view": "Typical", "corpus:measure": "Entropy"}),
    (
        "generate",
        {
            "generate:strategy": "Beam",
            "inside:model": "numbers",
            "inside:text": "seven hundred ; nine",
        },
    ),
    (
        "generate",
        {
            "generate:strategy": "Sampling",
            "generate:seed": "3",
            "generate:longest": "6",
            "inside:text": "the 'old' \"king\" \\ walked . the old",
        },
    ),
    (
        "generate",
        {
            "generate:strategy": "Greedy",
            "generate:source": "Output of a head",
            "generate:strength": "-1.5",
            "generate:longest": "5",
            "inside:text": "Mary gave a cake to John",
        },
    ),
    ("two_models", {"two_models:mode": "Two models"}),
    (
        "two_models",
        {
            "two_models:mode": "Trained and untrained",
            "two_models:seed": "7",
            "inside:model": "numbers",
        },
    ),
    ("two_models", {"inside:model": "digits", "head": "0.1"}),
    ("two_models", {"inside:model": "names", "two_models:direction": "Take away: from B into A"}),
    (
        "use_model",
        {
            "inside:text": "It rains.",
            "use_model:more": 'It\'s "wet".\nC:\\ is a drive.',
            "head": "2.3",
        },
    ),
    ("use_model", {"inside:model": "digits"}),
    ("use_model", {"inside:model": "induction"}),
    ("use_model", {"inside:model": "numbers", "use_model:word": "3"}),
    ("train", {"run": "example_recurrent", "train:step:example_recurrent": "300"}),
    (
        "train",
        {
            "train:step:example_run": "50",
            "train:example": "1",
            "train:head:example_run:cross": "0.1",
        },
    ),
    ("cards", {"cards:model": "BERT base · 2018", "cards:compared": "GPT-2 · 2019"}),
    ("cards", {"cards:model": "DeepSeek-V3.2 · 2025", "cards:compared": "Llama 3.1 8B · 2024"}),
    ("claims", {"claim": "scaling", "claims:scaling:predict": "Show me"}),
    ("sweeps", {"sweeps:measure": "loss", "sweeps:over": "train_seconds"}),
    ("compare_runs", {"compare_runs:measure": "expected", "step": "360"}),
    ("decode", {"decode:strategy": "Sampling", "decode:seed": "3", "decode:picked": "7"}),
    ("decode", {"run": "example_recurrent", "decode:strategy": "Greedy", "decode:source": "e a c"}),
    ("runs", {"run": "example_recurrent"}),
    (
        "fine_tune",
        {
            "fine_tune:task": "Pairs of sequences",
            "fine_tune:head": "1.1",
            "fine_tune:kind": "causal",
        },
    ),
]
