// Numbers and tokens as words, for the tooltip, the caption, the live region and the table.

const minus = (text) => text.replace("-", "\u2212");
const two = (value) => minus(value.toFixed(2));

function three(value) {
  if (value !== 0 && Math.abs(value) < 0.0005) return value > 0 ? "below 0.001" : "above \u22120.001";
  return minus(value.toFixed(3));
}

// Two decimals, three where two would say nothing.
const brief = (value) => (value !== 0 && Math.abs(value) < 0.005 ? three(value) : two(value));

// A scale's end: two decimals, or as many as it takes to differ from zero.
function scaleEnd(value) {
  if (Number.isInteger(value)) return minus(String(value));
  return minus(Math.abs(value) >= 0.05 ? value.toFixed(2) : value.toPrecision(2));
}

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
  return `${pair}, ${brief(cell.value)}, ${rankWords(cell.rank)} of ${cell.seen}`;
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
    `${noun} ${three(cell.value)}`,
    ` · ${rankWords(cell.rank)} of ${all ? keysWord(cell.seen) : `${cell.seen} in sight`}`,
    view.signed || !all ? "" : `uniform would be ${three(1 / cell.seen)}`,
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
