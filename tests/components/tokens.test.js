import assert from "node:assert/strict";
import test from "node:test";

import { cellOf, ownOf, ownPair, ownSpan, ticks, tokensPerCell } from "../../dashboard/draw/components/lib/tokens.js";

const pooled = { edges: { rows: [10, 12, 15, 16], cols: [0, 5, 10] } };

test("a cell of a whole map is its own token", () => {
  assert.deepEqual([ownOf({}, "rows", 3), cellOf({}, "rows", 3), tokensPerCell({}, "rows")], [3, 3, 1]);
});

test("a pooled cell stands for the tokens from its edge to the next", () => {
  assert.deepEqual([10, 11, 12, 14, 15].map((token) => cellOf(pooled, "rows", token)), [0, 0, 1, 1, 2]);
  assert.deepEqual([9, 16].map((token) => cellOf(pooled, "rows", token)), [-1, -1]); // not sent
  assert.deepEqual(ownPair(pooled, { i: 1, j: 1 }), [12, 5]);
  assert.equal(tokensPerCell(pooled, "rows"), 2);
  assert.deepEqual(ownSpan(pooled, { r0: 1, r1: 3, c0: 0, c1: 2 }), [12, 16, 0, 10]);
});

test("ticks name every cell, or every so many tokens of a pooled map", () => {
  assert.deepEqual(ticks({}, "rows", ["a", "b", "c"], 1, 3, 0), [{ at: 1, text: "b" }, { at: 2, text: "c" }]);
  assert.deepEqual(ticks({}, "rows", [], 3, 12, 5), [{ at: 5, text: "5" }, { at: 10, text: "10" }]);
  assert.deepEqual(ticks(pooled, "cols", [], 0, 2, 5), [{ at: 0, text: "0" }, { at: 1, text: "5" }]);
});
