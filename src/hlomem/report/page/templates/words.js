// @ts-check
// The answers in words, and the bar of roles.

import { NAMES } from "./comparison.js";
import { $, element } from "./dom.js";
import { formatBytes, percent, plural, shorten } from "./formats.js";
import { NONE } from "./model.js";
import { content, nominal, report, space, state } from "./state.js";

/**
 * @import { RoleShare } from "./data.d.ts"
 * @import { Report } from "./model.js"
 */

/** A program much smaller than the chip fills the bar alone. */
const TINY = 1 / 12;

export function drawCapacity() {
  const { size, roles } = space();
  const capacity = (state.chip ? report().chips[state.chip] : report().capacity) ?? 0;
  const isTiny = size < capacity * TINY;
  const whole = Math.max(isTiny ? 0 : capacity, size, 1);
  $("capacity").replaceChildren(...roles.map((share) => drawShare(share, whole)));
  $("legend").replaceChildren(...roles.map((share) => drawLegend(share, size)));
  $("fits").textContent = capacity
    ? fits(size, capacity, isTiny)
    : `${formatBytes(size)} in ${space().name} memory. Choose a chip to compare it with.`;
  const isOver = capacity > 0 && size > capacity;
  $("fits").className = isOver ? "answer over" : "answer";
  if (isOver) {
    const style = `left:${(100 * capacity) / whole}%`;
    const title = `over the capacity of ${formatBytes(capacity)}`;
    $("capacity").append(element("b", null, { style, title }));
  }
}

/**
 * @param {number} size
 * @param {number} capacity
 * @param {boolean} isTiny
 */
function fits(size, capacity, isTiny) {
  const name = state.chip || "the device";
  const all = `${formatBytes(capacity)}${nominal(state.chip)}`;
  if (size > capacity) {
    const over = formatBytes(size - capacity);
    return `No: ${formatBytes(size)}, ${over} more than ${name} has (${all}).`;
  }
  const note = isTiny ? " The bar shows only these." : "";
  return `Yes: ${formatBytes(size)} of ${all} (${percent(size, capacity)}) of ${name}.${note}`;
}

/**
 * @param {RoleShare} share
 * @param {number} whole
 */
function drawShare({ role, size }, whole) {
  const style = `width:${(100 * size) / whole}%;background:${report().colourOfRole(role)}`;
  return element("i", null, { style, title: `${role}: ${formatBytes(size)}` });
}

/**
 * @param {RoleShare} share
 * @param {number} whole
 */
function drawLegend({ role, size }, whole) {
  const entry = element("span", null, { title: report().roleByName.get(role)?.meaning ?? "" });
  const style = `background:${report().colourOfRole(role)}`;
  entry.append(element("span", null, { class: "swatch", style }));
  entry.append(`${role} ${formatBytes(size)} `, element("small", percent(size, whole)));
  return entry;
}

export function drawWords() {
  const of = report();
  const peak = space()?.peak;
  const names = content.reports.map((each, number) => `${NAMES[number]}: ${each.name}`);
  $("name").textContent = names.length > 1 ? names.join("  →  ") : of.name;
  $("about").textContent = [
    of.backend,
    of.trust.era,
    plural(of.count, "buffer"),
    plural(of.steps, "instruction"),
  ].join(" · ");
  $("moment").textContent = moment();
  $("no-bands").hidden = of.bands.length > 0 || of.trust.has_module || !peak;
  $("no-bands").textContent =
    "No loop or branch shows in the dump; with the module's text its computations are drawn here.";
  const { selected } = state;
  $("selected").textContent = selected === NONE ? "" : describe(of, selected).join(" · ");
}

/** The step at the cursor, and how far it is from the peak. */
function moment() {
  const peak = space()?.peak;
  if (!peak) return "";
  const where = `at step ${state.step}, ${shorten(report().instructionAt(state.step))}`;
  if (state.step === peak.step) return `The peak: ${formatBytes(peak.size)} alive ${where}.`;
  const alive = report().total(state.space, state.step);
  const below = formatBytes(peak.size - alive);
  const summit = `${formatBytes(peak.size)} at step ${peak.step}`;
  return `${formatBytes(alive)} alive ${where}: ${below} below the peak (${summit}).`;
}

/**
 * A buffer in words: what, where, when, why.
 * @param {Report} of
 * @param {number} i
 */
export function describe(of, i) {
  const { size, padding, offset, allocation, shape, parameter } = of.buffers;
  const { op_name: operation, source } = of.buffers;
  const argument = parameter[i] === NONE ? "" : `: ${shorten(of.text(parameter[i]))}`;
  const lost = `${formatBytes(padding[i])} of it padding (${percent(padding[i], size[i])})`;
  return [
    `${shorten(of.nameOf(i))}  ${formatBytes(size[i])}  ${shorten(of.text(shape[i]))}`,
    `${of.roleOf(i).name}${argument}`,
    ...(operation[i] === NONE ? [] : [shorten(of.text(operation[i]))]),
    ...(source[i] === NONE ? [] : [shorten(of.text(source[i]))]),
    ...(padding[i] ? [lost] : []),
    `allocation ${allocation[i]}, bytes ${offset[i]} to ${offset[i] + size[i]}`,
    ...describeLife(of, i),
  ];
}

/**
 * @param {Report} of
 * @param {number} i
 */
function describeLife(of, i) {
  const { start, end, last_use: last } = of.buffers;
  if (start[i] === NONE) return [];
  const born = start[i] < of.steps ? of.sequence[start[i]] : "the end";
  const life = `born at step ${start[i]} (${shorten(born, 60)}), alive to step ${end[i]}`;
  if (end[i] >= of.steps) return [life, "still alive at the end: the caller gets it, or owns it"];
  const isRead = last[i] !== NONE;
  return [life, isRead ? `last read by ${shorten(of.text(last[i]), 80)}` : "nothing reads it"];
}
