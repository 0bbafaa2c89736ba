// Numbers and bits as Python packs them, in base64.

/** @param {string} text @returns {Uint8Array} */
export function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}

/** Floats, or 16-bit steps from the lowest value. @param {{type: string, low: number, step: number, bytes: string}} sent */
export function unpack({ type, low, step, bytes }) {
  const raw = fromBase64(bytes);
  if (type === "f4") return new Float32Array(raw.buffer, raw.byteOffset, raw.length / 4);
  return Float32Array.from(new Uint16Array(raw.buffer, raw.byteOffset, raw.length / 2), (k) => low + k * step);
}

/** Planes of 0 and 1 from one bit a cell, most significant first. @param {{planes: number, bytes: string} | null} mask @param {number} size */
export function unpackBits(mask, size) {
  if (!mask) return null;
  const raw = fromBase64(mask.bytes);
  const bit = (at) => (raw[at >> 3] >> (7 - (at & 7))) & 1;
  return Array.from({ length: mask.planes }, (_, p) => Uint8Array.from({ length: size }, (__, at) => bit(p * size + at)));
}
