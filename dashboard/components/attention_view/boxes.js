// Boxes of the map, the lines and the picture in a container of some width: arithmetic, no drawing.

import { GUTTER, NAMES_FROM, NARROW, cellSize, cells, clamp, tickStep, widest } from "../lib/layout.js";
import { fontOf } from "../lib/theme.js";
import { tokensPerCell } from "../lib/tokens.js";
import { pictureBox } from "./patches.js";

const HEADED = 44; // px: the lines have names over their columns, and the legend stands over those

// The map's box: gutter for row names, room above for column names, the cells.
function matrixBox(ctx, view, x, y, width, height, above = 22) {
  const { r0, r1, c0, c1 } = view.window;
  const rows = r1 - r0, cols = c1 - c0;
  const theme = view.theme;
  ctx.font = fontOf(theme, 13, 600);
  const rowNames = view.queries.slice(r0, r1), colNames = view.keys.slice(c0, c1);
  const gutter = clamp(Math.ceil(widest(ctx, rowNames)), GUTTER.low, GUTTER.high) + GUTTER.pad;
  const [cw, ch] = cells(width - gutter - 2, height, cols, rows, view.ratio);
  const colWide = Math.ceil(widest(ctx, colNames));
  const flat = cw >= NAMES_FROM && colWide <= cw - 2;
  const top = Math.max(above, cw < NAMES_FROM || flat ? 22 : clamp(colWide, 20, GUTTER.high) + 8);
  return {
    x: x + gutter, y: y + top, cw, ch, rows, cols, gutter, top, flat,
    w: Math.max(1, Math.round(cw * cols * view.ratio) / view.ratio),
    h: Math.max(1, Math.round(ch * rows * view.ratio) / view.ratio),
    rowStep: tickStep(ch, 15, tokensPerCell(view, "rows")), colStep: tickStep(cw, 28, tokensPerCell(view, "cols")),
    gap: Math.min(cw, ch) >= 9 ? 1 : 0,
  };
}

// The lines' box: query names, curves, a strip in the scale's colours, key names, the picked query's weights.
function linesBox(ctx, view, x, y, width, pitch, room) {
  const { r0, r1, c0, c1 } = view.window;
  const rows = r1 - r0, cols = c1 - c0;
  ctx.font = fontOf(view.theme, 13, 600);
  const left = clamp(Math.ceil(widest(ctx, view.queries.slice(r0, r1))), GUTTER.low, GUTTER.high) + GUTTER.pad;
  const right = clamp(Math.ceil(widest(ctx, view.keys.slice(c0, c1))), GUTTER.low, GUTTER.high) + GUTTER.pad;
  const column = 52;
  const rowPitch = pitch ?? cellSize(room, rows, view.ratio);
  const keyPitch = Math.min(rowPitch, Math.max(room, rowPitch * rows) / cols);
  const from = x + left, to = Math.max(from + 60, x + width - right - column - 8);
  return {
    x, y, from, to, rows, cols, rowPitch, keyPitch,
    names: to + 12, weights: to + 8 + right + column,
    h: Math.max(rows * rowPitch, cols * keyPitch),
    rowStep: tickStep(rowPitch, 15, tokensPerCell(view, "rows")), keyStep: tickStep(keyPitch, 15, tokensPerCell(view, "cols")),
  };
}

// Boxes for the layouts "one" and "frames" in a container of some width.
export function layoutOne(ctx, view, width) {
  const cap = view.height ?? Math.max(360, Math.min(640, width));
  const wants = view.show, narrow = width < NARROW;
  const out = { map: null, lines: null, picture: null, width, height: 0 };
  const keys = view.window.c1 - view.window.c0;
  if (wants !== "lines") {
    const share = wants === "both" && !narrow ? (keys <= 24 ? 0.39 : 0.5) : 1;
    out.map = matrixBox(ctx, view, 0, 0, Math.floor(width * share), cap, wants === "both" && !narrow ? HEADED : 22);
    out.height = out.map.y + out.map.h + 3;
  }
  if (wants === "both" && view.patches) {
    const beside = !narrow;
    const x = beside ? Math.max(out.map.x + out.map.w + 32, Math.floor(width * 0.5)) : 0;
    const y = beside ? out.map.y : out.height + 32;
    out.picture = pictureBox(view, x, y, width - x - 2, beside ? Math.max(240, out.map.h) : cap);
    out.height = Math.max(out.height, y + out.picture.h + 3);
  } else if (wants !== "matrix") {
    if (out.map && !narrow) {
      const x = Math.min(Math.floor(width * 0.62), Math.max(out.map.x + out.map.w + 32, Math.floor(width * 0.45)));
      out.lines = linesBox(ctx, view, x, out.map.y, Math.min(width - x, 520), out.map.ch, out.map.h);
    } else {
      const y = out.map ? out.height + 32 : narrow ? 24 : HEADED;
      out.lines = linesBox(ctx, view, 0, y, Math.min(width, 640), null, cap);
    }
    out.height = Math.max(out.height, out.lines.y + out.lines.h + 3);
  }
  // A small map alone has its legend below it, and its tools not at the far end of the page.
  out.small = narrow || (!out.lines && !out.picture && out.map.x + out.map.w < 560);
  out.left = out.map?.x ?? 0;
  out.right = out.lines || out.picture ? width : Math.min(width, Math.max(320, out.map.x + out.map.w));
  return out;
}
