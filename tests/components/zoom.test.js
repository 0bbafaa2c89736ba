import assert from "node:assert/strict";
import test from "node:test";

import { cellAt, pooled, visibleValue } from "../../dashboard/draw/components/lib/map.js";
import { dragTo, isZoomed, spanUnder, whole } from "../../dashboard/draw/components/lib/zoom.js";

const box = { x: 10, y: 20, cw: 5, ch: 5, rows: 4, cols: 6, w: 30, h: 20 };
const view = { queries: Array(4), keys: Array(6), window: { r0: 0, r1: 4, c0: 0, c1: 6 } };

test("the cell under a point, null beside the map", () => {
  assert.deepEqual(cellAt(view, box, 10, 20), { i: 0, j: 0 });
  assert.deepEqual(cellAt({ window: { r0: 2, c0: 1 } }, box, 39, 39), { i: 5, j: 6 });
  assert.deepEqual([cellAt(view, box, 9, 25), cellAt(view, box, 40, 25), cellAt(view, null, 1, 1)], [null, null, null]);
});

test("a drag in any direction zooms to its cells, one beyond the map to its edge", () => {
  assert.deepEqual(spanUnder(view, box, { x0: 12, y0: 22, x1: 24, y1: 33 }), { r0: 0, r1: 3, c0: 0, c1: 3 });
  assert.deepEqual(spanUnder(view, box, { x0: 100, y0: 100, x1: 22, y1: 27 }), { r0: 1, r1: 4, c0: 2, c1: 6 });
  assert.equal(spanUnder(view, box, { x0: 12, y0: 22, x1: 13, y1: 39 }), null); // one column
});

test("a press becomes a drag after five pixels, and stays one", () => {
  const pressed = { press: { x: 0, y: 0 }, drag: null };
  dragTo(pressed, { x: 3, y: 4 });
  assert.equal(pressed.drag, null);
  dragTo(pressed, { x: 6, y: 0 });
  dragTo(pressed, { x: 1, y: 0 });
  assert.deepEqual(pressed.drag, { x0: 0, y0: 0, x1: 1, y1: 0 });
});

test("a view is zoomed when its window is less than all", () => {
  assert.deepEqual(whole(view), view.window);
  assert.equal(isZoomed(view), false);
  assert.equal(isZoomed({ ...view, window: { ...view.window, c1: 5 } }), true);
});

test("a pixel of a large map is the mean or the largest of its cells that may be seen", () => {
  const values = Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8), mask = Uint8Array.of(1, 1, 0, 0, 1, 1, 0, 1);
  const large = { current: { rows: 2, cols: 4, values, mask }, window: { r0: 0, r1: 2, c0: 0, c1: 4 }, pool: "mean" };
  assert.deepEqual([...pooled(large, 1, 2)], [3.5, 8]);
  assert.deepEqual([...pooled({ ...large, pool: "max" }, 2, 2)], [2, NaN, 6, 8]);
});

test("what is below the threshold is drawn as nothing", () => {
  assert.deepEqual([0.05, -0.2, 0.2].map((value) => visibleValue({ threshold: 0.1 }, value)), [0, -0.2, 0.2]);
});
