import assert from "node:assert/strict";
import test from "node:test";

import { largestOf, maskedRowsText, readCell, sortedRow, spoken, tipLines } from "../../dashboard/draw/components/lib/reading.js";

const view = {
  queries: ["it", "was"], keys: ["a", "b", "c"],
  current: { rows: 2, cols: 3, values: Float32Array.of(0.25, 0.5, 0.25, 0, 0, 0), mask: Uint8Array.of(1, 1, 1, 0, 0, 0) },
};
const partly = { ...view, current: { ...view.current, mask: Uint8Array.of(1, 0, 1, 0, 0, 0) } };

test("a cell has its rank among the keys that its query may see; ties share the better one", () => {
  assert.deepEqual(readCell(view, 0, 0), { i: 0, j: 0, masked: false, value: 0.25, rank: 2, visible: 3 });
  assert.deepEqual(readCell(partly, 0, 2), { i: 0, j: 2, masked: false, value: 0.25, rank: 1, visible: 2 });
  assert.deepEqual(readCell(partly, 0, 1), { i: 0, j: 1, masked: true, value: 0, rank: 0, visible: 2 });
});

test("a row as a table: largest first, masked last", () => {
  assert.deepEqual(sortedRow(view, 0).map(({ j }) => j), [1, 0, 2]);
  assert.deepEqual(sortedRow(partly, 0).map(({ j }) => j), [0, 2, 1]);
});

test("the largest of a row counts what may be seen", () => {
  assert.deepEqual([largestOf(view, 0), largestOf(partly, 0), largestOf(view, 1)], [1, 0, 0]);
});

test("the tooltip says value, rank and what uniform weights would be", () => {
  assert.deepEqual(tipLines(view, 0, 1, "weight"), ["it → b", "weight 0.50", " · largest of 3 keys", "uniform would be 0.33"]);
  assert.deepEqual(tipLines({ ...view, signed: true }, 0, 0, "value").slice(1), ["value 0.25", " · 2nd largest of 3 in its row", ""]);
  assert.equal(tipLines({ ...view, edges: {} }, 0, 0, "weight")[2], " · 2nd largest of 3 in sight");
});

test("weights that may be negative are ordered by size, and no uniform weight stands beside a state layer's", () => {
  const current = { rows: 1, cols: 3, values: Float32Array.of(0.25, -0.5, 0), mask: null };
  const signed = { queries: ["it"], keys: ["a", "b", "c"], current, signed: true, bySize: true, state: "a gated delta rule" };
  assert.equal(largestOf(signed, 0), 1);
  assert.deepEqual(sortedRow(signed, 0).map(({ j }) => j), [1, 0, 2]);
  assert.deepEqual(tipLines(signed, 0, 1, "weight").slice(1), ["weight \u22120.50", " · largest by size of 3 keys", ""]);
  assert.equal(spoken(signed, 0, 0), "it to a, 0.25, 2nd largest by size of 3");
  assert.equal(tipLines({ ...view, state: "a short convolution" }, 0, 1, "weight")[3], "");
});

test("what is read aloud", () => {
  assert.equal(spoken(view, 0, 0), "it to a, 0.25, 2nd largest of 3");
  assert.equal(spoken(partly, 0, 1), "it to b, masked");
  assert.equal(spoken(view, 1, 1), "was sees no key: its output is 0");
});

test("rows that see no key are named", () => {
  assert.equal(maskedRowsText(view), "was sees no key: its output is 0");
  assert.equal(maskedRowsText({ ...view, absent: "not in the text" }), "was is not in the text");
  const rows = 8, mask = new Uint8Array(rows), current = { rows, cols: 1, values: new Float32Array(rows), mask };
  assert.equal(maskedRowsText({ queries: [..."abcdefgh"], current }), "a, b, c, d, e, f and 2 more see no key: their output is 0");
});
