/** Write the groups and the coloured words of one question as CSV. */

import { toCsv } from "./csv.js";
import { distanceText, meanOf, wordRows } from "./question.js";

/** One row per group of answers: its share and distances, and its answers, numbered as in `wordsCsv`. */
export function groupsCsv(view) {
  const head = ["group", "answer", "count", "share", "answers", ...view.summaries.map((summary) => `mean distance under ${summary.name}`)];
  const rows = view.groups.map((members, place) => {
    const means = view.summaries.map((summary) => meanOf(members.flatMap((member) => summary.distances?.[member] ?? [])));
    return [
      place + 1,
      view.answers[members[0]],
      members.length,
      members.length / view.answers.length,
      members.map((member) => member + 1).sort((a, b) => a - b).join(" "),
      ...means.map((mean) => (mean === null ? null : Number((mean / 1000).toFixed(6)))),
    ];
  });
  return toCsv([head, ...rows]);
}

/** One row per measured word, with its distance and its bits under each summary. */
export function wordsCsv(view) {
  const withBits = view.summaries.some((summary) => summary.bits !== null);
  const bits = (tenths) => (tenths === null ? null : tenths / 10);
  const rows = wordRows(view).map(({ answer, word, text, distances, told, available }) => {
    const row = [answer, word, text, ...distances.map((distance) => (distance === null ? null : Number(distanceText(distance))))];
    return withBits ? [...row, ...told.map(bits), ...available.map(bits)] : row;
  });
  const names = view.summaries.map((summary) => summary.name);
  const of = (what) => names.map((name) => `${what} ${name}`);
  const heads = ["answer", "word", "text", ...names, ...(withBits ? [...of("bits told by"), ...of("bits available to")] : [])];
  return toCsv([heads, ...rows]);
}
