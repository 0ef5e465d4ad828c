// @ts-check
"use strict";

/** A bar from the middle: right for credit, left for blame. @param {Num} value @param {number} scale */
function creditBar(value, scale) {
  const share = scale > 0 ? Math.min(Math.abs(value ?? 0) / scale, 1) * 50 : 0;
  const bar = s(
    "svg",
    { class: "credit-bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", {
      class: (value ?? 0) >= 0 ? "plus" : "minus",
      x: (value ?? 0) >= 0 ? 50 : 50 - share,
      y: 1,
      width: share,
      height: 8,
    }),
    s("line", { x1: 50, x2: 50, y1: 0, y2: 10 }),
  );
  return bar;
}

/**
 * A colour scale with its ends.
 * @param {string} style @param {string} low @param {string} high @param {string} label
 */
const ramp = (style, low, high, label) =>
  h("span", { class: "ramp" }, `${label} ${low} `, h("i", { class: style }), ` ${high}`);

/** @param {[string, string][]} facts */
const factList = (facts) =>
  h("dl", { class: "facts" }, ...facts.flatMap(([label, text]) => [h("dt", {}, label), h("dd", {}, text)]));

/** Short name of an episode: what follows the task in its name. @param {Group} group @param {Episode} episode */
function episodeLabel(group, episode) {
  const [name, task] = [group.texts[episode.name], group.texts[group.task]];
  return name.startsWith(task) && name.length > task.length ? name.slice(task.length).replace(/^[-_/: ]+/, "") : name;
}
