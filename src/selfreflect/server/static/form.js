/** The form: what it offers, and what it asks. */

import { options, post } from "./client.js";
import { element, label, visible } from "./dom.js";
import { problem } from "./live.js";

/** Questions, and what the model reads with them. */
const EXAMPLES = {
  "What broke the vase?": "Emma says that the cat broke the vase. Noah says that the wind broke the vase.",
  "What kind of dog was it?": "The postman says that the dog was a poodle. The baker says that the dog was a terrier.",
  "What colour is the sofa?": "The advertisement says that the sofa is green. The shop says that the sofa is grey.",
};

const byId = (id) => document.getElementById(id);

export function startForm() {
  examples();
  const form = byId("ask");
  form.addEventListener("submit", ask);
  form.addEventListener("change", changed);
  form.addEventListener("invalid", (event) => unfold(event.target), true); // the browser cannot point at a folded field
  for (const box of ["question", "context"]) {
    byId(box).addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
  }
  fillForm().catch((error) => showProblems([problem(error)]));
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

async function fillForm() {
  const { models, strategies, about, server, defaults, limits } = await options();
  byId("models").append(...models.map((model) => element("option", { value: model.name, label: model.note || model.name })));
  byId("model").value = defaults.model;
  byId("judge").value = defaults.judge;
  byId("num-answers").value = defaults.num_answers;
  byId("answer-tokens").value = defaults.answer_tokens;
  byId("summary-tokens").value = defaults.summary_tokens;
  byId("brief").checked = defaults.brief;
  for (const box of document.querySelectorAll("input[name=measure]")) box.checked = defaults.measures.includes(box.value);
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
  changed();
}

/** Opens what is folded around a field. */
function unfold(field) {
  const folded = field.closest("details");
  if (folded !== null) folded.open = true;
}

/** Says beside the folded settings what is chosen there. */
function changed() {
  const { strategies, num_answers, judge } = requestBody();
  byId("chosen").textContent = `${strategies.join(", ")} · ${2 * num_answers} answers · judge ${visible(judge)}`;
}

const optionalNumber = (id) => (byId(id).value === "" ? null : Number(byId(id).value));

const checked = (name) => [...document.querySelectorAll(`input[name=${name}]:checked`)].map((box) => box.value);

/** The request that the form describes. */
const requestBody = () => ({
  question: byId("question").value,
  context: byId("context").value,
  model: byId("model").value.trim(),
  judge: byId("judge").value.trim(),
  strategies: checked("strategy"),
  measures: checked("measure"),
  reader: byId("reader").value,
  num_answers: Number(byId("num-answers").value),
  temperature: optionalNumber("temperature"),
  top_p: optionalNumber("top-p"),
  answer_tokens: Number(byId("answer-tokens").value),
  summary_tokens: Number(byId("summary-tokens").value),
  brief: byId("brief").checked,
  seed: Number(byId("seed").value),
});

// --- asking

/** Shows problems above the form, and brings them into view. */
function showProblems(boxes) {
  const place = byId("form-problem");
  place.replaceChildren(...boxes);
  if (boxes.length > 0) place.scrollIntoView({ block: "nearest" });
}

async function ask(event) {
  event.preventDefault();
  const button = byId("start");
  if (button.ariaDisabled === "true") return;
  showProblems([]);
  const body = requestBody();
  if (body.strategies.length === 0 || body.measures.length === 0) {
    byId("settings").open = true;
    showProblems([problem({ message: `Choose at least one ${body.strategies.length === 0 ? "strategy" : "measure"}.` })]);
    return;
  }
  button.ariaDisabled = "true"; // a disabled one would lose the focus
  try {
    location.hash = `job=${(await post("/api/ask", body)).id}`;
  } catch (error) {
    showProblems([problem(error)]);
  }
  button.ariaDisabled = null;
}
