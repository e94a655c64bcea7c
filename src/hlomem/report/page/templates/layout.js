// @ts-check
// Where allocations and buffers are on the map, in bytes and steps. No DOM.

import { NONE } from "./model.js";

/**
 * @import { PageAllocation } from "./data.d.ts"
 * @import { Report, Space } from "./model.js"
 * @typedef {{ from: number, to: number, low: number, high: number, step: number }} View
 *   steps from `from` to `to`, bytes from `low` to `high`, and the cursor
 * @typedef {PageAllocation & { y: number, tall: number }} LaneEntry
 */

/**
 * The allocations of the map, one above the other: the one chosen, or those shared over time.
 * @param {Space} space
 * @param {string} chosen an index, or ""
 */
export function stacked(space, chosen) {
  const all = space.allocations;
  const shown = chosen
    ? all.filter((allocation) => isChosen(allocation, chosen))
    : all.filter((allocation) => allocation.is_shared_over_time);
  return shown.length ? shown : all.slice(0, 1);
}

const KIND = "kind:";

/**
 * What is chosen where all small allocations of a kind are.
 * @param {string} kind
 */
export const allOfKind = (kind) => `${KIND}${kind}`;

/**
 * @param {PageAllocation} allocation
 * @param {string} chosen an index, or `kind:` and a kind
 */
function isChosen({ index, kind }, chosen) {
  return chosen.startsWith(KIND) ? kind === chosen.slice(KIND.length) : String(index) === chosen;
}

const MAX_PER_KIND = 12;

/**
 * The allocations by kind, as a menu lists them: the largest by themselves, all others as one.
 * @param {Space} space
 */
export function choices(space) {
  /** @type {Map<string, PageAllocation[]>} */
  const kinds = new Map();
  for (const allocation of space.allocations) {
    kinds.set(allocation.kind, [...(kinds.get(allocation.kind) ?? []), allocation]);
  }
  return [...kinds].map(([kind, all]) => {
    all.sort((a, b) => b.size - a.size || a.index - b.index);
    return { kind, size: sum(all), count: all.length, largest: all.slice(0, MAX_PER_KIND) };
  });
}

/** @param {PageAllocation[]} allocations */
function sum(allocations) {
  return allocations.reduce((total, allocation) => total + allocation.size, 0);
}

/**
 * The bytes of the map.
 * @param {Space | undefined} space
 * @param {string} chosen
 */
export function mapHeight(space, chosen) {
  return space ? sum(stacked(space, chosen)) : 0;
}

/**
 * The bytes from the bottom of the drawing to its top: of the map, or of the lane next to it where
 * that is taller and the map was not chosen. Both have one scale.
 * @param {Space | undefined} space
 * @param {string} chosen
 */
export function drawnHeight(space, chosen) {
  if (!space) return 0;
  const height = mapHeight(space, chosen);
  const whole = space.allocations.reduce((total, { size }) => total + size, 0);
  return chosen ? height : Math.max(height, whole - height);
}

/**
 * Where the allocations of the map begin, by index.
 * @param {Space} space
 * @param {string} chosen
 */
export function bases(space, chosen) {
  /** @type {Map<number, number>} */
  const found = new Map();
  let base = 0;
  for (const allocation of stacked(space, chosen)) {
    found.set(allocation.index, base);
    base += allocation.size;
  }
  return found;
}

/**
 * Parameters, outputs and constants: alive all the time, so a lane next to the map is enough.
 * @param {Report} of
 * @param {Space} space
 * @param {string} chosen
 * @param {View} view the bytes that are in view
 * @param {number} height of the lane
 * @returns {LaneEntry[]}
 */
export function lane(of, space, chosen, { low, high }, height) {
  const shown = new Set(stacked(space, chosen).map((allocation) => allocation.index));
  const others = space.allocations.filter(({ index, size }) => !shown.has(index) && size);
  const indexOf = new Map(of.roles.map((role, index) => [role.name, index]));
  const rank = (/** @type {PageAllocation} */ allocation) => indexOf.get(allocation.role) ?? NONE;
  others.sort((a, b) => rank(a) - rank(b) || b.size - a.size);
  const scale = height / (high - low);
  let y = height + low * scale;
  const placed = others.map((allocation) => {
    const tall = allocation.size * scale;
    y -= tall;
    return { ...allocation, y, tall };
  });
  return placed.filter(({ y: top, tall }) => top < height && top + tall > 0);
}

/**
 * The buffer said to hold a byte of the map at a step.
 * @param {Report} of
 * @param {number} spaceNumber
 * @param {string} chosen
 * @param {number} step
 * @param {number} byte
 */
export function bufferAt(of, spaceNumber, chosen, step, byte) {
  const { start, end, offset, size, allocation, rank } = of.buffers;
  const base = bases(of.spaces[spaceNumber], chosen);
  let found = NONE;
  for (const i of of.bySpace[spaceNumber]) {
    const low = base.get(allocation[i]);
    if (low === undefined || step < start[i] || step > end[i] || start[i] === NONE) continue;
    const within = byte - low - offset[i];
    if (within < 0 || within >= size[i]) continue;
    if (found === NONE || rank[i] < rank[found]) found = i;
  }
  return found;
}

/**
 * The largest buffer of an allocation.
 * @param {Report} of
 * @param {number} spaceNumber
 * @param {number} index
 */
export function largestIn(of, spaceNumber, index) {
  const { allocation, size } = of.buffers;
  let found = NONE;
  for (const i of of.bySpace[spaceNumber]) {
    if (allocation[i] === index && (found === NONE || size[i] > size[found])) found = i;
  }
  return found;
}
