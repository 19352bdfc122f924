// Draws the canvases: the charts, the KV map and the map of ranks. Colours are CSS variables of
// the page.
import { $, SAMPLE as S, clock, compact, integer, make, percent, rate, seconds } from "./model.js";
import { drawSoon } from "./frames.js";

const colors = new Map(); // cached, since reading a variable makes the browser recompute styles
function color(name) {
  if (!colors.has(name)) colors.set(name, getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim());
  return colors.get(name);
}
export function forgetColors() {
  colors.clear();
}

/* Keeps the canvas's layout size in `size` and calls `draw` when it changes. Reading the width
 * from the canvas would force a layout. */
export function keepSize(canvas, draw) {
  canvas.size = { width: 0, height: 0 };
  new ResizeObserver(([box]) => {
    canvas.size = box.contentRect;
    drawSoon(draw);
  }).observe(canvas);
}

const sheet = new OffscreenCanvas(1, 1), pen = sheet.getContext("2d");

/* Draws a canvas at the screen's own resolution, in CSS pixels. It draws on an offscreen canvas
 * and then shows the finished picture. The reason is that the browser copies a canvas of kind
 * "2d" again for every frame of the page, even when the canvas has not changed. */
function paint(canvas, draw) {
  const { width: w, height: h } = canvas.size, dpr = devicePixelRatio || 1;
  if (w < 1 || h < 1) return;
  sheet.width = Math.round(w * dpr); // setting the width also clears the sheet
  sheet.height = Math.round(h * dpr);
  pen.setTransform(dpr, 0, 0, dpr, 0, 0);
  draw(pen, w, h);
  canvas.getContext("bitmaprenderer").transferFromImageBitmap(sheet.transferToImageBitmap());
}

/* Returns the smallest round number that is at least v. */
function nice(v) {
  const p = 10 ** Math.floor(Math.log10(v));
  return p * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find(m => v <= m * p * 1.000001);
}

const SPAN_MS = 600_000, LEFT = 46, BOTTOM = 16, TOP = 5;

/* Draws a line chart. `lines` is a list of {name, color, at: index into a sample}. */
export class Chart {
  constructor(host, { title, unit, lines, format, most }) {
    Object.assign(this, { title, lines, format, most });
    this.cursor = null;
    this.canvas = make("canvas", { tabIndex: 0 });
    this.canvas.setAttribute("role", "img");
    this.values = lines.map(l => make("b"));
    const legend = lines.map((l, i) => {
      const swatch = make("i", { className: "swatch" });
      l.swatch = swatch;
      return make("span", { className: "quiet" }, swatch, l.name + " ", this.values[i]);
    });
    this.when = make("span", { className: "dim" });
    host.append(make("figure", { className: "card chart" },
      make("figcaption", {}, make("b", { textContent: title }), make("span", { className: "dim", textContent: unit }), ...legend, this.when), this.canvas));
  }

  x(t) {
    return LEFT + (this.w - LEFT - 4) * (1 - (this.end - t) / this.span);
  }

  draw(samples, cursor) {
    this.end = samples.length ? samples.at(-1)[S.t] : 0;
    this.span = Math.min(SPAN_MS, Math.max(60_000, samples.length ? this.end - samples[0][S.t] : 0));
    let top = 0;
    for (const s of samples) for (const l of this.lines) if (s[l.at] > top) top = s[l.at];
    top = this.most ?? nice(top || 1);
    const s = cursor === null ? samples.at(-1) : samples[cursor];
    paint(this.canvas, (c, w, h) => {
      this.w = w;
      const y = v => h - BOTTOM - (h - BOTTOM - TOP) * v / top;
      this.#axes(c, w, h, top, y);
      for (const l of this.lines) this.#line(c, samples, l, y);
      if (cursor === null || !s) return;
      c.strokeStyle = color("dim");
      c.beginPath();
      c.moveTo(this.x(s[S.t]), TOP);
      c.lineTo(this.x(s[S.t]), h - BOTTOM);
      c.stroke();
    });
    this.#tell(s, cursor);
  }

  #axes(c, w, h, top, y) {
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = color("dim");
    c.strokeStyle = color("line");
    c.lineWidth = 1;
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (const v of [0, top / 2, top]) {
      c.beginPath();
      c.moveTo(LEFT, Math.round(y(v)) + .5);
      c.lineTo(w - 4, Math.round(y(v)) + .5);
      c.stroke();
      c.fillText(v === 0 ? "0" : v >= 10_000 ? compact(v) : this.format(v).replace(/\.0+(?= |$)/, ""), LEFT - 6, y(v) + (v === top ? 3 : v === 0 ? -2 : 0));
    }
    c.textBaseline = "bottom";
    const step = this.span > 240_000 ? 120_000 : this.span > 90_000 ? 60_000 : 20_000;
    for (let back = 0; back <= this.span - step / 4; back += step) {
      c.textAlign = back === 0 ? "right" : "center";
      c.fillText(back === 0 ? "now" : back >= 60_000 ? `−${back / 60_000} min` : `−${back / 1000} s`, this.x(this.end - back), h);
    }
  }

  #line(c, samples, l, y) {
    c.strokeStyle = color(l.color);
    c.lineWidth = 1.6;
    c.lineJoin = "round";
    c.setLineDash(l.dash ?? []);
    c.beginPath();
    let last = null;
    for (const s of samples) {
      const v = s[l.at];
      if (v !== null && last !== null && s[S.t] - last < 5000) c.lineTo(this.x(s[S.t]), y(v));
      else if (v !== null) c.moveTo(this.x(s[S.t]), y(v));
      last = v === null ? null : s[S.t];
    }
    c.stroke();
    c.setLineDash([]);
  }

  #tell(s, cursor) {
    this.lines.forEach((l, i) => {
      const text = s && s[l.at] !== null ? this.format(s[l.at]) : "–";
      if (this.values[i].textContent !== text) this.values[i].textContent = text;
      if (l.drawn !== color(l.color)) l.swatch.style.background = l.drawn = color(l.color);
    });
    const when = cursor !== null && s ? "at " + clock(s[S.t]) : "";
    if (this.when.textContent !== when) this.when.textContent = when;
    this.canvas.setAttribute("aria-label", `${this.title}: ` + this.lines.map((l, i) => `${l.name} ${this.values[i].textContent}`).join(", ") +
      ` ${when || "now"}. Arrow keys go through time.`);
  }
}

export class Charts {
  constructor(host) {
    this.samples = [];
    this.cursor = null;
    const chart = (title, unit, format, lines, most) => new Chart(host, { title, unit, format, lines, most });
    this.all = [
      chart("Throughput", "tokens/s", rate, [{ name: "generated", color: "decode", at: S.generation_tps }, { name: "prompt", color: "prefill", at: S.prompt_tps, dash: [5, 3] }]),
      chart("Requests", "", v => Number.isInteger(v) ? integer(v) : v.toFixed(1), [{ name: "running", color: "decode", at: S.running }, { name: "waiting", color: "queue", at: S.waiting, dash: [5, 3] }]),
      chart("Time to first token", "", seconds, [{ name: "median", color: "prefill", at: S.ttft50 }, { name: "95 %", color: "second", at: S.ttft95, dash: [5, 3] }]),
      chart("Time between tokens", "", seconds, [{ name: "median", color: "prefill", at: S.itl50 }, { name: "95 %", color: "second", at: S.itl95, dash: [5, 3] }]),
      chart("Whole request", "", seconds, [{ name: "median", color: "prefill", at: S.e2e50 }, { name: "95 %", color: "second", at: S.e2e95, dash: [5, 3] }]),
      chart("KV cache", "", percent, [{ name: "in use", color: "shared", at: S.kv }, { name: "prefix hits", color: "decode", at: S.hits, dash: [5, 3] }], 1),
    ];
    for (const c of this.all) {
      c.again = () => c.draw(this.samples, this.cursor);
      keepSize(c.canvas, c.again);
      c.canvas.addEventListener("pointermove", e => this.#point(c, e.offsetX));
      c.canvas.addEventListener("pointerleave", () => this.#move(null));
      c.canvas.addEventListener("blur", () => this.#move(null));
      c.canvas.addEventListener("keydown", e => this.#key(e));
    }
  }

  add(rows, limit = 600) {
    this.samples = this.samples.concat(rows).slice(-limit);
    this.draw();
  }

  draw() {
    if (this.cursor !== null && this.cursor >= this.samples.length) this.cursor = null;
    for (const c of this.all) drawSoon(c.again);
  }

  #move(cursor) {
    if (cursor === this.cursor) return;
    this.cursor = cursor;
    requestAnimationFrame(() => this.all.forEach(c => c.again())); // the chart is drawn in the next frame, so
                                                                   // that it follows the pointer without
                                                                   // delay
  }

  #point(c, x) {
    let best = null;
    this.samples.forEach((s, i) => {
      if (best === null || Math.abs(c.x(s[S.t]) - x) < Math.abs(c.x(this.samples[best][S.t]) - x)) best = i;
    });
    this.#move(best);
  }

  #key(e) {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -30, PageDown: 30 }[e.key], last = this.samples.length - 1;
    if (e.key === "Escape") this.#move(null);
    if (!by || last < 0) return;
    e.preventDefault();
    this.#move(Math.max(0, Math.min(last, (this.cursor ?? last) + by)));
  }
}

/* Draws one square for each cell of the KV map from the head. From the bottom up it shows the
 * shared, owned and cached parts. */
export function drawKv(map) {
  paint($("kv"), (c, w, h) => map && drawCells(c, w, h, map));
}

function drawCells(c, w, h, map) {
  const n = map.cells.length / 3, gap = 1;
  let size = Math.floor(Math.sqrt(w * h / Math.max(n, 1)));
  while (size > 3 && Math.ceil(n / Math.floor(w / size)) * size > h) size--;
  size = Math.min(size, 22);
  const perRow = Math.floor(w / size), layers = ["shared", "accent", "cached"].map(color), empty = color("track");
  for (let i = 0; i < n; i++) {
    const x = i % perRow * size, side = size - gap;
    let y = Math.floor(i / perRow) * size + side;
    c.fillStyle = empty;
    c.fillRect(x, y - side, side, side);
    for (let k = 0; k < 3; k++) {
      const share = (map.cells.charCodeAt(3 * i + k) - 48) / 9;
      if (share === 0) continue;
      c.fillStyle = layers[k];
      y -= side * share;
      c.fillRect(x, y, side, side * share);
    }
  }
}

/* Draws ranks as squares in boxes, one box for each group or node. `spots` keeps the place of
 * each square for the pointer. */
export class RankMap {
  constructor(canvas, onPick) {
    this.canvas = canvas;
    this.boxes = [];
    this.spots = [];
    this.picked = null; // instance id of a rank, or null
    this.onPick = onPick;
    canvas.addEventListener("pointermove", e => this.#point(e));
    canvas.addEventListener("pointerleave", () => this.#pick(null));
    canvas.addEventListener("keydown", e => this.#key(e));
    keepSize(canvas, this.draw);
  }

  /* Shows the ranks. `boxes` is a list of {name, used (0..1 or null), ranks: [{id, color, mark,
   * seat, load}]}. */
  show(boxes) {
    this.boxes = boxes;
    drawSoon(this.draw);
  }

  #layout(w) {
    const n = this.boxes.reduce((sum, b) => sum + b.ranks.length, 0);
    const side = n <= 16 ? 46 : n <= 64 ? 28 : 15, pad = 5, label = 15;
    let x = 0, y = 0, high = 0;
    this.spots = [];
    const places = this.boxes.map(b => {
      const perRow = Math.min(b.ranks.length || 1, 8), rows = Math.ceil((b.ranks.length || 1) / perRow);
      const bw = Math.max(perRow * side + 2 * pad, 52), bh = rows * side + label + 2 * pad + 5;
      if (x + bw > w && x > 0) {
        x = 0;
        y += high + 6;
        high = 0;
      }
      const place = { b, x, y, w: bw, h: bh };
      b.ranks.forEach((r, i) => this.spots.push({ r, x: x + pad + i % perRow * side, y: y + label + pad + Math.floor(i / perRow) * side, side: side - 2 }));
      x += bw + 6;
      high = Math.max(high, bh);
      return place;
    });
    return { places, height: y + high + 2 };
  }

  draw = () => {
    if (this.canvas.size.width < 1) return;
    const { places, height } = this.#layout(this.canvas.size.width), px = Math.max(40, height) + "px";
    if (this.canvas.style.height === px) paint(this.canvas, c => this.#boxes(c, places));
    else this.canvas.style.height = px; // the size observer then draws at the new height
  };

  #boxes(c, places) {
    c.font = "10.5px system-ui, sans-serif";
    for (const p of places) {
      c.fillStyle = color("track");
      c.beginPath();
      c.roundRect(p.x, p.y, p.w, p.h, 4);
      c.fill();
      c.fillStyle = color("dim");
      c.textAlign = "left";
      c.textBaseline = "top";
      c.fillText(p.b.name, p.x + 5, p.y + 4, p.w - 10);
      if (p.b.used === null) continue;
      c.fillStyle = color("line");
      c.fillRect(p.x + 5, p.y + p.h - 7, p.w - 10, 4);
      c.fillStyle = color(p.b.used > .9 ? "bad" : "accent");
      c.fillRect(p.x + 5, p.y + p.h - 7, (p.w - 10) * p.b.used, 4);
    }
    c.textAlign = "center";
    c.textBaseline = "middle";
    for (const s of this.spots) this.#rank(c, s);
  }

  #rank(c, { r, x, y, side }) {
    c.fillStyle = color(r.color);
    c.fillRect(x, y, side, side);
    if (r.load !== null) { // the part of the weights that is not loaded yet is covered
      c.fillStyle = color("track");
      c.fillRect(x + 1, y + 1, side - 2, (side - 2) * (1 - r.load));
    }
    const text = r.mark || (side > 20 ? r.seat : "");
    if (text) {
      c.fillStyle = color("card");
      c.font = `bold ${side > 30 ? 13 : 10}px system-ui, sans-serif`;
      c.fillText(text, x + side / 2, y + side / 2 + .5);
    }
    if (r.id === this.picked) {
      c.strokeStyle = color("ink");
      c.lineWidth = 2;
      c.strokeRect(x - 1, y - 1, side + 2, side + 2);
    }
  }

  #pick(id) {
    if (id === this.picked) return;
    this.picked = id;
    this.onPick(id);
    requestAnimationFrame(this.draw);
  }

  #point(e) {
    const hit = this.spots.find(s => e.offsetX >= s.x && e.offsetX < s.x + s.side + 2 && e.offsetY >= s.y && e.offsetY < s.y + s.side + 2);
    this.#pick(hit?.r.id ?? null);
  }

  #key(e) {
    const by = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -8, ArrowDown: 8, Home: -1e9, End: 1e9 }[e.key];
    if (!by || !this.spots.length) return;
    e.preventDefault();
    const was = this.spots.findIndex(s => s.r.id === this.picked);
    const spot = this.spots[was < 0 ? 0 : Math.max(0, Math.min(this.spots.length - 1, was + by))];
    this.#pick(spot.r.id);
    const box = this.canvas.parentElement; // only this box scrolls, not the page
    if (spot.y < box.scrollTop) box.scrollTop = spot.y - 20;
    else if (spot.y + 20 > box.scrollTop + box.clientHeight) box.scrollTop = spot.y + 30 - box.clientHeight;
  }
}
