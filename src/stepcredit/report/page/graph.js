// @ts-check
"use strict";

/**
 * @typedef {{x: number, y: number}} Place
 * @typedef {{out: number[][], into: number[][]}} Along  edges that leave and that enter each node
 */

const [COLUMN, MARGIN] = [84, 34];
const ROW = { least: 26, most: 64 }; // rows spread until the graph has the shape of its frame
const FRAME = 1.65; // width by height
const FAINTEST = 0.3; // opacity of an edge without credit

/**
 * The state graph of a task group.
 * @param {Group} group @param {State} state @param {Go} go
 */
function graphView(group, state, go) {
  const { nodes, edges } = group.graph;
  const seen = nodes.visits.map((visits, at) => visits + nodes.endings[at]);
  const drawn = seen.map((count) => count >= state.minVisits);
  const { place, wide, high } = placed(nodes);
  const paths = edges.source.map((source, at) =>
    edgePath(place[source], place[edges.target[at]], radius(seen[source])),
  );
  const scale = largest(edges.credit[state.method]);
  const traced = state.trace === null ? [] : physicalPath(group, state.trace);
  const lit = s("g", { class: "lit" });
  const world = s(
    "g",
    {},
    edgeLayer(edges, state.method, paths, drawn),
    traceLayer(group, traced, state.method, place, seen),
    lit,
    nodeLayer(nodes, place, seen, drawn),
  );
  const drawing = s(
    "svg",
    {
      class: "graph",
      viewBox: `0 0 ${wide} ${high}`,
      tabindex: 0,
      role: "application",
      "aria-label": "State graph: arrow keys walk along transitions, Escape lets go",
    },
    world,
  );
  const panel = h("aside", { class: "panel", "aria-live": "polite" });
  const along = adjacency(edges);
  const look = (/** @type {number | null} */ node, /** @type {(node: number) => void} */ follow) => {
    drawing.classList.toggle("focused", node !== null || traced.length > 0);
    const about =
      node === null ? graphSummary(group, state) : nodeDetails(group, node, state.method, scale, along.out, follow);
    panel.replaceChildren(about);
    lit.replaceChildren(...(node === null ? [] : litMarks(group, node, state.method, paths, drawn, along)));
    if (node !== null) {
      lit.append(s("circle", { class: "halo", cx: place[node].x, cy: place[node].y, r: radius(seen[node]) + 5 }));
    }
  };
  listen(drawing, look, (key, node) => walk(key, node, place, drawn, edges, along));
  const fit = panAndZoom(drawing, world, wide, high);
  return h(
    "div",
    {},
    graphToolbar(
      group,
      state,
      seen,
      fit,
      saveButtons("task-graph", drawing, () => graphRows(group, state)),
      go,
    ),
    graphLegend(scale),
    h("div", { class: "split" }, h("div", { class: "canvas" }, drawing), panel),
  );
}

/** Where nodes stand, and the size of the drawing. @param {Nodes} nodes */
function placed(nodes) {
  const span = { x: Math.max(...nodes.x), y: Math.max(...nodes.y, 1) };
  const row = Math.min(Math.max((span.x * COLUMN) / FRAME / span.y, ROW.least), ROW.most);
  const place = nodes.x.map((x, at) => ({ x: MARGIN + x * COLUMN, y: MARGIN + nodes.y[at] * row }));
  const end = (/** @type {number[]} */ values) => Math.max(...values) + MARGIN;
  return { place, wide: end(place.map((one) => one.x)), high: end(place.map((one) => one.y)) };
}

/** Transitions, strong credit drawn last. @param {Edges} edges @param {number} method @param {string[]} paths
 * @param {boolean[]} drawn */
function edgeLayer(edges, method, paths, drawn) {
  const credit = edges.credit[method];
  const scale = largest(credit);
  const paint = creditColours(scale);
  const strength = credit.map((value) => (scale > 0 ? Math.abs(value ?? 0) / scale : 0));
  const weakFirst = strength.map((_, at) => at).sort((a, b) => strength[a] - strength[b]);
  const visible = weakFirst.filter((at) => drawn[edges.source[at]] && drawn[edges.target[at]]);
  const lines = visible.map((at) =>
    s("path", {
      d: paths[at],
      stroke: paint(credit[at]),
      "stroke-width": edgeWidth(edges.count[at]),
      "stroke-opacity": (FAINTEST + (1 - FAINTEST) * Math.sqrt(strength[at])).toFixed(2),
    }),
  );
  return s("g", { class: "edges" }, ...lines);
}

/** @param {Nodes} nodes @param {Place[]} place @param {number[]} seen @param {boolean[]} drawn */
function nodeLayer(nodes, place, seen, drawn) {
  const fill = valueColours(1);
  const marks = place.map((one, at) =>
    drawn[at] ? nodeMark(nodes, at, one, radius(seen[at]), fill(nodes.value[at])) : null,
  );
  return s("g", { class: "nodes" }, ...marks);
}

/** The transitions at a node, drawn once more on top. @param {Group} group @param {number} node @param {number} method
 * @param {string[]} paths @param {boolean[]} drawn @param {Along} along */
function litMarks(group, node, method, paths, drawn, along) {
  const { edges } = group.graph;
  const paint = creditColours(largest(edges.credit[method]));
  const visible = [...along.out[node], ...along.into[node]].filter(
    (at) => drawn[edges.source[at]] && drawn[edges.target[at]],
  );
  return visible.map((at) =>
    s("path", {
      d: paths[at],
      stroke: paint(edges.credit[method][at]),
      "stroke-width": edgeWidth(edges.count[at]) + 1.5,
    }),
  );
}

/** Pointing looks at a node, clicking keeps it, keys walk from it.
 * @param {SVGSVGElement} drawing @param {(node: number | null, follow: (node: number) => void) => void} look
 * @param {(key: string, node: number | null) => number | null | undefined} next */
function listen(drawing, look, next) {
  /** @type {number | null} */
  let pinned = null;
  const pin = (/** @type {number | null} */ node) => {
    pinned = node;
    look(node, pin);
  };
  const under = (/** @type {Event} */ event) => {
    const mark = event.target instanceof Element ? event.target.closest("[data-node]") : null;
    return mark === null ? null : Number(mark.getAttribute("data-node"));
  };
  drawing.addEventListener("pointerover", (event) => {
    const node = under(event);
    if (node !== null && pinned === null) look(node, pin);
  });
  drawing.addEventListener("pointerout", (event) => {
    if (under(event) !== null && pinned === null) look(null, pin);
  });
  drawing.addEventListener("click", (event) => {
    const node = under(event);
    pin(node === pinned ? null : node);
  });
  drawing.addEventListener("keydown", (event) => {
    const node = next(event.key, pinned);
    if (node === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    pin(node);
  });
  pin(null);
}

/** @param {number} seen */
const radius = (seen) => Math.min(4 + 1.6 * Math.sqrt(seen), 15);
/** @param {number} count */
const edgeWidth = (count) => Math.min(0.9 + 0.5 * Math.sqrt(count), 5);

/** Forward edges swing gently; edges back, and within a column, bow out, so that the two directions stay apart.
 * @param {Place} from @param {Place} to @param {number} size */
function edgePath(from, to, size) {
  if (from === to) {
    const top = from.y - size;
    return `M${from.x - 3},${top + 2}C${from.x - 14},${top - 16} ${from.x + 14},${top - 16} ${from.x + 3},${top + 2}`;
  }
  if (to.x > from.x) {
    const bend = (to.x - from.x) * 0.45;
    return `M${from.x},${from.y}C${from.x + bend},${from.y} ${to.x - bend},${to.y} ${to.x},${to.y}`;
  }
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  return `M${from.x},${from.y}Q${(from.x + to.x) / 2 - dy * 0.22},${(from.y + to.y) / 2 + dx * 0.22} ${to.x},${to.y}`;
}

/** Circle for a state that is left again, diamond for one where episodes only end; the outline tells how they ended.
 * @param {Nodes} nodes @param {number} at @param {Place} place @param {number} size @param {string} fill */
function nodeMark(nodes, at, place, size, fill) {
  const [wins, endings] = [nodes.wins[at], nodes.endings[at]];
  const kind = endings === 0 ? "inner" : wins === endings ? "won" : wins === 0 ? "lost" : "both";
  if (nodes.visits[at] > 0)
    return s("circle", { class: `node ${kind}`, "data-node": at, cx: place.x, cy: place.y, r: size, fill });
  const { x, y } = place,
    r = size + 1.5;
  const mark = s(
    "g",
    { class: `node ${kind}`, "data-node": at, fill },
    s("path", { d: `M${x},${y - r}L${x + r},${y}L${x},${y + r}L${x - r},${y}Z` }),
  );
  if (kind === "lost")
    mark.append(
      s("path", {
        class: "cross",
        d: `M${x - r / 3},${y - r / 3}l${r / 1.5},${r / 1.5}m0,${-r / 1.5}l${-r / 1.5},${r / 1.5}`,
      }),
    );
  return mark;
}

/** The turns from a root's start to an episode's end, as [episode, turn]; a branch begins with its ancestors' turns.
 * @param {Group} group @param {number} episode @returns {[number, number][]} */
function physicalPath(group, episode) {
  const own = group.episodes[episode];
  /** @type {[number, number][]} */
  const turns = own.action.map((_, turn) => [episode, turn]);
  if (own.parent === null) return turns;
  const before = physicalPath(group, own.parent).filter(
    ([at, turn]) => at !== own.parent || turn < (own.parentTurn ?? 0),
  );
  return [...before, ...turns];
}

/** @param {Group} group @param {[number, number][]} traced @param {number} method @param {Place[]} place
 * @param {number[]} seen */
function traceLayer(group, traced, method, place, seen) {
  const layer = s("g", { class: "trace" });
  const credit = (/** @type {[number, number]} */ [episode, turn]) =>
    group.episodes[episode].credit[method].advantage[turn];
  const paint = creditColours(largest(traced.map(credit)));
  for (const [episode, turn] of traced) {
    const own = group.episodes[episode];
    const [from, to] = [own.state[turn], own.state[turn + 1] ?? own.end];
    if (from < 0 || to < 0) continue; // a state too rare to be drawn
    const d = edgePath(place[from], place[to], radius(seen[from]));
    layer.append(
      s("path", { class: "casing", d }),
      s("path", { class: "step", d, stroke: paint(credit([episode, turn])) }),
    );
  }
  return layer;
}

/** Edges that leave and that enter each node. @param {Edges} edges @returns {Along} */
function adjacency(edges) {
  /** @type {number[][]} */ const out = [];
  /** @type {number[][]} */ const into = [];
  edges.source.forEach((source, at) => {
    (out[source] ??= []).push(at);
    (into[edges.target[at]] ??= []).push(at);
    out[edges.target[at]] ??= [];
    into[source] ??= [];
  });
  return { out, into };
}

/** The node that a key leads to; undefined for keys that mean nothing here.
 * @param {string} key @param {number | null} node @param {Place[]} place @param {boolean[]} drawn @param {Edges} edges
 * @param {Along} along @returns {number | null | undefined} */
function walk(key, node, place, drawn, edges, along) {
  if (key === "Escape") return null;
  if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(key)) return undefined;
  const first = drawn.indexOf(true);
  if (node === null) return first < 0 ? null : first;
  const busiest = (/** @type {number[]} */ ways, /** @type {number[]} */ ends) => {
    const open = ways.filter((at) => ends[at] !== node && drawn[ends[at]]);
    return open.length ? ends[open.reduce((best, at) => (edges.count[at] > edges.count[best] ? at : best))] : node;
  };
  if (key === "ArrowRight") return busiest(along.out[node], edges.target);
  if (key === "ArrowLeft") return busiest(along.into[node], edges.source);
  const distance = (/** @type {number} */ at) => (place[at].y - place[node].y) * (key === "ArrowDown" ? 1 : -1);
  const column = place
    .map((_, at) => at)
    .filter((at) => drawn[at] && place[at].x === place[node].x && distance(at) > 0);
  return column.length ? column.reduce((best, at) => (distance(at) < distance(best) ? at : best)) : node;
}
