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
    ? all.filter((allocation) => String(allocation.index) === chosen)
    : all.filter((allocation) => allocation.is_shared_over_time);
  return shown.length ? shown : all.slice(0, 1);
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
 * Parameters, outputs and constants: alive all the time, so a lane beside the map will do.
 * @param {Report} of
 * @param {Space} space
 * @param {string} chosen
 * @param {number} height of the lane
 * @returns {LaneEntry[]}
 */
export function lane(of, space, chosen, height) {
  const shown = new Set(stacked(space, chosen).map((allocation) => allocation.index));
  const others = space.allocations.filter(({ index, size }) => !shown.has(index) && size);
  const placeOf = new Map(of.roles.map((role, place) => [role.name, place]));
  const place = (/** @type {PageAllocation} */ allocation) => placeOf.get(allocation.role) ?? NONE;
  others.sort((a, b) => place(a) - place(b) || b.size - a.size);
  const total = sum(others);
  let y = height;
  return others.map((allocation) => {
    const tall = (allocation.size / total) * height;
    y -= tall;
    return { ...allocation, y, tall };
  });
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
