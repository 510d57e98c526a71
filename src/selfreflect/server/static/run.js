/** A finished question or a run of several. */

import { get, post } from "./client.js";
import { save } from "./csv.js";
import { element, label, pairs } from "./dom.js";
import { chooseParts, chooseRisks, offerCsv, pairTables, sortTables } from "./frame.js";
import { problem } from "./live.js";
import { questionPanel } from "./question.js";
import { groupsCsv, wordsCsv } from "./rows.js";

const GROUPED = "a rule for the same answer, an estimate";
const QUESTIONS_PAGE = 50;

/** The address of a run, or of one of its questions. */
function address(run, place = {}) {
  const parts = Object.entries(place).filter(([, value]) => value !== null);
  return `#run=${run.id}${parts.map(([name, value]) => `&${name}=${value}`).join("")}`;
}

/** Fetches a run and, if one is named or it has no other, a question: `run`, `view` or null, and its `index`. */
export async function loadRun(id, { question = null, offset = 0 }) {
  const run = await get(`/api/runs/${id}?offset=${offset}&limit=${QUESTIONS_PAGE}`);
  const index = question ?? (run.total === 1 ? 0 : null);
  const view = index === null ? null : await get(`/api/runs/${id}/questions/${index}`);
  return { run, view, index, offset };
}

export const runPage = (opened) => (opened.view === null ? runView(opened.run, opened.offset) : questionView(opened));

export function questionView({ run, index, view }) {
  const at = `/api/runs/${run.id}/questions/${index}`;
  const merge = async (answers) => {
    view.merged = (await post(`${at}/merged`, { answers })).merged.length;
    panel.regroup((await get(at)).groups, GROUPED);
    panel.querySelector(".merging button:enabled")?.focus(); // the button that was pressed is gone
  };
  const guessesOf = (summary, answer) => get(`${at}/guesses?summary=${summary}&answer=${answer}`);
  const panel = questionPanel(view, { grouped: GROUPED, guessesOf, unrecorded, merge });
  return element(
    "div",
    { class: "question", "data-run": run.id },
    backTo(run),
    element("h2", {}, label(view.text, 500)),
    view.problems.map(problem),
    ...(view.answers.length === 0 ? [element("p", { class: "quiet" }, "There are no answers, so there is nothing to show.")] : [judgeOf(run), panel, exports(view)]),
  );
}

const unrecorded = () => ["This was not recorded when this summary was scored. Questions asked on this page record it."];

/** Buttons that save the answers and words of a question. */
function exports(view) {
  const rows = (text, name, csv) => element("button", { type: "button", class: "small", onclick: () => save(name, csv(view)) }, text);
  return element("p", { class: "exports" }, "Export", rows("answers as CSV", "answers.csv", groupsCsv), rows("words as CSV", "words.csv", wordsCsv));
}

const backTo = (run) => (run.total === 1 ? null : element("p", {}, element("a", { href: address(run) }, "all questions of ", label(run.name, 80))));

function runView(run, offset) {
  const heads = ["strategy", ...run.measures.flatMap(({ heading }) => [heading, "95 % interval", "questions"])];
  const cells = ({ mean, interval, n }) => [mean ?? "–", interval ?? "–", `${n} of ${run.total}`];
  const head = heads.map((name) => element("th", { scope: "col" }, label(name)));
  const rows = run.strategies.map((one) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, label(one.name)),
      one.values.flatMap(cells).map((text) => element("td", {}, label(text))),
    ),
  );
  const caption = element("caption", {}, label(run.measures.map(({ title }) => title).join("; "), 500));
  const scores = pairs(element("table", {}, caption, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows)));
  return element(
    "div",
    { class: "run" },
    element("h2", {}, label(run.name)),
    judgeOf(run),
    run.strategies.length > 0 ? element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Strategies" }, scores) : element("p", {}, "Nothing has been summarised yet."),
    run.labelled ? uncertaintyOf(run) : null,
    element("h3", {}, "Questions"),
    questionTable(run),
    pages(run, offset),
  );
}

/** The section of the report page on uncertainty and correctness, fetched when it is first opened: its figures take a while. */
function uncertaintyOf(run) {
  const section = element("details", { class: "uncertainty-of" }, element("summary", {}, element("h3", {}, "Uncertainty and correctness")));
  const open = async () => {
    const message = element("p", { class: "quiet", role: "status" }, "Drawing figures…");
    section.append(message);
    try {
      const { html, csv } = await get(`/api/runs/${run.id}/uncertainty`);
      if (html === null) return message.replaceChildren("No answers are stored for questions with a known right answer.");
      // the server has escaped every text, and the page's policy runs no script and no style of its own
      message.replaceWith(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
      offerCsv(csv);
      chooseParts("select.estimator", ".uncertainty-part", "estimator");
      sortTables();
      pairTables();
      chooseRisks();
    } catch (error) {
      message.replaceWith(problem(error));
    }
  };
  section.addEventListener("toggle", open, { once: true });
  return section;
}

/** The judge of a run; `report` shows those that scored it later. */
const judgeOf = (run) => element("p", { class: "judges quiet" }, run.judge.length > 0 ? ["judge: ", label(run.judge.join("; "), 300)] : "no judge yet");

function questionTable(run) {
  const cell = ([main, ...others]) => [label(main), ...others.map((text) => element("span", { class: "below" }, label(text)))];
  const names = run.strategies.map((one) => element("th", { scope: "col" }, label(one.name, 40)));
  const rows = run.questions.map((one) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, element("a", { href: address(run, { question: one.index }) }, label(one.question, 160))),
      run.strategies.map((_, place) => element("td", {}, cell(one.cells.map((row) => row[place])))),
    ),
  );
  const head = element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "question"), names));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Questions" }, element("table", {}, head, element("tbody", {}, rows)));
}

function pages(run, offset) {
  if (run.total <= QUESTIONS_PAGE) return null;
  const link = (to, text) => element("a", { href: address(run, { offset: to }) }, text);
  const last = Math.min(offset + QUESTIONS_PAGE, run.total);
  return element(
    "p",
    { class: "pages" },
    offset > 0 ? link(Math.max(0, offset - QUESTIONS_PAGE), "earlier") : null,
    ` ${offset + 1} to ${last} of ${run.total} `,
    last < run.total ? link(last, "later") : null,
  );
}
