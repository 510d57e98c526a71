/** Elements from data that nobody vouches for: text becomes text nodes, and what hides or reorders is shown as an escape. */

/** The characters at which Python's `str.split()` splits; `\s` is another set. */
const SPACE = "\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const WORD = new RegExp(`[^${SPACE}]+`, "gu");

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;
const KEPT = new Set(["\n", "\t", "\u200c", "\u200d"]);

/** Matches of the words of a text as the metric counts them, each with its `index`. */
export const wordsOf = (text) => [...text.matchAll(WORD)];

/** `text` with control characters, bidirectional overrides and other invisible characters shown as `\x1b`, `\u202e`, … */
export function visible(text) {
  return text.replaceAll("\r\n", "\n").replace(HIDDEN, (character) => (KEPT.has(character) ? character : escaped(character)));
}

function escaped(character) {
  const code = character.codePointAt(0);
  const [mark, width] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${mark}${code.toString(16).padStart(width, "0")}`;
}

/** An element with attributes, listeners (`onclick: function`) and children. Strings become text nodes; null and false are left out. */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== false));
  return made;
}

/** Set CSS variables. A strict Content-Security-Policy forbids style attributes but not this. */
export function styled(made, variables) {
  for (const [name, value] of Object.entries(variables)) made.style.setProperty(name, String(value));
  return made;
}

/** Untrusted text for a label: on one line, isolated from the direction of what surrounds it, cut to `limit` characters. */
export function label(text, limit = 200) {
  return element("bdi", {}, cut(visible(text).replace(/\s+/gu, " ").trim() || "(blank)", limit));
}

/** Untrusted text in full, with its line ends; beyond `limit` characters behind a button. */
export function prose(text, limit = 4000) {
  if (text.trim() === "") return element("span", { class: "quiet" }, "(blank)");
  const made = element("bdi", { class: "prose" }, visible(cut(text, limit)));
  if (text.length <= limit) return made;
  const more = element("button", { type: "button", class: "small" }, `show all ${text.length.toLocaleString("en")} characters`);
  more.addEventListener("click", () => {
    made.textContent = visible(text);
    more.remove();
  });
  return element("span", {}, made, " ", more);
}

/** At most `limit` characters, the last one an ellipsis where some are missing; never half a surrogate pair. */
export function cut(text, limit) {
  if (text.length <= limit) return text;
  const end = limit - 1;
  const code = text.charCodeAt(end - 1);
  return text.slice(0, code >= 0xd800 && code < 0xdc00 ? end - 1 : end) + "…";
}
