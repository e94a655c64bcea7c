// @ts-check
// The data of one compile and what can be asked of it: whose each byte is at a step, by line, by
// operation, as a tree. No DOM; the answers are those of the commands, and tests compare them.

/**
 * @import { Columns, Layer, Page, PageSpace } from "./data.d.ts"
 * @typedef {PageSpace & { heights: Float64Array[], lower: number }} Space
 * @typedef {[buffer: number, size: number]} Owned a buffer, and the bytes that are its own
 * @typedef {[from: number, to: number]} ByteRange without its last byte
 * @typedef {"line" | "op"} Key
 * @typedef {"source" | "scope"} Hierarchy
 * @typedef {{ key: string, size: number, count: number, largest: number }} Group
 * @typedef {{ name: string, size: number, children: Map<string, Node>, buffer: number }} Node
 */

/** For "no text", "no buffer" and "no step", in the data and on the page. */
export const NONE = -1;
const MAX_LISTED = 500;
const SHOWN_SCOPES = 2;
const NO_SCOPE = "(no scope)";

/** One compile. */
export class Report {
  /** @param {Page} page */
  constructor(page) {
    this.name = page.name;
    this.backend = page.backend;
    this.sequence = page.sequence;
    this.bands = page.bands;
    this.phases = page.phases;
    this.roles = page.roles;
    this.chips = page.chips;
    this.nominalChips = new Set(page.nominal_chips);
    this.chip = page.chip;
    this.capacity = page.capacity;
    this.advice = page.advice;
    this.labels = page.labels;
    this.texts = page.texts;
    this.trust = page.trust;
    this.scoped = page.scoped;
    this.steps = page.sequence.length;
    this.roleByName = new Map(page.roles.map((role) => [role.name, role]));
    this.buffers = typed(page.buffers);
    this.count = page.buffers.id.length;
    this.rolesOfBuffers = new Set(page.buffers.role.map((role) => page.roles[role].name));
    this.largest = this.buffers.size.reduce((most, size) => Math.max(most, size), 1);
    /** @type {Space[]} */
    this.spaces = page.spaces.map((space) => ({
      ...space,
      heights: heights(space.layers, this.steps),
      lower: space.peak ? space.peak.size : 0,
    }));
    this.spaceOfAllocation = spacesOfAllocations(this.spaces);
    this.bySpace = this.#buffersBySpace();
    /** @type {(number[] | undefined)[]} */
    this.largestBySpace = [];
    this.aliveFor = "";
    /** @type {Owned[]} */
    this.aliveThen = [];
    /** @type {Map<string, number> | undefined} */
    this.byName = undefined;
  }

  #buffersBySpace() {
    /** @type {number[][]} */
    const found = this.spaces.map(() => []);
    for (let i = 0; i < this.count; i++) {
      const space = this.spaceOfAllocation.get(this.buffers.allocation[i]);
      if (space !== undefined) found[space].push(i);
    }
    return found;
  }

  /** @param {number} number */
  text(number) {
    return number === NONE ? "" : this.texts[number];
  }

  /** @param {number} i */
  nameOf(i) {
    return this.text(this.buffers.name[i]);
  }

  /**
   * What a buffer is to the program's author: an argument's path, or the operation that made it.
   * @param {number} i
   */
  titleOf(i) {
    const { op_name: operation, parameter } = this.buffers;
    if (parameter[i] !== NONE) return this.text(parameter[i]);
    const scopes = bareOpName(this.text(operation[i])).split("/");
    return scopes.slice(-SHOWN_SCOPES).join("/") || this.nameOf(i);
  }

  /** @param {number} i */
  roleOf(i) {
    return this.roles[this.buffers.role[i]];
  }

  /** @param {string} role */
  colourOfRole(role) {
    return this.roleByName.get(role)?.colour ?? "";
  }

  /** @param {number} step */
  instructionAt(step) {
    return step < this.steps ? this.sequence[step] : "after the last instruction";
  }

  /**
   * The buffer of a name, the last of several.
   * @param {string} name
   */
  findName(name) {
    this.byName ??= new Map(Array.from({ length: this.count }, (_, i) => [this.nameOf(i), i]));
    return this.byName.get(name) ?? NONE;
  }

  /**
   * The buffers of a space that a table has room for.
   * @param {number} spaceNumber
   */
  largestOf(spaceNumber) {
    this.largestBySpace[spaceNumber] ??= this.largestAmong(this.bySpace[spaceNumber]);
    return [...this.largestBySpace[spaceNumber]];
  }

  /**
   * As many of some buffers as a table has room for, largest first.
   * @param {number[]} buffers
   */
  largestAmong(buffers) {
    const { size } = this.buffers;
    const sorted = Int32Array.from(buffers).sort((x, y) => size[y] - size[x] || x - y);
    return [...sorted.slice(0, MAX_LISTED)];
  }

  /**
   * Buffers in whose name, shape, line or operation a text is, largest first.
   * @param {string} text
   */
  search(text) {
    const { name, shape, source, op_name: operation, size } = this.buffers;
    const sought = text.toLowerCase();
    const hits = this.texts.map((each) => each.toLowerCase().includes(sought));
    const isHit = (/** @type {number} */ number) => number !== NONE && hits[number];
    const found = [];
    for (let i = 0; i < this.count; i++) {
      if (isHit(name[i]) || isHit(shape[i]) || isHit(source[i]) || isHit(operation[i])) {
        found.push(i);
      }
    }
    return found.sort((x, y) => size[y] - size[x]);
  }

  /**
   * The bytes in use at a step.
   * @param {number} spaceNumber
   * @param {number} step
   */
  total(spaceNumber, step) {
    return this.spaces[spaceNumber].heights.at(-1)?.[step] ?? 0;
  }

  /**
   * Whose each byte is at a step, largest first; the last answer is kept.
   * @param {number} spaceNumber
   * @param {number} step
   */
  alive(spaceNumber, step) {
    const key = `${spaceNumber} ${step}`;
    if (this.aliveFor !== key) {
      this.aliveFor = key;
      this.aliveThen = this.share(spaceNumber, step);
    }
    return this.aliveThen;
  }

  /**
   * @param {number} spaceNumber
   * @param {number} step
   */
  share(spaceNumber, step) {
    const { id, start, end, rank, allocation, offset, size } = this.buffers;
    const here = this.bySpace[spaceNumber].filter(
      (i) => start[i] !== NONE && start[i] <= step && step <= end[i],
    );
    here.sort((a, b) => allocation[a] - allocation[b] || rank[a] - rank[b]);
    /** @type {Owned[]} */
    const owned = [];
    /** @type {ByteRange[]} */
    let taken = [];
    let current = NONE;
    /** @type {Map<number, number>} */
    const used = new Map();
    for (const i of here) {
      if (allocation[i] !== current) {
        taken = [];
        current = allocation[i];
      }
      const own = take(taken, offset[i], offset[i] + size[i]);
      if (own > 0) owned.push([i, own]);
      used.set(current, (used.get(current) ?? 0) + own);
    }
    this.#addHeld(spaceNumber, owned, used);
    return owned.sort((a, b) => b[1] - a[1] || id[a[0]] - id[b[0]]);
  }

  /**
   * Adds the bytes of arguments and results that no other value uses.
   * @param {number} spaceNumber
   * @param {Owned[]} owned
   * @param {Map<number, number>} used bytes in use by allocation
   */
  #addHeld(spaceNumber, owned, used) {
    const ofBuffer = new Map(owned.map((own) => [own[0], own]));
    for (const { index, owner, size } of this.spaces[spaceNumber].allocations) {
      const rest = size - (used.get(index) ?? 0);
      if (owner === NONE || rest <= 0) continue;
      const own = ofBuffer.get(owner);
      if (own) own[1] += rest;
      else owned.push([owner, rest]);
    }
  }

  /**
   * The group a buffer belongs to.
   * @param {number} i
   * @param {Key} by
   */
  keyOf(i, by) {
    const { source, op_name: operation } = this.buffers;
    if (by === "op") return bareOpName(this.text(operation[i])) || this.labels.unnamed;
    return this.text(source[i]) || this.nowhere(i);
  }

  /**
   * The label of a buffer without source line.
   * @param {number} i
   */
  nowhere(i) {
    return this.buffers.parameter[i] === NONE ? this.labels.no_line : this.labels.arguments;
  }
}

/**
 * The columns the drawing reads again and again, as arrays of numbers.
 * @param {Columns} columns
 */
function typed(columns) {
  return {
    ...columns,
    offset: Float64Array.from(columns.offset),
    size: Float64Array.from(columns.size),
    padding: Float64Array.from(columns.padding),
    allocation: Int32Array.from(columns.allocation),
    start: Int32Array.from(columns.start),
    end: Int32Array.from(columns.end),
    role: Int32Array.from(columns.role),
    rank: Int32Array.from(columns.rank),
    source: Int32Array.from(columns.source),
  };
}

/** @param {Space[]} spaces */
function spacesOfAllocations(spaces) {
  /** @type {Map<number, number>} */
  const found = new Map();
  spaces.forEach((space, number) => {
    for (const allocation of space.allocations) found.set(allocation.index, number);
  });
  return found;
}

/**
 * Bytes alive at each step, layer upon layer; the last is the total.
 * @param {Layer[]} layers
 * @param {number} steps
 */
export function heights(layers, steps) {
  let below = new Float64Array(steps + 1);
  return layers.map((layer) => {
    const top = Float64Array.from(below);
    let height = 0;
    let next = 0;
    for (let step = 0; step <= steps; step++) {
      while (next < layer.steps.length && layer.steps[next] === step) {
        height += layer.changes[next++];
      }
      top[step] += height;
    }
    below = top;
    return top;
  });
}

/**
 * Adds [from, to) to sorted, disjoint ranges; returns how many bytes of it are new.
 * @param {ByteRange[]} taken
 * @param {number} from
 * @param {number} to
 */
export function take(taken, from, to) {
  if (to <= from) return 0;
  const low = firstEndingFrom(taken, from);
  let covered = 0;
  let first = from;
  let last = to;
  let end = low;
  while (end < taken.length && taken[end][0] <= to) {
    covered += Math.max(0, Math.min(to, taken[end][1]) - Math.max(from, taken[end][0]));
    first = Math.min(first, taken[end][0]);
    last = Math.max(last, taken[end][1]);
    end++;
  }
  taken.splice(low, end - low, [first, last]);
  return to - from - covered;
}

/**
 * @param {ByteRange[]} ranges
 * @param {number} from
 */
function firstEndingFrom(ranges, from) {
  let low = 0;
  let high = ranges.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ranges[middle][1] < from) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * An operation's name without the parameters JAX up to 0.4.31 appended to it.
 * @param {string} name
 */
function bareOpName(name) {
  return name.replace(/\[\w+=.*\]$/, "");
}

/**
 * Who is alive, by what `by` says, largest group first.
 * @param {Report} of
 * @param {Owned[]} owned largest first
 * @param {Key} by
 */
export function grouped(of, owned, by) {
  /** @type {Map<string, Group>} */
  const groups = new Map();
  for (const [i, size] of owned) {
    const key = of.keyOf(i, by);
    const group = groups.get(key) ?? { key, size: 0, count: 0, largest: i };
    group.size += size;
    group.count++;
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => b.size - a.size || (a.key < b.key ? -1 : 1));
}

/**
 * Who is alive, as a tree of parts.
 * @param {Report} of
 * @param {Owned[]} owned
 * @param {Hierarchy} hierarchy
 */
export function tree(of, owned, hierarchy) {
  const root = node("alive");
  const hasLines = owned.some(([i]) => of.buffers.source[i] !== NONE);
  for (const [i, size] of owned) {
    const names = hierarchy === "scope" ? scopes(of, i) : locations(of, i, hasLines);
    let at = root;
    at.size += size;
    for (const name of [...names, of.nameOf(i)]) {
      const child = at.children.get(name) ?? node(name);
      at.children.set(name, child);
      child.size += size;
      at = child;
    }
    at.buffer = i;
  }
  return root;
}

/**
 * @param {string} name
 * @returns {Node}
 */
function node(name) {
  return { name, size: 0, children: new Map(), buffer: NONE };
}

/**
 * The scopes above a buffer, from the outside in.
 * @param {Report} of
 * @param {number} i
 */
function scopes(of, i) {
  const operation = of.text(of.buffers.op_name[i]);
  const names = operation.split("/");
  if (names.length > 1) return names;
  const outside = of.buffers.parameter[i] === NONE ? NO_SCOPE : of.labels.arguments;
  return operation ? [outside, operation] : [outside];
}

/**
 * File, line and operation of a buffer; a level that would say nothing is left out.
 * @param {Report} of
 * @param {number} i
 * @param {boolean} hasLines whether any buffer has a line
 */
function locations(of, i, hasLines) {
  const { source, op_name: operation, parameter } = of.buffers;
  const rest = operation[i] === NONE ? [] : [of.text(operation[i])];
  if (source[i] === NONE) {
    return hasLines || parameter[i] !== NONE ? [of.nowhere(i), ...rest] : rest;
  }
  const line = of.text(source[i]);
  const cut = line.lastIndexOf(":");
  return cut > 0 ? [line.slice(0, cut), `line ${line.slice(cut + 1)}`, ...rest] : [line, ...rest];
}

/**
 * How many levels a tree has, or `most` where it has more: names decide how deep it is.
 * @param {Node} root
 * @param {number} most
 * @returns {number}
 */
export function depthOf(root, most) {
  let below = 0;
  if (most > 1) {
    for (const child of root.children.values()) below = Math.max(below, depthOf(child, most - 1));
  }
  return below + 1;
}
