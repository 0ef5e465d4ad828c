// @ts-check
"use strict";

const COLUMN = 84, MARGIN = 34;
const ROW = { least: 26, most: 64 }; // rows spread until the graph has the shape of its frame
const FRAME = 1.65; // width by height
const FAINTEST = 0.3; // opacity of an edge without credit
const ZOOM = 1.2; // factor of one step of the wheel or of + and −

/**
 * The state graph of a task group.
 * @param {Group} group @param {State} state @param {(change: Partial<State>) => void} go
 */
function graphView(group, state, go) {
  const { nodes, edges } = group.graph;
  const scale = largest(edges.credit[state.method]);
  const paint = creditColours(scale);
  const span = { x: Math.max(...nodes.x), y: Math.max(...nodes.y, 1) };
  const row = Math.min(Math.max((span.x * COLUMN) / FRAME / span.y, ROW.least), ROW.most);
  const place = nodes.x.map((x, at) => ({ x: MARGIN + x * COLUMN, y: MARGIN + nodes.y[at] * row }));
  const wide = Math.max(...place.map((one) => one.x)) + MARGIN, high = Math.max(...place.map((one) => one.y)) + MARGIN;
  const seen = nodes.visits.map((visits, at) => visits + nodes.endings[at]);
  const drawn = seen.map((count) => count >= state.minVisits);
  const layer = { edges: s("g", { class: "edges" }), trace: s("g", { class: "trace" }), lit: s("g", { class: "lit" }), nodes: s("g", { class: "nodes" }) };
  const world = s("g", {}, layer.edges, layer.trace, layer.lit, layer.nodes);
  const drawing = s("svg", { class: "graph", viewBox: `0 0 ${wide} ${high}`, tabindex: 0, role: "application",
    "aria-label": "State graph: arrow keys walk along edges, Enter keeps a state in view" }, world);

  const paths = edges.source.map((source, at) => edgePath(place[source], place[edges.target[at]], radius(seen[source])));
  const strength = edges.credit[state.method].map((credit) => (scale > 0 ? Math.abs(credit ?? 0) / scale : 0));
  const weakFirst = strength.map((_, at) => at).sort((a, b) => strength[a] - strength[b]);
  for (const at of weakFirst) {
    if (!drawn[edges.source[at]] || !drawn[edges.target[at]]) continue;
    layer.edges.append(s("path", { d: paths[at], stroke: paint(edges.credit[state.method][at]), "stroke-width": edgeWidth(edges.count[at]),
      "stroke-opacity": (FAINTEST + (1 - FAINTEST) * Math.sqrt(strength[at])).toFixed(2) }));
  }
  const fill = valueColours(1);
  nodes.text.forEach((_, at) => {
    if (drawn[at]) layer.nodes.append(nodeMark(nodes, at, place[at], radius(seen[at]), fill(nodes.value[at])));
  });
  const traced = state.trace === null ? [] : physicalPath(group, state.trace);
  drawTrace(layer.trace, group, traced, state.method, place, seen);

  const { out, into } = adjacency(edges);
  const panel = h("aside", { class: "panel", "aria-live": "polite" });
  /** @type {number | null} */
  let pinned = null;
  /** @param {number | null} node */
  function look(node) {
    layer.lit.replaceChildren();
    drawing.classList.toggle("focused", node !== null || traced.length > 0);
    const follow = (/** @type {number} */ next) => { pinned = next; look(next); };
    panel.replaceChildren(node === null ? graphSummary(group, state) : nodeDetails(group, node, state.method, scale, out, follow));
    if (node === null) return;
    for (const at of [...out[node], ...into[node]]) {
      if (!drawn[edges.source[at]] || !drawn[edges.target[at]]) continue;
      layer.lit.append(s("path", { d: paths[at], stroke: paint(edges.credit[state.method][at]), "stroke-width": edgeWidth(edges.count[at]) + 1.5 }));
    }
    layer.lit.append(s("circle", { class: "halo", cx: place[node].x, cy: place[node].y, r: radius(seen[node]) + 5 }));
  }
  const under = (/** @type {Event} */ event) => {
    const mark = event.target instanceof Element ? event.target.closest("[data-node]") : null;
    return mark === null ? null : Number(mark.getAttribute("data-node"));
  };
  drawing.addEventListener("pointerover", (event) => { const node = under(event); if (node !== null && pinned === null) look(node); });
  drawing.addEventListener("pointerout", (event) => { if (under(event) !== null && pinned === null) look(null); });
  drawing.addEventListener("click", (event) => { const node = under(event); pinned = node === pinned ? null : node; look(pinned); });
  drawing.addEventListener("keydown", (event) => {
    const next = walk(event.key, pinned, place, drawn, edges, out, into);
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    pinned = next;
    look(pinned);
  });
  const fit = panAndZoom(drawing, world, wide, high);
  look(null);

  const most = Math.max(...seen);
  const episodes = h("select", { id: "trace", onchange: (/** @type {any} */ event) => go({ trace: event.target.value === "" ? null : Number(event.target.value) }) },
    h("option", { value: "" }, "none"),
    ...group.episodes.map((episode, at) => h("option", { value: at, selected: at === state.trace }, `${episode.success ? "✓" : "✗"} ${episodeLabel(group, episode)}`)));
  const filter = h("input", { id: "visits", type: "range", min: 1, max: Math.min(most, 20), value: Math.min(state.minVisits, most), onchange: (/** @type {any} */ event) => go({ minVisits: Number(event.target.value) }) });
  const left = drawn.filter(Boolean).length;
  const notice = `${left === group.states ? left : `${left} of ${group.states}`} states, ${plural(edges.source.length, "transition")}`;
  return h("div", {},
    h("div", { class: "toolbar" },
      h("label", {}, "Trace episode ", episodes),
      h("label", {}, `Visits ≥ ${state.minVisits} `, filter),
      h("button", { type: "button", onclick: fit }, "Fit"),
      h("span", { class: "muted" }, notice),
      saveButtons("task-graph", drawing, () => graphRows(group, state))),
    graphLegend(scale),
    h("div", { class: "split" }, h("div", { class: "canvas" }, drawing), panel));
}

/** @param {number} seen */
const radius = (seen) => Math.min(4 + 1.6 * Math.sqrt(seen), 15);
/** @param {number} count */
const edgeWidth = (count) => Math.min(0.9 + 0.5 * Math.sqrt(count), 5);

/** Forward edges swing gently; edges back, and within a column, bow out, so that the two directions stay apart.
 * @param {{x: number, y: number}} from @param {{x: number, y: number}} to @param {number} size */
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
 * @param {Nodes} nodes @param {number} at @param {{x: number, y: number}} place @param {number} size @param {string} fill */
function nodeMark(nodes, at, place, size, fill) {
  const [wins, endings] = [nodes.wins[at], nodes.endings[at]];
  const kind = endings === 0 ? "inner" : wins === endings ? "won" : wins === 0 ? "lost" : "both";
  if (nodes.visits[at] > 0) return s("circle", { class: `node ${kind}`, "data-node": at, cx: place.x, cy: place.y, r: size, fill });
  const { x, y } = place, r = size + 1.5;
  const mark = s("g", { class: `node ${kind}`, "data-node": at, fill }, s("path", { d: `M${x},${y - r}L${x + r},${y}L${x},${y + r}L${x - r},${y}Z` }));
  if (kind === "lost") mark.append(s("path", { class: "cross", d: `M${x - r / 3},${y - r / 3}l${r / 1.5},${r / 1.5}m0,${-r / 1.5}l${-r / 1.5},${r / 1.5}` }));
  return mark;
}

/** The turns from a root's start to an episode's end, as [episode, turn]; a branch begins with its ancestors' turns.
 * @param {Group} group @param {number} episode @returns {[number, number][]} */
function physicalPath(group, episode) {
  const own = group.episodes[episode];
  /** @type {[number, number][]} */
  const turns = own.action.map((_, turn) => [episode, turn]);
  if (own.parent === null) return turns;
  const before = physicalPath(group, own.parent).filter(([at, turn]) => at !== own.parent || turn < (own.parentTurn ?? 0));
  return [...before, ...turns];
}

/** @param {SVGGElement} layer @param {Group} group @param {[number, number][]} traced @param {number} method
 * @param {{x: number, y: number}[]} place @param {number[]} seen */
function drawTrace(layer, group, traced, method, place, seen) {
  const paint = creditColours(largest(traced.map(([episode, turn]) => group.episodes[episode].credit[method].advantage[turn])));
  for (const [episode, turn] of traced) {
    const own = group.episodes[episode];
    const [from, to] = [own.state[turn], own.state[turn + 1] ?? own.end];
    if (from < 0 || to < 0) continue;
    const d = edgePath(place[from], place[to], radius(seen[from]));
    layer.append(s("path", { class: "casing", d }), s("path", { class: "step", d, stroke: paint(own.credit[method].advantage[turn]) }));
  }
}

/** Edges that leave and that enter each node. @param {Edges} edges */
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
 * @param {string} key @param {number | null} node @param {{x: number, y: number}[]} place @param {boolean[]} drawn
 * @param {Edges} edges @param {number[][]} out @param {number[][]} into @returns {number | null | undefined} */
function walk(key, node, place, drawn, edges, out, into) {
  if (key === "Escape") return null;
  if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"].includes(key)) return undefined;
  const some = place.findIndex((_, at) => drawn[at]);
  if (node === null) return some < 0 ? null : some;
  const busiest = (/** @type {number[]} */ along, /** @type {number[]} */ ends) => {
    const open = along.filter((at) => ends[at] !== node && drawn[ends[at]]);
    return open.length ? ends[open.reduce((best, at) => (edges.count[at] > edges.count[best] ? at : best))] : node;
  };
  if (key === "ArrowRight") return busiest(out[node], edges.target);
  if (key === "ArrowLeft") return busiest(into[node], edges.source);
  const down = key === "ArrowDown" ? 1 : -1;
  const others = place.map((_, at) => at).filter((at) => drawn[at] && place[at].x === place[node].x && (place[at].y - place[node].y) * down > 0);
  return others.length ? others.reduce((best, at) => (Math.abs(place[at].y - place[node].y) < Math.abs(place[best].y - place[node].y) ? at : best)) : node;
}

/** Wheel and +/− zoom, dragging moves. Returns what shows everything again.
 * @param {SVGSVGElement} drawing @param {SVGGElement} world @param {number} wide @param {number} high */
function panAndZoom(drawing, world, wide, high) {
  let [k, x, y] = [1, 0, 0];
  const apply = () => world.setAttribute("transform", `translate(${x} ${y}) scale(${k})`);
  const zoom = (/** @type {number} */ factor, /** @type {number} */ px, /** @type {number} */ py) => {
    const next = Math.min(Math.max(k * factor, 0.5), 12);
    [x, y, k] = [px - ((px - x) * next) / k, py - ((py - y) * next) / k, next];
    apply();
  };
  const local = (/** @type {MouseEvent} */ event) => {
    const matrix = drawing.getScreenCTM();
    return matrix === null ? new DOMPoint() : new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
  };
  drawing.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && document.activeElement !== drawing) return; // an unfocused graph lets the page scroll
    event.preventDefault();
    const at = local(event);
    zoom(event.deltaY < 0 ? ZOOM : 1 / ZOOM, at.x, at.y);
  }, { passive: false });
  drawing.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? ZOOM : 1 / ZOOM, wide / 2, high / 2);
  });
  /** @type {DOMPoint | null} */
  let held = null;
  drawing.addEventListener("pointerdown", (event) => { held = local(event); });
  drawing.addEventListener("pointermove", (event) => {
    if (held === null || event.buttons === 0) return;
    const at = local(event);
    [x, y, held] = [x + at.x - held.x, y + at.y - held.y, at];
    apply();
  });
  drawing.addEventListener("pointerup", () => { held = null; });
  return () => { [k, x, y] = [1, 0, 0]; apply(); };
}

/** @param {Group} group @param {State} state */
function graphSummary(group, state) {
  const won = group.episodes.filter((episode) => episode.success).length;
  return h("div", {}, h("h3", {}, group.texts[group.goal] || group.texts[group.task]),
    h("p", { class: "muted" }, `${plural(group.members, "episode")}, ${won} won. Point at a state to see what was done there and what credit it got; click to keep it.`),
    state.trace === null ? null : h("p", {}, `Traced: ${episodeLabel(group, group.episodes[state.trace])}`));
}

/** What a state is and what was done there. @param {Group} group @param {number} node @param {number} method
 * @param {number} scale @param {number[][]} out @param {(node: number) => void} follow */
function nodeDetails(group, node, method, scale, out, follow) {
  const { nodes, edges, choices } = group.graph;
  const rows = (out[node] ?? []).flatMap((edge) => choices.edge.map((own, at) => (own === edge ? at : -1)).filter((at) => at >= 0)
    .map((at) => ({ at, edge, count: choices.count[at], credit: choices.credit[method][at] })));
  rows.sort((a, b) => (b.credit ?? 0) - (a.credit ?? 0) || b.count - a.count);
  const ends = nodes.endings[node] ? `${nodes.wins[node]} won and ${nodes.endings[node] - nodes.wins[node]} lost here` : null;
  const facts = [["value", show(nodes.value[node])], ["group size", plural(nodes.visits[node], "turn")], ["outcomes in reach", plural(nodes.degree[node], "episode")], ["endings", ends]];
  return h("div", {},
    h("dl", { class: "facts" }, ...facts.filter(([, text]) => text !== null).flatMap(([label, text]) => [h("dt", {}, label), h("dd", {}, text)])),
    h("p", { class: "text" }, group.texts[nodes.text[node]]),
    rows.length ? h("table", { class: "actions" }, h("thead", {}, h("tr", {}, h("th", {}, "action taken"), h("th", {}, "×"), h("th", { colspan: 2 }, "mean credit"))),
      h("tbody", {}, ...rows.map((row) => h("tr", {},
        h("td", {}, h("button", { type: "button", class: "link", onclick: () => follow(edges.target[row.edge]) }, group.texts[choices.action[row.at]])),
        h("td", {}, String(row.count)), h("td", { class: "bar" }, creditBar(row.credit, scale)), h("td", { class: "number" }, signed(row.credit)))))) : null);
}

/** A bar from the middle: right for credit, left for blame. @param {Num} value @param {number} scale */
function creditBar(value, scale) {
  const share = scale > 0 ? Math.min(Math.abs(value ?? 0) / scale, 1) * 50 : 0;
  const bar = s("svg", { class: "credit-bar", viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
    s("rect", { class: (value ?? 0) >= 0 ? "plus" : "minus", x: (value ?? 0) >= 0 ? 50 : 50 - share, y: 1, width: share, height: 8 }),
    s("line", { x1: 50, x2: 50, y1: 0, y2: 10 }));
  return bar;
}

/** @param {number} scale */
function graphLegend(scale) {
  const ramp = (/** @type {string} */ name, /** @type {string} */ low, /** @type {string} */ high, /** @type {string} */ label) =>
    h("span", { class: "ramp" }, `${label} ${low} `, h("i", { class: name }), ` ${high}`);
  const mark = (/** @type {string} */ kind, /** @type {string} */ label) => h("span", { class: "ramp" },
    s("svg", { viewBox: "0 0 16 16", class: "mark graph" }, nodeMark({ text: [], x: [], y: [], value: [], degree: [], visits: [0], endings: [1], wins: [kind === "won" ? 1 : 0] }, 0, { x: 8, y: 8 }, 5, "none")), label);
  return h("p", { class: "keys" }, ramp("value-ramp", "0", "1", "state value"), ramp("credit-ramp", show(-scale), show(scale), "mean credit"), mark("won", "ends won"), mark("lost", "ends lost"));
}

/** The drawn graph as rows: nodes, then the choices between them. @param {Group} group @param {State} state */
function graphRows(group, state) {
  const { nodes, edges, choices } = group.graph;
  const marked = nodes.text.map((text, at) => ["node", at, "", "", nodes.visits[at], nodes.value[at], "", nodes.endings[at], nodes.wins[at], group.texts[text]]);
  const taken = choices.edge.map((edge, at) => ["choice", "", edges.source[edge], edges.target[edge], choices.count[at], "", choices.credit[state.method][at], "", "", group.texts[choices.action[at]]]);
  return [["kind", "node", "source", "target", "count", "value", "credit", "endings", "wins", "text"], ...marked, ...taken];
}

/** Short name of an episode: what follows the task in its name. @param {Group} group @param {Episode} episode */
function episodeLabel(group, episode) {
  const [name, task] = [group.texts[episode.name], group.texts[group.task]];
  return name.startsWith(task) && name.length > task.length ? name.slice(task.length).replace(/^[-_/: ]+/, "") : name;
}
