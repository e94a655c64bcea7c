// Two compiles: both skylines, and the way from one to the other.

function drawDifference() {
  if (!difference) return;
  const { pen, width, height } = canvas("overlay");
  const number = (each) => Math.max(0, each.spaces.findIndex((its) => its.color === space().color));
  const curves = reports.map((each) => each.spaces[number(each)]?.heights.at(-1) || new Float64Array(1));
  const most = Math.max(1, ...curves.map((curve) => curve.reduce((a, b) => Math.max(a, b), 0))) * 1.06;
  axis(pen, width, height, most);
  curves.forEach((curve, which) => {
    const path = new Path2D(), columns = Math.floor(width - RIGHT - LEFT);
    for (let column = 0; column < columns; column++) {
      const first = Math.floor(column / columns * curve.length), last = Math.max(first, Math.ceil((column + 1) / columns * curve.length) - 1);
      const y = height - curve[highest(curve, first, last)] / most * height;
      if (column) path.lineTo(LEFT + column, y); else path.moveTo(LEFT, y);
    }
    pen.lineWidth = 2;
    pen.strokeStyle = which ? "#e15759" : "#4e79a7";
    pen.stroke(path);
    pen.fillStyle = pen.strokeStyle;
    pen.textAlign = "left";
    const peak = curve.reduce((a, b) => Math.max(a, b), 0), y = height - peak / most * height;
    pen.fillText(`${"AB"[which]}  ${formatBytes(peak)}`, width - RIGHT + 8, Math.max(fontSize() / 2, y));
  });
  cursorAt(pen, LEFT + (state.step + 0.5) / (report().steps + 1) * (width - RIGHT - LEFT), height);
  $("difference-answer").textContent = difference.answer;
}

function drawWaterfall() {
  const holder = $("waterfall"), steps = difference.steps;
  holder.replaceChildren();
  const most = Math.max(1, ...steps.map((each) => Math.max(each.from, each.to)));
  for (const each of steps) {
    const change = each.to - each.from, isTotal = each.is_total;
    holder.append(element("span", each.label, { class: "label", title: shorten(each.label, 1000) }));
    holder.append(element("span", isTotal ? formatBytes(each.to) : `${change > 0 ? "+" : ""}${formatBytes(change)}`, { class: "amount" }));
    const lane = element("span", null, { class: "lane" });
    const low = isTotal ? 0 : Math.min(each.from, each.to), high = isTotal ? each.to : Math.max(each.from, each.to);
    const colour = isTotal ? "var(--soft)" : change > 0 ? "#e15759" : "#59a14f";
    lane.append(element("i", null, { style: `left:${100 * low / most}%;width:${100 * (high - low) / most}%;background:${colour}` }));
    holder.append(lane);
  }
}
