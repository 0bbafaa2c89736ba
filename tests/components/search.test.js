import assert from "node:assert/strict";
import test from "node:test";

import { HITS } from "../../dashboard/draw/components/page_list/hits.js";
import { search, stem, wordsOf } from "../../dashboard/draw/components/page_list/search.js";

// What a new reader types: the title that is expected, among the first three or, by the number, first.
const TYPED = [
  ["does multi-head help?", "Heads"],
  ["multihead", "Multi-head"],
  ["lesson for a class", "Lessons", 1],
  ["i am a teacher", "Lessons"],
  ["KV cache size", "Cache and decoding", 1],
  ["why divide by sqrt d", "Why divide by √D?", 1],
  ["upload your own text", "Your own text", 1],
  ["use my own csv file", "Your own table"],
  ["addition task", "Addition", 1],
  ["train a model", "Train and watch", 1],
  ["train on my own data", "Train and watch", 1],
  ["compare two models", "Two texts, two models", 1],
  ["compare trained runs", "Compare runs", 1],
  ["what is a query", "query", 2],
  ["what is attention", "attention"],
  ["window sliding", "Local window (sliding window)"],
  ["flash attention", "Fused (FlashAttention)", 1],
  ["flash attention", "Cost and speed"],
  ["What a head can do", "What a head can do", 1],
  ["long context", "Cost and speed"],
  ["does attention explain the prediction", "Why this answer"],
  ["why does it look at animal", "Why this key", 1],
  ["attribution of a score", "Why this key", 1],
  ["sources of the score", "Why this key"],
  ["composition of heads", "Why this key"],
  ["beam search", "Decode"],
  ["positional encodings", "Positions", 1],
  ["order of the words", "Positions", 1],
  ["causal masking", "causal mask", 2],
  ["tranformer architecture", "The Transformer", 1],
  ["sentiment classification", "Use a model", 1],
  ["fine tuning lora", "Fine-tune", 1],
  ["logit lens", "When it decides"],
  ["IOI", "Many pairs", 1],
  ["contrast pairs", "Many pairs", 1],
  ["counterfactual", "Many pairs", 1],
  ["clean and corrupted", "Many pairs", 1],
  ["my pairs of sentences", "Many pairs"],
  ["induction heads", "Head roles"],
  ["path patching", "What a head can do", 1],
  ["edge attribution patching", "What a head can do", 1],
  ["EAP-IG", "What a head can do", 1],
  ["circuit discovery", "What a head can do", 1],
  ["load my own model", "Pretrained models", 1],
  ["hub", "A model of the Hugging Face Hub", 1],
  ["how much memory does the cache need", "Cache and decoding"],
  ["export to pdf", "Report", 2],
  ["llama 3", "Llama 3.1 8B"],
  ["gpt oss", "Sink (GPT-OSS)", 1],
  ["difference between bert and gpt", "How do BERT, GPT and T5 differ?", 1],
  ["nystrom", "Nyström", 1],
  ["temperature sampling", "Generate"],
  ["test myself", "Quiz", 1],
  ["softmx", "softmax"],
  ["softmax", "softmax", 2],
  ["grouped query attention", "Grouped-query (GQA)", 1],
  ["KV cache", "Cache and decoding", 1],
  ["induction head", "Head roles", 1],
  ["what is a token", "token", 2],
  ["tokenizer", "token", 1],
  ["RoPE", "RoPE (its rotations)", 1],
  ["attention to a picture", "Pretrained models"],
  ["upload my attention matrix", "Pretrained models"],
  ["sinusoidal", "Sinusoidal (its waves)"],
  ["ALiBi", "ALiBi (its penalty of distance)", 1],
  ["mamba", "Mamba, RWKV, hybrids: layers without softmax", 4],
  ["state space", "Mamba, RWKV, hybrids: layers without softmax"],
  ["RWKV", "Mamba, RWKV, hybrids: layers without softmax"],
  ["hybrid", "Mamba, RWKV, hybrids: layers without softmax"],
  ["linear attention", "Mamba, RWKV, hybrids: layers without softmax", 4],
  ["gated delta", "Mamba, RWKV, hybrids: layers without softmax", 4],
  ["BERT", "BERT base", 1],
  ["attention is not explanation", "Attention is not explanation", 1],
  ["attention is all you need", "The Transformer"],
  ["attention sink", "sink", 2],
  ["multi-query", "Multi-query (MQA)", 1],
  ["sliding window", "Local window (sliding window)", 1],
  ["positional encoding", "Positions", 1],
  ["temperature", "Temperature", 1],
  ["temperature", "Temperature (Generate", 2],
  ["make my own mechanism", "Your own mechanism", 1],
  ["own score", "Your own mechanism", 1],
  ["formula", "Your own mechanism", 1],
  ["GRU", "GRU", 2],
  ["ablation", "ablation", 2],
  ["my own formula", "Your own mechanism", 1],
  ["train a small model", "Train and watch", 1],
  ["BERT heads", "BERT: its heads", 1],
  ["GPU", "Train and watch", 1],
  ["mamba", "State space dual (Mamba-2)", 1],
  ["linear attention", "linear attention", 2],
  ["cross attention", "cross-attention", 2],
  ["multi-head attention", "multi-head attention", 2],
  ["bleu", "BLEU", 2],
  ["transformer", "The Transformer", 1],
  ["logit", "logit", 2],
  ["residual", "residual connection", 1],
  ["dot product", "dot product", 2],
  ["rollout", "Why this answer", 1],
];

for (const [typed, title, most = 3] of TYPED) {
  test(`“${typed}” finds ${title}`, () => {
    const titles = search(typed).map((hit) => hit[0]);
    assert.ok(titles.slice(0, most).some((one) => one.startsWith(title)), titles.join(" | "));
  });
}

// Questions as newcomers ask them in public threads (issues of bertviz, transformers, nanoGPT, tensor2tensor, x-transformers and
// other implementations, Stack Exchange, Hacker News), and words by which readers looked for a page in vain: first or second.
const ASKED = {
  "what exactly are keys, queries, and values in attention mechanisms": ["Why the names query, key and value?"],
  "why they're called key query value": ["Why the names query, key and value?"],
  "why divide by sqrt d_k": ["Why divide by √", "Dividing by √", "One query, step by step"],
  "calculate attention by hand": ["One query, step by step"],
  "attention from scratch numpy": ["One query, step by step"],
  "dot product large softmax gradient": ["Why divide by √", "One query, step by step"],
  "temperature in softmax": ["Temperature", "Normalizers", "temperature", "softmax"],
  "how to visualize attention in bert": ["BERT: its heads", "Pretrained models"],
  "visualizing attention weights": ["Heads", "Pretrained models"],
  "how to generate attention maps": ["attention map", "Pretrained models"],
  "attention heatmap": ["Pretrained models"],
  "what does each head learn": ["Head roles"],
  "why multi-head attention": ["multi-head attention", "Heads"],
  "multi head instead of single head": ["Heads", "multi-head attention", "Multi-head"],
  "which noun does it refer to": ["Heads"],
  "why masking during inference": ["Masks", "Why the mask is causal", "Why does a decoder need a causal mask?"],
  "what is the causal mask": ["causal mask", "Masks"],
  "look ahead mask": ["Masks", "causal mask"],
  "draw my own mask": ["Masks"],
  "attention mask padding": ["Why are padded keys masked, and padded queries not?", "Masks", "Padding"],
  "why positional encoding": ["Positions", "position encoding"],
  "why add positional embedding instead of concatenate": ["Why are positions added and not concatenated?"],
  "sinusoidal vs learned positional embedding": ["Positions"],
  "rotary embeddings": ["RoPE (its rotations)", "RoPE", "RoPE (rotary)"],
  "self attention vs cross attention": ["self-attention", "cross-attention"],
  "difference between encoder and decoder": ["The Transformer"],
  "why residual connections": ["residual connection"],
  "residual stream": ["residual connection", "residual stream", "The Transformer"],
  "transformer architecture explained": ["The Transformer"],
  "seq2seq bottleneck": ["Why attention"],
  "train transformer from scratch on my own text": ["Train and watch", "Your own text"],
  "number words": ["Number words", "Train and watch"],
  "translate": ["Train and watch"],
  "KV cache size": ["Cache and decoding"],
  "MQA GQA memory": ["Cache and decoding"],
  "flash attention out of memory": ["Cost and speed"],
  "quadratic complexity": ["Cost and speed"],
  "is attention explanation": ["Attention is not explanation", "Why this answer"],
  "temperature repetition sampling": ["Temperature (Generate text)", "Generate", "sampling", "temperature"],
  "how does beam search work": ["beam search", "Decode"],
  "finetune bert with lora": ["Fine-tune"],
  "RoPE vs ALiBi": ["RoPE", "ALiBi", "RoPE (rotary)", "RoPE (its rotations)", "ALiBi (its penalty of distance)"],
  "slides": ["Export (pictures, slides, Python)"],
  "export picture": ["Export (pictures, slides, Python)"],
  "copy python code": ["Export (pictures, slides, Python)"],
  "train my own text": ["Your own text"],
  "translate number words": ["Number words"],
  "why divide by sqrt": ["Why divide by √"],
  "compare two mechanisms": ["Side by side"],
  "causal mask why": ["Masks"],
};

for (const [typed, titles] of Object.entries(ASKED)) {
  test(`“${typed}” is answered by the first or second`, () => {
    const first = search(typed, 2).map((hit) => hit[0]);
    assert.ok(first.some((one) => titles.some((title) => one.startsWith(title))), first.join(" | "));
  });
}

test("a page that shows a term comes before its definition", () => {
  for (const [term, line] of HITS.filter((hit) => hit[1].startsWith("term, seen on "))) {
    const hits = search(term);
    const page = hits.findIndex((hit) => hit[3] !== "glossary"), defined = hits.findIndex((hit) => hit[1] === line && hit[0] === term);
    assert.ok(page === 0 && defined > 0 && defined < 3, `${term}: ${hits.map((hit) => hit[0]).join(" | ")}`);
  }
});

test("words are compared without endings, accents and signs", () => {
  assert.deepEqual(wordsOf("Why divide by √D?"), ["why", "divid", "by", "sqrt", "d"]);
  assert.deepEqual(["queries", "classes", "bias", "training", "splitting"].map(stem), ["query", "class", "bias", "train", "split"]);
  assert.deepEqual(search("   ").concat(search("xyzzy")), []);
});
