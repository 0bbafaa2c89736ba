// Draw a view: the cells on the base canvas, what follows the pointer on the canvas over it.

import { sized } from "../lib/dom.js";
import { drawColNames, drawCross, drawMatrix, drawRowNames } from "../lib/map.js";
import { layoutOne } from "./boxes.js";
import { drawFilm, frameName } from "./film.js";
import { drawGrid, drawGridOver, layoutGrid } from "./grid.js";
import { drawLines, drawLinesOver } from "./lines.js";
import { drawPatches, drawPicture } from "./patches.js";
import { drawPins, pickedCell } from "./pins.js";
import { isZoomed } from "./state.js";
import { showStatus, showTable, showTip, showWords } from "./words.js";

export function drawAll(view) {
  const started = performance.now();
  view.width = view.dom.root.clientWidth;
  if (!view.width) return;
  view.ratio = window.devicePixelRatio || 1;
  const measure = view.dom.over.getContext("2d");
  view.box = view.layout === "grid" ? layoutGrid(view, view.width) : layoutOne(measure, view, view.width);
  const ctx = sized(view.dom.base, view.width, view.box.height, view.ratio);
  if (view.layout === "grid") drawGrid(ctx, view, view.box);
  if (view.box.map) drawMatrix(ctx, view, view.box.map);
  if (view.box.lines) drawLines(ctx, view, view.box.lines);
  if (view.box.picture) drawPicture(ctx, view, view.box.picture);
  if (view.layout === "frames") {
    view.dom.slider.max = String(view.frames.steps.length - 1);
    view.dom.slider.value = String(view.frameIndex);
    const share = view.frameIndex / Math.max(1, view.frames.steps.length - 1);
    view.dom.slider.style.setProperty("--at", `${100 * share}%`);
    view.dom.slider.setAttribute("aria-valuetext", `step ${frameName(view, view.frameIndex)}`);
    view.film = { canvas: view.dom.strip, width: view.dom.slider.clientWidth };
    drawFilm(view);
  }
  view.dom.reset.hidden = view.layout === "grid" || !isZoomed(view);
  showWords(view);
  drawOver(view);
  view.dom.root.dataset.drawn = view.drawn = (view.drawn ?? 0) + 1;
  view.dom.root.dataset.drawMs = (performance.now() - started).toFixed(1);
}

export function drawOver(view) {
  if (!view.box) return;
  const started = performance.now();
  const ctx = sized(view.dom.over, view.width, view.box.height, view.ratio);
  const picked = view.layout === "grid" ? null : pickedCell(view);
  if (view.layout === "grid") drawGridOver(ctx, view, view.box);
  else drawMapOver(ctx, view, picked);
  if (view.drag) outlineDrag(ctx, view);
  showStatus(view);
  showTip(view, view.point?.x, view.point?.y);
  if (view.hover) showTable(view);
  mark(view, performance.now() - started);
}

// Names, crosshair, pins and the picked row's lines: all that stands over the cells.
export function drawMapOver(ctx, view, picked) {
  const { map, lines, picture } = view.box;
  if (map) {
    drawRowNames(ctx, view, map, picked);
    drawColNames(ctx, view, map, picked);
    if (picked) drawCross(ctx, view, map, picked);
    drawPins(ctx, view, map, picked?.i ?? -1);
  }
  if (lines) drawLinesOver(ctx, view, lines, picked);
  if (picture) drawPatches(ctx, view, picture, picked);
}

function outlineDrag(ctx, view) {
  const { x0, y0, x1, y1 } = view.drag;
  ctx.setLineDash([4, 3]);
  ctx.strokeStyle = view.theme.text;
  ctx.lineWidth = 1;
  ctx.strokeRect(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0));
  ctx.setLineDash([]);
}

// What a test reads instead of pixels.
function mark(view, took) {
  const { dataset } = view.dom.root;
  dataset.layer = view.layer;
  dataset.head = view.head;
  dataset.pin = view.pins.length ? view.pins.at(-1).join(",") : "";
  dataset.pins = view.pins.map((pin) => pin.join(",")).join(";");
  const at = view.layout === "grid" ? null : view.hover;
  dataset.hover = at ? `${at.i},${at.j}` : "";
  dataset.value = at && at.j >= 0 ? view.current.values[at.i * view.current.cols + at.j].toFixed(6) : "";
  dataset.frame = view.layout === "frames" ? view.frames.steps[view.frameIndex] : "";
  dataset.theme = view.theme.dark ? "dark" : "light";
  dataset.hoverMs = took.toFixed(1);
  if (view.box.map) {
    const { x, y, cw, ch } = view.box.map;
    dataset.map = [x, y, cw, ch].join(",");
    dataset.window = (view.part ?? Object.values(view.window)).toString();
    dataset.pooled = view.edges?.pooled ? "1" : "";
  }
  if (view.box.picture) dataset.picture = Object.values(view.box.picture).join(",");
  if (view.layout === "grid") {
    const { gutter, top, pitch, rowPitch, size } = view.box;
    dataset.map = [gutter, top, pitch, rowPitch, size].join(",");
  }
  dataset.ready = "1";
}
