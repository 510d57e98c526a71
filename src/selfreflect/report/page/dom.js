/** Build elements from untrusted data: text becomes text nodes, and characters that hide or reorder text are shown as escapes. */

/** The characters at which Python's `str.split()` splits; `\s` is another set. */
const SPACE = "\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
const WORD = new RegExp(`[^${SPACE}]+`, "gu");

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;
const KEPT = new Set(["\n", "\t", "\u200c", "\u200d"]);

/** Find the words of a text as the metric counts them, each with its `index`. */
export const wordsOf = (text) => [...text.matchAll(WORD)];

/** Show control characters, bidirectional overrides and other invisible characters as `\x1b`, `\u202e`, … */
export function visible(text) {
  return text.replaceAll("\r\n", "\n").replace(HIDDEN, (character) => (KEPT.has(character) ? character : escaped(character)));
}

function escaped(character) {
  const code = character.codePointAt(0);
  const [mark, width] = code < 0x100 ? ["x", 2] : code < 0x10000 ? ["u", 4] : ["U", 8];
  return `\\${mark}${code.toString(16).padStart(width, "0")}`;
}

/** Keep a percent sign on the line of its number. */
export const unbroken = (text) => text.replaceAll(" %", "\u00a0%");

/**
 * Create an element with attributes, listeners (`onclick: function`) and children. Strings become text nodes, those of the page itself
 * (outside `bdi`) with `unbroken` shares; null and false are skipped.
 */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  const own = (child) => (typeof child === "string" && tag !== "bdi" ? unbroken(child) : child);
  node.append(...children.flat().filter((child) => child !== null && child !== false).map(own));
  return node;
}

/** Name the cells of a table by their headings, for narrow screens, and keep the roles that their layout takes away. Returns the table. */
export function pairs(table) {
  const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent);
  table.classList.add("pairs");
  table.setAttribute("role", "table");
  for (const part of [table.tHead, ...table.tBodies]) part.setAttribute("role", "rowgroup");
  for (const row of table.rows) {
    row.setAttribute("role", "row");
    const heading = row.parentNode === table.tHead ? "columnheader" : "rowheader";
    for (const cell of row.cells) {
      cell.setAttribute("role", cell.tagName === "TD" ? "cell" : heading);
      cell.dataset.label = names[cell.cellIndex];
    }
  }
  return table;
}

/** Set CSS variables. A strict Content-Security-Policy forbids style attributes but not this. */
export function styled(node, variables) {
  for (const [name, value] of Object.entries(variables)) node.style.setProperty(name, String(value));
  return node;
}

/** Show untrusted text as a label: on one line, isolated from the surrounding text direction, cut to `limit` characters. */
export function label(text, limit = 200) {
  return element("bdi", {}, cut(visible(text).replace(/\s+/gu, " ").trim() || "(blank)", limit));
}

/** Show untrusted text in full with its line ends; text beyond `limit` characters is behind a button. */
export function prose(text, limit = 4000) {
  if (text.trim() === "") return element("span", { class: "quiet" }, "(blank)");
  const node = element("bdi", { class: "prose" }, visible(cut(text, limit)));
  if (text.length <= limit) return node;
  const more = element("button", { type: "button", class: "small" }, `show all ${text.length.toLocaleString("en")} characters`);
  more.addEventListener("click", () => {
    node.textContent = visible(text);
    more.remove();
  });
  return element("span", {}, node, " ", more);
}

/** Cut to at most `limit` characters, ending in an ellipsis; never half a surrogate pair. */
export function cut(text, limit) {
  if (text.length <= limit) return text;
  const end = limit - 1;
  const code = text.charCodeAt(end - 1);
  return text.slice(0, code >= 0xd800 && code < 0xdc00 ? end - 1 : end) + "…";
}
