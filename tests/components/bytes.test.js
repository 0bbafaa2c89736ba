import assert from "node:assert/strict";
import test from "node:test";

import { fromBase64, unpack, unpackBits } from "../../dashboard/draw/components/lib/bytes.js";

const base64 = (bytes) => Buffer.from(bytes).toString("base64");

test("bytes come back from base64", () => {
  assert.deepEqual([...fromBase64(base64([0, 127, 255]))], [0, 127, 255]);
});

test("floats travel exactly, 16-bit numbers in steps from the lowest", () => {
  const floats = new Float32Array([0.1, -2.5, 1e-20]);
  assert.deepEqual(unpack({ type: "f4", low: 0, step: 0, bytes: base64(floats.buffer) }), floats);
  const steps = new Uint16Array([0, 1, 65535]);
  const values = unpack({ type: "u2", low: -1, step: 0.5, bytes: base64(steps.buffer) });
  assert.deepEqual([...values], [-1, -0.5, 32766.5]);
});

test("bits are the most significant first, and planes follow each other inside a byte", () => {
  const planes = unpackBits({ planes: 2, bytes: base64([0b10110010, 0b01000000]) }, 5);
  assert.deepEqual(planes.map((plane) => [...plane]), [[1, 0, 1, 1, 0], [0, 1, 0, 0, 1]]);
  assert.equal(unpackBits(null, 5), null);
});
