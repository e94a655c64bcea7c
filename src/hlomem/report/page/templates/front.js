// @ts-check
// Memory against operations: the drawing, its table, and the code to type.

import { drawCode } from "./advice.js";
import { axis, canvas, line, plotWidth, room } from "./chart.js";
import { $, colours, element, hideTip, showTip } from "./dom.js";
import { formatBytes, formatChange, formatTick } from "./formats.js";
import { added, nearestTo, placeOf, roomFor, scaleOf, stairsOf, ticksOf } from "./front_layout.js";
import { NONE } from "./model.js";
import { clamp, content, redraw, state } from "./state.js";

/**
 * @import { CodeAdvice, FrontPoint } from "./data.d.ts"
 * @import { Scale } from "./front_layout.js"
 * @import { Sheet } from "./chart.js"
 * @typedef {{ sign: string, colour: string, words: string, corners: number, turn: number }} Kind
 */

/** @type {Record<FrontPoint["kind"], Kind>} */
const KINDS = {
  given: kind("■", "#4e79a7", "XLA's own program", 4, 0.25),
  ordered: kind("◆", "#e15759", "in a better order", 4, 0),
  recomputed: kind("●", "#59a14f", "values rematerialized by hlomem", 0, 0),
  policy: kind("▲", "#b07aa1", "a policy of jax.checkpoint, as XLA plans it", 3, 0),
};
const FOOT = 34; // pixels below the drawing for the shares
const SIZE = 6;
const REACH = 24;
const MIN_TICK = 60;
const HEADS = ["program", "bytes of temporaries", "in all", "FLOPs", "modelled time", ""];

/**
 * @param {string} sign
 * @param {string} colour
 * @param {string} words
 * @param {number} corners of its mark; 0 for a circle
 * @param {number} turn in quarters
 * @returns {Kind}
 */
function kind(sign, colour, words, corners, turn) {
  return { sign, colour, words, corners, turn };
}

const points = () => content.front?.points ?? [];
const level = () => roomFor(points(), content.front?.limit ?? null);

/** What never changes: the answer, the legend, and the code. */
export function fillFront() {
  const { front } = content;
  if (!front) return;
  $("front-section").hidden = false;
  $("front-answer").textContent = front.answer;
  const seen = new Set(front.points.map((point) => point.kind));
  const shown = Object.entries(KINDS).filter(([name]) =>
    seen.has(/** @type {FrontPoint["kind"]} */ (name)),
  );
  $("front-legend").replaceChildren(
    ...shown.map(([, its]) => legend(its)),
    element("span", "hollow: another is as cheap and as small", { class: "hint" }),
  );
  $("front-advice").replaceChildren(...front.advice.map(drawAdviceOn));
  $("front-notes").replaceChildren(...front.notes.map((note) => element("p", note)));
  listen();
}

/** @param {Kind} its */
function legend({ sign, colour, words }) {
  const entry = element("span");
  const mark = element("span", sign, { style: `color:${colour}`, "aria-hidden": "true" });
  entry.append(mark, element("span", ` ${words}`));
  return entry;
}

/** @param {CodeAdvice} advice */
function drawAdviceOn({ text, code, is_tried: isTried }) {
  const card = element("article", null, { class: "card" });
  const title = isTried ? "In your own code, tried" : "In your own code, not tried";
  card.append(element("h3", isTried || code ? title : "Rematerialized values"));
  card.append(element("p", text));
  if (code) card.append(drawCode(code));
  return card;
}

export function drawFront() {
  if (!content.front) return;
  const whole = canvas("front");
  const sheet = { ...whole, height: whole.height - FOOT };
  const scale = scaleOf(points(), level());
  axis(sheet, scale.top);
  drawShares(sheet, scale);
  drawLimit(sheet, scale);
  drawStairs(sheet, scale);
  for (const name of ["policy", "recomputed", "ordered", "given"]) {
    for (const point of points().filter((its) => its.kind === name)) {
      drawPoint(sheet, scale, point, point === points()[state.point]);
    }
  }
  $("front-point").textContent = state.point === NONE ? "" : describe(state.point).join(" · ");
}

/**
 * @param {Sheet} sheet
 * @param {Scale} scale
 * @param {number} share of operations
 */
function xOf({ width }, { low, high }, share) {
  return room.left + ((share - low) / (high - low)) * plotWidth(width);
}

/**
 * @param {Sheet} sheet
 * @param {Scale} scale
 */
function drawShares(sheet, scale) {
  const { pen, width, height } = sheet;
  pen.fillStyle = colours.soft;
  pen.strokeStyle = colours.rule;
  pen.textAlign = "center";
  for (const share of ticksOf(scale, clamp(Math.floor(plotWidth(width) / MIN_TICK), 2, 8))) {
    const x = xOf(sheet, scale, share);
    line(pen, x, 0, x, height);
    pen.fillText(formatShare(share), x, height + 10);
  }
  pen.fillText("FLOPs more than XLA's program", room.left + plotWidth(width) / 2, height + 26);
}

/**
 * On an axis: +5 %, not +5.0 %.
 * @param {number} share
 */
const formatShare = (share) => formatChange(share, 1).replace(".0 ", " ");

/**
 * @param {Sheet} sheet
 * @param {Scale} scale
 */
function drawLimit({ pen, width, height }, { top }) {
  const bytes = level();
  const limit = content.front?.limit;
  if (bytes === null || bytes < 0 || !limit) return;
  const y = height - (bytes / top) * height;
  pen.strokeStyle = colours.mark;
  pen.setLineDash([6, 4]);
  line(pen, room.left, y, width - room.right, y);
  pen.setLineDash([]);
  pen.fillStyle = colours.mark;
  pen.textAlign = "left";
  pen.fillText(formatTick(limit), width - room.right + 8, y - 7);
  pen.fillText("in all", width - room.right + 8, y + 7);
}

/**
 * @param {Sheet} sheet
 * @param {Scale} scale
 */
function drawStairs(sheet, scale) {
  const { pen, width, height } = sheet;
  const path = new Path2D();
  const corners = stairsOf(points());
  for (const [share, bytes] of corners) {
    path.lineTo(xOf(sheet, scale, share), height - (bytes / scale.top) * height);
  }
  const last = corners.at(-1);
  if (last) path.lineTo(width - room.right, height - (last[1] / scale.top) * height);
  pen.strokeStyle = colours.soft;
  pen.lineWidth = 1.5;
  pen.stroke(path);
}

/**
 * @param {Sheet} sheet
 * @param {Scale} scale
 * @param {FrontPoint} point
 * @param {boolean} isSelected
 */
function drawPoint(sheet, scale, point, isSelected) {
  const { pen, height } = sheet;
  const { colour, corners, turn } = KINDS[point.kind];
  const x = xOf(sheet, scale, added(point));
  const y = height - placeOf(point, scale).y * height;
  pen.fillStyle = point.on_front || point.kind === "given" ? colour : colours.paper;
  pen.strokeStyle = colour;
  pen.lineWidth = 2;
  const mark = markAt(x, y, corners, turn);
  pen.fill(mark);
  pen.stroke(mark);
  if (!isSelected && !point.is_chosen) return;
  pen.strokeStyle = isSelected ? colours.ink : colours.mark;
  pen.stroke(markAt(x, y, 0, 0, SIZE + 5));
}

/**
 * A circle, or a shape of so many corners.
 * @param {number} x
 * @param {number} y
 * @param {number} corners
 * @param {number} turn
 */
function markAt(x, y, corners, turn, size = SIZE) {
  const path = new Path2D();
  if (!corners) path.arc(x, y, size - 1, 0, 2 * Math.PI);
  for (let corner = 0; corner < corners; corner++) {
    const angle = 2 * Math.PI * ((corner + turn * 2) / corners - 0.25);
    path.lineTo(x + size * Math.cos(angle), y + size * Math.sin(angle));
  }
  path.closePath();
  return path;
}

/**
 * @param {number} number
 * @returns {string[]}
 */
function describe(number) {
  const point = points()[number];
  const { temporaries, total } = point;
  const sizes = `${formatBytes(temporaries)} of temporaries, ${formatBytes(total)} in all`;
  const more = formatChange(point.flops, point.program_flops);
  const longer = formatChange(point.time, point.program_time);
  const lines = point.lines.length ? [`rematerialized: ${point.lines.join(", ")}`] : [];
  const note = notesOn(point);
  return [
    point.name,
    sizes,
    `${more} FLOPs, modelled time ${longer}`,
    ...(note ? [note] : []),
    ...lines,
  ];
}

/** @param {FrontPoint} point */
function notesOn({ is_chosen: isChosen, on_front: isOnFront }) {
  if (isChosen) return "the cheapest that fits";
  return isOnFront ? "on the front" : "";
}

export function drawFrontTable() {
  if (!content.front) return;
  const table = element("table");
  const head = element("tr");
  head.append(
    ...HEADS.map((text, column) =>
      element("th", text, { scope: "col", ...(isNumber(column) ? { class: "number" } : {}) }),
    ),
  );
  const rows = points().map(drawRow);
  table.append(head, ...rows);
  const isFocused = $("front-table").contains(document.activeElement);
  $("front-table").replaceChildren(table);
  if (isFocused) rows[Math.max(0, state.point)].focus();
}

/** @param {number} column */
const isNumber = (column) => column > 0 && column < 5;

/**
 * @param {FrontPoint} point
 * @param {number} number
 */
function drawRow(point, number) {
  const isSelected = number === state.point;
  const row = element("tr", null, { class: isSelected ? "linked chosen" : "linked" });
  const cells = [
    point.name,
    formatBytes(point.temporaries),
    formatBytes(point.total),
    formatChange(point.flops, point.program_flops),
    formatChange(point.time, point.program_time),
    notesOn(point),
  ];
  row.append(
    ...cells.map((text, column) =>
      element("td", text, { title: text, ...(isNumber(column) ? { class: "number" } : {}) }),
    ),
  );
  const { sign, colour, words } = KINDS[point.kind];
  row.firstElementChild?.prepend(
    element("span", `${sign} `, { style: `color:${colour}`, role: "img", "aria-label": words }),
  );
  row.tabIndex = number === Math.max(0, state.point) ? 0 : -1;
  row.addEventListener("click", () => choose(number));
  return row;
}

/** @param {number} number of a point, or NONE */
function choose(number) {
  state.point = number;
  redraw();
}

/** @param {MouseEvent} event */
function pointUnder(event) {
  const { clientWidth: width, clientHeight: tall } = $("front");
  const height = tall - FOOT;
  const at = { x: event.offsetX - room.left, y: height - event.offsetY };
  const size = { width: plotWidth(width), height };
  return nearestTo(points(), scaleOf(points(), level()), at, size, REACH);
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const moves = { ArrowLeft: state.point - 1, ArrowRight: state.point + 1, Home: 0, End: Infinity };
  if (!Object.hasOwn(moves, event.key)) return;
  event.preventDefault();
  event.stopPropagation(); // elsewhere these keys move the cursor
  const next = moves[/** @type {keyof typeof moves} */ (event.key)];
  choose(clamp(next, 0, points().length - 1));
}

function listen() {
  const area = $("front");
  area.addEventListener("keydown", onKey);
  area.addEventListener("click", (event) => choose(pointUnder(event)));
  area.addEventListener("pointermove", (event) => {
    const found = pointUnder(event);
    if (found === NONE) hideTip();
    else showTip(event, describe(found));
  });
  area.addEventListener("pointerleave", hideTip);
}
