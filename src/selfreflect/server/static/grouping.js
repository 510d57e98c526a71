/** Lets the reader group answers by a rule or, if the server can, by meaning. The choice lasts until the tab is closed. */

import { element, visible } from "./dom.js";

export const GROUPED = { rule: "a rule for the same answer, an estimate", meaning: "meaning, an estimate" };
const STORED = "selfreflect-groups";
let choices = 0;

/**
 * Makes the choice: its `element`, and what is `chosen`. It calls `change()` when the reader chooses. `waitFor(request)` shows that the
 * groups are on their way; if the request fails, it shows why, returns to the rule, and gives null.
 */
export function groupingChoice(possible, change) {
  if (!possible) {
    const how = element("code", {}, "pip install '.[embed]'");
    return { element: element("p", { class: "quiet" }, "Grouped by a rule for the same answer. To group by meaning as well: ", how), chosen: "rule" };
  }
  const name = `grouping-${(choices += 1)}`;
  const message = element("span", { class: "quiet", role: "status" });
  const choice = { chosen: sessionStorage.getItem(STORED) === "meaning" ? "meaning" : "rule" };
  const choose = (way) => {
    choice.chosen = way;
    sessionStorage.setItem(STORED, way);
    message.textContent = "";
    change();
  };
  const radios = ["rule", "meaning"].map((way) => {
    const radio = element("input", { type: "radio", name, value: way, checked: way === choice.chosen, onchange: () => choose(way) });
    return element("label", {}, radio, element("span", {}, way));
  });
  choice.waitFor = async (request) => {
    message.textContent = "Grouping…";
    try {
      const groups = await request();
      message.textContent = "";
      return groups;
    } catch (error) {
      choose("rule");
      radios[0].firstElementChild.checked = true;
      message.textContent = visible(error.message);
      return null;
    }
  };
  const segments = element("div", { class: "segments", role: "radiogroup", "aria-label": "Grouped by" }, element("div", {}, radios));
  choice.element = element("div", { class: "grouping" }, element("span", { class: "quiet" }, "Grouped by"), segments, message);
  return choice;
}
