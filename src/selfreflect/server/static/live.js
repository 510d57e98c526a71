/** The view of a running job, and of errors. */

import { element, label, prose } from "./dom.js";
import { answerGroups, summaryCards } from "./question.js";

const STAGES = { answers: "Drawing answers", summaries: "Summarising", scores: "Scoring" };
const ENDS = { done: "Done", cancelled: "Stopped", failed: "Failed" };

/** An error: what is wrong, and what to do about it on the page. */
export function problem({ message, remedy = "" }) {
  const stop = remedy && !/[.!?…]$/u.test(message) ? "." : "";
  return element("div", { class: "problem", role: "alert" }, prose(`${message}${stop} ${remedy}`.trim()));
}

const blank = (name) => ({
  ...{ name, text: null, score: null, interval: null, tasks: null, estimate: false, why: "", warnings: [], distances: null, guesses: null },
  ...{ information: null, bits: null, place: null },
});

/** What a job does now, in a line. */
export function stageText(job) {
  if (job.status === "waiting") return job.ahead === 0 ? "Starting" : `Waiting for ${job.ahead} other question${job.ahead === 1 ? "" : "s"}`;
  if (job.status !== "running") return ENDS[job.status];
  if (job.note) return job.note[0].toUpperCase() + job.note.slice(1);
  return STAGES[job.stage] ?? "Starting";
}

const spoken = (seconds) => (seconds < 90 ? `${Math.max(1, Math.round(seconds))} s` : `${Math.round(seconds / 60)} min`);

function lineText(job) {
  const drawn = job.status === "running" && job.stage === "answers" && job.done > 0 ? `: ${job.done} of ${job.total}` : "";
  const left = job.seconds_left === null ? "" : `, about ${spoken(job.seconds_left)} left in this step`;
  return `${stageText(job)}${drawn}${left}`;
}

/**
 * Makes the view of a running job. `update(job)` draws what is new, and returns a line for screen readers or null. The stop button stays the
 * same element, so that it keeps the focus.
 */
export function liveView(stop) {
  const heading = element("h2", {});
  const line = element("p", { class: "line" });
  const bar = element("progress", { "aria-label": "Progress of this step" });
  const button = element("button", { type: "button", onclick: stop }, "Stop");
  const newest = element("p", { class: "newest" });
  const problems = element("div", {});
  const bars = element("div", {});
  const groups = element("section", { hidden: true }, element("h3", {}, "Sampled answers"), bars);
  const cards = element("section", { "aria-label": "Summaries" });
  const parts = element("div", { class: "two-parts" }, cards, groups);
  const root = element("div", { class: "live" }, heading, problems, element("div", { class: "status" }, line, bar, button), newest, parts);
  const drawn = { answers: 0, summaries: "[]", problems: "[]", line: "" };

  const update = (job) => {
    const over = job.status in ENDS;
    const latest = job.answers.at(-1);
    const summaries = (job.summaries ?? []).map((summary) => ({ ...blank(summary.name), ...summary }));
    const view = { id: "", text: job.question, kind: "", context: "", answers: job.answers, masked: 0, groups: job.groups, merged: 0, words: [], summaries, controls: [] };
    heading.replaceChildren(label(job.question, 500));
    line.textContent = lineText(job);
    bar.hidden = over;
    if (job.done) Object.assign(bar, { max: job.total, value: job.done });
    else bar.removeAttribute("value");
    button.hidden = over;
    newest.hidden = over || latest === undefined || job.stage !== "answers";
    if (drawn.answers !== job.answers.length) {
      drawn.answers = job.answers.length;
      newest.replaceChildren(element("span", { class: "quiet" }, "newest "), label(latest, 400));
      groups.hidden = false;
      bars.replaceChildren(answerGroups(view));
    }
    const state = JSON.stringify([summaries, over]);
    if (drawn.summaries !== state && summaries.length > 0) {
      drawn.summaries = state;
      cards.replaceChildren(summaryCards(view));
      for (const none of cards.querySelectorAll(".score.none")) if (!over) none.textContent = "not scored yet";
    }
    const wrong = [...(job.problems ?? []), ...(job.error ? [job.error] : [])];
    if (drawn.problems !== JSON.stringify(wrong)) {
      drawn.problems = JSON.stringify(wrong); // an alert that is made again is read out again
      problems.replaceChildren(...wrong.map(problem));
    }
    const said = stageText(job);
    const change = said === drawn.line ? null : said;
    drawn.line = said;
    return change;
  };
  return { element: root, update, lost: (message) => (line.textContent = message) };
}
