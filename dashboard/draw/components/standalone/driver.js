// Mounts each component of a file as Streamlit does, and answers what it sends as Python does.

import { unpack, unpackBits } from "../lib/bytes.js";

/** What each component exports, put here by the file. @type {Record<string, (component: object) => void>} */
const components = Reflect.get(globalThis, "attentionLab");
const { parts, styles, palette } = JSON.parse(document.getElementById("data").textContent);
const redraws = []; // draws every component again, for a new theme

/** A place in the page with the component's own styles, which calls it with its data. */
function place(parent, name, root) {
  const host = parent.appendChild(document.createElement("div")), inside = host.attachShadow({ mode: "open" });
  inside.appendChild(document.createElement("style")).textContent = styles[name];
  inside.appendChild(document.createElement("div")).className = `view ${root}`;
  return (data, setStateValue = () => {}) =>
    components[name]({ data: { ...data, palette }, parentElement: inside, setStateValue, setTriggerValue: () => {} });
}

function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return btoa(text);
}

/** Every head as bytes on one scale, for the grid: 0 to 254 between the ends, 255 where it is masked. */
function gridOf({ layers, signed }) {
  const values = layers.map((one) => unpack(one.values));
  const largest = (all) => all.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const high = (signed && Math.max(...values.map(largest))) || 1, low = signed ? -high : 0;
  const ends = layers.map(({ negative }, k) => {
    const most = largest(values[k]);
    return negative ? [-most, most] : !signed && most > 1.0005 ? [0, most] : null;
  });
  const bytes = layers.map(({ mask, rows, cols }, k) => {
    const size = rows * cols, masks = unpackBits(mask, size);
    const shown = (at) => !masks || masks[masks.length > 1 ? Math.floor(at / size) : 0][at % size];
    const [from, to] = ends[k] ?? [low, high];
    const level = (value) => Math.round(Math.min(1, Math.max(0, (value - from) / (to - from))) * 254);
    return Uint8Array.from(values[k], (value, at) => (shown(at) ? level(value) : 255));
  });
  const whole = new Uint8Array(bytes.reduce((sum, one) => sum + one.length, 0));
  bytes.reduce((at, one) => (whole.set(one, at), at + one.length), 0);
  return { shapes: layers.map(({ heads, rows, cols }) => [heads, rows, cols]), layers: layers.map((_, k) => k),
           pooled: false, low, high, ends, bytes: base64(whole) };
}

/** All heads, and below them the picked one. */
function showTrace(parent, { name, root, data }) {
  const { layers, numbers, signed, query, states } = data, state = { layer: data.layer, head: data.head, pin: null, turn: 0 };
  const several = layers.length > 1 || layers[0].heads > 1;
  const drawGrid = several && place(parent, name, root), drawOne = place(parent, name, root), grid = several && gridOf(data);
  const label = ({ layer, head }) => `L${numbers[layer]}·H${head}`;
  function draw() {
    const { layer, head, pin, turn } = state, one = layers[layer], { queries, keys, heads, rows, cols, values, mask } = one;
    const shared = { layer, head, frame: null, numbers, pins: pin ? [pin] : [], heads, queries, keys, turn, states, state: one.state,
                     query: query < rows ? query : null, scale: "unit", pool: "mean", threshold: 0, patches: null, several: false, live: false,
                     caption: null, reads: one.reads, fact: `Attention weights of head ${label(state)}` };
    if (several) drawGrid({ ...shared, signed, layout: "grid", show: "both", grid, roles: [], title: null, height: null, thumb: 34 }, take);
    drawOne({ ...shared, signed: signed || one.negative, bySize: one.negative, layout: "one", show: "both", title: null, height: 560, thumb: 34, part: null,
              one: { heads: Array.from({ length: heads }, (_, k) => k), rows, cols, edges: null, values, mask } }, take);
  }
  function take(field, { value, turn }) {
    state.turn = turn;
    if (field === "pick") {
      if (value[0] !== state.layer) state.pin = null;
      [state.layer, state.head] = value;
    } else if (field === "pin") state.pin = value;
    draw();
  }
  draw();
  redraws.push(draw);
}

/** A component as the page drew it. */
function showPart(parent, { name, root, data }) {
  const drawPart = place(parent, name, root), draw = () => drawPart(data);
  draw();
  redraws.push(draw);
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  document.getElementById("theme").textContent = theme === "dark" ? "Light" : "Dark";
  redraws.forEach((draw) => draw());
}

document.getElementById("theme").onclick = () =>
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
const system = matchMedia("(prefers-color-scheme: dark)");
system.onchange = () => setTheme(system.matches ? "dark" : "light");
setTheme(system.matches ? "dark" : "light");
for (const part of parts) {
  const section = document.querySelector("main").appendChild(document.createElement("section"));
  if (parts.length > 1) section.appendChild(document.createElement("h2")).textContent = part.title;
  if (part.html) section.insertAdjacentHTML("beforeend", part.html);
  else (part.data.layers ? showTrace : showPart)(section, part);
  section.insertAdjacentHTML("beforeend", part.below);
}
