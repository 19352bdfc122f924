// Runs the gateway's chat page, a playground for its models. The page has no framework, uses no
// other host, and stores only the theme. The conversation and the API key are kept in the page's
// memory only. See docs/how-to/chat-page.md.
import { Failure, models, newsOf, stream } from "./api.js";
import { Answer } from "./answer.js";
import { $, make, put } from "./page.js";
import { hidePeek } from "./peek.js";
import { ofBrowser } from "./store.js";

const TOP = 5; // alternatives requested for each token
const TRIES = 5, WAIT_MAX_S = 60; // retries, and longest wait, when the gateway answers that it is
                                  // busy
const RELOAD_MS = 5000;

let key = ""; // API key; never stored, and never part of an address
let turns = []; // turns of the conversation: {user, element, answer}
let abort = null; // controller that aborts the current answer
let reload = 0;
let isOpenForKey = false; // true when the page itself opened the settings, to ask for the key
const isBase = new Set(); // models without a chat template

/* ---- models ---- */

function state(text, mood = "") {
  put($("state"), text);
  $("state").className = "pill " + mood;
}

function notice(text) {
  put($("notice"), text);
  $("notice").hidden = !text;
}

function wantKey(text) {
  isOpenForKey ||= !$("settings").open;
  $("settings").open = true;
  $("key").focus();
  notice(text);
  state("key wanted", "warn");
}

/** Closes the settings if the page opened them to ask for the key. On a phone they would cover
 * the conversation. */
function keyIsTaken() {
  if (!isOpenForKey) return;
  const hadFocus = $("settings").contains(document.activeElement);
  isOpenForKey = $("settings").open = false;
  if (hadFocus) $("prompt").focus();
}

function showModels(list) {
  const was = $("model").value, names = JSON.stringify(list.map(m => [m.id, m.parent]));
  if ($("model").said !== names) {
    $("model").said = names;
    $("model").replaceChildren(...list.map(m => make("option", { value: m.id, textContent: m.parent ? `${m.id} (adapter of ${m.parent})` : m.id })));
    if (list.some(m => m.id === was)) $("model").value = was;
  }
  $("model").disabled = list.length === 0;
  showModel();
}

function showModel() {
  const model = $("model").value;
  put($("empty-model"), model || "the model");
  if (isBase.has(model))
    notice(`${model} has no chat template: it is a base model. It continues each message as plain text, without the system prompt and without the messages before.`);
}

async function loadModels() {
  clearTimeout(reload);
  try {
    const list = await models(key);
    notice(list.length ? "" : "This API key may not use any model of this gateway. Type another key under Settings.");
    showModels(list);
    keyIsTaken();
    if (!abort) state("ready", "ok");
  } catch (e) {
    if (e.status === 401) return wantKey(e.message);
    notice(e.message);
    state("no answer", "bad");
    reload = setTimeout(loadModels, RELOAD_MS);
  }
}

/* ---- the request ---- */

const NUMBERS = ["temperature", "top_p", "top_k", "max_tokens", "seed", "presence_penalty", "frequency_penalty"];

/** Returns only the parameters that the user has set. The model and the gateway have defaults for
 * all others. */
function parameters() {
  const p = {};
  for (const name of NUMBERS) {
    const field = $(name);
    if (!field.checkValidity()) {
      $("settings").open = true;
      field.focus();
      throw new Failure(`${field.labels[0].textContent}: ${field.validationMessage}`);
    }
    if (field.value !== "") p[name] = field.valueAsNumber;
  }
  const stop = $("stop").value.split("\n").filter(s => s !== "");
  if (stop.length) p.stop = stop;
  return p;
}

/** Returns the messages of all answered turns and of the last turn. */
function messages() {
  const system = $("system").value.trim(), list = system ? [{ role: "system", content: system }] : [];
  turns.forEach((t, i) => {
    if (i < turns.length - 1 && !t.answer.content) return;
    list.push({ role: "user", content: t.user });
    if (i < turns.length - 1) list.push({ role: "assistant", content: t.answer.content });
  });
  return list;
}

function requestFor(model) {
  const common = { model, ...parameters(), stream: true, stream_options: { include_usage: true } };
  const wanted = $("probabilities").checked;
  if (isBase.has(model) || $("plain").checked) return ["v1/completions", { ...common, prompt: turns.at(-1).user, ...(wanted ? { logprobs: TOP } : {}) }];
  return ["v1/chat/completions", { ...common, messages: messages(), ...(wanted ? { logprobs: true, top_logprobs: TOP } : {}) }];
}

/* ---- an answer ---- */

function busy(is) {
  $("send").hidden = is;
  $("halt").hidden = !is;
  if (is) state("answering", "warn");
  else if ($("state").textContent === "answering") state("ready", "ok");
}

const pause = (ms, signal) => new Promise((done, fail) => {
  const timer = setTimeout(done, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); fail(signal.reason); }, { once: true });
});

/** Waits as long as the gateway asked, and shows a countdown. */
async function waitAsTold(answer, failure, signal) {
  for (let left = Math.max(1, Math.ceil(failure.retryAfter)); left > 0; left--) {
    answer.say(`${failure.message} Trying again in ${left} s.`);
    await pause(1000, signal);
  }
  answer.say(answer.model);
}

async function receive(answer, model, signal) {
  for (let attempt = 1; ; attempt++) {
    try {
      const [path, body] = requestFor(model);
      for await (const chunk of stream(path, key, body, signal)) answer.add(newsOf(chunk));
      return;
    } catch (e) {
      const isBusy = e.status === 429 || e.status === 503;
      if (e.status === 400 && !isBase.has(model) && /has no chat template/.test(e.message)) {
        isBase.add(model);
        showModel();
      } else if (isBusy && e.retryAfter !== null && e.retryAfter <= WAIT_MAX_S && attempt < TRIES && answer.isEmpty) {
        await waitAsTold(answer, e, signal);
      } else {
        throw e;
      }
    }
  }
}

async function generate() {
  const model = $("model").value, turn = turns.at(-1), own = abort = new AbortController();
  const answer = turn.answer = new Answer(model, () => again(turn));
  $("turns").append(answer.element);
  $("talk").scrollTop = $("talk").scrollHeight;
  busy(true);
  put($("said"), "The answer begins.");
  let failure = null, how = "";
  try {
    await receive(answer, model, own.signal);
  } catch (e) {
    if (own.signal.aborted) how = "stopped";
    else failure = e;
  }
  answer.end(how, failure?.message ?? null);
  put($("said"), failure ? "" : how ? "The answer was stopped." : "The answer is complete.");
  if (abort !== own) return; // a new chat began while this answer was generated
  abort = null;
  busy(false);
  if (failure?.status === 401) wantKey(failure.message);
  if (failure?.status === 404) loadModels(); // the adapter was removed, so the list has changed
}

function send(text) {
  const body = make("div", { className: "body", textContent: text });
  const element = make("li", { className: "turn user" }, make("span", { className: "hidden", textContent: "You: " }), body);
  $("empty").hidden = true;
  $("turns").append(element);
  turns.push({ user: text, element, answer: null });
  generate();
}

/* Requests another answer to the same message. Later turns are removed. */
function again(turn) {
  const at = turns.indexOf(turn);
  if (abort || at < 0) return;
  for (const gone of turns.splice(at + 1)) {
    gone.element.remove();
    gone.answer?.element.remove();
  }
  turn.answer.element.remove();
  $("prompt").focus();
  generate();
}

function halt() {
  abort?.abort();
  hidePeek();
}

/* ---- input ---- */

$("compose").addEventListener("submit", e => {
  e.preventDefault();
  const text = $("prompt").value;
  if (!text.trim() || abort) return;
  if (!$("model").value) return loadModels();
  if (!isBase.has($("model").value)) notice("");
  $("prompt").value = "";
  $("prompt").focus();
  send(text);
});

$("prompt").addEventListener("keydown", e => {
  if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
  e.preventDefault();
  $("compose").requestSubmit();
});

$("halt").addEventListener("click", () => {
  halt();
  $("prompt").focus();
});

document.addEventListener("keydown", e => {
  if (e.key === "Escape") halt();
});

$("clear").addEventListener("click", () => {
  halt();
  abort = null;
  turns = [];
  $("turns").replaceChildren();
  $("empty").hidden = false;
  busy(false);
  put($("said"), "A new chat has begun.");
  $("prompt").focus();
});

$("key").addEventListener("input", () => { key = $("key").value.trim(); });
$("key").addEventListener("change", loadModels);
$("fields").addEventListener("submit", e => e.preventDefault());
$("model").addEventListener("change", () => {
  notice("");
  showModel();
});
$("talk").addEventListener("scroll", hidePeek, { passive: true });
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && !abort && $("state").textContent !== "key wanted") loadModels();
});

/* ---- the theme ---- */

const dark = matchMedia("(prefers-color-scheme: dark)");
function setTheme() {
  const choice = $("theme").value;
  document.documentElement.dataset.theme = choice === "auto" ? (dark.matches ? "dark" : "light") : choice;
}
$("theme").value = ["light", "dark"].find(t => t === ofBrowser.getItem("cox-theme")) ?? "auto";
$("theme").addEventListener("change", () => {
  ofBrowser.setItem("cox-theme", $("theme").value);
  setTheme();
});
dark.addEventListener("change", setTheme);
setTheme();

$("settings").open = matchMedia("(min-width: 56rem)").matches;
$("prompt").focus();
loadModels();
