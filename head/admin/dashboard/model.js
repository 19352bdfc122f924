// Names the columns of the rows in /api/stream (docs/reference/admin-api.md) and formats numbers.

export const WORKER = columns("instance node state group stage rank ordinal device step seen_ms own_us straggler draining loaded gpu host memory");
export const GROUP = columns("id state role epoch tp whole_tp pp running waiting kv_used kv_total steps recoveries draining");
export const REQUEST = columns("id state group arrival_ms queue_us prefill_us decode_us prompt cached generated max priority finish");
export const SAMPLE = columns("t running waiting prompt_tps generation_tps kv hits ttft50 ttft95 itl50 itl95 e2e50 e2e95 finished failed cancelled preempted");
export const EVENT = columns("seq t level name fields");

function columns(names) {
  return Object.fromEntries(names.split(" ").map((name, i) => [name, i]));
}

const integers = new Intl.NumberFormat("en");
const tenths = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const compacts = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clocks = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

export const integer = v => integers.format(v);
export const compact = v => compacts.format(v);
export const rate = v => v >= 1000 ? integers.format(Math.round(v)) : tenths.format(v);
export const percent = v => tenths.format(100 * v) + " %";
export const clock = ms => clocks.format(ms);

/* Formats a time in seconds with about three digits and a suitable unit. */
export function seconds(s) {
  if (s === null || s === undefined) return "–";
  if (s < 0.001) return Math.round(s * 1e6) + " µs";
  if (s < 1) return (s * 1000).toPrecision(s < 0.1 ? 2 : 3) + " ms";
  if (s < 10) return s.toFixed(2) + " s";
  if (s < 100) return s.toFixed(1) + " s";
  return uptime(s);
}
export const micros = us => us === null ? "–" : seconds(us / 1e6);

export function uptime(s) {
  const d = Math.floor(s / 86400), h = Math.floor(s / 3600) % 24, m = Math.floor(s / 60) % 60;
  if (d) return `${d} d ${h} h`;
  if (h) return `${h} h ${m} min`;
  return m ? `${m} min ${Math.floor(s) % 60} s` : `${Math.floor(s)} s`;
}

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (n >= 100 || i === 0 ? n.toFixed(0) : n.toFixed(1)) + " " + units[i];
}

/* Compares names with numbers by value: "worker-2" comes before "worker-10". */
export const natural = new Intl.Collator("en", { numeric: true }).compare;

/* Returns the CSS class of a state of a worker, group or request. */
export function mood(state) {
  switch (state) {
  case "ready": case "running": case "finished": return "ok";
  case "suspect": case "lost": case "aborting": case "failed": return "bad";
  case "free": case "cancelled": return "dim";
  default: return "warn";
  }
}
export const levelMood = level => level >= 3 ? "bad" : level === 2 ? "warn" : "dim";

export const $ = id => document.getElementById(id);
/* Writes a text only when it is new. A screen reader then reads a live region once, and the
 * browser does no unnecessary layout. */
export function put(id, text) {
  const e = $(id);
  if (e.textContent !== text) e.textContent = text;
}
export function make(tag, properties = {}, ...children) {
  const e = Object.assign(document.createElement(tag), properties);
  e.append(...children);
  return e;
}
