// Frames over training: play, pause and pick.

/** @import { AttentionView } from "./types" */
import { send } from "../lib/mount.js";
import { drawAll } from "./draw.js";
import { FILM } from "./film.js";
import { setCurrent } from "./state.js";

const PLAY_INTERVAL = 160; // ms a frame

/** @param {AttentionView} view */
export function stopPlaying(view) {
  clearInterval(view.playing);
  view.playing = null;
  view.dom.play.textContent = "▶";
  view.dom.play.setAttribute("aria-label", "Play the frames");
}

export function togglePlay(view) {
  if (view.playing) return endPlaying(view);
  const last = () => view.frames.steps.length - 1; // live frames grow in number
  if (view.frameIndex >= last()) showFrame(view, 0);
  view.dom.play.textContent = "❚❚";
  view.dom.play.setAttribute("aria-label", "Pause");
  let count = 0;
  view.playing = setInterval(() => {
    showFrame(view, Math.min(last(), view.frameIndex + 1));
    if (++count % FILM.tell === 0) sendFrame(view); // the page beside the map follows in longer strides
    if (view.frameIndex >= last()) endPlaying(view);
  }, PLAY_INTERVAL);
}

function endPlaying(view) {
  stopPlaying(view);
  sendFrame(view);
}

export function showFrame(view, k) {
  view.frameIndex = k;
  setCurrent(view);
  drawAll(view);
}

export function sendFrame(view) {
  const last = view.frameIndex === view.frames.steps.length - 1;
  send(view, "frame", { value: last ? null : view.frames.steps[view.frameIndex] });
}
