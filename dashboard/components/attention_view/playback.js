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
  if (view.playing) {
    stopPlaying(view);
    sendFrame(view);
    return;
  }
  const last = view.frames.steps.length - 1;
  if (view.frameIndex >= last) showFrame(view, 0);
  view.dom.play.textContent = "❚❚";
  view.dom.play.setAttribute("aria-label", "Pause");
  let count = 0;
  view.playing = setInterval(() => {
    showFrame(view, Math.min(view.frames.steps.length - 1, view.frameIndex + 1));
    if (++count % FILM.tell === 0) sendFrame(view); // what stands beside the map follows in longer strides
    if (view.frameIndex >= view.frames.steps.length - 1) {
      stopPlaying(view);
      sendFrame(view);
    }
  }, PLAY_INTERVAL);
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
