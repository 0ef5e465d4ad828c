// @ts-check
"use strict";

/** @typedef {{x: (depth: number) => number, y: (episode: number) => number, row: (row: number) => number}} Grid */

const TREE = { row: 20, left: 34, top: 26, right: 30, width: 760 };
const TURN = { least: 14, most: 34 }; // width of a turn
const EVERY = 5; // turns between two marks of the axis

/**
 * The physical tree of a task group: one row an episode, bars for segments, dots for turns.
 * @param {Group} group @param {State} state @param {string[]} methods @param {Go} go
 */
function treeView(group, state, methods, go) {
  const tree = group.tree;
  if (tree === null) {
    const way = "Train with branch = fitted or random to grow one.";
    return h("p", { class: "empty" }, `These episodes do not branch: there is no physical tree. ${way}`);
  }
  const wide = Math.min(Math.max(TREE.width / tree.depth, TURN.least), TURN.most);
  const row = (/** @type {number} */ at) => TREE.top + (at + 0.5) * TREE.row;
  /** @type {Grid} */
  const grid = { x: (depth) => TREE.left + depth * wide, y: (episode) => row(tree.rows[episode]), row };
  const [width, height] = [grid.x(tree.depth) + TREE.right, row(group.episodes.length) + 2];
  const panel = h("aside", { class: "panel", "aria-live": "polite" }, treeSummary(group));
  const look = (/** @type {HTMLElement} */ about) => panel.replaceChildren(about);
  const reach = Math.max(...tree.splits.value, ...group.episodes.map((episode) => episode.return), 0);
  const drawing = s(
    "svg",
    { class: "tree", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Physical tree" },
    treeAxis(tree, grid, height),
    links(group, tree, grid),
    segmentBars(group, tree, grid, look, go),
    turnDots(group, tree, grid, stepTerm(methods, state)),
    splitDots(tree, grid, reach, look),
  );
  const counts = `${plural(tree.splits.at.length, "split")}, ${plural(tree.segments.from.length, "segment")}`;
  const saving = saveButtons("physical-tree", drawing, () => treeRows(group, tree));
  return h(
    "div",
    {},
    h("div", { class: "toolbar" }, h("span", { class: "muted" }, `${counts}; turns run to the right`), saving),
    treeLegend(largest(tree.segments.credit), reach),
    h("div", { class: "split" }, h("div", { class: "canvas scroll" }, drawing), panel),
  );
}

/** @param {TreeData} tree @param {Grid} grid @param {number} height */
function treeAxis(tree, grid, height) {
  const layer = s("g");
  for (let depth = 0; depth <= tree.depth; depth += EVERY) {
    const x = grid.x(depth);
    layer.append(
      s("line", { class: "grid", x1: x, x2: x, y1: TREE.top - 4, y2: height - 8 }),
      s("text", { class: "tick", x, y: TREE.top - 10, "text-anchor": "middle" }, String(depth)),
    );
  }
  return layer;
}

/** From each branch up to the row it left. @param {Group} group @param {TreeData} tree @param {Grid} grid */
function links(group, tree, grid) {
  const drawn = group.episodes.map(({ parent }, at) => {
    if (parent === null) return null;
    const x = grid.x(tree.segments.from[tree.segments.episode.indexOf(at)]);
    return s("path", { class: "link", d: `M${x},${grid.y(parent)}V${grid.y(at)}` });
  });
  return s("g", {}, ...drawn);
}

/** @param {Group} group @param {TreeData} tree @param {Grid} grid @param {(about: HTMLElement) => void} look
 * @param {Go} go */
function segmentBars(group, tree, grid, look, go) {
  const { segments } = tree;
  const paint = creditColours(largest(segments.credit));
  const bars = segments.episode.map((episode, at) => {
    const open = () => go({ tab: "episodes", episode, turn: segments.turn[at] });
    const details = () => look(segmentDetails(group, tree, at));
    return s("line", {
      class: "segment",
      tabindex: 0,
      "data-segment": at,
      x1: grid.x(segments.from[at]),
      x2: grid.x(segments.to[at]),
      y1: grid.y(episode),
      y2: grid.y(episode),
      stroke: paint(segments.credit[at]),
      onpointerover: details,
      onfocus: details,
      onclick: open,
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Enter") open();
      },
    });
  });
  return s("g", {}, ...bars);
}

/** Every turn by its step term, every end by its outcome, every root by its name.
 * @param {Group} group @param {TreeData} tree @param {Grid} grid @param {(episode: Episode) => Num[]} step */
function turnDots(group, tree, grid, step) {
  const paint = creditColours(largest(group.episodes.flatMap(step)));
  const layer = s("g");
  group.episodes.forEach((episode, at) => {
    const [from, y] = [tree.segments.from[tree.segments.episode.indexOf(at)], grid.y(at)];
    step(episode).forEach((credit, turn) => {
      layer.append(s("circle", { class: "turn", cx: grid.x(from + turn + 0.5), cy: y, r: 2.6, fill: paint(credit) }));
    });
    layer.append(leafMark(episode.success, grid.x(from + episode.action.length) + 8, y));
    if (episode.parent === null) {
      const name = episodeLabel(group, episode);
      layer.append(s("text", { class: "tick", x: grid.x(from) - 6, y: y + 3.5, "text-anchor": "end" }, name));
    }
  });
  return layer;
}

/** @param {TreeData} tree @param {Grid} grid @param {number} reach @param {(about: HTMLElement) => void} look */
function splitDots(tree, grid, reach, look) {
  const value = valueColours(reach);
  const dots = tree.splits.at.map((depth, at) => {
    const details = () => look(splitDetails(tree, at));
    const place = { cx: grid.x(depth), cy: grid.row(tree.splits.row[at]), r: 5, fill: value(tree.splits.value[at]) };
    return s("circle", { class: "node inner", tabindex: 0, ...place, onpointerover: details, onfocus: details });
  });
  return s("g", {}, ...dots);
}

/** The step term of an episode's turns, from TSBPO where it is on the page, else from the chosen method.
 * @param {string[]} methods @param {State} state @returns {(episode: Episode) => Num[]} */
function stepTerm(methods, state) {
  const own = methods.findIndex((name) => name.startsWith("tsbpo"));
  return (episode) => episode.credit[own < 0 ? state.method : own].parts.step ?? [];
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
  const roots = plural(group.episodes.length - branches, "root");
  const heading = h("h3", {}, group.texts[group.goal] || group.texts[group.task]);
  const hint = "Point at a segment or a split; click a segment to read its turns.";
  return h(
    "div",
    {},
    heading,
    h("p", { class: "muted" }, `${roots}, ${branches} ${branches === 1 ? "branch" : "branches"}. ${hint}`),
  );
}

/** @param {Group} group @param {TreeData} tree @param {number} at */
function segmentDetails(group, tree, at) {
  const { segments } = tree;
  const episode = group.episodes[segments.episode[at]];
  const turns = segments.to[at] - segments.from[at];
  const actions = episode.action.slice(segments.turn[at], segments.turn[at] + turns);
  return h(
    "div",
    {},
    h("h3", {}, segments.root[at] ? "Turns above any split" : "Segment"),
    factList([
      ["score S", show(segments.score[at])],
      ["credit against siblings", signed(segments.credit[at])],
      ["value where it ends", show(segments.reached[at])],
      ["turns", String(turns)],
      ["episode", `${episodeLabel(group, episode)}, ${episode.success ? "won" : "lost"}`],
    ]),
    h(
      "ol",
      { class: "commands", start: segments.turn[at] },
      ...actions.map((action) => h("li", {}, group.texts[action])),
    ),
  );
}

/** @param {TreeData} tree @param {number} at */
function splitDetails(tree, at) {
  const { value, children, at: turn } = tree.splits;
  return h(
    "div",
    {},
    h("h3", {}, "Split"),
    factList([
      ["mean return below", show(value[at])],
      ["ways on", String(children[at])],
      ["turn", String(turn[at])],
    ]),
  );
}

/** @param {number} scale @param {number} reach */
function treeLegend(scale, reach) {
  return h(
    "p",
    { class: "keys" },
    ramp("credit-ramp", show(-scale), show(scale), "segment credit"),
    ramp("value-ramp", "0", show(reach), "mean return below a split"),
    h("span", { class: "ramp" }, "dots: step term of each turn"),
  );
}

/** @param {Group} group @param {TreeData} tree */
function treeRows(group, tree) {
  const { segments } = tree;
  return [
    ["episode", "from_depth", "to_depth", "score", "credit", "value_at_end", "above_splits"],
    ...segments.episode.map((episode, at) => [
      group.texts[group.episodes[episode].name],
      segments.from[at],
      segments.to[at],
      segments.score[at],
      segments.credit[at],
      segments.reached[at],
      segments.root[at],
    ]),
  ];
}
