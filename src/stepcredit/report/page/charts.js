// @ts-check
"use strict";

const CHART = { width: 400, height: 210, left: 46, right: 10, top: 10, bottom: 34 };
const FEW_POINTS = 16; // up to this many a line shows its points

/** A figure with heading, legend, caption and its save buttons. @param {FigureData} figure */
function chart(figure) {
  const drawing = draw(figure);
  const named = figure.series.length > 1 || figure.kind === "stack";
  const legend = named
    ? h(
        "ul",
        { class: "legend" },
        ...figure.series.map((series, index) => {
          const key = h("span", { class: "key" });
          key.style.background = seriesColour(index);
          return h("li", {}, key, series.name);
        }),
      )
    : null;
  const rows = () => [
    ["series", "x", "y", "low", "high", "size"],
    ...figure.series.flatMap((series) =>
      series.x.map((x, at) => [series.name, x, series.y[at], series.low[at], series.high[at], series.size[at]]),
    ),
  ];
  return h(
    "figure",
    { class: "chart", id: `figure-${figure.name}` },
    h("header", {}, h("h3", {}, figure.title), saveButtons(figure.name, drawing, rows)),
    legend,
    drawing,
    figure.caption ? h("figcaption", {}, figure.caption) : null,
  );
}

/** @param {FigureData} figure @returns {SVGSVGElement} */
function draw(figure) {
  const { width, height } = CHART;
  const drawing = s("svg", {
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    "aria-label": `${figure.title}: ${figure.yLabel} by ${figure.xLabel}`,
  });
  const names = figure.kind === "bars" ? [...new Set(figure.series.flatMap((series) => series.x.map(String)))] : [];
  const y = verticalScale(figure);
  const x = figure.kind === "bars" ? bandScale(names) : numberScale(figure);
  axes(drawing, figure, x, y, names);
  ({ line: drawLines, bars: drawBars, stack: drawStack, points: drawPoints })[figure.kind](drawing, figure, x, y);
  watchPointer(drawing, figure, x, names);
  return drawing;
}

/** @typedef {((value: any) => number) & {ticks: number[]}} Scale */

/**
 * Round numbers between two ends, about `count` of them.
 * @param {number} low @param {number} high @param {number} count
 */
function ticks(low, high, count) {
  const rough = (high - low) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999) ?? rough;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at++)
    found.push(+(at * step).toPrecision(12));
  return found;
}

/** @param {FigureData} figure @returns {Scale} */
function verticalScale(figure) {
  const { height, top, bottom } = CHART;
  let [low, high] = [0, figure.kind === "points" ? 1 : 0];
  if (figure.kind === "stack") {
    const totals = (figure.series[0]?.x ?? []).map((_, at) =>
      figure.series.reduce((sum, one) => sum + (one.y[at] ?? 0), 0),
    );
    high = Math.max(...totals);
  } else {
    for (const series of figure.series)
      for (const value of [...series.y, ...series.low, ...series.high]) {
        if (value === null) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
  }
  if (high === low) high = low + 1;
  const marks = ticks(low, high, 4);
  const step = marks.length > 1 ? marks[1] - marks[0] : high - low;
  const ceiling = figure.percent && high <= 1 && high > 0.8 ? 1 : Math.ceil(high / step - 1e-6) * step;
  const floor = Math.floor(low / step + 1e-6) * step;
  /** @type {any} */
  const scale = (/** @type {number} */ value) =>
    height - bottom - ((value - floor) / (ceiling - floor)) * (height - bottom - top);
  scale.ticks = ticks(floor, ceiling, 4);
  return scale;
}

/** @param {FigureData} figure @returns {Scale} */
function numberScale(figure) {
  const values = figure.series.flatMap((series) => /** @type {number[]} */ (series.x));
  let [low, high] = figure.kind === "points" ? [0, 1] : [Math.min(...values), Math.max(...values)];
  if (!(high > low)) [low, high] = [low - 1 || 0, low + 1 || 1];
  const { width, left, right } = CHART;
  /** @type {any} */
  const scale = (/** @type {number} */ value) =>
    left + 6 + ((value - low) / (high - low)) * (width - left - right - 12);
  scale.ticks = ticks(low, high, 6).filter((at) => Number.isInteger(at) || !values.every(Number.isInteger));
  return scale;
}

/** Middle of each category. @param {string[]} names @returns {Scale} */
function bandScale(names) {
  const { width, left, right } = CHART;
  const band = (width - left - right) / names.length;
  /** @type {any} */
  const scale = (/** @type {string} */ name) => left + (names.indexOf(name) + 0.5) * band;
  scale.ticks = [];
  return scale;
}

/** @param {SVGElement} drawing @param {FigureData} figure @param {Scale} x @param {Scale} y @param {string[]} names */
function axes(drawing, figure, x, y, names) {
  const { width, height, left, right, bottom } = CHART;
  for (const value of y.ticks) {
    drawing.append(
      s("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      s("text", { class: "tick", x: left - 6, y: y(value) + 3.5, "text-anchor": "end" }, shown(value, figure.percent)),
    );
  }
  const share = figure.kind === "points";
  for (const value of x.ticks)
    drawing.append(
      s("text", { class: "tick", x: x(value), y: height - bottom + 14, "text-anchor": "middle" }, shown(value, share)),
    );
  const room = (width - left - right) / Math.max(...names.map((name) => name.length * 5.6 + 8), 1);
  const every = Math.ceil(names.length / Math.max(1, Math.floor(room)));
  names.forEach((name, at) => {
    if (at % every === 0)
      drawing.append(s("text", { class: "tick", x: x(name), y: height - bottom + 14, "text-anchor": "middle" }, name));
  });
  drawing.append(
    s("text", { class: "label", x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, figure.xLabel),
  );
}

/** @param {SVGSVGElement} drawing @param {FigureData} figure @param {Scale} x @param {Scale} y */
function drawLines(drawing, figure, x, y) {
  figure.series.forEach((series, index) => {
    const stroke = seriesColour(index);
    if (series.low.length > 1) {
      const upper = series.x.map((at, place) => `${x(at)},${y(series.high[place])}`);
      const lower = series.x.map((at, place) => `${x(at)},${y(series.low[place])}`).reverse();
      const band = s("polygon", { class: "band", points: [...upper, ...lower].join(" ") });
      band.style.fill = stroke;
      drawing.append(band);
    }
    const path = s("polyline", {
      class: "line",
      points: series.x.map((at, place) => `${x(at)},${y(series.y[place])}`).join(" "),
    });
    path.style.stroke = stroke;
    drawing.append(path);
    if (series.x.length <= FEW_POINTS)
      series.x.forEach((at, place) => drawing.append(dot(x(at), y(series.y[place]), 2.6, stroke)));
  });
}

/** @param {number} cx @param {number} cy @param {number} r @param {string} fill */
function dot(cx, cy, r, fill) {
  const circle = s("circle", { class: "dot", cx, cy, r });
  circle.style.fill = fill;
  return circle;
}

/** @param {SVGSVGElement} drawing @param {FigureData} figure @param {Scale} x @param {Scale} y */
function drawBars(drawing, figure, x, y) {
  const names = new Set(figure.series.flatMap((series) => series.x)).size;
  const band = (CHART.width - CHART.left - CHART.right) / names;
  const wide = Math.min((band * 0.72) / figure.series.length, 34);
  figure.series.forEach((series, index) =>
    series.x.forEach((name, place) => {
      const value = series.y[place];
      if (value === null) return;
      const middle = x(name) + (index - (figure.series.length - 1) / 2) * wide;
      const bar = s("rect", {
        x: middle - wide / 2 + 0.5,
        width: wide - 1,
        y: Math.min(y(value), y(0)),
        height: Math.abs(y(value) - y(0)),
        rx: 1.5,
      });
      bar.style.fill = seriesColour(index);
      drawing.append(bar);
      if (series.low.length)
        drawing.append(
          s("path", { class: "whisker", d: `M${middle},${y(series.low[place])}V${y(series.high[place])}` }),
        );
    }),
  );
}

/** @param {SVGSVGElement} drawing @param {FigureData} figure @param {Scale} x @param {Scale} y */
function drawStack(drawing, figure, x, y) {
  const places = figure.series[0].x;
  let below = places.map(() => 0);
  figure.series.forEach((series, index) => {
    const above = below.map((value, at) => value + (series.y[at] ?? 0));
    const points = [
      ...places.map((at, place) => `${x(at)},${y(above[place])}`),
      ...places.map((at, place) => `${x(at)},${y(below[place])}`).reverse(),
    ];
    const area = s("polygon", { class: "area", points: points.join(" ") });
    area.style.fill = seriesColour(index);
    drawing.append(area);
    below = above;
  });
}

/** @param {SVGSVGElement} drawing @param {FigureData} figure @param {Scale} x @param {Scale} y */
function drawPoints(drawing, figure, x, y) {
  drawing.append(s("line", { class: "diagonal", x1: x(0), y1: y(0), x2: x(1), y2: y(1) }));
  figure.series.forEach((series, index) => {
    const most = Math.max(...series.size, 1);
    series.x.forEach((at, place) =>
      drawing.append(
        dot(x(at), y(series.y[place]), 2.5 + 6 * Math.sqrt((series.size[place] ?? most) / most), seriesColour(index)),
      ),
    );
  });
}

/**
 * Follow the pointer: the values at the nearest position.
 * @param {SVGSVGElement} drawing @param {FigureData} figure @param {Scale} x @param {string[]} names
 */
function watchPointer(drawing, figure, x, names) {
  const places = figure.kind === "bars" ? names : [...new Set(figure.series.flatMap((series) => series.x))];
  const rule = s("line", { class: "rule", y1: CHART.top, y2: CHART.height - CHART.bottom, visibility: "hidden" });
  drawing.append(rule);
  drawing.addEventListener("pointermove", (event) => {
    const box = drawing.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * CHART.width;
    const nearest = places.reduce(
      (best, place) => (Math.abs(x(place) - at) < Math.abs(x(best) - at) ? place : best),
      places[0],
    );
    if (nearest === undefined) return;
    rule.setAttribute("x1", String(x(nearest)));
    rule.setAttribute("x2", String(x(nearest)));
    rule.setAttribute("visibility", "visible");
    const share = figure.kind === "points";
    tip(
      [
        h("b", {}, `${figure.xLabel}: ${typeof nearest === "number" ? shown(nearest, share) : nearest}`),
        ...figure.series.map((series, index) => {
          const place = series.x.indexOf(nearest);
          if (place < 0) return null;
          const key = h("span", { class: "key" });
          key.style.background = seriesColour(index);
          const interval = series.low.length
            ? ` [${shown(series.low[place], figure.percent)}, ${shown(series.high[place], figure.percent)}]`
            : "";
          const size = series.size.length ? ` · ${plural(series.size[place], "prediction")}` : "";
          return h(
            "div",
            {},
            key,
            `${series.name} `,
            h("b", {}, shown(series.y[place], figure.percent)),
            interval + size,
          );
        }),
      ],
      event,
    );
  });
  drawing.addEventListener("pointerleave", () => {
    rule.setAttribute("visibility", "hidden");
    tip([], null);
  });
}

/** Figures under their headings, in the order in which the headings first appear. @param {FigureData[]} figures */
function sections(figures) {
  const headings = [...new Set(figures.map((figure) => figure.section))];
  return headings.map((heading) =>
    h(
      "section",
      {},
      h("h2", {}, heading),
      h("div", { class: "charts" }, ...figures.filter((figure) => figure.section === heading).map(chart)),
    ),
  );
}
