// @ts-check
// What all drawings share: a canvas, its axis and cursor, labels, and rectangles by the thousand.

import { $, colours, fontSize } from "./dom.js";
import { formatTick, shorten } from "./formats.js";
import { state } from "./state.js";

/** @typedef {{ pen: CanvasRenderingContext2D, width: number, height: number }} Sheet */

export const TIMELESS = "the dump has no live ranges: nothing is known over time";

const MIN_TICK = 70; // pixels from one tick of the steps to the next

/**
 * Instructions at round numbers, written from `y` on downwards.
 * @param {Sheet} sheet
 * @param {number} y
 */
export function stepAxis({ pen, width }, y) {
  const perPixel = (state.to - state.from) / Math.max(1, plotWidth(width));
  const magnitude = 10 ** Math.floor(Math.log10(Math.max(1, perPixel * MIN_TICK)));
  const step =
    [1, 2, 5, 10].map((times) => times * magnitude).find((size) => size >= perPixel * MIN_TICK) ??
    magnitude;
  pen.fillStyle = colours.soft;
  pen.textAlign = "center";
  for (let at = Math.ceil(state.from / step) * step; at < state.to; at += step) {
    const x = xOf(at + 0.5, width);
    if (x > width - room.right - 10) break;
    pen.fillText(String(at), x, y);
  }
  pen.textAlign = "left";
  pen.fillText("instruction", width - room.right + 8, y);
}

/** Room for the axis at the left, and for the lane of parameters and outputs at the right. */
export const room = { left: 74, right: 118, lane: 108 };

export function measureRoom() {
  const scale = fontSize() / 14;
  room.left = 74 * scale;
  room.right = (innerWidth < 700 ? 70 : 118) * scale;
  room.lane = room.right - 10 * scale;
}

/** @returns {number} the pixels of the screen to a pixel of the page */
export const ratio = () => devicePixelRatio || 1;

/**
 * A cleared canvas of the size it has on the page.
 * @param {string} id
 * @returns {Sheet}
 */
export function canvas(id) {
  const it = /** @type {HTMLCanvasElement} */ ($(id));
  const { clientWidth: width, clientHeight: height } = it;
  const wide = Math.round(width * ratio());
  const tall = Math.round(height * ratio());
  if (it.width !== wide || it.height !== tall) {
    it.width = wide;
    it.height = tall;
  }
  const pen = /** @type {CanvasRenderingContext2D} */ (it.getContext("2d"));
  pen.setTransform(ratio(), 0, 0, ratio(), 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = `${fontSize() - 2}px system-ui, sans-serif`;
  pen.textBaseline = "middle";
  return { pen, width, height };
}

/**
 * The pixels between axis and lane.
 * @param {number} width of the canvas
 */
export const plotWidth = (width) => width - room.right - room.left;

/**
 * @param {number} step
 * @param {number} width of the canvas
 */
export function xOf(step, width) {
  return room.left + ((step - state.from) / (state.to - state.from)) * plotWidth(width);
}

/**
 * @param {number} x
 * @param {number} width of the canvas
 */
export function stepAt(x, width) {
  return state.from + ((x - room.left) / plotWidth(width)) * (state.to - state.from);
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {number} x
 * @param {number} y
 * @param {number} toX
 * @param {number} toY
 */
export function line(pen, x, y, toX, toY) {
  pen.beginPath();
  pen.moveTo(x, y);
  pen.lineTo(toX, toY);
  pen.stroke();
}

/**
 * Bytes at round powers of two.
 * @param {Sheet} sheet
 * @param {number} most
 */
export function axis({ pen, width, height }, most, low = 0) {
  const step = 2 ** Math.ceil(Math.log2(Math.max(1, (most - low) / 6)));
  pen.fillStyle = colours.soft;
  pen.strokeStyle = colours.rule;
  pen.lineWidth = 1;
  pen.textAlign = "right";
  for (let value = Math.ceil(low / step) * step; value <= most; value += step) {
    const y = Math.round(height - (height * (value - low)) / (most - low)) + 0.5;
    line(pen, room.left, y, width - room.right, y);
    pen.fillText(formatTick(value), room.left - 6, Math.min(height - 8, Math.max(8, y)));
  }
}

/**
 * @param {Sheet} sheet
 * @param {number} x
 */
export function cursorAt({ pen, width, height }, x) {
  if (x < room.left || x > width - room.right) return;
  pen.strokeStyle = colours.ink;
  pen.lineWidth = 1.5;
  line(pen, x, 0, x, height);
}

/**
 * The step of most bytes among some.
 * @param {Float64Array} heights
 * @param {number} first
 * @param {number} last
 */
export function highest(heights, first, last) {
  let step = first;
  for (let at = first + 1; at <= last; at++) if (heights[at] > heights[step]) step = at;
  return step;
}

/**
 * One sentence instead of a drawing.
 * @param {Sheet} sheet
 * @param {string} text
 */
export function message({ pen, width, height }, text) {
  pen.fillStyle = colours.soft;
  pen.textAlign = "center";
  pen.fillText(text, width / 2, height / 2);
}

/**
 * As much of a text as there is room for; nothing where that would be a letter or two.
 * @param {CanvasRenderingContext2D} pen
 * @param {string} text
 * @param {number} x
 * @param {number} y
 * @param {number} space
 * @param {string} colour
 */
export function label(pen, text, x, y, space, colour) {
  if (space < 24) return;
  pen.fillStyle = colour;
  pen.textAlign = "left";
  let shown = shorten(text, 300);
  const wide = pen.measureText(shown).width;
  if (wide > space) {
    const fits = Math.floor((shown.length * space) / wide) - 1;
    if (fits < 3) return;
    shown = `${shown.slice(0, fits)}…`;
  }
  pen.fillText(shown, x, y, space);
}

/**
 * A colour as image data has it, which canvas tells from any notation.
 * @param {CanvasRenderingContext2D} pen
 * @param {string} text
 */
export function pixel(pen, text) {
  pen.fillStyle = text;
  const hex = pen.fillStyle;
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

/** How much of its colour a buffer keeps that does not stand out. */
export const FADED = 0.16;

/**
 * A colour on its way to the paper's.
 * @param {number} colour as image data has it
 * @param {number} paper
 */
export function faded(colour, paper) {
  let made = 255 << 24;
  for (const shift of [0, 8, 16]) {
    const own = (colour >>> shift) & 255;
    const ground = (paper >>> shift) & 255;
    made |= Math.round(ground + (own - ground) * FADED) << shift;
  }
  return made >>> 0;
}

/** Rectangles straight into pixels: a canvas is too slow for a hundred thousand of them. */
export class Raster {
  /**
   * @param {number} wide
   * @param {number} tall
   */
  constructor(wide, tall) {
    this.wide = Math.max(1, Math.round(wide));
    this.tall = Math.max(1, Math.round(tall));
    this.image = new ImageData(this.wide, this.tall);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /**
   * @param {number} left
   * @param {number} top
   * @param {number} right
   * @param {number} bottom
   * @param {number} colour
   */
  fill(left, top, right, bottom, colour) {
    const first = Math.max(0, Math.round(left));
    const last = Math.min(this.wide, Math.max(first + 1, Math.round(right)));
    const from = Math.max(0, Math.min(this.tall - 1, Math.round(top)));
    const to = Math.min(this.tall, Math.max(from + 1, Math.round(bottom)));
    for (let row = from * this.wide; row < to * this.wide; row += this.wide) {
      if (last - first > 8) this.pixels.fill(colour, row + first, row + last);
      else for (let at = row + first; at < row + last; at++) this.pixels[at] = colour;
    }
  }

  /**
   * @param {CanvasRenderingContext2D} pen
   * @param {number} x
   * @param {number} width
   * @param {number} height
   */
  drawAt(pen, x, width, height) {
    const sheet = new OffscreenCanvas(this.wide, this.tall);
    sheet.getContext("2d")?.putImageData(this.image, 0, 0);
    pen.drawImage(sheet, x, 0, width, height);
  }
}
