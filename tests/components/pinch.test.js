import assert from "node:assert/strict";
import test from "node:test";

import { pinchedSpan } from "../../dashboard/draw/components/lib/pinch.js";

const all = { r0: 0, r1: 16, c0: 0, c1: 16 };
const box = { x: 100, y: 50, w: 160, h: 160 };
const fingers = (x, y, apart) => ({ x, y, apart });

test("fingers twice as far apart show half of the rows and columns, around the point between them", () => {
  const middle = pinchedSpan(all, all, box, fingers(180, 130, 40), fingers(180, 130, 80));
  assert.deepEqual(middle, { r0: 4, r1: 12, c0: 4, c1: 12 });
  const corner = pinchedSpan(all, all, box, fingers(100, 210, 40), fingers(100, 210, 80));
  assert.deepEqual(corner, { r0: 8, r1: 16, c0: 0, c1: 8 });
});

test("fingers that move together pan, never beyond the map", () => {
  const part = { r0: 4, r1: 12, c0: 4, c1: 12 };
  assert.deepEqual(pinchedSpan(part, all, box, fingers(180, 130, 50), fingers(140, 170, 50)), { r0: 2, r1: 10, c0: 6, c1: 14 });
  assert.deepEqual(pinchedSpan(part, all, box, fingers(100, 50, 50), fingers(260, 210, 50)), { r0: 0, r1: 8, c0: 0, c1: 8 });
});

test("the least is two rows and columns, the most the whole map, and a map of one row stays", () => {
  assert.deepEqual(pinchedSpan(all, all, box, fingers(180, 130, 10), fingers(180, 130, 900)), { r0: 7, r1: 9, c0: 7, c1: 9 });
  assert.deepEqual(pinchedSpan({ r0: 4, r1: 8, c0: 0, c1: 4 }, all, box, fingers(180, 130, 90), fingers(180, 130, 3)), all);
  const row = { r0: 0, r1: 1, c0: 0, c1: 8 };
  assert.deepEqual(pinchedSpan(row, row, box, fingers(180, 130, 40), fingers(180, 130, 80)), { r0: 0, r1: 1, c0: 2, c1: 6 });
});
