// @ts-check
// What would save memory: changes that were planned, and possible ones, with the code to type.

import { $, copyText, element } from "./dom.js";
import { formatBytes, percent, spaceLabel } from "./formats.js";
import { report, space } from "./state.js";

/** @import { Advice, AdviceReport, FittingSet, Hint } from "./data.d.ts" */

const NOTHING = "Nothing was found that would save more than 1 %.";
const UNTRIED = "Upper bounds: no change was tried for this page; hlomem advise tries them.";

export function drawAdvice() {
  const { advice } = report();
  const hints = space().hints;
  $("advice-note").textContent = advice ? summary(advice) : hints.length ? UNTRIED : NOTHING;
  $("advice").replaceChildren(
    ...(advice?.together ? [drawTogether(advice.together, advice.size)] : []),
    ...(advice ? advice.advice.map((row) => drawCard(row, advice.size)) : hints.map(drawHint)),
  );
}

/** @param {AdviceReport} report */
function summary({ advice: rows, notes, space: name }) {
  if (!rows.length) return [NOTHING, ...notes].join(" ");
  const [first] = rows;
  const of = tried(first) ? ` of ${spaceLabel(name)}` : "";
  const saved = `${first.title}: ${range(first)}${of}.`;
  return [saved, ...notes.map((note) => `Note: ${note}.`)].join(" ");
}

/**
 * The changes that were compiled together, as one card.
 * @param {FittingSet} set
 * @param {number} whole
 */
function drawTogether(set, whole) {
  const limit = set.limit === null ? "" : ` ${set.limit_name || formatBytes(set.limit)}`;
  const verdict =
    set.limit === null ? "needs" : set.fits ? `fits${limit}:` : `does not fit${limit}:`;
  const card = element("article", null, { class: "card" });
  card.append(
    element("h3", set.titles.join("; ") || "no change"),
    element(
      "p",
      `${verdict} ${formatBytes(set.size)}, ${formatBytes(whole - set.size)} less, compiled`,
    ),
    ...(set.cost ? [element("p", `costs: ${set.cost}`, { class: "hint" })] : []),
    ...(set.how ? [drawCode(set.how)] : []),
  );
  return card;
}

/** @param {Advice} advice */
function tried({ least, got }) {
  return least !== null || got !== null;
}

/** @param {Advice} advice */
function range({ least, most, got }) {
  if (got !== null) return `got ${formatBytes(got)}`;
  if (least === null || most === null) return "possible, not tried";
  const all = formatBytes(most);
  return least === most ? `saves ${all}` : `saves ${formatBytes(least)} to ${all}`;
}

/**
 * @param {Advice} advice
 * @param {number} whole
 */
function drawCard(advice, whole) {
  const card = element("article", null, { class: "card" });
  const middle = advice.got ?? ((advice.least ?? 0) + (advice.most ?? 0)) / 2;
  const bar = element("div", null, { class: "saving", role: "img", "aria-label": range(advice) });
  bar.append(element("i", null, { style: `width:${percent(middle, whole).replace(" ", "")}` }));
  const planned = advice.method === "re-planned";
  const method = planned ? `; two plans compared, ${advice.confidence} confidence` : "";
  card.append(
    element("h3", advice.title),
    ...(tried(advice) ? [bar] : []),
    element("p", `${range(advice)}${advice.got === null ? method : ", compiled"}`),
    element("p", `costs: ${advice.cost}`, { class: "hint" }),
    drawCode(advice.how),
  );
  return card;
}

/** @param {string} code */
export function drawCode(code) {
  const shown = element("div", null, { class: "code" });
  const button = element("button", "copy", { type: "button" });
  button.addEventListener("click", async () => {
    button.textContent = (await copyText(code)) ? "copied" : "the browser does not allow it";
  });
  shown.append(element("pre", code, { tabindex: "0" }), button);
  return shown;
}

/** @param {Hint} hint */
function drawHint(hint) {
  const card = element("article", null, { class: "card" });
  card.append(element("h3", `at most ${formatBytes(hint.size)}`), element("p", hint.what));
  if (hint.command) card.append(element("code", `hlomem ${hint.command}`));
  return card;
}
