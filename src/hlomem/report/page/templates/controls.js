// @ts-check
// Tabs, choices, the search field, the theme and the keys.

import { NAMES } from "./comparison.js";
import { $, element, field, readTheme } from "./dom.js";
import { formatBytes } from "./formats.js";
import { allOfKind, choices } from "./layout.js";
import { readLink, saveLink } from "./link.js";
import { COLOURINGS } from "./map.js";
import { NONE } from "./model.js";
import {
  chooseReport,
  chooseSpace,
  content,
  moveTo,
  nominal,
  redraw,
  report,
  resetBytes,
  resetView,
  select,
  setView,
  space,
  state,
} from "./state.js";
import { copyCurrent, TABLE_NAMES } from "./tables.js";

/**
 * @import { Hierarchy } from "./model.js"
 * @import { Colouring } from "./state.js"
 */

/**
 * Replaces an element's children if their content has changed; else the focus stays.
 * @param {string} id
 * @param {unknown[]} key
 * @param {() => Node[]} make
 */
function fill(id, key, make) {
  const made = key.join("\u0000");
  if ($(id).dataset.made === made) return;
  $(id).dataset.made = made;
  $(id).replaceChildren(...make());
}

/**
 * @param {string} id
 * @param {string[]} names
 * @param {number} current
 * @param {(number: number) => void} choose
 */
function tabs(id, names, current, choose) {
  const shown = names.length < 2 ? [] : names;
  fill(id, [current, ...shown], () =>
    shown.map((name, number) => {
      const attributes = { type: "button", "aria-pressed": String(number === current) };
      const button = element("button", name, attributes);
      button.addEventListener("click", () => {
        choose(number);
        redraw();
      });
      return button;
    }),
  );
}

export function drawControls() {
  const spaces = report().spaces.map((each) => `${each.name} ${formatBytes(each.size)}`);
  tabs("reports", content.reports.length > 1 ? NAMES : [], state.report, chooseReport);
  tabs("spaces", spaces, state.space, chooseSpace);
  const tables = TABLE_NAMES.filter((name) => name !== "Kernels" || report().scoped);
  tabs("tables", tables, tables.indexOf(state.table), (number) => {
    state.table = tables[number];
  });
  fill("allocation", [state.report, state.space], allocationOptions);
  field("allocation").value = state.allocation;
  field("colouring").value = state.colouring;
  field("hierarchy").value = state.hierarchy;
  field("chip").value = state.chip;
  $("colour-note").textContent = COLOURINGS[state.colouring];
}

function allocationOptions() {
  const groups = space() ? choices(space()) : [];
  return [
    element("option", "all that are shared over time", { value: "" }),
    ...groups.map(({ kind, size, count, largest }) => {
      const group = element("optgroup", null, { label: `${kind}, ${formatBytes(size)}` });
      const rest = count > largest.length;
      const all = `all ${count}: ${formatBytes(size)}`;
      group.append(
        ...(rest ? [element("option", all, { value: allOfKind(kind) })] : []),
        ...largest.map((its) =>
          element("option", `${its.index}: ${its.label}, ${formatBytes(its.size)}`, {
            value: String(its.index),
          }),
        ),
      );
      return group;
    }),
  ];
}

/** The chips are the same in both compiles. */
export function fillChips() {
  const { chips: sizes, capacity } = content.reports[0];
  const chips = Object.entries(sizes);
  $("chip").append(
    element("option", capacity ? `given, ${formatBytes(capacity)}` : "—", { value: "" }),
    ...chips.map(([name, size]) =>
      element("option", `${name}, ${formatBytes(size)}${nominal(name)}`, { value: name }),
    ),
  );
}

/**
 * @param {string} query
 * @param {boolean} goOn whether to select the next match
 */
export function search(query, goOn = false) {
  state.query = query;
  state.matches = query ? report().search(query) : [];
  const { length } = state.matches;
  if (goOn && length) {
    select(state.matches[(state.matches.indexOf(state.selected) + 1) % length]);
  }
  redraw();
}

/** Shows what the address says. */
function followLink() {
  readLink();
  field("search").value = state.query;
  search(state.query);
}

/**
 * @param {string} id
 * @param {(value: string) => void} choose
 */
function onChoice(id, choose) {
  field(id).addEventListener("change", () => {
    choose(field(id).value);
    redraw();
  });
}

export function listenToControls() {
  onChoice("colouring", (value) => {
    state.colouring = /** @type {Colouring} */ (value);
  });
  onChoice("hierarchy", (value) => {
    state.hierarchy = /** @type {Hierarchy} */ (value);
    state.zoomPath = [];
  });
  onChoice("allocation", (value) => {
    state.allocation = value;
    resetBytes();
  });
  onChoice("chip", (value) => {
    state.chip = value;
  });
  field("search").addEventListener("input", () => search(field("search").value));
  field("search").addEventListener("keydown", (event) => {
    if (/** @type {KeyboardEvent} */ (event).key === "Enter") search(field("search").value, true);
  });
  $("reset").addEventListener("click", showAll);
  $("zoom-in").addEventListener("click", () => zoom(0.5));
  $("zoom-out").addEventListener("click", () => zoom(2));
  $("copy").addEventListener("click", copyCurrent);
  $("theme").addEventListener("click", switchTheme);
  $("help").addEventListener("click", showKeys);
}

/** @param {() => void} draw */
export function listenToWindow(draw) {
  addEventListener("keydown", onKey);
  addEventListener("resize", redraw);
  addEventListener("pagehide", saveLink);
  addEventListener("hashchange", followLink);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readTheme();
    redraw();
  });
  /** @type {string | undefined} */
  let themeOnScreen;
  addEventListener("beforeprint", () => {
    themeOnScreen = document.documentElement.dataset.theme;
    setTheme("light"); // paper is white
    draw();
  });
  addEventListener("afterprint", () => {
    setTheme(themeOnScreen);
    draw();
  });
}

/** @param {string | undefined} theme undefined for the system's */
function setTheme(theme) {
  const { dataset } = document.documentElement;
  if (theme) dataset.theme = theme;
  else delete dataset.theme;
  readTheme();
}

function switchTheme() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ?? (isDark ? "dark" : "light");
  setTheme(now === "dark" ? "light" : "dark");
  redraw();
}

function showKeys() {
  /** @type {HTMLDialogElement} */ ($("keys")).showModal();
}

function showAll() {
  resetView();
  redraw();
}

/** @param {number} factor */
function zoom(factor) {
  const half = ((state.to - state.from) * factor) / 2;
  setView(state.step - half, state.step + half);
  redraw();
}

function goToPeak() {
  const peak = space()?.peak;
  if (peak) moveTo(peak.step);
}

function goToNextPeak() {
  const { peak, near_peaks: near = [] } = space() ?? {};
  const steps = (peak ? [peak, ...near] : near).map((summit) => summit.step);
  if (steps.length) moveTo(steps[(steps.indexOf(state.step) + 1) % steps.length]);
}

function clearSelection() {
  state.selected = NONE;
  state.role = "";
  field("search").value = "";
  search("");
}

/** @type {Record<string, (jump: number) => void>} */
const KEYS = {
  ArrowLeft: (jump) => moveTo(state.step - jump),
  ArrowRight: (jump) => moveTo(state.step + jump),
  p: goToPeak,
  n: goToNextPeak,
  "+": () => zoom(0.5),
  "=": () => zoom(0.5),
  "-": () => zoom(2),
  0: showAll,
  "/": () => field("search").focus(),
  d: switchTheme,
  "?": showKeys,
  Escape: clearSelection,
};

/**
 * Moves from a row of a table to the next or the previous one.
 * @param {string} key
 * @param {HTMLElement} row
 */
function moveInTable(key, row) {
  const next = key === "ArrowDown" ? row.nextElementSibling : row.previousElementSibling;
  if (!["ArrowUp", "ArrowDown"].includes(key) || !next?.matches("tr.linked")) return false;
  row.tabIndex = -1;
  /** @type {HTMLElement} */ (next).tabIndex = 0;
  /** @type {HTMLElement} */ (next).focus();
  return true;
}

/** @param {KeyboardEvent} event */
function onKey(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (/** @type {HTMLDialogElement} */ ($("keys")).open) return; // it closes by Escape itself
  if (["INPUT", "SELECT"].includes(target.tagName)) return;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.matches("tr")) {
    if (moveInTable(event.key, target)) event.preventDefault();
    if (event.key === "Enter") target.click();
    if (["Enter", "ArrowUp", "ArrowDown"].includes(event.key)) return;
  }
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (!Object.hasOwn(KEYS, key)) return;
  event.preventDefault();
  KEYS[key](event.shiftKey ? 10 : 1);
}
