import assert from "node:assert/strict";
import test from "node:test";

import { layoutOf, orderOf } from "../../dashboard/draw/components/block_diagram/layout.js";

const layer = (n) => ({ path: `layers.${n}`, title: `Layer ${n}`, sublayers: [
  { path: `layers.${n}.causal`, title: "Causal", type: "attention", around: `layers.${n}.around_causal` },
  { path: `layers.${n}.feed_forward`, title: "Feed-forward", type: "feed", around: `layers.${n}.around_feed_forward` },
] });
const stack = { name: "Decoder", nodes: [{ path: "target", title: "Embedding" }, layer(0), layer(1), { path: "output", title: "Output" }] };

test("only the open layer shows its sublayers, and no block overlaps the next", () => {
  const { placed, frames } = layoutOf(stack, "layers.1", false);
  assert.deepEqual(placed.map(({ path }) => path), ["target", "layers.0", "layers.1.causal", "layers.1.around_causal",
    "layers.1.feed_forward", "layers.1.around_feed_forward", "output"]);
  for (let i = 1; i < placed.length; i++) assert.ok(placed[i].low > placed[i - 1].high);
  assert.deepEqual(frames.map(({ path }) => path), ["layers.1"]);
});

test("in short, closed layers that follow each other are one block", () => {
  const nodes = [...stack.nodes.slice(0, 3), layer(2), layer(3), stack.nodes[3]];
  const { placed } = layoutOf({ ...stack, nodes }, "layers.0", false, true);
  assert.deepEqual(placed.slice(-2).map(({ path, title }) => [path, title]), [["layers.1", "Layers 1 to 3"], ["output", "Output"]]);
});

test("after the sum, the residual path leaves below the sublayer and enters add and norm", () => {
  const { placed, arcs } = layoutOf(stack, "layers.0", false);
  const [block, add] = [placed[1], placed[2]];
  assert.equal(arcs.length, 2);
  assert.ok(arcs[0].low < block.low && arcs[0].high > add.low && arcs[0].high < add.high);
});

test("before the sublayer, the norm lies inside the residual path", () => {
  const { placed, arcs } = layoutOf(stack, "layers.0", true);
  assert.deepEqual(placed.slice(1, 4).map(({ type }) => type), ["norm", "attention", "add"]);
  assert.ok(arcs[0].low < placed[1].low && arcs[0].high > placed[3].low);
});

test("the order of computing goes from the first stack's input to the last one's output", () => {
  const order = orderOf([layoutOf(stack, "", false), layoutOf(stack, "", false)]);
  assert.equal(order.length, 8);
  assert.deepEqual([order[0], order[7]], ["target", "output"]);
});
