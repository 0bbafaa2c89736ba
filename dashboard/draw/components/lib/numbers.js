// Numbers as text, by the rules of numbers.py.

export const MINUS = "\u2212";

/** @param {number} value */
export function number(value) {
  const sign = value < 0 ? MINUS : "";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "not a number" : `${sign}∞`;
  return sign + unsigned(Math.abs(value));
}

/** The number that `number` writes. @param {number} value */
export const rounded = (value) => Number(number(value).replaceAll(MINUS, "-").replaceAll(",", ""));

/** A weight, a probability or a share of 1. @param {number} value */
export function shareText(value) {
  if (Math.abs(value) <= 1e-12) return "0";
  return value > 0 && value < 0.0001 ? "under\u00a00.0001" : number(value);
}

/** How many decimals the cells of one map have, by its largest number: two of weights. @param {number} largest */
export function cellDecimals(largest) {
  if (largest >= 100) return largest < 1000 ? 1 : 0;
  return largest >= 0.1 || !largest ? 2 : Math.min(4, 1 - Math.floor(Math.log10(largest)));
}

/** A number in a cell; what rounds to zero has no sign. @param {number} value @param {number} decimals */
export function cellNumber(value, decimals) {
  const text = Math.abs(value).toFixed(decimals);
  return value < 0 && Number(text) ? MINUS + text : text;
}

function unsigned(size) {
  if (size >= 99.995) {
    const decimals = size < 999.95 ? 1 : 0;
    const digits = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
    return Number(size.toFixed(decimals)).toLocaleString("en-US", digits);
  }
  if (size >= 0.995 && size < 1 - 5e-7) {
    const near = Math.min(size, 0.9999);
    return near.toFixed(Math.max(3, firstDecimal(1 - near)));
  }
  if (size >= 0.0995 || size === 0) return size.toFixed(2);
  if (firstDigit(size) >= 0.00001) return size.toFixed(Math.max(3, firstDecimal(size)));
  const [digit, power] = size.toExponential(0).split("e-");
  return `${digit}e${MINUS}${power}`;
}

const firstDigit = (size) => Number(size.toExponential(0));

// Decimals up to the first significant digit of a number.
const firstDecimal = (size) => -Math.floor(Math.log10(firstDigit(size)));

/** A scale's end: whole numbers as they are. @param {number} value */
export const scaleEnd = (value) => (Number.isInteger(value) ? String(value).replace("-", MINUS) : number(value));

/** @param {number} n */
export function ordinal(n) {
  const tens = n % 100;
  const end = tens > 10 && tens < 14 ? "th" : (["th", "st", "nd", "rd"][n % 10] ?? "th");
  return n + end;
}
