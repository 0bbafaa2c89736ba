// A drawing as text and back, as core.attention.masks.Drawing writes it: "3x3:4.6.7", a row's bits in hexadecimal digits.

/** @param {string} text @returns {Uint8Array[]} rows of 0 and 1 */
export function readDrawing(text) {
  const [size, body] = text.split(":");
  const cols = Number(size.split("x")[1]);
  return body.split(".").map((row) => {
    const bits = [...row].map((digit) => parseInt(digit, 16).toString(2).padStart(4, "0")).join("");
    return Uint8Array.from(bits.slice(bits.length - cols), Number);
  });
}

/** @param {Uint8Array[]} drawing */
export function writeDrawing(drawing) {
  const cols = drawing[0].length, digits = Math.ceil(cols / 4);
  const rows = drawing.map((row) => {
    const bits = [...row].join("").padStart(4 * digits, "0");
    return bits.match(/.{4}/g).map((four) => parseInt(four, 2).toString(16)).join("");
  });
  return `${drawing.length}x${cols}:${rows.join(".")}`;
}
