// The tables and advice cards.

const size = (text) => ({ text, kind: "size" });
const TABLES = {
  Buffers: () => {
    const of = report(), b = of.buffers, alive = new Map(of.alive(state.space, state.step));
    const rows = of.largestOf(state.space);
    return {
      heads: ["buffer", size("size"), size("padding"), "shape", "role", size("steps"), "operation", "line", "at cursor"],
      rows: rows.map((i) => ({ buffer: i, cells: [of.nameOf(i), b.size[i], b.padding[i], of.text(b.shape[i]), of.roleNames[b.role[i]],
        { shown: b.start[i] === NONE ? "" : `${b.start[i]}–${b.end[i]}`, key: b.start[i] }, of.text(b.op_name[i]), of.text(b.source[i]), alive.has(i) ? "alive" : ""] })),
      note: of.bySpace[state.space].length > 500 ? `the 500 largest of ${of.bySpace[state.space].length}` : "",
    };
  },
  "Source lines": () => grouped((i) => report().text(report().buffers.source[i]) || (report().buffers.parameter[i] === NONE ? "(no source line)" : "(arguments)"), "line"),
  Operations: () => grouped((i) => report().text(report().buffers.op_name[i]) || "(no name)", "operation"),
  Padding: () => ({
    heads: ["shape", size("size"), size("padding"), "dimensions", size("buffers"), size("at peak"), size("lost at peak"), "example", "line"],
    rows: space().padding.map((row) => ({ name: row.example, cells: [row.shape, row.size, row.padding,
      row.growths.map((each) => `${each.size} → ${each.padded_size}`).join(", ") || "rounded up", count(row.count), count(row.count_at_peak), row.padding_at_peak, row.example, row.source || ""] })),
    empty: "no buffer of this space is padded",
  }),
  Holes: () => ({
    heads: ["offset", size("size"), "below", "held before by", "held after by"],
    rows: space().holes.map((row) => ({ name: row.above ?? row.before ?? row.after ?? undefined, cells: [
      { shown: String(row.offset), key: row.offset }, row.size, row.above || "", row.before || "", row.after || ""] })),
    empty: "packing lost nothing",
  }),
  Donations: () => ({
    heads: ["argument", size("size"), "shape", "donation", "result", "why"],
    rows: space().donation.map((row) => ({ cells: [row.name, row.size, row.shape, row.state, row.result || "", row.why] })),
    empty: "the program has no arguments in this space",
  }),
  Copies: () => ({
    heads: ["copy", size("size"), "shape", "of", "cause", "why", "at peak", "line"],
    rows: space().copies.map((row) => ({ name: row.name, cells: [row.name, row.size, row.shape, row.of || "", row.cause, row.why, row.is_at_peak ? "yes" : "", row.source || ""] })),
    empty: "no copies in this space",
  }),
  Advice: () => ({ cards: space().hints, empty: "nothing to gain was found",
    note: "at most; hlomem advise makes the changes, plans anew and says what they save" }),
};

const count = (value) => ({ shown: String(value), key: value });

function grouped(keyOf, head) {
  const of = report(), groups = new Map();
  let total = 0;
  for (const [i, own] of of.alive(state.space, state.step)) {
    const key = keyOf(i), group = groups.get(key) || { size: 0, count: 0, largest: i };
    group.size += own;
    group.count++;
    total += own;
    groups.set(key, group);
  }
  const rows = [...groups].sort((a, b) => b[1].size - a[1].size);
  return {
    heads: [head, size("alive at the cursor"), size("share"), size("buffers"), "largest"],
    rows: rows.slice(0, 500).map(([key, group]) => ({ buffer: group.largest, cells: [key, group.size,
      { shown: percent(group.size, total), key: group.size }, count(group.count), of.nameOf(group.largest)] })),
    note: `at step ${state.step}: ${formatBytes(total)}`,
  };
}

const cellText = (cell, isSize) => typeof cell === "object" ? cell.shown : isSize && typeof cell === "number" ? formatBytes(cell) : String(cell);
const cellKey = (cell) => typeof cell === "object" ? cell.key : cell;

function currentTable() {
  const made = TABLES[state.table]();
  if (made.rows && state.sort && state.sort.table === state.table) {
    const { column, down } = state.sort;
    made.rows.sort((a, b) => {
      const x = cellKey(a.cells[column]), y = cellKey(b.cells[column]);
      return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
    });
  }
  return made;
}

function drawTable() {
  const made = currentTable(), holder = $("table");
  $("table-note").textContent = made.note || "";
  if (made.cards) {
    const cards = element("div", null, { class: "cards" });
    for (const hint of made.cards) {
      const card = element("div", null, { class: "card" });
      card.append(element("strong", formatBytes(hint.size)), element("div", hint.what), element("code", hint.command ? `hlomem ${hint.command}` : ""));
      cards.append(card);
    }
    holder.replaceChildren(made.cards.length ? cards : element("p", made.empty, { class: "hint" }));
    return;
  }
  if (!made.rows.length) { holder.replaceChildren(element("p", made.empty || "nothing", { class: "hint" })); return; }
  const table = element("table"), head = element("tr");
  made.heads.forEach((each, column) => {
    const isSize = typeof each === "object";
    const sorted = state.sort && state.sort.table === state.table && state.sort.column === column;
    const cell = element("th", `${isSize ? each.text : each}${sorted ? (state.sort.down ? " ↓" : " ↑") : ""}`, {
      tabindex: 0, "aria-sort": !sorted ? "none" : state.sort.down ? "descending" : "ascending", ...(isSize ? { class: "number" } : {}) });
    cell.addEventListener("click", () => {
      state.sort = { table: state.table, column, down: sorted ? !state.sort.down : isSize };
      redraw();
    });
    head.append(cell);
  });
  table.append(head);
  for (const row of made.rows) {
    const line = element("tr");
    row.cells.forEach((cell, column) => {
      const isSize = typeof made.heads[column] === "object", text = cellText(cell, isSize);
      line.append(element("td", shorten(text, 400), { ...(isSize ? { class: "number" } : {}), title: shorten(text, 1000) }));
    });
    const target = row.buffer !== undefined ? row.buffer : row.name !== undefined ? findName(row.name) : NONE;
    if (target !== NONE) {
      line.classList.add("linked");
      line.tabIndex = 0;
      if (target === state.selected) line.classList.add("chosen");
      line.addEventListener("click", () => select(target));
    }
    table.append(line);
  }
  holder.replaceChildren(table);
}

function findName(name) {
  const of = report();
  of.byName ||= new Map(Array.from({ length: of.count }, (_, i) => [of.nameOf(i), i]));
  return of.byName.get(name) ?? NONE;
}

function copyTable() {
  const made = currentTable();
  const lines = made.cards ? made.cards.map((each) => `${formatBytes(each.size)}\t${each.what}`)
    : [made.heads.map((each) => each.text || each), ...made.rows.map((row) => row.cells.map((cell, c) => cellText(cell, typeof made.heads[c] === "object")))].map((row) => row.join("\t"));
  copyText(lines.join("\n")).then((isDone) => { $("table-note").textContent = isDone ? "copied" : "the browser does not allow it"; });
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch { // not everywhere, not in frames: then as a selection
    const area = element("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}
