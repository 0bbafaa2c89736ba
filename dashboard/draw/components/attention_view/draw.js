// Draw a view: the cells on the base canvas, what follows the pointer on the canvas over it.

/** @import { AttentionView } from "./types" */
import { growthOf, pixelRatio, resized } from "../lib/dom.js";
import { drawColNames, drawCrosshair, drawMap, drawPin, drawRowNames, outline } from "../lib/map.js";
import { isZoomed, outlineDrag } from "../lib/zoom.js";
import { layoutOne } from "./boxes.js";
import { drawFilm, frameName } from "./film.js";
import { drawGrid, drawGridOver, layoutGrid } from "./grid.js";
import { drawLines, drawLinesOver } from "./lines.js";
import { drawPatches, drawPicture } from "./patches.js";
import { otherRows, pickedCell, pinnedCells } from "./state.js";
import { showCellTip, showRow, showStatus, showTexts } from "./texts.js";

/** @param {AttentionView} view */
export function drawAll(view) {
  const started = performance.now();
  const { dom } = view;
  view.width = dom.root.clientWidth;
  if (!view.width) return;
  view.ratio = pixelRatio(dom.root);
  const grid = view.layout === "grid";
  const growth = growthOf(dom.root);
  view.box = grid ? layoutGrid(view, view.width, growth) : layoutOne(dom.over.getContext("2d"), view, view.width, growth);
  const ctx = resized(dom.base, view.width, view.box.height, view.ratio);
  drawBase(ctx, view);
  if (view.layout === "frames") drawSlider(view);
  dom.reset.hidden = grid || !(view.part || isZoomed(view));
  showTexts(view);
  drawOver(view);
  dom.root.dataset.drawn = view.draws = (view.draws ?? 0) + 1;
  dom.root.dataset.drawMs = (performance.now() - started).toFixed(1);
}

/** The cells, the lines and the picture. @param {AttentionView} view */
export function drawBase(ctx, view) {
  const { map, lines, picture } = view.box;
  if (view.layout === "grid") drawGrid(ctx, view, view.box);
  if (map) drawMap(ctx, view, map);
  if (lines) drawLines(ctx, view, lines);
  if (picture) drawPicture(ctx, view, picture);
}

function drawSlider(view) {
  const { slider, strip } = view.dom;
  const last = view.frames.steps.length - 1;
  Object.assign(slider, { max: String(last), value: String(view.frameIndex) });
  slider.style.setProperty("--at", `${(100 * view.frameIndex) / Math.max(1, last)}%`);
  slider.setAttribute("aria-valuetext", `step ${frameName(view, view.frameIndex)}`);
  view.film = { canvas: strip, width: slider.clientWidth };
  drawFilm(view);
}

/** @param {AttentionView} view */
export function drawOver(view) {
  if (!view.box) return;
  const started = performance.now();
  const ctx = resized(view.dom.over, view.width, view.box.height, view.ratio);
  drawTop(ctx, view);
  if (view.drag) outlineDrag(ctx, view.theme, view.drag);
  showStatus(view);
  showCellTip(view);
  if (view.hover) showRow(view);
  writeDataset(view, performance.now() - started);
}

/** Names, crosshair, pins and the picked row's lines. @param {AttentionView} view */
export function drawTop(ctx, view) {
  if (view.layout === "grid") return drawGridOver(ctx, view, view.box);
  const { map, lines, picture } = view.box, picked = pickedCell(view);
  if (map) {
    drawRowNames(ctx, view, map, picked);
    drawColNames(ctx, view, map, picked);
    if (picked) drawCrosshair(ctx, view, map, picked);
    drawPins(ctx, view, map, picked?.i ?? -1);
  }
  if (lines) drawLinesOver(ctx, view, lines, picked);
  if (picture) drawPatches(ctx, view, picture, picked);
}

function drawPins(ctx, view, box, active) {
  ctx.globalAlpha = 0.55;
  for (const i of otherRows(view, active)) {
    outline(ctx, box.x - 1, box.y + (i - view.window.r0) * box.ch, box.w + 2, box.ch, 1, view.theme.pick);
  }
  ctx.globalAlpha = 1;
  for (const pin of pinnedCells(view)) drawPin(ctx, view, box, pin);
}

// What a test reads instead of pixels.
function writeDataset(view, milliseconds) {
  const { box, layout, dom: { root: { dataset } } } = view;
  const hover = layout === "grid" ? null : view.hover, pins = view.pins.map((pin) => pin.join(","));
  const values = {
    layer: view.layer, head: view.head, pin: pins.at(-1) ?? "", pins: pins.join(";"), hover: hover ? `${hover.i},${hover.j}` : "",
    value: hover && hover.j >= 0 ? view.current.values[hover.i * view.current.cols + hover.j].toFixed(6) : "",
    frame: layout === "frames" ? view.frames.steps[view.frameIndex] : "", row: pickedCell(view)?.i ?? "", show: view.show,
    hoverMs: milliseconds.toFixed(1), ready: "1",
  };
  if (box.map) {
    const { x, y, cw, ch } = box.map, part = view.part ?? Object.values(view.window);
    Object.assign(values, { map: [x, y, cw, ch], window: part, pooled: view.edges?.pooled ? "1" : "" });
  }
  if (box.picture) values.picture = Object.values(box.picture);
  if (layout === "grid") values.map = [box.gutter, box.top, box.pitch, box.rowPitch, box.size];
  for (const [name, value] of Object.entries(values)) dataset[name] = String(value);
}
