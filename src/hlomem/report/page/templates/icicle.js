// @ts-check
// Who is alive at the cursor, drawn as a tree of parts.

import { canvas, label, message } from "./chart.js";
import { $, colours, fontSize } from "./dom.js";
import { formatBytes, hash, inkOn, shorten } from "./formats.js";
import { depthOf, NONE, tree } from "./model.js";
import { report, state } from "./state.js";

/**
 * @import { Node } from "./model.js"
 * @typedef {{ node: Node, trail: string[], depth: number, left: number, wide: number }} Part
 *   a node of the tree with its position; `trail` are the names from the root to it
 */

const MAX_ROWS = 9;

/** @type {{ parts: Part[], tall: number }} */
const drawn = { parts: [], tall: 1 };

export function drawIcicle() {
  const { root, path } = zoomed();
  $("path").textContent = path.length
    ? `${shorten(path.join(" › "), 100)} — click the top row to go back`
    : "click a part to enlarge it";
  const rows = depthOf(root, MAX_ROWS);
  drawn.tall = Math.round(fontSize() * 2);
  $("icicle").style.height = `${rows * drawn.tall}px`;
  const sheet = canvas("icicle");
  drawn.parts = [];
  if (!root.size) {
    message(sheet, "nothing is alive here");
    return;
  }
  place({ node: root, trail: path, depth: 0, left: 0, wide: sheet.width }, rows);
  for (const part of drawn.parts) drawPart(sheet.pen, part);
}

/** The tree from the part that was enlarged on, and the way to it. */
function zoomed() {
  let root = tree(report(), report().alive(state.space, state.step), state.hierarchy);
  const path = [];
  for (const name of state.zoomPath) {
    const child = root.children.get(name);
    if (!child) break;
    root = child;
    path.push(name);
  }
  return { root, path };
}

/**
 * @param {Part} part
 * @param {number} rows
 */
function place(part, rows) {
  const { node, trail, depth, wide } = part;
  if (depth >= rows || wide < 1) return;
  drawn.parts.push(part);
  let { left } = part;
  for (const child of [...node.children.values()].sort((a, b) => b.size - a.size)) {
    const share = (wide * child.size) / node.size;
    const below = { node: child, trail: [...trail, child.name], depth: depth + 1 };
    place({ ...below, left, wide: share }, rows);
    left += share;
  }
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {Part} part
 */
function drawPart(pen, part) {
  const { node, depth, left, wide } = part;
  const { tall } = drawn;
  const y = depth * tall;
  const shade = shadeOf(part);
  pen.fillStyle = shade;
  pen.fillRect(left, y, Math.max(0.5, wide - 1), tall - 1);
  if (node.buffer !== NONE && node.buffer === state.selected) {
    pen.strokeStyle = colours.mark;
    pen.lineWidth = 2;
    pen.strokeRect(left + 1, y + 1, wide - 3, tall - 3);
  }
  const isLongFile = depth === 1 && node.name.length > 60;
  const name = isLongFile ? `…${node.name.slice(-58)}` : node.name;
  const ink = depth === 0 ? colours.ink : inkOn(shade);
  label(pen, `${name} · ${formatBytes(node.size)}`, left + 5, y + tall / 2, wide - 10, ink);
}

/** @param {Part} part */
function shadeOf({ node, trail, depth }) {
  if (depth === 0) return colours.panel;
  if (node.buffer !== NONE) return report().roleOf(node.buffer).colour;
  return `hsl(${hash(trail[0] ?? node.name) % 360} 42% ${Math.max(58, 84 - 6 * depth)}%)`;
}

/**
 * The part under the pointer.
 * @param {MouseEvent} event
 */
export function partAt({ offsetX: x, offsetY: y }) {
  const depth = Math.floor(y / drawn.tall);
  return drawn.parts.find(
    (part) => part.depth === depth && part.left <= x && x < part.left + part.wide,
  );
}
