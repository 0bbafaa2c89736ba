"""What the sidebar's search finds: pages, choices of the six axes, tasks, questions, terms, claims, cards and models.

The browser ranks them as a person types (draw/components/page_list/search.js). What can be found is a module beside that
one, so that the first page imports no torch; `make generated` writes it.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.fields.reset import last_choices
from dashboard.navigation import STEPS, step_of
from dashboard.server.session import SessionValue
from dashboard.ui import export

FILE = Path(__file__).parent / "draw" / "components" / "page_list" / "hits.js"
BEFORE, AFTER = "export const HITS = ", ";\n"
PICKED = SessionValue("", "search:picked")
# Its title and the line below it, other words by which a reader may look for it, the page, "" for the files of the one
# that is open, and values of its widgets.
Hit = tuple[str, str, str, str, dict[str, Any]]
OTHER_NAMES = {
    "additive": "Bahdanau",
    "general": "Luong",
    "multi_query": "MQA",
    "grouped_query": "GQA",
    "shaw": "relative positions",
    "relative_logits": "Inkling",
    "clipped": "Inkling 2",
    "query_sink": "Inkling 2",
    "dynamic_conv": "Inkling 2",
    "local": "sliding window",
    "causal_local": "sliding window",
    "global_window": "Longformer",
    "sink": "GPT-OSS",
    "fused": "FlashAttention",
    "ssd": "Mamba-2",
    "retention": "RetNet",
    "gated_delta": "Gated DeltaNet",
    "gla": "GLA",
    "delta": "DeltaNet",
    "kda": "Kimi Linear",
    "gdn2": "Gated DeltaNet-2",
    "trapezoid": "Mamba-3",
    "hgrn2": "HGRN2",
    "lightning": "DeepSeek sparse",
    "path": "PaTH-FoX",
    "rope": "rotary",
    "formula": "type your own rule",
    "compressed": "ZAYA1",
}  # of choices, shown after the name
WORDS = {
    "start": "home begin introduction tour beginner what is attention",
    "why": "translation long sentence one vector bottleneck recurrent RNN seq2seq cross-attention",
    "one_query": "Q K V softmax formula calculate by hand from scratch numpy example divide sqrt d scale dot product matrix "
    "temperature",
    "heads": "multi-head multihead several split help visualize attention weights refer pronoun",
    "positions": "order of words positional encoding sinusoidal RoPE shuffle",
    "masks": "causal mask padding future hide later words draw my own custom look ahead",
    "transformer": "attention is all you need architecture encoder decoder block layer residual stream feed-forward "
    "diagram cross-attention",
    "train": "train small model transformer from scratch your own data learn loss GPU tasks upload backpropagation translate",
    "own_text": "upload a file of text",
    "own_pairs": "upload a file of pairs translation",
    "own_table": "upload a file CSV spreadsheet data",
    "mechanisms": "list of every attention variant paper equation catalogue",
    "scores": "dot product cosine additive similarity",
    "normalizers": "softmax sparsemax sigmoid temperature",
    "compare": "compare mechanisms variants difference",
    "efficient": "Flash attention FLOPs memory fast time benchmark long context complexity quadratic",
    "cards": "Llama GPT DeepSeek Qwen Mistral Gemma architecture parameters size",
    "pretrained": "activations residual stream safetensors "
    "MiniLM BERT load open my own model upload attention matrix array picture image patches "
    "Hugging Face visualize plot attention map heatmap weights heads",
    "inside_weight": "why is this attention weight large q k product",
    "why_key": "why does it look at animal attribution of a score sources composition residual stream contribution "
    "decompose QK",
    "head_roles": "previous token pattern what does a head do learn look at syntax syntactic dependency treebank conllu "
    "verb object subject",
    "circuits": "OV QK circuit copying head copies a word composition induction interpretability path patching edge "
    "attribution EAP-IG circuit discovery IOI",
    "corpus": "statistics many texts",
    "evidence": "evidence attention explanation explain importance ablation patching gradient saliency rollout remove head "
    "zero mean resample resampling direct effect logit difference KL",
    "pairs": "IOI indirect object identification contrast pairs counterfactual clean corrupted patching CSV template "
    "position many sentences interval",
    "lens": "logit lens layer by layer prediction",
    "generate": "write text story chat next token GPT temperature sampling probability steering steer direction activation "
    "addition contrastive vector",
    "decode": "beam search greedy sampling top-k top-p",
    "cache": "KV cache size key value memory bytes inference MQA GQA MHA",
    "two_models": "compare two models two sentences difference",
    "use_model": "classify sentiment embedding similar sentences fill in translate summarize",
    "fine_tune": "LoRA adapter finetuning adapt my own data",
    "runs": "saved trained model history continue delete download checkpoint",
    "compare_runs": "compare trained models curves",
    "sweeps": "hyperparameter search seeds grid learning rate",
    "scoreboard": "leaderboard benchmark skills recall parity copying state tracking zoology mad mqar best mechanism",
    "claims": "is it true evidence experiment reproduce paper results measured",
    "questions": "FAQ answers",
    "glossary": "definition meaning of a word dictionary vocabulary",
    "quiz": "test myself exam questions",
    "lessons": "for a class teacher teach students exercise homework classroom course assignment",
    "report": "export download PDF save share picture",
}  # of pages, and of tasks on data of one's own
SINGLE: tuple[Hit, ...] = (
    (
        "Export (pictures, slides, Python)",
        "Take what this page shows as files.",
        "export download save image figure PNG SVG PDF powerpoint presentation notebook code script CSV copy",
        "",
        {},
    ),
    (
        "Head roles: induction head",
        "See which heads find what followed before.",
        "induction heads copy pattern",
        "head_roles",
        {"inside:model": "induction", "head_roles:role": "induction"},
    ),
    (
        "Your own mechanism (formula)",
        "Write the score of a query and a key as a rule of your own.",
        "make my own score mask normalizer custom design invent build",
        "mechanisms",
        {"mechanisms:axis": "position", "mechanisms:position": "formula"},
    ),
    (
        "Mamba, RWKV, hybrids: layers without softmax",
        "See what each token reads of the earlier ones in a state layer.",
        "state space model SSM hybrid linear attention gated delta rule DeltaNet KDA Qwen3-Next Jamba Falcon-H1 xLSTM "
        "recurrent Gemma Griffin lightning short convolution LFM2 negative weights",
        "pretrained",
        {},
    ),
    (
        "Two models, one text",
        "Compare the heads of two pretrained models.",
        "compare two models side by side difference",
        "two_models",
        {"two_models:mode": "models"},
    ),
    (
        "Make a lesson",
        "Put your own text and questions beside a page.",
        "create write build class teacher",
        "lessons",
        {"lessons:part": "Make a lesson"},
    ),
    (
        "Temperature",
        "Turn the temperature of softmax at step 5 of One query.",
        "",
        "one_query",
        {"one:stage": 5},
    ),
    *(
        (
            f"{name} ({does})",
            f"See what {name} does to a sentence, on Positions.",
            words,
            "positions",
            {"positions:position": key, "positions:idea": "encoding"},
        )
        for key, name, does, words in (
            ("rope", "RoPE", "its rotations", "rotary position embedding"),
            ("alibi", "ALiBi", "its penalty of distance", "linear biases"),
            ("sinusoidal", "Sinusoidal", "its waves", "sinusoids sine cosine positional encoding"),
        )
    ),
    *(
        (
            name,
            f"See what each head does to the answer, {does}.",
            words,
            "evidence",
            {"evidence:way": way},
        )
        for way, name, does, words in (
            ("mean", "Mean ablation", "beside its mean output", "baseline of a corpus"),
            ("resampled", "Resample ablation", "beside its output on a second text", "resampling"),
            ("patched", "Patching of heads", "put into a second text", "activation patching"),
            ("direct", "Direct effect", "by itself", "direct logit attribution DLA of heads"),
        )
    ),
    (
        "Temperature (Generate text)",
        "Sample a text, less or more at random.",
        "",
        "generate",
        {"generate:strategy": "Sampling"},
    ),
)  # parts of pages


def collect() -> list[Hit]:
    from core.attention import AXES
    from core.claims.catalogue import CLAIMS
    from core.models.cards import CARDS
    from core.pretrained import MINILM, lab_models
    from core.studies.questions import ANSWERS
    from core.tasks import TASKS
    from dashboard.draw.glossary import TERMS
    from dashboard.fields.model import OTHER, OWN_MODEL
    from dashboard.ui.models import ABOUT

    return [
        *((step.title, step.invite, WORDS[step.key], step.key, {}) for step in STEPS),
        *SINGLE,
        (
            "A model of the Hugging Face Hub",
            "Type its name, as owner/name, into the box.",
            "hub download load huggingface my own model",
            "pretrained",
            {"inside:model": OTHER},
        ),
        (
            "Your own PyTorch model",
            "Read the attention of a model in a Python file.",
            "my own model custom code handwritten nn.Module py file",
            "pretrained",
            {"inside:model": OWN_MODEL},
        ),
        (
            "BERT: its heads",
            "See the 72 heads of MiniLM, a small BERT.",
            "attention maps",
            "pretrained",
            {"inside:model": MINILM},
        ),
        *(
            (
                term.name,
                f"term, seen on {step_of(term.page).title}",
                " ".join((*term.forms, term.text)),
                "glossary",
                {"glossary:find": term.name},
            )
            for term in TERMS
        ),
        *(
            (
                f"{item.name} ({OTHER_NAMES[item.key]})" if item.key in OTHER_NAMES else item.name,
                f"{axis} · {item.paper} {item.year}" if item.paper else axis,
                item.meaning,
                "mechanisms",
                {"mechanisms:axis": axis, f"mechanisms:{axis}": item.key},
            )
            for axis, entries in AXES.items()
            for item in entries
            if item.key != "none"
        ),
        *(
            (question, "question", answer, "questions", {"questions:question": key})
            for key, (question, answer) in ANSWERS.items()
        ),
        *(
            (card.name, "model card", card.different, "cards", {"cards:model": card.key})
            for card in CARDS
        ),
        *(
            (
                entry.name,
                "task to train on",
                f"{entry.meaning} {WORDS.get(entry.key, '')}",
                "train",
                {"train:task": entry.key},
            )
            for entry in TASKS
        ),
        *(
            (name, f"model · {ABOUT[name]}", "", "pretrained", {"inside:model": name})
            for name in (MINILM, *lab_models())
        ),
        *(
            (
                claim.name,
                "claim",
                f"{claim.subject} {claim.statement}",
                "claims",
                {"claims:claim": claim.key},
            )
            for claim in CLAIMS
        ),
    ]


@cache
def hits() -> dict[str, Hit]:
    return {
        f"{hit[0]} · {hit[1]}": hit
        for hit in json.loads(FILE.read_text("utf-8").removeprefix(BEFORE).removesuffix(AFTER))
    }


def open_picked(current: str) -> None:
    """Open what was picked in the run before; its page draws its widgets with the values of what was picked."""
    if hit := hits().get(PICKED.value):
        *_, page, values = hit
        if not page:
            export.request()
        elif page != current:
            st.switch_page(step_of(page).page(), query_params={})
        PICKED.pop()
        # What is only looked at was not built (`watch_built`)
        last_choices(page or current).pop()
        st.session_state.update(values)


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(hit, ensure_ascii=False) for hit in collect())
    FILE.write_text(f"{BEFORE}[\n{lines}\n]{AFTER}", "utf-8")
