/** How the answers on the page are grouped: by spelling at once, by meaning where the server can. The choice holds until the tab is closed. */

import { element, visible } from "./dom.js";

const STORED = "selfreflect-groups";
let choices = 0;

/**
 * The choice as an element, with what is chosen. `change()` is called when the reader chooses another way. `waitFor(asked)` says that the
 * groups are being worked out until `asked()` answers; where it fails, it says why, goes back to spelling, and gives null.
 */
export function groupingChoice(possible, change) {
  if (!possible) {
    const how = element("code", {}, "pip install 'selfreflect[embed]'");
    return { element: element("p", { class: "quiet" }, "Grouped by spelling; ", how, " adds groups by meaning."), chosen: "spelling" };
  }
  const name = `grouping-${(choices += 1)}`;
  const said = element("span", { class: "quiet", role: "status" });
  const choice = { chosen: sessionStorage.getItem(STORED) === "meaning" ? "meaning" : "spelling" };
  const choose = (way) => {
    choice.chosen = way;
    sessionStorage.setItem(STORED, way);
    said.textContent = "";
    change();
  };
  const radios = ["spelling", "meaning"].map((way) => {
    const radio = element("input", { type: "radio", name, value: way, checked: way === choice.chosen, onchange: () => choose(way) });
    return element("label", {}, radio, element("span", {}, way));
  });
  choice.waitFor = async (asked) => {
    said.textContent = "Working it out…";
    try {
      const found = await asked();
      said.textContent = "";
      return found;
    } catch (error) {
      choose("spelling");
      radios[0].firstElementChild.checked = true;
      said.textContent = visible(error.message);
      return null;
    }
  };
  const segments = element("div", { class: "segments", role: "radiogroup", "aria-label": "Grouped by" }, element("div", {}, radios));
  choice.element = element("div", { class: "grouping" }, element("span", { class: "quiet" }, "Grouped by"), segments, said);
  return choice;
}

/**
 * Groups by meaning of the first answers with those by spelling of all `count`: later answers join whom they are spelt like, or stand alone.
 * The server may have grouped answers that have not arrived here yet.
 */
export function joinedGroups(meaning, spelt, count) {
  const groups = meaning.map((members) => [...members]);
  const home = new Map(groups.flatMap((members) => members.map((member) => [member, members])));
  for (const members of spelt) {
    const joined = home.get(members[0]);
    const later = members.filter((member) => !home.has(member));
    if (joined === undefined) groups.push(later);
    else joined.push(...later);
  }
  return groups.map((members) => members.filter((member) => member < count)).filter((members) => members.length > 0);
}
