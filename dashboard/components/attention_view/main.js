// One view: its data, its size, and when it draws. Streamlit calls the default export at each change.

import { unpack, unpackBits } from "../lib/bytes.js";
import { fontOf, readTheme } from "../lib/theme.js";
import { CROSS, onClick, onCross, onDown, onLeave, onMove, onUp, setHover } from "./actions.js";
import { build } from "./dom.js";
import { drawAll } from "./draw.js";
import { filmAt, frameOf } from "./film.js";
import { decodeGrid } from "./grid.js";
import { saveImage } from "./image.js";
import { onKey, toggleTable } from "./keys.js";
import { sendFrame, showFrame, stopPlaying, togglePlay } from "./playback.js";
import { isZoomed, setCurrent } from "./state.js";
import { showTable } from "./words.js";
import { resetZoom } from "./zoom.js";

const SENT = new Set(["one", "grid", "frames", "mask", "turn"]); // what decode and update read themselves

function decode(view, data) {
  if (data.grid && data.grid.bytes !== view.raw) {
    view.grid = decodeGrid(data.grid);
    view.gridMasked = view.grid.some((one) => one.heads.some((bytes) => bytes.includes(255)));
    view.raw = data.grid.bytes;
  }
  view.gridInfo = data.grid;
  if (data.grid) view.range = [data.grid.low, data.grid.high];
  view.roles = data.roles ?? [];
  view.edges = data.one?.edges ?? null;
  view.part = data.part;
  if (data.one) {
    const { rows, cols, heads, values, mask } = data.one;
    view.one = { rows, cols, heads, values: unpack(values), masks: unpackBits(mask, rows * cols) };
  }
  if (data.frames) {
    const { steps, rows, cols, values } = data.frames;
    view.frames = { steps, rows, cols, values: unpack(values) };
    view.mask = unpackBits(data.mask, rows * cols)?.[0] ?? null;
  }
}

function update(view, data) {
  const first = view.turn === undefined;
  const kept = { layer: view.layer, head: view.head, pins: view.pins, frameIndex: view.frameIndex };
  if (first) view.turn = data.turn;
  const { turn } = data;
  for (const [name, value] of Object.entries(data)) if (!SENT.has(name)) view[name] = value;
  if (view.layout === "frames" && view.show === "both") view.show = "matrix";
  view.tokens = JSON.stringify([view.queries, view.keys]);
  decode(view, data);
  // An answer to an earlier message must not undo what was done since.
  if (turn < view.turn) view.pins = kept.pins;
  if (turn < view.turn && view.layout === "one" && kept.layer === view.layer && view.one.heads.includes(kept.head)) {
    view.head = kept.head;
  }
  view.theme = readTheme(view.dom.root, view.palette, view.signed);
  if (view.layout === "frames") {
    const held = view.playing || view.sliding || turn < view.turn;
    view.frameIndex = held ? Math.min(kept.frameIndex, view.frames.steps.length - 1) : frameOf(view, view.frame);
  }
  if (view.layout !== "grid") setCurrent(view);
  if (turn >= view.turn) view.wanted = null;
  if (view.hover && (view.hover.i >= view.queries.length || view.hover.j >= view.keys.length)) view.hover = null;
  drawAll(view);
  showTable(view);
  // Canvas text waits for no font: draw again once both weights are there.
  if (first) fontsReady(view);
}

function fontsReady(view) {
  const loads = [400, 600].map((weight) => document.fonts.load(fontOf(view.theme, 13, weight)));
  Promise.allSettled(loads).then(() => view.box && drawAll(view));
}

function start(root) {
  const view = { dom: build(root) };
  const { over, stage, strip, slider, play, help, tableButton, reset, save } = view.dom;
  over.onpointermove = (event) => onMove(view, event);
  over.onpointerleave = () => onLeave(view);
  over.onpointerdown = (event) => onDown(view, event);
  over.onpointerup = over.onpointercancel = () => onUp(view);
  over.onclick = (event) => onClick(view, event);
  over.ondblclick = () => view.layout !== "grid" && isZoomed(view) && resetZoom(view);
  stage.onkeydown = (event) => onKey(view, event);
  stage.onblur = () => view.keyboard && setHover(view, null);
  help.onclick = () => (view.dom.keys.hidden = !view.dom.keys.hidden);
  tableButton.onclick = () => toggleTable(view);
  reset.onclick = () => resetZoom(view);
  save.onclick = () => saveImage(view);
  play.onclick = () => togglePlay(view);
  slider.oninput = () => ((view.sliding = true), view.playing && stopPlaying(view), showFrame(view, Number(slider.value)));
  slider.onchange = () => ((view.sliding = false), sendFrame(view));
  strip.onclick = (event) => {
    const k = filmAt(view, event.clientX - strip.getBoundingClientRect().left);
    if (k == null) return;
    showFrame(view, k);
    sendFrame(view);
  };
  view.observer = new ResizeObserver(() => view.theme && view.dom.root.clientWidth !== view.width && drawAll(view));
  view.observer.observe(root);
  view.follow = (event) => onCross(view, event);
  window.addEventListener(CROSS, view.follow);
  return view;
}

function stop(view) {
  view.observer.disconnect();
  window.removeEventListener(CROSS, view.follow);
  clearInterval(view.playing);
  clearTimeout(view.picking);
  clearTimeout(view.speaking);
}

const VIEWS = new WeakMap();

export default function (component) {
  const { data, parentElement, setStateValue } = component;
  const root = parentElement.querySelector(".av");
  if (!root || !data) return;
  if (!VIEWS.has(root)) VIEWS.set(root, start(root));
  const view = VIEWS.get(root);
  view.setStateValue = setStateValue;
  update(view, data);
  return () => {
    stop(view);
    VIEWS.delete(root);
  };
}
