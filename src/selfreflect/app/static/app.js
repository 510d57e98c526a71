/** The page: the form, the job or run on display, and the lists. The address names what is on display, so a reload shows it again. */

import { ApiError, download, follow, get, post, takeToken } from "./client.js";
import { save } from "./csv.js";
import { cut, element, label, prose, visible } from "./dom.js";
import { groupingChoice } from "./grouping.js";
import { liveView, problemBox, Progress, spoken } from "./live.js";
import { shareText } from "./bits.js";
import { questionPanel, scoreText } from "./question.js";
import { groupsCsv, wordsCsv } from "./rows.js";

/** Questions, and what the model reads with them. */
const EXAMPLES = {
  "What broke the vase?": "Emma says that the cat broke the vase. Noah says that the wind broke the vase.",
  "What should I plant first in a small garden?": "",
  "Which city should I visit in spring?": "",
};
const RUNS_PAGE = 20;
const RUNS_AT_ONCE = 100;
const QUESTIONS_PAGE = 50;

const byId = (id) => document.getElementById(id);
const result = byId("result");
const start = result.firstElementChild;
let leaving = new AbortController();

let fetchedOptions = null;

/** What the server offers. Fetched once, and again only after an error. */
function options() {
  fetchedOptions ??= get("/api/options").catch((error) => {
    fetchedOptions = null;
    throw error;
  });
  return fetchedOptions;
}

/** For screen readers. Called for each stage, not for each answer. */
const announce = (text) => (byId("announcements").textContent = text);

function problem(error) {
  const hint = error.kind === "token" ? " The app printed it when it started." : "";
  return problemBox(`${error.message}${hint}`);
}

// --- the form

async function fillForm() {
  const { models, strategies, about, server, defaults, limits } = await options();
  byId("models").append(...models.map((model) => element("option", { value: model.name, label: model.note || model.name })));
  byId("model").value = defaults.model;
  byId("judge").value = defaults.judge;
  byId("num-answers").value = defaults.num_answers;
  byId("brief").checked = defaults.brief;
  byId("num-answers").max = limits.num_answers;
  byId("strategies").append(
    ...strategies.map((name) =>
      element(
        "label",
        { class: "check" },
        element("input", { type: "checkbox", name: "strategy", value: name, checked: defaults.strategies.includes(name) }),
        element("span", {}, name, element("span", { class: "small quiet about" }, about[name] ?? "")),
      ),
    ),
  );
  const hint = byId("server-hint");
  hint.hidden = server === null;
  hint.textContent = `openai:NAME is a model of the server at ${visible(server ?? "")}. Its key comes from the environment of the app’s process: it is never typed here, sent to this page or stored.`;
  showEstimate();
}

/** Seconds of the last question with this model and judge, and the work that it took. Kept in this browser. */
const timesKey = () => `selfreflect-time ${byId("model").value.trim()} ${byId("judge").value.trim()}`;
const workOf = (strategies) => Number(byId("num-answers").value) * (1 + strategies);

function showEstimate() {
  const [seconds, work] = JSON.parse(localStorage.getItem(timesKey()) ?? "[0, 0]");
  byId("estimate").textContent =
    work > 0 ? `About ${spoken((seconds * workOf(checked("strategy").length)) / work)}, as measured last time.` : "How long it takes is known after the first question.";
}

/** The question that this page asked last. */
let timed = null;

const optionalNumber = (id) => (byId(id).value === "" ? null : Number(byId(id).value));

const checked = (name) => [...document.querySelectorAll(`input[name=${name}]:checked`)].map((box) => box.value);

async function ask(event) {
  event.preventDefault();
  const message = byId("form-problem");
  message.textContent = "";
  const [strategies, measures] = [checked("strategy"), checked("measure")];
  if (strategies.length === 0 || measures.length === 0) {
    message.textContent = `Choose at least one ${strategies.length === 0 ? "strategy" : "measure"}.`;
    return;
  }
  const body = {
    question: byId("question").value,
    context: byId("context").value,
    model: byId("model").value.trim(),
    judge: byId("judge").value.trim(),
    strategies,
    measures,
    reader: byId("reader").value,
    num_answers: Number(byId("num-answers").value),
    temperature: optionalNumber("temperature"),
    top_p: optionalNumber("top-p"),
    brief: byId("brief").checked,
    seed: Number(byId("seed").value),
  };
  try {
    const job = await post("/api/ask", body);
    timed = { id: job.id, key: timesKey(), work: workOf(strategies.length), start: performance.now() };
    location.hash = `job=${job.id}&of=${2 * body.num_answers}`;
  } catch (error) {
    message.textContent = visible(error.message);
  }
}

// --- one job

async function showJob(id, wanted, signal) {
  let job;
  let meaning;
  try {
    [job, { meaning }] = await Promise.all([get(`/api/jobs/${id}`), options()]);
  } catch (error) {
    result.replaceChildren(problem(error));
    return;
  }
  if (signal.aborted) return;
  const progress = new Progress(job.question, wanted);
  const stop = () => post(`/api/jobs/${id}/cancel`).catch((error) => live.lost(error.message));
  const choice = groupingChoice(meaning, () => regroup());
  const live = liveView(progress, stop, choice.element);
  result.replaceChildren(live.element);
  let drawing = false;
  const redraw = () => {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => {
      drawing = false;
      if (!signal.aborted) live.update();
    });
  };
  const regroup = regrouping(id, progress, choice, redraw, signal);
  const heard = (kind, data) => {
    const change = progress.heard(kind, data);
    if (change !== null) announce(change);
    if (kind === "begun" || kind === "end") refreshLists();
    if (kind === "status" && data.status === "running" && timed?.id === id) timed.start = performance.now();
    if (kind === "end" && data.status === "done" && timed?.id === id) {
      localStorage.setItem(timed.key, JSON.stringify([(performance.now() - timed.start) / 1000, timed.work]));
      showEstimate();
    }
    if (kind === "answers" && choice.chosen === "meaning") regroup();
    redraw();
  };
  try {
    await follow(`/api/jobs/${id}/events`, heard, live.lost, signal);
  } catch (error) {
    if (!signal.aborted) result.replaceChildren(problem(error));
    return;
  }
  if (!signal.aborted && progress.ended?.run) await showEnd(progress, live, signal);
}

/** Groups the answers so far as the reader chose. By meaning, one request at a time until all answers are grouped. */
function regrouping(id, progress, choice, redraw, signal) {
  let busy = false;
  const grouped = () => progress.meaning?.answers ?? -1;
  return async () => {
    if (busy) return; // the call under way also groups the answers that arrived since
    busy = true;
    while (choice.chosen === "meaning" && grouped() < progress.answers.length && !signal.aborted) {
      const groups = await choice.waitFor(() => get(`/api/jobs/${id}/groups`));
      if (groups === null || groups.answers <= grouped()) break; // the server forgets the events of old jobs
      progress.meaning = groups;
      redraw();
    }
    if (choice.chosen !== "meaning") progress.meaning = null;
    busy = false;
    redraw();
  };
}

/** Replaces the live view by the finished question, if that has all answers. */
async function showEnd(progress, live, signal) {
  const run = progress.ended.run;
  const view = await get(`/api/runs/${run}/questions/0`).catch(() => null);
  if (view === null || signal.aborted) return;
  if (view.answers.length < progress.answers.length) {
    live.update();
    return;
  }
  const ended = progress.ended.status === "done" ? [] : [element("p", { class: "line" }, progress.line)];
  const problems = progress.ended.error ? [problem(progress.ended.error)] : [];
  result.replaceChildren(...problems, ...ended, questionView(run, 0, view, null, (await options()).meaning));
}

// --- one run

function questionView(run, index, view, back, meaning) {
  const at = `/api/runs/${run}/questions/${index}`;
  const groups = { spelling: view.groups };
  const regroup = async () => {
    groups.meaning ??= choice.chosen === "meaning" ? (await choice.waitFor(() => get(`${at}/groups`)))?.groups : undefined;
    panel.regroup(groups[choice.chosen]);
  };
  const choice = groupingChoice(meaning, regroup);
  const guessesOf = (summary, answer) => get(`${at}/guesses?summary=${summary}&answer=${answer}`);
  const panel = questionPanel(view, { grouping: choice.element, guessesOf, unrecorded });
  if (choice.chosen === "meaning") regroup();
  return element(
    "div",
    { class: "question", "data-run": run },
    back,
    element("h2", {}, label(view.text, 500)),
    view.problems.map(problemBox),
    ...(view.answers.length === 0 ? [element("p", { class: "quiet" }, "There are no answers, so there is nothing to show.")] : [panel, exports(run, view)]),
  );
}

const unrecorded = () => ["This was not recorded when this summary was scored. Questions asked on this page record it."];

/** Buttons that export the run and, given the view of one question, its answers and words. */
function exports(run, view = null) {
  const message = element("span", { class: "problem", role: "alert" });
  const saving = (form) => () => {
    message.textContent = "";
    download(`/api/runs/${run}/export?format=${form}`, `selfreflect-${run}.${form}`).catch((error) => (message.textContent = error.message));
  };
  const button = (form, text) => element("button", { type: "button", class: "small", onclick: saving(form) }, text);
  const rows = (text, name, csv) => element("button", { type: "button", class: "small", onclick: () => save(name, csv(view)) }, text);
  const ofView = view === null ? [] : [rows("answers as CSV", "answers.csv", groupsCsv), rows("words as CSV", "words.csv", wordsCsv)];
  return element("p", { class: "exports" }, "Export", button("json", "records as JSON"), button("csv", "scores as CSV"), ofView, message);
}

async function showRun(id, index, offset, signal) {
  try {
    const run = await get(`/api/runs/${id}?offset=${offset}&limit=${QUESTIONS_PAGE}`);
    const question = index ?? (run.total === 1 ? 0 : null);
    const showQuestion = async () => {
      const [view, { meaning }] = await Promise.all([get(`/api/runs/${id}/questions/${question}`), options()]);
      return questionView(id, question, view, backTo(run), meaning);
    };
    const view = question === null ? runView(run, offset) : await showQuestion();
    if (signal.aborted) return;
    result.replaceChildren(view);
    announce(question === null ? `Run with ${run.total} questions` : "Question shown");
  } catch (error) {
    if (!signal.aborted) result.replaceChildren(problem(error));
  }
}

const backTo = (run) => (run.total === 1 ? null : element("p", {}, element("a", { href: `#run=${run.id}` }, "all questions of ", label(run.name, 80))));

function runView(run, offset) {
  const informed = run.strategies.some((one) => one.told.n > 0);
  const scored = !informed || run.strategies.some((one) => one.n > 0);
  const heads = ["strategy", ...(informed ? ["tells", "95% interval", "questions"] : []), ...(scored ? ["mean score", "95% interval", "scored"] : [])];
  const cells = ({ mean, low, high, n, told }) => [
    ...(informed ? [...estimateCells([told.share, told.low, told.high], shareText), `${told.n} of ${run.total}`] : []),
    ...(scored ? [...estimateCells([mean, low, high], scoreText), `${n} of ${run.total}`] : []),
  ];
  const head = heads.map((name) => element("th", { scope: "col" }, name));
  const rows = run.strategies.map((one) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, label(one.name)),
      cells(one).map((text) => element("td", {}, text)),
    ),
  );
  const about = [informed ? "share of what the sampled answers tell" : null, scored ? "score: 0 is perfect, lower is better" : null];
  const caption = informed ? about.filter((part) => part !== null).join("; ") : "0 is perfect, lower is better";
  const scores = element("table", {}, element("caption", {}, caption), element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows));
  return element(
    "div",
    { class: "run" },
    element("h2", {}, label(run.name)),
    run.judge.length > 0 ? element("p", { class: "quiet" }, "judge: ", label(run.judge.join("; "), 300)) : null,
    run.strategies.length > 0 ? element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Strategies" }, scores) : element("p", {}, "Nothing has been summarised yet."),
    element("h3", {}, "Questions"),
    questionTable(run),
    pages(run, offset),
    exports(run.id),
  );
}

const estimateCells = ([mean, low, high], text) => [mean === null ? "–" : text(mean), low === null ? "–" : `${text(low)} to ${text(high)}`];

function questionTable(run) {
  const informed = run.questions.some((one) => one.shares.some((share) => share !== null));
  const cell = (one, place) => {
    const [share, score] = [one.shares[place], one.scores[place]];
    const scoreShown = score === null ? "–" : scoreText(score);
    if (!informed) return scoreShown;
    return [share === null ? "–" : shareText(share), score === null ? null : element("span", { class: "below" }, scoreShown)];
  };
  const names = run.strategies.map((one) => element("th", { scope: "col" }, label(one.name, 40)));
  const rows = run.questions.map((one) =>
    element(
      "tr",
      {},
      element("th", { scope: "row" }, element("a", { href: `#run=${run.id}&question=${one.index}` }, label(one.question, 160))),
      one.scores.map((_, place) => element("td", {}, cell(one, place))),
    ),
  );
  const head = element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "question"), names));
  return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Questions" }, element("table", {}, head, element("tbody", {}, rows)));
}

function pages(run, offset) {
  if (run.total <= QUESTIONS_PAGE) return null;
  const link = (to, text) => element("a", { href: `#run=${run.id}&offset=${to}` }, text);
  const last = Math.min(offset + QUESTIONS_PAGE, run.total);
  return element(
    "p",
    { class: "pages" },
    offset > 0 ? link(Math.max(0, offset - QUESTIONS_PAGE), "earlier") : null,
    ` ${offset + 1} to ${last} of ${run.total} `,
    last < run.total ? link(last, "later") : null,
  );
}

// --- the lists

let shownRuns = RUNS_PAGE;

async function refreshLists() {
  try {
    const [list, queue] = await Promise.all([runsTo(shownRuns), get("/api/jobs")]);
    const current = new Set(queue.jobs.filter((job) => job.status === "running").map((job) => job.run));
    const entries = list.runs.map((run) => runEntry(run, current));
    byId("runs").replaceChildren(...(entries.length > 0 ? entries : [element("li", { class: "quiet" }, "None yet.")]));
    byId("more-runs").hidden = !list.more;
    showQueue(queue.jobs.filter((job) => job.status === "running" || job.status === "waiting"));
  } catch (error) {
    byId("runs").replaceChildren(element("li", {}, problem(error)));
  }
}

/** Fetches the first `count` runs. A map, because a run that changes meanwhile moves up and appears twice. */
async function runsTo(count) {
  const runs = new Map();
  let more = true;
  for (let offset = 0; offset < count && more; offset += RUNS_AT_ONCE) {
    const part = await get(`/api/runs?offset=${offset}&limit=${Math.min(RUNS_AT_ONCE, count - offset)}`);
    for (const run of part.runs) runs.set(run.id, run);
    more = part.more;
  }
  return { runs: [...runs.values()], more };
}

const LACKS = { answers: "failed: no answers", summaries: "no summaries", scores: "not scored" };

function runEntry(run, current) {
  const when = new Date(run.changed * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
  const what = run.problem === null ? `${when} · ${run.name}` : `${run.name} cannot be opened: ${run.problem}`;
  const title = label(run.question ?? run.name, 120);
  const lacks = run.problem === null && run.lacks !== null && !current.has(run.id);
  const mark = lacks ? [" ", element("span", { class: "tag lacks" }, LACKS[run.lacks])] : [];
  const many = run.questions > 1 ? element("span", { class: "quiet" }, ` and ${run.questions - 1} more`) : null;
  const link = run.problem === null ? element("a", { href: `#run=${run.id}` }, title, many) : element("span", {}, title);
  return element("li", {}, link, mark, element("p", { class: "facts" }, cut(visible(what), 300)));
}

function showQueue(jobs) {
  const items = jobs.map((job) => {
    const where = job.status === "running" ? "running" : `waiting, ${job.place} ahead of it`;
    const stop = element("button", { type: "button", class: "small", "aria-label": `stop ${cut(visible(job.question), 60)}` }, "stop");
    stop.addEventListener("click", () => post(`/api/jobs/${job.id}/cancel`).then(refreshLists, refreshLists));
    return element("li", {}, element("a", { href: `#job=${job.id}` }, label(job.question, 120)), element("p", { class: "facts" }, where, " ", stop));
  });
  byId("queue").replaceChildren(...(items.length > 0 ? [element("h2", {}, "Now"), element("ol", {}, items)] : []));
}

// --- the address

function route() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const at = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (/^\d{1,9}$/.test(at.get(name) ?? "") ? Number(at.get(name)) : null);
  const id = (name) => (/^[0-9a-f]{16}$/.test(at.get(name) ?? "") ? at.get(name) : null);
  document.title = "selfreflect";
  if (id("job") !== null) showJob(id("job"), number("of"), signal);
  else if (id("run") !== null) showRun(id("run"), number("question"), number("offset") ?? 0, signal);
  else result.replaceChildren(start);
}

function examples() {
  const fill = (text, context) => () => {
    byId("question").value = text;
    byId("context").value = context;
    byId("question").focus();
  };
  const buttons = Object.entries(EXAMPLES).map(([text, context]) =>
    element("li", {}, element("button", { type: "button", class: "small", onclick: fill(text, context) }, text)),
  );
  byId("examples").append(...buttons);
}

takeToken();
examples();
byId("ask").addEventListener("submit", ask);
byId("ask").addEventListener("change", showEstimate);
for (const box of ["question", "context"]) {
  byId(box).addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("ask").requestSubmit();
  });
}
byId("more-runs").addEventListener("click", () => {
  shownRuns *= 2;
  refreshLists();
});
window.addEventListener("hashchange", () => {
  takeToken();
  route();
  byId("main").focus({ preventScroll: true });
  const { top } = byId("main").getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) byId("main").scrollIntoView();
});
fillForm().catch((error) => byId("form-problem").append(error instanceof ApiError ? problem(error) : visible(`${error}`)));
refreshLists();
route();
