// One view: its data, its size, and when it draws. Streamlit calls the default export at each change.

function fromBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
  return bytes;
}

function unpack({ type, low, step, bytes }) {
  const raw = fromBase64(bytes);
  if (type === "f4") return new Float32Array(raw.buffer, raw.byteOffset, raw.length / 4);
  return Float32Array.from(new Uint16Array(raw.buffer, raw.byteOffset, raw.length / 2), (k) => low + k * step);
}

// One bit a cell, most significant first, as numpy packs them.
function unpackBits(mask, size) {
  if (!mask) return null;
  const raw = fromBase64(mask.bytes);
  const planes = Array.from({ length: mask.planes }, () => new Uint8Array(size));
  planes.forEach((plane, p) => {
    for (let at = 0; at < size; at++) {
      const bit = p * size + at;
      plane[at] = (raw[bit >> 3] >> (7 - (bit & 7))) & 1;
    }
  });
  return planes;
}

// The numbers of the picked head or frame as {values, mask, rows, cols}, and the scale over them.
function setCurrent(view) {
  const source = view.layout === "frames" ? view.frames : view.one;
  const { rows, cols } = source;
  const k = view.layout === "frames" ? view.frameIndex : source.heads.indexOf(view.head);
  const masks = view.layout === "frames" ? (view.mask ? [view.mask] : null) : source.masks;
  view.current = {
    rows, cols,
    values: source.values.subarray(k * rows * cols, (k + 1) * rows * cols),
    mask: masks ? masks[masks.length > 1 ? k : 0] : null,
  };
  view.range = rangeOf(view, view.layout === "frames" ? source.values : view.current.values);
  const size = `${rows}×${cols}${view.part ?? ""}`;
  if (view.size !== size) view.window = { r0: 0, r1: rows, c0: 0, c1: cols };
  view.size = size;
}

function rangeOf(view, values) {
  if (view.scale === "unit" && !view.signed) return [0, 1];
  let most = 0;
  for (const value of values) if (Math.abs(value) > most) most = Math.abs(value);
  if (view.scale === "p99.5") {
    const sorted = Float32Array.from(values, Math.abs).sort();
    most = sorted[Math.min(sorted.length - 1, Math.ceil(0.995 * sorted.length) - 1)] || most;
  }
  most ||= 1;
  return view.signed ? [-most, most] : [0, most];
}

// What is read: under the pointer, else pinned last, else the page's row.
function pickedCell(view) {
  const pinned = view.hover ?? newestPin(view);
  if (pinned || view.query == null) return pinned;
  const i = cellOf(view, "rows", view.query);
  return i < 0 ? null : { i, j: -1 };
}

function drawAll(view) {
  const started = performance.now();
  view.width = view.dom.root.clientWidth;
  if (!view.width) return;
  view.ratio = window.devicePixelRatio || 1;
  const measure = view.dom.over.getContext("2d");
  view.box = view.layout === "grid" ? layoutGrid(view, view.width) : layoutOne(measure, view, view.width);
  const ctx = sized(view.dom.base, view.width, view.box.height, view.ratio);
  if (view.layout === "grid") drawGrid(ctx, view, view.box);
  if (view.box.map) drawMatrix(ctx, view, view.box.map);
  if (view.box.lines) drawLines(ctx, view, view.box.lines);
  if (view.box.picture) drawPicture(ctx, view, view.box.picture);
  if (view.layout === "frames") {
    view.dom.slider.max = String(view.frames.steps.length - 1);
    view.dom.slider.value = String(view.frameIndex);
    const share = view.frameIndex / Math.max(1, view.frames.steps.length - 1);
    view.dom.slider.style.setProperty("--at", `${100 * share}%`);
    view.dom.slider.setAttribute("aria-valuetext", `step ${frameName(view, view.frameIndex)}`);
    view.film = { canvas: view.dom.strip, width: view.dom.slider.clientWidth };
    drawFilm(view);
  }
  view.dom.reset.hidden = view.layout === "grid" || !isZoomed(view);
  showWords(view);
  drawOver(view);
  view.dom.root.dataset.drawn = view.drawn = (view.drawn ?? 0) + 1;
  view.dom.root.dataset.drawMs = (performance.now() - started).toFixed(1);
}

function drawOver(view) {
  if (!view.box) return;
  const started = performance.now();
  const ctx = sized(view.dom.over, view.width, view.box.height, view.ratio);
  const picked = view.layout === "grid" ? null : pickedCell(view);
  if (view.layout === "grid") drawGridOver(ctx, view, view.box);
  else drawMapOver(ctx, view, picked);
  if (view.drag) outlineDrag(ctx, view);
  showStatus(view);
  showTip(view, view.point?.x, view.point?.y);
  if (view.hover) showTable(view);
  mark(view, performance.now() - started);
}

// Names, crosshair, pins and the picked row's lines: all that stands over the cells.
function drawMapOver(ctx, view, picked) {
  const { map, lines, picture } = view.box;
  if (map) {
    drawRowNames(ctx, view, map, picked);
    drawColNames(ctx, view, map, picked);
    if (picked) drawCross(ctx, view, map, picked);
    drawPins(ctx, view, map, picked?.i ?? -1);
  }
  if (lines) drawLinesOver(ctx, view, lines, picked);
  if (picture) drawPatches(ctx, view, picture, picked);
}

function outlineDrag(ctx, view) {
  const { x0, y0, x1, y1 } = view.drag;
  ctx.setLineDash([4, 3]);
  ctx.strokeStyle = view.theme.text;
  ctx.lineWidth = 1;
  ctx.strokeRect(Math.min(x0, x1), Math.min(y0, y1), Math.abs(x1 - x0), Math.abs(y1 - y0));
  ctx.setLineDash([]);
}

// What a test reads instead of pixels.
function mark(view, took) {
  const { dataset } = view.dom.root;
  dataset.layer = view.layer;
  dataset.head = view.head;
  dataset.pin = view.pins.length ? view.pins.at(-1).join(",") : "";
  dataset.pins = view.pins.map((pin) => pin.join(",")).join(";");
  const at = view.layout === "grid" ? null : view.hover;
  dataset.hover = at ? `${at.i},${at.j}` : "";
  dataset.value = at && at.j >= 0 ? view.current.values[at.i * view.current.cols + at.j].toFixed(6) : "";
  dataset.frame = view.layout === "frames" ? view.frames.steps[view.frameIndex] : "";
  dataset.theme = view.theme.dark ? "dark" : "light";
  dataset.hoverMs = took.toFixed(1);
  if (view.box.map) {
    const { x, y, cw, ch } = view.box.map;
    dataset.map = [x, y, cw, ch].join(",");
    dataset.window = (view.part ?? Object.values(view.window)).toString();
    dataset.pooled = view.edges?.pooled ? "1" : "";
  }
  if (view.box.picture) dataset.picture = Object.values(view.box.picture).join(",");
  if (view.layout === "grid") {
    const { gutter, top, pitch, rowPitch, size } = view.box;
    dataset.map = [gutter, top, pitch, rowPitch, size].join(",");
  }
  dataset.ready = "1";
}

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
  const { one, grid, frames, mask, turn, ...plain } = data;
  Object.assign(view, plain);
  if (view.layout === "frames" && view.show === "both") view.show = "matrix";
  view.tokens = JSON.stringify([view.queries, view.keys]);
  decode(view, data);
  // An answer to an earlier message must not undo what was done since.
  if (turn < view.turn) view.pins = kept.pins;
  if (turn < view.turn && view.layout === "one" && kept.layer === view.layer && view.one.heads.includes(kept.head)) {
    view.head = kept.head;
  }
  view.theme = readTheme(view.dom.root, view.signed);
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
  over.onpointerup = over.onpointercancel = (event) => onUp(view, event);
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
    if (k != null) (showFrame(view, k), sendFrame(view));
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
