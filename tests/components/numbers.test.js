import assert from "node:assert/strict";
import test from "node:test";

import { cellDecimals, cellNumber, number, ordinal, scaleEnd, shareText } from "../../dashboard/draw/components/lib/numbers.js";

test("a number has its sign, and no more digits than tell it apart", () => {
  const texts = { 0: "0.00", 0.5: "0.50", 0.0951: "0.095", 0.9996: "0.9996", 1.25: "1.25", 123.45: "123.5", 12345: "12,345" };
  for (const [value, text] of Object.entries(texts)) assert.equal(number(Number(value)), text);
  assert.equal(number(-1.5), "\u22121.50");
  assert.equal(number(3e-7), "3e\u22127");
  assert.equal(number(-Infinity), "\u2212∞");
  assert.equal(number(NaN), "not a number");
});

test("a tiny weight is written in words", () => {
  assert.deepEqual([0, 1e-13, 1e-7, 0.0001, 0.25, -1e-7].map(shareText), ["0", "0", "under\u00a00.0001", "0.0001", "0.25", "\u22121e\u22127"]);
});

test("all cells of a map have one format", () => {
  assert.deepEqual([0, 0.05, 0.7, 7, 70, 700, 7000].map(cellDecimals), [2, 3, 2, 2, 2, 1, 0]);
  for (const row of [[0, 6e-6, -1e-5, 0.0006, 0.25], [0.03, 1e-9], [-310.5, 2], [5000, -0.2]]) {
    const texts = row.map((value) => cellNumber(value, cellDecimals(Math.max(...row.map(Math.abs)))));
    assert.equal(new Set(texts.map((text) => text.split(".")[1]?.length)).size, 1, `${texts}: one format`);
    assert.ok(!texts.some((text) => /^−0(\.0*)?$/.test(text)));
  }
});

test("a whole end of a scale stands without decimals", () => {
  assert.deepEqual([1, -3, 0.25].map(scaleEnd), ["1", "\u22123", "0.25"]);
});

test("ordinals", () => {
  const numbers = [1, 2, 3, 4, 11, 12, 13, 21, 22, 111];
  assert.deepEqual(numbers.map(ordinal), ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "111th"]);
});
