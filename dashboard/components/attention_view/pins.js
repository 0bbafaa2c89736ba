// The pinned cells: kept by the model's own tokens, so that they stay where they are when a zoom changes the cells.

const MOST_PINS = 6; // more rows in the accent at once could not be told apart

// The pinned cells that are drawn now, oldest first.
function pinnedCells(view) {
  return view.pins
    .map(([i, j]) => ({ i: cellOf(view, "rows", i), j: cellOf(view, "cols", j) }))
    .filter(({ i, j }) => i >= 0 && j >= 0);
}

const newestPin = (view) => pinnedCells(view).at(-1) ?? null;
const isPinned = (view, at) => pinnedCells(view).some(({ i, j }) => i === at.i && j === at.j);

// Rows that are pinned, but for the one that is read now.
function otherRows(view, active) {
  const { r0, r1 } = view.window;
  return [...new Set(pinnedCells(view).map(({ i }) => i))].filter((i) => i !== active && i >= r0 && i < r1);
}

function setPins(view, pins) {
  view.pins = pins;
  send(view, view.several ? "pins" : "pin", view.several ? pins : (pins[0] ?? null));
  drawOver(view);
}

// A click pins, a second click releases; where only one may be pinned, the new one takes its place.
function togglePin(view, at) {
  if (!at || at.j < 0) return;
  const same = ({ i, j }) => i === at.i && j === at.j;
  const kept = view.pins.filter(([i, j]) => !same({ i: cellOf(view, "rows", i), j: cellOf(view, "cols", j) }));
  if (kept.length < view.pins.length) return setPins(view, view.several ? kept : []);
  setPins(view, [...(view.several ? kept.slice(1 - MOST_PINS) : []), ownPair(view, at)]);
}

function drawPins(ctx, view, box, active) {
  const { r0 } = view.window;
  ctx.globalAlpha = 0.55;
  for (const i of otherRows(view, active)) outline(ctx, box.x - 1, box.y + (i - r0) * box.ch, box.w + 2, box.ch, 1, view.theme.pick);
  ctx.globalAlpha = 1;
  for (const { i, j } of pinnedCells(view)) drawPin(ctx, view, box, [i, j]);
}

const pairWords = (view, { i, j, masked, value }) =>
  `${view.queries[i]} → ${view.keys[j]}, ${masked ? "masked" : number(value)}`;

// The pins as words: "pinned it → animal, 0.68; tired → street, 0.05. Esc releases."
function sayPins(view, say) {
  const cells = pinnedCells(view).map(({ i, j }) => readCell(view, i, j));
  say("pinned ", "mark");
  const release = cells.length > 1 ? "releases all" : "releases";
  say(`${cells.map((cell) => pairWords(view, cell)).join("; ")}. ${view.touch ? "Tap again to release" : `Esc ${release}`}.`);
}
