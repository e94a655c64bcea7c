// @ts-check
// What the page shows at the moment, and how it changes.

import { drawnHeight } from "./layout.js";
import { NONE } from "./model.js";

/**
 * @import { PageFront, Waterfall } from "./data.d.ts"
 * @import { View } from "./layout.js"
 * @import { Hierarchy, Report } from "./model.js"
 * @typedef {"role" | "line" | "size" | "padding"} Colouring
 * @typedef {{ table: string, column: number, down: boolean }} Sort
 */

/** What the page is about, which never changes once it is read. */
export const content = {
  /** @type {Report[]} */
  reports: [],
  /** @type {Waterfall | null} */
  difference: null,
  /** @type {PageFront | null} */
  front: null,
};

export const state = {
  report: 0,
  space: 0,
  step: 0,
  from: 0,
  to: 1,
  low: 0,
  high: 1,
  selected: NONE,
  /** The chosen point of memory against operations. */
  point: NONE,
  table: "Buffers",
  /** @type {Colouring} */
  colouring: "role",
  /** @type {Hierarchy} */
  hierarchy: "source",
  allocation: "",
  chip: "",
  query: "",
  /** The role that was chosen in the legend; "" for all. */
  role: "",
  /** @type {number[]} */
  matches: [],
  /** @type {string[]} */
  zoomPath: [],
  /** @type {Sort | null} */
  sort: null,
};

export const report = () => content.reports[state.report];
export const space = () => report().spaces[state.space];

/** The compile that is not chosen, where there are two. */
export const otherReport = () => content.reports[1 - state.report];

/** The number of the chosen memory space in another compile; NONE where it has none. */
export function sameSpaceIn(/** @type {Report} */ of) {
  const color = space()?.color;
  return of.spaces.findIndex((its) => its.color === color);
}

/**
 * Whether a buffer stands out: it was found, and has the role that was chosen.
 * @returns {((i: number) => boolean) | null} null where nothing was searched or chosen
 */
export function spotlight() {
  const { query, role, matches } = state;
  if (!query && !role) return null;
  const found = query ? new Set(matches) : null;
  const of = report();
  return (i) => (!found || found.has(i)) && (!role || of.roleOf(i).name === role);
}

/** The allocation chosen for the map of a compile; "" for all that are shared over time. */
export function chosenIn(/** @type {Report} */ of) {
  return of === report() ? state.allocation : "";
}

/** @returns {View} */
export function view() {
  const { from, to, low, high, step } = state;
  return { from, to, low, high, step };
}

/**
 * The other compile: the same bytes, and the same share of its steps.
 * @returns {View}
 */
export function otherView() {
  const { from, to, low, high, step } = state;
  const share = (otherReport().steps + 1) / (report().steps + 1);
  return { from: from * share, to: to * share, low, high, step: Math.floor((step + 0.5) * share) };
}

/** @param {Report} of */
export function firstSpace(of) {
  return Math.max(
    0,
    of.spaces.findIndex((each) => each.size > 0),
  );
}

export function resetView() {
  state.from = 0;
  state.to = report().steps + 1;
  resetBytes();
}

export function resetBytes() {
  state.low = 0;
  state.high = wholeHeight();
}

/** Both compiles are drawn to one scale. */
export function wholeHeight() {
  const tall = content.reports.map((of) => drawnHeight(of.spaces[sameSpaceIn(of)], chosenIn(of)));
  return Math.max(1, ...tall);
}

/**
 * @param {number} value
 * @param {number} least
 * @param {number} most
 */
export function clamp(value, least, most) {
  return Math.max(least, Math.min(most, value));
}

/**
 * @param {number} from
 * @param {number} to
 */
export function setView(from, to) {
  const most = report().steps + 1;
  const width = clamp(to - from, Math.min(2, most), most);
  state.from = clamp(from, 0, most - width);
  state.to = state.from + width;
}

/**
 * @param {number} low
 * @param {number} high
 */
export function setBytes(low, high) {
  const most = wholeHeight();
  const height = clamp(high - low, 1, most);
  state.low = clamp(low, 0, most - height);
  state.high = state.low + height;
}

const SAVE_AFTER = 250; // milliseconds: browsers refuse an address that changes with every frame
const work = { draw: () => {}, save: () => {}, isPending: false, timer: 0 };

/**
 * Who draws the page, and who keeps what it shows, when it changes.
 * @param {() => void} draw
 * @param {() => void} save
 */
export function onChange(draw, save) {
  work.draw = draw;
  work.save = save;
}

export function redraw() {
  clearTimeout(work.timer);
  work.timer = setTimeout(work.save, SAVE_AFTER);
  if (work.isPending) return;
  work.isPending = true;
  requestAnimationFrame(() => {
    work.isPending = false;
    work.draw();
  });
}

/** @param {string} chip the word that its size is nominal, where it is */
export function nominal(chip) {
  return content.reports[0].nominalChips.has(chip) ? " nominal" : "";
}

/** @param {number} step */
export function moveTo(step) {
  state.step = clamp(Math.round(step), 0, report().steps);
  state.zoomPath = [];
  if (state.step < state.from || state.step >= state.to) {
    const half = (state.to - state.from) / 2;
    setView(state.step - half, state.step + half);
  }
  redraw();
}

/** @param {number} i a buffer, or NONE */
export function select(i) {
  state.selected = i;
  if (i !== NONE) {
    const { allocation, start, end } = report().buffers;
    const home = report().spaceOfAllocation.get(allocation[i]);
    if (home !== undefined && home !== state.space) chooseSpace(home);
    const isAlive = start[i] <= state.step && state.step <= end[i];
    if (start[i] !== NONE && !isAlive) state.step = start[i];
    if (state.step < state.from || state.step >= state.to) resetView();
  }
  redraw();
}

/** @param {number} number */
export function chooseSpace(number) {
  state.space = number;
  state.allocation = "";
  state.zoomPath = [];
  resetView();
  state.step = space().peak?.step ?? 0;
}

/** @param {number} number */
export function chooseReport(number) {
  const share = state.step / Math.max(1, report().steps);
  const spaceThere = Math.max(0, sameSpaceIn(content.reports[number]));
  state.report = number;
  state.selected = NONE;
  state.space = spaceThere;
  state.allocation = "";
  resetView();
  state.step = Math.round(share * report().steps);
}
