// Dials as SVG: the pointer or the arrow keys pick a place, and the line below says how far each pair has turned there.

const SPACE = "http://www.w3.org/2000/svg";
const GUTTER = 58, TAIL = 86, TOP = 24, LEAST = 22, MOST = 40;

function shape(parent, tag, attributes, words) {
  const made = document.createElementNS(SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (words !== undefined) made.textContent = words;
  parent.appendChild(made);
  return made;
}

const degrees = (angle) => ((((angle * 180) / Math.PI) % 360) + 360) % 360;

function draw(board) {
  const { data, scroll } = board;
  const room = (scroll.clientWidth - GUTTER - TAIL) / data.places;
  board.cell = Math.max(LEAST, Math.min(MOST, Math.floor(room)));
  const { cell } = board;
  const width = GUTTER + data.places * cell + TAIL, height = TOP + data.rows.length * cell + 6;
  scroll.replaceChildren();
  const svg = shape(scroll, "svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  board.column = shape(svg, "rect", { y: TOP, width: cell, height: height - TOP - 4, rx: 3, fill: "none",
    stroke: data.pick, "stroke-width": 2, visibility: "hidden" });
  shape(svg, "text", { class: "quiet", x: GUTTER - 8, y: 14, "text-anchor": "end" }, "pair");
  shape(svg, "text", { class: "quiet", x: GUTTER + data.places * cell + 8, y: 14 }, "whole circle");
  const every = cell >= 26 ? 1 : 2;
  board.names = [];
  for (let place = 0; place < data.places; place++) {
    const words = place % every ? "" : String(place);
    board.names.push(shape(svg, "text", { class: "quiet", x: middle(board, place), y: 14, "text-anchor": "middle" }, words));
  }
  data.rows.forEach((row, at) => drawRow(board, svg, row, TOP + (at + 0.5) * cell));
  show(board, board.place);
}

const middle = (board, place) => GUTTER + (place + 0.5) * board.cell;

function drawRow(board, svg, row, y) {
  const { data, cell } = board, radius = cell / 2 - 4;
  shape(svg, "text", { x: GUTTER - 8, y: y + 4, "text-anchor": "end" }, row.name);
  for (let place = 0; place < data.places; place++) {
    const x = middle(board, place);
    shape(svg, "circle", { class: "face", cx: x, cy: y, r: radius });
    if (row.before != null) drawHand(svg, x, y, radius, row.before * place, { class: "before" });
    const tip = drawHand(svg, x, y, radius, row.angle * place, { class: "hand", stroke: data.hand });
    shape(svg, "circle", { cx: tip[0], cy: tip[1], r: 2.5, fill: data.hand });
  }
  shape(svg, "text", { x: GUTTER + data.places * cell + 8, y: y + 4 }, `${row.circle} places`);
}

function drawHand(svg, x, y, radius, angle, look) {
  const tip = [x + radius * Math.cos(angle), y - radius * Math.sin(angle)];
  shape(svg, "line", { x1: x, y1: y, x2: tip[0], y2: tip[1], "stroke-width": 2, ...look });
  return tip;
}

function show(board, place) {
  const { data, column, line, names, cell } = board;
  const inside = place !== null && place >= 0 && place < data.places;
  board.place = inside ? place : null;
  column.setAttribute("visibility", inside ? "visible" : "hidden");
  names.forEach((name, at) => (name.style.fill = at === board.place ? data.pick : ""));
  if (!inside) return void (line.textContent = "Point at a place to read its angles.");
  column.setAttribute("x", GUTTER + place * cell);
  const said = data.rows.slice(0, 4).map((row) => `pair ${row.name}: ${degrees(row.angle * place).toFixed(1)}°`);
  line.textContent = `place ${place} · ${said.join(" · ")}${data.rows.length > 4 ? " · …" : ""}`;
}

function start(root) {
  root.replaceChildren();
  const board = { root, place: null, scroll: document.createElement("div"), line: document.createElement("div") };
  board.scroll.className = "scroll";
  board.scroll.tabIndex = 0;
  board.scroll.setAttribute("role", "img");
  board.line.className = "line";
  board.line.setAttribute("aria-live", "polite");
  root.append(board.scroll, board.line);
  const placeAt = (event) => {
    const x = event.clientX - board.scroll.getBoundingClientRect().left + board.scroll.scrollLeft - GUTTER;
    show(board, Math.floor(x / board.cell));
  };
  board.scroll.onpointermove = board.scroll.onpointerdown = placeAt;
  board.scroll.onpointerleave = (event) => event.pointerType === "mouse" && show(board, null);
  board.scroll.onkeydown = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step && event.key !== "Escape") return;
    event.preventDefault();
    const from = board.place ?? (step > 0 ? -1 : board.data.places);
    show(board, step ? Math.min(board.data.places - 1, Math.max(0, from + step)) : null);
  };
  board.observer = new ResizeObserver(() => board.data && board.width !== root.clientWidth && fit(board));
  board.observer.observe(root);
  return board;
}

function fit(board) {
  board.width = board.root.clientWidth;
  if (board.width) draw(board);
}

const BOARDS = new WeakMap();

export default function (component) {
  const { data, parentElement } = component;
  const root = parentElement.querySelector(".dials");
  if (!root || !data) return;
  if (!BOARDS.has(root)) BOARDS.set(root, start(root));
  const board = BOARDS.get(root);
  board.data = data;
  board.scroll.setAttribute("aria-label", data.label);
  fit(board);
  return () => {
    board.observer.disconnect();
    BOARDS.delete(root);
  };
}
