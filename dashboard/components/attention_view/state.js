// What a view holds: its current map, its scale, its window, and the messages it sends.

// The turn tells Python's answer to this message from answers to earlier ones.
export function send(view, field, value) {
  view.turn += 1;
  view.setStateValue(field, { value, turn: view.turn });
}

// The numbers of the picked head or frame as {values, mask, rows, cols}, and the scale over them.
export function setCurrent(view) {
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

export const isZoomed = ({ window: w, current, part }) =>
  Boolean(part) || (w && (w.r0 || w.c0 || w.r1 < current.rows || w.c1 < current.cols));
