// Numbers and bits as Python packs them, from base64.

export function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
  return bytes;
}

export function unpack({ type, low, step, bytes }) {
  const raw = fromBase64(bytes);
  if (type === "f4") return new Float32Array(raw.buffer, raw.byteOffset, raw.length / 4);
  return Float32Array.from(new Uint16Array(raw.buffer, raw.byteOffset, raw.length / 2), (k) => low + k * step);
}

// One bit a cell, most significant first, as numpy packs them.
export function unpackBits(mask, size) {
  if (!mask) return null;
  const raw = fromBase64(mask.bytes);
  const planes = Array.from({ length: mask.planes }, () => new Uint8Array(size));
  planes.forEach((plane, p) => {
    for (let at = 0; at < size; at++) {
      const bit = p * size + at;
      plane[at] = (raw[bit >> 3] >> (7 - (bit & 7))) & 1;
    }
  });
  return planes;
}
