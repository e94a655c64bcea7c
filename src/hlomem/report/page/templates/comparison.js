// @ts-check
// Two compiles: both skylines, and the way from one to the other.

import { axis, canvas, cursorAt, highest, plotWidth, room } from "./chart.js";
import { $, element, fontSize } from "./dom.js";
import { formatBytes, shorten } from "./formats.js";
import { content, report, sameSpaceIn, state } from "./state.js";

/**
 * @import { Bar } from "./data.d.ts"
 * @import { Sheet } from "./chart.js"
 */

export const NAMES = ["A", "B"];

/**
 * The name of a compile: the differing part of the two paths.
 * @param {number} number
 */
export function sideName(number) {
  const name = content.difference?.names[number] ?? content.reports[number].name;
  return `${NAMES[number]}: ${name}`;
}
const CURVES = ["#4e79a7", "#e15759"];
const MORE = "#e15759";
const LESS = "#59a14f";
const HEADROOM = 1.06;

/** @param {Float64Array} curve */
const highestOf = (curve) => curve.reduce((a, b) => Math.max(a, b), 0);

export function drawDifference() {
  if (!content.difference) return;
  const sheet = canvas("overlay");
  const curves = content.reports.map(
    (of) => of.spaces[Math.max(0, sameSpaceIn(of))]?.heights.at(-1) ?? new Float64Array(1),
  );
  const most = Math.max(1, ...curves.map(highestOf)) * HEADROOM;
  axis(sheet, most);
  curves.forEach((curve, number) => {
    drawCurve(sheet, curve, most, number);
  });
  const share = (state.step + 0.5) / (report().steps + 1);
  cursorAt(sheet, room.left + share * plotWidth(sheet.width));
  $("difference-answer").textContent = content.difference.answer;
}

/**
 * @param {Sheet} sheet
 * @param {Float64Array} curve
 * @param {number} most
 * @param {number} number of the compile
 */
function drawCurve({ pen, width, height }, curve, most, number) {
  const path = new Path2D();
  const columns = Math.floor(plotWidth(width));
  const yOf = (/** @type {number} */ bytes) => height - (bytes / most) * height;
  for (let column = 0; column < columns; column++) {
    const first = Math.floor((column / columns) * curve.length);
    const last = Math.max(first, Math.ceil(((column + 1) / columns) * curve.length) - 1);
    path.lineTo(room.left + column, yOf(curve[highest(curve, first, last)]));
  }
  pen.lineWidth = 2;
  pen.strokeStyle = CURVES[number];
  pen.stroke(path);
  pen.fillStyle = CURVES[number];
  pen.textAlign = "left";
  const peak = highestOf(curve);
  const y = Math.max(fontSize() / 2, yOf(peak));
  pen.fillText(`${NAMES[number]}  ${formatBytes(peak)}`, width - room.right + 8, y);
}

export function drawWaterfall() {
  const bars = content.difference?.steps ?? [];
  const floor = content.difference?.floor ?? 0;
  const most = Math.max(1, ...bars.map((bar) => Math.max(bar.from, bar.to)));
  $("floor").textContent = floor ? `The bars begin at ${formatBytes(floor)}, not at 0.` : "";
  $("causes").replaceChildren(
    ...(content.difference?.causes ?? []).map((cause) =>
      element("li", `${formatSigned(cause.delta)}  ${cause.text}`),
    ),
  );
  $("waterfall").replaceChildren(...bars.flatMap((bar) => drawBar(bar, floor, most)));
}

/** @param {number} change in bytes */
const formatSigned = (change) => `${change > 0 ? "+" : ""}${formatBytes(change)}`;

/**
 * A row of the waterfall: its label, its bytes, its bar.
 * @param {Bar} bar
 * @param {number} floor
 * @param {number} most
 */
function drawBar(bar, floor, most) {
  const change = bar.to - bar.from;
  const low = bar.is_total ? floor : Math.min(bar.from, bar.to);
  const high = bar.is_total ? bar.to : Math.max(bar.from, bar.to);
  const colour = bar.is_total ? "var(--soft)" : change > 0 ? MORE : LESS;
  const whole = Math.max(1, most - floor);
  const place = `left:${(100 * (low - floor)) / whole}%;width:${(100 * (high - low)) / whole}%`;
  const lane = element("span", null, { class: "lane" });
  lane.append(element("i", null, { style: `${place};background:${colour}` }));
  return [
    element("span", bar.label, { class: "label", title: shorten(bar.label, 1000) }),
    element("span", bar.is_total ? formatBytes(bar.to) : formatSigned(change), { class: "amount" }),
    lane,
  ];
}
