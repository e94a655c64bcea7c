// @ts-check
// The bytes alive over the program, by role, and the computations it calls.

import {
  axis,
  canvas,
  cursorAt,
  faded,
  highest,
  label,
  line,
  message,
  pixel,
  plotWidth,
  Raster,
  ratio,
  room,
  stepAt,
  stepAxis,
  TIMELESS,
  xOf,
} from "./chart.js";
import { $, colours, fontSize } from "./dom.js";
import { formatBytes, inkOn } from "./formats.js";
import { report, space, state } from "./state.js";

/**
 * @import { Sheet } from "./chart.js"
 * @import { Band } from "./data.d.ts"
 */

const MAX_BAND_ROWS = 8;
const HEADROOM = 1.2;
const MIN_BETWEEN = 14; // pixels from the flag of one near-peak to the next
/** @type {Record<string, string>} */
const PHASES = { forward: "#86bc5c", backward: "#d37295", recomputed: "#edc948" };
/** @type {Record<string, string>} */
const KINDS = { while: "loop", conditional: "branch" };

export function drawSkyline() {
  const sheet = canvas("skyline");
  const { heights, size, lower, peak, near_peaks: near } = space();
  if (!heights.length || !peak) {
    message(sheet, TIMELESS);
    return;
  }
  const { pen, width, height } = sheet;
  const most = Math.max(size, lower, 1) * HEADROOM;
  const yOf = (/** @type {number} */ bytes) => height - (bytes / most) * height;
  axis(sheet, most);
  drawLayers(sheet, yOf);
  level(sheet, yOf(size), ["reserved", formatBytes(size)], -1, colours.ink, []);
  level(sheet, yOf(lower), ["most alive", formatBytes(lower)], 1, colours.soft, [4, 4]);
  let last = -MIN_BETWEEN;
  for (const summit of [...near].sort((a, b) => a.step - b.step)) {
    const x = xOf(summit.step + 0.5, width);
    if (x - last < MIN_BETWEEN) continue;
    flag(pen, width, x, yOf(summit.size), "", colours.soft);
    last = x;
  }
  flag(pen, width, xOf(peak.step + 0.5, width), yOf(peak.size), "peak", colours.mark);
  cursorAt(sheet, xOf(state.step + 0.5, width));
}

/**
 * @param {Sheet} sheet
 * @param {(bytes: number) => number} yOf
 */
function drawLayers({ pen, width, height }, yOf) {
  const { heights, layers } = space();
  const total = heights[heights.length - 1];
  const scale = ratio();
  const raster = new Raster(plotWidth(width) * scale, height * scale);
  const paper = pixel(pen, colours.paper);
  const fills = layers.map(({ role }) => {
    const own = pixel(pen, report().colourOfRole(role));
    return state.role && state.role !== role ? faded(own, paper) : own;
  });
  eachColumn(width, (column, first, last) => {
    const step = highest(total, first, last);
    const left = column * scale;
    let below = 0;
    for (let number = 0; number < fills.length; number++) {
      const top = heights[number][step];
      if (top > below) {
        raster.fill(left, yOf(top) * scale, left + scale, yOf(below) * scale, fills[number]);
      }
      below = top;
    }
  });
  raster.drawAt(pen, room.left, plotWidth(width), height);
}

/**
 * The first and last step of each pixel column, so that no summit falls between two pixels.
 * @param {number} width
 * @param {(column: number, first: number, last: number) => void} visit
 */
function eachColumn(width, visit) {
  const columns = Math.max(1, Math.floor(plotWidth(width)));
  const stepsPerColumn = (state.to - state.from) / columns;
  for (let column = 0; column < columns; column++) {
    const first = Math.floor(state.from + column * stepsPerColumn);
    const last = Math.max(first, Math.ceil(state.from + (column + 1) * stepsPerColumn) - 1);
    if (first > report().steps) break;
    visit(column, first, Math.min(report().steps, last));
  }
}

/**
 * A line across the chart, with its label above (-1) or below (1).
 * @param {Sheet} sheet
 * @param {number} y
 * @param {string[]} words
 * @param {number} side
 * @param {string} colour
 * @param {number[]} dash
 */
function level({ pen, width }, y, words, side, colour, dash) {
  const tall = fontSize();
  pen.strokeStyle = colour;
  pen.fillStyle = colour;
  pen.setLineDash(dash);
  pen.lineWidth = 1;
  line(pen, room.left, y, width - room.right + 4, y);
  pen.setLineDash([]);
  pen.textAlign = "left";
  words.forEach((word, row) => {
    pen.fillText(word, width - room.right + 8, y + (side < 0 ? row - 1.5 : row + 0.6) * tall);
  });
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {number} width
 * @param {number} x
 * @param {number} y
 * @param {string} text
 * @param {string} colour
 */
function flag(pen, width, x, y, text, colour) {
  if (x < room.left || x > width - room.right) return;
  pen.fillStyle = colour;
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(x - 5, y - 9);
  pen.lineTo(x + 5, y - 9);
  pen.fill();
  const isAtLeft = x < room.left + 50;
  pen.textAlign = isAtLeft ? "left" : "right";
  pen.fillText(text, isAtLeft ? x + 8 : x - 8, y - 7);
}

const bandHeight = () => Math.round(fontSize() * 1.25);

/** The rows above the bands: the numbers of instructions, and the phases where there are any. */
const rowsAbove = () => (report().phases.length ? 2 : 1);

/**
 * What calls a computation, as the program names it.
 * @param {Band} band
 */
export function bandTitle({ kind, operation, name }) {
  return `${KINDS[kind] ?? kind} ${operation || name}`;
}

/** @param {Sheet} sheet */
function drawPhases({ pen, width }) {
  const tall = bandHeight();
  /** @type {Map<string, { left: number, wide: number }>} */
  const widest = new Map();
  for (const { name, start, end } of report().phases) {
    const left = Math.max(room.left, xOf(start, width));
    const right = Math.min(width - room.right, xOf(end + 1, width));
    if (right <= left) continue;
    pen.fillStyle = PHASES[name];
    pen.fillRect(left, tall + 3, Math.max(1, right - left), tall - 2);
    if (right - left > (widest.get(name)?.wide ?? 0)) {
      widest.set(name, { left, wide: right - left });
    }
  }
  for (const [name, { left, wide }] of widest) {
    label(pen, name, left + 4, tall * 1.5 + 2, wide - 8, inkOn(PHASES[name]));
  }
}

export function drawBands() {
  const { bands } = report();
  const depth = bands.reduce((most, band) => Math.max(most, band.depth + 1), 0);
  const rows = Math.min(depth, MAX_BAND_ROWS);
  const above = rowsAbove();
  const tall = bandHeight();
  $("bands").style.height = `${(rows + above) * tall + 4}px`;
  const sheet = canvas("bands");
  const { pen, width } = sheet;
  stepAxis(sheet, tall / 2 + 1);
  drawPhases(sheet);
  for (const band of bands) {
    const left = Math.max(room.left, xOf(band.start, width));
    const right = Math.min(width - room.right, xOf(band.end + 1, width));
    if (right <= room.left || left >= width - room.right || band.depth >= rows) continue;
    const y = (band.depth + above) * tall + 3;
    pen.fillStyle = colours.rule;
    pen.fillRect(left, y, Math.max(1, right - left - 1), tall - 2);
    label(pen, bandTitle(band), left + 4, y + tall / 2 - 1, right - left - 8, colours.ink);
  }
}

/**
 * The band under the pointer.
 * @param {MouseEvent} event
 */
export function bandAt(event) {
  const step = stepAt(event.offsetX, $("bands").clientWidth);
  const depth = Math.floor((event.offsetY - 3) / bandHeight()) - rowsAbove();
  return report().bands.find(
    (band) => band.depth === depth && band.start <= step && step < band.end + 1,
  );
}
