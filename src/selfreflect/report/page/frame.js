/** What every page does: read its data, save tables as CSV, sort tables, and show one of several parts. */

import { save } from "./csv.js";
import { pairs } from "./dom.js";

/** Decode a script block of this page: base64 of gzipped JSON. */
export async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** Let every CSV button of the page save its table. */
export function offerCsv(csv) {
  for (const button of document.querySelectorAll("button[data-csv]")) {
    button.disabled = false;
    button.addEventListener("click", () => save(`${button.dataset.csv}.csv`, csv[button.dataset.csv]));
  }
}

/** Let each menu `menus` show the parts of its `home` whose `data-NAME` it has chosen. */
export function chooseParts(menus, home, name) {
  for (const menu of document.querySelectorAll(menus)) {
    menu.addEventListener("change", () => {
      for (const part of menu.closest(home).querySelectorAll(`[data-${name}]`)) part.hidden = part.dataset[name] !== menu.value;
    });
  }
}

/** Turn the headings of tables into buttons that sort: numbers by all their digits, texts by their letters; undefined values come last. */
export function sortTables() {
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const [place, heading] of [...table.tHead.rows[0].cells].entries()) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      button.addEventListener("click", () => sortBy(table, place, heading));
      heading.append(button);
    }
  }
}

/** Let narrow screens show every other table as pairs; one that sorts needs its headings. */
export const pairTables = () => document.querySelectorAll(".scroll > table:not(.sortable)").forEach(pairs);

function sortBy(table, place, heading) {
  const descending = heading.ariaSort ? heading.ariaSort === "ascending" : heading.classList.contains("number");
  for (const cell of table.tHead.rows[0].cells) cell.removeAttribute("aria-sort");
  heading.ariaSort = descending ? "descending" : "ascending";
  const numeric = heading.classList.contains("number");
  const value = (row) => {
    const cell = row.cells[place];
    if (!numeric) return cell.textContent;
    return "value" in cell.dataset ? Number(cell.dataset.value) : null;
  };
  const sign = descending ? -1 : 1;
  const compared = (a, b) => (numeric ? a - b : a.localeCompare(b));
  const rows = [...table.tBodies[0].rows].map((row) => [value(row), row]);
  rows.sort(([a], [b]) => (a === null) - (b === null) || sign * compared(a, b));
  table.tBodies[0].append(...rows.map(([, row]) => row));
}

/** Let each slider of risks choose the sentence that is shown, and the diamond in the figure. */
export function chooseRisks() {
  for (const group of document.querySelectorAll(".risks")) {
    const slider = group.querySelector("input");
    const sentences = [...group.querySelectorAll(".risk")];
    const show = () => {
      sentences.forEach((sentence, index) => (sentence.hidden = index !== Number(slider.value)));
      const { risk } = sentences[slider.value].dataset;
      for (const mark of group.parentNode.querySelectorAll("[data-choice]")) mark.classList.toggle("faint", mark.dataset.choice !== risk);
      slider.setAttribute("aria-valuetext", sentences[slider.value].textContent);
    };
    slider.disabled = false;
    slider.addEventListener("input", show);
    show();
  }
}
