/**
 * Show one question: its answers in groups, its summaries with their scores, and the masked-out answers with words coloured by distance.
 * Needs only `dom.js`. Every text is treated as hostile and only becomes a text node.
 *
 * Use: `import { questionPanel } from "./question.js"`, with `style.css` on the page. All exported functions return new elements and keep
 * no other state, so a page that shows progress can call `answerGroups(view)` and `summaryCards(view)` for every event, and
 * `questionPanel(view, options)` once there are scores. Headings start at level 3; the page itself shows the question. Nothing sets a
 * style attribute or an inline handler, so `style-src` and `script-src` need no 'unsafe-inline'.
 *
 * The data are plain JSON from `selfreflect.report.page.view.question_view` (Python). Every field is always present.
 *
 * @typedef {Object} QuestionView
 * @property {string} id
 * @property {string} text          The question.
 * @property {string} kind          Its category; "" if unknown.
 * @property {string[]} answers     All sampled answers of both halves, in sampling order.
 * @property {number} masked        How many of the first `answers` are masked-out; the others are conditioning answers.
 * @property {number[][]} groups    Groups of equal answers, as indices into `answers`; a typical one first, the largest group first.
 * @property {number[][]} words     The masked words of each masked-out answer, as indices into its words (Python's `split()`).
 * @property {SummaryView[]} summaries
 *
 * @typedef {Object} SummaryView
 * @property {string} name          The strategy.
 * @property {?string} text         null if there is no summary.
 * @property {?number} score        0 is perfect, 1 is worst; null if there is none.
 * @property {?number} stderr       Its standard error over masked-out answers; null if undefined.
 * @property {?number[]} interval   95% interval [low, high] of the score; null if undefined.
 * @property {?number} temperature  The judge's temperature; 5 by default.
 * @property {?number} tasks        Number of token tasks in the score.
 * @property {?number[]} estimate   [words scored, all words] for an estimate; null for an exact score.
 * @property {string} why           Why the score is missing; "" if it is not missing or the reason is unknown.
 * @property {string[]} warnings
 * @property {?(?number)[][]} distances  In thousandths, aligned with `words`; null for a word that was not measured. null if the score
 *                                       was stored without words.
 * @property {?TokenView[][][]|true} guesses  For each judge token of each of the `words` of each masked-out answer; true if they must be
 *                                       requested by `guessesOf`, null if nothing was recorded.
 *
 * @typedef {[number, GuessView[]]} TokenView  The token's distance in thousandths, and likely tokens in its place.
 * @typedef {[string, number, number, number, number]} GuessView  Token; probability after the summary at temperature 1 and at the judge's
 *                                       temperature, then the same after the conditioning answers.
 *
 * @typedef {Object} PanelOptions
 * @property {string} [chosen]      Name of the summary to show first.
 * @property {(name: string) => void} [onChoose]  Called when the reader chooses another summary.
 * @property {HTMLElement} [grouping]  Placed below the heading of the answers; the panel's `regroup(groups)` shows other groups.
 * @property {(summary: number, answer: number) => Promise<Object<string, TokenView[]>>} [guessesOf]  Tokens by the index of the word.
 * @property {() => (string|Node)[]} [unrecorded]  What to say if nothing was recorded.
 */

import { cut, element, label, prose, styled, visible, wordsOf } from "./dom.js";

const SHOWN_GROUPS = 6;
const BAR_TEXT = 80;
const WORD_LIMIT = 300;
let panels = 0;

/** Format thousandths as `0.093`. */
export const distanceText = (thousandths) => (thousandths / 1000).toFixed(3);

/** Format a score. */
export const scoreText = (score) => score.toFixed(4);

/** Find the end of the colour scale: the largest distance of a word under any summary, in thousandths, at least 1. */
export function scaleOf(view) {
  let largest = 1;
  for (const summary of view.summaries) {
    for (const distance of (summary.distances ?? []).flat()) largest = Math.max(largest, distance ?? 0);
  }
  return largest;
}

/** Show everything about one question: groups, summaries, and the words under one summary or two side by side. */
export function questionPanel(view, options = {}) {
  const measured = view.summaries.filter((summary) => summary.distances !== null);
  const panel = element("div", { class: "question-panel" });
  const state = { chosen: measured.find((summary) => summary.name === options.chosen) ?? measured[0] ?? null, beside: null };
  const bars = element("div", {});
  const groups = element("section", {}, element("h3", {}, "Sampled answers"), options.grouping ?? null, bars);
  const words = element("div", { class: "columns" });
  const redraw = () => {
    bars.replaceChildren(answerGroups(view, state.chosen));
    const summaries = [state.chosen, state.beside].filter((summary) => summary !== null);
    words.replaceChildren(...summaries.map((summary) => maskedAnswers(view, summary, options)));
  };
  redraw();
  panel.regroup = (groups) => {
    view.groups = groups;
    redraw();
  };
  const two = element("div", { class: "two-parts" }, groups, element("section", {}, summaryCards(view)));
  panel.append(two);
  if (state.chosen === null) return panel;
  const choose = (summary) => {
    state.chosen = summary;
    redraw();
    options.onChoose?.(summary.name);
  };
  const beside = (summary) => {
    state.beside = summary;
    redraw();
  };
  panel.append(
    element(
      "section",
      {},
      element("h3", {}, "What each summary missed"),
      element(
        "p",
        { class: "quiet" },
        "The judge predicts one masked word at a time, in answers that it has not seen, once after reading the summary and once after reading ",
        "other answers. A word’s distance is how far apart the two predictions are: 0 is perfect. Words without colour are not masked.",
      ),
      element("div", { class: "controls" }, chooser(measured, state.chosen, choose), measured.length > 1 ? besideChooser(measured, beside) : null),
      legend(scaleOf(view)),
      words,
      wordTable(view, measured),
    ),
  );
  return panel;
}

/** Show groups of answers, the largest first, with counts as bars and their mean distance under `summary`. No heading. */
export function answerGroups(view, summary = null) {
  const total = view.answers.length;
  const groups = view.groups.length;
  if (total === 0) return element("p", { class: "quiet" }, "There are no answers.");
  const measured = summary !== null && summary.distances !== null;
  const about = `${total} sampled answer${total === 1 ? "" : "s"} in ${groups} group${groups === 1 ? "" : "s"}`;
  const note = element("p", { class: "quiet" }, about);
  if (measured) note.append("; on the right, the mean distance of their words under ", label(summary.name));
  const list = element("ol", { class: "groups" });
  const show = (groups) => list.append(...groups.map((members) => groupItem(view, members, measured ? summary : null)));
  show(view.groups.slice(0, SHOWN_GROUPS));
  const block = element("div", {}, note, list);
  const rest = view.groups.slice(SHOWN_GROUPS);
  if (rest.length > 0) {
    const more = element("button", { type: "button", class: "small" }, `show ${rest.length} more`);
    more.addEventListener("click", () => {
      show(rest);
      more.remove();
    });
    block.append(more);
  }
  return block;
}

function groupItem(view, members, summary) {
  const total = view.answers.length;
  const distance = summary === null ? null : meanOf(members.flatMap((member) => summary.distances[member] ?? []));
  const share = `${Math.round((100 * members.length) / total)}%`;
  const level = distance === null ? {} : { "--level": (distance / scaleOf(view)).toFixed(3) };
  const chip = element("span", { class: distance === null ? "chip quiet" : "chip heat" }, distance === null ? "–" : distanceText(distance));
  const item = element(
    "li",
    {},
    element("span", { class: "what", dir: "auto" }, label(view.answers[members[0]], BAR_TEXT)),
    element("span", { class: "count" }, `${members.length}`, element("span", { class: "quiet" }, ` · ${share}`)),
    summary === null ? null : styled(chip, level),
    styled(element("span", { class: "bar", "aria-hidden": "true" }), { "--share": (members.length / total).toFixed(3) }),
  );
  const spellings = counted(members.map((member) => view.answers[member]));
  const text = view.answers[members[0]];
  if (spellings.size > 1) item.append(spellingList(spellings));
  else if (text.length > BAR_TEXT) item.append(element("details", { class: "spellings" }, element("summary", {}, "full text"), prose(text)));
  return item;
}

function spellingList(spellings) {
  const items = [...spellings].map(([text, count]) => element("li", { dir: "auto" }, label(text, 300), count > 1 ? ` × ${count}` : ""));
  return element("details", { class: "spellings" }, element("summary", {}, `${spellings.size} spellings`), element("ul", {}, items));
}

/** Show a card for each summary: its score with interval, its text, and warnings. */
export function summaryCards(view) {
  const heading = element("h3", {}, "Summaries and their scores");
  const note = element("p", { class: "quiet" }, "0 is perfect, lower is better; with 95% intervals");
  const end = Math.max(1e-9, ...view.summaries.map((summary) => summary.interval?.[1] ?? summary.score ?? 0));
  const scored = view.summaries.filter((summary) => summary.score !== null);
  const shared = (scored[0]?.warnings ?? []).filter((warning) => scored.every((summary) => summary.warnings.includes(warning)));
  const cards = view.summaries.map((summary) => summaryCard(summary, end, shared));
  return element("div", {}, heading, note, shared.map(warningLine), element("div", { class: "cards" }, cards));
}

const warningLine = (text) => element("p", { class: "warning" }, label(text, 500));

function summaryCard(summary, end, shared) {
  const figure =
    summary.score === null
      ? element("span", { class: "score none" }, "no score")
      : element("span", { class: "score" }, `${summary.estimate ? "≈ " : ""}${scoreText(summary.score)}`);
  const card = element("article", { class: "card" }, element("header", {}, element("h4", {}, label(summary.name)), figure));
  if (summary.score !== null) card.append(scoreRange(summary, end), element("p", { class: "facts" }, scoreFacts(summary)));
  if (summary.why) card.append(warningLine(summary.why));
  card.append(
    element("p", { class: "summary-text", dir: "auto" }, summary.text === null ? element("span", { class: "quiet" }, "no summary") : prose(summary.text)),
  );
  card.append(...summary.warnings.filter((warning) => !shared.includes(warning)).map(warningLine));
  return card;
}

function scoreRange(summary, end) {
  const [low, high] = summary.interval ?? [summary.score, summary.score];
  const places = { "--low": (low / end).toFixed(4), "--high": (high / end).toFixed(4), "--at": (summary.score / end).toFixed(4) };
  return styled(element("div", { class: "range", "aria-hidden": "true" }), places);
}

function scoreFacts(summary) {
  const interval = summary.interval ? `${scoreText(summary.interval[0])} to ${scoreText(summary.interval[1])}` : "no interval with one answer";
  const facts = [interval];
  if (summary.tasks !== null) facts.push(`${summary.tasks} token tasks`);
  if (summary.estimate) facts.push(`≈ estimated from ${summary.estimate[0]} of ${summary.estimate[1]} masked words`);
  return facts.join(" · ");
}

/** Explain the colours: steps from 0 to the largest distance of this question, each with its number and underline. */
export function legend(scale) {
  const steps = [0, 0.25, 0.5, 0.75, 1];
  const chips = steps.map((step) => styled(element("span", { class: "heat step" }, distanceText(step * scale)), { "--level": step }));
  return element("p", { class: "legend" }, element("span", {}, "well predicted"), ...chips, element("span", {}, "missed"));
}

/** Show the masked-out answers under one summary, in the order of the bars: every masked word is a button with its distance. */
export function maskedAnswers(view, summary, options = {}) {
  const scale = scaleOf(view);
  const list = element("ol", { class: "masked" });
  const section = element("section", { class: "under" }, element("h4", {}, "Under ", label(summary.name)), list);
  const id = `panel-${(panels += 1)}`;
  for (const index of maskedOrder(view)) list.append(answerItem(view, summary, index, scale, id));
  const words = [...list.querySelectorAll("button.word")];
  words.forEach((word, place) => (word.tabIndex = place === 0 ? 0 : -1));
  list.addEventListener("keydown", (event) => roam(event, list));
  list.addEventListener("click", (event) => toggleGuesses(event, view, summary, options));
  attachTip(section, list);
  return section;
}

function maskedOrder(view) {
  return view.groups.flat().filter((index) => index < view.masked);
}

function answerItem(view, summary, index, scale, id) {
  const text = view.answers[index];
  const distances = new Map(view.words[index].map((word, place) => [word, summary.distances[index]?.[place] ?? null]));
  const line = element("p", { class: "answer", dir: "auto" });
  let end = 0;
  wordsOf(text).forEach((match, word) => {
    line.append(visible(text.slice(end, match.index)));
    end = match.index + match[0].length;
    const distance = distances.get(word) ?? null;
    line.append(distance === null ? cut(visible(match[0]), WORD_LIMIT) : wordButton(match[0], distance, scale, `${id}-${index}-${word}`, index, word));
  });
  const mean = meanOf(summary.distances[index] ?? []);
  const facts = mean === null ? "no word was masked" : `mean ${distanceText(mean)}`;
  return element("li", { "data-answer": index }, element("p", { class: "facts" }, `answer ${index + 1} · ${facts}`), line);
}

function wordButton(text, distance, scale, id, answer, word) {
  const content = cut(visible(text), WORD_LIMIT);
  const button = element(
    "button",
    {
      type: "button",
      class: "word heat",
      id,
      "data-answer": answer,
      "data-word": word,
      "data-distance": distanceText(distance),
      "aria-expanded": "false",
      "aria-label": `${cut(content, 60)}, distance ${distanceText(distance)}`,
    },
    content,
  );
  return styled(button, { "--level": (distance / scale).toFixed(3) });
}

/** Move with arrow keys from word to word and answer to answer; only the current word is in the tab order. */
function roam(event, list) {
  const word = event.target.closest("button.word");
  if (word === null) return;
  const words = [...list.querySelectorAll("button.word")];
  const firsts = [...list.children].map((item) => item.querySelector("button.word")).filter((first) => first !== null);
  const row = firsts.findIndex((first) => first.closest("li") === word.closest("li"));
  const targets = {
    ArrowRight: words[words.indexOf(word) + 1],
    ArrowLeft: words[words.indexOf(word) - 1],
    ArrowDown: firsts[row + 1],
    ArrowUp: firsts[row - 1],
    Home: words[0],
    End: words.at(-1),
  };
  if (!(event.key in targets)) return;
  event.preventDefault();
  const target = targets[event.key];
  if (target === undefined) return;
  word.tabIndex = -1;
  target.tabIndex = 0;
  target.focus();
}

/** Show the number of the word under the pointer or focus. Escape hides it, and the pointer may rest on it. */
function attachTip(home, list) {
  const tip = element("div", { class: "tip", role: "tooltip", hidden: true });
  home.append(tip);
  let leaving = 0;
  const hide = () => (tip.hidden = true);
  const show = (event) => {
    const word = event.target.closest("button.word");
    if (word === null) return;
    clearTimeout(leaving);
    tip.replaceChildren(element("strong", {}, word.dataset.distance), " distance · click for what the judge expected");
    tip.hidden = false;
    const [box, frame] = [word.getBoundingClientRect(), home.getBoundingClientRect()];
    const left = Math.max(0, Math.min(box.left - frame.left, frame.width - tip.offsetWidth));
    styled(tip, { left: `${left}px`, top: `${box.bottom - frame.top}px` });
  };
  const leave = () => {
    clearTimeout(leaving);
    leaving = setTimeout(hide, 150);
  };
  list.addEventListener("pointerover", show);
  list.addEventListener("focusin", show);
  list.addEventListener("pointerout", leave);
  list.addEventListener("focusout", leave);
  tip.addEventListener("pointerover", () => clearTimeout(leaving));
  tip.addEventListener("pointerout", leave);
  home.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}

function toggleGuesses(event, view, summary, options) {
  const word = event.target.closest("button.word");
  if (word === null) return;
  const item = word.closest("li");
  const open = item.querySelector(".guesses");
  const same = open?.dataset.word === word.dataset.word;
  open?.remove();
  item.querySelectorAll("[aria-expanded=true]").forEach((other) => other.setAttribute("aria-expanded", "false"));
  if (same) return;
  word.setAttribute("aria-expanded", "true");
  item.append(guesses(view, summary, Number(word.dataset.answer), Number(word.dataset.word), options));
}

/** Show what the judge expected in place of a word, token by token, after the summary and after the answers. */
function guesses(view, summary, answer, word, options) {
  const text = wordsOf(view.answers[answer])[word][0];
  const output = element("div", { class: "tokens", role: "status" });
  const show = (tokens) => output.replaceChildren(...guessTables(tokens, summary, options.unrecorded ?? unrecorded));
  if (summary.guesses === true) {
    const request = options.guessesOf(view.summaries.indexOf(summary), answer);
    request.then((tokensByWord) => show(tokensByWord[word] ?? []), (error) => output.replaceChildren(element("p", { class: "problem" }, prose(error.message))));
  } else show(summary.guesses?.[answer]?.[view.words[answer].indexOf(word)] ?? []);
  return element("div", { class: "guesses", "data-word": word }, element("h5", {}, "What the judge expected for ", label(text, 60)), output);
}

const unrecorded = () => [
  "This was not recorded in this run. Score with ",
  element("code", {}, "--guesses 5"),
  " to keep the likeliest tokens of every word.",
];

function guessTables(tokens, summary, none) {
  if (!tokens.some(([, expected]) => expected.length > 0)) return [element("p", {}, ...none())];
  return tokens.map((token, place) => guessTable(token, place, tokens.length, summary.temperature));
}

function guessTable([distance, expected], place, count, temperature) {
  const flat = `T = ${temperature ?? 5}`;
  const caption = element("caption", {}, count > 1 ? `token ${place + 1} of ${count}, ` : "", `distance ${distanceText(distance)}`);
  const group = (text) => element("th", { scope: "colgroup", colspan: 2 }, text);
  const head = element("tr", {}, element("th", { scope: "col", rowspan: 2 }, "token"), group("after the summary"), group("after the answers"));
  const sub = element("tr", {}, ["T = 1", flat, "T = 1", flat].map((name) => element("th", { scope: "col" }, name)));
  const rows = expected.map(([token, ...chances]) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, element("bdi", { class: "token" }, cut(visible(token), 60))),
      chances.map((chance) => element("td", {}, percent(chance))),
    ),
  );
  const frame = { class: "scroll", tabindex: 0, role: "region", "aria-label": `What the judge expected for token ${place + 1}` };
  return element("div", frame, element("table", {}, caption, element("thead", {}, head, sub), element("tbody", {}, rows)));
}

function percent(chance) {
  const value = 100 * chance;
  if (value > 0 && value < 0.001) return "< 0.001%";
  return `${value.toFixed(value >= 10 ? 1 : value >= 0.1 ? 2 : 3)}%`;
}

/** List all masked words: answer number, word, and distance under each summary (in thousandths, or null). */
export function wordRows(view) {
  const rows = [];
  view.words.forEach((masked, answer) => {
    const texts = wordsOf(view.answers[answer]).map((match) => match[0]);
    masked.forEach((word, place) => {
      const distances = view.summaries.map((summary) => summary.distances?.[answer]?.[place] ?? null);
      rows.push({ answer: answer + 1, word: word + 1, text: texts[word], distances });
    });
  });
  return rows;
}

function wordTable(view, measured) {
  const details = element("details", { class: "word-table" }, element("summary", {}, "Show as a table"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    const measuredColumns = view.summaries.map((summary, place) => ({ summary, place })).filter(({ summary }) => measured.includes(summary));
    const columns = ["answer", "word"].map((name) => element("th", { scope: "col" }, name));
    columns.push(...measuredColumns.map(({ summary }) => element("th", { scope: "col" }, label(summary.name))));
    const rows = wordRows(view).map((row) =>
      element(
        "tr",
        {},
        element("td", {}, `${row.answer}`),
        element("th", { scope: "row" }, label(row.text, 60)),
        measuredColumns.map(({ place }) => element("td", {}, row.distances[place] === null ? "–" : distanceText(row.distances[place]))),
      ),
    );
    const caption = element("caption", {}, "Distance of every masked word under each summary");
    const table = element("table", {}, caption, element("thead", {}, element("tr", {}, columns)), element("tbody", {}, rows));
    details.append(element("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "Distances of all words" }, table));
  });
  return details;
}

function chooser(summaries, chosen, choose) {
  const name = `summary-${(panels += 1)}`;
  const options = summaries.map((summary) => {
    const radio = element("input", { type: "radio", name, checked: summary === chosen, onchange: () => choose(summary) });
    return element("label", {}, radio, element("span", {}, label(summary.name, 40)));
  });
  return element("fieldset", { class: "segments" }, element("legend", {}, "Words coloured by"), element("div", {}, options));
}

function besideChooser(summaries, choose) {
  const options = summaries.map((summary, place) => element("option", { value: place }, cut(visible(summary.name), 40)));
  const select = element("select", {}, element("option", { value: "" }, "nothing"), options);
  select.addEventListener("change", () => choose(select.value === "" ? null : summaries[Number(select.value)]));
  return element("label", { class: "field" }, "Side by side with", select);
}

/** Average the values that are not null; null if there are none. */
export function meanOf(values) {
  const defined = values.filter((value) => value !== null);
  return defined.length === 0 ? null : defined.reduce((sum, value) => sum + value, 0) / defined.length;
}

function counted(texts) {
  const counts = new Map();
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1);
  return counts;
}
