// @ts-check
// The answers in words, and the bar of roles.

import { sideName } from "./comparison.js";
import { $, element, field } from "./dom.js";
import { formatBytes, percent, plural, shorten, spaceLabel } from "./formats.js";
import { lineColour } from "./map.js";
import { grouped, NONE } from "./model.js";
import { content, nominal, redraw, report, space, spotlight, state } from "./state.js";

/**
 * @import { RoleShare } from "./data.d.ts"
 * @import { Report } from "./model.js"
 */

/** Of a program that takes less than this share of the chip, an enlarged bar is drawn, too. */
const SMALL = 1 / 3;
const MAX_LINES = 8;
const PADDING = "padding";

export function drawCapacity() {
  const { size, roles } = space();
  const capacity = (state.chip ? report().chips[state.chip] : report().capacity) ?? 0;
  const whole = Math.max(capacity, size, 1);
  $("capacity").replaceChildren(...roles.map((share) => drawShare(share, whole)));
  const isSmall = size > 0 && size < whole * SMALL;
  $("enlarged").hidden = !isSmall;
  $("enlarged-note").hidden = !isSmall;
  $("enlarged-note").textContent =
    `the same, ${Math.round(whole / Math.max(1, size))} times as wide`;
  $("enlarged").replaceChildren(...(isSmall ? roles.map((share) => drawShare(share, size)) : []));
  $("legend").replaceChildren(...roles.map((share) => drawLegend(share, size)));
  $("fits").textContent = capacity
    ? fits(size, capacity)
    : `Needs ${formatBytes(size)} of ${spaceLabel(space().name)}. Choose a chip to compare.`;
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
 */
function fits(size, capacity) {
  const name = state.chip || "the device";
  const all = `${formatBytes(capacity)}${nominal(state.chip)}`;
  if (size > capacity) {
    const over = formatBytes(size - capacity);
    return `No: needs ${formatBytes(size)}, ${over} more than ${name} has (${all}).`;
  }
  const share = percent(size, capacity);
  return `Yes: needs ${formatBytes(size)} of ${all} (${share}) of ${name}.`;
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
  const style = `background:${report().colourOfRole(role)}`;
  const title = report().roleByName.get(role)?.meaning ?? "";
  const isPressed = String(state.role === role);
  const choose = legendAction(role);
  const entry = choose
    ? element("button", null, { type: "button", title, "aria-pressed": isPressed })
    : element("span", null, { title });
  if (choose) entry.addEventListener("click", choose);
  entry.append(element("span", null, { class: "swatch", style }));
  entry.append(`${role} ${formatBytes(size)} `, element("small", percent(size, whole)));
  return entry;
}

/**
 * The action of a click on a role: highlight its buffers, or the padded ones; null if the role has
 * no buffers.
 * @param {string} role
 */
function legendAction(role) {
  const of = report();
  if (of.rolesOfBuffers.has(role)) {
    return () => {
      state.role = state.role === role ? "" : role;
      redraw();
    };
  }
  if (role !== PADDING) return null;
  return () => {
    state.colouring = state.colouring === "padding" ? "role" : "padding";
    redraw();
  };
}

/** The lines that hold most at the cursor, where the map is coloured by lines. */
export function drawLineLegend() {
  const of = report();
  const isShown = state.colouring === "line";
  const groups = isShown ? grouped(of, of.alive(state.space, state.step), "line") : [];
  $("line-legend").replaceChildren(
    ...groups.slice(0, MAX_LINES).map(({ key, size, largest }) => {
      const line = of.buffers.source[largest];
      const isLine = line !== NONE;
      const entry = isLine
        ? element("button", null, { type: "button", title: key })
        : element("span", null, { title: key });
      const style = `background:${lineColour(line)}`;
      entry.append(element("span", null, { class: "swatch", style }));
      entry.append(`${shorten(key.split("/").at(-1) ?? key, 40)} ${formatBytes(size)}`);
      if (!isLine) return entry;
      entry.addEventListener("click", () => {
        field("search").value = state.query === key ? "" : key;
        field("search").dispatchEvent(new Event("input"));
      });
      return entry;
    }),
  );
}

/** How many buffers were found or chosen, and what they hold at the cursor. */
function found() {
  const isLit = spotlight();
  if (!isLit) return "";
  const of = report();
  const count = state.query ? state.matches.filter(isLit).length : NONE;
  if (!count) return "nothing found";
  const alive = of.alive(state.space, state.step).filter(([i]) => isLit(i));
  const size = formatBytes(alive.reduce((total, [, own]) => total + own, 0));
  const many = count === NONE ? state.role : `${count} found`;
  return `${many}, ${size} in use at the cursor`;
}

export function drawWords() {
  const of = report();
  const peak = space()?.peak;
  const names = content.reports.map((_, number) => sideName(number));
  $("name").textContent = names.length > 1 ? names.join("  →  ") : of.name;
  $("about").textContent = [
    of.backend,
    plural(of.count, "buffer"),
    plural(of.steps, "instruction"),
  ].join(" · ");
  $("moment").textContent = moment();
  $("found").textContent = found();
  $("no-bands").hidden = of.bands.length > 0 || of.trust.has_module || !peak;
  $("no-bands").textContent =
    "The dump shows no loop or branch; with the module's text, its computations are drawn here.";
  const { selected } = state;
  $("selected").textContent = selected === NONE ? "" : describe(of, selected).join(" · ");
}

/** The step at the cursor, and how far it is from the peak. */
function moment() {
  const peak = space()?.peak;
  if (!peak) return "";
  const where = `at instruction ${state.step}, ${shorten(report().instructionAt(state.step))}`;
  if (state.step === peak.step) return `The peak: ${formatBytes(peak.size)} in use ${where}.`;
  const alive = report().total(state.space, state.step);
  const below = formatBytes(peak.size - alive);
  const summit = `${formatBytes(peak.size)} at instruction ${peak.step}`;
  return `${formatBytes(alive)} in use ${where}: ${below} below the peak (${summit}).`;
}

/**
 * The description of a buffer.
 * @param {Report} of
 * @param {number} i
 */
export function describe(of, i) {
  const { size, padding, offset, allocation, shape, parameter } = of.buffers;
  const { op_name: operation, source } = of.buffers;
  const argument = parameter[i] === NONE ? "" : `: ${shorten(of.text(parameter[i]))}`;
  const lost = `${formatBytes(padding[i])} of it padding (${percent(padding[i], size[i])})`;
  return [
    `${shorten(of.titleOf(i))}  ${formatBytes(size[i])}  ${shorten(of.text(shape[i]))}`,
    `${of.roleOf(i).name}${argument}, in HLO ${shorten(of.nameOf(i))}`,
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
  const birth = `defined at instruction ${start[i]} (${shorten(born, 60)})`;
  const life = `${birth}, alive to instruction ${end[i]}`;
  if (end[i] >= of.steps) return [life, "alive until the end: returned to the caller, or its own"];
  const isRead = last[i] !== NONE;
  return [life, isRead ? `last read by ${shorten(of.text(last[i]), 80)}` : "nothing reads it"];
}
