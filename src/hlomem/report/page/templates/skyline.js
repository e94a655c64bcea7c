// Canvas, axes, and the bytes alive over the program with its bands.

function canvas(id) {
  const it = $(id), ratio = window.devicePixelRatio || 1;
  const width = it.clientWidth, height = it.clientHeight;
  if (it.width !== Math.round(width * ratio) || it.height !== Math.round(height * ratio)) {
    it.width = Math.round(width * ratio);
    it.height = Math.round(height * ratio);
  }
  const pen = it.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = `${fontSize() - 2}px system-ui, sans-serif`;
  pen.textBaseline = "middle";
  return { pen, width, height };
}

let LEFT = 74, RIGHT = 118, LANE = 108; // room for the axis, and for the lane of parameters and outputs

function measureRoom() {
  const scale = fontSize() / 14, isNarrow = innerWidth < 700;
  LEFT = 74 * scale;
  RIGHT = (isNarrow ? 70 : 118) * scale;
  LANE = RIGHT - 10 * scale;
}

const fontSize = () => parseFloat(getComputedStyle(document.documentElement).fontSize);

const xOf = (step, width) => LEFT + (step - state.from) / (state.to - state.from) * (width - RIGHT - LEFT);
const stepAt = (x, width) => state.from + (x - LEFT) / (width - RIGHT - LEFT) * (state.to - state.from);

/** Bytes at round powers of two. */
function axis(pen, width, height, most, low = 0) {
  const step = 2 ** Math.ceil(Math.log2(Math.max(1, (most - low) / 6)));
  pen.fillStyle = colours.soft;
  pen.strokeStyle = colours.rule;
  pen.lineWidth = 1;
  pen.textAlign = "right";
  for (let value = Math.ceil(low / step) * step; value <= most; value += step) {
    const y = Math.round(height - height * (value - low) / (most - low)) + 0.5;
    pen.beginPath(); pen.moveTo(LEFT, y); pen.lineTo(width - RIGHT, y); pen.stroke();
    pen.fillText(formatTick(value), LEFT - 6, Math.min(height - 8, Math.max(8, y)));
  }
}

function cursorLine(pen, width, height) {
  const x = xOf(state.step + 0.5, width);
  if (x >= LEFT && x <= width - RIGHT) cursorAt(pen, x, height);
}

function cursorAt(pen, x, height) {
  pen.strokeStyle = colours.ink;
  pen.lineWidth = 1.5;
  pen.beginPath(); pen.moveTo(x, 0); pen.lineTo(x, height); pen.stroke();
}

/** The first and last step of each pixel column, so that no summit falls between two pixels. */
function eachColumn(width, visit) {
  const columns = Math.max(1, Math.floor(width - RIGHT - LEFT)), per = (state.to - state.from) / columns;
  for (let column = 0; column < columns; column++) {
    const first = Math.floor(state.from + column * per);
    const last = Math.max(first, Math.ceil(state.from + (column + 1) * per) - 1);
    if (first > report().steps) break;
    visit(LEFT + column, first, Math.min(report().steps, last));
  }
}

function highest(heights, first, last) {
  let step = first;
  for (let i = first + 1; i <= last; i++) if (heights[i] > heights[step]) step = i;
  return step;
}

function drawSkyline() {
  const { pen, width, height } = canvas("skyline");
  const { heights, layers, size, lower, peak, near_peaks: near } = space();
  if (!heights.length) { message(pen, width, height, TIMELESS); return; }
  const most = Math.max(size, lower, 1) * 1.2, total = heights[heights.length - 1];
  const yOf = (bytes) => height - bytes / most * height;
  axis(pen, width, height, most);
  const ratio = window.devicePixelRatio || 1, raster = new Raster((width - RIGHT - LEFT) * ratio, height * ratio);
  const fills = layers.map((layer) => pixel(pen, PALETTE[report().roleNames.indexOf(layer.role)]));
  eachColumn(width, (x, first, last) => {
    const step = highest(total, first, last), left = (x - LEFT) * ratio;
    let below = 0;
    layers.forEach((_, number) => {
      const top = heights[number][step];
      if (top > below) raster.fill(left, yOf(top) * ratio, left + ratio, yOf(below) * ratio, fills[number]);
      below = top;
    });
  });
  raster.drawAt(pen, LEFT, 0, width - RIGHT - LEFT, height);
  level(pen, width, yOf(size), ["reserved", formatBytes(size)], -1, colours.ink, []);
  level(pen, width, yOf(lower), ["most alive", formatBytes(lower)], 1, colours.soft, [4, 4]);
  for (const summit of near) flag(pen, width, xOf(summit.step + 0.5, width), yOf(summit.size), "", colours.soft);
  flag(pen, width, xOf(peak.step + 0.5, width), yOf(peak.size), "peak", colours.mark);
  cursorLine(pen, width, height);
}

/** A line across the chart, its two words beside it: above (-1) or below (1). */
function level(pen, width, y, words, side, colour, dash) {
  const tall = fontSize();
  pen.strokeStyle = pen.fillStyle = colour;
  pen.setLineDash(dash);
  pen.lineWidth = 1;
  pen.beginPath(); pen.moveTo(LEFT, y); pen.lineTo(width - RIGHT + 4, y); pen.stroke();
  pen.setLineDash([]);
  pen.textAlign = "left";
  words.forEach((word, line) => pen.fillText(word, width - RIGHT + 8, y + (side < 0 ? line - 1.5 : line + 0.6) * tall));
}

function flag(pen, width, x, y, text, colour) {
  if (x < LEFT || x > width - RIGHT) return;
  pen.fillStyle = colour;
  pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x - 5, y - 9); pen.lineTo(x + 5, y - 9); pen.fill();
  const isAtLeft = x < LEFT + 50;
  pen.textAlign = isAtLeft ? "left" : "right";
  pen.fillText(text, isAtLeft ? x + 8 : x - 8, y - 7);
}

function message(pen, width, height, text) {
  pen.fillStyle = colours.soft;
  pen.textAlign = "center";
  pen.fillText(text, width / 2, height / 2);
}

const bandHeight = () => Math.round(fontSize() * 1.25);
function drawBands() {
  const bands = report().bands, depth = bands.reduce((most, band) => Math.max(most, band.depth + 1), 0);
  const rows = Math.min(depth, 8), tall = bandHeight();
  $("bands").style.height = `${rows * tall + (rows ? 4 : 0)}px`;
  const { pen, width } = canvas("bands");
  for (const band of bands) {
    const left = Math.max(LEFT, xOf(band.start, width)), right = Math.min(width - RIGHT, xOf(band.end + 1, width));
    if (right <= LEFT || left >= width - RIGHT || band.depth >= rows) continue;
    const y = band.depth * tall + 3;
    pen.fillStyle = colours.rule;
    pen.fillRect(left, y, Math.max(1, right - left - 1), tall - 2);
    label(pen, `${band.kind} ${band.name}`, left + 4, y + tall / 2 - 1, right - left - 8, colours.ink);
  }
}

/** As much of a text as there is room for; nothing where that would be a letter or two. */
function label(pen, text, x, y, room, colour) {
  if (room < 24) return;
  pen.fillStyle = colour;
  pen.textAlign = "left";
  let shown = shorten(text, 300);
  const wide = pen.measureText(shown).width;
  if (wide > room) {
    const fits = Math.floor(shown.length * room / wide) - 1;
    if (fits < 3) return;
    shown = `${shown.slice(0, fits)}…`;
  }
  pen.fillText(shown, x, y, room);
}
