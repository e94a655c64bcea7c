// @ts-check
// The pointer on the drawings: tips, clicks, zoom and pan.

import { plotWidth, room, stepAt } from "./chart.js";
import { $, hideTip, showTip } from "./dom.js";
import { formatBytes, percent, shorten } from "./formats.js";
import { partAt } from "./icicle.js";
import { bufferUnder } from "./map.js";
import { NONE } from "./model.js";
import { bandAt, bandTitle } from "./skyline.js";
import {
  chooseReport,
  clamp,
  moveTo,
  otherReport,
  otherView,
  redraw,
  report,
  resetView,
  sameSpaceIn,
  select,
  setBytes,
  setView,
  space,
  state,
  view,
} from "./state.js";
import { describe } from "./words.js";

const ZOOM_SPEED = 0.0015;
const MIN_DRAG = 4;

/**
 * @typedef {{ x: number, y: number, from: number, to: number, low: number, high: number }} Grab
 *   where the pointer went down, and what was in view then
 */

/**
 * @param {string} id
 * @param {(event: MouseEvent) => void} click
 * @param {boolean} hasBytes whether its height is bytes that can be zoomed, too
 */
function zoomable(id, click, hasBytes) {
  const area = $(id);
  area.addEventListener("wheel", (event) => zoomBy(event, area, hasBytes), { passive: false });
  area.addEventListener("dblclick", () => {
    resetView();
    redraw();
  });
  /** @type {Grab | null} */
  let grab = null;
  let hasMoved = false;
  area.addEventListener("pointerdown", (event) => {
    grab = { x: event.clientX, y: event.clientY, ...view() };
    hasMoved = false;
    area.setPointerCapture(event.pointerId);
  });
  area.addEventListener("pointermove", (event) => {
    if (!grab) return;
    hasMoved ||= Math.abs(event.clientX - grab.x) + Math.abs(event.clientY - grab.y) > MIN_DRAG;
    if (hasMoved) panBy(event, area, grab, hasBytes);
  });
  area.addEventListener("pointerup", (event) => {
    if (grab && !hasMoved) click(event);
    grab = null;
  });
}

/**
 * @param {WheelEvent} event
 * @param {HTMLElement} area
 * @param {boolean} hasBytes
 */
function zoomBy(event, area, hasBytes) {
  if (!event.ctrlKey && !event.metaKey) return; // the page scrolls, as it does everywhere
  event.preventDefault();
  const factor = Math.exp((event.deltaY || event.deltaX) * ZOOM_SPEED);
  if (hasBytes && event.shiftKey) {
    const share = 1 - event.offsetY / area.clientHeight;
    const at = state.low + share * (state.high - state.low);
    setBytes(at - (at - state.low) * factor, at + (state.high - at) * factor);
  } else {
    const at = stepAt(event.offsetX, area.clientWidth);
    setView(at - (at - state.from) * factor, at + (state.to - at) * factor);
  }
  redraw();
}

/**
 * @param {PointerEvent} event
 * @param {HTMLElement} area
 * @param {Grab} grab
 * @param {boolean} hasBytes
 */
function panBy(event, area, { x, y, from, to, low, high }, hasBytes) {
  const shift = (-(event.clientX - x) / plotWidth(area.clientWidth)) * (to - from);
  setView(from + shift, to + shift);
  if (hasBytes) {
    const lift = ((event.clientY - y) / area.clientHeight) * (high - low);
    setBytes(low + lift, high + lift);
  }
  redraw();
}

/**
 * Shows a tip while the pointer is on a drawing.
 * @param {string} id
 * @param {(event: PointerEvent) => string[] | null} tell
 */
function tips(id, tell) {
  $(id).addEventListener("pointermove", (event) => {
    const lines = tell(event);
    if (lines) showTip(event, lines);
    else hideTip();
  });
  $(id).addEventListener("pointerleave", hideTip);
}

/** @param {MouseEvent} event */
const onMap = (event) => bufferUnder(event, "map", report(), state.space, view());

/** @param {MouseEvent} event */
function onOtherMap(event) {
  const of = otherReport();
  return bufferUnder(event, "other-map", of, sameSpaceIn(of), otherView());
}

/** @param {MouseEvent} event */
function clickMap(event) {
  const { clientWidth: width } = $("map");
  const { offsetX: x } = event;
  const found = onMap(event);
  if (x >= room.left && x <= width - room.right) {
    state.step = clamp(Math.floor(stepAt(x, width)), 0, report().steps);
  }
  state.selected = found;
  redraw();
}

/** @param {MouseEvent} event */
function clickOtherMap(event) {
  const found = onOtherMap(event);
  if (found === NONE) return;
  chooseReport(1 - state.report);
  select(found);
}

/** @param {MouseEvent} event */
function clickOverlay(event) {
  const share = (event.offsetX - room.left) / plotWidth($("overlay").clientWidth);
  moveTo(Math.floor(share * (report().steps + 1)));
}

/** @param {MouseEvent} event */
function clickIcicle(event) {
  const part = partAt(event);
  if (!part) return;
  if (part.node.buffer !== NONE) {
    select(part.node.buffer);
    return;
  }
  state.zoomPath = part.depth === 0 ? state.zoomPath.slice(0, -1) : part.trail;
  redraw();
}

/** @param {PointerEvent} event */
function tellSkyline(event) {
  const step = Math.floor(stepAt(event.offsetX, $("skyline").clientWidth));
  const of = report();
  if (event.buttons || step < 0 || step > of.steps || !space()?.heights.length) return null;
  const size = formatBytes(of.total(state.space, step));
  return [`${size} in use at instruction ${step}`, shorten(of.instructionAt(step))];
}

/** @param {PointerEvent} event */
function tellIcicle(event) {
  const part = partAt(event);
  if (!part) return null;
  const { name, size, buffer } = part.node;
  if (buffer !== NONE) return describe(report(), buffer);
  const share = percent(size, report().total(state.space, state.step));
  return [shorten(name), `${formatBytes(size)}, ${share} of what is alive`];
}

/** @param {PointerEvent} event */
function tellBand(event) {
  const band = bandAt(event);
  if (!band) return null;
  const steps = `instructions ${band.start} to ${band.end}`;
  return [bandTitle(band), `${band.kind} ${shorten(band.name)}`, steps];
}

export function listenToPointer() {
  const moveCursor = (/** @type {MouseEvent} */ event) =>
    moveTo(Math.floor(stepAt(event.offsetX, $("skyline").clientWidth)));
  zoomable("skyline", moveCursor, false);
  zoomable("map", clickMap, true);
  zoomable("other-map", clickOtherMap, true);
  $("overlay").addEventListener("click", clickOverlay);
  $("icicle").addEventListener("click", clickIcicle);
  tips("map", (event) => {
    const found = event.buttons ? NONE : onMap(event);
    return found === NONE ? null : describe(report(), found);
  });
  tips("other-map", (event) => {
    const found = event.buttons ? NONE : onOtherMap(event);
    return found === NONE ? null : describe(otherReport(), found);
  });
  tips("skyline", tellSkyline);
  tips("bands", tellBand);
  tips("icicle", tellIcicle);
}
