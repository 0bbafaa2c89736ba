import assert from "node:assert/strict";
import test from "node:test";

import { filled, nearest, shareOf, stroke, valueAt } from "../../dashboard/draw/components/sketch_view/points.js";

test("a value and its share of a scale are inverse, also where it is logarithmic", () => {
  for (const scale of [{ low: -2, high: 6, log: false }, { low: 0.01, high: 100, log: true }]) {
    for (const share of [0, 0.25, 0.5, 1]) assert.ok(Math.abs(shareOf(scale, valueAt(scale, share)) - share) < 1e-12);
  }
  assert.equal(valueAt({ low: 0.01, high: 100, log: true }, 0.5).toFixed(9), "1.000000000");
  assert.equal(valueAt({ low: 0, high: 1, log: false }, 1.7), 1);
  assert.equal(shareOf({ low: 3, high: 3, log: false }, 3), 0.5);
});

test("a stroke moves the nearest point, and each that it crosses onto itself", () => {
  const places = [0, 10, 20, 30];
  assert.equal(nearest(places, 14), 1);
  assert.deepEqual(stroke([null, 0.5, null, null], places, { x: 2, share: 0.1 }, { x: 2, share: 0.1 }), [0.1, 0.5, null, null]);
  const there = stroke([null, null, null, null], places, { x: 5, share: 0 }, { x: 25, share: 1 });
  assert.deepEqual(there, [null, 0.25, 1, null]); // 25 lies as near to 20 as to 30: the first one takes the end
  assert.deepEqual(stroke(there, places, { x: 26, share: 1 }, { x: 9, share: 2 }), [null, 1, 1, null]);
});

test("what was not drawn lies between its neighbours, at the height of the only one, or in the middle", () => {
  assert.deepEqual(filled([null, 0.2, null, 0.6, null]).map((share) => Number(share.toFixed(9))), [0.2, 0.2, 0.4, 0.6, 0.6]);
  assert.deepEqual(filled([null, null]), [0.5, 0.5]);
});
