// @ts-check
// The page's elements, the colours of its theme, and the tooltip.

/**
 * @param {string} id
 * @returns {HTMLElement}
 */
export function $(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return found;
}

/**
 * An input or a select.
 * @param {string} id
 */
export function field(id) {
  return /** @type {HTMLInputElement | HTMLSelectElement} */ ($(id));
}

/**
 * @param {string} tag
 * @param {string | null} [text]
 * @param {Record<string, string>} [attributes]
 */
export function element(tag, text, attributes = {}) {
  const made = document.createElement(tag);
  if (text !== undefined && text !== null) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") made.style.cssText = value;
    else made.setAttribute(key, value);
  }
  return made;
}

/** The theme's colours as canvas understands them. */
export const colours = { ink: "", soft: "", rule: "", panel: "", mark: "", paper: "" };

/** Canvas does not know light-dark(): an element tells what it resolves to. */
export function readTheme() {
  const probe = $("tip");
  const before = probe.style.color;
  for (const name of /** @type {(keyof typeof colours)[]} */ (Object.keys(colours))) {
    probe.style.color = `var(--${name})`;
    colours[name] = getComputedStyle(probe).color;
  }
  probe.style.color = before;
}

export function fontSize() {
  return parseFloat(getComputedStyle(document.documentElement).fontSize);
}

/**
 * @param {MouseEvent} event
 * @param {string[]} lines
 */
export function showTip(event, lines) {
  const tip = $("tip");
  const rest = lines.slice(1).map((line) => element("small", line));
  tip.replaceChildren(element("div", lines[0]), ...rest);
  tip.hidden = false;
  const { offsetWidth: wide, offsetHeight: tall } = tip;
  const left = Math.min(innerWidth - wide - 8, event.clientX + 14);
  const isBelow = event.clientY + tall + 20 <= innerHeight;
  const top = isBelow ? event.clientY + 14 : Math.max(4, event.clientY - tall - 12);
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${top}px`;
}

export function hideTip() {
  $("tip").hidden = true;
}

/**
 * @param {string} text
 * @returns {Promise<boolean>} whether the browser let us
 */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelection(text); // the clipboard is not there everywhere, not in frames
  }
}

/** @param {string} text */
function copySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  return isDone;
}

/**
 * JSON, compressed and written in base64.
 * @param {string} base64
 * @returns {Promise<any>}
 */
export async function inflate(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}
