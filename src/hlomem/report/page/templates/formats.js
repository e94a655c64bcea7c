// @ts-check
// Numbers and names as texts, and the colours computed from them. No DOM.

export const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const DARK_INK = "#10131a";
const LIGHT_INK = "#ffffff";

/**
 * A number with so many digits. Of two texts that are equally near the even one is taken, as Python
 * does; `toFixed` takes the larger. Only odd quarters and eighths are that near to two.
 * @param {number} amount
 * @param {number} digits 0, 1 or 2
 */
function fixed(amount, digits) {
  const text = amount.toFixed(digits);
  const isTie = digits > 0 && (amount * 2 ** (digits + 1)) % 2 === 1;
  if (!isTie || Number(text.at(-1)) % 2 === 0) return text;
  return (amount - 10 ** -digits / 4).toFixed(digits);
}

/**
 * Bytes in IEC units, as the commands print them: 512 B, 64.3 KiB, 1.26 GiB.
 * @param {number} size
 */
export function formatBytes(size) {
  let amount = Math.abs(size);
  let unit = 0;
  while (amount >= 1023.995 && unit < UNITS.length - 1) {
    amount /= 1024;
    unit++;
  }
  const digits = unit === 0 ? 0 : amount >= 99.95 || unit === 1 ? 1 : 2;
  return `${size < 0 ? "-" : ""}${fixed(amount, digits)} ${UNITS[unit]}`;
}

/**
 * A memory space as people write it: HBM, VMEM; a CPU's only one is memory.
 * @param {string} name
 */
export function spaceLabel(name) {
  if (name === "default") return "memory";
  if (name === "host") return "host memory";
  return name.endsWith("mem") || name === "hbm" ? name.toUpperCase() : name;
}

/**
 * On an axis: 512 MiB, not 512.0 MiB.
 * @param {number} size
 */
export function formatTick(size) {
  return formatBytes(size)
    .replace(/(\.\d*?)0+ /, "$1 ")
    .replace(". ", " ");
}

/**
 * @param {number} part
 * @param {number} whole
 */
export function percent(part, whole) {
  return whole ? `${fixed((100 * part) / whole, 1)} %` : "";
}

/**
 * A change as a share with its sign, as the commands print it: +3.1 %; nothing is +0.0 %.
 * @param {number} part
 * @param {number} whole
 */
export function formatChange(part, whole) {
  const share = part / Math.max(1, whole);
  const text = fixed(100 * Math.abs(share), 1);
  return `${share < 0 && text !== "0.0" ? "-" : "+"}${text} %`;
}

/**
 * @param {number} count
 * @param {string} noun
 */
export function plural(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}

/**
 * A text without its middle where it is long.
 * @param {string} text
 */
export function shorten(text, length = 160) {
  return text.length <= length ? text : `${text.slice(0, length / 2)}…${text.slice(-length / 2)}`;
}

/**
 * Black or white, whichever reads better on a colour; those that are not #rrggbb are light.
 * @param {string} colour
 */
export function inkOn(colour) {
  if (colour[0] !== "#") return DARK_INK;
  const [r, g, b] = [1, 3, 5].map((at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.21 * r + 0.72 * g + 0.07 * b > 0.19 ? DARK_INK : LIGHT_INK;
}

/**
 * A number for a name, the same on every page.
 * @param {string} text
 */
export function hash(text) {
  let value = 7;
  for (let at = 0; at < Math.min(text.length, 200); at++) {
    value = (value * 31 + text.charCodeAt(at)) >>> 0;
  }
  return value;
}
