// Draw a board: its maps, the texts around them, what follows the pointer.

/** @import { Board, Cell, Tile } from "./types" */
import { element, isTouch, keepFocus, pixelRatio, showLegend } from "../lib/dom.js";
import { nameStop } from "../lib/keys.js";
import { scaleEnd } from "../lib/numbers.js";
import { maskedRowsText } from "../lib/reading.js";
import { isZoomed } from "../lib/zoom.js";
import { showCellTip, showRow, showUnder } from "./dom.js";
import { BETWEEN, arrange, drawTile, drawTileOver, isPhone, placeTile } from "./tiles.js";

/** The cell that is read: under the pointer, else pinned, else of the page's row. @param {Board} board @returns {Cell | null} */
export function pickedCell(board) {
  if (board.hover) return board.hover;
  if (board.pin) return { i: board.pin[0], j: board.pin[1] };
  return board.query == null ? null : { i: board.query, j: board.column ?? -1 };
}

/** @param {Board} board */
export function drawAll(board) {
  const started = performance.now();
  board.width = board.root.clientWidth;
  if (!board.width) return;
  board.ratio = pixelRatio(board.root);
  board.measure = document.createElement("canvas").getContext("2d");
  const plan = arrange(board);
  board.visible.forEach((tile, at) => {
    const single = tile.operands || board.alone;
    const lead = single || at % plan.across === 0 ? plan.gutter : 0;
    const room = single ? Math.min(board.width - plan.gutter, 420) : plan.room;
    placeTile(board, tile, room, lead);
    layTile(tile, single ? tile.width : plan.room + lead);
    drawTile(board, tile);
  });
  board.dom.reset.hidden = !isZoomed(board);
  board.dom.maps.style.columnGap = `${BETWEEN}px`;
  keepFocus(board.dom.chooser, () => showChooser(board));
  showTexts(board);
  drawOver(board);
  board.root.dataset.drawMs = (performance.now() - started).toFixed(1);
}

/** On a phone: a button for each map, of which one is shown. @param {Board} board */
function showChooser(board) {
  const { chooser } = board.dom, phone = isPhone(board);
  board.open = Math.min(board.open ?? 0, board.tiles.length - 1);
  chooser.hidden = !phone;
  chooser.replaceChildren();
  board.tiles.forEach((tile, at) => {
    if (!board.alone) tile.dom.root.hidden = phone && at !== board.open;
    if (!phone) return;
    const pressed = String(at === board.open);
    const button = element(chooser, "button", "", { type: "button", "aria-pressed": pressed, "data-path": String(at) });
    element(button, "span").textContent = tile.name;
    element(button, "b", "value");
    button.onclick = () => {
      board.open = at;
      drawAll(board);
    };
  });
}

function layTile(tile, width) {
  const { root, heading, foot } = tile.dom;
  root.style.width = `${width}px`;
  foot.style.paddingLeft = `${tile.box.x}px`;
  heading.style.paddingLeft = tile.named || tile.operands ? "0" : foot.style.paddingLeft; // a row begins where the page does
  foot.style.minWidth = `${tile.box.w}px`;
  foot.style.maxWidth = `${width - tile.box.x}px`; // more than a small map has: a pair of long words
}

function showTexts(board) {
  const { dom, alone } = board;
  const first = board.visible[0], last = board.visible.at(-1);
  nameBoard(board);
  // A page that draws the scale of the difference itself has the maps' tools, too.
  dom.foot.hidden = alone && !board.legend;
  dom.reads.textContent = alone ? "" : board.reads;
  dom.head.hidden = !board.legend && !dom.reads.textContent;
  showScale(dom.legend, first, board.noun);
  dom.legend.root.classList.toggle("out", board.legend === false);
  // Weights that may be negative beside weights that cannot be: two kinds of number, so two scales.
  const other = board.tiles.find((tile) => tile.signed !== first.signed);
  dom.otherLegend.root.hidden = alone || !other;
  if (other) showScale(dom.otherLegend, other, other.name);
  const masked = board.tiles.map((tile) => [tile.name, maskedRowsText(tile)]).filter(([, text]) => text);
  dom.masked.textContent = alone ? "" : masked.map(([name, text]) => `${name}: ${text}.`).join(" ");
  dom.apart.hidden = alone || !last.operands;
  if (!dom.apart.hidden) showScale(board.differenceLegend, last, "");
}

// Read when the Tab key comes here; while the arrow keys move, the live region reads the cells.
function nameBoard(board) {
  const cell = pickedCell(board), [i, j] = board.pin ?? [];
  const pinned = cell && cell.i === i && cell.j === j ? "Pinned: " : "";
  const value = cell && cell.j >= 0 ? pinned + board.spoken(cell) : "";
  const name = board.fact || board.visible.map((tile) => tile.name).join(", ");
  const keys = "Arrow keys move over all maps, Enter pins, T reads the row as a table, question mark shows all keys.";
  nameStop(board.dom.stage, board.visible.length > 1 ? "attention maps" : "attention map", [name, value], keys);
}

/** @param {import("../lib/types").Legend} legend @param {Tile} tile */
function showScale(legend, tile, noun) {
  const [low, high] = tile.range.map(scaleEnd), middle = tile.range[0] < 0 ? "0" : "";
  if (tile.operands) showLegend(legend, tile.theme.stops, "", `${low} less`, middle, `more ${high}`);
  else showLegend(legend, tile.theme.stops, noun, low, middle, high);
}

/** @param {Board} board */
export function drawOver(board) {
  if (!board.visible?.[0]?.box) return;
  const started = performance.now();
  const picked = pickedCell(board);
  for (const tile of board.visible) {
    drawTileOver(board, tile, picked);
    showUnder(tile, picked);
  }
  // what each map has in the cell that is read, also those that are not in sight
  [...board.dom.chooser.children].forEach((button, at) => {
    button.lastChild.textContent = board.tiles[at].dom.value.textContent;
  });
  showStatus(board);
  showCellTip(board);
  if (board.hover) showRow(board, picked);
  writeDataset(board, picked, performance.now() - started);
}

function showStatus(board) {
  const { status } = board.dom;
  status.replaceChildren();
  if (!board.pin) return;
  const [i, j] = board.pin;
  element(status, "b", "mark").textContent = "pinned ";
  const release = isTouch(board) ? "Tap again to release." : "Esc releases.";
  element(status, "span").textContent = `${board.queries[i]} → ${board.keys[j]}. ${release}`;
}

// What a test reads instead of pixels.
function writeDataset(board, picked, milliseconds) {
  const pair = (cell) => (cell ? `${cell.i},${cell.j}` : "");
  const values = { pin: board.pin?.join(",") ?? "", hover: pair(board.hover), picked: pair(picked) };
  Object.assign(board.root.dataset, values, { hoverMs: milliseconds.toFixed(1), ready: "1" });
  for (const { box, dom, signed, current } of board.visible) {
    const value = picked && picked.j >= 0 ? current.values[picked.i * current.cols + picked.j].toFixed(6) : "";
    Object.assign(dom.root.dataset, { map: [box.x, box.y, box.cw, box.ch], signed: signed ? "1" : "", value });
  }
}
