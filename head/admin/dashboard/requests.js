// Shows tables of any length with few DOM rows: the visible rows and a few more. All rows have one
// height and each column has one width, so the row at a scroll position can be computed. Each row
// is placed by `top` and has a layout of its own. A cell is written only when its text changes.
import { $, REQUEST as R, clock, integer, make, micros, mood, put } from "./model.js";
import { drawSoon, isScrolling } from "./frames.js";

const HEAD = 26, ROW = 24, EM = 13, SPARE = 8; // heights of the head and of a row, and the letter
                                               // size, in pixels as in style.css; SPARE is a
                                               // number of rows
const STALE = 8; // rows already in view that one frame of scrolling may rewrite
const REST_MS = 150;
const LETTERS_MAX = 500; // longest text for which a column is widened, in letters

export class VirtualTable {
  #due = false;
  #isNew = false;
  #rows = []; // rows in the order of the screen; the DOM rows get the same order after scrolling
              // stops
  #first = 0;
  #data = 0; // version of the source's data
  #rest = 0;
  #top = 0; // scroll position, taken from the box's events; reading the position from the box
            // would force a layout
  #height = 0;

  /* `columns` is a list of {title, width, class?, sort?, fill(cell, row)}; fill gets an element
   * that keeps its former content.
   * `rows` is the largest number of rows in view. `none` is the text of an empty table. `keeps`
   * means that an empty table keeps its full height.
   * `source` is {length, at(i)}; at() returns null for a row that has not arrived yet. */
  constructor(host, { label, columns, source, rows, none, keeps = false, sort, onView = () => {} }) {
    Object.assign(this, { columns, source, rows, keeps, onView, sort });
    this.box = make("div", { className: "scroll", tabIndex: 0 });
    this.box.setAttribute("role", "region");
    this.box.setAttribute("aria-label", label + ", scrolls");
    // Roles are set explicitly: some browsers drop the table role of an element that is not laid
    // out as a table (Chromium keeps it).
    this.table = inRole("table", make("table"));
    this.table.setAttribute("aria-label", label);
    this.widen(0);
    const head = inRole("row", make("tr"));
    head.setAttribute("aria-rowindex", "1");
    this.heads = columns.map(c => this.#head(c));
    head.append(...this.heads);
    this.body = inRole("rowgroup", make("tbody"));
    this.table.append(inRole("rowgroup", make("thead", {}, head)), this.body);
    this.box.append(this.table);
    this.none = make("p", { className: "empty", textContent: none, hidden: true });
    host.append(this.box);
    (keeps ? this.box : host).append(this.none);
    this.#fit();
    this.box.addEventListener("scroll", () => {
      this.#top = this.box.scrollTop;
      this.#draw();
    }, { passive: true });
    new ResizeObserver(([box]) => {
      this.#height = box.contentRect.height;
      this.#draw();
    }).observe(this.box);
  }

  #head(c) {
    const th = wide(inRole("columnheader", make("th", { scope: "col", className: c.class ?? "" })), c);
    if (!c.sort) {
      th.textContent = c.title;
      return th;
    }
    const button = make("button", { type: "button", textContent: c.title });
    button.addEventListener("click", () => this.sort(c.sort));
    th.append(button);
    return th;
  }

  /* Sets the height to `rows` rows. A table without `keeps` is lower when it has fewer rows. */
  #fit() {
    const total = this.source.length;
    if (this.total === total) return;
    this.total = total;
    const rows = this.keeps ? this.rows : Math.min(this.rows, total);
    this.box.style.height = HEAD + ROW * rows + "px";
    this.body.style.height = ROW * total + "px";
    this.none.hidden = total > 0;
    this.box.hidden = rows === 0;
    this.table.setAttribute("aria-rowcount", total + 1);
  }

  /* Widens the column without a width to hold `letters` letters. A narrower box then scrolls
   * sideways. */
  widen(letters) {
    const rest = Math.max(9 * EM, 7.4 * Math.min(letters, LETTERS_MAX)), width = this.columns.reduce((sum, c) => sum + (c.width ? EM * parseFloat(c.width) : rest), 0) + "px";
    if (this.table.style.minWidth !== width) this.table.style.minWidth = width;
  }

  /* Sets the text that an empty table shows. */
  say(text) {
    if (this.none.textContent !== text) this.none.textContent = text;
  }

  showSort(key, descending) {
    this.columns.forEach((c, i) => {
      if (c.sort) this.heads[i].setAttribute("aria-sort", c.sort !== key ? "none" : descending ? "descending" : "ascending");
    });
  }

  /* Returns the rows to draw as [first, count]: the visible ones and SPARE on each side. */
  view() {
    const n = Math.ceil(this.#height / ROW) + 2 * SPARE;
    const first = Math.max(0, Math.min(Math.floor(this.#top / ROW) - SPARE, this.source.length - n));
    return [first, Math.min(n, this.source.length - first)];
  }

  /* Draws again after the source has changed. */
  draw() {
    this.#isNew = true;
    drawSoon(this.#show);
  }

  #draw() {
    if (this.#due) return;
    this.#due = true;
    requestAnimationFrame(() => {
      this.#due = false;
      this.#show();
    });
  }

  #show = () => {
    if (this.#isNew) this.#data++;
    this.#isNew = false;
    this.#fit();
    const [first, n] = this.view();
    while (this.#rows.length < n) this.#rows.push(this.#row());
    while (this.#rows.length > n) this.#rows.pop().remove();
    this.#turn(first - this.#first, n);
    this.#first = first;
    // Visible rows are filled first. The spare ones follow a few frames later, or never.
    let stale = isScrolling() ? STALE : n;
    for (const [from, to] of [[SPARE, n - SPARE], [0, SPARE], [Math.max(SPARE, n - SPARE), n]])
      for (let i = from; i < Math.min(to, n); i++) {
        const tr = this.#rows[i], moved = tr.index !== first + i;
        if (!moved && (tr.data === this.#data || stale-- <= 0)) continue;
        if (moved) this.#place(tr, first + i);
        this.#fill(tr, this.source.at(first + i));
      }
    if (stale < 0) this.#draw(); // the next frame fills the rest
    clearTimeout(this.#rest);
    if (isScrolling()) this.#rest = setTimeout(() => this.#order(), REST_MS);
    else this.#order();
    this.onView(first, n);
  };

  /* Reuses row elements. Rows that stay in view keep their elements. Elements of rows that left
   * the view are filled again at the other end. */
  #turn(by, n) {
    if (by === 0 || Math.abs(by) >= n) return;
    const moved = by > 0 ? this.#rows.splice(0, by) : this.#rows.splice(n + by);
    this.#rows = by > 0 ? this.#rows.concat(moved) : moved.concat(this.#rows);
  }

  /* Puts the DOM rows into the order of the screen, for screen readers. It waits until scrolling
   * stops, since the browser renders a moved row again. */
  #order() {
    let at = this.body.firstChild;
    for (const tr of this.#rows)
      if (tr === at) at = at.nextSibling;
      else this.body.insertBefore(tr, at);
  }

  #row() {
    const cells = this.columns.map(c => wide(inRole("cell", make("td", { className: c.class ?? "" }, "")), c));
    const tr = inRole("row", make("tr", {}, ...cells));
    this.body.append(tr);
    return Object.assign(tr, { boxes: cells, index: -1, data: -1, isHere: true });
  }

  #place(tr, i) {
    tr.index = i;
    tr.style.top = ROW * i + "px";
    tr.setAttribute("aria-rowindex", i + 2);
  }

  #fill(tr, row) {
    tr.data = this.#data;
    if (!row && !tr.isHere) return;
    tr.isHere = row !== null;
    for (let k = 0; k < this.columns.length; k++)
      if (row) this.columns[k].fill(tr.boxes[k], row);
      else writeNothing(tr.boxes[k]);
  }
}

function inRole(role, element) {
  element.setAttribute("role", role);
  return element;
}

/* Sets the width of a cell: the width of its column, or the remaining space. `fits` is an
 * estimate of how many letters fit. */
function wide(cell, { width }) {
  cell.style.flex = width ? `0 0 ${EM * parseFloat(width)}px` : `1 1 ${EM * 9}px`;
  cell.fits = width ? (parseFloat(width) - .7) / .65 : 0;
  return cell;
}

/* Writes a text and a class into a cell if they have changed. Only a text that may be too long
 * gets the class that clips it, since each clip costs a layer. */
export function write(cell, text, className = "") {
  if (cell.was !== text) {
    cell.was = text;
    cell.firstChild.data = text;
    const isLong = text.length > cell.fits;
    if (cell.isLong !== isLong) cell.classList.toggle("long", cell.isLong = isLong);
  }
  if ((cell.means ?? "") !== className) {
    if (cell.means) cell.classList.remove(cell.means);
    if (className) cell.classList.add(className);
    cell.means = className;
  }
}

function writeNothing(cell) {
  if (cell.bar) writeBar(cell, [], "…");
  else write(cell, "…", "none");
}

/* Draws a bar of parts, each [variable of the page, end in 0..1]. The bar is one element, since
 * a page shows hundreds of bars. */
export function writeBar(cell, parts, label) {
  if (!cell.bar) {
    write(cell, "");
    cell.append(cell.bar = inRole("img", make("div", { className: "bar" })));
  }
  const bar = cell.bar;
  let from = 0;
  const stops = parts.map(([name, to]) => {
    const stop = `var(--${name}) ${(100 * from).toFixed(2)}% ${(100 * to).toFixed(2)}%`;
    from = to;
    return stop;
  });
  const drawn = parts.length ? `linear-gradient(to right, ${stops.join(", ")}, transparent ${(100 * from).toFixed(2)}%)` : "none";
  if (bar.drawn !== drawn) bar.style.backgroundImage = bar.drawn = drawn;
  if (bar.said !== label) bar.setAttribute("aria-label", bar.said = label);
}

const SEND = " Send one with cox chat, or on the chat page of a gateway.";
const NO_REQUEST = { live: "No request is open." + SEND, waiting: "No request waits: each runs as soon as it arrives.", running: "No request runs." + SEND,
  ended: "No request has ended since this head started." + SEND };

/* Shows the table of requests. The head keeps all requests. The page holds at most 200 of them
 * and requests others from the head. */
export class Requests {
  #page = { offset: 0, rows: [], matching: 0, here: 0, looked_at: 0 };
  #wish = { show: "live", sort: "arrival", desc: 0, offset: 0, limit: 100 };

  constructor(feed) {
    this.feed = feed;
    this.source = { length: 0, at: i => this.#page.rows[i - this.#page.offset] ?? null };
    const number = (title, key, i) => ({ title, width: "5.6em", class: "n", sort: key, fill: (c, r) => write(c, integer(r[i])) });
    const time = (title, key, i) => ({ title, width: "5.4em", class: "n", sort: key, fill: (c, r) => write(c, micros(r[i])) });
    this.table = new VirtualTable($("requests-table"), {
      label: "Requests", rows: 15, keeps: true, none: NO_REQUEST.live, source: this.source,
      sort: key => this.#sort(key), onView: (first, n) => this.#view(first, n),
      columns: [
        { title: "request", width: "9em", class: "mono", fill: (c, r) => { write(c, shorten(r[R.id])); c.title = r[R.id]; } },
        { title: "state", width: "9em", fill: (c, r) => write(c, r[R.state] === "finished" ? `finished, ${r[R.finish]}` : r[R.state], mood(r[R.state])) },
        { title: "replica", width: "6em", class: "n", sort: "group", fill: (c, r) => write(c, r[R.group] === null ? "–" : String(r[R.group])) },
        { title: "arrived", width: "6em", class: "n", sort: "arrival", fill: (c, r) => write(c, clock(r[R.arrival_ms])) },
        { title: "timeline", fill: (c, r) => this.#timeline(c, r) },
        time("queue", "queue", R.queue_us), time("prefill", "prefill", R.prefill_us), time("decode", "decode", R.decode_us),
        number("prompt", "prompt", R.prompt),
        { title: "cached", width: "5.6em", class: "n", fill: (c, r) => write(c, integer(r[R.cached])) },
        { ...number("generated", "generated", R.generated), width: "9.5em",
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
    this.table.say(NO_REQUEST[this.#wish.show]);
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

  /* Requests another page around the visible rows when the current page lacks some of them. */
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
