// @ts-check
// Memory against operations: the positions of its points, the steps of the front. No DOM.

/**
 * @import { FrontPoint } from "./data.d.ts"
 * @typedef {{ low: number, high: number, top: number }} Scale
 *   shares of operations from low to high, bytes from 0 to top
 */

const MARGIN = 0.04;
const HEADROOM = 1.1;
const LEAST = 0.01;
const MAX_TICKS = 6;

/**
 * The share of operations that a point adds.
 * @param {FrontPoint} point
 */
export const added = (point) => point.flops / Math.max(1, point.program_flops);

/**
 * The bytes of temporaries that a limit of all bytes leaves.
 * @param {FrontPoint[]} points
 * @param {number | null} limit
 */
export function roomFor(points, limit) {
  const given = points.find(({ kind }) => kind === "given") ?? points[0];
  return limit === null ? null : limit - (given.total - given.temporaries);
}

/**
 * @param {FrontPoint[]} points
 * @param {number | null} level bytes that are to be seen, too
 * @returns {Scale}
 */
export function scaleOf(points, level) {
  const shares = points.map(added);
  const low = Math.min(0, ...shares);
  const high = Math.max(LEAST, ...shares);
  const margin = (high - low) * MARGIN;
  const most = Math.max(1, level ?? 0, ...points.map(({ temporaries }) => temporaries));
  return { low: low - margin, high: high + margin, top: most * HEADROOM };
}

/**
 * From the left and from the bottom, each between 0 and 1.
 * @param {FrontPoint} point
 * @param {Scale} scale
 */
export function placeOf(point, { low, high, top }) {
  return { x: (added(point) - low) / (high - low), y: point.temporaries / top };
}

/**
 * The least memory for so many operations: a corner where a point begins, one where it is reached.
 * @param {FrontPoint[]} points the cheapest first
 * @returns {[number, number][]} shares of operations and bytes
 */
export function stairsOf(points) {
  /** @type {[number, number][]} */
  const corners = [];
  for (const point of points.filter((its) => its.on_front)) {
    const before = corners.at(-1);
    if (before) corners.push([added(point), before[1]]);
    corners.push([added(point), point.temporaries]);
  }
  return corners;
}

/**
 * The point nearest to a position, -1 if none is near.
 * @param {FrontPoint[]} points
 * @param {Scale} scale
 * @param {{ x: number, y: number }} at pixels from the left and from the bottom
 * @param {{ width: number, height: number }} size of the drawing
 * @param {number} reach pixels
 */
export function nearestTo(points, scale, at, { width, height }, reach) {
  let nearest = -1;
  let least = reach * reach;
  points.forEach((point, number) => {
    const { x, y } = placeOf(point, scale);
    const distance = (x * width - at.x) ** 2 + (y * height - at.y) ** 2;
    if (distance > least || (distance === least && nearest >= 0)) return;
    nearest = number;
    least = distance;
  });
  return nearest;
}

/**
 * Round shares of operations.
 * @param {Scale} scale
 */
export function ticksOf({ low, high }, most = MAX_TICKS) {
  const rough = (high - low) / most;
  const magnitude = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5].map((times) => times * magnitude).find((size) => size >= rough);
  const wide = step ?? 10 * magnitude;
  const first = Math.ceil(low / wide);
  const count = Math.floor(high / wide) - first + 1;
  return Array.from({ length: count }, (_, number) => (first + number) * wide);
}
