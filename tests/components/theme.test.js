import assert from "node:assert/strict";
import test from "node:test";

import { colourAt, lookup, luminance, rgbAt, rgbOf, shade } from "../../dashboard/draw/components/lib/theme.js";

test("a lookup table starts and ends on the outer stops and passes through the middle one", () => {
  const table = lookup(["#000000", "#FF8000", "#FFFFFF"], 255);
  assert.equal(table.length, 3 * 255);
  assert.deepEqual([0, 127, 254].map((k) => rgbAt(table, k)), [[0, 0, 0], [255, 128, 0], [255, 255, 255]]);
  assert.equal(colourAt(table, 127), "rgba(255, 128, 0, 1)");
});

test("a value outside the scale has the colour of its end", () => {
  assert.deepEqual([-1, 0, 0.5, 1, 2].map((value) => shade(value, 0, 1)), [0, 0, 128, 255, 255]);
  assert.equal(shade(0, -2, 2), 128);
});

test("luminance of black, white and a grey (WCAG)", () => {
  assert.deepEqual(["#000000", "#FFFFFF"].map((hex) => luminance(rgbOf(hex))), [0, 1]);
  assert.ok(Math.abs(luminance(rgbOf("#777777")) - 0.1845) < 1e-3);
});
