import assert from "node:assert/strict";
import test from "node:test";

import { search, stem, wordsOf } from "../../dashboard/draw/components/page_list/search.js";

// What a new reader types: the title that is expected, among the first three or, by the number, first.
const TYPED = [
  ["does multi-head help?", "Heads"],
  ["multihead", "Multi-head"],
  ["lesson for a class", "Lessons", 1],
  ["i am a teacher", "Lessons"],
  ["KV cache size", "Cache and decoding", 1],
  ["why divide by sqrt d", "Why divide by √d?", 1],
  ["upload your own text", "Your own text", 1],
  ["use my own csv file", "Your own table"],
  ["addition task", "Addition", 1],
  ["train a model", "Train and watch", 1],
  ["train on my own data", "Train and watch", 1],
  ["compare two models", "Two texts, two models", 1],
  ["compare trained runs", "Compare runs", 1],
  ["what is a query", "query", 1],
  ["what is attention", "attention"],
  ["window sliding", "Local window (sliding window)"],
  ["flash attention", "Fused (FlashAttention)", 1],
  ["flash attention", "Cost and speed"],
  ["What a head can do", "What a head can do", 1],
  ["long context", "Cost and speed"],
  ["does attention explain the prediction", "Why this answer"],
  ["beam search", "Decode"],
  ["positional encodings", "Positions", 1],
  ["order of the words", "Positions", 1],
  ["causal masking", "causal mask", 1],
  ["tranformer architecture", "The Transformer", 1],
  ["sentiment classification", "Use a model", 1],
  ["fine tuning lora", "Fine-tune", 1],
  ["logit lens", "When it decides"],
  ["induction heads", "Head roles"],
  ["load my own model", "Pretrained models", 1],
  ["hub", "A model of the Hugging Face Hub", 1],
  ["how much memory does the cache need", "Cache and decoding"],
  ["export to pdf", "Report", 1],
  ["llama 3", "Llama 3.1 8B"],
  ["gpt oss", "Sink (GPT-OSS)", 1],
  ["difference between bert and gpt", "How do BERT, GPT and T5 differ?", 1],
  ["nystrom", "Nyström", 1],
  ["temperature sampling", "Generate"],
  ["test myself", "Quiz", 1],
  ["softmx", "softmax"],
  ["softmax", "softmax", 1],
  ["grouped query attention", "Grouped-query (GQA)", 1],
  ["KV cache", "Cache and decoding", 1],
  ["induction head", "Head roles", 1],
  ["what is a token", "token", 1],
  ["tokenizer", "token", 1],
  ["RoPE", "RoPE", 1],
  ["ALiBi", "ALiBi", 1],
  ["BERT", "BERT base", 1],
  ["attention is not explanation", "Attention is not explanation", 1],
  ["attention is all you need", "The Transformer"],
  ["attention sink", "sink", 1],
  ["multi-query", "Multi-query (MQA)", 1],
  ["sliding window", "Local window (sliding window)", 1],
  ["positional encoding", "Positions", 1],
  ["temperature", "Temperature (Generate", 1],
  ["make my own mechanism", "Your own mechanism", 1],
  ["own score", "Your own mechanism", 1],
  ["formula", "Your own mechanism", 1],
  ["GRU", "GRU", 1],
  ["ablation", "ablation", 1],
  ["my own formula", "Your own mechanism", 1],
  ["train a small model", "Train and watch", 1],
  ["BERT heads", "BERT: its heads", 1],
  ["GPU", "Train and watch", 1],
  ["mamba", "State space dual (Mamba-2)", 1],
  ["linear attention", "linear attention", 1],
  ["cross attention", "cross-attention", 1],
  ["multi-head attention", "multi-head attention", 1],
  ["bleu", "BLEU", 1],
  ["transformer", "The Transformer", 1],
  ["logit", "logit", 1],
  ["residual", "residual connection", 1],
  ["dot product", "dot product", 1],
  ["rollout", "Why this answer", 1],
];

for (const [typed, title, most = 3] of TYPED) {
  test(`“${typed}” finds ${title}`, () => {
    const titles = search(typed).map((hit) => hit[0]);
    assert.ok(titles.slice(0, most).some((one) => one.startsWith(title)), titles.join(" | "));
  });
}

test("words are compared without endings, accents and signs", () => {
  assert.deepEqual(wordsOf("Why divide by √d?"), ["why", "divid", "by", "sqrt", "d"]);
  assert.deepEqual(["queries", "classes", "bias", "training", "splitting"].map(stem), ["query", "class", "bias", "train", "split"]);
  assert.deepEqual(search("   ").concat(search("xyzzy")), []);
});
