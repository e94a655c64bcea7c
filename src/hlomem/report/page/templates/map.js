// @ts-check
// The location of every buffer, and the lane of unpacked allocations.

import {
  axis,
  canvas,
  cursorAt,
  FADED,
  faded,
  label,
  message,
  pixel,
  plotWidth,
  Raster,
  ratio,
  room,
  TIMELESS,
} from "./chart.js";
import { $, colours, fontSize } from "./dom.js";
import { inkOn } from "./formats.js";
import { bases, bufferAt, lane, largestIn, mapHeight } from "./layout.js";
import { NONE } from "./model.js";
import { chosenIn, report, spotlight, state } from "./state.js";

/**
 * @import { Sheet } from "./chart.js"
 * @import { View } from "./layout.js"
 * @import { Report } from "./model.js"
 * @typedef {{ order: number[], texts: string[], pixels: Uint32Array }} Painted
 *   buffers and their colours
 * @typedef {{ i: number, left: number, y: number, wide: number, tall: number, colour: string }} Box
 * @typedef {{ large: Box[], marked: Box[] }} Shown
 */

const PLAIN = "#9aa3ad";

/** The ways to colour the map, and what they mean. */
export const COLOURINGS = {
  role: "",
  line: "one colour per source line; grey: none known",
  size: "blue: small, red: large",
  padding: "grey: none, yellow: some, red: nearly all",
};

/** @param {number} line the number of its text, or NONE */
export function lineColour(line) {
  return line === NONE ? PLAIN : `hsl(${(line * 137.5) % 360} 55% 62%)`;
}

/** @type {Record<keyof typeof COLOURINGS, (of: Report, i: number) => string>} */
const COLOUR_OF = {
  role: (of, i) => of.roleOf(i).colour,
  line: (of, i) => lineColour(of.buffers.source[i]),
  size: (of, i) => {
    const share = Math.log2(1 + of.buffers.size[i]) / Math.log2(1 + of.largest);
    return `hsl(${Math.round(220 - 210 * share)} 62% 62%)`;
  },
  padding: (of, i) => {
    const { size, padding } = of.buffers;
    const share = size[i] ? padding[i] / size[i] : 0;
    return share
      ? `hsl(${Math.round(45 - 45 * share)} 85% ${Math.round(70 - 16 * share)}%)`
      : PLAIN;
  },
};

/** @type {WeakMap<Report, { key: string, painted: Painted }>} */
const lastPainted = new WeakMap();

/**
 * The buffers of a space with a live range, with their colours as pixels and as texts.
 * @param {Report} of
 * @param {number} spaceNumber
 * @param {CanvasRenderingContext2D} pen
 */
function painted(of, spaceNumber, pen) {
  const isLit = of === report() ? spotlight() : null;
  const light = isLit ? `${state.query}\u0000${state.role}` : "";
  const key = [state.colouring, spaceNumber, light, colours.paper].join("\u0000");
  const last = lastPainted.get(of);
  if (last?.key === key) return last.painted;
  const colourOf = COLOUR_OF[state.colouring];
  const order = of.bySpace[spaceNumber].filter((i) => of.buffers.start[i] !== NONE);
  const texts = order.map((i) => colourOf(of, i));
  const pixelOf = new Map(Array.from(new Set(texts), (text) => [text, pixel(pen, text)]));
  const paper = pixel(pen, colours.paper);
  const pixels = Uint32Array.from(texts, (text, number) => {
    const own = pixelOf.get(text) ?? 0;
    return !isLit || isLit(order[number]) ? own : faded(own, paper);
  });
  lastPainted.set(of, { key, painted: { order, texts, pixels } });
  return { order, texts, pixels };
}

/**
 * @param {string} id of the canvas
 * @param {Report} of
 * @param {number} spaceNumber
 * @param {View} view
 */
export function drawMap(id, of, spaceNumber, view) {
  const sheet = canvas(id);
  const space = of.spaces[spaceNumber];
  if (!mapHeight(space, chosenIn(of))) {
    message(sheet, "nothing here takes a byte");
    return;
  }
  if (!space.heights.length) {
    message(sheet, TIMELESS);
    return;
  }
  const { pen, width, height } = sheet;
  const plot = plotWidth(width);
  pen.fillStyle = colours.panel;
  pen.fillRect(room.left, 0, plot, height);
  axis(sheet, view.high, view.low);
  const raster = new Raster(plot * ratio(), height * ratio());
  const shown = fillBoxes(raster, sheet, of, spaceNumber, view);
  pen.save();
  pen.beginPath();
  pen.rect(room.left, 0, plot, height);
  pen.clip();
  raster.drawAt(pen, room.left, plot, height);
  outline(sheet, of, shown);
  pen.restore();
  drawLane(sheet, of, spaceNumber, view);
  cursorAt(sheet, room.left + ((view.step + 0.5 - view.from) * plot) / (view.to - view.from));
}

/**
 * Fills the rectangles in view; returns those that get an outline.
 * @param {Raster} raster
 * @param {Sheet} sheet
 * @param {Report} of
 * @param {number} spaceNumber
 * @param {View} view
 */
function fillBoxes(raster, { pen, width, height }, of, spaceNumber, view) {
  const { order, texts, pixels } = painted(of, spaceNumber, pen);
  const place = placer(of, spaceNumber, view, plotWidth(width), height);
  const isMarked = markedIn(of);
  const scale = ratio();
  const shown = /** @type {Shown} */ ({ large: [], marked: [] });
  const box = { left: 0, y: 0, wide: 0, tall: 0 }; // one for all of them: they are many
  for (let number = 0; number < order.length; number++) {
    const i = order[number];
    if (!place(i, box)) continue;
    const { left, y, wide, tall } = box;
    raster.fill(left * scale, y * scale, (left + wide) * scale, (y + tall) * scale, pixels[number]);
    const isLarge = wide > 5 && tall > 5;
    if (!isLarge && !isMarked(i)) continue;
    const kept = { i, left: room.left + left, y, wide, tall, colour: texts[number] };
    if (isLarge) shown.large.push(kept);
    if (isMarked(i)) shown.marked.push(kept);
  }
  return shown;
}

/**
 * Puts a buffer's rectangle into a box, from the left of the plot on; says whether it is in view.
 * @param {Report} of
 * @param {number} spaceNumber
 * @param {View} view
 * @param {number} plot its width
 * @param {number} height
 * @returns {(i: number, box: { left: number, y: number, wide: number, tall: number }) => boolean}
 */
function placer(of, spaceNumber, { from, to, low, high }, plot, height) {
  const { start, end, offset, size, allocation } = of.buffers;
  const baseOf = bases(of.spaces[spaceNumber], chosenIn(of));
  const xScale = plot / (to - from);
  const yScale = height / (high - low);
  let lastSeen = NONE;
  /** @type {number | undefined} */
  let base;
  return (i, box) => {
    if (allocation[i] !== lastSeen) {
      lastSeen = allocation[i];
      base = baseOf.get(lastSeen);
    }
    if (base === undefined || end[i] + 1 <= from || start[i] >= to) return false;
    const bottom = base + offset[i] - low;
    if (bottom + size[i] <= 0 || bottom >= high - low) return false;
    box.left = Math.max(0, (start[i] - from) * xScale);
    box.wide = Math.min(plot, (end[i] + 1 - from) * xScale) - box.left;
    box.y = height - (bottom + size[i]) * yScale;
    box.tall = size[i] * yScale;
    return true;
  };
}

/**
 * Whether a buffer is selected, or was searched for.
 * @param {Report} of
 * @returns {(i: number) => boolean}
 */
function markedIn(of) {
  if (of !== report()) return () => false;
  const marked = new Set(state.matches).add(state.selected);
  return (i) => marked.has(i);
}

/**
 * Whether a label may be written: not over another.
 * @returns {(x: number, y: number, wide: number) => boolean}
 */
function labelRoom() {
  /** @type {Box[]} */
  const taken = [];
  const tall = fontSize();
  return (left, y, wide) => {
    const isFree = !taken.some(
      (its) => Math.abs(its.y - y) < tall && its.left < left + wide && left < its.left + its.wide,
    );
    if (isFree) taken.push({ i: NONE, left, y, wide, tall, colour: "" });
    return isFree;
  };
}

/**
 * @param {Sheet} sheet
 * @param {Report} of
 * @param {Shown} shown
 */
function outline({ pen, height }, of, { large, marked }) {
  pen.strokeStyle = colours.paper;
  pen.lineWidth = 0.6;
  for (const { left, y, wide, tall } of large) pen.strokeRect(left, y, wide, tall);
  const least = fontSize();
  const isLit = of === report() ? spotlight() : null;
  const hasRoom = labelRoom();
  const labelled = large.filter(({ tall, wide }) => tall >= least && wide >= 32);
  labelled.sort((a, b) => b.wide * b.tall - a.wide * a.tall);
  for (const { i, left, y, wide, tall, colour } of labelled) {
    const middle = (Math.max(0, y) + Math.min(height, y + tall)) / 2;
    const ink = !isLit || isLit(i) ? inkOn(colour) : colours.soft;
    const text = of.titleOf(i);
    const wanted = Math.min(wide - 8, pen.measureText(text).width);
    if (hasRoom(left + 4, middle, wanted)) label(pen, text, left + 4, middle, wide - 8, ink);
  }
  pen.lineWidth = 2;
  pen.strokeStyle = colours.mark;
  for (const { left, y, wide, tall } of marked) pen.strokeRect(left, y, wide, tall);
}

/**
 * @param {Sheet} sheet
 * @param {Report} of
 * @param {number} spaceNumber
 * @param {View} view
 */
function drawLane({ pen, width, height }, of, spaceNumber, view) {
  const left = width - room.lane;
  const least = fontSize();
  const isLit = of === report() ? spotlight() : null;
  for (const entry of lane(of, of.spaces[spaceNumber], chosenIn(of), view, height)) {
    const { role, label: text, owner, y, tall } = entry;
    const colour = of.colourOfRole(role);
    pen.fillStyle = colour;
    pen.globalAlpha = !isLit || (owner !== NONE && isLit(owner)) ? 1 : FADED;
    pen.fillRect(left, y, room.lane, Math.max(0.5, tall - (tall > 3 ? 0.7 : 0)));
    pen.globalAlpha = 1;
    const middle = (Math.max(0, y) + Math.min(height, y + tall)) / 2;
    if (tall > least) label(pen, text, left + 4, middle, room.lane - 8, inkOn(colour));
  }
}

/**
 * The allocations of the lane, as drawn.
 * @param {string} id of the canvas
 * @param {Report} of
 * @param {number} spaceNumber
 * @param {View} view
 */
export function laneOf(id, of, spaceNumber, view) {
  return lane(of, of.spaces[spaceNumber], chosenIn(of), view, $(id).clientHeight);
}

/**
 * The buffer under the pointer, on the map or in the lane.
 * @param {MouseEvent} event
 * @param {string} id of the canvas
 * @param {Report} of
 * @param {number} spaceNumber
 * @param {View} view
 */
export function bufferUnder(event, id, of, spaceNumber, view) {
  const { clientWidth: width, clientHeight: height } = $(id);
  const { offsetX: x, offsetY: y } = event;
  if (!of.spaces[spaceNumber] || x < room.left) return NONE;
  if (x > width - room.right) {
    const entry = laneOf(id, of, spaceNumber, view).find(
      (its) => its.y <= y && y < its.y + its.tall,
    );
    return entry ? largestIn(of, spaceNumber, entry.index) : NONE;
  }
  const share = (x - room.left) / plotWidth(width);
  const step = Math.floor(view.from + share * (view.to - view.from));
  const byte = view.low + ((height - y) / height) * (view.high - view.low);
  return bufferAt(of, spaceNumber, chosenIn(of), step, byte);
}
