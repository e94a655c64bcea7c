// @ts-check
// The page of a fleet: all programs of a run against a capacity, over the runs, and by line.

import { $, copyText, element, field, hideTip, inflate, showTip } from "./dom.js";
import { formatBytes, formatTick, percent, plural } from "./formats.js";
import { drawn } from "./svg.js";

/** @import { FleetPage, FleetSeries } from "./data.d.ts" */

const SHOWN_ROWS = 500;
const SHOWN_WORST = 15;
const NO_CHIP = "";
const GIVEN = "given";
const PALETTE = [
  "#4e79a7",
  "#f28e2b",
  "#59a14f",
  "#e15759",
  "#b07aa1",
  "#76b7b2",
  "#edc948",
  "#9c755f",
];
/** @typedef {"needs" | "peak" | "padding" | "copies" | "donatable"} Amount */
/** @typedef {"name" | "place" | "backend" | Amount} Field */
/** @type {[field: Field, title: string][]} */
const COLUMNS = [
  ["name", "program"],
  ["needs", "needs"],
  ["peak", "peak"],
  ["padding", "padding"],
  ["copies", "copies"],
  ["donatable", "donatable"],
  ["backend", "backend"],
  ["place", "path"],
];

/** @type {FleetPage} */
let fleet;
const state = { chip: NO_CHIP, filter: "", sorted: /** @type {Field} */ ("needs"), isUp: false };

/** The bytes of the chosen device; 0 for none. */
function capacity() {
  if (state.chip === GIVEN) return fleet.capacity ?? 0;
  return state.chip === NO_CHIP ? 0 : fleet.chips[state.chip];
}

/**
 * Whether a program is for the chosen device; any is for a capacity without a name.
 * @param {number} at
 */
function isFor(at) {
  const platform = fleet.platforms[state.chip];
  return !platform || fleet.programs.backend[at] === platform;
}

function compared() {
  return fleet.programs.needs.map((_, at) => at).filter(isFor);
}

function draw() {
  drawWords();
  drawDistribution();
  drawWorst();
  drawTable();
}

function drawWords() {
  const limit = capacity();
  const all = compared();
  const over = limit ? all.filter((at) => fleet.programs.needs[at] > limit).length : 0;
  const most = all.length ? fleet.programs.needs[all[0]] : 0;
  const words = $("fits");
  words.replaceChildren();
  if (!limit) {
    words.append(`${plural(all.length, "program")}; the most one needs is ${formatBytes(most)}. `);
    words.append("Choose a chip to compare with.");
    return;
  }
  const share = `${over} of ${plural(all.length, "program")}`;
  const mark = element("span", share, over ? { class: "over" } : {});
  words.append(mark, ` need more than ${formatBytes(limit)}; the most is ${formatBytes(most)}`);
  words.append(`, ${percent(most, limit)} of it.`);
}

const WIDE = 1000;
/** Powers of two to show in addition to the used range. */
const MARGIN = 1;
const DISTRIBUTION = { tall: 190, foot: 24, head: 18 };
const GROWTH = { tall: 240, foot: 22, left: 76, right: 12, top: 8 };

/**
 * @param {number} tall
 * @param {string} label
 */
function newChart(tall, label) {
  return drawn("svg", { viewBox: `0 0 ${WIDE} ${tall}`, role: "img", "aria-label": label });
}

/** Programs by what they need: a column for each power of two. */
function drawDistribution() {
  const powers = compared().map((at) => powerOf(fleet.programs.needs[at]));
  const limit = capacity();
  const shown = limit ? [...powers, powerOf(limit)] : powers;
  const chart = newChart(DISTRIBUTION.tall, "How many programs need how much");
  $("distribution").replaceChildren(chart);
  if (!shown.length) return;
  const from = Math.max(0, Math.min(...shown) - MARGIN);
  const to = Math.max(...shown) + 1 + MARGIN;
  const counts = Array.from({ length: to - from }, () => 0);
  for (const power of powers) counts[power - from]++;
  const step = WIDE / counts.length;
  for (const [at, count] of counts.entries()) {
    const height = count / Math.max(1, ...counts);
    chart.append(...columnOf(from + at, at * step, step, count, height));
  }
  const ground = DISTRIBUTION.tall - DISTRIBUTION.foot;
  chart.append(drawn("line", { x1: 0, x2: WIDE, y1: ground, y2: ground, class: "axis" }));
  if (limit) chart.append(...markOf(limit, (Math.log2(limit) - from) * step, ground));
}

/** @param {number} size */
function powerOf(size) {
  return Math.floor(Math.log2(Math.max(1, size)));
}

/**
 * The column of a power of two, its count and the tick where it begins.
 * @param {number} power
 * @param {number} left
 * @param {number} step
 * @param {number} count
 * @param {number} share of the highest
 */
function columnOf(power, left, step, count, share) {
  const { tall, foot, head } = DISTRIBUTION;
  const height = share * (tall - foot - head);
  const top = tall - foot - height;
  const isOver = capacity() > 0 && 2 ** power >= capacity();
  const box = { x: left + 1, y: top, width: Math.max(1, step - 2), height };
  const column = drawn("rect", { ...box, class: isOver ? "column over" : "column" });
  const range = `${formatTick(2 ** power)} to ${formatTick(2 ** (power + 1))}`;
  tell(column, [plural(count, "program"), range]);
  const made = [column];
  const middle = { x: left + step / 2, y: top - 4, "text-anchor": "middle" };
  if (count) made.push(drawn("text", middle, String(count)));
  const anchor = left === 0 ? "start" : "middle";
  const isTold = step > 46 || power % 3 === 0;
  const tick = { x: left, y: tall - 6, "text-anchor": anchor };
  if (isTold) made.push(drawn("text", tick, formatTick(2 ** power)));
  return made;
}

/**
 * The line of the capacity.
 * @param {number} limit
 * @param {number} x
 * @param {number} ground
 */
function markOf(limit, x, ground) {
  const isRight = x > WIDE * 0.8;
  const position = { x: isRight ? x - 6 : x + 6, y: 14, "text-anchor": isRight ? "end" : "start" };
  const line = drawn("line", { x1: x, x2: x, y1: 4, y2: ground, class: "limit" });
  return [line, drawn("text", position, formatBytes(limit))];
}

/**
 * Shows a tooltip while the pointer is over an element.
 * @param {Element} over
 * @param {string[]} lines
 */
function tell(over, lines) {
  over.addEventListener("pointermove", (event) => {
    showTip(/** @type {MouseEvent} */ (event), lines);
  });
  over.addEventListener("pointerleave", hideTip);
}

/**
 * A program's name, a link where its own page is there.
 * @param {number} at
 */
function nameOf(at) {
  const { id, name, has_page: hasPage } = fleet.programs;
  if (hasPage[at]) return element("a", name[at], { href: `${fleet.pages}/${id[at]}.html` });
  const made = element("span", name[at]);
  if (fleet.command) made.title = `${fleet.command} ${id[at]}`;
  return made;
}

function drawWorst() {
  const limit = capacity();
  const all = compared().slice(0, SHOWN_WORST);
  const widest = Math.max(limit, ...all.map((at) => fleet.programs.needs[at]), 1);
  const rows = all.flatMap((at) => {
    const needs = fleet.programs.needs[at];
    const label = element("span", null, { class: "label" });
    label.append(nameOf(at), " ", element("small", fleet.programs.place[at]));
    tell(label, [fleet.programs.name[at], fleet.programs.place[at]]);
    return [label, ...bar(needs, widest, limit)];
  });
  $("worst").replaceChildren(...rows);
}

/**
 * An amount and its bar; a mark where the limit is.
 * @param {number} size
 * @param {number} widest
 * @param {number} limit 0 for none
 */
function bar(size, widest, limit) {
  const lane = element("span", null, { class: "lane" });
  const isOver = limit && size > limit;
  const style = `width:${(100 * size) / widest}%`;
  lane.append(element("i", null, isOver ? { class: "over", style } : { style }));
  if (limit) lane.append(element("b", null, { style: `left:${(100 * limit) / widest}%` }));
  return [element("span", formatBytes(size), { class: "amount" }), lane];
}

function drawGrowth() {
  const { runs, series } = fleet;
  $("growth-section").hidden = runs.length < 2 || !series.length;
  if ($("growth-section").hidden) return;
  const most = Math.max(1, ...series.flatMap((one) => one.needs));
  const chart = newChart(GROWTH.tall, "What programs need, run by run");
  drawAxes(chart, most);
  const entries = series.map((one, number) => {
    const colour = PALETTE[number % PALETTE.length];
    const there = one.needs.map((size, at) => ({ at, size })).filter(({ size }) => size >= 0);
    drawSeries(chart, one, there, colour, most);
    const grown = there.length ? there[there.length - 1].size - there[0].size : 0;
    return legendOf(one, grown, colour);
  });
  $("growth").replaceChildren(chart);
  $("series").replaceChildren(...entries);
  $("grown").textContent = `${plural(runs.length, "run")}, the programs that changed most`;
}

/** @param {number} at */
function across(at) {
  const room = WIDE - GROWTH.left - GROWTH.right;
  return GROWTH.left + (at * room) / (fleet.runs.length - 1);
}

/**
 * @param {number} size
 * @param {number} most
 */
function upTo(size, most) {
  const ground = GROWTH.tall - GROWTH.foot;
  return ground - (ground - GROWTH.top) * (size / most);
}

/**
 * @param {Element} chart
 * @param {number} most
 */
function drawAxes(chart, most) {
  for (const part of [0, 0.5, 1]) {
    const y = upTo(most * part, most);
    chart.append(drawn("line", { x1: GROWTH.left, x2: WIDE, y1: y, y2: y, class: "axis" }));
    const tick = { x: GROWTH.left - 8, y: y + 4, "text-anchor": "end" };
    chart.append(drawn("text", tick, formatBytes(most * part)));
  }
  const every = Math.ceil(fleet.runs.length / 8);
  for (const [at, run] of fleet.runs.entries()) {
    if (at % every !== 0) continue;
    const anchor = at === 0 ? "start" : at === fleet.runs.length - 1 ? "end" : "middle";
    const position = { x: across(at), y: GROWTH.tall - 4, "text-anchor": anchor };
    chart.append(drawn("text", position, run));
  }
}

/**
 * @param {Element} chart
 * @param {FleetSeries} one
 * @param {{ at: number, size: number }[]} there
 * @param {string} colour
 * @param {number} most
 */
function drawSeries(chart, one, there, colour, most) {
  const points = there.map(({ at, size }) => `${across(at)},${upTo(size, most)}`).join(" ");
  chart.append(drawn("polyline", { points, stroke: colour }));
  for (const { at, size } of there) {
    const spot = drawn("circle", { cx: across(at), cy: upTo(size, most), r: 4, fill: colour });
    tell(spot, [one.name, one.place, `${fleet.runs[at]}: ${formatBytes(size)}`]);
    chart.append(spot);
  }
}

/**
 * @param {FleetSeries} one
 * @param {number} grown
 * @param {string} colour
 */
function legendOf(one, grown, colour) {
  const entry = element("span");
  entry.append(element("i", null, { class: "swatch", style: `background:${colour}` }));
  const sign = grown > 0 ? "+" : "";
  entry.append(one.name, " ", element("small", `${sign}${formatBytes(grown)}`));
  tell(entry, [one.name, one.place]);
  return entry;
}

function drawLines() {
  const widest = Math.max(1, ...fleet.lines.map((one) => one.size));
  const rows = fleet.lines.flatMap((one) => {
    const label = element("span", one.line, { class: "label" });
    const where = `${plural(one.programs, "program")}, most in ${one.largest}`;
    tell(label, [one.line, where]);
    const [amount, lane] = bar(one.size, widest, 0);
    return [label, amount, lane];
  });
  $("lines").replaceChildren(...rows);
}

/** The programs that pass the filter, sorted. */
function chosen() {
  const { name, place, backend } = fleet.programs;
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const found = name
    .map((_, at) => at)
    .filter((at) => {
      const text = `${name[at]} ${place[at]} ${backend[at]}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
  const column = fleet.programs[state.sorted];
  const direction = state.isUp ? 1 : -1;
  return found.sort((one, other) => {
    const [a, b] = [column[one], column[other]];
    return a === b ? one - other : a < b ? -direction : direction;
  });
}

function drawTable() {
  const found = chosen();
  const table = element("table");
  const head = element("tr");
  for (const [name, title] of COLUMNS) {
    const arrow = state.sorted === name ? (state.isUp ? " ▲" : " ▼") : "";
    const cell = element("th", title + arrow, isText(name) ? {} : { class: "number" });
    cell.addEventListener("click", () => sortBy(name));
    head.append(cell);
  }
  table.append(head, ...found.slice(0, SHOWN_ROWS).map(rowOf));
  $("table").replaceChildren(table);
  const more = found.length > SHOWN_ROWS ? `, the first ${SHOWN_ROWS} are shown` : "";
  $("found").textContent =
    `${found.length} of ${plural(fleet.programs.id.length, "program")}${more}`;
}

/** @param {Field} name */
function isText(name) {
  return name === "name" || name === "place" || name === "backend";
}

/** @param {Field} name */
function sortBy(name) {
  state.isUp = state.sorted === name ? !state.isUp : isText(name);
  state.sorted = name;
  drawTable();
}

/** @param {number} at */
function rowOf(at) {
  const row = element("tr");
  for (const [name] of COLUMNS) {
    const cell = element("td", null, isText(name) ? {} : { class: "number" });
    if (name === "name") cell.append(nameOf(at));
    else cell.append(cellText(name, at));
    row.append(cell);
  }
  const limit = capacity();
  if (limit && isFor(at) && fleet.programs.needs[at] > limit) row.children[1].className += " over";
  return row;
}

/**
 * @param {Field} name
 * @param {number} at
 */
function cellText(name, at) {
  const value = fleet.programs[name][at];
  if (typeof value === "string") return value;
  return value < 0 ? "" : formatBytes(value);
}

async function copyTable() {
  const lines = [COLUMNS.map(([, title]) => title).join("\t")];
  for (const at of chosen()) {
    lines.push(COLUMNS.map(([name]) => String(fleet.programs[name][at])).join("\t"));
  }
  const isDone = await copyText(lines.join("\n"));
  $("copy").textContent = isDone ? "copied" : "not allowed";
}

function drawErrors() {
  $("errors-section").hidden = !fleet.errors.length;
  for (const { kind, count, example } of fleet.errors) {
    const cell = element("dd", plural(count, "input"));
    cell.append(element("div", example, { class: "hint" }));
    $("errors").append(element("dt", kind), cell);
  }
}

function fillChips() {
  const select = field("chip");
  const add = (/** @type {string} */ value, /** @type {string} */ text) =>
    select.append(element("option", text, { value }));
  add(NO_CHIP, "none");
  if (fleet.capacity !== null) add(GIVEN, formatBytes(fleet.capacity));
  for (const [name, size] of Object.entries(fleet.chips))
    add(name, `${name}, ${formatBytes(size)}`);
  state.chip = fleet.capacity === null ? fleet.chip : GIVEN;
  select.value = state.chip;
}

function listen() {
  field("chip").addEventListener("change", () => {
    state.chip = field("chip").value;
    draw();
  });
  field("filter").addEventListener("input", () => {
    state.filter = field("filter").value;
    drawTable();
  });
  $("copy").addEventListener("click", copyTable);
  $("theme").addEventListener("click", () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme
      ? root.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
  });
}

async function start() {
  const data = await inflate(($("data").textContent ?? "").trim());
  fleet = data.fleet;
  $("name").textContent = `Fleet: run ${fleet.run}`;
  const left = fleet.left_out ? `, ${fleet.left_out} smaller ones left out` : "";
  const programs = plural(fleet.programs.id.length, "program");
  $("about").textContent = `${programs}${left}, ${plural(fleet.runs.length, "run")}`;
  const isMade = fleet.programs.has_page.some(Boolean);
  const made = isMade ? "names that are links lead to the programs' own pages; " : "";
  const way = fleet.command ? `${made}${fleet.command} ID makes the page of one` : made;
  $("pages-note").textContent = way;
  fillChips();
  listen();
  draw();
  drawGrowth();
  drawLines();
  drawErrors();
  document.documentElement.dataset.ready = "yes";
}

start();
