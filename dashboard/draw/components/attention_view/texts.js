// The texts around the canvas: title, legend, status, tooltip and table.

/** @import { AttentionView, Cell } from "./types" */
import { element, isTouch, showLegend, showTable, showTip } from "../lib/dom.js";
import { nameStop } from "../lib/keys.js";
import { scaleEnd } from "../lib/numbers.js";
import { cellText, largestOf, maskedRowsText, readCell, sortedRow, tipLines } from "../lib/reading.js";
import { ownOf, tokensPerCell } from "../lib/tokens.js";
import { frameName } from "./film.js";
import { isPinned, newestPin, pickedCell, pinnedCells } from "./state.js";

/** A layer by the model's own number: between those drawn there may be some that have no attention. @param {AttentionView} view */
export const layerNumber = (view, layer) => view.numbers?.[layer] ?? layer;
const headName = (view, layer, head) => `L${layerNumber(view, layer)}·H${head}`;

const nounOf = (view) => (view.signed && !view.bySize ? "value" : "weight");

/** @param {AttentionView} view */
export function showTexts(view) {
  const { dom, layout } = view;
  const grid = layout === "grid", film = layout === "frames";
  const step = film ? frameName(view, view.frameIndex) : "";
  const masked = grid ? "" : maskedRowsText(view);
  const texts = {
    title: grid ? "" : (view.title ?? headName(view, view.layer, view.head)) + (view.state ? `, ${view.state}` : ""), caption: view.caption ?? "", masked,
    reads: grid || film ? "" : view.reads + (blockText(view) || pixelText(view)) + thresholdText(view),
    readsUnder: film ? view.reads : "", step: film && step !== "live" ? `step ${step}` : step,
  };
  for (const [name, text] of Object.entries(texts)) dom[name].textContent = text;
  dom.head.hidden = dom.tableButton.hidden = grid;
  dom.step.hidden = dom.film.hidden = dom.readsUnder.hidden = !film;
  dom.caption.hidden = !view.caption;
  dom.masked.hidden = !masked;
  showScale(view, grid || (film && view.scale === "unit" && !view.signed));
  dom.root.classList.toggle("narrow", Boolean(view.box.small));
  dom.foot.style.maxWidth = `${view.box.right ?? view.box.width}px`;
  showStatus(view);
  nameView(view);
}

// Read when the Tab key comes here; while the arrow keys move, the live region reads the cells.
function nameView(view) {
  if (view.layout === "grid") {
    const keys = "Arrow keys move from head to head, Enter picks one.";
    return nameStop(view.dom.stage, "grid of heads", [view.fact, `Picked: ${headText(view, view)}`], keys);
  }
  const cell = pickedCell(view), pinned = cell && isPinned(view, cell) ? "Pinned: " : "";
  const value = cell ? pinned + view.spoken(cell.j < 0 ? { i: cell.i, j: largestOf(view, cell.i) } : cell) : "";
  const heads = view.layout === "one" && view.heads > 1 ? ", brackets change the head" : "";
  const keys = `Arrow keys move, Enter pins, T reads the row as a table${heads}, question mark shows all keys.`;
  return nameStop(view.dom.stage, "attention map", [view.fact, value], keys);
}

/** @param {AttentionView} view */
export const headText = (view, { layer, head }) => `layer ${layerNumber(view, layer)}, head ${head}`;

// Frames on 0 to 1 need no legend; any other scale is always named.
function showScale(view, hidden) {
  const { legend } = view.dom;
  const [low, high] = view.range.map(scaleEnd);
  legend.root.hidden = hidden;
  legend.root.style.paddingLeft = view.box.small ? `${view.box.left}px` : "0";
  showLegend(legend, view.theme.stops, nounOf(view), low, view.signed ? "0" : "", (view.scale === "p99.5" ? "≥ " : "") + high);
}

function blockText(view) {
  if (!view.edges?.pooled) return "";
  const many = (axis) => tokensPerCell(view, axis).toFixed(1).replace(".0", "");
  return ` · a cell is the ${view.pool === "max" ? "largest" : "mean"} of ${many("rows")} × ${many("cols")} tokens, drag to zoom`;
}

// Below a pixel a cell, each pixel stands for several: say how.
function pixelText(view) {
  const { map } = view.box;
  if (!map || (map.cw >= 1 && map.ch >= 1)) return "";
  return ` · a pixel is the ${view.pool === "max" ? "largest" : "mean"} of its cells`;
}

const thresholdText = (view) => (view.threshold ? ` · below ${scaleEnd(view.threshold)} not drawn` : "");

/** The line under the map: what is pinned, else what is under the pointer or the keys. @param {AttentionView} view */
export function showStatus(view) {
  const { status, root } = view.dom;
  status.replaceChildren();
  if (view.layout === "grid") {
    status.textContent = gridText(view);
    return;
  }
  const cell = view.keyboard ? view.hover : (newestPin(view) ?? view.hover);
  if (!cell || cell.j < 0) return;
  if (isPinned(view, cell)) showPins(view, status);
  else {
    const where = `, row ${ownOf(view, "rows", cell.i)}, key ${ownOf(view, "cols", cell.j)}`;
    element(status, "span").textContent = pairText(view, cell) + (view.keyboard ? where : "");
  }
  root.dataset.status = status.textContent;
}

function pairText(view, { i, j }) {
  const { masked, value } = readCell(view, i, j);
  return `${view.queries[i]} → ${view.keys[j]}, ${masked ? "masked" : cellText(view, value)}`;
}

// "pinned it → animal, 0.68; tired → street, 0.05. Esc releases all."
function showPins(view, status) {
  const cells = pinnedCells(view);
  element(status, "span", "mark").textContent = "pinned ";
  const release = isTouch(view) ? "Tap again to release" : `Esc releases${cells.length > 1 ? " all" : ""}`;
  element(status, "span").textContent = `${cells.map((cell) => pairText(view, cell)).join("; ")}. ${release}.`;
}

function gridText(view) {
  if (view.hoverHead) return headName(view, view.hoverHead.layer, view.hoverHead.head);
  const texts = view.width < 400 ? ["Layers down (0 first), heads across. Tap a head."] : [];
  const { pooled, high, ends } = view.gridInfo;
  if (pooled) texts.push(`Each pixel is a mean over cells; full colour at ${scaleEnd(high)} or more.`);
  if (view.states?.length) texts.push(`State layers, without softmax: ${view.states.join("; ")}.`);
  if (ends?.some((end) => end?.[0] < 0)) texts.push("Purple is negative, green positive: full colour at a layer's largest.");
  return texts.join(" ");
}

/** @param {AttentionView} view */
export function showCellTip(view) {
  const { tip } = view.dom;
  const { hover, point } = view;
  tip.hidden = !hover || view.keyboard || hover.j < 0 || !point;
  if (!tip.hidden) showTip(tip, tipLines(view, hover.i, hover.j, nounOf(view)), point, view.width, view.box.height);
}

/** The row as a table, the largest weight first. @param {AttentionView} view */
export function showRow(view) {
  const { rows } = view.dom;
  rows.replaceChildren();
  if (rows.hidden || view.layout === "grid") return;
  const i = pickedCell(view)?.i ?? 0;
  const lines = sortedRow(view, i).map(({ j, masked, value }) => [view.keys[j], [masked ? null : cellText(view, value)]]);
  showTable(rows, [`${view.queries[i]} → key`, nounOf(view)], lines);
}
