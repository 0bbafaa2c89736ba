"""Pages of pretrained models and of runs in other states, by the whole names of their links."""

LINKS: list[tuple[str, dict[str, str]]] = [
    ("pretrained", {"inside:model": "induction", "inside:text": "the old king 'said' \"no\" \\ \"\"\" the old king",
                    "pretrained:order": "both", "pretrained:sinks": "true", "head": "1.2", "pin": "3.1"}),
    ("pretrained", {"inside:text": "Tokenizers segment words. Ünïcödé, 日本\n{a} \\n",
                    "inside:second": "It's cold.", "pretrained:words": "true", "pretrained:special": "true",
                    "pretrained:sentences": "ab"}),
    ("pretrained", {"inside:model": "digits", "inside:picture": "Digit 7", "pretrained:order": "keys"}),
    ("inside_weight", {"inside:model": "induction", "inside:text": "the old \"king\" \\ walked", "head": "1.3",
                       "cell": "4.1"}),
    ("inside_weight", {"inside:model": "numbers", "inside_weight:kind": "causal"}),
    ("evidence", {"inside:model": "names", "evidence:quantity": "logit difference", "head": "1.1", "at": "9"}),
    ("evidence", {"inside:model": "digits", "inside:picture": "Digit 2"}),
    ("evidence", {"inside:text": "It's \"so\".", "evidence:against": "That\\ isn't \"\"\"it\"\"\"."}),
    ("lens", {"inside:model": "numbers", "inside:text": "seven ; ninety"}),
    ("lens", {"lens:view": "who", "inside:model": "induction", "inside:text": "the old \"king\" \\ walked . the old"}),
    ("cards", {"cards:model": "bert", "cards:compared": ""}),
    ("cards", {"cards:model": "deepseek_v32", "cards:compared": "llama3,gpt2"}),
    ("claims", {"claim": "scaling", "claims:scaling:predict": "Show me"}),
    ("sweeps", {"sweeps:measure": "loss", "sweeps:over": "trained"}),
]
