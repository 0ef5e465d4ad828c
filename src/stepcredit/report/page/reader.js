// @ts-check
"use strict";

/**
 * The episodes of a task group and the transcript of one of them.
 * @param {Group} group @param {BatchInfo} batch @param {State} state @param {Go} go
 */
function readerView(group, batch, state, go) {
  const episode = group.episodes[state.episode];
  const list = h(
    "ol",
    { class: "episodes", "aria-label": "Episodes" },
    ...group.episodes.map((one, at) => {
      const button = h(
        "button",
        {
          type: "button",
          "aria-current": at === state.episode ? "true" : null,
          onclick: () => go({ episode: at, turn: null }),
        },
        h("span", { class: one.success ? "won" : "lost" }, one.success ? "✓" : "✗"),
        h("span", { class: "name" }, episodeLabel(group, one)),
        h("span", { class: "muted" }, `${one.parent === null ? "" : "branch · "}${plural(one.action.length, "turn")}`),
      );
      return h("li", {}, button);
    }),
  );
  const found = h("ol", { class: "found" });
  const search = h("input", {
    id: "search",
    type: "search",
    placeholder: "Search these episodes  /",
    value: state.query,
    "aria-label": "Search the episodes of this batch",
    onchange: (/** @type {any} */ event) => {
      void searchBatch(batch, event.target.value, found, go);
      go({ query: event.target.value, quiet: true });
    },
  });
  if (state.query) void searchBatch(batch, state.query, found, go);
  return h(
    "div",
    { class: "reader" },
    h("aside", { class: "side" }, search, found, list),
    h(
      "article",
      { class: "transcript" },
      episodeHead(group, episode, go),
      creditStrip(group, batch, episode, state, go),
      ...transcript(group, episode, state),
    ),
  );
}

/** @param {Group} group @param {Episode} episode @param {Go} go */
function episodeHead(group, episode, go) {
  const parent = episode.parent === null ? null : group.episodes[episode.parent];
  const facts = [
    episode.success ? "won" : "lost",
    plural(episode.action.length, "turn"),
    `return ${show(episode.return)}`,
    episode.score === null ? null : `score ${show(episode.score)}`,
    group.texts[episode.stop] ? `stopped: ${group.texts[episode.stop]}` : null,
    group.texts[episode.error] || null,
  ];
  return h(
    "header",
    {},
    h(
      "div",
      { class: "pager" },
      h("button", { type: "button", title: "Previous episode (k or ←)", onclick: () => go({ step: -1 }) }, "←"),
      h("button", { type: "button", title: "Next episode (j or →)", onclick: () => go({ step: 1 }) }, "→"),
    ),
    h("h2", {}, group.texts[group.goal] || group.texts[group.task]),
    h("p", { class: "muted" }, `${group.texts[episode.name]} · ${facts.filter(Boolean).join(" · ")}`),
    parent === null
      ? null
      : h(
          "p",
          {},
          h(
            "button",
            {
              type: "button",
              class: "link",
              onclick: () => go({ episode: episode.parent ?? 0, turn: episode.parentTurn }),
            },
            `Left ${episodeLabel(group, parent)} before its turn ${episode.parentTurn}`,
          ),
        ),
  );
}

const STRIP = { width: 920, left: 110, row: 17, widest: 26 };

/** Every method's credit of every turn, one row a method, each row coloured by its own largest value.
 * @param {Group} group @param {BatchInfo} batch @param {Episode} episode @param {State} state @param {Go} go */
function creditStrip(group, batch, episode, state, go) {
  const cell = Math.min((STRIP.width - STRIP.left) / episode.action.length, STRIP.widest),
    { left, row } = STRIP;
  const drawing = s("svg", {
    class: "strip",
    viewBox: `0 0 ${STRIP.width} ${batch.methods.length * row}`,
    role: "img",
    "aria-label": "Credit of every turn by method",
  });
  batch.methods.forEach((method, at) => {
    const paint = creditColours(Math.max(...group.episodes.map((one) => largest(one.credit[at].advantage))));
    const label = s(
      "text",
      { class: at === state.method ? "chosen" : "tick", x: 0, y: at * row + 12, onclick: () => go({ method: at }) },
      method.length > 18 ? `${method.slice(0, 17)}…` : method,
    );
    drawing.append(
      label,
      ...episode.credit[at].advantage.map((value, turn) =>
        s("rect", {
          x: left + turn * cell + 0.5,
          y: at * row + 1.5,
          width: Math.max(cell - 1, 0.5),
          height: row - 3,
          rx: 1,
          fill: paint(value),
          "data-turn": turn,
          onpointermove: (/** @type {MouseEvent} */ event) =>
            tip(
              [
                h("div", {}, `turn ${turn} · ${method} `, h("b", {}, signed(value))),
                h("div", { class: "command" }, group.texts[episode.action[turn]]),
              ],
              event,
            ),
          onpointerleave: () => tip([], null),
          onclick: () =>
            document.getElementById(`turn-${turn}`)?.scrollIntoView({ block: "center", behavior: "smooth" }),
        }),
      ),
    );
  });
  const rows = () => [
    ["method", "turn", "advantage"],
    ...batch.methods.flatMap((method, at) => episode.credit[at].advantage.map((value, turn) => [method, turn, value])),
  ];
  return h(
    "div",
    { class: "strip-box" },
    h("span", { class: "muted" }, "credit of each turn, method by method"),
    saveButtons("credit-strip", drawing, rows),
    drawing,
  );
}

/** @param {Group} group @param {Episode} episode @param {State} state */
function transcript(group, episode, state) {
  const { advantage, parts } = episode.credit[state.method];
  const mixes = "episode" in parts && "step" in parts; // then a weight is the mixing weight λ
  const scale = Math.max(...group.episodes.map((one) => largest(one.credit[state.method].advantage)));
  const turns = episode.action.map((action, at) => {
    const response = group.texts[episode.response[at]];
    const numbers = [
      ...Object.entries(parts).map(([name, values]) =>
        name === "weight" ? [mixes ? "λ" : name, show(values[at])] : [name, signed(values[at])],
      ),
      episode.reward[at] ? ["reward", signed(episode.reward[at])] : null,
      episode.penalty[at] ? ["penalty", show(episode.penalty[at])] : null,
      episode.nll[at] === null ? null : ["NLL", show(episode.nll[at])],
      episode.entropy[at] === null ? null : ["entropy", show(episode.entropy[at])],
    ];
    const reason = episode.invalid[at];
    return h(
      "li",
      { id: `turn-${at}`, class: at === state.turn ? "here" : null },
      h("span", { class: "index" }, String(at)),
      h(
        "div",
        { class: "said" },
        h("p", { class: "text" }, group.texts[episode.observation[at]]),
        response ? h("p", { class: "text response" }, response) : null,
        h("p", { class: "command" }, group.texts[action]),
        reason === null
          ? null
          : h("p", { class: "invalid" }, `invalid${group.texts[reason] ? `: ${group.texts[reason]}` : ""}`),
      ),
      h(
        "div",
        { class: "numbers" },
        h(
          "div",
          { class: "advantage" },
          creditBar(advantage[at], scale),
          h("b", {}, advantage[at] === null ? "not scored" : signed(advantage[at])),
        ),
        h(
          "dl",
          {},
          ...numbers.map((pair) => (pair === null ? null : h("div", {}, h("dt", {}, pair[0]), h("dd", {}, pair[1])))),
        ),
      ),
    );
  });
  return [
    h("ol", { class: "turns" }, ...turns),
    h(
      "p",
      { class: `ending ${episode.success ? "won" : "lost"}` },
      h("b", {}, episode.success ? "✓ won" : "✗ lost"),
      h("span", { class: "text" }, group.texts[episode.final]),
    ),
  ];
}

const MOST_FOUND = 50;

/** Episodes of the batch whose texts hold the query.
 * @param {BatchInfo} batch @param {string} query @param {HTMLElement} list @param {Go} go */
async function searchBatch(batch, query, list, go) {
  const wanted = query.trim().toLowerCase();
  if (!wanted) return list.replaceChildren();
  /** @type {{place: number, at: number, turn: number | null, label: string}[]} */
  const hits = [];
  for (const [place, info] of batch.groups.entries()) {
    /** @type {Group} */
    const group = await piece(info.piece);
    const matching = new Set(group.texts.flatMap((text, at) => (text.toLowerCase().includes(wanted) ? [at] : [])));
    group.episodes.forEach((episode, at) => {
      const turn = episode.action.findIndex(
        (action, t) =>
          matching.has(action) || matching.has(episode.observation[t]) || matching.has(episode.response[t]),
      );
      if (turn >= 0 || matching.has(episode.name) || matching.has(episode.final))
        hits.push({
          place,
          at,
          turn: turn < 0 ? null : turn,
          label: `${info.goal || info.task} ${episodeLabel(group, episode)}`,
        });
    });
  }
  list.replaceChildren(
    h(
      "li",
      { class: "muted" },
      `${plural(hits.length, "episode")} found${hits.length > MOST_FOUND ? `, ${MOST_FOUND} shown` : ""}`,
    ),
    ...hits
      .slice(0, MOST_FOUND)
      .map((hit) =>
        h(
          "li",
          {},
          h(
            "button",
            { type: "button", class: "link", onclick: () => go({ group: hit.place, episode: hit.at, turn: hit.turn }) },
            hit.label + (hit.turn === null ? "" : `, turn ${hit.turn}`),
          ),
        ),
      ),
  );
}
