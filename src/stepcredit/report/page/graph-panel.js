// @ts-check
"use strict";

const HINT = "Point at a state to see what was done there and what credit it got; click to keep it.";
const MOST_VISITS = 20; // end of the filter's range

/** @param {Group} group @param {State} state @param {number[]} seen @param {() => void} fit @param {HTMLElement} saving
 * @param {Go} go */
function graphToolbar(group, state, seen, fit, saving, go) {
  const trace = (/** @type {any} */ event) =>
    go({ trace: event.target.value === "" ? null : Number(event.target.value) });
  const episodes = group.episodes.map((episode, at) => {
    const label = `${episode.success ? "✓" : "✗"} ${episodeLabel(group, episode)}`;
    return h("option", { value: at, selected: at === state.trace }, label);
  });
  const most = Math.min(Math.max(...seen), MOST_VISITS);
  const filter = h("input", {
    id: "visits",
    type: "range",
    min: 1,
    max: most,
    value: Math.min(state.minVisits, most),
    onchange: (/** @type {any} */ event) => go({ minVisits: Number(event.target.value) }),
  });
  const left = seen.filter((count) => count >= state.minVisits).length;
  const states = left === group.states ? String(left) : `${left} of ${group.states}`;
  return h(
    "div",
    { class: "toolbar" },
    h(
      "label",
      {},
      "Trace episode ",
      h("select", { id: "trace", onchange: trace }, h("option", { value: "" }, "none"), ...episodes),
    ),
    h("label", {}, `Visits ≥ ${state.minVisits} `, filter),
    h("button", { type: "button", onclick: fit }, "Fit"),
    h("span", { class: "muted" }, `${states} states, ${plural(group.graph.edges.source.length, "transition")}`),
    saving,
  );
}

/** @param {Group} group @param {State} state */
function graphSummary(group, state) {
  const won = group.episodes.filter((episode) => episode.success).length;
  return h(
    "div",
    {},
    h("h3", {}, group.texts[group.goal] || group.texts[group.task]),
    h("p", { class: "muted" }, `${plural(group.members, "episode")}, ${won} won. ${HINT}`),
    state.trace === null ? null : h("p", {}, `Traced: ${episodeLabel(group, group.episodes[state.trace])}`),
  );
}

/** What a state is and what was done there. @param {Group} group @param {number} node @param {number} method
 * @param {number} scale @param {number[][]} out @param {(node: number) => void} follow */
function nodeDetails(group, node, method, scale, out, follow) {
  const { nodes, edges, choices } = group.graph;
  const rows = (out[node] ?? []).flatMap((edge) =>
    choices.edge
      .map((own, at) => (own === edge ? at : -1))
      .filter((at) => at >= 0)
      .map((at) => ({ at, edge, count: choices.count[at], credit: choices.credit[method][at] })),
  );
  rows.sort((a, b) => (b.credit ?? 0) - (a.credit ?? 0) || b.count - a.count);
  const ends = nodes.endings[node]
    ? `${nodes.wins[node]} won and ${nodes.endings[node] - nodes.wins[node]} lost here`
    : null;
  const facts = [
    ["value", show(nodes.value[node])],
    ["group size", plural(nodes.visits[node], "turn")],
    ["outcomes in reach", plural(nodes.degree[node], "episode")],
    ["endings", ends],
  ];
  return h(
    "div",
    {},
    h(
      "dl",
      { class: "facts" },
      ...facts.filter(([, text]) => text !== null).flatMap(([label, text]) => [h("dt", {}, label), h("dd", {}, text)]),
    ),
    h("p", { class: "text" }, group.texts[nodes.text[node]]),
    rows.length
      ? h(
          "table",
          { class: "actions" },
          h(
            "thead",
            {},
            h("tr", {}, h("th", {}, "action taken"), h("th", {}, "×"), h("th", { colspan: 2 }, "mean credit")),
          ),
          h(
            "tbody",
            {},
            ...rows.map((row) =>
              h(
                "tr",
                {},
                h(
                  "td",
                  {},
                  h(
                    "button",
                    { type: "button", class: "link", onclick: () => follow(edges.target[row.edge]) },
                    group.texts[choices.action[row.at]],
                  ),
                ),
                h("td", {}, String(row.count)),
                h("td", { class: "bar" }, creditBar(row.credit, scale)),
                h("td", { class: "number" }, signed(row.credit)),
              ),
            ),
          ),
        )
      : null,
  );
}

/** @param {number} scale */
function graphLegend(scale) {
  const mark = (/** @type {string} */ kind, /** @type {string} */ label) =>
    h(
      "span",
      { class: "ramp" },
      s(
        "svg",
        { viewBox: "0 0 16 16", class: "mark graph" },
        nodeMark(
          { text: [], x: [], y: [], value: [], degree: [], visits: [0], endings: [1], wins: [kind === "won" ? 1 : 0] },
          0,
          { x: 8, y: 8 },
          5,
          "none",
        ),
      ),
      label,
    );
  return h(
    "p",
    { class: "keys" },
    ramp("value-ramp", "0", "1", "state value"),
    ramp("credit-ramp", show(-scale), show(scale), "mean credit"),
    mark("won", "ends won"),
    mark("lost", "ends lost"),
  );
}

/** The drawn graph as rows: nodes, then the choices between them. @param {Group} group @param {State} state */
function graphRows(group, state) {
  const { nodes, edges, choices } = group.graph;
  const marked = nodes.text.map((text, at) => [
    "node",
    at,
    "",
    "",
    nodes.visits[at],
    nodes.value[at],
    "",
    nodes.endings[at],
    nodes.wins[at],
    group.texts[text],
  ]);
  const taken = choices.edge.map((edge, at) => [
    "choice",
    "",
    edges.source[edge],
    edges.target[edge],
    choices.count[at],
    "",
    choices.credit[state.method][at],
    "",
    "",
    group.texts[choices.action[at]],
  ]);
  return [
    ["kind", "node", "source", "target", "count", "value", "credit", "endings", "wins", "text"],
    ...marked,
    ...taken,
  ];
}
