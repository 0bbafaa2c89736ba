import assert from "node:assert/strict";
import test from "node:test";

import { layoutOne } from "../../dashboard/draw/components/attention_view/boxes.js";
import { cellSizes, closeBox, closeTicks, fit, gutterOf, mapSize, tickStep } from "../../dashboard/draw/components/lib/layout.js";

const ctx = { font: "", measureText: (text) => ({ width: 7 * Array.from(text).length }) }; // 7 px a letter
const theme = { font: "sans-serif" };

test("a cell with room for a name has no ticks, a smaller one ticks at least a pitch apart", () => {
  assert.equal(tickStep(13, 15), 0);
  assert.deepEqual([6, 3, 0.5].map((cell) => tickStep(cell, 15)), [5, 5, 50]);
  assert.equal(tickStep(6, 15, 10), 25); // a cell of ten tokens
});

test("where room is short every second name stays, then ticks", () => {
  assert.deepEqual(closeTicks(20, 20), { names: true, every: 1, nameSize: 13, rowStep: 0, colStep: 0 });
  assert.deepEqual(closeTicks(11, 11), { names: true, every: 2, nameSize: 13, rowStep: 0, colStep: 0 });
  assert.deepEqual(closeTicks(7.5, 7.5), { names: false, every: 1, nameSize: 13, rowStep: 2, colStep: 5 });
});

test("an enlarged page names every token in letters as high as its row, where the cells are large enough for names", () => {
  assert.deepEqual(closeTicks(11, 11, 1.5), { names: true, every: 1, nameSize: 11, rowStep: 0, colStep: 0 });
  assert.equal(closeTicks(7, 7, 2).names, false);
  assert.equal(closeTicks(20, 20, 2).nameSize, 13);
});

test("a label is cut at whole letters, also those of two code units", () => {
  assert.equal(fit(ctx, "token", 35), "token");
  assert.equal(fit(ctx, "token", 28), "tok…");
  assert.equal(fit(ctx, "😀😀😀", 14), "😀…");
  let measured = 0;
  const counting = { measureText: (text) => (measured++, { width: 7 * Array.from(text).length }) };
  assert.equal(fit(counting, "a".repeat(4000), 28), "aaa…");
  assert.ok(measured < 20, `a long word is measured ${measured} times`);
});

test("cells are at most 28 px, whole pixels from 10, whole device pixels below", () => {
  assert.deepEqual(cellSizes(1000, 1000, 4, 4, 1), [28, 28]);
  assert.deepEqual(cellSizes(125, 400, 10, 10, 2), [12, 12]);
  assert.deepEqual(cellSizes(75, 75, 20, 20, 2), [3.5, 3.5]);
  assert.deepEqual(cellSizes(300, 300, 600, 600, 2), [0.5, 0.5]);
});

test("a long thin map fills its room", () => {
  assert.deepEqual(cellSizes(400, 200, 400, 10, 1), [1, 20]);
  assert.deepEqual(mapSize(1, 20, 400, 10, 1), { cw: 1, ch: 20, cols: 400, rows: 10, w: 400, h: 200 });
});

test("the gutter holds the longest name between its bounds", () => {
  assert.equal(gutterOf(ctx, theme, ["a"]), 48);
  assert.equal(gutterOf(ctx, theme, ["ten letters"]), 85);
  assert.equal(gutterOf(ctx, theme, ["a name of many more letters"]), 104);
});

test("a map among others leaves room for its upright names", () => {
  const view = { window: { r0: 0, r1: 4, c0: 0, c1: 4 }, keys: ["a", "bb", "ccc", "dddd"], theme, ratio: 1 };
  const box = closeBox(ctx, view, { x: 50, gutter: 50, room: 100, cap: 420, cell: 28 });
  assert.deepEqual([box.x, box.y, box.cw, box.ch, box.w, box.h, box.gap], [50, 38, 25, 25, 100, 100, 1]);
  const beside = closeBox(ctx, view, { x: 50, gutter: 50, room: 100, cap: 420, cell: 28, beside: ["a longer name"] });
  const other = closeBox(ctx, { ...view, keys: ["a longer name"] }, { x: 50, gutter: 50, room: 100, cap: 420, cell: 28 });
  assert.equal(beside.y, other.y, "the cells of maps beside each other begin at one height");
  const wide = closeBox(ctx, view, { x: 50, gutter: 50, room: 900, cap: 100, cell: 28, growth: 1.5 });
  assert.equal(wide.ch, 56, "100 px, enlarged twice by 1.5, for four rows");
  assert.ok(!box.flat && closeBox(ctx, { ...view, keys: ["p", "q", "d", "b"] }, { x: 50, gutter: 50, room: 100, cap: 420, cell: 28 }).flat);
});

test("on a phone a map of 25 words has the words of its columns, not their places", () => {
  const words = Array.from({ length: 25 }, () => "thousand");
  const view = { theme, ratio: 1, window: { r0: 0, r1: 25, c0: 0, c1: 25 }, queries: words, keys: words, show: "matrix", height: 420 };
  const { map } = layoutOne(ctx, view, 358);
  assert.ok(map.cw < 13 && map.colStep === 0 && map.every === 2);
  assert.ok(map.top > 50, "upright words have their room");
});
