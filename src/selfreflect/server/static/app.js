/** The page: the form, the job or run on display, and the lists. The address names what is on display, so a reload shows it again. */

import { follow, get, post, takeToken } from "./client.js";
import { cut, element, label, visible } from "./dom.js";
import { startForm } from "./form.js";
import { liveView, problem, stageText } from "./live.js";
import { loadRun, questionView, runPage } from "./run.js";

const RUNS_PAGE = 20;
const RUNS_AT_ONCE = 100;

const byId = (id) => document.getElementById(id);
const result = byId("result");
const start = result.firstElementChild;
let leaving = new AbortController();

/** For screen readers. Called for each stage, not for each answer. */
const announce = (text) => (byId("announcements").textContent = text);

// --- one job

async function showJob(id, signal) {
  const live = liveView(() => post(`/api/jobs/${id}/cancel`).catch((error) => live.lost(error.message)));
  let known = {};
  const show = (job) => {
    const first = known.id === undefined;
    if (first) result.replaceChildren(live.element);
    const change = live.update(job);
    if (change !== null) announce(change);
    if (first || job.run !== known.run || job.status !== known.status) refreshLists();
    known = job;
  };
  try {
    await follow(id, show, live.lost, signal);
  } catch (error) {
    if (!signal.aborted) result.replaceChildren(problem(error));
    return;
  }
  if (!signal.aborted && known.run) await showEnd(known, signal);
}

/** Replaces the live view by the finished question, if that has all answers. */
async function showEnd(job, signal) {
  const { run, status, error } = job;
  const opened = await loadRun(run, { question: 0 }).catch(() => null);
  if (opened === null || signal.aborted || opened.view.answers.length < job.answers.length) return;
  const ended = status === "done" ? [] : [element("p", { class: "line" }, stageText(job))];
  const problems = error ? [problem(error)] : [];
  result.replaceChildren(...problems, ...ended, questionView(opened));
}

// --- one run

async function showRun(id, place, signal) {
  try {
    const opened = await loadRun(id, place);
    if (signal.aborted) return;
    result.replaceChildren(runPage(opened));
    announce(opened.view === null ? `Run with ${opened.run.total} questions` : "Question shown");
  } catch (error) {
    if (!signal.aborted) result.replaceChildren(problem(error));
  }
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
    const where = job.status === "running" ? "running" : `waiting, ${job.ahead} ahead of it`;
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
  if (id("job") !== null) showJob(id("job"), signal);
  else if (id("run") !== null) showRun(id("run"), { question: number("question"), offset: number("offset") ?? 0 }, signal);
  else result.replaceChildren(start);
}

takeToken();
startForm();
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
refreshLists();
route();
