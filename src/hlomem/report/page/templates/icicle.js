// Who is alive at the cursor, as a tree of parts.

/** The bytes alive at the cursor as a tree of parts. */
function tree() {
  const of = report(), { name, source } = of.buffers, root = node("alive"), alive = of.alive(state.space, state.step);
  const hasLines = alive.some(([i]) => source[i] !== NONE);
  for (const [i, size] of alive) {
    let at = root;
    at.size += size;
    for (const part of [...parts(of, i, hasLines), of.text(name[i])]) {
      let child = at.children.get(part);
      if (!child) at.children.set(part, child = node(part));
      child.size += size;
      at = child;
    }
    at.buffer = i;
  }
  return root;
}

/** The names above a buffer, from the outside in; a level that would say nothing is left out. */
function parts(of, i, hasLines) {
  const { source, op_name: operation, parameter } = of.buffers;
  const isArgument = parameter[i] !== NONE, nowhere = isArgument ? "(arguments)" : "(no source line)";
  const op = operation[i] === NONE ? [] : [of.text(operation[i])];
  if (state.hierarchy === "scope") {
    const scopes = (op[0] || "").split("/");
    return scopes.length > 1 ? scopes : [isArgument ? "(arguments)" : "(no scope)", ...op];
  }
  if (source[i] === NONE) return hasLines || isArgument ? [nowhere, ...op] : op;
  const place = of.text(source[i]), cut = place.lastIndexOf(":");
  return cut > 0 ? [place.slice(0, cut), `line ${place.slice(cut + 1)}`, ...op] : [place, ...op];
}

function node(name) { return { name, size: 0, children: new Map(), buffer: NONE }; }

let icicleBoxes = [];
function drawIcicle() {
  let root = tree();
  const path = [];
  for (const name of state.zoomPath) {
    const child = root.children.get(name);
    if (!child) break;
    root = child;
    path.push(name);
  }
  $("path").textContent = path.length ? `${shorten(path.join(" › "), 100)} — click the top row to go back` : "click a part to enlarge it";
  const rows = Math.min(9, depthOf(root)), tall = Math.round(fontSize() * 2);
  $("icicle").style.height = `${rows * tall}px`;
  const { pen, width, height } = canvas("icicle");
  icicleBoxes = [];
  if (!root.size) { message(pen, width, height, "nothing is alive here"); return; }
  const place = (at, depth, left, wide, trail) => {
    if (depth >= rows || wide < 1) return;
    const y = depth * tall, isBuffer = at.buffer !== NONE;
    const shade = depth === 0 ? colours.panel : isBuffer ? PALETTE[report().buffers.role[at.buffer]]
      : `hsl(${hash(trail[0] ?? at.name) % 360} 42% ${Math.max(58, 84 - 6 * depth)}%)`;
    pen.fillStyle = shade;
    pen.fillRect(left, y, Math.max(0.5, wide - 1), tall - 1);
    if (isBuffer && at.buffer === state.selected) {
      pen.strokeStyle = colours.mark; pen.lineWidth = 2; pen.strokeRect(left + 1, y + 1, wide - 3, tall - 3);
    }
    const name = at.name.length > 60 && depth === 1 ? `…${at.name.slice(-58)}` : at.name;
    label(pen, `${name} · ${formatBytes(at.size)}`, left + 5, y + tall / 2, wide - 10, depth === 0 ? colours.ink : inkOn(shade));
    icicleBoxes.push({ left, right: left + wide, top: y, bottom: y + tall, at, trail });
    let x = left;
    for (const child of [...at.children.values()].sort((a, b) => b.size - a.size)) {
      const share = wide * child.size / at.size;
      place(child, depth + 1, x, share, [...trail, child.name]);
      x += share;
    }
  };
  place(root, 0, 0, width, path);
}

function depthOf(at) {
  let most = 0;
  for (const child of at.children.values()) most = Math.max(most, depthOf(child));
  return most + 1;
}

function hash(text) {
  let value = 7;
  for (let i = 0; i < Math.min(text.length, 200); i++) value = (value * 31 + text.charCodeAt(i)) >>> 0;
  return value;
}
