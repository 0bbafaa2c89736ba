// The texts around the canvas: title, legend, status, tooltip and table.

import { element } from "../lib/dom.js";
import { clamp } from "../lib/layout.js";
import { number, scaleEnd } from "../lib/numbers.js";
import { headName, maskedRows, readCell, sortedRow, tipLines } from "../lib/reading.js";
import { blockWords, ownOf } from "../lib/tokens.js";
import { frameName } from "./film.js";
import { isPinned, newestPin, pairWords, pickedCell, sayPins } from "./pins.js";

export function showWords(view) {
  const { dom } = view;
  const grid = view.layout === "grid", film = view.layout === "frames";
  dom.stage.setAttribute("aria-label", view.fact);
  dom.title.textContent = grid ? "" : (view.title ?? headName(view, view.layer, view.head));
  dom.reads.textContent = grid || film ? "" : view.reads + (blockWords(view) || pooledWords(view)) + thresholdWords(view);
  dom.readsUnder.textContent = film ? view.reads : "";
  dom.step.textContent = film ? (frameName(view, view.frameIndex) === "live" ? "live" : `step ${frameName(view, view.frameIndex)}`) : "";
  dom.head.hidden = grid;
  dom.step.hidden = !film;
  dom.film.hidden = !film;
  dom.readsUnder.hidden = !film;
  // Frames on 0 to 1 need no legend; any other scale is always said.
  dom.legend.hidden = grid || (film && view.scale === "unit" && !view.signed);
  dom.tableButton.hidden = grid;
  dom.caption.textContent = view.caption ?? "";
  dom.caption.hidden = !view.caption;
  dom.noun.textContent = view.signed ? "value" : "weight";
  dom.ramp.style.background = `linear-gradient(to right, ${view.theme.stops.join(", ")})`;
  dom.low.textContent = scaleEnd(view.range[0]);
  dom.high.textContent = (view.scale === "p99.5" ? "≥ " : "") + scaleEnd(view.range[1]);
  dom.root.classList.toggle("narrow", Boolean(view.box.small));
  dom.legend.style.paddingLeft = view.box.small ? `${view.box.left}px` : "0";
  dom.foot.style.maxWidth = `${view.box.right ?? view.box.width}px`;
  const blind = grid ? [] : maskedRows(view);
  dom.masked.hidden = !blind.length;
  dom.masked.textContent = blind.length ? blindWords(view, blind) : "";
  showStatus(view);
}

// Below a pixel a cell, each pixel stands for several: say how.
function pooledWords(view) {
  const map = view.box.map;
  if (!map || (map.cw >= 1 && map.ch >= 1)) return "";
  return view.pool === "max" ? " · a pixel is the largest of its cells" : " · a pixel is the mean of its cells";
}

const thresholdWords = (view) => (view.threshold ? ` · below ${scaleEnd(view.threshold)} not drawn` : "");

function blindWords(view, rows) {
  const names = rows.slice(0, 6).map((i) => view.queries[i]);
  const more = rows.length > 6 ? ` and ${rows.length - 6} more` : "";
  return rows.length === 1 ? `${names[0]} sees no key: its output is 0` : `${names.join(", ")}${more} see no key: their output is 0`;
}

// The line under the map: what is pinned, else what is under the pointer or the keys.
export function showStatus(view) {
  const { status, root } = view.dom;
  status.replaceChildren();
  if (view.layout === "grid") {
    status.textContent = gridWords(view);
    return;
  }
  const say = (text, name) => (element(status, "span", name).textContent = text);
  const at = newestPin(view) && !view.keyboard ? newestPin(view) : view.hover;
  if (!at || at.j < 0) return;
  if (isPinned(view, at)) sayPins(view, say);
  else {
    say(pairWords(view, readCell(view, at.i, at.j)));
    if (view.keyboard) say(`, row ${ownOf(view, "rows", at.i)}, key ${ownOf(view, "cols", at.j)}`);
  }
  root.dataset.status = status.textContent;
}

function gridWords(view) {
  if (view.hoverHead) return headName(view, view.hoverHead.layer, view.hoverHead.head);
  const words = view.width < 400 ? ["Layers down (0 first), heads across. Tap a head."] : [];
  if (view.gridInfo.pooled) words.push(`Each pixel is a mean over cells; full colour at ${scaleEnd(view.gridInfo.high)} or more.`);
  return words.join(" ");
}

export function showTip(view, x, y) {
  const { tip } = view.dom;
  if (!view.hover || view.keyboard || view.hover.j < 0 || x == null) {
    tip.hidden = true;
    return;
  }
  const [title, lead, rest, uniform] = tipLines(view, view.hover.i, view.hover.j);
  tip.replaceChildren();
  element(tip, "b").textContent = title;
  const line = element(tip, "div");
  element(line, "span", "lead").textContent = lead;
  element(line, "span").textContent = rest;
  if (uniform) element(tip, "div").textContent = uniform;
  tip.hidden = false;
  const wide = tip.offsetWidth, high = tip.offsetHeight;
  const left = x + 18 + wide > view.width ? x - 18 - wide : x + 18;
  const top = y + 18 + high > view.box.height + 24 ? y - 14 - high : y + 18;
  tip.style.transform = `translate(${Math.round(clamp(left, 0, Math.max(0, view.width - wide)))}px, ${Math.round(Math.max(-high, top))}px)`;
}

export function showTable(view) {
  const { rows } = view.dom;
  rows.replaceChildren();
  if (rows.hidden || view.layout === "grid") return;
  const i = pickedCell(view)?.i ?? 0;
  const table = element(rows, "table");
  const head = element(element(table, "thead"), "tr");
  element(head, "th").textContent = `${view.queries[i]} → key`;
  element(head, "th", "number").textContent = view.signed ? "value" : "weight";
  const body = element(table, "tbody");
  for (const cell of sortedRow(view, i)) {
    const line = element(body, "tr", cell.masked ? "hidden-key" : "");
    element(line, "td").textContent = view.keys[cell.j];
    element(line, "td", "number").textContent = cell.masked ? "masked" : number(cell.value);
  }
}
