// Calls the gateway's API for the page: /v1/models, /v1/chat/completions and, for base models,
// /v1/completions. The key is sent in the Authorization header and never in an address.
import { NO_KEY, isKey } from "./store.js";

const EVENT_MAX = 4 << 20; // longest event, in characters

/** Holds an error as a sentence for the user of the page. `retryAfter` is in seconds, or null. */
export class Failure extends Error {
  constructor(message, { status = 0, retryAfter = null } = {}) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

async function failureOf(r, hasKey) {
  const said = await r.json().then(o => o?.error?.message ?? o?.message, () => null);
  const after = Number.parseFloat(r.headers.get("Retry-After"));
  const retryAfter = Number.isFinite(after) && after >= 0 ? after : null;
  let text = typeof said === "string" && said ? said : `The gateway answered with HTTP status ${r.status}.`;
  if (r.status === 401)
    text = hasKey ? "The gateway does not accept this API key. Correct it under Settings, then try again."
      : "This gateway requires an API key. Type it under Settings, then try again.";
  return new Failure(text, { status: r.status, retryAfter });
}

async function ask(path, key, options = {}) {
  const headers = { ...options.headers, ...(key ? { Authorization: "Bearer " + key } : {}) };
  if (!isKey(key)) throw new Failure(NO_KEY, { status: 401 });
  let r;
  try {
    r = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin", referrerPolicy: "no-referrer" });
  } catch (e) {
    if (options.signal?.aborted) throw e;
    throw new Failure("The gateway does not answer. Check that it runs and that this machine reaches it, then try again.");
  }
  if (!r.ok) throw await failureOf(r, Boolean(key));
  return r;
}

/** Returns [{id, parent, max_model_len}], including adapters. */
export async function models(key) {
  const answer = await (await ask("v1/models", key)).json().catch(() => null);
  if (!Array.isArray(answer?.data)) throw new Failure("The answer to /v1/models is not a list of models: is this address Coxswain's gateway?");
  return answer.data.filter(m => typeof m?.id === "string");
}

/** Yields the parsed chunks of a streamed answer, until [DONE]. */
export async function* stream(path, key, body, signal) {
  const r = await ask(path, key, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });
  const reader = r.body.getReader(), decoder = new TextDecoder();
  let held = "";
  for (;;) {
    const { value, done } = await read(reader, signal);
    if (done) throw new Failure("The connection ended before the answer did. Try again.");
    held += decoder.decode(value, { stream: true }).replaceAll("\r", "");
    if (held.length > EVENT_MAX) throw new Failure("An event of the answer is too long for this page.");
    for (let end; (end = held.indexOf("\n\n")) >= 0; held = held.slice(end + 2)) {
      const data = held.slice(0, end).split("\n").filter(l => l.startsWith("data:")).map(l => l.slice(5).trimStart()).join("\n");
      if (data === "[DONE]") return;
      if (data) yield chunkOf(data);
    }
  }
}

async function read(reader, signal) {
  try {
    return await reader.read();
  } catch (e) {
    if (signal.aborted) throw e;
    throw new Failure("The connection broke before the answer ended. Try again.");
  }
}

function chunkOf(data) {
  let chunk;
  try {
    chunk = JSON.parse(data);
  } catch {
    chunk = null;
  }
  if (typeof chunk !== "object" || chunk === null) throw new Failure("An event of the answer is not a JSON object: is this address Coxswain's gateway?");
  if (chunk.error) throw new Failure(chunk.error.message || "The answer ended with an error.", { status: Number(chunk.error.code) || 500 });
  return chunk;
}

/** Returns the new parts of a chunk of either API: {text, thought, tokens: [{text, logprob, top:
 * [{text, logprob}]}], finish, usage}. */
export function newsOf(chunk) {
  const choice = chunk.choices?.[0], delta = choice?.delta;
  return { text: textOf(delta ? delta.content : choice?.text), thought: textOf(delta?.reasoning_content ?? delta?.reasoning),
    tokens: delta ? chatTokens(choice.logprobs) : completionTokens(choice?.logprobs),
    finish: choice?.finish_reason ?? null, usage: chunk.usage ?? null };
}

const textOf = value => typeof value === "string" ? value : "";
const chatTokens = l => (l?.content ?? []).map(t => ({ text: t.token, logprob: t.logprob,
  top: (t.top_logprobs ?? []).map(o => ({ text: o.token, logprob: o.logprob })) }));

const completionTokens = l => (l?.tokens ?? []).map((text, i) => ({ text, logprob: l.token_logprobs?.[i] ?? null,
  top: Object.entries(l.top_logprobs?.[i] ?? {}).map(([t, logprob]) => ({ text: t, logprob })).sort((a, b) => b.logprob - a.logprob) }));
