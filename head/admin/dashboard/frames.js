// Spreads drawing over frames. Normally one frame draws a whole update. While the page or a part
// of it scrolls, each frame draws one part of the update, so that no frame is late.
const CALM_MS = 200;
const due = new Set();
let scrolled = -1e9;

document.addEventListener("scroll", () => { scrolled = performance.now(); }, { capture: true, passive: true });
export const isScrolling = () => performance.now() - scrolled < CALM_MS;

/* Calls each `draw` once, in the next frame or in a frame soon after. */
export function drawSoon(draw) {
  if (due.size === 0) requestAnimationFrame(drawNext);
  due.add(draw);
}

function drawNext() {
  const now = isScrolling() ? [...due].slice(0, 1) : [...due];
  for (const draw of now) due.delete(draw);
  if (due.size > 0) requestAnimationFrame(drawNext);
  for (const draw of now) draw();
}
