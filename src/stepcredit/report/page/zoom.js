// @ts-check
"use strict";

const ZOOM = 1.2; // factor of one step of the wheel or of + and −
const FARTHEST = { out: 0.5, in: 12 };

/** Wheel and +/− zoom, dragging moves. Returns what shows everything again.
 * @param {SVGSVGElement} drawing @param {SVGGElement} world @param {number} wide @param {number} high */
function panAndZoom(drawing, world, wide, high) {
  let [k, x, y] = [1, 0, 0];
  const apply = () => world.setAttribute("transform", `translate(${x} ${y}) scale(${k})`);
  const zoom = (/** @type {number} */ factor, /** @type {number} */ px, /** @type {number} */ py) => {
    const next = Math.min(Math.max(k * factor, FARTHEST.out), FARTHEST.in);
    [x, y, k] = [px - ((px - x) * next) / k, py - ((py - y) * next) / k, next];
    apply();
  };
  const local = (/** @type {MouseEvent} */ event) => {
    const matrix = drawing.getScreenCTM();
    return matrix === null
      ? new DOMPoint()
      : new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
  };
  drawing.addEventListener(
    "wheel",
    (event) => {
      if (!event.ctrlKey && document.activeElement !== drawing) return; // an unfocused graph lets the page scroll
      event.preventDefault();
      const at = local(event);
      zoom(event.deltaY < 0 ? ZOOM : 1 / ZOOM, at.x, at.y);
    },
    { passive: false },
  );
  drawing.addEventListener("keydown", (event) => {
    if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? ZOOM : 1 / ZOOM, wide / 2, high / 2);
  });
  /** @type {DOMPoint | null} */
  let held = null;
  drawing.addEventListener("pointerdown", (event) => {
    held = local(event);
  });
  drawing.addEventListener("pointermove", (event) => {
    if (held === null || event.buttons === 0) return;
    const at = local(event);
    [x, y, held] = [x + at.x - held.x, y + at.y - held.y, at];
    apply();
  });
  drawing.addEventListener("pointerup", () => {
    held = null;
  });
  return () => {
    [k, x, y] = [1, 0, 0];
    apply();
  };
}
