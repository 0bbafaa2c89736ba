// One view of attention maps: its data and its events.

/** @import { AttentionView } from "./types" */
import { unpack, unpackBits } from "../lib/bytes.js";
import { followChoice, followList, followSlider, listText, pickedIndex, sliderIndex } from "../lib/controls.js";
import { onCrosshair, setHover } from "../lib/crosshair.js";
import { handleKey } from "../lib/keys.js";
import { mount } from "../lib/mount.js";
import { onPinch } from "../lib/pinch.js";
import { spoken } from "../lib/reading.js";
import { pointIn } from "../lib/zoom.js";
import { endPinch, onClick, onDown, onKey, onLeave, onMove, onUp, resetZoom } from "./actions.js";
import { build } from "./dom.js";
import { drawAll, drawOver } from "./draw.js";
import { filmAt, frameOf } from "./film.js";
import { decodeGrid } from "./grid.js";
import { saveImage } from "./image.js";
import { sendFrame, showFrame, stopPlaying, togglePlay } from "./playback.js";
import { setCurrent } from "./state.js";
import { showRow } from "./texts.js";

/** @param {AttentionView} view */
function start(view) {
  const dom = view.dom = build(view.root);
  const { over, stage, strip, slider } = dom;
  view.drawOver = () => drawOver(view);
  view.spoken = ({ i, j }) => spoken(view, i, j);
  over.onpointermove = (event) => onMove(view, event);
  over.onpointerleave = () => onLeave(view);
  over.onpointerdown = (event) => onDown(view, event);
  over.onpointerup = over.onpointercancel = () => onUp(view);
  over.onclick = (event) => onClick(view, event);
  onPinch(over, view, () => (view.layout === "grid" ? null : view.box.map), (span) => {
    view.window = span;
    drawAll(view);
  }, (closer) => endPinch(view, closer));
  over.ondblclick = dom.reset.onclick = () => resetZoom(view);
  stage.onkeydown = (event) => handleKey(event, () => onKey(view, event));
  stage.onblur = () => view.keyboard && setHover(view, null);
  dom.tableButton.onclick = () => {
    dom.rows.hidden = !dom.rows.hidden;
    showRow(view);
  };
  dom.save.onclick = () => saveImage(view);
  dom.play.onclick = () => togglePlay(view);
  slider.oninput = () => {
    view.sliding = true;
    if (view.playing) stopPlaying(view);
    showFrame(view, Number(slider.value));
  };
  slider.onchange = () => {
    view.sliding = false;
    sendFrame(view);
  };
  strip.onclick = (event) => {
    const k = filmAt(view, pointIn(strip, event).x);
    if (k == null) return;
    showFrame(view, k);
    sendFrame(view);
  };
  followSlider(view, () => view.rowSlider, (index) => {
    view.query = index;
    redraw(view);
  });
  followChoice(view, () => view.showChoice?.key, (index) => {
    view.show = view.showChoice.values[index] ?? view.show;
    redraw(view);
  });
  for (const at of [0, 1]) {
    followList(view, () => view.pinLists?.[at], () => {
      const pin = pinListed(view);
      if (!pin || `${pin}` === `${view.pins}`) return;
      view.ahead = pin;
      pinAhead(view);
      redraw(view);
    });
  }
  onCrosshair(view, (cell) => {
    if (view.layout === "grid") return;
    view.point = null;
    setHover(view, cell, { silent: true });
  });
}

/** @param {AttentionView} view */
function update(view, { one, grid, frames, mask, roles = [], part = null, turn, ...rest }) {
  const before = { layer: view.layer, head: view.head, pins: view.pins, frameIndex: view.frameIndex };
  view.turn ??= turn;
  Object.assign(view, rest, { roles, part });
  // An answer to an earlier value of a control must not undo a later one.
  if (view.rowSlider) view.query = sliderIndex(view.rowSlider) ?? view.query;
  if (view.showChoice) view.show = view.showChoice.values[pickedIndex(view.showChoice.key)] ?? view.show;
  if (view.layout === "frames" && view.show === "both") view.show = "matrix";
  view.tokens = JSON.stringify([view.queries, view.keys]);
  decode(view, { one, grid, frames, mask });
  if (view.ahead && `${view.ahead}` !== `${view.pins}` && `${view.ahead}` === `${pinListed(view)}`) pinAhead(view);
  else view.ahead = null;
  // An answer to an earlier message must not undo what was done since.
  const late = turn < view.turn;
  if (late) view.pins = before.pins;
  else view.nextHead = null;
  if (late && view.layout === "one" && before.layer === view.layer && view.one.heads.includes(before.head)) {
    view.head = before.head;
  }
  if (view.layout === "frames") {
    const busy = view.playing || view.sliding || late;
    view.frameIndex = busy ? Math.min(before.frameIndex, view.frames.steps.length - 1) : frameOf(view, view.frame);
  }
  if (view.layout !== "grid") setCurrent(view);
  if (view.hover && (view.hover.i >= view.queries.length || view.hover.j >= view.keys.length)) view.hover = null;
  redraw(view);
}

/** The query and the key that two native lists show; null while a text is typed to find one. @param {AttentionView} view @returns {[number, number] | null} */
function pinListed(view) {
  const [i, j] = (view.pinLists ?? []).map((key) => Number.parseInt(listText(key), 10));
  return view.queries[i] != null && view.keys[j] != null ? [i, j] : null;
}

/** @param {AttentionView} view */
function pinAhead(view) {
  view.pins = [view.ahead];
  view.query = view.ahead[0];
}

/** @param {AttentionView} view */
function redraw(view) {
  drawAll(view);
  showRow(view);
}

function decode(view, { one, grid, frames, mask }) {
  if (grid && grid.bytes !== view.gridBytes) {
    view.grid = decodeGrid(grid);
    view.gridMasked = view.grid.some(({ heads }) => heads.some((bytes) => bytes.includes(255)));
    view.gridBytes = grid.bytes;
  }
  view.gridInfo = grid;
  if (grid) view.range = [grid.low, grid.high];
  view.edges = one?.edges ?? null;
  if (one) view.one = { ...one, values: unpack(one.values), masks: unpackBits(one.mask, one.rows * one.cols) };
  if (frames) {
    view.frames = { ...frames, values: unpack(frames.values) };
    view.masks = unpackBits(mask, frames.rows * frames.cols);
  }
}

const stop = ({ playing, picking, speaking }) => [playing, picking, speaking].forEach(clearTimeout);

export default (component) => mount(component, { start, update, draw: drawAll, stop });
