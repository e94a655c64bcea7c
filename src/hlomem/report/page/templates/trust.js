// @ts-check
// The basis of the numbers.

import { $, element } from "./dom.js";
import { plural } from "./formats.js";
import { report } from "./state.js";

/** @import { Trust, Verdict } from "./data.d.ts" */

/** @type {[term: string, text: string][]} */
const METHODS = [
  ["bytes alive", "replayed from live ranges; shared bytes count once"],
  ["bytes by role", "the sum of the allocations, distributed over roles at the peak"],
  [
    "roles",
    "parameters, outputs and constants as XLA declares them; temporaries by opcode, loop and " +
      "operation name",
  ],
];
const LOWER_BOUND = "the peak of live bytes, which every packing of these live ranges needs";

export function drawTrust() {
  const { trust, backend } = report();
  const { verdict, notes } = trust;
  $("trust").replaceChildren();
  say(trust.is_planned ? "planned by" : "read from", ...origin(trust));
  say("recognised as", `${trust.era}, ${backend}`);
  say("checked", checked(verdict));
  const unchecked = (verdict?.not_checked ?? []).slice(0, 6);
  if (unchecked.length) {
    say("not checked", ...unchecked.map(({ rules, reason }) => `${rules}: ${reason}`));
  }
  if (verdict?.assumed.length) say("assumed", ...verdict.assumed);
  for (const [term, text] of METHODS) say(term, text);
  say("lines", lines(trust));
  say("lower bound", LOWER_BOUND);
  say("not understood", ...(notes.length ? notes : ["nothing: every line was understood"]));
}

/**
 * @param {string} term
 * @param {...string} texts
 */
function say(term, ...texts) {
  const cell = element("dd");
  cell.append(...texts.map((text) => element("div", text)));
  $("trust").append(element("dt", term), cell);
}

/** @param {Trust} trust */
function origin({ is_planned: isPlanned, files, has_module: hasModule }) {
  if (isPlanned) return ["hlomem, from the module's text, as XLA would"];
  const module = hasModule
    ? "and the module's text"
    : "without the module's text: no stack frames, fewer checks";
  return [...files, module];
}

/** @param {Verdict | null} verdict */
function checked(verdict) {
  if (!verdict) return "skipped, since the plan is very large; use hlomem verify";
  const { findings } = verdict;
  if (findings.length) {
    const rules = findings.slice(0, 3).map((finding) => finding.rule);
    return `${plural(findings.length, "finding")}: ${rules.join(", ")}; see hlomem verify`;
  }
  const values = plural(verdict.value_count, "value");
  const allocations = plural(verdict.allocation_count, "allocation");
  const pairs = plural(verdict.pair_count, "pair");
  return `no finding: ${values} in ${allocations}, ${pairs} that share bytes`;
}

/** @param {Trust} trust */
function lines({ has_module: hasModule }) {
  return hasModule
    ? "from metadata and the module's stack frames: the innermost frame outside libraries"
    : "from metadata: the line recorded by XLA, possibly of a library";
}
