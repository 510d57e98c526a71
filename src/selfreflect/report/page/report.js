/** Run the report page: the list of questions, one question at a time, judges, baselines and downloads. */

import { cut, element, label, pairs, visible, wordsOf } from "./dom.js";
import { questionPanel, summaryCards } from "./question.js";
import { save, toCsv } from "./csv.js";
import { chooseParts, chooseRisks, offerCsv, pairTables, sortTables, unpacked } from "./frame.js";
import { groupsCsv, wordsCsv } from "./rows.js";

const PAGE = 25;
const HASH = /^#(?:j(\d+))?r(\d+)q(\d+)$/u;
/** The address of a question; that of the first judge is as short as in a page of one. */
const hashOf = (judge, run, place) => `#${judge > 0 ? `j${judge}` : ""}r${run}q${place}`;

const chunks = new Map();

function chunk(id) {
  if (!chunks.has(id)) chunks.set(id, unpacked(id));
  return chunks.get(id);
}

/** Give a question as one judge scored it. Texts are stored once, with the first scores of its run. */
async function viewOf(index, judge, run, place) {
  const size = index.runs[run].chunk;
  const part = Math.floor(place / size);
  const scoring = index.judges[judge][run];
  const first = (await chunk(`chunk-${run}-${part}`))[place % size];
  if (scoring === 0) return first;
  const texts = new Map(first.summaries.map(({ name, text }) => [name, text]));
  const { words, summaries, controls } = (await chunk(`scoring-${run}-${scoring}-${part}`))[place % size];
  for (const summary of summaries) summary.text = texts.get(summary.name) ?? null;
  return { ...first, words, summaries, controls };
}

/** The number of a strategy in one of the shown measures; null if there is none. */
const numberOf = (row, measure, place) => row.cells[measure.place][place]?.[0] ?? null;

/** Name the difference, as `basic − greedy`. */
const differenceName = ({ run, a, b }) => [a, b].map((place) => cut(visible(run.strategies[place]), 24)).join(" − ");

/** The difference of two strategies in the first measure. */
function difference(state, row) {
  const [a, b] = [state.a, state.b].map((place) => numberOf(row, state.measures[0], place));
  return a === null || b === null ? null : a - b;
}

/** The first measure in the leading column, higher where that is better; null without a value. */
function goodness(state, row) {
  const [main] = state.measures;
  const value = numberOf(row, main, state.run.lead);
  return value === null || main.higher ? value : -value;
}

/** List the ways to sort: a name, a heading, and the value of a row (null comes last). */
function sortings(state) {
  const { strategies, lead } = state.run;
  const options = [
    { name: "worst", text: strategies.length > 1 ? `worst first: ${strategies[lead]}` : "worst first", value: (row) => goodness(state, row) },
    { name: "order", text: "run order", value: (row) => row.place },
  ];
  if (state.spreads) options.push({ name: "spread", text: "answer spread", value: (row) => row.spread });
  for (const measure of state.measures) {
    strategies.forEach((name, place) =>
      options.push({ name: `${measure.place}-${place}`, text: `${measure.name} of ${name}`, value: (row) => numberOf(row, measure, place) }),
    );
  }
  if (strategies.length > 1) {
    options.push({ name: "difference", text: "difference between two columns", value: (row) => difference(state, row) });
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

/** What a judge says of a run: its label, strategies, measures, and cells by question. */
const scoringOf = (index, judge, number) => index.runs[number].scorings[index.judges[judge][number]];

/** What stands for all runs side by side in the menu of runs. */
const ALL = -1;

/** Put the runs side by side: a column for each strategy of each run, and a row for each question that any of them asks. */
function sideBySide(index, judge) {
  const scorings = index.runs.map((_, number) => scoringOf(index, judge, number));
  const names = [...new Set(scorings.flatMap(({ measures }) => measures.map(({ name }) => name)))];
  const measures = names.map((name) => scorings.flatMap((scoring) => scoring.measures).find((measure) => measure.name === name));
  const columns = scorings.flatMap((scoring, number) => scoring.strategies.map((_, place) => ({ number, place })));
  const strategies = columns.map(({ number, place }) => {
    const { label: run, strategies: all, columns: shown } = scorings[number];
    return all.length === 1 ? run : `${shown[place]} (${run})`;
  });
  const rows = new Map();
  index.runs.forEach(({ questions }, number) => {
    questions.forEach(([text, kind, spread, id], place) => {
      const key = `${id} ${text}`;
      if (!rows.has(key)) rows.set(key, { place: rows.size, number, own: place, text, kind, spread, places: new Map() });
      rows.get(key).places.set(number, place);
    });
  });
  const cellOf = (row, name, { number, place }) => {
    const at = scorings[number].measures.findIndex((measure) => measure.name === name);
    return row.places.has(number) && at >= 0 ? scorings[number].cells[row.places.get(number)][at][place] : null;
  };
  const filled = [...rows.values()].map((row) => ({ ...row, cells: names.map((name) => columns.map((column) => cellOf(row, name, column))) }));
  // of several versions the newest, which is named last, is what a reader has to judge
  const lead = Math.max(0, columns.findIndex(({ number }) => number === index.runs.length - 1));
  return { run: { label: "all runs", strategies, columns: strategies, measures, lead }, rows: filled };
}

/** Give a run with a row for each of its questions. */
function alone(index, judge, number) {
  const run = scoringOf(index, judge, number);
  const rows = index.runs[number].questions.map(([text, kind, spread], place) => ({ place, number, own: place, text, kind, spread, cells: run.cells[place] }));
  return { run: { ...run, lead: 0 }, rows };
}

function chooseRun(index, judge, number) {
  const { run, rows } = number === ALL ? sideBySide(index, judge) : alone(index, judge, number);
  for (const row of rows) row.searched = `${row.text} ${row.kind}`.toLocaleLowerCase();
  const all = run.measures.map((measure, place) => ({ ...measure, place }));
  const measured = all.filter(({ place }) => rows.some((row) => row.cells[place].some((cell) => cell !== null && cell[0] !== null)));
  const measures = measured.length > 0 ? measured : all.slice(-1);
  const spreads = new Set(rows.map((row) => row.spread)).size > 1; // the same number everywhere says nothing
  const b = Math.max(0, run.strategies.indexOf(index.baseline)); // as in the figures, so that signs agree
  const a = b === 0 ? 1 : 0;
  return { index, judge, number, run, rows, measures, spreads, query: "", sort: "worst", descending: false, a, b, page: 0 };
}

/** Orders that begin with the lowest. */
const RISING = new Set(["order", "worst"]);

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
    Object.assign(state, { sort, page: 0, descending: !RISING.has(sort) });
    redraw.all();
  };
  const parts = [element("label", { class: "field" }, "Search", search)];
  if (state.index.runs.length > 1) {
    const runs = state.index.runs.map((_, place) => [place, scoringOf(state.index, state.judge, place).label]);
    runs.unshift([ALL, "all, side by side"]);
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

/** Say what the list does not: how answers were grouped, and why values are missing. */
function listNotes(state) {
  const { index, rows, run } = state;
  const texts = new Set(rows.flatMap((row) => run.strategies.map((_, place) => row.cells[state.measures[0].place][place])).filter((cell) => cell !== null && cell[0] === null).map(([, text]) => text));
  const missing = Object.entries(index.reasons).filter(([word]) => [...texts].some((text) => text.endsWith(word)));
  const notes = missing.map(([word, reason]) => `${word}: ${reason}`);
  if (state.spreads) notes.unshift(`Spread: how many different answers there are in effect, grouped by ${index.grouped}; 1 if all agree.`);
  return notes.map((note) => element("p", { class: "note" }, note));
}

function listTable(state, rows, redraw) {
  const { strategies } = state.run;
  const several = strategies.length > 1;
  const heading = (name, sort, number) => {
    const active = state.sort === sort;
    const button = element("button", { type: "button", "data-key": `sort-${sort}` }, name);
    button.addEventListener("click", () => redraw.with({ sort, page: 0, descending: active ? !state.descending : !RISING.has(sort) }));
    const order = active ? (state.descending ? "descending" : "ascending") : null;
    return element("th", { scope: "col", class: number ? "number" : null, "aria-sort": order }, button);
  };
  const heads = [heading("question", "order", false), ...(state.spreads ? [heading("spread", "spread", true)] : [])];
  heads.push(...state.run.columns.map((name, place) => heading(label(name, 24), `${state.measures[0].place}-${place}`, true)));
  if (several) heads.push(heading(label(differenceName(state), 60), "difference", true));
  const body = rows.map((row) => listRow(state, row, several));
  const head = element("thead", {}, element("tr", {}, heads));
  return pairs(element("table", { class: "list" }, element("caption", {}, listCaption(state)), head, element("tbody", {}, body)));
}

const listCaption = ({ measures: [first, ...others] }) => [first.name, ...others.map(({ name }) => `below it ${name}`)].join(", ");

function listRow(state, row, several) {
  const number = (content, best = false) => element("td", { class: best ? "number best" : "number" }, content);
  const shown = (value, text) => (value === null ? element("span", { class: "quiet" }, "–") : text(value));
  const [main, ...others] = state.measures;
  const values = state.run.strategies.map((_, place) => numberOf(row, main, place));
  const defined = values.filter((value) => value !== null);
  const differ = defined.some((value) => value !== defined[0]);
  const best = differ ? (main.higher ? Math.max : Math.min)(...defined) : null;
  const link = element("a", { href: hashOf(state.judge, row.number, row.own) }, label(row.text, 160));
  const kind = row.kind ? element("div", { class: "facts" }, label(row.kind, 60)) : null;
  const cells = [element("td", { dir: "auto" }, link, kind)];
  if (state.spreads) cells.push(number(shown(row.spread, (value) => value.toFixed(1))));
  state.run.strategies.forEach((_, place) => {
    const cell = (measure) => row.cells[measure.place][place];
    const text = cell(main)?.[1] ?? "–";
    const below = others.map((measure) => element("span", { class: "below" }, cell(measure)?.[1] ?? "–"));
    const doubtful = values[place] === null; // why there is no number that counts
    const content = [doubtful ? element("span", { class: "quiet small" }, text) : text, below];
    cells.push(number(content.flat(), values[place] !== null && values[place] === best));
  });
  if (several) cells.push(number(shown(difference(state, row), (value) => signedText(value, main))));
  return element("tr", {}, cells);
}

/** Write a difference; that of shares in points. */
function signedText(value, { share, digits }) {
  const points = Math.round(100 * Math.abs(value));
  const sign = value < 0 ? "-" : "+";
  return `${share && points === 0 ? "" : sign}${share ? `${points} point${points === 1 ? "" : "s"}` : Math.abs(value).toFixed(digits)}`;
}

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
  all.addEventListener("click", async () => save("questions.csv", toCsv(await allRows(state.index, state.judge))));
  return element(
    "div",
    { class: "pager", "data-whole": pages === 1 },
    go("previous", state.page - 1, state.page > 0),
    element("span", { role: "status" }, range),
    go("next", state.page + 1, state.page + 1 < pages),
    all,
  );
}

async function allRows(index, judge) {
  const several = index.runs.length > 1 || index.judges.length > 1;
  const rows = [several ? ["run", ...index.columns] : index.columns];
  for (const [number, run] of index.runs.entries()) {
    const { label: name } = scoringOf(index, judge, number);
    for (let place = 0; place < run.questions.length; place += 1) {
      const view = await viewOf(index, judge, number, place);
      for (const summary of view.summaries) {
        const cells = questionCells(view, summary);
        const row = index.columns.map((column) => cells[column] ?? null);
        rows.push(several ? [name, ...row] : row);
      }
    }
  }
  return rows;
}

/** The values of one row of the table of questions, by column. */
function questionCells(view, summary) {
  const { information } = summary;
  return {
    question_id: view.id,
    question: view.text,
    kind: view.kind,
    strategy: summary.name,
    score: summary.score,
    stderr: summary.stderr,
    token_tasks: summary.tasks,
    estimated_from: summary.estimate ? `${summary.estimate[0]} of ${summary.estimate[1]} words` : null,
    bits: information?.bits,
    bits_available: information?.available,
    recovered: information?.recovered,
    recovered_low: information?.interval?.[0],
    recovered_high: information?.interval?.[1],
    reader: information?.reader,
    undefined: information?.undefined,
    summary: summary.text,
    summary_words: summary.text === null ? null : wordsOf(summary.text).length,
    failure: summary.why || null,
    ...Object.assign({}, ...summary.measures.map(({ cells }) => cells)),
  };
}

const leftOut = (index) => (index.left_out.includes("guesses") ? { unrecorded: () => ["This was left out of this page."] } : {});

/** Show the replies of the other runs to the same question, each as cards under the name of its run. */
async function otherVersions(state, row, number) {
  const sections = [];
  for (const [other, place] of row?.places ?? []) {
    if (other === number) continue;
    const view = await viewOf(state.index, state.judge, other, place);
    const name = scoringOf(state.index, state.judge, other).label;
    const link = element("a", { href: hashOf(state.judge, other, place) }, label(name, 60));
    sections.push(element("section", { class: "other-version" }, element("p", {}, "The same question in ", link), summaryCards(view)));
  }
  if (sections.length > 0) sections.push(element("p", { class: "other-version" }, "In ", label(scoringOf(state.index, state.judge, number).label, 60)));
  return sections;
}

/** Say how to read the numbers, for somebody who sees only this question. */
const readingNote = (index, view) =>
  element("p", { class: "quiet reading" }, `The question was asked ${view.answers.length} times. ${index.reading}`);

/** Show what got worse above the list of questions, and not above a single one. */
function showWorse(isShown) {
  for (const part of document.querySelectorAll(".worse")) part.hidden = !isShown;
}

async function showQuestion(home, state, number, place, moves = true) {
  const hash = hashOf(state.judge, number, place);
  const view = await viewOf(state.index, state.judge, number, place);
  if (location.hash !== hash) return; // the reader has moved on meanwhile
  const order = sortedRows(state);
  const at = order.findIndex((row) => (row.places?.get(number) ?? (row.number === number ? row.own : -1)) === place);
  const step = (text, target) => (target === undefined ? null : element("a", { href: hashOf(state.judge, target.number, target.own) }, text));
  const others = await otherVersions(state, order[at], number);
  if (location.hash !== hash) return;
  const title = element("h3", { tabindex: -1, dir: "auto" }, label(view.text, 2000));
  const download = (text, name, rows) => element("button", { type: "button", class: "small", onclick: () => save(name, rows(view)) }, text);
  const way = element(
    "nav",
    { "aria-label": "Questions" },
    element("a", { href: "#questions" }, "all questions"),
    at < 0 ? null : step("previous", order[at - 1]),
    at < 0 ? null : step("next", order[at + 1]),
  );
  const kept = { chosen: state.chosen, onChoose: (name) => (state.chosen = name), shows: state.shows, onShow: (shows) => (state.shows = shows) };
  const panel = questionPanel(view, { ...kept, ...leftOut(state.index), grouped: state.index.grouped });
  showWorse(false);
  home.replaceChildren(
    way,
    element("div", { class: "question-head", "data-question": place }, title, view.kind ? element("p", { class: "facts" }, label(view.kind)) : null, readingNote(state.index, view)),
    ...others,
    panel,
    element("p", {}, download("CSV of the answers", "answers.csv", groupsCsv), " ", download("CSV of the words", "words.csv", wordsCsv)),
  );
  if (!moves) return; // who changes the judge stays at its menu
  title.focus({ preventScroll: true });
  document.getElementById("questions").scrollIntoView();
}

function browse(home, index) {
  let state = chooseRun(index, 0, index.runs.length > 1 ? ALL : 0);
  const menu = document.getElementById("judge");
  const list = element("div", {});
  const redraw = {
    list() {
      const rows = sortedRows(state);
      const visibleRows = rows.slice(state.page * PAGE, (state.page + 1) * PAGE);
      list.replaceChildren(pager(state, rows.length, redraw), listTable(state, visibleRows, redraw));
    },
    all() {
      const key = document.activeElement?.dataset.key;
      showWorse(true);
      home.replaceChildren(controls(state, redraw), list);
      redraw.list();
      home.append(...listNotes(state));
      if (key) [...home.querySelectorAll("[data-key]")].find((control) => control.dataset.key === key)?.focus();
    },
    with(changes) {
      Object.assign(state, changes);
      redraw.all();
    },
    run(number) {
      state = chooseRun(index, state.judge, number);
      redraw.all();
    },
  };
  /** Show another scoring, everywhere on the page; what was searched and how words are shown stays. */
  const choose = (judge, run) => {
    const { query, chosen, shows } = state;
    state = Object.assign(chooseRun(index, judge, run), { query, chosen, shows });
    if (menu) menu.value = String(judge);
    for (const part of document.querySelectorAll("[data-judge]")) part.hidden = part.dataset.judge !== String(judge);
  };
  const target = () => {
    const match = HASH.exec(location.hash);
    if (!match) return null;
    const [judge, run, place] = [Number(match[1] ?? 0), Number(match[2]), Number(match[3])];
    return index.judges[judge] && index.runs[run]?.questions[place] !== undefined ? { judge, run, place } : null;
  };
  const route = () => {
    const question = target();
    if (question === null) {
      if (!list.isConnected) {
        redraw.all();
        [...home.querySelectorAll(".list a")].find((link) => link.hash === state.last)?.focus();
      }
      return;
    }
    const { judge, run, place } = question;
    if (judge !== state.judge || (state.number !== ALL && run !== state.number)) choose(judge, state.number === ALL ? ALL : run);
    state.last = location.hash;
    showQuestion(home, state, run, place);
  };
  menu?.addEventListener("change", () => {
    const judge = Number(menu.value);
    const question = target();
    choose(judge, state.number);
    if (question === null) {
      redraw.all();
      return;
    }
    history.replaceState(null, "", hashOf(judge, question.run, question.place));
    state.last = location.hash;
    showQuestion(home, state, question.run, question.place, false);
  });
  addEventListener("hashchange", route);
  // a page of one question is sent to somebody who wants to see that
  const [only] = state.rows;
  if (state.rows.length === 1 && location.hash === "") history.replaceState(null, "", hashOf(0, only.number, only.own));
  redraw.all();
  route();
}

const index = await unpacked("index");
chooseParts("select.baseline", "[data-judge]", "baseline");
chooseParts("select.estimator", ".uncertainty-part", "estimator");
chooseRisks();
sortTables();
pairTables();
offerCsv(index.csv);
browse(document.getElementById("browser"), index);
document.documentElement.dataset.ready = "yes";
performance.mark("ready");
