// Tables of any length in few rows of DOM: what is in view and a little more. Rows have one height, so
// scrolling is arithmetic; cells are written only when their text changes.
import { $, REQUEST as R, clock, integer, make, micros, mood, put } from "./model.js";

const HEAD = 26, ROW = 24, SPARE = 8; // as style.css has it

export class VirtualTable {
  #first = -1;
  #due = false;
  #rows = [];

  /**
   * columns: [{title, width, class?, sort?, fill(cell, row)}]; fill gets an element that keeps what it was given.
   * rows: how many are in view at most; none: said in place of no rows.
   * source: {length, at(i)}; at() gives null for what is not here yet.
   */
  constructor(host, { label, columns, source, rows, none, sort, onView = () => {} }) {
    Object.assign(this, { columns, source, rows, onView, sort });
    this.box = make("div", { className: "scroll", tabIndex: 0 });
    this.box.setAttribute("role", "region");
    this.box.setAttribute("aria-label", label + ", scrolls");
    this.table = make("table");
    this.table.setAttribute("aria-label", label);
    const cols = make("colgroup");
    let least = 0; // in em; narrower ones scroll sideways
    for (const c of columns) {
      const col = make("col");
      if (c.width) col.style.width = c.width;
      least += parseFloat(c.width ?? "9");
      cols.append(col);
    }
    this.table.style.minWidth = least + "em";
    const head = make("tr");
    head.setAttribute("aria-rowindex", "1");
    this.heads = columns.map(c => this.#head(c));
    head.append(...this.heads);
    this.above = make("tr", { className: "pad" }, make("td", { colSpan: columns.length }));
    this.below = make("tr", { className: "pad" }, make("td", { colSpan: columns.length }));
    for (const pad of [this.above, this.below]) pad.setAttribute("aria-hidden", "true");
    this.body = make("tbody", {}, this.above, this.below);
    this.table.append(cols, make("thead", {}, head), this.body);
    this.box.append(this.table);
    this.none = none && make("p", { className: "dim", textContent: none, hidden: true });
    host.append(this.box, ...none ? [this.none] : []);
    this.#fit();
    this.box.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.box);
  }

  #head(c) {
    const th = make("th", { scope: "col", className: c.class ?? "" });
    if (!c.sort) {
      th.textContent = c.title;
      return th;
    }
    const button = make("button", { type: "button", textContent: c.title });
    button.addEventListener("click", () => this.sort(c.sort));
    th.append(button);
    return th;
  }

  /** As high as `rows` rows at most; what may be empty (`none`) takes no more than it needs. */
  #fit() {
    const rows = this.none ? Math.min(this.rows, this.source.length) : this.rows, height = HEAD + ROW * rows + "px";
    if (this.box.style.height !== height) this.box.style.height = height;
    if (this.none) this.none.hidden = !(this.box.hidden = rows === 0);
  }

  showSort(key, descending) {
    this.columns.forEach((c, i) => {
      if (c.sort) this.heads[i].setAttribute("aria-sort", c.sort !== key ? "none" : descending ? "descending" : "ascending");
    });
  }

  /** What is in view, in rows: [first, count]. */
  view() {
    const n = Math.ceil(this.box.clientHeight / ROW) + 2 * SPARE;
    const first = Math.max(0, Math.min(Math.floor(this.box.scrollTop / ROW) - SPARE, this.source.length - n));
    return [first, Math.min(n, this.source.length - first)];
  }

  draw() {
    if (this.#due) return;
    this.#due = true;
    requestAnimationFrame(() => {
      this.#due = false;
      this.#draw();
    });
  }

  #draw() {
    this.#fit();
    const [first, n] = this.view(), total = this.source.length;
    while (this.#rows.length < n) this.#rows.push(this.#row());
    while (this.#rows.length > n) this.#rows.pop().remove();
    this.#turn(first - this.#first, n);
    this.#first = first;
    for (let i = 0; i < n; i++) this.#fill(this.#rows[i], first + i);
    this.#pad(this.above, first * ROW);
    this.#pad(this.below, (total - first - n) * ROW);
    this.table.setAttribute("aria-rowcount", total + 1);
    this.onView(first, n);
  }

  /** Rows that stay in view keep their elements; those that left it become the ones that come. */
  #turn(by, n) {
    if (by === 0 || Math.abs(by) >= n) return;
    const moved = by > 0 ? this.#rows.splice(0, by) : this.#rows.splice(n + by);
    const before = by > 0 ? this.below : this.#rows[0];
    for (const tr of moved) this.body.insertBefore(tr, before);
    this.#rows = by > 0 ? this.#rows.concat(moved) : moved.concat(this.#rows);
  }

  #pad(row, height) {
    if (row.height === height) return;
    row.height = height;
    row.firstChild.style.height = height + "px";
    row.hidden = height === 0;
  }

  #row() {
    const tr = make("tr"), cells = this.columns.map(c => make("td", { className: c.class ?? "" }));
    tr.append(...cells);
    this.body.insertBefore(tr, this.below);
    return Object.assign(tr, { boxes: cells, index: -1 });
  }

  #fill(tr, i) {
    const row = this.source.at(i);
    if (tr.index !== i) {
      tr.index = i;
      tr.setAttribute("aria-rowindex", i + 2);
    }
    this.columns.forEach((c, k) => {
      if (row) c.fill(tr.boxes[k], row);
      else writeNothing(tr.boxes[k]);
    });
  }
}

/** Text into a cell, once; a class for what it means. */
export function write(cell, text, className = "") {
  if (cell.was !== text) {
    cell.was = text;
    cell.textContent = text;
  }
  if ((cell.means ?? "") !== className) {
    if (cell.means) cell.classList.remove(cell.means);
    if (className) cell.classList.add(className);
    cell.means = className;
  }
}

function writeNothing(cell) {
  if (cell.bar) cell.bar = cell.replaceChildren();
  write(cell, "…", "none");
}

/** A bar of parts, each [variable of the page, where it ends in 0..1]; one element, since hundreds would be drawn. */
export function writeBar(cell, parts, label) {
  if (!cell.bar) {
    cell.was = undefined;
    cell.replaceChildren(cell.bar = make("div", { className: "bar" }));
    cell.bar.setAttribute("role", "img");
  }
  const bar = cell.bar;
  let from = 0;
  const stops = parts.map(([name, to]) => {
    const stop = `var(--${name}) ${(100 * from).toFixed(2)}% ${(100 * to).toFixed(2)}%`;
    from = to;
    return stop;
  });
  const drawn = `linear-gradient(to right, ${stops.join(", ")}, transparent ${(100 * from).toFixed(2)}%)`;
  if (bar.drawn !== drawn) bar.style.backgroundImage = bar.drawn = drawn;
  if (bar.said !== label) bar.setAttribute("aria-label", bar.said = label);
}

/** The requests: the head has them; here is a page of at most 200, and the wish for another. */
export class Requests {
  #page = { offset: 0, rows: [], matching: 0, here: 0, looked_at: 0 };
  #wish = { show: "live", sort: "arrival", desc: 0, offset: 0, limit: 100 };

  constructor(feed) {
    this.feed = feed;
    this.source = { length: 0, at: i => this.#page.rows[i - this.#page.offset] ?? null };
    const number = (title, key, i) => ({ title, width: "5.6em", class: "n", sort: key, fill: (c, r) => write(c, integer(r[i])) });
    const time = (title, key, i) => ({ title, width: "5.4em", class: "n", sort: key, fill: (c, r) => write(c, micros(r[i])) });
    this.table = new VirtualTable($("requests-table"), {
      label: "Requests", rows: 15, source: this.source,
      sort: key => this.#sort(key), onView: (first, n) => this.#view(first, n),
      columns: [
        { title: "request", width: "9em", class: "mono", fill: (c, r) => { write(c, shorten(r[R.id])); c.title = r[R.id]; } },
        { title: "state", width: "9em", fill: (c, r) => write(c, r[R.state] === "finished" ? `finished, ${r[R.finish]}` : r[R.state], mood(r[R.state])) },
        { title: "group", width: "5em", class: "n", sort: "group", fill: (c, r) => write(c, r[R.group] === null ? "–" : String(r[R.group])) },
        { title: "came", width: "6em", class: "n", sort: "arrival", fill: (c, r) => write(c, clock(r[R.arrival_ms])) },
        { title: "timeline", fill: (c, r) => this.#timeline(c, r) },
        time("queue", "queue", R.queue_us), time("prefill", "prefill", R.prefill_us), time("decode", "decode", R.decode_us),
        number("prompt", "prompt", R.prompt),
        { title: "cached", width: "5.6em", class: "n", fill: (c, r) => write(c, integer(r[R.cached])) },
        { ...number("made", "generated", R.generated), width: "9.5em",
          fill: (c, r) => write(c, `${integer(r[R.generated])} of ${integer(r[R.max])}`) },
      ],
    });
    this.table.showSort("arrival", false);
    $("requests-show").addEventListener("change", e => this.#ask({ show: e.target.value, offset: 0,
      sort: "arrival", desc: e.target.value === "ended" ? 1 : 0 }, true));
  }

  query() {
    return this.#wish;
  }

  update(page) {
    this.#page = page;
    this.source.length = page.matching;
    this.scale = Math.max(1, ...page.rows.map(total));
    this.#wish.offset = page.offset;
    const more = page.here > page.looked_at ? `, of the first ${integer(page.looked_at)} of ${integer(page.here)}` : "";
    put("requests-count", integer(page.matching) + more);
    put("requests-scale", "full width: " + micros(this.scale));
    this.table.draw();
  }

  #ask(wish, toTop = false) {
    Object.assign(this.#wish, wish);
    this.table.showSort(this.#wish.sort, this.#wish.desc === 1);
    if (toTop) this.table.box.scrollTop = 0;
    this.feed().open();
  }

  #sort(key) {
    const again = this.#wish.sort === key;
    this.#ask({ sort: key, desc: again ? 1 - this.#wish.desc : key === "arrival" || key === "group" ? 0 : 1, offset: 0 }, true);
  }

  /** Rows in view that the page lacks: another page, around them. */
  #view(first, n) {
    const page = this.#page, end = page.offset + page.rows.length;
    if (first >= page.offset && first + n <= end) return;
    const limit = Math.min(200, n + 120), offset = Math.max(0, first - ((limit - n) >> 1));
    if (offset !== this.#wish.offset || limit !== this.#wish.limit) this.#ask({ offset, limit });
  }

  #timeline(cell, r) {
    const parts = [];
    let at = 0;
    for (const [name, i] of [["queue", R.queue_us], ["prefill", R.prefill_us], ["decode", R.decode_us]]) {
      at += (r[i] ?? 0) / this.scale;
      parts.push([name, at]);
    }
    writeBar(cell, parts, `queue ${micros(r[R.queue_us])}, prefill ${micros(r[R.prefill_us])}, decode ${micros(r[R.decode_us])}`);
  }
}

const total = r => r[R.queue_us] + (r[R.prefill_us] ?? 0) + (r[R.decode_us] ?? 0);
const shorten = id => id.slice(0, 8) + "…" + (id.includes("-") ? id.slice(id.indexOf("-")) : "");
