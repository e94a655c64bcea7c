// @ts-check
// The link that keeps what the page shows: written into its address, and read from it.

import { allOfKind } from "./layout.js";
import { COLOURINGS } from "./map.js";
import { NONE } from "./model.js";
import {
  clamp,
  content,
  firstSpace,
  report,
  resetView,
  setBytes,
  setView,
  space,
  state,
  wholeHeight,
} from "./state.js";
import { TABLE_NAMES } from "./tables.js";

/** @import { Colouring } from "./state.js" */

export function saveLink() {
  if (location.protocol === "about:") return; // inside another page, whose address is not ours
  const isWhole = state.from === 0 && state.to === report().steps + 1;
  const isAllBytes = state.low === 0 && state.high === wholeHeight();
  const wanted = {
    report: state.report || "",
    space: state.space || "",
    step: state.step,
    view: isWhole ? "" : `${Math.round(state.from)}-${Math.round(state.to)}`,
    bytes: isAllBytes ? "" : `${Math.round(state.low)}-${Math.round(state.high)}`,
    allocation: state.allocation,
    colour: state.colouring === "role" ? "" : state.colouring,
    by: state.hierarchy === "source" ? "" : state.hierarchy,
    buffer: state.selected === NONE ? "" : report().buffers.id[state.selected],
    table: state.table === "Buffers" ? "" : state.table,
    chip: state.chip === report().chip ? "" : state.chip || "none",
    find: state.query,
    role: state.role,
    point: state.point === NONE ? "" : state.point,
  };
  const said = Object.entries(wanted).filter(([, value]) => value !== "");
  const link = new URLSearchParams(said.map(([key, value]) => [key, String(value)]));
  history.replaceState(null, "", `#${link}`);
}

/** Nothing in a link is trusted: what does not fit the data is as if it were not there. */
export function readLink() {
  const link = new URLSearchParams(location.hash.slice(1));
  state.report = number(link, "report", content.reports.length - 1, 0);
  state.space = number(link, "space", report().spaces.length - 1, firstSpace(report()));
  state.step = number(link, "step", report().steps, space()?.peak?.step ?? 0);
  const all = space()?.allocations ?? [];
  const kinds = new Set(all.map(({ kind }) => allOfKind(kind)));
  const allocations = [...all.map(({ index }) => String(index)), ...kinds];
  state.allocation = oneOf(link, "allocation", allocations, "");
  resetView();
  const steps = range(link, "view");
  if (steps) setView(...steps);
  const bytes = range(link, "bytes");
  if (bytes) setBytes(...bytes);
  const colourings = /** @type {Colouring[]} */ (Object.keys(COLOURINGS));
  state.colouring = oneOf(link, "colour", colourings, "role");
  state.hierarchy = oneOf(link, "by", ["source", "scope"], "source");
  state.table = oneOf(link, "table", TABLE_NAMES, "Buffers");
  const chips = [...Object.keys(report().chips), "none"];
  state.chip = oneOf(link, "chip", chips, report().chip).replace("none", "");
  const roles = report().roles.map(({ name }) => name);
  state.role = oneOf(link, "role", roles, "");
  state.query = link.get("find") ?? "";
  const lastPoint = (content.front?.points.length ?? 0) - 1;
  state.point = lastPoint < 0 ? NONE : number(link, "point", lastPoint, NONE);
  const id = link.get("buffer");
  state.selected = id === null ? NONE : report().buffers.id.indexOf(Number(id));
}

/**
 * @param {URLSearchParams} link
 * @param {string} key
 * @param {number} most
 * @param {number} otherwise
 */
function number(link, key, most, otherwise) {
  const value = Number(link.get(key));
  return link.has(key) && Number.isFinite(value) ? clamp(Math.round(value), 0, most) : otherwise;
}

/**
 * @template {string} Name
 * @param {URLSearchParams} link
 * @param {string} key
 * @param {Name[]} known
 * @param {Name} otherwise
 * @returns {Name}
 */
function oneOf(link, key, known, otherwise) {
  return known.find((name) => name === link.get(key)) ?? otherwise;
}

/**
 * @param {URLSearchParams} link
 * @param {string} key
 * @returns {[number, number] | null}
 */
function range(link, key) {
  const [, first, last] = /^(\d+)-(\d+)$/.exec(link.get(key) ?? "") ?? [];
  return Number(last) > Number(first) ? [Number(first), Number(last)] : null;
}
