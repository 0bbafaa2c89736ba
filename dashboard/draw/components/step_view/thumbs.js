// The upper half: one small map a stage, one band through all six.

/** @import { Picture } from "./types" */
import { fromBase64 } from "../lib/bytes.js";
import { svgElement, zoomOf } from "../lib/dom.js";
import { colourAt, hatchLines } from "../lib/theme.js";
import { bandOf, cut, drawRect, drawText } from "./paint.js";

export const TALLEST = 180; // px of a map

/** @param {Picture} view */
function drawThumb(view, map, x, y, cellW, cellH) {
  const { board, theme } = view;
  const levels = fromBase64(map.data), table = view.tables[map.scale];
  const gap = Math.min(cellW, cellH) >= 9 ? 1 : 0;
  const hatched = new Path2D();
  let anyHatched = false;
  for (let r = 0; r < map.rows; r++) {
    for (let c = 0; c < map.columns; c++) {
      const level = levels[r * map.columns + c];
      const left = x + c * cellW, top = y + r * cellH;
      board.fillStyle = level === 255 ? theme.zero : colourAt(table, level);
      board.fillRect(left, top, cellW - gap, cellH - gap);
      if (level !== 255) continue;
      anyHatched = true;
      hatched.rect(left, top, cellW, cellH);
    }
  }
  if (anyHatched) hatchRegion(board, theme, hatched, x, y, map.columns * cellW, map.rows * cellH);
}

function hatchRegion(board, theme, region, x, y, w, h) {
  board.save();
  board.clip(region);
  board.strokeStyle = theme.dark ? "rgba(230,232,235,.22)" : "rgba(27,35,48,.25)";
  board.lineWidth = 0.8;
  hatchLines(board, x, y, w, h, 5);
  board.restore();
}

function drawArrow(svg, theme, from, to, y) {
  if (to - from < 8) return;
  const line = { fill: "none", stroke: theme.pick, "stroke-width": 1.2 };
  svgElement(svg, "path", { ...line, d: `M${from} ${y}H${to}M${to - 5} ${y - 3.5}L${to} ${y}L${to - 5} ${y + 3.5}` });
}

/** Draw the maps; where they end. @param {Picture} view */
export function drawThumbs(view) {
  const { svg, board, theme, data, layout, phone } = view, { maps } = data, { rows } = maps[0];
  const room = layout.pitch - (phone ? 12 : 50);
  const most = Math.min(phone ? 8 : Math.max(15, Math.floor(layout.pitch / 12)), TALLEST / rows);
  const cell = Math.max(1.5, Math.floor(Math.min(most, room / Math.max(maps[1].columns, 1)) * 2) / 2);
  const height = rows * cell, y = layout.thumbs, mid = y + (data.band + 0.5) * cell, thick = Math.max(cell, 6);
  board.fillStyle = bandOf(theme);
  board.fillRect(0, mid - thick / 2 - 2, view.width, thick + 4);
  maps.slice(0, data.stage).forEach((map, at) => {
    const wide = Math.min(cell, (at === 0 && !phone ? room - 10 : room) / map.columns); // room for its note
    const x = layout.column(at);
    drawThumb(view, map, x, y, wide, cell);
    const w = map.columns * wide;
    const ring = { rx: 2, fill: "none", stroke: theme.pick, "stroke-width": 1.5 };
    drawRect(view, x - 1, mid - thick / 2 - 1, w + 2, thick + 1, ring);
    if (!phone && at + 1 < data.stage) drawArrow(svg, theme, x + w + 7, layout.column(at + 1) - 7, mid);
    const note = !phone && map.note && mid - y > 20;
    if (note) drawText(view, x + w + 6, y + 11, "faint tick", cut(view, map.note, layout.pitch - w - 8, 12));
  });
  if (!phone) drawRowLabels(view, cell, y);
  pickRows(view, cell, y, height);
  return y + height;
}

/** @param {Picture} view */
function drawRowLabels(view, cell, y) {
  const { data, layout } = view;
  data.rows.forEach((label, r) => {
    const picked = r === data.band;
    if (cell < 13 && !picked && Math.abs(r - data.band) * cell < 13) return;
    const every = cell >= 13 ? 1 : Math.ceil(13 / cell);
    if (!picked && r % every) return;
    const name = cut(view, label, layout.gutter - 14, 12);
    const style = picked ? "token pick" : "token";
    drawText(view, layout.gutter - 13, y + (r + 0.5) * cell + 4, style, name, { "text-anchor": "end" });
  });
}

/** @param {Picture} view */
function pickRows(view, cell, y, height) {
  const { svg, data } = view;
  const target = svgElement(svg, "rect", { x: 0, y, width: view.width, height, fill: "transparent", class: "press" });
  target.addEventListener("click", (event) => {
    const top = target.getBoundingClientRect().top;
    const row = Math.min(data.rows.length - 1, Math.max(0, Math.floor((event.clientY - top) / cell / zoomOf(target))));
    view.pick({ query: data.first + row });
  });
  svgElement(target, "title", {}, "Click a row to make it the query");
}
