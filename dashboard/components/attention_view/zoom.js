// A drag opens its part of the map. What is exact already is opened here; a pooled part is asked of Python.

import { clamp } from "../lib/layout.js";
import { cellAt } from "../lib/map.js";
import { blocksWithin } from "../lib/tokens.js";
import { drawAll, drawOver } from "./draw.js";
import { send } from "./state.js";

export function zoomTo(view, drag) {
  const box = view.box.map;
  const inX = (x) => clamp(x, box.x, box.x + box.w - 0.01), inY = (y) => clamp(y, box.y, box.y + box.h - 0.01);
  const a = cellAt(view, box, inX(Math.min(drag.x0, drag.x1)), inY(Math.min(drag.y0, drag.y1)));
  const b = cellAt(view, box, inX(Math.max(drag.x0, drag.x1)), inY(Math.max(drag.y0, drag.y1)));
  if (!a || !b || b.i - a.i < 1 || b.j - a.j < 1) return drawOver(view);
  view.window = { r0: a.i, r1: b.i + 1, c0: a.j, c1: b.j + 1 };
  if (view.edges?.pooled) send(view, "window", blocksWithin(view, view.window));
  drawAll(view);
}

export function resetZoom(view) {
  view.window = { r0: 0, r1: view.current.rows, c0: 0, c1: view.current.cols };
  if (view.part) send(view, "window", null);
  drawAll(view);
}
