/** Run the report page: the list of questions, one question at a time, baselines and downloads. */

import { cut, element, label, visible, wordsOf } from "./dom.js";
import { questionPanel, scoreText } from "./question.js";
import { save, toCsv } from "./csv.js";
import { groupsCsv, wordsCsv } from "./rows.js";

const PAGE = 25;
const HASH = /^#r(\d+)q(\d+)$/u;
const ROW_HEADINGS = "question_id,question,kind,strategy,score,stderr,token_tasks,estimated_from,summary,summary_words,failure".split(",");

/** Decode a script block of this page: base64 of gzipped JSON. */
async function unpacked(id) {
  const bytes = Uint8Array.from(atob(document.getElementById(id).textContent), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

const chunks = new Map();

function chunk(run, number) {
  const id = `chunk-${run}-${number}`;
  if (!chunks.has(id)) chunks.set(id, unpacked(id));
  return chunks.get(id);
}

async function viewOf(index, run, place) {
  const size = index.runs[run].chunk;
  const view = (await chunk(run, Math.floor(place / size)))[place % size];
  for (const summary of view.summaries) {
    if (typeof summary.distances === "string") summary.distances = expanded(summary.distances, view.words);
  }
  return view;
}

/** Decode distances for `question.js`, from one character per word. */
function expanded(text, words) {
  const codes = [...text].map((character) => (character === "!" ? null : character.codePointAt(0) - 0x5d));
  let at = 0;
  return words.map((masked) => codes.slice(at, (at += masked.length)));
}

const difference = (row, a, b) => (row.scores[a] === null || row.scores[b] === null ? null : row.scores[a] - row.scores[b]);

/** List the ways to sort: a name, a heading, and the value of a row (null comes last). */
function sortings(state) {
  const { strategies } = state.run;
  const options = [
    { name: "order", text: "run order", value: (row) => row.place },
    { name: "spread", text: "answer spread", value: (row) => row.spread },
  ];
  strategies.forEach((name, place) => options.push({ name: `score-${place}`, text: `score of ${name}`, value: (row) => row.scores[place] }));
  if (strategies.length > 1) {
    options.push({ name: "difference", text: "difference between two strategies", value: (row) => difference(row, state.a, state.b) });
  }
  return options;
}

function sortedRows(state) {
  const words = state.query.toLocaleLowerCase().split(/\s+/u).filter(Boolean);
  const rows = state.rows.filter((row) => words.every((word) => row.searched.includes(word)));
  const { value } = sortings(state).find((sorting) => sorting.name === state.sort);
  const sign = state.descending ? -1 : 1;
  return rows
    .map((row) => [value(row), row])
    .sort(([a, one], [b, other]) => (a === null) - (b === null) || sign * (a - b) || one.place - other.place)
    .map(([, row]) => row);
}

function chooseRun(index, number) {
  const run = index.runs[number];
  const rows = run.questions.map(([text, kind, spread, scores, estimates], place) => ({
    place,
    text,
    kind,
    spread,
    scores,
    estimates,
    searched: `${text} ${kind}`.toLocaleLowerCase(),
  }));
  return { index, number, run, rows, query: "", sort: "order", descending: false, a: 1, b: 0, page: 0 };
}

const option = (value, text, selected) => element("option", { value, selected }, cut(visible(text), 60));

function select(name, options, chosen, change) {
  const menu = element("select", { "data-key": name }, options.map(([value, text]) => option(value, text, String(value) === String(chosen))));
  menu.addEventListener("change", () => change(menu.value));
  return element("label", { class: "field" }, name, menu);
}

function controls(state, redraw) {
  const search = element("input", { type: "search", value: state.query, placeholder: "words in the question" });
  search.addEventListener("input", () => {
    Object.assign(state, { query: search.value, page: 0 });
    redraw.list();
  });
  const sortBy = (sort) => {
    Object.assign(state, { sort, page: 0, descending: sort !== "order" });
    redraw.all();
  };
  const parts = [element("label", { class: "field" }, "Search", search)];
  if (state.index.runs.length > 1) {
    const runs = state.index.runs.map((run, place) => [place, run.label]);
    parts.unshift(select("Run", runs, state.number, (number) => redraw.run(Number(number))));
  }
  parts.push(
    select(
      "Sort by",
      sortings(state).map(({ name, text }) => [name, text]),
      state.sort,
      sortBy,
    ),
  );
  const direction = element("button", { type: "button", "data-key": "direction" }, state.descending ? "highest first" : "lowest first");
  direction.addEventListener("click", () => {
    Object.assign(state, { descending: !state.descending, page: 0 });
    redraw.all();
  });
  parts.push(direction);
  if (state.run.strategies.length > 1) {
    const names = state.run.strategies.map((name, place) => [place, name]);
    const a = select("Difference of", names, state.a, (value) => redraw.with({ a: Number(value) }));
    const b = select("minus", names, state.b, (value) => redraw.with({ b: Number(value) }));
    parts.push(element("div", { class: "pair" }, a, b));
  }
  return element("div", { class: "controls" }, parts);
}

function listTable(state, rows, redraw) {
  const { strategies } = state.run;
  const several = strategies.length > 1;
  const heading = (name, sort, number) => {
    const active = state.sort === sort;
    const button = element("button", { type: "button", "data-key": `sort-${sort}` }, name);
    button.addEventListener("click", () => redraw.with({ sort, page: 0, descending: active ? !state.descending : sort !== "order" }));
    const order = active ? (state.descending ? "descending" : "ascending") : null;
    return element("th", { scope: "col", class: number ? "number" : null, "aria-sort": order, role: "columnheader" }, button);
  };
  const heads = [heading("question", "order", false), heading("spread", "spread", true)];
  heads.push(...strategies.map((name, place) => heading(label(name, 24), `score-${place}`, true)));
  if (several) heads.push(heading("difference", "difference", true));
  const body = rows.map((row) => listRow(state, row, several));
  return element(
    "table",
    { class: "list", role: "table" },
    element("caption", { class: "hidden-label" }, "Questions with the score of each strategy"),
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, heads)),
    element("tbody", { role: "rowgroup" }, body),
  );
}

function listRow(state, row, several) {
  const number = (name, value, text, lowest = false) =>
    element("td", { class: lowest ? "number lowest" : "number", role: "cell", "data-label": cut(visible(name), 24) }, value === null ? "–" : text(value));
  const defined = row.scores.filter((score) => score !== null);
  const least = defined.length > 1 ? Math.min(...defined) : null;
  const link = element("a", { href: `#r${state.number}q${row.place}` }, label(row.text, 160));
  const kind = row.kind ? element("div", { class: "facts" }, label(row.kind, 60)) : null;
  const cells = [element("td", { role: "cell", dir: "auto" }, link, kind), number("spread", row.spread, (value) => value.toFixed(1))];
  state.run.strategies.forEach((name, place) => {
    const [score, about] = [row.scores[place], row.estimates[place] ? "≈ " : ""];
    cells.push(number(name, score, (value) => about + scoreText(value), score !== null && score === least));
  });
  if (several) cells.push(number("difference", difference(row, state.a, state.b), signed));
  return element("tr", { role: "row" }, cells);
}

const signed = (value) => `${value < 0 ? "−" : "+"}${scoreText(Math.abs(value))}`;

function pager(state, count, redraw) {
  const pages = Math.max(1, Math.ceil(count / PAGE));
  const go = (text, page, enabled) => {
    const button = element("button", { type: "button", disabled: !enabled, "data-key": text }, text);
    button.addEventListener("click", () => redraw.with({ page }));
    return button;
  };
  const first = count === 0 ? 0 : state.page * PAGE + 1;
  const range = `${first}–${Math.min(count, (state.page + 1) * PAGE)} of ${count.toLocaleString("en")}`;
  const all = element("button", { type: "button", class: "small" }, "CSV of all questions");
  all.addEventListener("click", async () => save("questions.csv", toCsv(await allRows(state.index))));
  return element(
    "div",
    { class: "pager" },
    go("previous", state.page - 1, state.page > 0),
    element("span", { role: "status" }, range),
    go("next", state.page + 1, state.page + 1 < pages),
    all,
  );
}

async function allRows(index) {
  const several = index.runs.length > 1;
  const rows = [several ? ["run", ...ROW_HEADINGS] : ROW_HEADINGS];
  for (const [number, run] of index.runs.entries()) {
    for (let place = 0; place < run.questions.length; place += 1) {
      const view = await viewOf(index, number, place);
      rows.push(...view.summaries.map((summary) => (several ? [run.label, ...questionRow(view, summary)] : questionRow(view, summary))));
    }
  }
  return rows;
}

function questionRow(view, summary) {
  const words = summary.text === null ? null : wordsOf(summary.text).length;
  const part = summary.estimate ? `${summary.estimate[0]} of ${summary.estimate[1]} words` : null;
  const outcome = [summary.score, summary.stderr, summary.tasks, part, summary.text, words, summary.why || null];
  return [view.id, view.text, view.kind, summary.name, ...outcome];
}

const leftOut = (index) => (index.left_out.includes("guesses") ? { unrecorded: () => ["This was left out of this page."] } : {});

async function showQuestion(home, state, place) {
  const view = await viewOf(state.index, state.number, place);
  if (location.hash !== `#r${state.number}q${place}`) return; // the reader has moved on meanwhile
  const order = sortedRows(state).map((row) => row.place);
  const at = order.indexOf(place);
  const step = (text, target) =>
    target === undefined ? null : element("a", { href: `#r${state.number}q${target}` }, text);
  const title = element("h3", { tabindex: -1, dir: "auto" }, label(view.text, 2000));
  const download = (text, name, rows) => element("button", { type: "button", class: "small", onclick: () => save(name, rows(view)) }, text);
  const way = element(
    "nav",
    { "aria-label": "Questions" },
    element("a", { href: "#questions" }, "all questions"),
    at < 0 ? null : step("previous", order[at - 1]),
    at < 0 ? null : step("next", order[at + 1]),
  );
  const panel = questionPanel(view, { chosen: state.chosen, onChoose: (name) => (state.chosen = name), ...leftOut(state.index) });
  home.replaceChildren(
    way,
    element("div", { class: "question-head", "data-question": place }, title, view.kind ? element("p", { class: "facts" }, label(view.kind)) : null),
    panel,
    element("p", {}, download("CSV of the answers", "answers.csv", groupsCsv), " ", download("CSV of the words", "words.csv", wordsCsv)),
  );
  title.focus({ preventScroll: true });
  document.getElementById("questions").scrollIntoView();
}

function browse(home, index) {
  let state = chooseRun(index, 0);
  const list = element("div", {});
  const redraw = {
    list() {
      const rows = sortedRows(state);
      const visibleRows = rows.slice(state.page * PAGE, (state.page + 1) * PAGE);
      list.replaceChildren(pager(state, rows.length, redraw), listTable(state, visibleRows, redraw));
    },
    all() {
      const key = document.activeElement?.dataset.key;
      home.replaceChildren(controls(state, redraw), list);
      redraw.list();
      if (key) [...home.querySelectorAll("[data-key]")].find((control) => control.dataset.key === key)?.focus();
    },
    with(changes) {
      Object.assign(state, changes);
      redraw.all();
    },
    run(number) {
      state = chooseRun(index, number);
      redraw.all();
    },
  };
  const route = () => {
    const match = HASH.exec(location.hash);
    const [run, place] = match ? [Number(match[1]), Number(match[2])] : [-1, -1];
    if (index.runs[run]?.questions[place] === undefined) {
      if (!list.isConnected) {
        redraw.all();
        [...home.querySelectorAll(".list a")].find((link) => link.hash === state.last)?.focus();
      }
      return;
    }
    if (run !== state.number) state = chooseRun(index, run);
    state.last = location.hash;
    showQuestion(home, state, place);
  };
  addEventListener("hashchange", route);
  redraw.all();
  route();
}

function chooseBaseline() {
  const chosen = document.getElementById("baseline");
  chosen?.addEventListener("change", () => {
    for (const part of document.querySelectorAll("[data-baseline]")) part.hidden = part.dataset.baseline !== chosen.value;
  });
}

const index = await unpacked("index");
chooseBaseline();
for (const button of document.querySelectorAll("button[data-csv]")) {
  button.disabled = false;
  button.addEventListener("click", () => save(`${button.dataset.csv}.csv`, index.csv[button.dataset.csv]));
}
browse(document.getElementById("browser"), index);
document.documentElement.dataset.ready = "yes";
performance.mark("ready");
