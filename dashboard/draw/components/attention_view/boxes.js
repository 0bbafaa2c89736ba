// Boxes of the map, the lines and the picture in a container of some width: arithmetic, no drawing.

/** @import { AttentionView, Boxes } from "./types" */
import { CLOSE_NAMES_FROM, NAMES_FROM, NARROW, cellSize, cellSizes, gutterOf, mapSize, nameWidth, namesHeight, tickStep } from "../lib/layout.js";
import { tokensPerCell } from "../lib/tokens.js";
import { pictureBox } from "./patches.js";

const HEADED = 44; // px: the lines have names over their columns, and the legend stands over those

/** The map's box: gutter for row names, room above for column names, the cells. @param {AttentionView} view */
function mapBox(ctx, view, width, height, above, growth) {
  const { theme, ratio, window: { r0, r1, c0, c1 } } = view;
  const gutter = gutterOf(ctx, theme, view.queries.slice(r0, r1));
  const [cw, ch] = cellSizes(width - gutter - 2, height, c1 - c0, r1 - r0, ratio, Math.floor(28 * growth));
  const nameWide = nameWidth(ctx, theme, view.keys.slice(c0, c1));
  const flat = cw >= NAMES_FROM && nameWide <= cw - 2;
  // Rows too close for every name have every second one, and so have columns.
  const close = cw < NAMES_FROM && ch < NAMES_FROM && ch >= CLOSE_NAMES_FROM && tokensPerCell(view, "rows") === 1;
  const upright = close && cw >= CLOSE_NAMES_FROM && tokensPerCell(view, "cols") === 1;
  const top = Math.max(above, (cw < NAMES_FROM && !upright) || flat ? 22 : namesHeight(nameWide, 8));
  return {
    x: gutter, y: top, gutter, top, flat, gap: Math.min(cw, ch) >= 9 ? 1 : 0, ...mapSize(cw, ch, c1 - c0, r1 - r0, ratio),
    every: close ? 2 : 1, rowStep: close ? 0 : tickStep(ch, 15, tokensPerCell(view, "rows")), colStep: upright ? 0 : tickStep(cw, 28, tokensPerCell(view, "cols")),
  };
}

/** The lines' box: query names, curves, a strip of colours, key names, weights. @param {AttentionView} view */
function linesBox(ctx, view, x, y, width, pitch, room) {
  const { r0, r1, c0, c1 } = view.window;
  const rows = r1 - r0, cols = c1 - c0, column = 52;
  const left = gutterOf(ctx, view.theme, view.queries.slice(r0, r1)), right = gutterOf(ctx, view.theme, view.keys.slice(c0, c1));
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

/** Boxes for the layouts "one" and "frames", `growth` times as large. @param {CanvasRenderingContext2D} ctx @param {AttentionView} view @param {number} width px */
export function layoutOne(ctx, view, width, growth = 1) {
  const cap = (view.height ?? Math.max(360, Math.min(640, width))) * growth;
  const { show } = view, narrow = width < NARROW;
  /** @type {Boxes} */
  const box = { map: null, lines: null, picture: null, width, height: 0 };
  const keys = view.window.c1 - view.window.c0;
  if (show !== "lines") {
    const share = show === "both" && !narrow ? (keys <= 24 ? 0.39 : 0.5) : 1;
    box.map = mapBox(ctx, view, Math.floor(width * share), cap, show === "both" && !narrow ? HEADED : 22, growth);
    box.height = box.map.y + box.map.h + 3;
  }
  if (show === "both" && view.patches) {
    const beside = !narrow;
    const x = beside ? Math.max(box.map.x + box.map.w + 32, Math.floor(width * 0.5)) : 0;
    const y = beside ? box.map.y : box.height + 32;
    box.picture = pictureBox(view, x, y, width - x - 2, beside ? Math.max(240, box.map.h) : cap);
    box.height = Math.max(box.height, y + box.picture.h + 3);
  } else if (show !== "matrix") {
    if (box.map && !narrow) {
      const x = Math.min(Math.floor(width * 0.62), Math.max(box.map.x + box.map.w + 32, Math.floor(width * 0.45)));
      box.lines = linesBox(ctx, view, x, box.map.y, Math.min(width - x, 520 * growth), box.map.ch, box.map.h);
    } else {
      const y = box.map ? box.height + 32 : narrow ? 24 : HEADED;
      box.lines = linesBox(ctx, view, 0, y, Math.min(width, 640), null, cap);
    }
    box.height = Math.max(box.height, box.lines.y + box.lines.h + 3);
  }
  // A small map alone has its legend below it, and its tools not at the far end of the page.
  box.small = narrow || (!box.lines && !box.picture && box.map.x + box.map.w < 560);
  box.left = box.map?.x ?? 0;
  box.right = box.lines || box.picture ? width : Math.min(width, Math.max(320, box.map.x + box.map.w));
  return box;
}
