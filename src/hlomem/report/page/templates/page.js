// All of it drawn, searched, and moved by mouse and keys.

const view = () => ({ from: state.from, to: state.to, low: state.low, high: state.high, step: state.step });

function draw() {
  const of = report(), where = [state.report, state.space], paper = [innerWidth, devicePixelRatio, colours.paper];
  measureRoom();
  drawTabs();
  ifChanged("trust", where, drawTrust);
  drawWords();
  if (!of.spaces.length) { $("fits").textContent = "This plan has no allocations."; return; }
  ifChanged("capacity", [...where, state.chip], drawCapacity);
  drawDifference();
  drawSkyline();
  drawBands();
  drawMap("map", of, state.space, view());
  if (reports.length > 1) drawOtherMap();
  const moment = [...where, state.step, state.selected];
  ifChanged("icicle", [...moment, ...paper, state.hierarchy, ...state.zoomPath], drawIcicle);
  ifChanged("table", [...moment, state.table, ...Object.values(state.sort || {})], drawTable);
}

/** The other compile: the same bytes, and the same share of its steps. */
function otherView() {
  const other = reports[1 - state.report], share = (other.steps + 1) / (report().steps + 1);
  return {
    from: state.from * share, to: state.to * share, low: state.low, high: state.high, step: Math.floor((state.step + 0.5) * share),
  };
}

const otherSpace = () => reports[1 - state.report].spaces.findIndex((each) => each.color === space().color);

function drawOtherMap() {
  ["map", "other-map"].forEach((id, place) => {
    const which = place ? 1 - state.report : state.report;
    $(`${id}-caption`).textContent = `${"AB"[which]}: ${reports[which].name}`;
    $(`${id}-caption`).parentElement.style.order = which;
  });
  drawMap("other-map", reports[1 - state.report], otherSpace(), otherView());
}

function tabs(id, names, current, choose) {
  const holder = $(id);
  if (names.length < 2) { holder.replaceChildren(); return; }
  if (holder.dataset.made === `${current} ${names.join()}`) return; // keeps the focus where it is
  holder.dataset.made = `${current} ${names.join()}`;
  holder.replaceChildren(...names.map((name, number) => {
    const button = element("button", name, { type: "button", role: "tab", "aria-selected": String(number === current) });
    button.addEventListener("click", () => { choose(number); redraw(); });
    return button;
  }));
}

function drawTabs() {
  tabs("reports", reports.length > 1 ? ["A", "B"] : [], state.report, chooseReport);
  tabs("spaces", report().spaces.map((each) => `${each.name} ${formatBytes(each.size)}`), state.space, chooseSpace);
  const names = Object.keys(TABLES);
  tabs("tables", names, names.indexOf(state.table), (number) => { state.table = names[number]; });
  const choice = $("allocation"), all = space()?.allocations || [];
  const wanted = ["", ...all.map((each) => String(each.index))].join();
  if (choice.dataset.made !== `${state.report} ${state.space} ${wanted}`) {
    choice.dataset.made = `${state.report} ${state.space} ${wanted}`;
    choice.replaceChildren(element("option", "all that are shared over time", { value: "" }),
      ...all.map((each) => element("option", `${each.index}: ${each.kind}, ${formatBytes(each.size)}`, { value: String(each.index) })));
  }
  choice.value = state.allocation;
  $("colouring").value = state.colouring;
  $("hierarchy").value = state.hierarchy;
  $("chip").value = state.chip;
  $("colour-note").textContent = COLOURINGS[state.colouring];
}

function search(goOn) {
  const text = $("search").value.toLowerCase(), of = report(), b = of.buffers;
  state.query = $("search").value;
  if (!text) { state.matches = []; $("found").textContent = ""; redraw(); return; }
  const hit = of.texts.map((each) => each.toLowerCase().includes(text));
  const is = (number) => number !== NONE && hit[number];
  const found = [];
  for (let i = 0; i < of.count; i++) {
    if (is(b.name[i]) || is(b.shape[i]) || is(b.source[i]) || is(b.op_name[i])) found.push(i);
  }
  found.sort((x, y) => b.size[y] - b.size[x]);
  state.matches = found;
  $("found").textContent = found.length ? `${found.length} found` : "nothing found";
  if (goOn && found.length) select(found[(found.indexOf(state.selected) + 1) % found.length]);
  redraw();
}

function bufferAt(event, id, of, spaceNumber, at) {
  const area = $(id), width = area.clientWidth, height = area.clientHeight, right = width - RIGHT;
  const x = event.offsetX, y = event.offsetY, { start, end, offset, size, allocation, rank } = of.buffers;
  if (x > right) {
    const each = lane(of, spaceNumber, height).find((its) => its.y <= y && y < its.y + its.tall);
    return each ? of.bySpace[spaceNumber].filter((i) => allocation[i] === each.index).sort((a, b) => size[b] - size[a])[0] ?? NONE : NONE;
  }
  if (x < LEFT) return NONE;
  const step = Math.floor(at.from + (x - LEFT) / (right - LEFT) * (at.to - at.from));
  const byte = at.low + (height - y) / height * (at.high - at.low), base = bases(of, spaceNumber);
  let found = NONE;
  for (const i of of.bySpace[spaceNumber]) {
    const low = base.get(allocation[i]);
    if (low === undefined || step < start[i] || step > end[i] || start[i] === NONE) continue;
    if (byte >= low + offset[i] && byte < low + offset[i] + size[i] && (found === NONE || rank[i] < rank[found])) found = i;
  }
  return found;
}

function zoomable(id, { bytes = false, click }) {
  const area = $(id);
  let grabbed = null, moved = false;
  area.addEventListener("wheel", (event) => {
    event.preventDefault();
    const factor = Math.exp((event.deltaY || event.deltaX) * 0.0015);
    if (bytes && event.shiftKey) {
      const at = state.low + (1 - event.offsetY / area.clientHeight) * (state.high - state.low);
      setBytes(at - (at - state.low) * factor, at + (state.high - at) * factor);
    } else {
      const share = (event.offsetX - LEFT) / (area.clientWidth - RIGHT - LEFT), at = state.from + share * (state.to - state.from);
      setView(at - (at - state.from) * factor, at + (state.to - at) * factor);
    }
    redraw();
  }, { passive: false });
  area.addEventListener("pointerdown", (event) => {
    grabbed = { x: event.clientX, y: event.clientY, from: state.from, to: state.to, low: state.low, high: state.high };
    moved = false;
    area.setPointerCapture(event.pointerId);
  });
  area.addEventListener("pointermove", (event) => {
    if (!grabbed) return;
    const across = event.clientX - grabbed.x, up = event.clientY - grabbed.y;
    if (Math.abs(across) + Math.abs(up) > 4) moved = true;
    if (!moved) return;
    const shift = -across / (area.clientWidth - RIGHT - LEFT) * (grabbed.to - grabbed.from);
    setView(grabbed.from + shift, grabbed.to + shift);
    if (bytes) { const lift = up / area.clientHeight * (grabbed.high - grabbed.low); setBytes(grabbed.low + lift, grabbed.high + lift); }
    redraw();
  });
  area.addEventListener("pointerup", (event) => {
    if (grabbed && !moved) click(event);
    grabbed = null;
  });
  area.addEventListener("dblclick", () => { resetView(); redraw(); });
}

function listen() {
  zoomable("skyline", { click: (event) => moveTo(Math.floor(stepAt(event.offsetX, $("skyline").clientWidth))) });
  $("overlay").addEventListener("click", (event) => {
    const width = $("overlay").clientWidth - RIGHT - LEFT;
    moveTo(Math.floor((event.offsetX - LEFT) / width * (report().steps + 1)));
  });
  zoomable("map", { bytes: true, click: (event) => {
    const found = bufferAt(event, "map", report(), state.space, view()), right = $("map").clientWidth - RIGHT;
    if (event.offsetX >= LEFT && event.offsetX <= right) {
      state.step = Math.max(0, Math.min(report().steps, Math.floor(state.from + (event.offsetX - LEFT) / (right - LEFT) * (state.to - state.from))));
    }
    state.selected = found;
    redraw();
  } });
  zoomable("other-map", { bytes: true, click: (event) => {
    const found = otherAt(event);
    if (found === NONE) return;
    chooseReport(1 - state.report);
    select(found);
  } });
  const otherAt = (event) => otherSpace() < 0 ? NONE : bufferAt(event, "other-map", reports[1 - state.report], otherSpace(), otherView());
  const hide = () => { $("tip").hidden = true; };
  $("other-map").addEventListener("pointermove", (event) => {
    const found = event.buttons ? NONE : otherAt(event);
    if (found === NONE) hide(); else showTip(event, describe(reports[1 - state.report], found));
  });
  $("map").addEventListener("pointermove", (event) => {
    const found = event.buttons ? NONE : bufferAt(event, "map", report(), state.space, view());
    if (found === NONE) hide(); else showTip(event, describe(report(), found));
  });
  $("skyline").addEventListener("pointermove", (event) => {
    const step = Math.floor(stepAt(event.offsetX, $("skyline").clientWidth)), of = report();
    if (event.buttons || step < 0 || step > of.steps || !space().heights.length) { hide(); return; }
    showTip(event, [`${formatBytes(of.total(state.space, step))} alive at step ${step}`, shorten(step < of.steps ? of.sequence[step] : "after the last instruction")]);
  });
  $("bands").addEventListener("pointermove", (event) => {
    const step = stepAt(event.offsetX, $("bands").clientWidth), depth = Math.floor((event.offsetY - 3) / bandHeight());
    const band = report().bands.find((each) => each.depth === depth && each.start <= step && step < each.end + 1);
    if (band) showTip(event, [`${band.kind} ${shorten(band.name)}`, `steps ${band.start} to ${band.end}`]); else hide();
  });
  const icicleAt = (event) => icicleBoxes.find((box) => box.left <= event.offsetX && event.offsetX < box.right && box.top <= event.offsetY && event.offsetY < box.bottom);
  $("icicle").addEventListener("pointermove", (event) => {
    const box = icicleAt(event);
    if (!box) { hide(); return; }
    showTip(event, box.at.buffer === NONE ? [shorten(box.at.name), `${formatBytes(box.at.size)}, ${percent(box.at.size, report().total(state.space, state.step))} of what is alive`] : describe(report(), box.at.buffer));
  });
  $("icicle").addEventListener("click", (event) => {
    const box = icicleAt(event);
    if (!box) return;
    if (box.at.buffer !== NONE) { select(box.at.buffer); return; }
    state.zoomPath = box.top === 0 ? state.zoomPath.slice(0, -1) : box.trail;
    redraw();
  });
  for (const id of ["map", "other-map", "skyline", "bands", "icicle"]) $(id).addEventListener("pointerleave", hide);
  $("colouring").addEventListener("change", (event) => { state.colouring = event.target.value; redraw(); });
  $("hierarchy").addEventListener("change", (event) => { state.hierarchy = event.target.value; state.zoomPath = []; redraw(); });
  $("allocation").addEventListener("change", (event) => { state.allocation = event.target.value; resetBytes(); redraw(); });
  $("chip").addEventListener("change", (event) => { state.chip = event.target.value; redraw(); });
  $("reset").addEventListener("click", () => { resetView(); redraw(); });
  $("copy").addEventListener("click", copyTable);
  $("theme").addEventListener("click", switchTheme);
  $("help").addEventListener("click", () => $("keys").showModal());
  $("search").addEventListener("input", () => search(false));
  $("search").addEventListener("keydown", (event) => { if (event.key === "Enter") search(true); });
  addEventListener("keydown", onKey);
  addEventListener("resize", redraw);
  addEventListener("beforeprint", () => printIn("light"));
  addEventListener("afterprint", () => printIn(undefined));
  addEventListener("pagehide", saveHash);
  addEventListener("hashchange", () => { readHash(); $("search").value = state.query; search(false); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours = theme(); redraw(); });
}

/** Paper is white: what is printed is drawn for it. */
let themeOnScreen;
function printIn(wanted) {
  const { dataset } = document.documentElement;
  if (wanted) themeOnScreen = dataset.theme;
  const next = wanted || themeOnScreen;
  if (next) dataset.theme = next; else delete dataset.theme;
  colours = theme();
  draw();
}

function switchTheme() {
  const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme || (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  colours = theme();
  redraw();
}

function zoom(factor) {
  const half = (state.to - state.from) * factor / 2;
  setView(state.step - half, state.step + half);
  redraw();
}

function onKey(event) {
  if (["INPUT", "SELECT"].includes(event.target.tagName) || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Enter" && event.target.matches("th, tr")) { event.target.click(); return; }
  const { peak, near_peaks: near = [] } = space() || {}, jump = event.shiftKey ? 10 : 1;
  const keys = {
    ArrowLeft: () => moveTo(state.step - jump), ArrowRight: () => moveTo(state.step + jump),
    p: () => peak && moveTo(peak.step),
    n: () => { const all = [peak, ...near].filter(Boolean); if (all.length) moveTo(all[(all.findIndex((each) => each.step === state.step) + 1) % all.length].step); },
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => { resetView(); redraw(); },
    "/": () => $("search").focus(), d: switchTheme, "?": () => $("keys").showModal(),
    Escape: () => { state.selected = NONE; state.matches = []; $("search").value = state.query = ""; $("found").textContent = ""; redraw(); },
  };
  const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (act) { event.preventDefault(); act(); }
}

async function main() {
  const data = await inflate($("data").textContent);
  reports = data.reports.map((each) => new Report(each));
  difference = data.difference;
  colours = theme();
  $("chip").append(element("option", "—", { value: "" }), ...Object.entries(reports[0].chips).map(
    ([name, bytes]) => element("option", `${name}, ${formatBytes(bytes)}${nominal(name)}`, { value: name })));
  readHash();
  listen();
  $("search").value = state.query;
  if (reports.length > 1) {
    $("difference").hidden = false;
    $("other-figure").hidden = false;
    drawWaterfall();
  }
  if (state.query) search(false);
  draw();
  window.hlomem = { state, reports, draw, redraw, moveTo, select, setView, report, space };
  performance.mark("ready");
  document.documentElement.dataset.ready = "yes";
}

main();
