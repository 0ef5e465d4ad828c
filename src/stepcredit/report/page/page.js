// @ts-check
"use strict";

/**
 * What is looked at. `step` moves by episodes; `quiet` changes the state without drawing.
 * @typedef {{tab: string, batch: number, group: number, method: number, episode: number, turn: number | null,
 *   trace: number | null, minVisits: number, query: string, step?: number, quiet?: boolean}} State
 * @typedef {(change: Partial<State>) => void} Go
 */

/** @type {Record<string, string>} */
const TABS = {
  overview: "Overview",
  graph: "Task graph",
  tree: "Physical tree",
  episodes: "Episodes",
  distributions: "Distributions",
};

async function start() {
  /** @type {Index} */
  const index = await piece(0);
  /** @type {State} */
  const state = {
    tab: "overview",
    batch: Math.max(index.batches.length - 1, 0),
    group: 0,
    method: 0,
    episode: 0,
    turn: null,
    trace: null,
    minVisits: 1,
    query: "",
  };
  readHash(state, index);
  const tabs = Object.keys(TABS).filter((tab) => tab === "overview" || index.batches.length > 0);
  byId("title").append(h("h1", {}, index.title), h("p", { class: "muted" }, ...factLine(index.facts)));
  byId("tabs").append(
    ...tabs.map((tab) =>
      h("button", { type: "button", role: "tab", id: `tab-${tab}`, onclick: () => go({ tab }) }, TABS[tab]),
    ),
    themeButton(() => void render()),
  );

  /** @param {Partial<State>} change */
  async function go(change) {
    const { step, quiet, ...rest } = change;
    if (rest.batch !== undefined && rest.batch !== state.batch)
      Object.assign(state, { group: 0, episode: 0, turn: null, trace: null, minVisits: 1, method: 0 });
    if (rest.group !== undefined && rest.group !== state.group)
      Object.assign(state, { episode: 0, turn: null, trace: null, minVisits: 1 });
    Object.assign(state, rest);
    if (step) stepEpisode(state, index.batches[state.batch], step);
    writeHash(state);
    if (!quiet) await render();
  }

  let latest = 0;
  async function render() {
    const number = ++latest;
    const content = await view(index, state, go);
    if (number !== latest) return; // something else was asked for in the meantime
    tip([], null);
    for (const tab of tabs) byId(`tab-${tab}`).setAttribute("aria-selected", String(tab === state.tab));
    byId("controls").replaceChildren(...controls(index, state, go));
    byId("main").replaceChildren(...content);
    document.body.dataset.shown = state.tab;
    if (state.tab === "episodes" && state.turn !== null)
      document.getElementById(`turn-${state.turn}`)?.scrollIntoView({ block: "center" });
  }

  addEventListener("hashchange", () => {
    readHash(state, index);
    void render();
  });
  document.addEventListener("keydown", (event) => keys(event, state, tabs, go));
  await render();
}

/** @param {Index} index @param {State} state @param {Go} go @returns {Promise<Node[]>} */
async function view(index, state, go) {
  if (state.tab === "overview") return overview(index);
  const batch = index.batches[state.batch];
  if (state.tab === "distributions") return [...warningBox(batch.warnings), ...sections(await piece(batch.figures))];
  if (batch.groups.length === 0)
    return [
      h("p", { class: "empty" }, "No task group of this batch fits on the page; write a report about fewer updates."),
    ];
  /** @type {Group} */
  const group = await piece(batch.groups[state.group].piece);
  const parts = {
    graph: () => graphView(group, state, go),
    tree: () => treeView(group, state, batch.methods, go),
    episodes: () => readerView(group, batch, state, go),
  };
  return [parts[/** @type {keyof typeof parts} */ (state.tab)]()];
}

/** @param {Index} index */
function overview(index) {
  const headline = Object.entries(index.headline).map(([label, text]) =>
    h("div", {}, h("b", {}, text), h("span", {}, label)),
  );
  const config = Object.entries(index.config);
  return [
    headline.length ? h("section", { class: "headline" }, ...headline) : null,
    ...warningBox(index.warnings),
    ...sections(index.figures),
    ...Object.entries(index.tables).map(([title, [header, ...rows]]) =>
      h(
        "section",
        {},
        h("h2", {}, title),
        h(
          "table",
          { class: "table" },
          h("thead", {}, h("tr", {}, ...header.map((cell) => h("th", {}, cell)))),
          h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, cell))))),
        ),
      ),
    ),
    config.length
      ? h(
          "section",
          {},
          h("h2", {}, "Configuration"),
          h(
            "dl",
            { class: "config" },
            ...config.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value))),
          ),
        )
      : null,
    h(
      "footer",
      { class: "muted" },
      ...index.sampling.map((sentence) => h("p", {}, sentence)),
      ...shownGroups(index),
      h(
        "p",
        {},
        `Written with ${Object.entries(index.versions)
          .map(([name, version]) => `${name} ${version}`)
          .join(", ")}.`,
      ),
    ),
  ].filter((part) => part !== null);
}

/** Facts in one line; each stays whole where the line breaks. @param {Record<string, string>} facts */
const factLine = (facts) =>
  Object.entries(facts).map(([label, text]) => h("span", { class: "fact" }, `${label} `, h("b", {}, text)));

/** How much of the batches is on the page. @param {Index} index */
function shownGroups(index) {
  const shown = index.batches.reduce((sum, batch) => sum + batch.groups.length, 0),
    all = index.batches.reduce((sum, batch) => sum + batch.tasks, 0);
  const cut = index.batches.flatMap((batch) => batch.groups).filter((group) => group.shown < group.episodes).length;
  return [
    shown < all
      ? `${shown} of the ${all} task groups of these batches are on the page: groups with both outcomes first.`
      : null,
    cut
      ? `Of ${plural(cut, "large task group")} only some episodes can be read; graphs and statistics use all of them.`
      : null,
  ]
    .filter((text) => text !== null)
    .map((text) => h("p", {}, text));
}

/** @param {string[]} warnings */
const warningBox = (warnings) =>
  warnings.length
    ? [
        h(
          "section",
          { class: "warnings" },
          h("h2", {}, "Worth knowing"),
          h("ul", {}, ...warnings.map((text) => h("li", {}, text))),
        ),
      ]
    : [];

/** Choice of batch, task and method. @param {Index} index @param {State} state @param {Go} go */
function controls(index, state, go) {
  if (state.tab === "overview") return [];
  const batch = index.batches[state.batch];
  const choose = (
    /** @type {"batch" | "group" | "method"} */ name,
    /** @type {string} */ label,
    /** @type {string[]} */ options,
  ) =>
    h(
      "label",
      {},
      `${label} `,
      h(
        "select",
        { id: name, onchange: (/** @type {any} */ event) => go({ [name]: Number(event.target.value) }) },
        ...options.map((text, at) => h("option", { value: at, selected: at === state[name] }, text)),
      ),
    );
  const tasks = batch.groups.map(
    (group) =>
      `${group.family ? `${group.family}: ` : ""}${group.goal || group.task} — ${group.wins} of ${group.shown} won`,
  );
  return [
    index.batches.length > 1
      ? choose(
          "batch",
          "Batch",
          index.batches.map((one) => one.name),
        )
      : null,
    state.tab === "distributions" ? null : choose("group", "Task", tasks),
    state.tab === "distributions" || state.tab === "tree" ? null : choose("method", "Credit", batch.methods),
  ].filter((part) => part !== null);
}

/**
 * The next or previous episode, across task groups.
 * @param {State} state @param {BatchInfo} batch @param {number} step
 */
function stepEpisode(state, batch, step) {
  const count = batch.groups[state.group].shown,
    next = state.episode + step;
  if (next >= 0 && next < count) Object.assign(state, { episode: next, turn: null });
  else if (state.group + step >= 0 && state.group + step < batch.groups.length) {
    state.group += step;
    Object.assign(state, { episode: step > 0 ? 0 : batch.groups[state.group].shown - 1, turn: null, trace: null });
  }
}

/** @param {KeyboardEvent} event @param {State} state @param {string[]} tabs @param {Go} go */
function keys(event, state, tabs, go) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof Element && event.target.matches("input, select, textarea")) return;
  const step = { j: 1, n: 1, ArrowRight: 1, k: -1, p: -1, ArrowLeft: -1 }[event.key];
  if (state.tab === "episodes" && step) go({ step });
  else if (tabs[Number(event.key) - 1] !== undefined) go({ tab: tabs[Number(event.key) - 1] });
  else if (event.key === "/" && tabs.includes("episodes")) {
    event.preventDefault();
    if (state.tab !== "episodes") go({ tab: "episodes" });
    setTimeout(() => document.getElementById("search")?.focus(), 50);
  }
}

/** @param {() => void} redraw */
function themeButton(redraw) {
  const root = document.documentElement;
  const dark = () =>
    (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  return h(
    "button",
    {
      type: "button",
      id: "theme",
      title: "Light or dark",
      "aria-label": "Light or dark",
      onclick: () => {
        root.dataset.theme = dark() ? "light" : "dark";
        redraw();
      },
    },
    "◐",
  );
}

const IN_HASH = /** @type {const} */ (["batch", "group", "method", "episode"]);

/** @param {State} state */
function writeHash(state) {
  history.replaceState(null, "", `#${[state.tab, ...IN_HASH.map((name) => state[name])].join("/")}`);
}

/** A link to a place of the page; whatever does not exist is left out. @param {State} state @param {Index} index */
function readHash(state, index) {
  const [tab, ...numbers] = location.hash.slice(1).split("/");
  if (!(tab in TABS) || index.batches.length === 0) return;
  state.tab = tab;
  const [batch, group, method, episode] = numbers.map(Number);
  if (index.batches[batch] === undefined) return;
  state.batch = batch;
  if (index.batches[batch].methods[method] !== undefined) state.method = method;
  if (index.batches[batch].groups[group] === undefined) return;
  state.group = group;
  if (episode >= 0 && episode < index.batches[batch].groups[group].shown) state.episode = episode;
}

start().catch((error) =>
  byId("main").replaceChildren(
    h("p", { class: "empty" }, `This page could not be drawn: ${error.message}. It needs a browser of 2023 or later.`),
  ),
);
