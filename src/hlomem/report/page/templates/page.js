// @ts-check
// The page: its data read, all of it drawn, and drawn again when what it shows changes.

import { drawAdvice } from "./advice.js";
import { measureRoom } from "./chart.js";
import { drawDifference, drawWaterfall, sideName } from "./comparison.js";
import { drawControls, fillChips, listenToControls, listenToWindow, search } from "./controls.js";
import { $, colours, field, inflate, readTheme } from "./dom.js";
import { drawFront, drawFrontTable, fillFront } from "./front.js";
import { drawIcicle } from "./icicle.js";
import { readLink, saveLink } from "./link.js";
import { drawMap, laneOf } from "./map.js";
import { Report } from "./model.js";
import { listenToPointer } from "./pointer.js";
import { drawBands, drawSkyline } from "./skyline.js";
import {
  content,
  moveTo,
  onChange,
  otherReport,
  otherView,
  redraw,
  report,
  sameSpaceIn,
  select,
  setView,
  space,
  state,
  view,
} from "./state.js";
import { drawTable } from "./tables.js";
import { drawTrust } from "./trust.js";
import { drawCapacity, drawLineLegend, drawWords } from "./words.js";

/** @import { PageData } from "./data.d.ts" */

/** @type {Map<string, string>} */
const shownKeys = new Map();

/**
 * Draws a part of the page again where what it shows has changed.
 * @param {string} part
 * @param {unknown[]} key
 * @param {() => void} work
 */
function ifChanged(part, key, work) {
  const text = key.join("\u0000");
  if (shownKeys.get(part) === text) return;
  shownKeys.set(part, text);
  work();
}

function draw() {
  const where = [state.report, state.space];
  measureRoom();
  drawControls();
  ifChanged("trust", where, drawTrust);
  drawWords();
  if (!report().spaces.length) {
    $("fits").textContent = "This plan has no allocations.";
    return;
  }
  ifChanged("capacity", [...where, state.chip, state.role], drawCapacity);
  ifChanged("advice", [state.report], drawAdvice);
  drawDifference();
  drawFront();
  ifChanged("front-table", [state.point], drawFrontTable);
  drawSkyline();
  drawBands();
  drawMap("map", report(), state.space, view());
  if (content.reports.length > 1) drawOtherMap();
  const moment = [...where, state.step, state.selected];
  const paper = [innerWidth, devicePixelRatio, colours.paper];
  ifChanged("icicle", [...moment, ...paper, state.hierarchy, ...state.zoomPath], drawIcicle);
  ifChanged("lines", [...moment, state.colouring], drawLineLegend);
  const chosen = [state.table, state.query, state.role, ...Object.values(state.sort ?? {})];
  ifChanged("table", [...moment, ...chosen], drawTable);
}

/** The map of the compile that is not chosen; A is always at the left. */
function drawOtherMap() {
  const captions = [
    { id: "map-caption", number: state.report },
    { id: "other-map-caption", number: 1 - state.report },
  ];
  for (const { id, number } of captions) {
    $(id).textContent = sideName(number);
    const figure = /** @type {HTMLElement} */ ($(id).parentElement);
    figure.style.order = String(number);
  }
  drawMap("other-map", otherReport(), sameSpaceIn(otherReport()), otherView());
}

async function main() {
  /** @type {PageData} */
  const data = await inflate($("data").textContent ?? "");
  content.reports = data.reports.map((page) => new Report(page));
  content.difference = data.difference;
  content.front = data.front;
  onChange(draw, saveLink);
  readTheme();
  fillChips();
  readLink();
  listenToPointer();
  listenToControls();
  listenToWindow(draw);
  field("search").value = state.query;
  if (content.reports.length > 1) {
    $("difference").hidden = false;
    $("other-figure").hidden = false;
    drawWaterfall();
  }
  fillFront();
  if (state.query) search(state.query);
  draw();
  // The page's only global: for tests and the browser's console.
  Object.assign(window, {
    hlomem: {
      state,
      reports: content.reports,
      draw,
      redraw,
      moveTo,
      select,
      setView,
      report,
      space,
      lane: () => laneOf("map", report(), state.space, view()),
    },
  });
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
}

main();
