// @ts-check
// The tables.

import { $, copyText, element } from "./dom.js";
import { formatBytes, percent, shorten } from "./formats.js";
import { grouped, NONE } from "./model.js";
import { redraw, report, select, space, spotlight, state } from "./state.js";

/**
 * @import { Key } from "./model.js"
 * @typedef {string | number | { shown: string, key: number }} Cell
 *   a text, a number of bytes, or what is shown and what it is sorted by
 * @typedef {{ text: string, isNumber: boolean }} Head
 * @typedef {{ buffer?: number, name?: string, cells: Cell[] }} Row
 *   a row leads to a buffer, or to the one of a name
 * @typedef {{ heads: Head[], rows: Row[], empty?: string, note?: string }} Table
 */

const MAX_ROWS = 500;

/** @returns {Head} */
const text = (/** @type {string} */ name) => ({ text: name, isNumber: false });
/** @returns {Head} */
const number = (/** @type {string} */ name) => ({ text: name, isNumber: true });
/** @returns {Cell} */
const count = (/** @type {number} */ value) => ({ shown: String(value), key: value });

/** @returns {Table} */
function bufferTable() {
  const of = report();
  const alive = new Map(of.alive(state.space, state.step));
  const isLit = spotlight();
  const here = of.bySpace[state.space];
  const shown = isLit ? here.filter(isLit) : here;
  const listed = isLit ? of.largestAmong(shown) : of.largestOf(state.space);
  const all = shown.length;
  return {
    heads: [
      text("buffer"),
      text("line"),
      number("size"),
      text("role"),
      text("at cursor"),
      number("padding"),
      text("shape"),
      number("instructions"),
      text("in HLO"),
      text("operation"),
    ],
    rows: listed.map((i) => ({ buffer: i, cells: bufferCells(i, alive.has(i)) })),
    note: all > MAX_ROWS ? `the ${MAX_ROWS} largest of ${all}` : "",
    empty: "no buffer of this space is as you ask",
  };
}

/**
 * @param {number} i
 * @param {boolean} isAlive at the cursor
 * @returns {Cell[]}
 */
function bufferCells(i, isAlive) {
  const of = report();
  const { size, padding, shape, start, end, op_name: operation, source } = of.buffers;
  const steps = start[i] === NONE ? "" : `${start[i]}–${end[i]}`;
  return [
    of.titleOf(i),
    of.text(source[i]),
    size[i],
    of.roleOf(i).name,
    isAlive ? "alive" : "",
    padding[i],
    of.text(shape[i]),
    { shown: steps, key: start[i] },
    of.nameOf(i),
    of.text(operation[i]),
  ];
}

/**
 * @param {Key} by
 * @param {string} head
 * @returns {Table}
 */
function groupTable(by, head) {
  const of = report();
  const isLit = spotlight();
  const alive = of.alive(state.space, state.step).filter(([i]) => !isLit || isLit(i));
  const total = alive.reduce((sum, [, size]) => sum + size, 0);
  const rows = grouped(of, alive, by).slice(0, MAX_ROWS);
  return {
    heads: [
      text(head),
      number("alive at the cursor"),
      number("share"),
      number("buffers"),
      text("largest"),
    ],
    rows: rows.map((group) => ({
      buffer: group.largest,
      cells: [
        group.key,
        group.size,
        { shown: percent(group.size, total), key: group.size },
        count(group.count),
        of.titleOf(group.largest),
      ],
    })),
    empty: "nothing of this is in use at the cursor",
    note: `at instruction ${state.step}: ${formatBytes(total)}`,
  };
}

/** @returns {Table} */
function paddingTable() {
  return {
    heads: [
      text("shape"),
      text("line"),
      number("size"),
      number("padding"),
      text("dimensions"),
      number("buffers"),
      number("at peak"),
      number("lost at peak"),
      text("example"),
    ],
    rows: space().padding.map((row, index) => ({
      name: row.example,
      cells: [
        row.shape,
        row.source ?? "",
        row.size,
        row.padding,
        space().growths[index],
        count(row.count),
        count(row.count_at_peak),
        row.padding_at_peak,
        row.example,
      ],
    })),
    empty: "no buffer of this space is padded",
  };
}

/** @returns {Table} */
function holeTable() {
  return {
    heads: [
      text("offset"),
      number("size"),
      text("below"),
      text("previous owner"),
      text("next owner"),
    ],
    rows: space().holes.map(({ offset, size, above, before, after }) => ({
      name: above ?? before ?? after ?? undefined,
      cells: [count(offset), size, above ?? "", before ?? "", after ?? ""],
    })),
    empty: "packing lost nothing",
  };
}

/** @returns {Table} */
function donationTable() {
  return {
    heads: [
      text("argument"),
      number("size"),
      text("shape"),
      text("donation"),
      text("result"),
      text("why"),
    ],
    rows: space().donation.map((row) => ({
      cells: [row.name, row.size, row.shape, row.state, row.result ?? "", row.why],
    })),
    empty: "the program has no arguments in this space",
  };
}

/** @returns {Table} */
function copyTable() {
  return {
    heads: [
      text("copy"),
      text("line"),
      number("size"),
      text("shape"),
      text("of"),
      text("cause"),
      text("why"),
      text("at peak"),
    ],
    rows: space().copies.map((row) => ({
      name: row.name,
      cells: [
        row.name,
        row.source ?? "",
        row.size,
        row.shape,
        row.of ?? "",
        row.cause,
        row.why,
        row.is_at_peak ? "yes" : "",
      ],
    })),
    empty: "no copies in this space",
  };
}

/** @returns {Table} */
function kernelTable() {
  const scoped = report().scoped;
  const beyond = formatBytes(scoped?.reserved_beyond ?? 0);
  return {
    heads: [
      text("kernel or fusion"),
      text("line"),
      number("used"),
      number("limit"),
      text("kind"),
      text("operation"),
    ],
    rows: (scoped?.rows ?? []).map((row) => ({
      name: row.instruction,
      cells: [
        row.name,
        row.source ?? "",
        row.used,
        row.limit ?? { shown: "not known", key: 0 },
        row.kind,
        row.op_name ?? "",
      ],
    })),
    note: scoped?.reserved_beyond
      ? `${scoped.limit_from} reserves ${beyond} more than any of them uses`
      : "",
    empty: "the dump does not tell what kernels use",
  };
}

/** @returns {Table} */
function shardingTable() {
  const found = space().sharding_findings.map((row) => ({
    cells: [row.names[0] ?? "", row.title, row.size, "", row.promised, row.how, row.source ?? ""],
  }));
  const arrays = space().shardings.map((row) => ({
    cells: [
      row.name,
      row.spec ?? "unknown",
      row.size,
      count(row.replication ?? 0),
      row.split_size === null ? "" : row.size - row.split_size,
      row.split_spec ?? "",
      row.source ?? "",
    ],
  }));
  return {
    heads: [
      text("array"),
      text("sharding"),
      number("on each device"),
      number("devices with the same part"),
      number("less if split"),
      text("as"),
      text("line"),
    ],
    rows: [...found, ...arrays],
    empty: "the program is not partitioned, or its shardings are not known",
  };
}

/** @type {Record<string, () => Table>} */
const TABLES = {
  Buffers: bufferTable,
  "Source lines": () => groupTable("line", "line"),
  Operations: () => groupTable("op", "operation"),
  Padding: paddingTable,
  Holes: holeTable,
  Donations: donationTable,
  Copies: copyTable,
  Kernels: kernelTable,
  Shardings: shardingTable,
};
export const TABLE_NAMES = Object.keys(TABLES);

/**
 * @param {Cell} cell
 * @param {Head} head
 */
function cellText(cell, head) {
  if (typeof cell === "object") return cell.shown;
  return head.isNumber && typeof cell === "number" ? formatBytes(cell) : String(cell);
}

/** @param {Cell} cell */
const cellKey = (cell) => (typeof cell === "object" ? cell.key : cell);

/** How the table is sorted, where a head was clicked. */
const sorting = () => (state.sort?.table === state.table ? state.sort : null);

function currentTable() {
  const made = TABLES[state.table]();
  const sort = sorting();
  if (sort) {
    made.rows.sort((a, b) => {
      const x = cellKey(a.cells[sort.column]);
      const y = cellKey(b.cells[sort.column]);
      return (x < y ? -1 : x > y ? 1 : 0) * (sort.down ? -1 : 1);
    });
  }
  return made;
}

export function drawTable() {
  const made = currentTable();
  $("table-note").textContent = made.note ?? "";
  $("table").replaceChildren(
    made.rows.length ? drawRows(made) : element("p", made.empty ?? "nothing", { class: "hint" }),
  );
}

/** @param {Table} made */
function drawRows({ heads, rows }) {
  const table = element("table");
  const head = element("tr");
  head.append(...heads.map(drawHead));
  const lines = rows.map((row) => drawRow(row, heads));
  const first = lines.find((line) => line.matches(".linked"));
  if (first) first.tabIndex = 0; // from there on by the arrows
  table.append(head, ...lines);
  return table;
}

/**
 * @param {Head} head
 * @param {number} column
 */
function drawHead(head, column) {
  const sort = sorting()?.column === column ? sorting() : null;
  const cell = element("th", null, {
    scope: "col",
    "aria-sort": !sort ? "none" : sort.down ? "descending" : "ascending",
    ...(head.isNumber ? { class: "number" } : {}),
  });
  const arrow = sort ? (sort.down ? " ↓" : " ↑") : "";
  const button = element("button", `${head.text}${arrow}`, { type: "button" });
  button.addEventListener("click", () => {
    state.sort = { table: state.table, column, down: sort ? !sort.down : head.isNumber };
    redraw();
  });
  cell.append(button);
  return cell;
}

/**
 * @param {Row} row
 * @param {Head[]} heads
 */
function drawRow(row, heads) {
  const line = element("tr");
  row.cells.forEach((cell, column) => {
    const shown = cellText(cell, heads[column]);
    const made = element("td", shorten(shown, 400), { title: shorten(shown, 1000) });
    if (heads[column].isNumber) made.className = "number";
    line.append(made);
  });
  const target = row.buffer ?? (row.name === undefined ? NONE : report().findName(row.name));
  if (target !== NONE) {
    line.classList.add("linked");
    line.classList.toggle("chosen", target === state.selected);
    line.tabIndex = -1;
    line.addEventListener("click", () => select(target));
  }
  return line;
}

/** Copies the table as lines of cells between tabs. */
export async function copyCurrent() {
  const { heads, rows } = currentTable();
  const lines = [
    heads.map((head) => head.text),
    ...rows.map((row) => row.cells.map((cell, column) => cellText(cell, heads[column]))),
  ];
  const isDone = await copyText(lines.map((cells) => cells.join("\t")).join("\n"));
  $("table-note").textContent = isDone ? "copied" : "the browser does not allow it";
}
