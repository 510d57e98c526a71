/** A running job: what its events said so far, and the view of it. */

import { element, label, prose } from "./dom.js";
import { joinedGroups } from "./grouping.js";
import { answerGroups, summaryCards } from "./question.js";

const STAGES = { answers: "Drawing answers", summaries: "Summarising", scores: "Scoring" };

/** The state of a job. `heard` applies one event and describes the change, or returns null. */
export class Progress {
  constructor(question, wanted, kind) {
    this.question = question;
    this.wanted = wanted;
    this.kind = kind;
    this.scoring = null;
    this.answers = [];
    this.groups = [];
    this.meaning = null;
    this.summaries = new Map();
    this.problems = [];
    this.run = null;
    this.line = "Waiting";
    this.ended = null;
  }

  heard(kind, data) {
    const taken = { advance: this.advanced, begun: this.begun, status: this.status, note: this.note, stage: this.stage, answers: this.drawn, summary: this.summary };
    const rest = { warning: this.warning, score: this.score, information: this.informed, failure: this.failure, end: this.end };
    return { ...taken, ...rest }[kind]?.call(this, data) ?? null;
  }

  begun(data) {
    this.run = data.run;
    this.scoring = data.scoring ?? null;
    this.question = data.question;
    this.line = "Starting";
  }

  status(data) {
    if (data.status === "running") this.line = "Starting";
    else this.line = data.place === 0 ? "Starting" : `Waiting for ${data.place} other question${data.place === 1 ? "" : "s"}`;
    return this.line;
  }

  note(data) {
    this.line = data.text.replace(/^loading/u, "Loading");
  }

  stage(data) {
    this.line = STAGES[data.name] ?? data.name;
    this.current = data.name;
    this.total = data.total;
    this.done = 0;
    this.since = performance.now();
    return this.line;
  }

  advanced(data) {
    this.done = data.done;
  }

  /** Seconds left of the current stage; null while nobody can say. */
  get left() {
    const [done, all] = this.current === "answers" ? [this.answers.length, this.wanted] : [this.done, this.total];
    if (!done || !all || done >= all || this.ended !== null) return null;
    return ((performance.now() - this.since) / 1000 / done) * (all - done);
  }

  drawn(data) {
    data.texts.forEach((text, place) => {
      const group = data.groups[place];
      (this.groups[group] ??= []).push(this.answers.length);
      this.answers.push(text);
    });
    this.line = `Drawing answers: ${this.answers.length}${this.wanted ? ` of ${this.wanted}` : ""}`;
  }

  summary(data) {
    this.summaries.set(data.name, { ...blank(data.name), text: data.text, warnings: data.warnings ?? [] });
    return `Summary by ${data.name}`;
  }

  score(data) {
    const summary = this.summaries.get(data.name) ?? blank(data.name);
    this.summaries.set(data.name, { ...summary, score: data.value });
    return `Score of ${data.name}: ${data.value.toFixed(4)}`;
  }

  informed({ name, ...information }) {
    this.summaries.set(name, { ...(this.summaries.get(name) ?? blank(name)), information });
    return `${name}: ${information.sentence}`;
  }

  warning(data) {
    this.problems.push({ message: data.text, details: "" });
    return data.text;
  }

  failure(data) {
    if (data.name === "") this.problems.push(data);
    else this.summaries.set(data.name, { ...(this.summaries.get(data.name) ?? blank(data.name)), why: `${data.message} ${data.details ?? ""}`.trim() });
    return `Problem: ${data.message}`;
  }

  end(data) {
    this.ended = data;
    this.line = { done: "Done", cancelled: "Stopped", failed: "Failed" }[data.status];
    return this.line;
  }

  /** The shape of a finished question, without distances; grouped by spelling until groups by meaning arrive. */
  get view() {
    const spelt = this.groups.filter((group) => group !== undefined);
    const groups = (this.meaning === null ? spelt : joinedGroups(this.meaning.groups, spelt, this.answers.length)).sort((a, b) => b.length - a.length || a[0] - b[0]);
    const summaries = [...this.summaries.values()];
    return { id: "", text: this.question, kind: "", context: "", answers: this.answers, masked: 0, groups, words: [], summaries, controls: [] };
  }
}

/** Say a number of seconds in words. */
export const spoken = (seconds) => (seconds < 90 ? `${Math.max(1, Math.round(seconds))} s` : `${Math.round(seconds / 60)} min`);

/** An error, at first in one sentence; the rest of what a library or server said is one click away. */
export function problemBox(message, details = "") {
  const more = details ? element("details", {}, element("summary", {}, "details"), prose(details)) : null;
  return element("div", { class: "problem", role: "alert" }, prose(message), more);
}

export function problem(error) {
  return problemBox(`${error.message ?? error}`, error.details);
}

const blank = (name) => ({
  ...{ name, text: null, score: null, interval: null, tasks: null, estimate: false, why: "", warnings: [], distances: null, guesses: null },
  ...{ information: null, bits: null, place: null },
});

/**
 * Makes the view of a running job. `update()` draws what is new; the stop button and the choice of groups stay the same elements, so that
 * they keep the focus.
 */
export function liveView(progress, stop, grouping) {
  const heading = element("h2", {}, label(progress.question, 500));
  const about = progress.kind === "judge" ? element("p", { class: "quiet" }, "One more judge scores this run. Its other scores stay.") : null;
  const line = element("p", { class: "line" });
  const bar = element("progress", { "aria-label": "Answers drawn" });
  const button = element("button", { type: "button", onclick: stop }, "Stop");
  const newest = element("p", { class: "newest" });
  const problems = element("div", {});
  const bars = element("div", {});
  const groups = element("section", { hidden: true }, element("h3", {}, "Sampled answers"), grouping, bars);
  const cards = element("section", { "aria-label": "Summaries" });
  const parts = element("div", { class: "two-parts" }, cards, groups);
  const root = element("div", { class: "live" }, heading, about, problems, element("div", { class: "status" }, line, bar, button), newest, parts);
  const drawn = { answers: -1, meaning: null, summaries: "" };

  const update = () => {
    heading.replaceChildren(label(progress.question, 500));
    line.textContent = progress.left === null ? progress.line : `${progress.line}, about ${spoken(progress.left)} left in this step`;
    showBar(bar, progress);
    button.hidden = progress.ended !== null;
    const view = progress.view;
    if (drawn.answers !== view.answers.length || drawn.meaning !== progress.meaning) {
      Object.assign(drawn, { answers: view.answers.length, meaning: progress.meaning });
      const latest = view.answers.at(-1);
      newest.replaceChildren(...(latest === undefined ? [] : [element("span", { class: "quiet" }, "newest "), label(latest, 400)]));
      groups.hidden = latest === undefined;
      bars.replaceChildren(...(latest === undefined ? [] : [answerGroups(view)]));
    }
    newest.hidden = progress.ended !== null || (progress.current ?? "answers") !== "answers";
    const state = JSON.stringify([view.summaries, progress.ended === null]);
    if (drawn.summaries !== state) {
      drawn.summaries = state;
      cards.replaceChildren(...(view.summaries.length === 0 ? [] : [summaryCards(view)]));
      for (const none of cards.querySelectorAll(".score.none")) if (progress.ended === null) none.textContent = "not scored yet";
    }
    problems.replaceChildren(...problemLines(progress));
  };
  update();
  return { element: root, update, lost: (message) => (line.textContent = message) };
}

function showBar(bar, progress) {
  bar.hidden = progress.ended !== null;
  if (progress.current === "answers" && progress.wanted) {
    bar.max = progress.wanted;
    bar.value = progress.answers.length;
  } else if (progress.total && progress.done) {
    bar.max = progress.total;
    bar.value = progress.done;
  } else bar.removeAttribute("value");
}

export function problemLines(progress) {
  const lines = progress.problems.map(({ message, details }) => problemBox(message, details));
  if (progress.ended?.error) lines.push(problem(progress.ended.error));
  return lines;
}
