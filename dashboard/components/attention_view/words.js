// Numbers and tokens as words, for the tooltip, the caption, the live region and the table.

const MINUS = "\u2212";

// A number by the rule of numbers.py, which says it in words.
function number(value) {
  const sign = value < 0 ? MINUS : "";
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "not a number" : `${sign}∞`;
  return sign + unsigned(Math.abs(value));
}

function unsigned(size) {
  if (size >= 99.995) {
    const decimals = size < 999.95 ? 1 : 0;
    const many = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
    return Number(size.toFixed(decimals)).toLocaleString("en-US", many);
  }
  if (size >= 0.995 && size < 1 - 5e-7) return size.toFixed(Math.max(3, places(1 - size)));
  if (size >= 0.0995 || size === 0) return size.toFixed(2);
  if (firstDigit(size) >= 0.00001) return size.toFixed(Math.max(3, places(size)));
  const [digit, power] = size.toExponential(0).split("e-");
  return `${digit}e${MINUS}${power}`;
}

const firstDigit = (size) => Number(size.toExponential(0));

// Decimals up to the first significant digit of a number.
const places = (size) => -Math.floor(Math.log10(firstDigit(size)));

// A scale's end: whole numbers as they are.
const scaleEnd = (value) => (Number.isInteger(value) ? String(value).replace("-", MINUS) : number(value));

function ordinal(n) {
  const tens = n % 100, ones = n % 10;
  const end = tens > 10 && tens < 14 ? "th" : ones === 1 ? "st" : ones === 2 ? "nd" : ones === 3 ? "rd" : "th";
  return n + end;
}

const rankWords = (rank) => (rank === 1 ? "largest" : `${ordinal(rank)} largest`);

// A layer by the model's own number: between those drawn there may be some that have no attention.
const layerNumber = (view, layer) => view.numbers?.[layer] ?? layer;
const headName = (view, layer, head) => `L${layerNumber(view, layer)}·H${head}`;

// Value, rank and company of one cell; ties share the better rank.
function readCell(view, i, j) {
  const { values, mask, cols } = view.current;
  const at = i * cols;
  if (mask && !mask[at + j]) {
    return { masked: true, value: 0, rank: 0, seen: countSeen(view, i), i, j };
  }
  const value = values[at + j];
  let rank = 1, seen = 0;
  for (let k = 0; k < cols; k++) {
    if (mask && !mask[at + k]) continue;
    seen++;
    if (values[at + k] > value) rank++;
  }
  return { masked: false, value, rank, seen, i, j };
}

function countSeen(view, i) {
  const { mask, cols } = view.current;
  if (!mask) return cols;
  let seen = 0;
  for (let k = 0; k < cols; k++) seen += mask[i * cols + k];
  return seen;
}

function maskedRows(view) {
  if (!view.current.mask) return [];
  return Array.from({ length: view.current.rows }, (_, i) => i).filter((i) => countSeen(view, i) === 0);
}

const keysWord = (n) => (n === 1 ? "1 key" : `${n} keys`);

// What the live region says.
function spoken(view, i, j) {
  const cell = readCell(view, i, j);
  const pair = `${view.queries[i]} to ${view.keys[j]}`;
  if (cell.masked) return cell.seen ? `${pair}, masked` : `${view.queries[i]} sees no key: its output is 0`;
  return `${pair}, ${number(cell.value)}, ${rankWords(cell.rank)} of ${cell.seen}`;
}

// The tooltip's three lines.
function tipLines(view, i, j) {
  const cell = readCell(view, i, j);
  const title = `${view.queries[i]} → ${view.keys[j]}`;
  if (cell.masked) {
    return [title, cell.seen ? "masked: never weighed" : "sees no key: its output is 0", "", ""];
  }
  const noun = view.signed ? "value" : "weight";
  // Of a part of a map, or of its blocks, one cannot say what the whole row would be.
  const all = !view.edges;
  return [
    title,
    `${noun} ${number(cell.value)}`,
    ` · ${rankWords(cell.rank)} of ${all ? keysWord(cell.seen) : `${cell.seen} in sight`}`,
    view.signed || !all ? "" : `uniform would be ${number(1 / cell.seen)}`,
  ];
}

// The row as a table, largest first, masked keys last.
function sortedRow(view, i) {
  const { cols } = view.current;
  const cells = Array.from({ length: cols }, (_, j) => readCellFast(view, i, j));
  return cells.sort((a, b) => a.masked - b.masked || b.value - a.value || a.j - b.j);
}

function readCellFast(view, i, j) {
  const at = i * view.current.cols + j;
  const masked = view.current.mask ? !view.current.mask[at] : false;
  return { j, masked, value: masked ? 0 : view.current.values[at] };
}
