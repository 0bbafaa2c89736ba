// Where everything stands: pure arithmetic on sizes, no drawing.

export const NAMES_FROM = 13; // px a cell: from here every token is named
const CLOSE_NAMES_FROM = 11;
const TICK_STEPS = [1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000];
export const GUTTER = { low: 40, high: 96, pad: 8 };
export const NARROW = 600; // px: below it the lines go under the map

// 0 means names; otherwise a number every so many tokens.
export function tickStep(cell, pitch, tokens = 1) {
  if (cell >= NAMES_FROM) return 0;
  return TICK_STEPS.find((step) => (step * cell) / tokens >= pitch) ?? 10000;
}

// Where room is short, tokens keep their words a little longer: below NAMES_FROM those of every second one, since names
// are 13 px high.
export function closeTicks(cw, ch) {
  const cell = Math.min(cw, ch), words = cell >= CLOSE_NAMES_FROM;
  return {
    words, every: words && cell < NAMES_FROM ? 2 : 1,
    rowStep: words ? 0 : tickStep(Math.min(ch, NAMES_FROM - 1), 15),
    colStep: words ? 0 : tickStep(Math.min(cw, NAMES_FROM - 1), 28),
  };
}

export const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

// A label cut to a width, with an ellipsis.
export function fit(ctx, text, width) {
  if (ctx.measureText(text).width <= width) return text;
  let cut = text.length;
  while (cut > 1 && ctx.measureText(text.slice(0, cut) + "…").width > width) cut--;
  return text.slice(0, cut) + "…";
}

export function widest(ctx, labels) {
  // Measuring thousands of labels costs more than it tells: the longest few decide.
  const longest = labels.length > 64 ? [...labels].sort((a, b) => b.length - a.length).slice(0, 16) : labels;
  return longest.reduce((most, label) => Math.max(most, ctx.measureText(label).width), 0);
}

export function cellSize(room, count, ratio) {
  const cell = room / count;
  if (cell >= 28) return 28;
  if (cell >= 10) return Math.floor(cell);
  return cell >= 1 ? Math.floor(cell * ratio) / ratio : cell;
}

// One cell for both ways while it is large or the map nearly square; long thin maps fill their room.
export function cells(roomX, roomY, cols, rows, ratio) {
  const wide = cellSize(roomX, cols, ratio);
  const high = cellSize(roomY, rows, ratio);
  const both = Math.min(wide, high);
  if (both >= 10 || (rows / cols < 3 && cols / rows < 3)) return [both, both];
  return [wide, high];
}
