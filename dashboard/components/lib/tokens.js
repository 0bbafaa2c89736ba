// Which of the model's own tokens a cell stands for. Past 512 a cell stands for several, and a zoom asks for its part.

// The first own token of a cell, and the cell of an own token (-1 where it was not sent).
export const ownOf = (view, axis, cell) => (view.edges ? view.edges[axis][cell] : cell);

export function cellOf(view, axis, token) {
  if (!view.edges) return token;
  const edges = view.edges[axis];
  if (token < edges[0] || token >= edges[edges.length - 1]) return -1;
  let low = 0, high = edges.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (edges[middle] <= token) low = middle;
    else high = middle - 1;
  }
  return low;
}

export const ownPair = (view, { i, j }) => [ownOf(view, "rows", i), ownOf(view, "cols", j)];

// How many own tokens a cell holds, on average: 1 unless the map is pooled.
export function tokensPerCell(view, axis) {
  if (!view.edges) return 1;
  const edges = view.edges[axis];
  return (edges[edges.length - 1] - edges[0]) / (edges.length - 1);
}

// The ticks of the cells [from, to): every cell by name for step 0, else every so many own tokens by number.
export function ticks(view, axis, names, from, to, step) {
  if (!step) return Array.from({ length: to - from }, (_, k) => ({ at: from + k, text: names[from + k] }));
  const many = tokensPerCell(view, axis), first = view.edges ? view.edges[axis][0] : 0;
  const out = [];
  for (let token = Math.ceil((first + from * many) / step) * step; token < first + to * many; token += step) {
    out.push({ at: Math.floor((token - first) / many), text: String(token) });
  }
  return out;
}

// A zoom into a pooled map is answered by Python, with the part as it is; any other stays here.
export function blocksWithin(view, { r0, r1, c0, c1 }) {
  const { rows, cols } = view.edges;
  return [rows[r0], rows[r1], cols[c0], cols[c1]];
}

export function blockWords(view) {
  if (!view.edges?.pooled) return "";
  const [down, across] = ["rows", "cols"].map((axis) => tokensPerCell(view, axis).toFixed(1).replace(".0", ""));
  return ` · a cell is the ${view.pool === "max" ? "largest" : "mean"} of ${down} × ${across} tokens, drag to zoom`;
}
