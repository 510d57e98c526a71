/**
 * Show one question: its answers in groups, its summaries with what they recover, and the test answers with words coloured by the bits
 * of them under a summary, or by their distance.
 * Needs `dom.js`, `bits.js`, `agreement.js` and `claims.js`. Every text is treated as hostile and only becomes a text node.
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
 * @property {string} context       What the model read with the question and the judge did not; "" if nothing.
 * @property {string[]} answers     All sampled answers of both halves, in sampling order.
 * @property {number} masked        How many of the first `answers` are test answers; the others are reference answers.
 * @property {number[][]} groups    Groups of equal answers, as indices into `answers`; a typical one first, the largest group first.
 * @property {number} merged        How many of the groups' merges were made by hand.
 * @property {?Object} claims      Of long answers, see `claims.js`; null for short ones.
 * @property {number[][]} words     The masked words of each test answer, as indices into its words (Python's `split()`).
 * @property {SummaryView[]} summaries
 * @property {ControlView[]} controls
 *
 * @typedef {Object} SummaryView
 * @property {string} name          The strategy.
 * @property {?string} text         null if there is no summary.
 * @property {?number} score        0 is perfect, 1 is worst; null if there is none.
 * @property {?number} stderr       Its standard error over test answers; null if undefined.
 * @property {?number[]} interval   95% interval [low, high] of the score; null if undefined.
 * @property {?number} temperature  The judge's temperature; 5 by default.
 * @property {?number} tasks        Number of token tasks in the score.
 * @property {?number[]} estimate   [words scored, all words] for an estimate; null for an exact score.
 * @property {string} why           Why the score is missing; "" if it is not missing or the reason is unknown.
 * @property {string[]} warnings
 * @property {?(?number)[][]} distances  In thousandths, aligned with `words`; null for a word that was not measured. null if the score
 *                                       was stored without words.
 * @property {?TokenView[][][]|true} guesses  For each judge token of each of the `words` of each test answer; true if they must be
 *                                       requested by `guessesOf`, null if nothing was recorded.
 * @property {?InformationView} information  What the summary recovers; null if it was not measured.
 * @property {?BitsView} bits
 * @property {{text: string, cells: Object}[]} measures  Of other packages: what they say, and their cells in the table of questions.
 * @property {?string} place        Where the score stands between its anchors; null if these have no scores.
 *
 * @typedef {Object} InformationView
 * @property {string} sentence      The result, or why there is none.
 * @property {"informed"|"blind"} reader
 * @property {?number} recovered    Share of the information in the reference answers; null if undefined.
 * @property {?number[]} interval   95% interval of `recovered`.
 * @property {?number} bits         Told by the summary, per answer.
 * @property {?number} available    Bits of the reference answers, per answer.
 * @property {?string} undefined    Why there is no share, as one word.
 * @property {?Object} tentative    What the share would be, in brackets and with the reason: {text, recovered}.
 *
 * @typedef {Object} BitsView       For every word of each test answer; nothing for a blank answer or one that was left out:
 * @property {number[][]} marks     0 for a plain word; else 1 to 10 for covered, 11 to 20 for missed, 21 to 30 for misleading, by strength.
 * @property {number[][]} told      By the summary, in tenths of bits.
 * @property {number[][]} available By the reference answers, in tenths of bits.
 *
 * @typedef {Object} ControlView    A text that is no summary, measured like one.
 * @property {string} name
 * @property {number} words         Its length.
 * @property {number} pasted        How many answers it consists of; 0 for the others.
 * @property {?number} recovered
 * @property {?number} score
 * @property {string[]} beats       Strategies that tell less.
 *
 * @typedef {[number, GuessView[]]} TokenView  The token's distance in thousandths, and likely tokens in its place.
 * @typedef {[string, number, number, number, number]} GuessView  Token; probability after the summary at temperature 1 and at the judge's
 *                                       temperature, then the same after the reference answers.
 *
 * @typedef {Object} PanelOptions
 * @property {string} [chosen]      Name of the summary to show first.
 * @property {(name: string) => void} [onChoose]  Called when the reader chooses another summary.
 * @property {"bits"|"distance"} [shows]  What colours words first; bits by default.
 * @property {(shows: string) => void} [onShow]  Called when the reader chooses another.
 * @property {HTMLElement} [grouping]  Placed below the heading of the answers; the panel's `regroup(groups, by)` shows other groups.
 * @property {string} [grouped]     What groups answers: "spelling" by default.
 * @property {(members: number[]) => Promise<void>} [merge]  Merges the groups of these answers by hand, without any all groups become
 *                                       as the rule made them; then it calls the panel's `regroup`. Without it nothing can be merged.
 * @property {(summary: number, answer: number) => Promise<Object<string, TokenView[]>>} [guessesOf]  Tokens by the index of the word.
 * @property {() => (string|Node)[]} [unrecorded]  What to say if nothing was recorded.
 */

import { agreementBox, numbered } from "./agreement.js";
import { claimsPanel } from "./claims.js";
import { WORD_LIMIT, bitsBeside, bitsLegend, bitsText, controlTable, markButton, meanBits, shareRange, shareScale, shareText, wordFactors } from "./bits.js";
import { cut, element, label, prose, styled, unbroken, visible, wordsOf } from "./dom.js";

const SHOWN_GROUPS = 6;
const BAR_TEXT = 80;
const OPEN_CONTEXT = 600;
let panels = 0;

/** Format thousandths as `0.093`. */
export const distanceText = (thousandths) => (thousandths / 1000).toFixed(3);

/** Format a score. */
export const scoreText = (score) => score.toFixed(4);

/** Find the end of the colour scale: the largest distance of a word under any summary, in thousandths, at least 1. */
function scaleOf(view) {
  let largest = 1;
  for (const summary of view.summaries) {
    for (const distance of (summary.distances ?? []).flat()) largest = Math.max(largest, distance ?? 0);
  }
  return largest;
}

const SHOWS = {
  bits: {
    name: "bits",
    has: (summary) => summary.bits !== null,
    heading: "What each summary covers, misses and gets wrong",
    about: [
      "The judge predicts test answers word by word, after an empty summary and after this one. The stronger the colour, the more bits: each bit ",
      "doubles or halves the probability of a word.",
    ],
    legend: bitsLegend,
  },
  distance: {
    name: "distance",
    has: (summary) => summary.distances !== null,
    heading: "What each summary missed",
    about: [
      "The judge predicts one masked word at a time, in answers that it has not seen, once after reading the summary and once after reading ",
      "other answers. A word’s distance is how far apart the two predictions are: 0 is perfect. Words without colour are not masked.",
    ],
    legend: (view) => legend(scaleOf(view)),
  },
};

/** Show everything about one question: its context, groups, summaries, and the words under one summary or two side by side. */
export function questionPanel(view, options = {}) {
  const shown = Object.keys(SHOWS).filter((name) => view.summaries.some(SHOWS[name].has));
  const state = { shows: shown.includes(options.shows) ? options.shows : firstShown(view, shown), chosen: null, beside: null, grouped: options.grouped ?? "spelling" };
  const measured = () => view.summaries.filter(SHOWS[state.shows].has);
  const first = () => measured().find((summary) => summary.name === options.chosen) ?? measured()[0];
  if (state.shows !== null) state.chosen = first();
  const bars = element("div", {});
  const groups = element("section", {}, element("h3", {}, "Sampled answers"), options.grouping ?? null, bars);
  const [words, choosers, about, table] = [element("div", { class: "columns" }), element("div", { class: "controls" }), element("div", {}), element("div", {})];
  const heading = element("h3", {});
  const redraw = () => {
    const agreement = agreementBox(view, state.grouped);
    bars.replaceChildren(...(agreement === null ? [] : [agreement]), answerGroups(view, state.chosen, state.shows, options.merge));
    const summaries = [state.chosen, state.beside].filter((summary) => summary !== null);
    words.replaceChildren(...summaries.map((summary) => maskedAnswers(view, summary, options, state.shows)));
  };
  const panel = element("div", { class: "question-panel" }, contextBox(view));
  const claims = view.claims ? element("section", {}, element("h3", {}, "Claims, and how many answers make them"), claimsPanel(view.claims)) : null;
  const parts = [element("div", { class: "two-parts" }, element("section", {}, summaryCards(view)), groups), controlTable(view, scoreText), claims];
  panel.append(...parts.filter((part) => part !== null));
  panel.regroup = (groups, by) => {
    view.groups = groups;
    state.grouped = by;
    redraw();
  };
  redraw();
  if (state.shows === null) return panel;
  const choose = (summary) => {
    state.chosen = summary;
    options.chosen = summary.name;
    redraw();
    options.onChoose?.(summary.name);
  };
  const beside = (summary) => {
    state.beside = summary;
    redraw();
  };
  const show = (name) => {
    state.shows = name;
    const { has, heading: title, about: lines, legend: explain } = SHOWS[name];
    if (!has(state.chosen)) state.chosen = first();
    if (state.beside !== null && !has(state.beside)) state.beside = null;
    heading.textContent = title;
    about.replaceChildren(element("p", { class: "quiet" }, lines), explain(view));
    choosers.replaceChildren(
      chooser("Words coloured by", measured().map((summary) => [summary, label(summary.name, 40)]), state.chosen, choose),
      ...(measured().length > 1 ? [besideChooser(measured(), state.beside, beside)] : []),
    );
    table.replaceChildren(wordTable(view, measured(), name));
    redraw();
  };
  const toggle = chooser("Colours show", shown.map((name) => [name, SHOWS[name].name]), state.shows, (name) => {
    show(name);
    options.onShow?.(name);
  });
  panel.append(element("section", {}, heading, shown.length > 1 ? toggle : null, about, choosers, words, table));
  show(state.shows);
  return panel;
}

/** Choose what colours words at first: the bits, unless they leave every word plain. */
function firstShown(view, shown) {
  const marked = view.summaries.some((summary) => summary.bits?.marks.flat().some((code) => code > 0));
  return marked ? "bits" : (shown.at(-1) ?? null);
}

/** Show what the model read. Open if it is short. */
function contextBox(view) {
  if (!view.context) return null;
  const summary = element("summary", {}, "What the model read", element("span", { class: "quiet" }, " and the judge did not"));
  return element("details", { class: "context", open: view.context.length <= OPEN_CONTEXT }, summary, element("p", { dir: "auto" }, prose(view.context)));
}

/** Show groups of answers, the largest first, with counts as bars and what words show under `summary`; `merge` as in the options. No heading. */
export function answerGroups(view, summary = null, shows = null, merge = null) {
  const total = view.answers.length;
  const groups = view.groups.length;
  if (total === 0) return element("p", { class: "quiet" }, "There are no answers.");
  const about = `${numbered(total, "sampled answer")} in ${numbered(groups, "group")}`;
  const note = element("p", { class: "quiet" }, `${about}.`);
  if (summary !== null) {
    const shown = shows === "bits" ? ["On the right: bits that ", " covers, of the bits available"] : ["On the right: mean distances of words under ", ""];
    note.append(` ${shown[0]}`, label(summary.name), `${shown[1]}.`);
    if (view.masked < total) note.append(" A dash marks reference answers, which the judge only reads.");
  }
  const list = element("ol", { class: "groups" });
  const show = (groups) => list.append(...groups.map((members) => groupItem(view, members, summary, shows, merge)));
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
  if (merge !== null && (groups > 1 || view.merged)) block.append(mergeButtons(view, list, merge));
  return block;
}

/** Buttons that merge the groups whose boxes are checked, and undo all merges. */
function mergeButtons(view, list, merge) {
  const message = element("span", { class: "problem", role: "alert" });
  const send = (members) => merge(members).catch((error) => (message.textContent = visible(error.message)));
  const chosen = () => [...list.querySelectorAll("input:checked")].map((box) => Number(box.value));
  const button = element("button", { type: "button", class: "small", disabled: true, onclick: () => send(chosen()) }, "Merge checked groups");
  list.addEventListener("change", () => (button.disabled = chosen().length < 2));
  const undo = view.merged ? element("button", { type: "button", class: "small", onclick: () => send([]) }, "Undo merges") : null;
  return element("p", { class: "merging" }, view.groups.length > 1 ? button : null, undo, message);
}

function groupItem(view, members, summary, shows, merge) {
  const total = view.answers.length;
  const share = `${Math.round((100 * members.length) / total)} %`;
  const chip = summary === null ? null : (shows === "bits" ? bitsChip : distanceChip)(view, members, summary);
  const box = merge === null ? null : element("input", { type: "checkbox", value: `${members[0]}` });
  const item = element(
    "li",
    {},
    element(merge === null ? "span" : "label", { class: "what", dir: "auto" }, box, label(view.answers[members[0]], BAR_TEXT)),
    element("span", { class: "count" }, `${members.length}`, element("span", { class: "quiet" }, ` · ${share}`)),
    chip,
    styled(element("span", { class: "bar", "aria-hidden": "true" }), { "--share": (members.length / total).toFixed(3) }),
  );
  const spellings = counted(members.map((member) => view.answers[member]));
  const text = view.answers[members[0]];
  if (spellings.size > 1) item.append(spellingList(spellings));
  else if (text.length > BAR_TEXT) item.append(element("details", { class: "spellings" }, element("summary", {}, "full text"), prose(text)));
  return item;
}

function distanceChip(view, members, summary) {
  const distance = meanOf(members.flatMap((member) => summary.distances[member] ?? []));
  if (distance === null) return element("span", { class: "chip quiet" }, "–");
  return styled(element("span", { class: "chip heat" }, distanceText(distance)), { "--level": (distance / scaleOf(view)).toFixed(3) });
}

function bitsChip(view, members, summary) {
  const mean = meanBits(summary.bits, members);
  if (mean === null) return element("span", { class: "chip quiet" }, "–");
  return element("span", { class: "chip" }, bitsBeside(mean.told, mean.available));
}

function spellingList(spellings) {
  const items = [...spellings].map(([text, count]) => element("li", { dir: "auto" }, label(text, 300), count > 1 ? ` × ${count}` : ""));
  return element("details", { class: "spellings" }, element("summary", {}, `${spellings.size} spellings`), element("ul", {}, items));
}

/** Show a card for each summary: what it recovers, its score with interval, its text, and warnings. */
export function summaryCards(view) {
  const informed = view.summaries.filter((summary) => summary.information !== null);
  const heading = element("h3", {}, informed.length > 0 ? "Summaries and what they recover" : "Summaries and their scores");
  const end = Math.max(1e-9, ...view.summaries.map((summary) => summary.interval?.[1] ?? summary.score ?? 0));
  const scored = view.summaries.filter((summary) => summary.score !== null);
  const shared = (scored[0]?.warnings ?? []).filter((warning) => scored.every((summary) => summary.warnings.includes(warning)));
  const sentences = new Set(informed.map((summary) => summary.information.sentence));
  const undefinedForAll = informed.length > 1 && sentences.size === 1 && informed[0].information.recovered === null ? [...sentences][0] : "";
  const frame = { end, shared, shares: shareScale(view), said: undefinedForAll };
  const cards = view.summaries.map((summary) => summaryCard(summary, frame));
  return element(
    "div",
    {},
    heading,
    scored.length > 0 || informed.length === 0 ? element("p", { class: "quiet" }, cardsNote(informed.length > 0)) : null,
    undefinedForAll ? sentenceLine(undefinedForAll) : null,
    shared.map(warningLine),
    element("div", { class: "cards" }, cards),
  );
}

const cardsNote = (informed) =>
  informed
    ? "Share of the information in the sampled answers; then the SelfReflect score: 0 is perfect, lower is better. With 95 % intervals."
    : "0 is perfect, lower is better; with 95 % intervals";

/** A sentence of a result; no line ends before a percent sign. */
const sentenceLine = (text) => element("p", { class: "sentence" }, prose(unbroken(text)));

const warningLine = (text) => element("p", { class: "warning" }, label(text, 500));

function summaryCard(summary, { end, shared, shares, said }) {
  const card = element("article", { class: "card" }, element("header", {}, element("h4", {}, label(summary.name)), cardFigure(summary)));
  const { information } = summary;
  if (information !== null && information.sentence !== said) card.append(sentenceLine(information.sentence));
  if (information !== null && information.recovered !== null) card.append(shareRange(information, shares));
  if (summary.score !== null) {
    if (information === null) card.append(scoreRange(summary, end));
    card.append(element("p", { class: "facts" }, scoreFacts(summary)));
  }
  for (const { text } of summary.measures ?? []) card.append(element("p", { class: "facts" }, label(text)));
  if (summary.why) card.append(warningLine(summary.why));
  card.append(
    element("p", { class: "summary-text", dir: "auto" }, summary.text === null ? element("span", { class: "quiet" }, "no summary") : prose(summary.text)),
  );
  card.append(...summary.warnings.filter((warning) => !shared.includes(warning)).map(warningLine));
  return card;
}

/** The number of a summary: what it recovers if that was measured, else its score. */
function cardFigure(summary) {
  const { information, score } = summary;
  const about = summary.estimate ? "≈ " : "";
  if (information !== null && information.recovered !== null) return element("span", { class: "score" }, shareText(information.recovered));
  if (information !== null) return element("span", { class: "score none" }, information.tentative?.text ?? information.undefined ?? "no number");
  return score === null ? element("span", { class: "score none" }, "no score") : element("span", { class: "score" }, `${about}${scoreText(score)}`);
}

function scoreRange(summary, end) {
  const [low, high] = summary.interval ?? [summary.score, summary.score];
  const places = { "--low": (low / end).toFixed(4), "--high": (high / end).toFixed(4), "--at": (summary.score / end).toFixed(4) };
  return styled(element("div", { class: "range", "aria-hidden": "true" }), places);
}

function scoreFacts(summary) {
  const interval = summary.interval ? `${scoreText(summary.interval[0])} to ${scoreText(summary.interval[1])}` : "no interval with one answer";
  const facts = summary.information === null ? [interval] : [`SelfReflect ${scoreText(summary.score)}${summary.place ? `: ${summary.place}` : ""}`, interval];
  if (summary.tasks !== null) facts.push(`${summary.tasks} tokens predicted`);
  if (summary.estimate) facts.push(`≈ estimated from ${summary.estimate[0]} of ${summary.estimate[1]} masked words`);
  return facts.join(" · ");
}

/** Explain the colours: steps from 0 to the largest distance of this question, each with its number and underline. */
function legend(scale) {
  const steps = [0, 0.25, 0.5, 0.75, 1];
  const chips = steps.map((step) => styled(element("span", { class: "heat step" }, distanceText(step * scale)), { "--level": step }));
  return element("p", { class: "legend" }, element("span", {}, "well predicted"), ...chips, element("span", {}, "poorly predicted"));
}

/** Show the test answers under one summary, in the order of the bars: every coloured word is a button with its number. */
function maskedAnswers(view, summary, options = {}, shows = "distance") {
  const item = shows === "bits" ? bitsItem : answerItem;
  const list = element("ol", { class: "masked" });
  const section = element("section", { class: "under" }, element("h4", {}, "Under ", label(summary.name)), list);
  const id = `panel-${(panels += 1)}`;
  for (const index of maskedOrder(view)) list.append(item(view, summary, index, id));
  const words = [...list.querySelectorAll("button.word")];
  words.forEach((word, place) => (word.tabIndex = place === 0 ? 0 : -1));
  list.addEventListener("keydown", (event) => roam(event, list));
  list.addEventListener("click", (event) => toggleDetail(event, view, summary, options, shows));
  attachTip(section, list);
  return section;
}

/** List the test answers in the order of the bars, equal texts once. */
function maskedOrder(view) {
  const texts = new Set();
  const isNew = (text) => !texts.has(text) && texts.add(text);
  return view.groups.flat().filter((index) => index < view.masked && isNew(view.answers[index]));
}

function answerItem(view, summary, index, id) {
  const scale = scaleOf(view);
  const distances = new Map(view.words[index].map((word, place) => [word, summary.distances[index]?.[place] ?? null]));
  const mean = meanOf(summary.distances[index] ?? []);
  const facts = mean === null ? "no word was masked" : `mean ${distanceText(mean)}`;
  return answerLine(view, index, facts, (text, word) => {
    const distance = distances.get(word) ?? null;
    return distance === null ? cut(visible(text), WORD_LIMIT) : wordButton(text, distance, scale, `${id}-${index}-${word}`, index, word);
  });
}

function bitsItem(view, summary, index, id) {
  const mean = meanBits(summary.bits, [index]);
  const facts = mean === null ? "not measured" : bitsBeside(mean.told, mean.available);
  return answerLine(view, index, facts, (text, word) => markButton(text, summary.bits, { id: `${id}-${index}-${word}`, answer: index, word }));
}

/** Show one answer, with each of its words as `wordNode` makes it. */
function answerLine(view, index, facts, wordNode) {
  const text = view.answers[index];
  const line = element("p", { class: "answer", dir: "auto" });
  let end = 0;
  wordsOf(text).forEach((match, word) => {
    line.append(visible(text.slice(end, match.index)), wordNode(match[0], word));
    end = match.index + match[0].length;
  });
  const alike = view.answers.slice(0, view.masked).filter((other) => other === text).length;
  const count = alike > 1 ? ` × ${alike}` : "";
  return element("li", { "data-answer": index }, element("p", { class: "facts" }, `answer ${index + 1}${count} · ${facts}`), line);
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
      "data-tip": `${distanceText(distance)} distance · click for what the judge expected`,
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
    tip.textContent = word.dataset.tip;
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

function toggleDetail(event, view, summary, options, shows) {
  const word = event.target.closest("button.word");
  if (word === null) return;
  const item = word.closest("li");
  const open = item.querySelector(".guesses");
  const same = open?.dataset.word === word.dataset.word;
  open?.remove();
  item.querySelectorAll("[aria-expanded=true]").forEach((other) => other.setAttribute("aria-expanded", "false"));
  if (same) return;
  word.setAttribute("aria-expanded", "true");
  const [answer, place] = [Number(word.dataset.answer), Number(word.dataset.word)];
  if (shows === "bits") {
    const text = wordsOf(view.answers[answer])[place][0];
    item.append(element("div", { class: "guesses", "data-word": place }, element("p", { role: "status" }, wordFactors(text, summary.bits, answer, place))));
  } else item.append(guesses(view, summary, answer, place, options));
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
  const flat = `T = ${summary.temperature ?? 5}`;
  const about = [
    "Each row is a piece of text that the judge might have put there, with its probability after reading the summary, and after reading ",
    `the answers. T = 1 is what the judge believes; ${flat} is the same flattened, so that unlikely pieces count as well: the score `,
    "compares these.",
  ];
  return [element("p", { class: "quiet" }, about), ...tokens.map((token, place) => guessTable(token, place, tokens.length, flat))];
}

function guessTable([distance, expected], place, count, flat) {
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
  if (value > 0 && value < 0.001) return "< 0.001 %";
  return `${value.toFixed(value >= 10 ? 1 : value >= 0.1 ? 2 : 3)} %`;
}

/**
 * List all words that were measured: answer number, word, and under each summary its distance (in thousandths, or null) and its bits (tenths
 * told and available, or null).
 */
export function wordRows(view) {
  const rows = [];
  const withBits = view.summaries.some((summary) => summary.bits !== null);
  view.words.forEach((masked, answer) => {
    const texts = wordsOf(view.answers[answer]).map((match) => match[0]);
    const listed = withBits ? texts.map((_, word) => word) : masked;
    for (const word of listed) {
      const place = masked.indexOf(word);
      const distances = view.summaries.map((summary) => summary.distances?.[answer]?.[place] ?? null);
      const told = view.summaries.map((summary) => summary.bits?.told[answer]?.[word] ?? null);
      const available = view.summaries.map((summary) => summary.bits?.available[answer]?.[word] ?? null);
      rows.push({ answer: answer + 1, word: word + 1, text: texts[word], distances, told, available });
    }
  });
  return rows;
}

function wordTable(view, measured, shows) {
  const details = element("details", { class: "word-table" }, element("summary", {}, "Show as a table"));
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    const places = measured.map((summary) => view.summaries.indexOf(summary));
    const columns = ["answer", "word"].map((name) => element("th", { scope: "col" }, name));
    columns.push(...measured.map((summary) => element("th", { scope: "col" }, label(summary.name))));
    if (shows === "bits") columns.push(element("th", { scope: "col" }, "available"));
    const rows = wordRows(view).map((row) => {
      const cells = places.map((place) => (shows === "bits" ? tenthsText(row.told[place]) : thousandthsText(row.distances[place])));
      if (shows === "bits") cells.push(tenthsText(row.available[places[0]]));
      const head = element("th", { scope: "row" }, label(row.text, 60));
      return element("tr", {}, element("td", {}, `${row.answer}`), head, cells.map((cell) => element("td", {}, cell)));
    });
    const title = shows === "bits" ? "Bits of every word under each summary, and under the answers" : "Distance of every masked word under each summary";
    const table = element("table", {}, element("caption", {}, title), element("thead", {}, element("tr", {}, columns)), element("tbody", {}, rows));
    const name = shows === "bits" ? "Bits of all words" : "Distances of all words";
    details.append(element("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": name }, table));
  });
  return details;
}

const thousandthsText = (distance) => (distance === null ? "–" : distanceText(distance));
const tenthsText = (tenths) => (tenths === null ? "–" : bitsText(tenths / 10));

/** A choice of one of `entries`, pairs of a value and its name. */
function chooser(title, entries, chosen, choose) {
  const name = `choice-${(panels += 1)}`;
  const options = entries.map(([value, text]) => {
    const radio = element("input", { type: "radio", name, checked: value === chosen, onchange: () => choose(value) });
    return element("label", {}, radio, element("span", {}, text));
  });
  return element("fieldset", { class: "segments" }, element("legend", {}, title), element("div", {}, options));
}

function besideChooser(summaries, chosen, choose) {
  const options = summaries.map((summary, place) => element("option", { value: place, selected: summary === chosen }, cut(visible(summary.name), 40)));
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
