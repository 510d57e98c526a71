/** Run the page on claims: a question is drawn when it is opened. */

import { claimsPanel } from "./claims.js";
import { element, label } from "./dom.js";
import { unpacked } from "./frame.js";

const { questions } = await unpacked("index");
const home = document.getElementById("questions");
questions.forEach((view, index) => {
  const box = element("details", { class: "claims-of" }, element("summary", {}, element("h3", {}, label(view.question, 300))));
  box.addEventListener("toggle", () => box.childElementCount === 1 && box.append(claimsPanel(view)));
  home.append(box);
  box.open = index === 0;
});
document.documentElement.dataset.ready = "yes";
