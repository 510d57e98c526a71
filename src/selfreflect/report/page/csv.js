/** Write tables as CSV that is safe to open in a spreadsheet, by the rules of `text.py`. */

import { element, visible } from "./dom.js";

/** Where a cell of a spreadsheet begins that would run; some cut a line at semicolons or tabs, and a text at its line feeds. */
const FORMULA = /^(?=[\t\r\n])|(?:^|(?<=[;\t\r\n]))(?=(?:[^\S\t\r\n]|")*[=+\-@＝＋－＠])/gu;

/** Write RFC 4180. What a spreadsheet would run as a formula gets an apostrophe before it; null is empty. */
export const toCsv = (rows) => rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";

function cell(value) {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const text = visible(value.replace(FORMULA, "'"));
  return /[",\r\n]/u.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Let the reader save a text as a file. */
export function save(name, text) {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" })), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
