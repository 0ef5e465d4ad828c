// @ts-check
"use strict";

/**
 * @typedef {number | null} Num
 * @typedef {{name: string, x: (number | string)[], y: Num[], low: Num[], high: Num[], size: number[]}} Series
 * @typedef {{name: string, section: string, title: string, kind: "line" | "bars" | "stack" | "points", xLabel: string,
 *   yLabel: string, caption: string, percent: boolean, series: Series[]}} FigureData
 * @typedef {{piece: number, task: string, family: string, goal: string, episodes: number, shown: number, wins: number,
 *   states: number}} GroupInfo
 * @typedef {{name: string, figures: number, methods: string[], episodes: number, tasks: number, warnings: string[],
 *   groups: GroupInfo[]}} BatchInfo
 * @typedef {{title: string, facts: Record<string, string>, headline: Record<string, string>, figures: FigureData[],
 *   warnings: string[], tables: Record<string, string[][]>, config: Record<string, string>, sampling: string[],
 *   versions: Record<string, string>, batches: BatchInfo[]}} Index
 * @typedef {{text: number[], x: number[], y: number[], value: number[], visits: number[], endings: number[],
 *   wins: number[], degree: number[]}} Nodes
 * @typedef {{source: number[], target: number[], count: number[], credit: Num[][]}} Edges
 * @typedef {{edge: number[], action: number[], count: number[], credit: Num[][]}} Choices
 * @typedef {{nodes: Nodes, edges: Edges, choices: Choices}} GraphData
 * @typedef {{advantage: Num[], parts: Record<string, Num[]>}} CreditColumns
 * @typedef {{name: number, parent: number | null, parentTurn: number | null, success: boolean, score: Num,
 *   stop: number, error: number, return: number, final: number, state: number[], end: number, observation: number[],
 *   action: number[], response: number[], invalid: (number | null)[], reward: number[], penalty: number[], nll: Num[],
 *   entropy: Num[], credit: CreditColumns[]}} Episode
 * @typedef {{rows: number[], depth: number, segments: {episode: number[], from: number[], to: number[], turn: number[],
 *   score: number[], credit: number[], reached: number[], root: boolean[]}, splits: {row: number[], at: number[],
 *   value: number[], children: number[]}}} TreeData
 * @typedef {{task: number, family: number, goal: number, members: number, states: number, graph: GraphData,
 *   episodes: Episode[], tree: TreeData | null, texts: string[]}} Group
 * @typedef {Node | string | null | undefined} Child
 */

const SVG = "http://www.w3.org/2000/svg";

/** Unpacked pieces, so that each is unpacked once. @type {Map<number, Promise<any>>} */
const unpacked = new Map();

/** The data of a piece: base64, gzip, JSON. @param {number} number @returns {Promise<any>} */
function piece(number) {
  let found = unpacked.get(number);
  if (found === undefined) {
    found = unpack(byId(`piece-${number}`).textContent ?? "");
    unpacked.set(number, found);
  }
  return found;
}

/** @param {string} encoded */
async function unpack(encoded) {
  const binary = atob(encoded);
  const bytes = Uint8Array.from(binary, (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

/** @param {string} id @returns {HTMLElement} */
function byId(id) {
  const found = document.getElementById(id);
  if (found === null) throw new Error(`the page has no element ${id}`);
  return found;
}

/**
 * An HTML element. Text always becomes a text node, so that nothing in the data is ever read as markup.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag @param {Record<string, any>} attributes @param {...Child} children @returns {HTMLElementTagNameMap[K]}
 */
function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  fill(element, attributes, children);
  return element;
}

/**
 * An SVG element.
 * @template {keyof SVGElementTagNameMap} K
 * @param {K} tag @param {Record<string, any>} attributes @param {...Child} children @returns {SVGElementTagNameMap[K]}
 */
function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  fill(element, attributes, children);
  return element;
}

/** @param {Element} element @param {Record<string, any>} attributes @param {Child[]} children */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) if (child !== null && child !== undefined) element.append(child);
}

/** A number for a reader: three significant digits, a true minus sign. @param {Num} value */
function show(value) {
  if (value === null) return "–";
  const size = Math.abs(value);
  const text = size !== 0 && (size >= 1e6 || size < 1e-3) ? value.toExponential(1) : String(+value.toPrecision(3));
  return text.replace("-", "−");
}

/** The same with its sign. @param {Num} value */
const signed = (value) => (value !== null && value > 0 ? `+${show(value)}` : show(value));

/** @param {Num} value @param {boolean} percent */
const shown = (value, percent) => (percent && value !== null ? `${+(100 * value).toFixed(1)} %` : show(value));

/** A count with its noun. @param {number} count @param {string} noun */
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** A colour of the theme. @param {string} name */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

const SERIES_COLOURS = 8;
/** @param {number} index */
const seriesColour = (index) => `var(--series-${index % SERIES_COLOURS})`;

/** A colour between two of the form #rrggbb. @param {string} from @param {string} to @param {number} share */
function blend(from, to, share) {
  const part = (/** @type {string} */ text, /** @type {number} */ at) => parseInt(text.slice(at, at + 2), 16);
  const mixed = [1, 3, 5].map((at) => Math.round(part(from, at) + (part(to, at) - part(from, at)) * share));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

/** Colours of credit between −scale and scale, grey at 0. @param {number} scale @returns {(value: Num) => string} */
function creditColours(scale) {
  const [none, plus, minus] = [colour("none"), colour("plus"), colour("minus")];
  return (value) => {
    if (value === null || scale === 0) return none;
    const share = Math.min(Math.abs(value) / scale, 1) ** 0.6;
    return blend(none, value > 0 ? plus : minus, share);
  };
}

/** Colours of values between 0 and the largest. @param {number} largest @returns {(value: Num) => string} */
function valueColours(largest) {
  const [low, high] = [colour("value-low"), colour("value-high")];
  return (value) => blend(low, high, largest > 0 ? Math.min(Math.max((value ?? 0) / largest, 0), 1) : 0);
}

/** Largest absolute value; 0 where there is none. @param {Num[]} values */
const largest = (values) =>
  values.reduce((/** @type {number} */ most, value) => Math.max(most, Math.abs(value ?? 0)), 0);

/** Show a box beside the pointer, or hide it. @param {Child[]} content @param {MouseEvent | null} at */
function tip(content, at) {
  const box = byId("tip");
  box.hidden = at === null;
  if (at === null) return;
  box.replaceChildren(...content.filter((child) => child !== null && child !== undefined));
  const { width, height } = box.getBoundingClientRect();
  const left = at.clientX + 14 + width > innerWidth ? at.clientX - width - 14 : at.clientX + 14;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, Math.min(at.clientY + 14, innerHeight - height - 4))}px`;
}

/** Offer a file. @param {string} name @param {string} text @param {string} type */
function save(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

/** @param {any} cell */
function csvCell(cell) {
  const text = cell === null || cell === undefined ? "" : String(cell);
  return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** @param {any[][]} rows */
const csv = (rows) => rows.map((row) => row.map(csvCell).join(",") + "\n").join("");

const DRAWN = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-opacity",
  "stroke-dasharray",
  "stroke-linecap",
  "opacity",
  "font-size",
  "font-family",
  "font-weight",
  "text-anchor",
  "display",
];

/** The figure as a file of its own: what the style sheet says is written into it. @param {SVGSVGElement} figure */
function svgFile(figure) {
  const copy = /** @type {SVGSVGElement} */ (figure.cloneNode(true));
  const [from, to] = [
    [figure, ...figure.querySelectorAll("*")],
    [copy, ...copy.querySelectorAll("*")],
  ];
  from.forEach((element, place) => {
    const style = getComputedStyle(element);
    for (const name of DRAWN) to[place].setAttribute(name, style.getPropertyValue(name));
  });
  copy.setAttribute("xmlns", SVG);
  const box = figure.viewBox.baseVal;
  copy.setAttribute("width", String(box.width));
  copy.setAttribute("height", String(box.height));
  const ground = s("rect", { x: box.x, y: box.y, width: box.width, height: box.height, fill: colour("paper") });
  copy.prepend(ground);
  return new XMLSerializer().serializeToString(copy);
}

/** The buttons that save a figure. @param {string} name @param {SVGSVGElement} figure @param {() => any[][]} rows */
function saveButtons(name, figure, rows) {
  return h(
    "span",
    { class: "save" },
    h(
      "button",
      {
        type: "button",
        title: `Save ${name}.svg`,
        onclick: () => save(`${name}.svg`, svgFile(figure), "image/svg+xml"),
      },
      "SVG",
    ),
    h(
      "button",
      { type: "button", title: `Save ${name}.csv`, onclick: () => save(`${name}.csv`, csv(rows()), "text/csv") },
      "CSV",
    ),
  );
}
