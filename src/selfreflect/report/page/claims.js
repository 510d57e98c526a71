/**
 * Show the claims of long answers: a text whose sentences are shaded by how many answers say so, and who says and who contradicts a claim.
 * Needs `dom.js`. Every text is treated as hostile and only becomes a text node.
 *
 * The data are plain JSON from `selfreflect.uncertainty.claims.page.claims_view` (Python).
 *
 * @typedef {Object} ClaimsView
 * @property {ClaimView[]} claims   Those that most answers make first.
 * @property {TextView[]} answers
 * @property {TextView[]} summaries  Also with `covered`, `precision` (shares, or null) and `added`, its claims that no answer makes.
 * @property {string} reader        What compared claims and answers.
 * @property {string} [refused]     Why there are no claims; then the other fields are missing.
 *
 * @typedef {Object} ClaimView
 * @property {string} text
 * @property {number} says          Answers that make the claim; and in the same way `contradicts` and `silent`.
 * @property {?number} share        Of the answers with a verdict that make it; null without any.
 * @property {?number[]} interval   95% interval of `share`.
 * @property {?number} confidence   Calibrated chance that it is right; null without a calibrator.
 * @property {?boolean} kept        Whether it is among those that are all right for a share of questions; null without such a rule.
 * @property {?string[]} stances    Of each answer: "says", "contradicts", "silent" or null.
 *
 * @typedef {Object} TextView
 * @property {string} name
 * @property {[string, number[], number[]][]} parts  The text in order: each part, and the indices of the claims that it makes and contradicts.
 */

import { cut, element, label, prose, styled, visible } from "./dom.js";

const LOW_SUPPORT = 0.5;

/** Show one text at a time with its claims, and everything about the claim that is chosen. */
export function claimsPanel(view) {
  if ("refused" in view) return element("p", { class: "quiet" }, "Not shown: ", label(view.refused, 400), ".");
  const texts = [...view.answers, ...view.summaries];
  const about = element("div", { class: "claim-detail", role: "status" });
  const shown = element("div", {});
  const show = (text) => {
    shown.replaceChildren(element("p", { class: "claimed", dir: "auto" }, text.parts.map((part) => claimPart(view, part, about))), coverageFacts(text));
    about.replaceChildren(element("p", { class: "quiet" }, "Choose a sentence to see who says so."));
  };
  const options = texts.map((text, place) => element("option", { value: place }, cut(visible(text.name), 60)));
  const select = element("select", { onchange: () => show(texts[Number(select.value)]) }, options);
  if (texts.length > 0) show(texts[0]);
  return element(
    "div",
    { class: "claims" },
    element("p", { class: "quiet" }, claimsLegend(view)),
    element("label", { class: "field" }, "Text", select),
    element("div", { class: "two-parts" }, shown, about),
    claimTable(view),
  );
}

function claimsLegend(view) {
  return [
    `The number after each sentence is how many of ${view.answers.length} answers say so, as read by `,
    label(view.reader, 60),
    "; the paler and the more broken its line, the fewer. An answer that does not say so may be silent, which is not the same as denying it.",
  ];
}

function claimPart(view, [text, says, contradicts], about) {
  if (says.length === 0) return visible(text);
  const shares = says.map((index) => view.claims[index].share ?? 0);
  const weakest = view.claims[says[shares.indexOf(Math.min(...shares))]];
  const share = Math.min(...shares);
  const open = (event) => {
    event.currentTarget.closest(".claimed").querySelectorAll("[aria-pressed=true]").forEach((node) => node.setAttribute("aria-pressed", "false"));
    event.currentTarget.setAttribute("aria-pressed", "true");
    about.replaceChildren(...says.map((index) => claimDetail(view, index)));
  };
  const kind = share >= 1 ? "all" : share >= LOW_SUPPORT ? "most" : "few";
  const node = element(
    "span",
    { class: `claim mark covered ${kind}`, role: "button", tabindex: 0, "aria-pressed": "false", onclick: open },
    element("bdi", {}, visible(text)),
    element("span", { class: "count" }, ` ${weakest.says}/${weakest.says + weakest.contradicts + weakest.silent}`),
  );
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    open(event);
  });
  return styled(node, { "--level": share.toFixed(3) });
}

function claimDetail(view, index) {
  const claim = view.claims[index];
  const total = claim.says + claim.contradicts + claim.silent;
  const interval = claim.interval === null ? "" : `, 95 % interval ${claim.interval.map((end) => `${Math.round(100 * end)} %`).join(" to ")}`;
  const silent = claim.silent > 0 ? element("p", { class: "quiet" }, `Silent: ${claim.silent}.`) : null;
  return element(
    "section",
    {},
    element("h4", { dir: "auto" }, label(claim.text, 400)),
    element("p", {}, `${claim.says} of ${total} answers say so${claim.share === null ? "" : ` (${Math.round(100 * claim.share)} %${interval})`}.`),
    claim.confidence === null ? null : element("p", {}, `${Math.round(100 * claim.confidence)} % of claims with such a support are right.`),
    claim.kept === null ? null : element("p", {}, claim.kept ? "Kept." : "Not kept."),
    claimVoices(view, index, "says", "Say so"),
    claimVoices(view, index, "contradicts", "Contradict it"),
    silent,
  );
}

/** List the answers with a stance on a claim, each with its sentence about it. */
function claimVoices(view, index, stance, title) {
  const members = view.answers.filter((_, answer) => view.claims[index].stances[answer] === stance);
  if (members.length === 0) return null;
  const place = stance === "says" ? 1 : 2;
  const items = members.map((text) => {
    const part = text.parts.find((entry) => entry[place].includes(index));
    return element("li", {}, `${text.name}: `, part ? label(part[0], 300) : "");
  });
  return element("div", {}, element("h5", {}, `${title}: ${members.length}`), element("ul", {}, items));
}

/** Say what a summary covers and adds; nothing for an answer. */
function coverageFacts(text) {
  if (!("added" in text)) return "";
  const share = (value) => (value === null ? "undefined" : `${Math.round(100 * value)} %`);
  const added = text.added.map((claim) => element("li", { dir: "auto" }, prose(claim, 300)));
  return element(
    "div",
    {},
    element("p", {}, `Covers ${share(text.covered)} of what the answers say; ${share(text.precision)} of its claims are in an answer.`),
    added.length > 0 ? element("div", {}, element("h5", {}, "In no answer"), element("ul", {}, added)) : null,
  );
}

function claimTable(view) {
  const head = ["claim", "say so", "contradict", "silent"].map((name) => element("th", { scope: "col" }, name));
  const rows = view.claims.map((claim) => {
    const counts = [claim.says, claim.contradicts, claim.silent].map((count) => element("td", { class: "number" }, `${count}`));
    return element("tr", {}, element("th", { scope: "row", dir: "auto" }, label(claim.text, 300)), counts);
  });
  const table = element("table", {}, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows));
  const frame = element("div", { class: "scroll tall", tabindex: 0, role: "region", "aria-label": "All claims" }, table);
  return element("details", {}, element("summary", {}, `All ${view.claims.length} claims`), frame);
}
