/** A finished question or a run of several, by one of its judges. */

import { download, get, options, post } from "./client.js";
import { save } from "./csv.js";
import { cut, element, label, visible } from "./dom.js";
import { chooseParts, chooseRisks, offerCsv, sortTables } from "./frame.js";
import { GROUPED, groupingChoice } from "./grouping.js";
import { problem } from "./live.js";
import { questionPanel } from "./question.js";
import { groupsCsv, wordsCsv } from "./rows.js";

const QUESTIONS_PAGE = 50;

/** The address of a run, or of one of its questions, by the judge that is shown. */
function address(run, place = {}) {
  const parts = Object.entries({ judge: run.scoring, ...place }).filter(([, value]) => value !== "" && value !== null);
  return `#run=${run.id}${parts.map(([name, value]) => `&${name}=${value}`).join("")}`;
}

/** Fetches a run and, if one is named or it has no other, a question: `run`, `view` or null, its `index`, and whether answers can be grouped by `meaning`. */
export async function loadRun(id, { question = null, offset = 0, judge = "" }) {
  const run = await get(`/api/runs/${id}?offset=${offset}&limit=${QUESTIONS_PAGE}&judge=${judge}`);
  const index = question ?? (run.total === 1 ? 0 : null);
  if (index === null) return { run, view: null, index, offset, meaning: false };
  const [view, { meaning }] = await Promise.all([get(`/api/runs/${id}/questions/${index}?judge=${judge}`), options()]);
  return { run, view, index, offset, meaning };
}

export const runPage = (opened) => (opened.view === null ? runView(opened.run, opened.offset) : questionView(opened));

export function questionView({ run, index, view, meaning }) {
  const at = `/api/runs/${run.id}/questions/${index}`;
  let groups = { rule: view.groups };
  const regroup = async () => {
    groups.meaning ??= choice.chosen === "meaning" ? (await choice.waitFor(() => get(`${at}/groups`)))?.groups : undefined;
    panel.regroup(groups[choice.chosen], GROUPED[choice.chosen]);
  };
  const merge = async (answers) => {
    view.merged = (await post(`${at}/merged`, { answers })).merged.length;
    groups = { rule: (await get(at)).groups };
    await regroup();
    panel.querySelector(".merging button:enabled")?.focus(); // the button that was pressed is gone
  };
  const choice = groupingChoice(meaning, regroup);
  const guessesOf = (summary, answer) => get(`${at}/guesses?summary=${summary}&answer=${answer}&judge=${run.scoring}`);
  const panel = questionPanel(view, { grouping: choice.element, grouped: GROUPED.rule, guessesOf, unrecorded, merge });
  if (choice.chosen === "meaning") regroup();
  return element(
    "div",
    { class: "question", "data-run": run.id },
    backTo(run),
    element("h2", {}, label(view.text, 500)),
    view.problems.map(problem),
    ...(view.answers.length === 0 ? [element("p", { class: "quiet" }, "There are no answers, so there is nothing to show.")] : [judgeChoice(run, { question: index }), panel, exports(run, view)]),
  );
}

const unrecorded = () => ["This was not recorded when this summary was scored. Questions asked on this page record it."];

/** Buttons that export the run and, given the view of one question, its answers and words. */
function exports(run, view = null) {
  const message = element("span", { class: "problem", role: "alert" });
  const saving = (form) => () => {
    message.textContent = "";
    download(`/api/runs/${run.id}/export?format=${form}&judge=${run.scoring}`, `selfreflect-${run.id}.${form}`).catch((error) => (message.textContent = error.message));
  };
  const button = (form, text) => element("button", { type: "button", class: "small", onclick: saving(form) }, text);
  const rows = (text, name, csv) => element("button", { type: "button", class: "small", onclick: () => save(name, csv(view)) }, text);
  const ofView = view === null ? [] : [rows("answers as CSV", "answers.csv", groupsCsv), rows("words as CSV", "words.csv", wordsCsv)];
  return element("p", { class: "exports" }, "Export", button("json", "records as JSON"), button("csv", "scores as CSV"), ofView, message);
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
  const scores = element("table", {}, caption, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows));
  return element(
    "div",
    { class: "run" },
    element("h2", {}, label(run.name)),
    judgeChoice(run),
    run.strategies.length > 0 ? element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Strategies" }, scores) : element("p", {}, "Nothing has been summarised yet."),
    run.labelled ? uncertaintyOf(run) : null,
    element("h3", {}, "Questions"),
    questionTable(run),
    pages(run, offset),
    exports(run),
  );
}

/** The section of the report page on uncertainty and correctness, fetched when it is first opened: its figures take a while. */
function uncertaintyOf(run) {
  const section = element("details", { class: "uncertainty-of" }, element("summary", {}, element("h3", {}, "Uncertainty and correctness")));
  const open = async () => {
    const message = element("p", { class: "quiet", role: "status" }, "Drawing figures…");
    section.append(message);
    try {
      const { html, csv } = await get(`/api/runs/${run.id}/uncertainty?judge=${run.scoring}`);
      if (html === null) return message.replaceChildren("No answer to a question with a right answer is stored.");
      // the server has escaped every text, and the page's policy runs no script and no style of its own
      message.replaceWith(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
      offerCsv(csv);
      chooseParts("select.estimator", ".uncertainty-part", "estimator");
      chooseParts("select.shade", ".shaded-answers", "shade");
      sortTables();
      chooseRisks();
    } catch (error) {
      message.replaceWith(problem(error));
    }
  };
  section.addEventListener("toggle", open, { once: true });
  return section;
}

let choices = 0;

/** The judges of a run: which one is shown, and a form that adds one. */
function judgeChoice(run, place = {}) {
  const id = `judge-${(choices += 1)}`;
  const name = (one, index) => cut(visible(`${one.judge || "no judge yet"}${index === 0 && run.scorings.length > 1 ? " (main)" : ""}`), 120);
  const entries = run.scorings.map((one, index) => element("option", { value: one.id, selected: one.id === run.scoring }, name(one, index)));
  const select = element("select", { id }, entries);
  select.addEventListener("change", () => (location.hash = address({ ...run, scoring: select.value }, place)));
  const shown = run.judge.length > 0 ? run.judge.join("; ") : run.scorings[0].judge;
  const several = [element("label", { for: id, class: "quiet" }, "Judge"), select];
  const one = shown ? [element("span", { class: "quiet" }, "judge: ", label(shown, 300))] : [];
  const adding = run.strategies.length > 0 ? addJudge(run, `${id}-name`) : null;
  return element("div", { class: "judges" }, run.scorings.length > 1 ? several : one, adding);
}

function addJudge(run, id) {
  const input = element("input", { id, list: "models", required: true, maxlength: 200, autocomplete: "off", spellcheck: "false" });
  const message = element("div", { class: "said", role: "alert" });
  const button = element("button", { type: "button", class: "small" }, "Score with this judge");
  const send = async () => {
    if (input.value.trim() === "" || button.ariaDisabled === "true") return;
    message.replaceChildren();
    button.ariaDisabled = "true";
    try {
      const job = await post(`/api/runs/${run.id}/judges`, { judge: input.value.trim() });
      location.hash = `job=${job.id}`;
    } catch (error) {
      message.replaceChildren(problem(error));
    }
    button.ariaDisabled = null;
  };
  button.addEventListener("click", send);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") send();
  });
  const parts = [element("label", { for: id }, "Model that judges"), input, button, message];
  return element("details", { class: "add-judge" }, element("summary", {}, "Add a judge"), element("div", {}, parts));
}

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
