// @ts-check
// The page of a timeline: bytes in use over a run, who holds them at a moment, and the curve of a
// program's own plan.

import { $, element, hideTip, inflate, showTip } from "./dom.js";
import { formatBytes, percent, plural } from "./formats.js";
import { drawn } from "./svg.js";

/** @import { TimelinePage } from "./data.d.ts" */

const WIDE = 1000;
const TALL = 260;
const GROUND = TALL - 22;
const LEFT = 76;
const RUNS = 22;
const PLAN = 200;
const TICKS = 4;
const SHOWN_ROWS = 200;
const SHORTEST = 1e-7;

/** @typedef {{size: number, count: number, words: string[]}} Group */
/** @type {TimelinePage} */
let page;
/** @type {[time: number, inUse: number][]} */
let curve = [];
const state = { from: 0, to: 1, moment: 0, run: -1, dragged: /** @type {number | null} */ (null) };

/** The bytes in use after each time that a chunk came or went, by the chunks themselves. */
function readCurve() {
  const { start, end, size } = page.chunks;
  const changes = start.flatMap((time, at) => [
    [time, size[at]],
    [end[at], -size[at]],
  ]);
  changes.sort((one, other) => one[0] - other[0]);
  let sum = page.base;
  curve = changes.map(([time, change]) => {
    sum += change;
    return [time, sum];
  });
}

/** @param {number} time */
function xOf(time) {
  return LEFT + ((time - state.from) / (state.to - state.from)) * (WIDE - LEFT);
}

/** @param {number} seconds */
function formatTime(seconds) {
  const digits = Math.ceil(-Math.log10(state.to - state.from)) + 3;
  return `${seconds.toFixed(Math.max(3, Math.min(9, digits)))} s`;
}

/**
 * The bytes in use at a time: the last change before it tells.
 * @param {number} time
 */
function inUseAt(time) {
  let [low, high] = [0, curve.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (curve[middle][0] > time) high = middle;
    else low = middle + 1;
  }
  return low ? curve[low - 1][1] : page.base;
}

/**
 * @param {number} tall
 * @param {string} label
 */
function newChart(tall, label) {
  return drawn("svg", { viewBox: `0 0 ${WIDE} ${tall}`, role: "img", "aria-label": label });
}

/**
 * @param {Element} part
 * @param {string[]} lines
 */
function tell(part, lines) {
  part.addEventListener("pointermove", (event) =>
    showTip(/** @type {PointerEvent} */ (event), lines),
  );
  part.addEventListener("pointerleave", hideTip);
}

function drawCurve() {
  const chart = newChart(TALL, "Bytes in use over time");
  const yOf = (/** @type {number} */ size) => GROUND - (size / (page.peak * 1.05)) * (GROUND - 8);
  for (let tick = 0; tick <= TICKS; tick++) {
    const y = yOf((page.peak * tick) / TICKS);
    const time = state.from + ((state.to - state.from) * tick) / TICKS;
    const below = { x: xOf(time), y: TALL - 4, "text-anchor": tick === TICKS ? "end" : "middle" };
    const aside = { x: LEFT - 6, y: y + 4, "text-anchor": "end" };
    chart.append(
      drawn("line", { x1: LEFT, x2: WIDE, y1: y, y2: y, class: "axis" }),
      drawn("text", aside, formatBytes((page.peak * tick) / TICKS)),
      drawn("text", below, formatTime(time)),
    );
  }
  const points = [`${LEFT},${GROUND}`, `${LEFT},${yOf(inUseAt(state.from))}`];
  let height = yOf(inUseAt(state.from));
  for (const [time, size] of curve) {
    if (time <= state.from || time >= state.to) continue;
    points.push(`${xOf(time)},${height}`, `${xOf(time)},${yOf(size)}`);
    height = yOf(size);
  }
  points.push(`${WIDE},${height}`, `${WIDE},${GROUND}`);
  chart.append(drawn("polygon", { points: points.join(" "), class: "area" }));
  const x = xOf(state.moment);
  if (x >= LEFT && x <= WIDE)
    chart.append(drawn("line", { x1: x, x2: x, y1: 0, y2: GROUND, class: "moment" }));
  listenTo(chart);
  $("curve").replaceChildren(chart);
}

/**
 * @param {Element} chart
 * @param {PointerEvent} event
 */
function pointedTime(chart, event) {
  const box = chart.getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * WIDE;
  const time = state.from + ((x - LEFT) / (WIDE - LEFT)) * (state.to - state.from);
  return Math.max(state.from, Math.min(state.to, time));
}

/** @param {Element} chart */
function listenTo(chart) {
  const band = drawn("rect", { y: 0, height: GROUND, width: 0, class: "picked" });
  chart.append(band);
  const on = (/** @type {string} */ kind, /** @type {(event: PointerEvent) => void} */ then) =>
    chart.addEventListener(kind, (event) => then(/** @type {PointerEvent} */ (event)));
  on("pointerdown", (event) => {
    state.dragged = pointedTime(chart, event);
  });
  on("pointermove", (event) => {
    const time = pointedTime(chart, event);
    showTip(event, [formatBytes(inUseAt(time)), formatTime(time)]);
    if (state.dragged === null) return;
    const [low, high] = [state.dragged, time].sort((a, b) => a - b);
    band.setAttribute("x", String(xOf(low)));
    band.setAttribute("width", String(xOf(high) - xOf(low)));
  });
  on("pointerup", (event) => release(pointedTime(chart, event)));
  on("pointerleave", hideTip);
}

/** @param {number} time */
function release(time) {
  const began = state.dragged;
  state.dragged = null;
  if (began === null) return;
  const [low, high] = [began, time].sort((a, b) => a - b);
  if (xOf(high) - xOf(low) < 6) state.moment = time;
  else if (high - low > SHORTEST) [state.from, state.to] = [low, high];
  draw();
}

function drawRuns() {
  const chart = newChart(RUNS, "Runs of programs");
  const { start, end, name } = page.runs;
  start.forEach((began, at) => {
    if (end[at] < state.from || began > state.to) return;
    const left = Math.max(LEFT, xOf(began));
    const width = Math.max(1.5, Math.min(WIDE, xOf(end[at])) - left);
    const mark = at === state.run ? "run chosen" : "run";
    const run = drawn("rect", { x: left, width, y: 2, height: RUNS - 6, class: mark });
    tell(run, [page.words[name[at]], formatTime(began)]);
    run.addEventListener("click", () => {
      [state.run, state.moment] = [at, end[at]];
      draw();
    });
    chart.append(run);
  });
  chart.append(drawn("text", { x: LEFT - 6, y: 15, "text-anchor": "end" }, "runs"));
  $("runs").replaceChildren(chart);
}

/** The curve of a program's own plan: which instruction, and which line. */
function drawPlan() {
  const plan = state.run < 0 ? undefined : page.plans[page.runs.plan[state.run]];
  $("plan-section").hidden = !plan?.sizes.length;
  if (!plan?.sizes.length) return;
  $("plan-name").textContent = `Inside a run of ${plan.name}`;
  const steps = plural(plan.steps - 1, "instruction");
  $("plan-about").textContent = `${formatBytes(plan.peak)} at its peak, ${steps}, by XLA's plan`;
  const chart = newChart(PLAN, "Bytes alive at each instruction");
  const step = (WIDE - LEFT) / plan.sizes.length;
  plan.sizes.forEach((size, at) => {
    const height = (size / plan.peak) * (PLAN - 12);
    const box = { x: LEFT + at * step, width: step + 0.3, y: PLAN - height, height, class: "area" };
    const column = drawn("rect", box);
    tell(column, [formatBytes(size), plan.moments[at]]);
    chart.append(column);
  });
  $("plan").replaceChildren(chart);
}

/**
 * The chunks held at a time, as groups of one owner, name and line; the largest first.
 * @param {number} time
 */
function groupsAt(time) {
  const { start, end, size, owner, name, line } = page.chunks;
  /** @type {Map<string, Group>} */
  const groups = new Map();
  start.forEach((began, at) => {
    if (began > time || end[at] <= time) return;
    const words = [owner[at], name[at], line[at]].map((number) => page.words[number]);
    const group = groups.get(words.join("\n")) ?? { size: 0, count: 0, words };
    group.size += size[at];
    group.count++;
    groups.set(words.join("\n"), group);
  });
  if (page.base) groups.set("", { size: page.base, count: 1, words: ["older than the trace"] });
  return [...groups.values()].sort((a, b) => b.size - a.size);
}

function drawMoment() {
  const whole = inUseAt(state.moment);
  const when = formatTime(state.moment);
  $("moment-name").textContent = `${formatBytes(whole)} in use at ${when}: who holds it?`;
  const table = element("table");
  const head = element("tr");
  for (const title of ["bytes", "share", "chunks", "owner", "of", "line"])
    head.append(element("th", title));
  table.append(head);
  for (const { size, count, words } of groupsAt(state.moment).slice(0, SHOWN_ROWS)) {
    const row = element("tr");
    for (const text of [formatBytes(size), percent(size, whole), String(count)])
      row.append(element("td", text, { class: "number" }));
    for (const text of words) row.append(element("td", text));
    table.append(row);
  }
  $("table").replaceChildren(table);
}

function draw() {
  drawCurve();
  drawRuns();
  drawPlan();
  drawMoment();
}

function showWhole() {
  const margin = Math.max((page.end - page.start) * 0.01, SHORTEST);
  [state.from, state.to] = [page.start - margin, page.end + margin];
}

function listen() {
  $("whole").addEventListener("click", () => {
    showWhole();
    draw();
  });
  $("to-peak").addEventListener("click", () => {
    const half = (state.to - state.from) / 20;
    [state.from, state.to] = [page.peak_time - half, page.peak_time + half];
    state.moment = page.peak_time;
    draw();
  });
}

async function start() {
  const data = await inflate(($("data").textContent ?? "").trim());
  page = data.timeline;
  readCurve();
  $("name").textContent = page.name;
  $("about").textContent = page.about;
  const where = `at ${page.peak_time.toFixed(3)} s`;
  $("answer").textContent =
    `Peak ${formatBytes(page.peak)} of ${formatBytes(page.limit)} ${where}; ` +
    `${plural(page.runs.start.length, "run")} of programs.`;
  state.moment = page.peak_time;
  showWhole();
  listen();
  draw();
  for (const note of page.notes) $("notes").append(element("p", note, { class: "hint" }));
  document.documentElement.dataset.ready = "yes";
}

start();
