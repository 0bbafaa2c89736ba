// One board of maps: its data, its pointer and keys. Only a pin goes to Python.

/** @import { Board, Cell, Frames, Span, Tile } from "./types" */
import { unpack } from "../lib/bytes.js";
import { followList, followSlider, listText, sliderIndex } from "../lib/controls.js";
import { onCrosshair, setHover } from "../lib/crosshair.js";
import { buildLegend } from "../lib/dom.js";
import { handleKey, mapKey } from "../lib/keys.js";
import { cellAt } from "../lib/map.js";
import { mount, send } from "../lib/mount.js";
import { onPinch } from "../lib/pinch.js";
import { cellValue } from "../lib/reading.js";
import { readTheme } from "../lib/theme.js";
import { dragTo, endDrag, isZoomed, pointIn, spanUnder, whole } from "../lib/zoom.js";
import { build, buildTile, showRow, valueText } from "./dom.js";
import { drawAll, drawOver, pickedCell } from "./draw.js";
import { differenceOf, tileOf } from "./tiles.js";

const ZOOM = "multiples:zoom";

/** Zoom all maps to the same rows and columns, here and on boards of the same tokens. @param {Board} board @param {Span} span */
function setWindow(board, span, silent = false) {
  board.window = span;
  board.root.dataset.window = Object.values(span).join(",");
  for (const tile of board.visible) tile.window = span;
  drawAll(board);
  if (!silent) window.dispatchEvent(new CustomEvent(ZOOM, { detail: { from: board, tokens: board.tokens, span } }));
}

const resetZoom = (board) => isZoomed(board) && setWindow(board, whole(board));

/** @param {Board} board */
function setPin(board, pin) {
  board.pin = pin;
  board.dom.live.textContent = pin ? `Pinned: ${spoken(board, { i: pin[0], j: pin[1] })}` : "Released";
  send(board, "pin", { value: pin });
  drawOver(board);
}

/** @param {Board} board @param {Cell | null} cell */
function togglePin(board, cell) {
  if (!cell || cell.j < 0) return;
  const same = board.pin && board.pin[0] === cell.i && board.pin[1] === cell.j;
  setPin(board, same ? null : [cell.i, cell.j]);
}

/** @param {Board} board @param {Cell} cell */
function spoken(board, { i, j }) {
  const values = board.visible.map((tile) => {
    const cell = cellValue(tile, i, j);
    return `${tile.name} ${cell.masked ? "masked" : valueText(tile, cell)}`;
  });
  return `${board.queries[i]} to ${board.keys[j]}: ${values.join(", ")}`;
}

/** @param {Board} board @param {Tile} tile @param {PointerEvent | MouseEvent} event */
function onMove(board, tile, event) {
  if (board.pinching) return;
  const point = pointIn(tile.dom.over, event);
  if (board.press && board.over === tile) dragTo(board, point);
  board.point = pointIn(board.dom.stage, event);
  board.over = tile;
  setHover(board, cellAt(tile, tile.box, point.x, point.y));
}

function onLeave(board) {
  if (board.press) return;
  board.point = board.over = null;
  setHover(board, null);
}

/** @param {Board} board @param {Tile} tile @param {PointerEvent} event */
function onDown(board, tile, event) {
  board.touch = event.pointerType === "touch";
  const point = pointIn(tile.dom.over, event);
  if (event.button > 0 || board.touch || !cellAt(tile, tile.box, point.x, point.y)) return;
  board.press = point;
  board.over = tile;
  tile.dom.over.setPointerCapture(event.pointerId);
}

function onUp(board, tile) {
  const drag = endDrag(board);
  const span = drag && spanUnder(tile, tile.box, drag);
  if (span) setWindow(board, span);
  else if (drag) drawOver(board);
}

/** @param {Board} board @param {KeyboardEvent} event @returns {boolean} whether the key did something */
function onKey(board, event) {
  return mapKey(board, event, pickedCell(board), board.visible[0].box, {
    Enter: () => togglePin(board, pickedCell(board)),
    Escape: () => escape(board),
    t: () => board.dom.tableButton.click(),
    "?": () => board.dom.help.click(),
  });
}

function escape(board) {
  board.dom.keys.hidden = true;
  if (board.pin) setPin(board, null);
  else resetZoom(board);
  setHover(board, null);
}

/** @param {Board} board */
function start(board) {
  const dom = board.dom = build(board.root);
  board.drawOver = () => drawOver(board);
  board.spoken = (cell) => spoken(board, cell);
  dom.stage.onkeydown = (event) => handleKey(event, () => onKey(board, event));
  dom.stage.onblur = () => board.keyboard && setHover(board, null);
  dom.tableButton.onclick = () => {
    dom.rows.hidden = !dom.rows.hidden;
    showRow(board, pickedCell(board));
  };
  dom.reset.onclick = () => resetZoom(board);
  const onZoom = (/** @type {any} */ { detail: { from, tokens, span } }) => {
    if (from !== board && tokens === board.tokens) setWindow(board, span, true);
  };
  window.addEventListener(ZOOM, onZoom, { signal: board.ended.signal });
  followSlider(board, () => (board.frames?.options ? null : board.frames?.control), (index) => showFrame(board, index));
  followList(board, () => board.frames?.options && board.frames.control, (text) => showFrame(board, board.frames.options.indexOf(text)));
  onCrosshair(board, (cell) => {
    board.point = null;
    setHover(board, cell && cell.j >= 0 ? cell : null, { silent: true });
  });
}

/** @param {Board} board */
function update(board, { tiles, turn, pin, frames, ...rest }) {
  board.turn ??= turn;
  if (rest.first !== board.first) board.open = rest.first; // the map that the page's sentence names
  Object.assign(board, rest);
  // An answer to an earlier message must not undo what was done since.
  if (turn >= board.turn) board.pin = pin;
  const tokens = JSON.stringify([board.queries, board.keys]);
  if (board.tokens !== tokens) board.window = whole(board);
  board.tokens = tokens;
  board.signedTheme = readTheme(board.root, board.palette, true);
  board.tiles = tiles.map((tile) => tileOf(board, tile));
  board.frames = frames && { ...frames, values: frames.values.map(unpack) };
  if (board.hover && (board.hover.i >= board.queries.length || board.hover.j >= board.keys.length)) board.hover = null;
  board.over = null;
  // An answer to an earlier value must not undo a later one; that to the control's own has the exact numbers.
  const { ahead } = board;
  if (frames && ahead != null && ahead !== frames.at && ahead === indexNow(frames)) setFrame(board, ahead);
  else board.ahead = null;
  drawTiles(board);
}

/** The index of the value that the control shows. @param {Frames} frames */
const indexNow = ({ control, options }) => (options ? options.indexOf(listText(control)) : sliderIndex(control));

/** Draw the maps at a value of the control. @param {Board} board @param {number} index */
function showFrame(board, index) {
  if (index === board.frames.at || !board.frames.names[index]) return;
  board.ahead = index;
  setFrame(board, index);
  drawTiles(board);
}

/** @param {Board} board @param {number} index */
function setFrame(board, index) {
  board.frames.at = index;
  board.tiles.forEach((tile, at) => {
    const { current } = tile, size = current.rows * current.cols;
    [tile.name, tile.note] = board.frames.names[index][at];
    current.values = board.frames.values[at].subarray(index * size, (index + 1) * size);
  });
}

/** @param {Board} board */
function drawTiles(board) {
  const [a, b] = (board.difference ?? []).map((at) => board.tiles[at]);
  const difference = a ? [differenceOf(board, a, b, board.differenceEnd)] : [];
  board.visible = board.alone ? difference : [...board.tiles, ...difference];
  buildTiles(board);
  drawAll(board);
  showRow(board, pickedCell(board));
}

function buildTiles(board) {
  board.dom.maps.replaceChildren();
  board.dom.apart.replaceChildren();
  for (const tile of board.visible) {
    buildTile(board, tile, tile.operands && !board.alone ? board.dom.apart : board.dom.maps);
    const { over } = tile.dom;
    over.onpointermove = (event) => onMove(board, tile, event);
    over.onpointerleave = () => onLeave(board);
    over.onpointerdown = (event) => onDown(board, tile, event);
    over.onpointerup = over.onpointercancel = () => onUp(board, tile);
    over.onclick = (event) => {
      if (board.dragged) return;
      onMove(board, tile, event);
      togglePin(board, board.hover);
    };
    onPinch(over, board, () => tile.box, (span) => setWindow(board, span));
    over.ondblclick = () => resetZoom(board);
  }
  board.differenceLegend = buildLegend(board.dom.apart);
}

export default (component) => mount(component, { start, update, draw: drawAll, stop: (board) => clearTimeout(board.speaking) });
