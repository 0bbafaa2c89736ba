// Where the points of a drawn line lie, and what a pointer or a key makes of them. Pixels run from `box`'s top down.

/** @typedef {{left: number, top: number, width: number, height: number}} Box */
/** @typedef {{low: number, high: number, log: boolean}} Scale */

import { clamp } from "../lib/layout.js";

const of = (scale, value) => (scale.log ? Math.log(value) : value);

/** The share of a scale at which a value lies, 0 to 1. @param {Scale} scale @param {number} value */
export function shareOf(scale, value) {
  const [low, high] = [of(scale, scale.low), of(scale, scale.high)];
  return high === low ? 0.5 : (of(scale, value) - low) / (high - low);
}

/** The value at a share of a scale. @param {Scale} scale @param {number} share */
export function valueAt(scale, share) {
  const [low, high] = [of(scale, scale.low), of(scale, scale.high)];
  const value = low + clamp(share, 0, 1) * (high - low);
  return scale.log ? Math.exp(value) : value;
}

/** The index of the place that is nearest to x. @param {number[]} places px @param {number} x px */
export function nearest(places, x) {
  return places.reduce((best, place, at) => (Math.abs(place - x) < Math.abs(places[best] - x) ? at : best), 0);
}

/** Shares after a stroke from one point to another: the nearest place takes its end, those it crossed lie on it. */
export function stroke(shares, places, from, to) {
  const drawn = [...shares], [a, b] = from.x < to.x ? [from, to] : [to, from];
  places.forEach((place, at) => {
    if (place > a.x && place < b.x) drawn[at] = a.share + ((b.share - a.share) * (place - a.x)) / (b.x - a.x);
  });
  drawn[nearest(places, to.x)] = to.share;
  return drawn.map((share) => share === null ? null : clamp(share, 0, 1));
}

/** The shares with those that were not drawn on a line between their drawn neighbours. @param {(number | null)[]} shares */
export function filled(shares) {
  const drawn = shares.map((share, at) => ({ share, at })).filter(({ share }) => share !== null);
  if (!drawn.length) return shares.map(() => 0.5);
  return shares.map((share, at) => {
    if (share !== null) return share;
    const before = drawn.findLast((one) => one.at < at), after = drawn.find((one) => one.at > at);
    if (!before || !after) return (before ?? after).share;
    return before.share + ((after.share - before.share) * (at - before.at)) / (after.at - before.at);
  });
}
