// Where every buffer lies, and the lane of what is not packed.

/** The allocations of the map, one above the other: those shared over time, or the one chosen. */
function stacked(of, spaceNumber) {
  const all = of.spaces[spaceNumber].allocations;
  const chosen = of === report() && state.allocation !== "" ? all.filter((each) => String(each.index) === state.allocation)
    : all.filter((each) => each.is_shared_over_time);
  return chosen.length ? chosen : all.slice(0, 1);
}

function mapHeight(of, spaceNumber) {
  return of.spaces.length ? stacked(of, spaceNumber).reduce((sum, each) => sum + each.size, 0) : 0;
}

function bases(of, spaceNumber) {
  const found = new Map();
  let base = 0;
  for (const each of stacked(of, spaceNumber)) { found.set(each.index, base); base += each.size; }
  return found;
}

function colourOf(of, i) {
  const { role, source, size, padding } = of.buffers;
  if (state.colouring === "line") return source[i] === NONE ? "#9aa3ad" : `hsl(${source[i] * 137.5 % 360} 55% 62%)`;
  if (state.colouring === "size") {
    const share = Math.log2(1 + size[i]) / Math.log2(1 + of.largest);
    return `hsl(${Math.round(220 - 210 * share)} 62% 62%)`;
  }
  if (state.colouring === "padding") {
    const share = size[i] ? padding[i] / size[i] : 0;
    return share ? `hsl(${Math.round(45 - 45 * share)} 85% ${Math.round(70 - 16 * share)}%)` : "#9aa3ad";
  }
  return PALETTE[role[i]];
}

const COLOURINGS = {
  role: "", line: "one colour per source line; grey: none known", size: "blue: small, red: large",
  padding: "grey: none, yellow: some, red: nearly all",
};

/** What is drawn of a space: its buffers and their colours, as pixels and as text. */
function coloured(of, spaceNumber, pen) {
  const key = `${state.colouring} ${spaceNumber}`;
  if (of.colouredFor !== key) {
    of.colouredFor = key;
    const order = of.bySpace[spaceNumber].filter((i) => of.buffers.start[i] !== NONE);
    const texts = order.map((i) => colourOf(of, i)), pixelOf = new Map();
    for (const text of new Set(texts)) pixelOf.set(text, pixel(pen, text));
    of.coloured = { order, texts, pixels: Uint32Array.from(texts, (text) => pixelOf.get(text)) };
  }
  return of.coloured;
}

/** A colour as image data has it, which canvas tells from any notation. */
function pixel(pen, text) {
  pen.fillStyle = text;
  const [r, g, b] = [1, 3, 5].map((at) => parseInt(pen.fillStyle.slice(at, at + 2), 16));
  return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
}

/** Rectangles straight into pixels: a canvas is too slow for a hundred thousand of them. */
class Raster {
  constructor(wide, tall) {
    this.wide = Math.max(1, Math.round(wide));
    this.tall = Math.max(1, Math.round(tall));
    this.image = new ImageData(this.wide, this.tall);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  fill(left, top, right, bottom, colour) {
    const first = Math.max(0, Math.round(left)), last = Math.min(this.wide, Math.max(first + 1, Math.round(right)));
    const from = Math.max(0, Math.min(this.tall - 1, Math.round(top)));
    const to = Math.min(this.tall, Math.max(from + 1, Math.round(bottom)));
    for (let row = from * this.wide; row < to * this.wide; row += this.wide) {
      if (last - first > 8) this.pixels.fill(colour, row + first, row + last);
      else for (let at = row + first; at < row + last; at++) this.pixels[at] = colour;
    }
  }

  drawAt(pen, x, y, width, height) {
    const sheet = new OffscreenCanvas(this.wide, this.tall);
    sheet.getContext("2d").putImageData(this.image, 0, 0);
    pen.drawImage(sheet, x, y, width, height);
  }
}

function drawMap(id, of, spaceNumber, view) {
  const { pen, width, height } = canvas(id);
  if (spaceNumber < 0 || !mapHeight(of, spaceNumber)) { message(pen, width, height, "nothing here takes a byte"); return; }
  if (!of.spaces[spaceNumber].heights.length) { message(pen, width, height, TIMELESS); return; }
  const right = width - RIGHT, { start, end, offset, size, allocation } = of.buffers;
  const base = bases(of, spaceNumber), most = view.high - view.low;
  const xScale = (right - LEFT) / (view.to - view.from), yScale = height / most;
  pen.fillStyle = colours.panel;
  pen.fillRect(LEFT, 0, right - LEFT, height);
  axis(pen, width, height, view.high, view.low);
  const { order, texts, pixels } = coloured(of, spaceNumber, pen), large = [], marked = [];
  const matches = of === report() ? new Set(state.matches) : new Set();
  let lastSeen = NONE, low;
  const ratio = window.devicePixelRatio || 1, raster = new Raster((right - LEFT) * ratio, height * ratio);
  for (let number = 0; number < order.length; number++) {
    const i = order[number];
    if (allocation[i] !== lastSeen) { lastSeen = allocation[i]; low = base.get(lastSeen); }
    if (low === undefined || end[i] + 1 <= view.from || start[i] >= view.to) continue;
    const bottom = low + offset[i] - view.low;
    if (bottom + size[i] <= 0 || bottom >= most) continue;
    const left = Math.max(0, (start[i] - view.from) * xScale), wide = Math.min(right - LEFT, (end[i] + 1 - view.from) * xScale) - left;
    const y = height - (bottom + size[i]) * yScale, tall = size[i] * yScale;
    raster.fill(left * ratio, y * ratio, (left + wide) * ratio, (y + tall) * ratio, pixels[number]);
    if (wide > 5 && tall > 5) large.push([i, LEFT + left, y, wide, tall, texts[number]]);
    if (matches.has(i) || (i === state.selected && of === report())) marked.push([LEFT + left, y, wide, tall]);
  }
  pen.save();
  pen.beginPath(); pen.rect(LEFT, 0, right - LEFT, height); pen.clip();
  raster.drawAt(pen, LEFT, 0, right - LEFT, height);
  pen.strokeStyle = colours.paper;
  pen.lineWidth = 0.6;
  for (const [, left, y, wide, tall] of large) pen.strokeRect(left, y, wide, tall);
  for (const [i, left, y, wide, tall, colour] of large) {
    if (tall < fontSize()) continue;
    const top = Math.max(0, y), middle = (top + Math.min(height, y + tall)) / 2;
    label(pen, of.nameOf(i), left + 4, middle, wide - 8, inkOn(colour));
  }
  pen.lineWidth = 2;
  pen.strokeStyle = colours.mark;
  for (const box of marked) pen.strokeRect(...box);
  pen.restore();
  drawLane(pen, of, spaceNumber, width - LANE, width, height);
  const x = LEFT + (view.step + 0.5 - view.from) * xScale;
  if (x >= LEFT && x <= right) cursorAt(pen, x, height);
}

/** Parameters, outputs and constants: alive all the time, so a lane beside the map will do. */
function lane(of, spaceNumber, height) {
  const shown = new Set(stacked(of, spaceNumber).map((each) => each.index));
  const others = of.spaces[spaceNumber].allocations.filter((each) => !shown.has(each.index) && each.size);
  others.sort((a, b) => of.roleNames.indexOf(a.role) - of.roleNames.indexOf(b.role) || b.size - a.size);
  const total = others.reduce((sum, each) => sum + each.size, 0);
  let y = height;
  return others.map((each) => { const tall = each.size / total * height; y -= tall; return { ...each, y, tall }; });
}

function drawLane(pen, of, spaceNumber, left, width, height) {
  for (const each of lane(of, spaceNumber, height)) {
    const colour = PALETTE[of.roleNames.indexOf(each.role)];
    pen.fillStyle = colour;
    pen.fillRect(left, each.y, width - left, Math.max(0.5, each.tall - (each.tall > 3 ? 0.7 : 0)));
    if (each.tall > fontSize()) label(pen, each.label, left + 4, each.y + each.tall / 2, width - left - 8, inkOn(colour));
  }
}
