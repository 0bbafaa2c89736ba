// Draw a board: its maps, the words around them, what follows the pointer.

import { element } from "../lib/dom.js";
import { blindWords, showLegend, showTable, showTip, showUnder } from "./dom.js";
import { isZoomed, pickedCell } from "./state.js";
import { EDGE, arrange, drawTile, drawTileOver, gutterOf, placeTile } from "./tiles.js";

export function drawAll(board) {
  const started = performance.now();
  board.width = board.dom.root.clientWidth;
  if (!board.width) return;
  board.ratio = window.devicePixelRatio || 1;
  board.measure = document.createElement("canvas").getContext("2d");
  const plan = arrange(board);
  board.shown.forEach((tile, at) => {
    const apart = tile.of && !board.alone;
    const plain = apart || board.alone;
    const gutter = plain ? gutterOf(board) : plan.lead;
    const lead = plain || at % plan.across === 0 ? gutter : 0;
    const room = plain ? Math.min(board.width - gutter, 420) : plan.room;
    placeTile(board, tile, room, lead, !plain && plan.bare);
    layTile(tile, lead, plain ? null : plan.room + lead);
    drawTile(board, tile);
  });
  board.dom.reset.hidden = !isZoomed(board);
  board.dom.maps.style.columnGap = `${plan.between}px`;
  showWords(board);
  drawOver(board);
  board.dom.root.dataset.drawMs = (performance.now() - started).toFixed(1);
}

function layTile(tile, lead, width) {
  const { root, heading, foot } = tile.dom;
  root.style.width = `${width ?? tile.width}px`;
  const left = `${tile.box.x}px`;
  heading.style.paddingLeft = foot.style.paddingLeft = left;
  foot.style.width = `${tile.box.w}px`;
  if (tile.of) heading.style.paddingLeft = "0";
}

function showWords(board) {
  const { dom } = board;
  dom.root.dataset.theme = board.theme.dark ? "dark" : "light";
  dom.stage.setAttribute("aria-label", board.fact || board.shown.map((tile) => tile.name).join(", "));
  dom.reads.textContent = board.alone ? "" : board.reads;
  const one = board.shown[0];
  // A page that draws the scale of the difference itself has the maps' tools, too.
  const hidden = board.alone && !board.legend;
  dom.head.hidden = dom.foot.hidden = hidden;
  if (board.alone) showLegend(dom.legend, board.signedTheme, "", ...one.range, [" less", "more "]);
  else showLegend(dom.legend, one.signed ? board.signedTheme : board.theme, board.noun, ...one.range);
  // Weights that may be negative beside weights that cannot be: two kinds of number, so two scales.
  const other = board.tiles.find((tile) => tile.signed !== one.signed);
  dom.other.root.hidden = board.alone || !other;
  if (other) showLegend(dom.other, other.signed ? board.signedTheme : board.theme, other.name, ...other.range);
  dom.reads.style.paddingLeft = one.box.x > EDGE && !board.alone ? `${one.box.x}px` : "0";
  const blind = board.tiles.map((tile) => blindWords(tile)).filter(Boolean);
  dom.masked.textContent = board.alone ? "" : blind.join(" ");
  const apart = board.shown.at(-1).of && !board.alone;
  dom.apart.hidden = !apart;
  if (apart) showLegend(board.apartLegend, board.signedTheme, "", ...board.shown.at(-1).range, [" less", "more "]);
}

export function drawOver(board) {
  if (!board.shown?.[0]?.box) return;
  const started = performance.now();
  const picked = pickedCell(board);
  for (const tile of board.shown) {
    drawTileOver(board, tile, picked);
    showUnder(tile, picked);
  }
  showStatus(board);
  showTip(board, board.point?.x, board.point?.y);
  if (board.hover) showTable(board);
  mark(board, picked, performance.now() - started);
}

function showStatus(board) {
  const { status } = board.dom;
  status.replaceChildren();
  if (!board.pin) return;
  element(status, "b", "mark").textContent = "pinned ";
  const [i, j] = board.pin;
  const words = `${board.queries[i]} → ${board.keys[j]}. `;
  element(status, "span").textContent = words + (board.touch ? "Tap again to release." : "Esc releases.");
}

// What a test reads instead of pixels.
function mark(board, picked, took) {
  const { dataset } = board.dom.root;
  dataset.pin = board.pin ? board.pin.join(",") : "";
  dataset.hover = board.hover ? `${board.hover.i},${board.hover.j}` : "";
  dataset.picked = picked ? `${picked.i},${picked.j}` : "";
  dataset.hoverMs = took.toFixed(1);
  for (const tile of board.shown) {
    const { x, y, cw, ch } = tile.box;
    tile.dom.root.dataset.map = [x, y, cw, ch].join(",");
    tile.dom.root.dataset.signed = tile.signed ? "1" : "";
    const at = picked && picked.j >= 0 ? picked.i * tile.current.cols + picked.j : -1;
    tile.dom.root.dataset.value = at >= 0 ? tile.current.values[at].toFixed(6) : "";
  }
  dataset.ready = "1";
}
