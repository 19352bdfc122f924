// Shows the topology, the KV map, and the tables of groups, workers, events and failures. Every
// update contains all of their data.
import { $, EVENT as E, GROUP as G, WORKER as W, bytes, clock, integer, levelMood, make, micros, mood, natural, put } from "./model.js";
import { RankMap, drawKv, keepSize } from "./draw.js";
import { drawSoon } from "./frames.js";
import { VirtualTable, write, writeBar } from "./requests.js";

const list = (rows = []) => ({ rows, get length() { return this.rows.length; }, at(i) { return this.rows[i] ?? null; } });
const text = (title, width, of, options = {}) => ({ title, width, ...options, fill: (c, r) => write(c, of(r)) });
const number = (title, width, of) => text(title, width, r => integer(of(r)), { class: "n" });

// RANKS gives the colour and the letter of a rank's state. "ready" has no letter, so that states
// that need attention stand out.
const RANKS = { ready: ["ok", ""], free: ["dim", "·"], loading: ["warn", ""], forming: ["warn", "F"], draining: ["info", "D"],
  suspect: ["bad", "S"], aborting: ["bad", "A"] };

/* Returns a name such as "node-3 #1". When the name of a pod already ends with the ordinal, it
 * returns the name alone. */
export const nameOf = w => w[W.ordinal] === null || w[W.node].endsWith("-" + w[W.ordinal]) ? w[W.node] : `${w[W.node]} #${w[W.ordinal]}`;
const cpu = w => w[W.host] ? `${(w[W.host][1] / 1000).toFixed(1)} / ${w[W.host][0]}` : "–";
const share = (used, total) => total ? `${bytes(used)} / ${bytes(total)}` : bytes(used);

const POINT = "Point at a rank, or go through them with the arrow keys.";
const count = (n, what) => `${integer(n)} ${what}${n === 1 ? "" : "s"}`;

export class Topology {
  #workers = [];
  #groups = [];

  constructor() {
    this.map = new RankMap($("topology"), id => this.#tell(id));
    $("topology-by").addEventListener("change", () => this.#show());
  }

  update(workers, groups) {
    this.#workers = workers;
    this.#groups = groups;
    this.#show();
    this.#tell(this.map.picked);
  }

  #show() {
    const byNode = $("topology-by").value === "node", boxes = new Map(), counts = new Map();
    if (!byNode)
      for (const g of this.#groups)
        boxes.set(g[G.id], { name: "replica " + g[G.id], used: g[G.kv_total] ? g[G.kv_used] / g[G.kv_total] : 0, ranks: [] });
    for (const w of this.#workers) {
      const at = byNode ? w[W.node] : w[W.group] ?? "free";
      if (!boxes.has(at)) boxes.set(at, { name: byNode ? at : at === "free" ? "in no replica" : "replica " + at, used: null, ranks: [] });
      const [color, mark] = RANKS[w[W.state]] ?? ["warn", "?"];
      boxes.get(at).ranks.push({ id: w[W.instance], color, mark: w[W.straggler] ? "!" : mark, seat: w[W.stage] === null ? "" : `${w[W.stage]}.${w[W.rank]}`,
        load: w[W.loaded] === null ? null : w[W.loaded] / 1000, order: w[W.stage] === null ? 0 : w[W.stage] * 4096 + w[W.rank] });
      counts.set(w[W.state], (counts.get(w[W.state]) ?? 0) + 1);
    }
    for (const b of boxes.values()) b.ranks.sort((x, y) => x.order - y.order);
    this.map.show([...boxes.values()]);
    legend("topology-legend", [...counts].map(([state, n]) => [RANKS[state]?.[0] ?? "warn", `${state} ${integer(n)}`]));
    this.map.canvas.setAttribute("aria-label", `${count(this.#workers.length, "worker")} in ${count(boxes.size, byNode ? "node" : "replica")}: ` +
      [...counts].map(([state, n]) => `${n} ${state}`).join(", ") + ". Arrow keys go through them.");
  }

  #tell(id) {
    const w = this.#workers.find(x => x[W.instance] === id);
    if (!w) return put("topology-detail", this.#workers.length ? POINT : "No worker is connected yet. Each worker is a square here.");
    const gpu = w[W.gpu], where = w[W.group] === null ? "in no replica" : `replica ${w[W.group]}, stage ${w[W.stage]}, rank ${w[W.rank]}`;
    put("topology-detail", `${nameOf(w)} · ${w[W.instance]} · ${w[W.state]} · ${where} · ${w[W.device]}` +
      (w[W.host] ? ` · CPU ${cpu(w)} cores, ${bytes(w[W.host][2])} of memory` : "") + (gpu ? ` · GPU ${gpu[0]} % busy, ${bytes(gpu[1])} of ${bytes(gpu[2])}, ${gpu[3]} °C, ${gpu[4]} W` : "") +
      (w[W.own_us] === null ? "" : ` · own step ${micros(w[W.own_us])}`) + ` · last seen ${integer(w[W.seen_ms])} ms ago`);
  }
}

/* Fills a list from `items` ([variable of the page, text]) when they have changed. */
function legend(id, items) {
  const ul = $(id), said = JSON.stringify(items);
  if (ul.said === said) return;
  ul.said = said;
  ul.replaceChildren(...items.map(([color, label]) => {
    const swatch = make("i", { className: "swatch" });
    swatch.style.background = `var(--${color})`;
    return make("li", {}, swatch, label);
  }));
}

export class KvMap {
  #map = null;
  #wish = { group: 0, kv: 0 };

  constructor(feed) {
    $("kv-group").addEventListener("change", e => { this.#wish.group = e.target.value; feed().open(); });
    $("kv-kind").addEventListener("change", e => { this.#wish.kv = e.target.value; feed().open(); });
    keepSize($("kv"), this.draw);
  }

  query() {
    return this.#wish;
  }

  draw = () => drawKv(this.#map);

  update(map, groups, isNewWalk) {
    const was = this.#map;
    if (!isNewWalk && map && was && map.group === was.group && map.kv === was.kv) return; // this update only contains another page
                                                                                          // of requests
    this.#map = map;
    options("kv-group", groups.filter(g => g[G.state] === "ready").map(g => g[G.id]), map?.group);
    options("kv-kind", Array.from({ length: map?.n_kv ?? 1 }, (_, i) => i), map?.kv);
    $("kv-group").parentElement.hidden = !map;
    $("kv-kind-label").hidden = !map || map.n_kv < 2;
    drawSoon(this.draw);
    if (!map) {
      legend("kv-legend", []);
      return put("kv-detail", "No replica serves yet, so there are no KV blocks. They are shown here once a replica is ready.");
    }
    const about = map.stride > 1 ? "about " : "";
    legend("kv-legend", [["shared", "shared"], ["accent", "owned"], ["cached", "cached"], ["track", "empty"]]
      .map(([color, name]) => [color, `${name} ${about}${integer(map[name])}`]));
    put("kv-detail", `${integer(map.blocks)} blocks of ${map.block_tokens} tokens, a square is ${map.per_cell === 1 ? "one" : integer(map.per_cell)}` +
      (map.stride > 1 ? `, judged by every ${map.stride}th.` : ".") + " Cached ones hold what a later prompt may begin with.");
    $("kv").setAttribute("aria-label", `KV blocks of replica ${map.group}: ${map.shared} shared, ${map.owned} owned, ${map.cached} cached, ${map.empty} empty`);
  }
}

function options(id, values, chosen) {
  const select = $(id), said = values.join();
  if (select.said !== said) {
    select.said = said;
    select.replaceChildren(...values.map(v => make("option", { value: v, textContent: v })));
  }
  if (chosen !== undefined && document.activeElement !== select) select.value = chosen;
}

const longest = texts => texts.reduce((most, t) => Math.max(most, t.length), 0);
const NO_EVENT = "No event yet. Workers that join or leave, replicas that form and changes by an operator are listed here.";
// ORDERS gives the sort keys of the workers' table.
const ORDERS = { state: w => w[W.state], group: w => w[W.group], cpu: w => w[W.host]?.[1] ?? null, memory: w => w[W.host]?.[2] ?? null,
  gpu: w => w[W.gpu]?.[0] ?? null, gpu_memory: w => w[W.gpu]?.[1] ?? null };

export class Tables {
  constructor() {
    this.groups = list();
    this.workers = list();
    this.events = list();
    this.failures = list();
    this.all = []; // all workers, sorted by name
    this.order = { key: "name", descending: false };
    const table = (id, label, none, source, columns, sort) => new VirtualTable($(id), { label, none, source, columns, rows: 10, sort });
    this.groupTable = table("groups-table", "Replicas", "No replica yet. A replica forms as soon as enough workers are connected.", this.groups, [
      text("replica", "6em", r => String(r[G.id]), { class: "n" }),
      { title: "state", width: "6.5em", fill: (c, r) => write(c, r[G.draining] ? "draining" : r[G.state], r[G.draining] ? "warn" : mood(r[G.state])) },
      text("epoch", "6em", r => r[G.epoch]), text("TP × PP", "7em", r => `${r[G.tp]}${r[G.tp] < r[G.whole_tp] ? " of " + r[G.whole_tp] : ""} × ${r[G.pp]}`),
      text("role", "5.5em", r => r[G.role]),
      number("running", "6em", r => r[G.running]), number("waiting", "6em", r => r[G.waiting]),
      { title: "KV", fill: (c, r) => { const u = r[G.kv_total] ? r[G.kv_used] / r[G.kv_total] : 0;
        writeBar(c, [[u > .9 ? "bad" : "accent", u]], `${r[G.kv_used]} of ${r[G.kv_total]} blocks`); } },
      text("blocks", "10em", r => `${integer(r[G.kv_used])} / ${integer(r[G.kv_total])}`, { class: "n" }),
      number("steps", "7em", r => r[G.steps]), number("recoveries", "7em", r => r[G.recoveries]),
    ]);
    this.workerTable = table("workers-table", "Workers", "No worker is connected. Start one with: cox worker MODEL --head HOST:7000. " +
      "On another machine, `cox join-token` on this one prints the whole command.", this.workers, [
      { ...text("worker", "13em", nameOf, { sort: "name" }), fill: (c, r) => { write(c, nameOf(r)); c.title = nameOf(r); } },
      { title: "state", width: "8em", sort: "state",
        fill: (c, r) => write(c, r[W.loaded] === null ? r[W.state] : `${r[W.state]} ${Math.round(r[W.loaded] / 10)} %`, mood(r[W.state])) },
      text("replica", "6em", r => r[W.group] === null ? "–" : String(r[W.group]), { class: "n", sort: "group" }),
      text("rank", "4.5em", r => r[W.group] === null ? "–" : `${r[W.stage]}.${r[W.rank]}`, { class: "n" }),
      text("CPU cores", "7.5em", cpu, { class: "n", sort: "cpu" }),
      text("memory", "12em", r => r[W.host] ? share(r[W.host][2], r[W.memory]) : "–", { class: "n", sort: "memory" }),
      text("GPU", "5em", r => r[W.gpu] ? r[W.gpu][0] + " %" : "–", { class: "n", sort: "gpu" }),
      text("GPU memory", "12em", r => r[W.gpu] ? share(r[W.gpu][1], r[W.gpu][2]) : "–", { class: "n", sort: "gpu_memory" }),
      text("temp.", "4.5em", r => r[W.gpu] ? r[W.gpu][3] + " °C" : "–", { class: "n" }),
      { title: "own step", width: "6.5em", class: "n", fill: (c, r) => write(c, micros(r[W.own_us]), r[W.straggler] ? "bad" : "") },
      number("steps", "6.5em", r => r[W.step]),
      { title: "last seen", width: "6.5em", class: "n", fill: (c, r) => write(c, integer(r[W.seen_ms]) + " ms", r[W.seen_ms] > 1000 ? "bad" : "") },
      text("device", undefined, r => r[W.device]),
    ], key => this.#sortWorkers(key));
    this.workerTable.showSort("name", false);
    this.eventTable = table("events-table", "Events, newest first", NO_EVENT, this.events, [
      text("time", "6em", r => clock(r[E.t])),
      { title: "event", width: "13em", fill: (c, r) => write(c, r[E.name], levelMood(r[E.level])) },
      { title: "fields", class: "mono", fill: (c, r) => { write(c, r.said); c.title = r.said; } },
    ]);
    this.failureTable = table("failures-table", "Recent failures, newest first", "No failure: no worker and no gateway was lost recently. There is nothing to do.", this.failures, [
      text("time", "6em", r => clock(r.time * 1000)), text("node", "9em", r => r.node), text("event", "8em", r => r.what),
      { title: "reason", fill: (c, r) => { write(c, r.reason); c.title = r.reason; } },
    ]);
    this.held = [];
    $("events-filter").addEventListener("input", () => this.#showEvents());
  }

  forget() {
    this.held = [];
  }

  #sortWorkers(key) {
    this.order = { key, descending: this.order.key === key ? !this.order.descending : !["name", "state", "group"].includes(key) };
    this.workerTable.showSort(key, this.order.descending);
    this.workers.rows = this.#ordered(this.all);
    this.workerTable.draw();
  }

  /* Sorts rows, which arrive sorted by name. Rows with equal or missing values keep that order. */
  #ordered(rows) {
    const { key, descending } = this.order, value = ORDERS[key];
    if (key === "name") return descending ? rows.toReversed() : rows;
    const by = (a, b) => value(a) === null || value(b) === null ? (value(a) === null) - (value(b) === null)
      : (descending ? -1 : 1) * (typeof value(a) === "string" ? natural(value(a), value(b)) : value(a) - value(b));
    return rows.toSorted(by);
  }

  update({ groups, workers, events, summary }) {
    if (summary) {
      const n = summary.tp * summary.pp, here = this.all.length;
      this.groupTable.say(`No replica yet. A replica needs ${n} worker${n === 1 ? "" : "s"}; ${here === 0 ? "none is" : here === 1 ? "1 is" : here + " are"} connected.` +
        (here < n ? " Start more with: cox worker MODEL --head HOST:7000." : " One forms when they have loaded the model."));
    }
    if (groups) this.#set("groups", this.groups, this.groupTable, groups.rows, groups.total);
    if (workers) {
      this.all = workers.rows;
      this.#set("workers", this.workers, this.workerTable, this.#ordered(this.all), workers.total);
    }
    if (summary) this.failureTable.widen(longest(summary.recent_failures.map(f => f.reason)));
    if (summary) this.#set("failures", this.failures, this.failureTable, summary.recent_failures, summary.recent_failures.length);
    if (events.rows.length) {
      for (const e of events.rows) e.said = Object.entries(e[E.fields]).map(([k, v]) => `${k}=${v}`).join("  ");
      this.held = events.rows.reverse().concat(this.held).slice(0, 512);
      this.eventTable.widen(longest(this.held.map(e => e.said)));
      this.#showEvents();
    }
  }

  #set(name, source, table, rows, total) {
    source.rows = rows;
    put(name + "-count", rows.length < total ? `${integer(rows.length)} of ${integer(total)}` : integer(total));
    table.draw();
  }

  #showEvents() {
    const want = $("events-filter").value.toLowerCase();
    this.eventTable.say(want && this.held.length ? "No event has this text. Change the filter, or clear it to see all events." : NO_EVENT);
    this.#set("events", this.events, this.eventTable, this.held.filter(e => (e[E.name] + " " + e.said).toLowerCase().includes(want)), this.held.length);
  }
}

