// The pinned cells: kept by the model's own tokens, so that they stay where they are when a zoom changes the cells.

import { drawPin, outline } from "../lib/map.js";
import { number } from "../lib/numbers.js";
import { readCell } from "../lib/reading.js";
import { cellOf } from "../lib/tokens.js";

// What is read: under the pointer, else pinned last, else the page's row.
export function pickedCell(view) {
  const pinned = view.hover ?? newestPin(view);
  if (pinned || view.query == null) return pinned;
  const i = cellOf(view, "rows", view.query);
  return i < 0 ? null : { i, j: -1 };
}

export const MOST_PINS = 6; // more rows in the accent at once could not be told apart

// The pinned cells that are drawn now, oldest first.
function pinnedCells(view) {
  return view.pins
    .map(([i, j]) => ({ i: cellOf(view, "rows", i), j: cellOf(view, "cols", j) }))
    .filter(({ i, j }) => i >= 0 && j >= 0);
}

export const newestPin = (view) => pinnedCells(view).at(-1) ?? null;
export const isPinned = (view, at) => pinnedCells(view).some(({ i, j }) => i === at.i && j === at.j);

// Rows that are pinned, but for the one that is read now.
export function otherRows(view, active) {
  const { r0, r1 } = view.window;
  return [...new Set(pinnedCells(view).map(({ i }) => i))].filter((i) => i !== active && i >= r0 && i < r1);
}

export function drawPins(ctx, view, box, active) {
  const { r0 } = view.window;
  ctx.globalAlpha = 0.55;
  for (const i of otherRows(view, active)) outline(ctx, box.x - 1, box.y + (i - r0) * box.ch, box.w + 2, box.ch, 1, view.theme.pick);
  ctx.globalAlpha = 1;
  for (const { i, j } of pinnedCells(view)) drawPin(ctx, view, box, [i, j]);
}

export const pairWords = (view, { i, j, masked, value }) =>
  `${view.queries[i]} → ${view.keys[j]}, ${masked ? "masked" : number(value)}`;

// The pins as words: "pinned it → animal, 0.68; tired → street, 0.05. Esc releases."
export function sayPins(view, say) {
  const cells = pinnedCells(view).map(({ i, j }) => readCell(view, i, j));
  say("pinned ", "mark");
  const release = cells.length > 1 ? "releases all" : "releases";
  say(`${cells.map((cell) => pairWords(view, cell)).join("; ")}. ${view.touch ? "Tap again to release" : `Esc ${release}`}.`);
}
