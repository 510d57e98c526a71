/** Say how sure the sampled answers of a question are: how many agree, and what that does not mean. */

import { element } from "./dom.js";

export const numbered = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/**
 * Show the share of the largest group and the discrete semantic entropy of all groups; null for fewer than two answers.
 * `by` is what makes two answers the same, such as "spelling".
 */
export function agreementBox(view, by) {
  const total = view.answers.length;
  if (total < 2) return null;
  const shares = view.groups.map((members) => members.length / total);
  const largest = Math.max(...view.groups.map((members) => members.length));
  const entropy = Math.abs(shares.reduce((sum, share) => sum - share * Math.log(share), 0));
  const agree = largest === 1 ? `No two of ${total} answers agree` : `${largest} of ${total} answers agree`;
  const facts = [
    `sampled confidence ${Math.round((100 * largest) / total)} %: the share of the largest of ${numbered(shares.length, "group")} in ${total} answers`,
    `grouped by ${by}${view.merged ? `; ${numbered(view.merged, "merge")} by hand` : ""}`,
    `effective number of different answers: ${Math.exp(entropy).toFixed(1)} (entropy ${entropy.toFixed(2)})`,
  ];
  if (shares.length === 1) facts.push("All answers say the same, so a summary that recovers less than 100 % only misses their wording.");
  return element(
    "div",
    { class: "agreement" },
    element("p", {}, element("strong", {}, agree)),
    facts.map((fact) => element("p", { class: "facts" }, fact)),
    element("p", { class: "facts" }, "This is how sure the model is, not how often it is right: only calibration on questions with known answers says that."),
  );
}
