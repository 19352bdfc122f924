// Tests with OpenAI's package for JavaScript, used as its documentation shows except for baseURL.
// tests/e2e/test_clients.py runs this file. The last line of output is a JSON object: null for
// each function test_* that passed, or its error (as in scenarios.py).
import assert from "node:assert/strict";
import OpenAI, { toFile } from "openai";

const { COX_URL: url, COX_DEMO_URL: demoUrl, COX_KEY: key, COX_LIMITED_KEY: limited, COX_SLOW: slow } = process.env;
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0, timeout: 30000 * slow });
const demo = new OpenAI({ baseURL: `${demoUrl}/v1`, apiKey: "none", maxRetries: 0, timeout: 30000 * slow });
const messages = [{ role: "user", content: "Hi" }];
const ask = { model: "null", messages, max_tokens: 10, temperature: 0 };
const tools = [{
    type: "function",
    function: {
        name: "add", description: "Adds two numbers.",
        parameters: {
            type: "object", properties: { a: { type: "integer", minimum: 0, maximum: 9 }, b: { type: "integer", minimum: 0, maximum: 9 } },
            required: ["a", "b"], additionalProperties: false,
        },
    },
}];

async function all(stream) {
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    return chunks;
}
const textOf = (chunks) => chunks.map((c) => c.choices[0]?.delta?.content ?? "").join("");

async function test_models() {
    assert.deepEqual((await all(await client.models.list())).map((m) => m.id), ["null"]);
    assert.equal((await client.models.retrieve("null")).id, "null");
}

async function test_answer() {
    const got = await client.chat.completions.create(ask);
    assert.equal(got.choices[0].message.content.length, 10);
    assert.equal(got.choices[0].finish_reason, "length");
    assert.equal(got.usage.completion_tokens, 10);
}

async function test_stream_with_usage() {
    const chunks = await all(await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } }));
    const whole = await client.chat.completions.create(ask);
    assert.equal(textOf(chunks), whole.choices[0].message.content);
    assert.equal(chunks.at(-1).usage.completion_tokens, 10);
    const helper = await client.chat.completions.stream({ ...ask, stream: true }).finalChatCompletion();
    assert.equal(helper.choices[0].message.content, whole.choices[0].message.content);
}

async function test_completion() {
    const body = { model: "null", prompt: "Once", max_tokens: 10, temperature: 0 };
    const got = await client.completions.create({ ...body, logprobs: 2 });
    const streamed = await all(await client.completions.create({ ...body, stream: true }));
    assert.equal(streamed.map((c) => c.choices[0].text).join(""), got.choices[0].text);
    assert.equal(got.choices[0].logprobs.tokens.join(""), got.choices[0].text);
}

async function test_several_stop_and_logprobs() {
    const several = await client.chat.completions.create({ ...ask, n: 3, temperature: 1, seed: 1 });
    assert.equal(new Set(several.choices.map((c) => c.message.content)).size, 3);
    const whole = (await client.chat.completions.create(ask)).choices[0].message.content;
    const cut = await client.chat.completions.create({ ...ask, stop: whole.slice(4, 6), logprobs: true, top_logprobs: 2 });
    assert.equal(cut.choices[0].message.content, whole.slice(0, whole.indexOf(whole.slice(4, 6))));
    assert.ok(cut.choices[0].logprobs.content.every((row) => row.top_logprobs.length === 2));
}

async function test_embeddings() {
    const got = await client.embeddings.create({ model: "null", input: ["abc", "d"] });
    assert.deepEqual(got.data.map((d) => Array.from(d.embedding)),
        ["c", "d"].map((c) => [...Array(8).keys()].map((i) => (c.charCodeAt(0) >> i) & 1)));
}

async function test_responses() {
    const got = await client.responses.create({ model: "null", input: "Hi", max_output_tokens: 10, temperature: 0 });
    assert.equal(got.output_text, (await client.chat.completions.create(ask)).choices[0].message.content);
}

async function test_errors() {
    const wrong = new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 });
    await assert.rejects(wrong.models.list(), OpenAI.AuthenticationError);
    await assert.rejects(client.chat.completions.create({ ...ask, model: "nobody" }),
        (e) => e instanceof OpenAI.NotFoundError && e.code === "model_not_found");
    await assert.rejects(client.chat.completions.create({ ...ask, temperature: 5 }),
        (e) => e instanceof OpenAI.BadRequestError && e.param === "temperature");
}

async function test_limits_are_waited_for() {
    // The key `limited` may send one request per second.
    const once = (maxRetries) => new OpenAI({ baseURL: `${url}/v1`, apiKey: limited, maxRetries })
        .chat.completions.create({ ...ask, max_tokens: 1 });
    await assert.rejects(async () => { for (let i = 0; i < 5; i++) await once(0); },
        (e) => e instanceof OpenAI.RateLimitError && e.headers.get("retry-after") !== null);
    for (let i = 0; i < 2; i++) assert.equal((await once(8)).usage.completion_tokens, 1);
}

async function test_timeout_and_abort() {
    await assert.rejects(client.chat.completions.create({ ...ask, max_tokens: 2000 }, { timeout: 500 }), OpenAI.APIConnectionTimeoutError);
    const stream = await client.chat.completions.create({ ...ask, max_tokens: 2000, stream: true });
    let n = 0;
    for await (const _ of stream) if (++n === 3) break; // the gateway detects the end
    assert.equal(n, 3);
}

async function test_files_and_batches() {
    const line = (i) => JSON.stringify({ custom_id: `line ${i}`, method: "POST", url: "/v1/chat/completions", body: ask });
    const file = await client.files.create({ file: await toFile(Buffer.from([0, 1, 2].map(line).join("\n")), "in.jsonl"), purpose: "batch" });
    assert.ok((await all(await client.files.list())).some((f) => f.id === file.id));
    let batch = await client.batches.create({ input_file_id: file.id, endpoint: "/v1/chat/completions", completion_window: "24h" });
    while (["validating", "in_progress", "finalizing"].includes(batch.status)) {
        await new Promise((wake) => setTimeout(wake, 50));
        batch = await client.batches.retrieve(batch.id);
    }
    assert.equal(batch.status, "completed");
    const rows = (await (await client.files.content(batch.output_file_id)).text()).trim().split("\n").map((s) => JSON.parse(s));
    assert.deepEqual(rows.map((r) => r.custom_id), ["line 0", "line 1", "line 2"]);
    assert.equal((await client.files.delete(file.id)).deleted, true);
}

async function test_demo_structured_output() {
    const schema = {
        type: "object", properties: { age: { type: "integer", minimum: 1, maximum: 99 } }, required: ["age"], additionalProperties: false,
        "x-guidance": { whitespace_flexible: false },
    };
    const got = await demo.chat.completions.parse({
        model: "demo", messages: [{ role: "user", content: "Ada is 36." }], temperature: 0, max_tokens: 60,
        response_format: { type: "json_schema", json_schema: { name: "p", strict: true, schema } },
    });
    const { age } = JSON.parse(got.choices[0].message.content);
    assert.ok(age >= 1 && age <= 99);
}

async function test_demo_tools_in_a_stream() {
    // `runTools` is the package's own loop. It runs the function of a tool call and sends the
    // result to the model.
    const called = [];
    const add = ({ a, b }) => { called.push([a, b]); return String(a + b); };
    const runner = demo.chat.completions.runTools({
        model: "demo", messages: [{ role: "user", content: "What is 2 + 3?" }], temperature: 0, max_tokens: 60, stream: true,
        tools: [{ type: "function", function: { ...tools[0].function, function: add, parse: JSON.parse } }],
        tool_choice: { type: "function", function: { name: "add" } },
    });
    await runner.done();
    const [[a, b]] = called;
    assert.ok(Number.isInteger(a) && Number.isInteger(b));
    assert.equal(runner.messages.at(-1).role, "tool"); // with `tool_choice` the loop ends here
}

const tests = [
    test_models, test_answer, test_stream_with_usage, test_completion, test_several_stop_and_logprobs, test_embeddings, test_responses,
    test_errors, test_limits_are_waited_for, test_timeout_and_abort, test_files_and_batches, test_demo_structured_output,
    test_demo_tools_in_a_stream,
];
const results = {};
for (const test of tests) {
    try {
        await test();
        results[test.name] = null;
    } catch (e) {
        results[test.name] = e.stack ?? String(e);
    }
}
console.log(JSON.stringify(results));
