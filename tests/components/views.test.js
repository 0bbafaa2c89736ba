import assert from "node:assert/strict";
import test from "node:test";

import { filmFrames, frameOf } from "../../dashboard/draw/components/attention_view/film.js";
import { decodeGrid, headAt, layoutGrid } from "../../dashboard/draw/components/attention_view/grid.js";
import { patchAt } from "../../dashboard/draw/components/attention_view/patches.js";
import { isPinned, otherPins, otherRows, pickedCell, rangeOf, setCurrent } from "../../dashboard/draw/components/attention_view/state.js";
import { readDrawing, writeDrawing } from "../../dashboard/draw/components/mask_board/drawing.js";
import { differenceOf } from "../../dashboard/draw/components/multiples/tiles.js";

test("a drawing is read and written alike", () => {
  const text = "3x6:20.3f.01";
  assert.deepEqual(readDrawing(text).map((row) => row.join("")), ["100000", "111111", "000001"]);
  assert.equal(writeDrawing(readDrawing(text)), text);
});

test("the scale of weights is 0 to 1, to the largest, or to a percentile; of signed numbers both ways", () => {
  const values = Float32Array.from({ length: 1000 }, (_, k) => (k === 999 ? -8 : k / 1000));
  assert.deepEqual(rangeOf({ scale: "unit" }, values), [0, 1]);
  assert.deepEqual(rangeOf({ scale: "largest" }, values), [0, 8]);
  assert.ok(rangeOf({ scale: "p99.5" }, values)[1] < 1);
  assert.deepEqual(rangeOf({ scale: "unit", signed: true }, values), [-8, 8]);
  assert.deepEqual(rangeOf({ scale: "unit" }, Float32Array.of(0.5, 1.75)), [0, 1.75]); // a state layer's
  assert.deepEqual(rangeOf({ scale: "largest" }, new Float32Array(3)), [0, 1]);
});

test("a view shows its head, under its own mask or the one of all heads", () => {
  const one = { rows: 1, cols: 2, heads: [4, 7], values: Float32Array.of(1, 2, 3, 4), masks: [Uint8Array.of(1, 0)] };
  const view = { layout: "one", one, head: 7, scale: "unit", queries: ["a"], keys: ["a", "b"] };
  setCurrent(view);
  assert.deepEqual([...view.current.values], [3, 4]);
  assert.deepEqual([...view.current.mask], [1, 0]);
  assert.deepEqual(view.window, { r0: 0, r1: 1, c0: 0, c1: 2 });
});

test("pins keep their tokens, and the newest is read while nothing is under the pointer", () => {
  const view = { pins: [[10, 0], [13, 5]], edges: { rows: [10, 12, 16], cols: [0, 5, 9] }, window: { r0: 0, r1: 2 }, hover: null };
  assert.deepEqual(pickedCell(view), { i: 1, j: 1 });
  assert.ok(isPinned(view, { i: 0, j: 0 }) && !isPinned(view, { i: 0, j: 1 }));
  assert.deepEqual(otherPins(view, { i: 1, j: 1 }), [[10, 0]]);
  assert.deepEqual(otherRows(view, 1), [0]);
  assert.deepEqual(pickedCell({ ...view, pins: [], query: 12 }), { i: 1, j: -1 });
});

test("a point of the picture is a query, or a key of the picked row where only keys are patches", () => {
  const values = Float32Array.of(0.1, 0.9, 0.8, 0.2, 0.7, 0.3, 0.4, 0.6);
  const view = { query: 0, pins: [], hover: null, edges: { rows: [0, 1, 2, 3, 4], cols: [0, 1, 2] }, window: { r0: 0, r1: 4, c0: 0, c1: 2 } };
  const box = { x: 10, y: 10, w: 100, h: 100 }, patches = { rows: 2, cols: 2, first: 0, queries: true };
  assert.deepEqual(patchAt({ ...view, patches, current: { rows: 4, cols: 2, values } }, box, 80, 80), { i: 3, j: 1 });
  const turned = { ...view, edges: { rows: [0, 1, 2], cols: [0, 1, 2, 3, 4] }, window: { r0: 0, r1: 2, c0: 0, c1: 4 }, query: 1 };
  const keys = { ...turned, patches: { ...patches, queries: false }, current: { rows: 2, cols: 4, values } };
  assert.deepEqual(patchAt(keys, box, 20, 80), { i: 1, j: 2 });
  assert.equal(patchAt(keys, box, 5, 80), null);
});

test("the film shows the picked frame, the last, and others that do not touch them", () => {
  const view = { frames: { steps: [0, 10, 20, 30, 40] }, frameIndex: 1 };
  assert.deepEqual(filmFrames(view, 1000).sort(), [0, 1, 2, 3, 4]);
  assert.deepEqual(filmFrames(view, 100), [1, 4]);
  assert.deepEqual([null, 20, 26, 99].map((step) => frameOf(view, step)), [4, 2, 3, 4]);
});

test("thumbnails lie in rows of layers, and the one under a point is found", () => {
  const bytes = Buffer.from([1, 2, 3, 4, 5, 6]).toString("base64");
  const grid = decodeGrid({ bytes, shapes: [[2, 1, 2], [1, 1, 2]], layers: [3, 5] });
  assert.deepEqual(grid.map(({ layer, heads }) => [layer, heads.map((head) => [...head])]), [[3, [[1, 2], [3, 4]]], [5, [[5, 6]]]]);
  const box = layoutGrid({ grid, thumb: 34 }, 600);
  assert.deepEqual(headAt({ grid }, box, box.gutter + box.pitch + 1, box.top + 1), { row: 0, layer: 3, head: 1 });
  assert.equal(headAt({ grid }, box, box.gutter + box.pitch + 1, box.top + box.rowPitch + 1), null); // layer 5 has one head
});

test("a difference hatches what neither map may see", () => {
  const tile = (name, values, mask) => ({ name, current: { rows: 1, cols: 2, values: Float32Array.from(values), mask: Uint8Array.from(mask) } });
  const { current, name, range } = differenceOf({}, tile("a", [0.5, 0], [1, 0]), tile("b", [0.25, 0], [1, 0]), 0.4);
  assert.deepEqual([[...current.values], [...current.mask], range, name], [[0.25, 0], [1, 0], [-0.4, 0.4], "a \u2212 b"]);
});
