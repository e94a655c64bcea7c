// What the page shows at the moment, how it changes, and the link that keeps it.

let reports = [], difference = null, colours = {};
const state = {
  report: 0, space: 0, step: 0, from: 0, to: 1, low: 0, high: 1, selected: NONE, table: "Buffers",
  colouring: "role", hierarchy: "source", allocation: "", chip: "", query: "", matches: [], zoomPath: [], sort: null,
};
const report = () => reports[state.report];
const space = () => report().spaces[state.space];

function saveHash() {
  if (location.protocol === "about:") return; // shown inside another page, whose address is not ours
  const isWhole = state.from === 0 && state.to === report().steps + 1;
  const isAllBytes = state.low === 0 && state.high === wholeHeight();
  const wanted = {
    report: state.report || "", space: state.space || "", step: state.step,
    view: isWhole ? "" : `${Math.round(state.from)}-${Math.round(state.to)}`,
    bytes: isAllBytes ? "" : `${Math.round(state.low)}-${Math.round(state.high)}`,
    allocation: state.allocation, colour: state.colouring === "role" ? "" : state.colouring,
    by: state.hierarchy === "source" ? "" : state.hierarchy,
    buffer: state.selected === NONE ? "" : report().buffers.id[state.selected],
    table: state.table === "Buffers" ? "" : state.table, chip: state.chip, find: state.query,
  };
  const hash = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value !== ""));
  history.replaceState(null, "", `#${hash}`);
}

function readHash() {
  const hash = new URLSearchParams(location.hash.slice(1));
  const number = (key, most, otherwise) => {
    const value = Number(hash.get(key));
    return hash.has(key) && Number.isFinite(value) ? Math.max(0, Math.min(most, Math.round(value))) : otherwise;
  };
  const oneOf = (key, known, otherwise) => known.includes(hash.get(key)) ? hash.get(key) : otherwise;
  const range = (key) => {
    const found = /^(\d+)-(\d+)$/.exec(hash.get(key) || "");
    return found && Number(found[2]) > Number(found[1]) ? [Number(found[1]), Number(found[2])] : null;
  };
  state.report = number("report", reports.length - 1, 0);
  state.space = number("space", report().spaces.length - 1, firstSpace(report()));
  state.step = number("step", report().steps, space()?.peak?.step ?? 0);
  state.allocation = oneOf("allocation", (space()?.allocations || []).map((each) => String(each.index)), "");
  resetView();
  if (range("view")) setView(...range("view"));
  if (range("bytes")) setBytes(...range("bytes"));
  state.colouring = oneOf("colour", ["role", "line", "size", "padding"], "role");
  state.hierarchy = oneOf("by", ["source", "scope"], "source");
  state.table = oneOf("table", Object.keys(TABLES), "Buffers");
  state.chip = oneOf("chip", Object.keys(report().chips), "");
  state.query = hash.get("find") || "";
  state.selected = hash.has("buffer") ? report().buffers.id.indexOf(Number(hash.get("buffer"))) : NONE;
}

const firstSpace = (of) => Math.max(0, of.spaces.findIndex((each) => each.size > 0));

function resetView() {
  state.from = 0;
  state.to = report().steps + 1;
  resetBytes();
}

function resetBytes() { state.low = 0; state.high = wholeHeight(); }

/** Both compiles are drawn to one scale. */
function wholeHeight() {
  const color = space()?.color;
  return Math.max(1, ...reports.map((each) => {
    const number = each.spaces.findIndex((its) => its.color === color);
    return number < 0 ? 0 : mapHeight(each, number);
  }));
}

function setView(from, to) {
  const most = report().steps + 1, width = Math.max(Math.min(2, most), Math.min(most, to - from));
  state.from = Math.max(0, Math.min(most - width, from));
  state.to = state.from + width;
}

function setBytes(low, high) {
  const most = wholeHeight(), height = Math.max(1, Math.min(most, high - low));
  state.low = Math.max(0, Math.min(most - height, low));
  state.high = state.low + height;
}

let pending = false, saving = 0;
function redraw() {
  clearTimeout(saving);
  saving = setTimeout(saveHash, 250); // browsers refuse an address that changes with every frame
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; draw(); });
}

/** Draws a part of the page again when what it shows has changed. */
const shownKeys = {};
function ifChanged(part, key, work) {
  const text = key.join("\u0000");
  if (shownKeys[part] === text) return;
  shownKeys[part] = text;
  work();
}

function moveTo(step) {
  state.step = Math.max(0, Math.min(report().steps, Math.round(step)));
  state.zoomPath = [];
  if (state.step < state.from || state.step >= state.to) {
    const half = (state.to - state.from) / 2;
    setView(state.step - half, state.step + half);
  }
  redraw();
}

function select(i) {
  state.selected = i;
  if (i !== NONE) {
    const at = report().spaceOfAllocation.get(report().buffers.allocation[i]);
    if (at !== undefined && at !== state.space) chooseSpace(at);
    const { start, end } = report().buffers;
    if (start[i] !== NONE && (state.step < start[i] || state.step > end[i])) state.step = start[i];
    if (state.step < state.from || state.step >= state.to) resetView();
  }
  redraw();
}

function chooseSpace(number) {
  state.space = number;
  state.allocation = "";
  state.zoomPath = [];
  resetView();
  state.step = space().peak?.step ?? 0;
}

function chooseReport(number) {
  const share = state.step / Math.max(1, report().steps), color = space()?.color;
  state.report = number;
  state.selected = NONE;
  state.space = Math.max(0, report().spaces.findIndex((each) => each.color === color));
  state.allocation = "";
  resetView();
  state.step = Math.round(share * report().steps);
}
