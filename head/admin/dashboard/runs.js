// Runs the page of runs. It shows the output of `cox run list`, with buttons to end and repeat a
// run. See docs/reference/runs.md.
import { $, clock, make, put } from "./model.js";
import { NO_KEY, isKey, ofBrowser, ofTab } from "./store.js";

const KEY = "cox-admin-key", EVERY_MS = 2000, SURE_MS = 4000;
const MOODS = { running: "ok", completed: "ok", failed: "bad", terminated: "dim" };
let saidAt = null; // time of the head's last answer
const rows = new Map(); // ID → {row, said, …}; a row element lives as long as its run, so it keeps
                        // the focus
let timer = 0;

async function ask(method, body) {
  const key = ofTab.getItem(KEY);
  const r = await fetch("api/runs", { method, cache: "no-store", body: body && JSON.stringify(body),
    headers: { ...(key ? { Authorization: "Bearer " + key } : {}), ...(body ? { "Content-Type": "application/json" } : {}) } });
  if (r.status === 401) {
    ofTab.removeItem(KEY);
    login(key ? "That is not the key of this head." : "");
    return null;
  }
  const answer = await r.json().catch(() => null);
  if (!r.ok) throw new Error(answer?.error?.message || "HTTP " + r.status);
  return answer;
}

function login(why) {
  $("main").hidden = true;
  $("login").hidden = false;
  put("key-error", why);
  $("key").focus();
}

/* ---- rows ---- */

const when = s => s ? new Date(s * 1000).toISOString().slice(0, 19).replace("T", " ") : "–";
const isLive = run => ["pending", "importing", "running"].includes(run.status);

/* The first click asks for confirmation; the second one acts. */
function armed(button, label, act) {
  let reset = 0;
  const calm = () => { button.textContent = label; button.removeAttribute("aria-pressed"); reset = 0; };
  button.addEventListener("click", () => {
    if (!reset) {
      button.textContent = label + ": sure?";
      button.setAttribute("aria-pressed", "true");
      reset = setTimeout(calm, SURE_MS);
      return;
    }
    clearTimeout(reset);
    calm();
    act();
  });
  calm();
}

async function act(run, action, doing, done) {
  put("said", `${doing} ${run.name} (${run.id}) …`);
  try {
    if (await ask("POST", { id: run.id, action })) put("said", `${done} ${run.name} (${run.id}).`);
  } catch (e) {
    const isGone = action === "terminate" && e instanceof TypeError; // the request got no HTTP answer, so the
                                                                     // head has ended
    put("said", `${run.name} (${run.id}): ${isGone ? "asked to end; this head answers no more: it was that run's own, or has ended too" : e.message}`);
  }
  show();
}

function newRow(run) {
  const cells = Array.from({ length: 8 }, () => make("td"));
  const again = make("button", { type: "button" }), end = make("button", { type: "button" });
  armed(again, "Reproduce", () => act(run, "reproduce", "Starting", "Started"));
  armed(end, "Terminate", () => act(run, "terminate", "Ending", "Terminated"));
  again.setAttribute("aria-label", `Reproduce ${run.name} ${run.id}`);
  end.setAttribute("aria-label", `Terminate ${run.name} ${run.id}`);
  cells[7].append(again, " ", end);
  return { row: make("tr", { id: "run-" + run.id }, ...cells), cells, end, said: "" };
}

/* Returns a link when the address is http or https, else the text that the program wrote. */
function connect(port) {
  if (!/^https?:\/\//.test(port.url)) return make("span", { textContent: `${port.name} ${port.url}` });
  return make("a", { href: port.url, rel: "noreferrer", target: "_blank", textContent: port.name, title: port.url });
}

function fill(entry, run) {
  const said = JSON.stringify(run);
  if (entry.said === said) return;
  entry.said = said;
  const texts = [run.id, run.name, run.type, run.status, when(run.created), run.description];
  texts.forEach((text, i) => { entry.cells[i].textContent = text; entry.cells[i].title = text; });
  entry.cells[3].className = MOODS[run.status] ?? "warn";
  entry.cells[3].title = run.reason || run.status;
  if (run.reason) entry.cells[5].textContent = run.reason;
  entry.cells[6].replaceChildren(...(isLive(run) ? run.ports : []).flatMap(p => [connect(p), " "]));
  entry.end.disabled = !isLive(run);
}

function update({ runs, total }) {
  const more = total > runs.length ? `the newest of ${total}: ` : "";
  runs = runs.toReversed(); // the page shows the newest runs first
  const here = new Set(runs.map(r => r.id));
  for (const [id, entry] of rows)
    if (!here.has(id)) {
      entry.row.remove();
      rows.delete(id);
    }
  runs.forEach((run, i) => {
    if (!rows.has(run.id)) rows.set(run.id, newRow(run));
    const entry = rows.get(run.id), at = $("rows").children[i];
    fill(entry, run);
    if (at !== entry.row) $("rows").insertBefore(entry.row, at ?? null);
  });
  put("runs-count", runs.length ? `${more}${runs.length}, ${runs.filter(isLive).length} alive` : "none: `cox run create -f FILE` makes one");
}

/* ---- refresh ---- */

async function show() {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    const answer = await ask("GET");
    if (!answer) return;
    $("login").hidden = true;
    $("main").hidden = false;
    update(answer);
    saidAt = Date.now();
    $("main").classList.remove("stale");
    put("link", "live");
  } catch (e) {
    put("link", saidAt ? "no answer since " + clock(saidAt) : "no answer: " + e.message);
    $("main").classList.add("stale");
  }
  clearTimeout(timer);
  timer = setTimeout(show, EVERY_MS);
}

$("key-form").addEventListener("submit", e => {
  const key = $("key").value;
  e.preventDefault();
  $("key").value = "";
  if (!isKey(key)) return login(NO_KEY);
  ofTab.setItem(KEY, key);
  show();
});
document.addEventListener("visibilitychange", show);

const dark = matchMedia("(prefers-color-scheme: dark)");
function setTheme() {
  const choice = ofBrowser.getItem("cox-theme") ?? "auto";
  document.documentElement.dataset.theme = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
}
dark.addEventListener("change", setTheme);
setTheme();
show();
