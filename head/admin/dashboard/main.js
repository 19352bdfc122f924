// Runs the head's dashboard. It uses no framework, no other host and no inline script.
// docs/develop/pages.md describes the design.
import { $, GROUP as G, SAMPLE as S, WORKER as W, clock, integer, make, natural, percent, put, rate, seconds, uptime } from "./model.js";
import { Feed } from "./feed.js";
import { ofBrowser } from "./store.js";
import { Charts, forgetColors } from "./draw.js";
import { Requests } from "./requests.js";
import { KvMap, Tables, Topology } from "./panels.js";

let feed, up = 0, term = null, groups = [], workers = [];
let pillOf = null; // arguments of pill(): the cluster's health in the last summary
const charts = new Charts($("charts")), requests = new Requests(() => feed), kv = new KvMap(() => feed);
const topology = new Topology(), tables = new Tables();

/* ---- the strip of facts and the tiles ---- */

function health(s) {
  if (s.role === "standby") return ["standby", "warn"];
  if (s.draining) return ["draining", "warn"];
  if (s.resting) return ["resting", "warn"];
  return s.healthy ? ["serving", "ok"] : ["not serving", "bad"];
}

function pill(text, mood) {
  put("health", text);
  $("health").className = "pill " + mood;
}

function showSummary(s) {
  pill(...pillOf = health(s));
  document.title = `${health(s)[0]} · Coxswain`;
  $("runs-link").hidden = !s.runs;
  put("fact-model", s.model.name || "none");
  put("fact-context", integer(s.model.max_model_len));
  put("fact-gateways", integer(s.gateways.length));
  put("fact-term", String(s.term));
  put("fact-up", uptime(s.uptime_s));
  put("fact-version", s.version);
  const said = s.warnings.join("\n");
  if ($("warnings").said !== said) {
    $("warnings").said = said;
    $("warnings").replaceChildren(...s.warnings.map(w => make("li", { textContent: w })));
  }
  put("tile-running", integer(s.requests.running));
  put("tile-waiting", integer(s.requests.waiting));
  put("tile-waiting-sub", `${integer(s.requests.preemptions)} preempted so far`);
  put("tile-generation", rate(s.throughput.generation_tokens_per_s));
  put("tile-prompt", rate(s.throughput.prompt_tokens_per_s));
  put("tile-kv", percent(s.kv.usage));
  put("tile-kv-sub", `${integer(s.kv.blocks_used)} of ${integer(s.kv.blocks_total)} blocks`);
  put("tile-hits", percent(s.kv.prefix_hit_rate));
  put("tile-finished", integer(s.requests.finished));
  put("tile-finished-sub", `${integer(s.requests.failed)} failed, ${integer(s.requests.cancelled)} cancelled`);
}

function showGroups() {
  const ready = groups.filter(g => g[G.state] === "ready").length;
  put("fact-workers", integer(workers.length));
  put("fact-groups", `${integer(ready)} of ${integer(groups.length)}`);
  put("tile-running-sub", ready === 1 ? "in one replica" : `in ${integer(ready)} replicas`);
}

const byName = (a, b) => natural(a[W.node], b[W.node]) || (a[W.ordinal] ?? 0) - (b[W.ordinal] ?? 0) || (a[W.instance] < b[W.instance] ? -1 : 1);

/* Leaves out groups without members: the head keeps an entry for a lost group for a while. A
 * waiting group is hidden when it has no worker and no worker is free to form it. */
function present(rows) {
  const free = workers.some(w => w[W.group] === null && !w[W.draining]);
  return rows.filter(g => g[G.state] !== "waiting" || free || workers.some(w => w[W.group] === g[G.id]));
}

function showLatency(sample) {
  put("tile-ttft", sample ? seconds(sample[S.ttft50]) : "–");
  put("tile-ttft-sub", sample && sample[S.ttft95] !== null ? `median, 95 %: ${seconds(sample[S.ttft95])}` : "no request ended recently");
}

/* ---- updates ---- */

function update(parts) {
  $("login").hidden = true;
  $("main").hidden = false;
  $("away").hidden = true;
  $("main").classList.remove("stale");
  if (pillOf) pill(...pillOf); // the pill may still say "no answer" or "paused"
  if (parts.summary) {
    const other = parts.summary.uptime_s < up || (term !== null && parts.summary.term !== term);
    up = parts.summary.uptime_s;
    term = parts.summary.term;
    if (other) { // another head answers, or the same head has restarted; its samples and events
                 // start at number 0
      charts.samples = [];
      tables.forget();
      feed.forget();
      feed.open();
      return;
    }
    showSummary(parts.summary);
  }
  if (parts.workers) workers = parts.workers.rows.sort(byName);
  if (parts.groups) {
    const gone = parts.groups.rows.length;
    parts.groups.rows = groups = present(parts.groups.rows.sort((a, b) => a[G.id] - b[G.id]));
    parts.groups.total -= gone - groups.length;
  }
  if (parts.samples.rows.length) {
    charts.add(parts.samples.rows);
    showLatency(charts.samples.at(-1));
  }
  if (parts.groups || parts.workers) {
    showGroups();
    topology.update(workers, groups);
  }
  tables.update(parts);
  if (parts.requests) requests.update(parts.requests);
  if ("kv" in parts) kv.update(parts.kv, groups, "summary" in parts);
  const d = parts.done;
  put("link", `live · head ${(d.took_us / 1000).toFixed(1)} ms` + (d.left_out ? " · too large in part" : "") + (d.skipped ? ` · ${d.skipped} missed` : ""));
}

function login(why) {
  $("main").hidden = true;
  $("login").hidden = false;
  $("away").hidden = true;
  pill("admin key needed", "warn");
  put("link", "–");
  put("key-error", why);
  $("key").focus();
}

feed = new Feed(() => ({ ...requests.query(), ...kv.query() }), {
  update, login,
  paused() {
    pill(feed.saidAt ? `paused since ${clock(feed.saidAt)}` : "paused", "warn");
    put("link", "");
  },
  /* Greys the figures while the head does not answer, and shows the time of the last update. */
  away(why) {
    const since = feed.saidAt && clock(feed.saidAt);
    pill(since ? `no answer since ${since}` : "no answer", "bad");
    put("link", "");
    put("away", (since ? `The head has not answered since ${since}: ${why}. The figures below are from that time.` : `The head does not answer: ${why}.`) +
      " This page asks again by itself.");
    $("away").hidden = false;
    $("main").classList.add("stale");
  },
});

/* ---- the key, pause and theme ---- */

$("key-form").addEventListener("submit", e => {
  e.preventDefault();
  feed.key = $("key").value;
  $("key").value = "";
});

$("pause").addEventListener("click", () => {
  const on = $("pause").getAttribute("aria-pressed") !== "true";
  $("pause").setAttribute("aria-pressed", on);
  feed.paused = on;
});

const dark = matchMedia("(prefers-color-scheme: dark)");
function setTheme() {
  const choice = $("theme").value;
  document.documentElement.dataset.theme = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
  forgetColors();
  charts.draw();
  topology.map.draw();
  kv.draw();
}
$("theme").value = ofBrowser.getItem("cox-theme") ?? "auto";
$("theme").addEventListener("change", () => {
  ofBrowser.setItem("cox-theme", $("theme").value);
  setTheme();
});
dark.addEventListener("change", setTheme);
setTheme();
feed.open(0);
