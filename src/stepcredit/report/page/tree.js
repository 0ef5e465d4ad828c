// @ts-check
"use strict";

const TREE = { row: 20, left: 34, top: 26, right: 30 };

/**
 * The physical tree of a task group: one row an episode, a segment as thick as its colour is credit, turns as dots.
 * @param {Group} group @param {State} state @param {string[]} methods @param {(change: Partial<State>) => void} go
 */
function treeView(group, state, methods, go) {
  const tree = group.tree;
  if (tree === null) return h("p", { class: "empty" }, "These episodes do not branch: there is no physical tree. Train with branch = fitted or random to grow one.");
  const wide = Math.min(Math.max(760 / tree.depth, 14), 34);
  const width = TREE.left + tree.depth * wide + TREE.right, height = TREE.top + group.episodes.length * TREE.row + 10;
  const x = (/** @type {number} */ depth) => TREE.left + depth * wide;
  const y = (/** @type {number} */ row) => TREE.top + (row + 0.5) * TREE.row;
  const scale = largest(tree.segments.credit), paint = creditColours(scale);
  const reach = Math.max(...tree.splits.value, ...group.episodes.map((episode) => episode.return), 0);
  const value = valueColours(reach);
  const step = stepTerm(group, methods, state);
  const stepPaint = creditColours(largest(group.episodes.flatMap((episode) => step(episode) ?? [])));
  const drawing = s("svg", { class: "tree", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Physical tree" });
  for (let depth = 0; depth <= tree.depth; depth += 5) drawing.append(s("line", { class: "grid", x1: x(depth), x2: x(depth), y1: TREE.top - 4, y2: height - 8 }), s("text", { class: "tick", x: x(depth), y: TREE.top - 10, "text-anchor": "middle" }, String(depth)));
  const panel = h("aside", { class: "panel", "aria-live": "polite" }, treeSummary(group));
  const look = (/** @type {Child[]} */ content) => panel.replaceChildren(...content.filter((one) => one !== null && one !== undefined));
  group.episodes.forEach((episode, at) => {
    if (episode.parent === null) return;
    const first = tree.segments.episode.indexOf(at);
    const left = x(tree.segments.from[first]);
    drawing.append(s("path", { class: "link", d: `M${left},${y(tree.rows[episode.parent])}V${y(tree.rows[at])}` }));
  });
  tree.segments.episode.forEach((at, segment) => {
    const row = y(tree.rows[at]);
    const open = () => go({ tab: "episodes", episode: at, turn: tree.segments.turn[segment] });
    const details = () => look(segmentDetails(group, tree, segment));
    drawing.append(s("line", { class: "segment", tabindex: 0, "data-segment": segment, x1: x(tree.segments.from[segment]), x2: x(tree.segments.to[segment]), y1: row, y2: row, stroke: paint(tree.segments.credit[segment]),
      onpointerover: details, onfocus: details, onclick: open, onkeydown: (/** @type {KeyboardEvent} */ event) => { if (event.key === "Enter") open(); } }));
  });
  group.episodes.forEach((episode, at) => {
    const from = x(tree.segments.from[tree.segments.episode.indexOf(at)]), row = y(tree.rows[at]);
    step(episode)?.forEach((credit, turn) => drawing.append(s("circle", { class: "turn", cx: from + (turn + 0.5) * wide, cy: row, r: 2.6, fill: stepPaint(credit) })));
    drawing.append(leafMark(episode.success, from + episode.action.length * wide + 8, row));
    drawing.append(s("text", { class: "tick", x: from - 6, y: row + 3.5, "text-anchor": "end" }, episode.parent === null ? `#${at}` : ""));
  });
  tree.splits.at.forEach((depth, at) => drawing.append(s("circle", { class: "node inner", cx: x(depth), cy: y(tree.splits.row[at]), r: 5, fill: value(tree.splits.value[at]),
    onpointerover: () => look(splitDetails(tree, at)) })));
  return h("div", {},
    h("div", { class: "toolbar" }, h("span", { class: "muted" }, `${plural(tree.splits.at.length, "split")}, ${plural(tree.segments.from.length, "segment")}; turns run to the right`), saveButtons("physical-tree", drawing, () => treeRows(group, tree))),
    treeLegend(scale, reach),
    h("div", { class: "split" }, h("div", { class: "canvas scroll" }, drawing), panel));
}

/** The step term of an episode's turns, from TSBPO where it is on the page, else from the chosen method.
 * @param {Group} _group @param {string[]} methods @param {State} state @returns {(episode: Episode) => Num[] | undefined} */
function stepTerm(_group, methods, state) {
  const own = methods.findIndex((name) => name.startsWith("tsbpo"));
  return (episode) => episode.credit[own < 0 ? state.method : own].parts.step;
}

/** @param {boolean} success @param {number} x @param {number} y */
function leafMark(success, x, y) {
  const r = 5;
  if (success) return s("path", { class: "leaf won", d: `M${x},${y - r}L${x + r},${y}L${x},${y + r}L${x - r},${y}Z` });
  return s("path", { class: "leaf lost", d: `M${x - 3},${y - 3}l6,6m0,-6l-6,6` });
}

/** @param {Group} group */
function treeSummary(group) {
  const branches = group.episodes.filter((episode) => episode.parent !== null).length;
  return h("div", {}, h("h3", {}, group.texts[group.goal] || group.texts[group.task]),
    h("p", { class: "muted" }, `${plural(group.episodes.length - branches, "root")}, ${plural(branches, "branch").replace("branchs", "branches")}. Point at a segment or a split; click a segment to read its turns.`));
}

/** @param {[string, string][]} facts */
const factList = (facts) => h("dl", { class: "facts" }, ...facts.flatMap(([label, text]) => [h("dt", {}, label), h("dd", {}, text)]));

/** @param {Group} group @param {TreeData} tree @param {number} at */
function segmentDetails(group, tree, at) {
  const { segments } = tree;
  const episode = group.episodes[segments.episode[at]];
  const turns = segments.to[at] - segments.from[at];
  return [h("h3", {}, segments.root[at] ? "Turns above the first split" : "Segment"),
    factList([["score S", show(segments.score[at])], ["credit against siblings", signed(segments.credit[at])], ["value where it ends", show(segments.reached[at])], ["turns", String(turns)], ["episode", `${episodeLabel(group, episode)}, ${episode.success ? "won" : "lost"}`]]),
    h("ol", { class: "commands", start: segments.turn[at] }, ...episode.action.slice(segments.turn[at], segments.turn[at] + turns).map((action) => h("li", {}, group.texts[action])))];
}

/** @param {TreeData} tree @param {number} at */
function splitDetails(tree, at) {
  return [h("h3", {}, "Split"), factList([["mean return below", show(tree.splits.value[at])], ["ways on", String(tree.splits.children[at])], ["turn", String(tree.splits.at[at])]])];
}

/** @param {number} scale @param {number} reach */
function treeLegend(scale, reach) {
  const ramp = (/** @type {string} */ name, /** @type {string} */ low, /** @type {string} */ high, /** @type {string} */ label) => h("span", { class: "ramp" }, `${label} ${low} `, h("i", { class: name }), ` ${high}`);
  return h("p", { class: "keys" }, ramp("credit-ramp", show(-scale), show(scale), "segment credit"), ramp("value-ramp", "0", show(reach), "mean return below a split"),
    h("span", { class: "ramp" }, "dots: step term of each turn"));
}

/** @param {Group} group @param {TreeData} tree */
function treeRows(group, tree) {
  const { segments } = tree;
  return [["episode", "from_depth", "to_depth", "score", "credit", "value_at_end", "above_splits"],
    ...segments.episode.map((episode, at) => [group.texts[group.episodes[episode].name], segments.from[at], segments.to[at], segments.score[at], segments.credit[at], segments.reached[at], segments.root[at]])];
}
