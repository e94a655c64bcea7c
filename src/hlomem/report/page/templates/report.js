// Constants, small helpers, and `Report`: the data of one compile and what can be asked of it.

const $ = (id) => document.getElementById(id);
const PALETTE = [ // one colour per role, in the order of the data's roles
  "#4e79a7", "#76b7b2", "#8e6bb0", "#59a14f", "#9c755f", "#7f7f7f", "#f28e2b", "#edc948",
  "#b07aa1", "#e15759", "#d37295", "#86bc5c", "#5fa2ce", "#bab0ac", "#ff9da7", "#c9c3a5", "#d9dde3",
];
const DARK = "#10131a";
const NONE = -1;
const TIMELESS = "the dump has no live ranges: nothing is known over time";

function formatBytes(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let amount = Math.abs(size), unit = 0;
  while (amount >= 1023.995 && unit < units.length - 1) { amount /= 1024; unit++; }
  const digits = unit === 0 ? 0 : amount >= 99.95 || unit === 1 ? 1 : 2;
  return `${size < 0 ? "-" : ""}${amount.toFixed(digits)} ${units[unit]}`;
}

/** On an axis: 512 MiB, not 512.0 MiB. */
const formatTick = (size) => formatBytes(size).replace(/(\.\d*?)0+ /, "$1 ").replace(". ", " ");

const percent = (part, whole) => whole ? `${(100 * part / whole).toFixed(1)} %` : "";

const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") made.style.cssText = value; else made.setAttribute(key, value);
  }
  return made;
}

function shorten(text, length = 160) {
  return text.length <= length ? text : `${text.slice(0, length / 2)}…${text.slice(-length / 2)}`;
}

/** Black or white, whichever reads better on a colour of the palette. */
function inkOn(colour) {
  if (colour[0] !== "#") return DARK;
  const [r, g, b] = [1, 3, 5].map((at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.21 * r + 0.72 * g + 0.07 * b > 0.19 ? DARK : "#ffffff";
}

function theme() { // canvas does not know light-dark(): ask an element for what it resolves to
  const probe = $("tip").style, found = {};
  const was = $("tip").style.color;
  for (const name of ["--ink", "--soft", "--rule", "--panel", "--mark", "--paper"]) {
    probe.color = `var(${name})`;
    found[name.slice(2)] = getComputedStyle($("tip")).color;
  }
  probe.color = was;
  return found;
}

async function inflate(base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

class Report {
  constructor(data) {
    Object.assign(this, data);
    this.steps = this.sequence.length;
    this.roleNames = Object.keys(this.roles);
    const columns = this.buffers;
    this.count = columns.id.length;
    for (const name of ["offset", "size", "padding"]) columns[name] = Float64Array.from(columns[name]);
    for (const name of ["allocation", "start", "end", "role", "rank", "source"]) {
      columns[name] = Int32Array.from(columns[name]);
    }
    this.spaceOfAllocation = new Map();
    this.spaces.forEach((space, number) => {
      for (const each of space.allocations) this.spaceOfAllocation.set(each.index, number);
      space.heights = this.heights(space);
      space.lower = space.peak ? space.peak.size : 0;
    });
    this.largest = columns.size.reduce((most, size) => Math.max(most, size), 1);
    this.bySpace = this.spaces.map(() => []);
    for (let i = 0; i < this.count; i++) {
      const space = this.spaceOfAllocation.get(columns.allocation[i]);
      if (space !== undefined) this.bySpace[space].push(i);
    }
  }

  text(number) { return number === NONE ? "" : this.texts[number]; }
  nameOf(i) { return this.text(this.buffers.name[i]); }

  /** The buffers of a space a table has room for. */
  largestOf(spaceNumber) {
    this.largestBySpace ||= this.spaces.map(() => null);
    this.largestBySpace[spaceNumber] ||= Int32Array.from(this.bySpace[spaceNumber])
      .sort((x, y) => this.buffers.size[y] - this.buffers.size[x] || x - y).slice(0, 500);
    return [...this.largestBySpace[spaceNumber]];
  }

  /** Bytes alive at each step, layer upon layer; the last is the total. */
  heights(space) {
    let below = new Float64Array(this.steps + 1);
    return space.layers.map((layer) => {
      const top = Float64Array.from(below);
      let height = 0, next = 0;
      for (let step = 0; step <= this.steps; step++) {
        while (next < layer.steps.length && layer.steps[next] === step) height += layer.changes[next++];
        top[step] += height;
      }
      below = top;
      return top;
    });
  }

  total(spaceNumber, step) {
    const heights = this.spaces[spaceNumber].heights;
    return heights.length ? heights[heights.length - 1][step] : 0;
  }

  /** Whose each byte is at a step: [buffer, bytes that are its own], largest first. */
  alive(spaceNumber, step) {
    const key = `${spaceNumber} ${step}`;
    if (this.aliveFor !== key) { this.aliveFor = key; this.aliveThen = this.share(spaceNumber, step); }
    return this.aliveThen;
  }

  share(spaceNumber, step) {
    const { start, end, rank, allocation, offset, size } = this.buffers;
    const here = this.bySpace[spaceNumber].filter((i) => start[i] !== NONE && start[i] <= step && step <= end[i]);
    here.sort((a, b) => allocation[a] - allocation[b] || rank[a] - rank[b]);
    const owned = [];
    let taken = [], current = NONE;
    for (const i of here) {
      if (allocation[i] !== current) { taken = []; current = allocation[i]; }
      const own = take(taken, offset[i], offset[i] + size[i]);
      if (own > 0) owned.push([i, own]);
    }
    return owned.sort((a, b) => b[1] - a[1] || a[0] - b[0]);
  }
}

/** Adds [from, to) to sorted disjoint ranges; returns how many bytes of it are new. */
function take(taken, from, to) {
  if (to <= from) return 0;
  let low = 0, high = taken.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (taken[middle][1] < from) low = middle + 1; else high = middle;
  }
  let covered = 0, first = from, last = to, end = low;
  while (end < taken.length && taken[end][0] <= to) {
    covered += Math.max(0, Math.min(to, taken[end][1]) - Math.max(from, taken[end][0]));
    first = Math.min(first, taken[end][0]);
    last = Math.max(last, taken[end][1]);
    end++;
  }
  taken.splice(low, end - low, [first, last]);
  return to - from - covered;
}
