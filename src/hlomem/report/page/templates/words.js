// Sentences, the capacity bar, tips, and what the numbers rest on.

const nominal = (chip) => reports[0].nominal_chips.includes(chip) ? " nominal" : "";

function drawCapacity() {
  const { size, roles } = space(), capacity = state.chip ? report().chips[state.chip] : report().capacity;
  const isTiny = capacity && size < capacity / 12; // then its own size fills the bar
  const whole = Math.max(isTiny ? 0 : capacity || 0, size, 1), bar = $("capacity"), legend = $("legend");
  bar.replaceChildren();
  legend.replaceChildren();
  for (const each of roles) {
    const colour = PALETTE[report().roleNames.indexOf(each.role)];
    const part = element("i", null, { style: `width:${100 * each.size / whole}%;background:${colour}` });
    part.title = `${each.role}: ${formatBytes(each.size)}`;
    bar.append(part);
    const entry = element("span", null, { title: report().roles[each.role] || "" });
    entry.append(element("span", null, { class: "swatch", style: `background:${colour}` }));
    entry.append(`${each.role} ${formatBytes(each.size)} `, element("small", percent(each.size, size)));
    legend.append(entry);
  }
  const said = $("fits");
  said.className = "answer";
  if (!capacity) {
    said.textContent = `${formatBytes(size)} in ${space().name} memory. Choose a chip to compare it with.`;
    return;
  }
  const name = state.chip || "the device";
  if (size > capacity) {
    bar.append(element("b", null, { style: `left:${100 * capacity / whole}%`, title: `over the capacity of ${formatBytes(capacity)}` }));
    said.textContent = `No: ${formatBytes(size)}, ${formatBytes(size - capacity)} more than ${name} has (${formatBytes(capacity)}${nominal(state.chip)}).`;
    said.classList.add("over");
  } else {
    said.textContent = `Yes: ${formatBytes(size)} of ${formatBytes(capacity)}${nominal(state.chip)} (${percent(size, capacity)}) of ${name}.${isTiny ? " The bar shows only these." : ""}`;
  }
}

function drawWords() {
  const of = report(), { peak } = space() || {};
  $("name").textContent = reports.length > 1 ? reports.map((each, i) => `${"AB"[i]}: ${each.name}`).join("  →  ") : of.name;
  $("about").textContent = `${of.backend} · ${of.trust.era} · ${plural(of.count, "buffer")} · ${plural(of.steps, "instruction")}`;
  const at = state.step < of.steps ? of.sequence[state.step] : "after the last instruction";
  const alive = of.total(state.space, state.step);
  $("moment").textContent = !peak ? "" : state.step === peak.step
    ? `The peak: ${formatBytes(peak.size)} alive at step ${state.step}, ${shorten(at)}.`
    : `${formatBytes(alive)} alive at step ${state.step}, ${shorten(at)}: ${formatBytes(peak.size - alive)} below the peak (${formatBytes(peak.size)} at step ${peak.step}).`;
  $("no-bands").hidden = of.bands.length > 0 || of.trust.has_module || !peak;
  $("no-bands").textContent = "No loop or branch shows in the dump; with the module's text its computations are drawn here.";
  $("selected").textContent = state.selected === NONE ? "" : describe(of, state.selected).join(" · ");
}

/** A buffer in words: what, where, when, why. */
function describe(of, i) {
  const { size, padding, offset, allocation, start, end, last_use: last } = of.buffers, b = of.buffers;
  const lines = [`${shorten(of.nameOf(i))}  ${formatBytes(size[i])}  ${shorten(of.text(b.shape[i]))}`];
  const role = of.roleNames[b.role[i]];
  lines.push(`${role}${b.parameter[i] === NONE ? "" : `: ${shorten(of.text(b.parameter[i]))}`}`);
  if (b.op_name[i] !== NONE) lines.push(shorten(of.text(b.op_name[i])));
  if (b.source[i] !== NONE) lines.push(shorten(of.text(b.source[i])));
  if (padding[i]) lines.push(`${formatBytes(padding[i])} of it padding (${percent(padding[i], size[i])})`);
  lines.push(`allocation ${allocation[i]}, bytes ${offset[i]} to ${offset[i] + size[i]}`);
  if (start[i] !== NONE) {
    const born = start[i] < of.steps ? of.sequence[start[i]] : "the end";
    lines.push(`born at step ${start[i]} (${shorten(born, 60)}), alive to step ${end[i]}`);
    lines.push(end[i] >= of.steps ? "still alive at the end: the caller gets it, or owns it"
      : last[i] === NONE ? "nothing reads it" : `last read by ${shorten(of.text(last[i]), 80)}`);
  }
  return lines;
}

function showTip(event, lines) {
  const tip = $("tip");
  tip.replaceChildren(element("div", lines[0]), ...lines.slice(1).map((line) => element("small", line)));
  tip.hidden = false;
  const { offsetWidth: wide, offsetHeight: tall } = tip;
  tip.style.left = `${Math.max(4, Math.min(innerWidth - wide - 8, event.clientX + 14))}px`;
  tip.style.top = `${event.clientY + tall + 20 > innerHeight ? Math.max(4, event.clientY - tall - 12) : event.clientY + 14}px`;
}

function drawTrust() {
  const { trust } = report(), list = $("trust"), { verdict } = trust;
  list.replaceChildren();
  const say = (term, ...texts) => {
    list.append(element("dt", term));
    const cell = element("dd");
    for (const text of texts) cell.append(element("div", text));
    list.append(cell);
  };
  if (trust.is_planned) say("planned by", "hlomem, from the module's text, as XLA would");
  else say("read from", ...trust.files, trust.has_module ? "and the module's text" : "without the module's text: no stack frames, fewer checks");
  say("recognised as", `${trust.era}, ${report().backend}`);
  const errors = verdict ? verdict.findings.length : 0;
  say("checked", !verdict ? "not for this page, the plan is very large; hlomem verify does it"
    : errors ? `${plural(errors, "finding")}: ${verdict.findings.slice(0, 3).map((each) => each.rule).join(", ")}; hlomem verify tells more`
    : `no finding: ${plural(verdict.value_count, "value")} in ${plural(verdict.allocation_count, "allocation")}, ${plural(verdict.pair_count, "pair")} that share bytes`);
  if (verdict?.not_checked.length) say("not checked", ...verdict.not_checked.slice(0, 6).map((each) => `${each.rules}: ${each.reason}`));
  if (verdict?.assumed.length) say("assumed", ...verdict.assumed);
  say("bytes alive", "replayed from live ranges; bytes that several values hold at once count once");
  say("bytes by role", "the sum of the allocations; of temporaries, at the step they need most");
  say("roles", "of parameters, outputs and constants what XLA says; of temporaries by opcode, loop and operation name");
  say("lines", trust.has_module ? "from metadata and the module's stack frames: the innermost frame outside libraries" : "from metadata: what XLA named, which may be a library's line");
  say("lower bound", "the most bytes alive at one step: no packing of these live ranges needs less");
  say("not understood", ...(trust.notes.length ? trust.notes : ["nothing: every line was read"]));
}
