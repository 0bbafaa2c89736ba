// Which of the model's own tokens a cell stands for: several in a pooled map, one in any other.

/** @import { Axis, Cell, Edges, Span } from "./types" */

/** The first own token of a cell. @param {{edges?: Edges | null}} view @param {Axis} axis @param {number} cell */
export const ownOf = (view, axis, cell) => (view.edges ? view.edges[axis][cell] : cell);

/** The cell of an own token, -1 where it was not sent. @param {{edges?: Edges | null}} view @param {Axis} axis @param {number} token */
export function cellOf(view, axis, token) {
  if (!view.edges) return token;
  const edges = view.edges[axis];
  return token < edges.at(-1) ? edges.findLastIndex((edge) => edge <= token) : -1;
}

/** A cell by its own tokens. @param {{edges?: Edges | null}} view @param {Cell} cell @returns {[number, number]} */
export const ownPair = (view, { i, j }) => [ownOf(view, "rows", i), ownOf(view, "cols", j)];

/** How many own tokens a cell holds, on average. @param {{edges?: Edges | null}} view @param {Axis} axis */
export function tokensPerCell(view, axis) {
  if (!view.edges) return 1;
  const edges = view.edges[axis];
  return (edges.at(-1) - edges[0]) / (edges.length - 1);
}

/** Ticks of cells [from, to): by name for step 0, else by number. @param {{edges?: Edges | null}} view @param {Axis} axis @param {string[]} names */
export function ticks(view, axis, names, from, to, step) {
  if (!step) return names.slice(from, to).map((text, k) => ({ at: from + k, text }));
  const many = tokensPerCell(view, axis), first = ownOf(view, axis, 0);
  const made = [];
  for (let token = Math.ceil((first + from * many) / step) * step; token < first + to * many; token += step) {
    made.push({ at: Math.floor((token - first) / many), text: String(token) });
  }
  return made;
}

/** Cells as own tokens, for Python to send that part as it is. @param {{edges?: Edges | null}} view @param {Span} span */
export function ownSpan({ edges: { rows, cols } }, { r0, r1, c0, c1 }) {
  return [rows[r0], rows[r1], cols[c0], cols[c1]];
}
