/** Show bits: the words that a summary covered, missed or misled about, and the shares of summaries and controls. Types are those of `question.js`. */

import { cut, element, label, styled, visible, wordsOf } from "./dom.js";

export const WORD_LIMIT = 300;
const KINDS = ["covered", "missed", "misleading"];
const MEANINGS = {
  covered: "the summary says it, or made it more believable",
  missed: "the answers say it, the summary does not",
  misleading: "the summary made it less believable",
};

/** Format bits as `7.2` or `-6.6`. */
export const bitsText = (bits) => (Math.abs(bits) < 0.05 ? "0.0" : bits.toFixed(1));

/** Format a share as `56 %`. */
export const shareText = (share) => `${Math.round(100 * share) || 0} %`;

/** Average over answers: bits told and available; null if none of them was measured. */
export function meanBits(bits, answers) {
  const measured = answers.filter((answer) => (bits.told[answer] ?? []).length > 0);
  if (measured.length === 0) return null;
  const mean = (tenths) => measured.reduce((total, answer) => total + tenths[answer].reduce((sum, value) => sum + value, 0), 0) / measured.length / 10;
  return { told: mean(bits.told), available: mean(bits.available) };
}

/** Read a mark's code: its kind, "" for a plain word, and its strength from 0 to 1. */
function markOf(code) {
  return code === 0 ? { kind: "", level: 0 } : { kind: KINDS[Math.floor((code - 1) / 10)], level: ((code - 1) % 10 + 1) / 10 };
}

/** Say bits beside those of the sampled answers, as `7.2 of 7.9 bits`; `12.0 of 8.3` would look like an error, and so would parts of less than nothing. */
export function bitsBeside(told, available) {
  const [bits, all] = [bitsText(told), bitsText(available)];
  return bits !== all && (available <= 0 || told > available || told < 0) ? `${bits} bits; the answers ${all}` : `${bits} of ${all} bits`;
}

/** Show one word; a marked one is a button. */
export function markButton(text, bits, { id, answer, word }) {
  const content = cut(visible(text), WORD_LIMIT);
  const { kind, level } = markOf(bits.marks[answer]?.[word] ?? 0);
  if (kind === "") return content;
  const phrase = `${kind}: ${bitsBeside(bits.told[answer][word] / 10, bits.available[answer][word] / 10)}`;
  const button = element(
    "button",
    {
      type: "button",
      class: `word mark ${kind}`,
      id,
      "data-answer": answer,
      "data-word": word,
      "data-kind": kind,
      "data-tip": phrase,
      "aria-expanded": "false",
      "aria-label": `${cut(content, 60)}, ${phrase}`,
    },
    content,
  );
  return styled(button, { "--level": level });
}

/** Say what the bits of one word do to its probability. */
export function wordFactors(text, bits, answer, word) {
  const told = times(bits.told[answer][word] / 10);
  const available = times(bits.available[answer][word] / 10);
  return ["For the judge, the summary makes “", label(text, 60), `” ${told}; the sampled answers make it ${available}.`];
}

function times(bits) {
  const factor = 2 ** Math.abs(bits);
  if (factor < 1.05) return "neither more nor less likely";
  const count = factor < 9.5 ? factor.toFixed(1) : Math.round(factor).toLocaleString("en");
  return bits < 0 ? `${count} times less likely` : `${count} times as likely`;
}

/** Explain the three marks in words. */
export function bitsLegend() {
  const items = KINDS.map((kind) =>
    element("li", {}, styled(element("span", { class: `mark ${kind}` }, kind), { "--level": 0.7 }), ` ${MEANINGS[kind]}`),
  );
  return element("ul", { class: "legend" }, items, element("li", {}, "plain words: neither covers them"));
}

/** The ends of the axis on which all shares of a question fit, from 0 to 1 at least. */
export function shareScale(view) {
  const intervals = view.summaries.map((summary) => summary.information).filter((information) => information !== null && information.recovered !== null);
  const ends = intervals.flatMap(({ recovered, interval }) => [recovered, ...(interval ?? [])]);
  return [Math.max(-2, Math.min(0, ...ends)), Math.min(3, Math.max(1, ...ends))];
}

/** Draw a share between 0 and 100 %, its interval as a band and itself as a mark. */
export function shareRange({ recovered, interval }, [start, end]) {
  const place = (share) => ((Math.min(Math.max(share, start), end) - start) / (end - start)).toFixed(4);
  const [low, high] = interval ?? [recovered, recovered];
  const places = { "--low": place(low), "--high": place(high), "--at": place(recovered), "--zero": place(0), "--full": place(1) };
  return styled(element("div", { class: "range share", "aria-hidden": "true" }), places);
}

/** Compare summaries and controls of one question, those that recover most first. Null without controls. */
export function controlTable(view, scoreText) {
  if (!view.controls.some((control) => control.recovered !== null || control.score !== null)) return null;
  const rows = view.summaries
    .filter((summary) => summary.score !== null || summary.information !== null)
    .map((summary) => ({ ...summary, words: summary.text === null ? null : wordsOf(summary.text).length, recovered: summary.information?.recovered ?? null, control: false }));
  const measured = view.controls.filter((control) => control.recovered !== null || control.score !== null);
  rows.push(...measured.map((control) => ({ ...control, control: true })));
  const informed = rows.some((row) => row.recovered !== null);
  const scored = rows.some((row) => row.score !== null);
  rows.sort((a, b) => (a.recovered === null) - (b.recovered === null) || b.recovered - a.recovered || (a.score ?? 2) - (b.score ?? 2));
  const heads = ["text", "words", ...(informed ? ["recovered"] : []), ...(scored ? ["SelfReflect"] : [])];
  const body = rows.map((row) =>
    element(
      "tr",
      { class: row.control ? "control" : null },
      element("th", { scope: "row" }, label(row.name, 60), row.control ? [" ", element("span", { class: "tag" }, "control")] : null, beatsNote(row)),
      element("td", { class: "number" }, row.words === null ? "–" : `${row.words}`),
      informed ? element("td", { class: "number" }, row.recovered === null ? "–" : shareText(row.recovered)) : null,
      scored ? element("td", { class: "number" }, row.score === null ? "–" : scoreText(row.score)) : null,
    ),
  );
  const head = element("tr", {}, heads.map((name, place) => element("th", { scope: "col", class: place > 0 ? "number" : null }, name)));
  const table = element("table", { class: "beside" }, element("thead", {}, head), element("tbody", {}, body));
  const zero = measured.some((control) => control.name === "empty" && control.recovered === 0); // not so in earlier versions
  const note = `Controls are texts that are not summaries. ${zero ? "The empty text is 0 %. " : ""}100 % is a list of the different answers, with their counts if these help the judge. Pasted answers show what length alone brings.`;
  return element(
    "section",
    {},
    element("h3", {}, "Beside controls"),
    element("p", { class: "quiet" }, note),
    element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Summaries and controls" }, table),
  );
}

/** A control that is no pasted answer should recover less than any summary; say so if it does not. */
function beatsNote(row) {
  if (!row.control || row.pasted > 0 || row.beats.length === 0) return null;
  const names = row.beats.flatMap((name, place) => (place === 0 ? [label(name, 40)] : [", ", label(name, 40)]));
  return element("p", { class: "warning" }, "recovers more than ", names);
}
