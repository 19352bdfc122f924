/* Plays the head and the client for the tests of `serving`. `post_as` passes a body to
 * `serving`. Its submits are recorded in `w.submits`, and its answers in `w.client`. `tokens`
 * plays the head. `w` is the only state. `setup` and `teardown` renew it for each test. All
 * calls run in the test's thread. */
#include "serving_world.h"

#include <string.h>

#include "gateway/parsers/reasoning.h"
#include "gateway/parsers/tool_parsers.h"

struct world w;

static void fake_attach(void *reply, struct api_request *r)
{
    ((struct fake_client *)reply)->request = r;
}

static void fake_respond(void *reply, int status, struct str json, uint32_t retry_after_s)
{
    struct fake_client *c = reply;
    assert_int_equal(c->status, 0);
    c->status = status;
    c->retry_after_s = retry_after_s;
    c->ended = true;
    strbuf_append_str(&c->body, json);
}

static void fake_begin(void *reply, const char *content_type)
{
    struct fake_client *c = reply;
    assert_int_equal(c->status, 0);
    c->status = 200;
    c->begun = true;
}

static size_t fake_room(void *reply)
{
    return ((struct fake_client *)reply)->room;
}

static void fake_write(void *reply, struct str chunk)
{
    struct fake_client *c = reply;
    assert_true(c->begun && !c->ended);
    assert_true(c->room > 0 || strncmp(chunk.ptr, "data: [DONE]", 12) == 0 ||
                strncmp(chunk.ptr, "data: {\"error\"", 14) == 0);
    strbuf_append_str(&c->body, chunk);
}

static void fake_end(void *reply)
{
    ((struct fake_client *)reply)->ended = true;
}

static void fake_drop(void *reply, bool begun)
{
    struct fake_client *c = reply;
    assert_true(begun == c->begun && !c->ended);
    c->dropped = true;
}

static void fake_add_header(void *reply, const char *name, const char *value)
{
    struct fake_client *c = reply;
    assert_int_equal(c->status, 0);
    snprintf(c->header, sizeof c->header, "%s: %s", name, value);
}

static const struct reply_ops fake_reply = {
    .attach = fake_attach,
    .respond = fake_respond,
    .begin = fake_begin,
    .room = fake_room,
    .write = fake_write,
    .end = fake_end,
    .drop = fake_drop,
    .add_header = fake_add_header,
};

static enum status fake_submit(void *ctx, const struct msg_submit *m)
{
    w.n_tried++;
    if (w.no_credit || !w.s.cluster.link_up || (w.most_submits && w.n_submits >= w.most_submits))
        return STATUS_AGAIN;
    assert_true(w.n_submits < MAX_SUBMITS);
    w.submits[w.n_submits].id = m->id;
    w.submits[w.n_submits].i_choice = m->i_choice;
    w.submits[w.n_submits].attempt = m->attempt;
    w.submits[w.n_submits].n_prompt = m->n_prompt;
    w.submits[w.n_submits].n_ids = m->ids.n;
    w.submits[w.n_submits].n_known_logprobs = m->n_known_logprobs;
    w.submits[w.n_submits].last_id = m->ids.ptr[m->ids.n - 1];
    w.submits[w.n_submits].sampling = m->sampling;
    w.submits[w.n_submits].same_grammar = m->same_grammar;
    w.submits[w.n_submits].priority = m->priority;
    w.submits[w.n_submits].deadline_ms = m->deadline_ms;
    w.last_bad_words = m->sampling.bad_words;
    for (uint32_t i = 0; i < m->sampling.bad_words.n && i < 8; i++)
        w.bad_words[i] = m->sampling.bad_words.ptr[i];
    w.n_submits++;
    return STATUS_OK;
}

static enum status fake_cancel(void *ctx, const struct msg_cancel *m)
{
    w.n_cancels++;
    return STATUS_OK;
}

static enum status fake_finish(void *ctx, const struct msg_finish *m)
{
    w.n_finishes++;
    w.last_finish = *m;
    return STATUS_OK;
}

static bool fake_keeps_grammar(void *ctx)
{
    return w.keeps_grammar;
}

static uint64_t fake_now(void *ctx)
{
    return w.now_ns;
}

static uint64_t fake_wall(void *ctx)
{
    return 1700000000;
}

void set_cluster(uint32_t n_ready)
{
    struct msg_cluster m = {.n_replicas_ready = n_ready,
                            .n_replicas = 1,
                            .n_workers = 2,
                            .gives_prompt_logprobs = true};
    serving_on_cluster(&w.s, &m);
}

int setup(void **state)
{
    static const char *const names[] = {"m", "alias"};
    static const uint32_t eos[] = {257};
    char err[TEXT_ERR_MAX];
    static const char chat[] = "{% for m in messages %}{{ m.content }}{% endfor %}"
                               "{% if tools %}{{ tools[0].function.name }}{% endif %}";
    w = (struct world){.now_ns = 1000000000ull, .id_prefix = "cmpl-", .key.n_refs = 1};
    w.client.room = 1 << 20;
    strbuf_init(&w.client.body, 0);
    if (text_tokenizer_open("builtin:bytes", NULL, &w.tokenizer, err) != 0)
        return 1;
    if (text_template_new(chat, sizeof chat - 1, &w.chat_template, err) != 0)
        return 1;
    struct serving_options o = {
        .served_names = names,
        .n_served_names = 2,
        .model = {.tokenizer = w.tokenizer,
                  .chat_template = w.chat_template,
                  .reasoning = reasoning_parser_find("deepseek_v3"),
                  .max_model_len = 100,
                  .max_choices = 64,
                  .policy = {.vocab_size = 259, .max_logprobs = 20, .auto_tools = true}},
        .tool_parser = tool_parser_find("hermes"),
        .eos_ids = eos,
        .n_eos_ids = 1,
        .max_open_choices = 8,
        .queue_timeout_ns = 60000000000ull,
        .head_timeout_ns = 30000000000ull,
        .pause_timeout_ns = 300000000000ull,
        .submit_timeout_ns = 5000000000ull,
        .keep_alive_ns = 15000000000ull,
        .inline_bytes = 1 << 20,
        .now_ns = fake_now,
        .wall_s = fake_wall};
    struct engine_ops e = {NULL, fake_submit, fake_cancel, fake_finish, fake_keeps_grammar};
    w.metrics = metrics_new();
    serving_init(&w.s, &o, &e, &fake_reply, NULL, w.metrics);
    serving_on_link(&w.s, true);
    set_cluster(1);
    return 0;
}

int teardown(void **state)
{
    serving_fini(&w.s);
    metrics_free(w.metrics);
    text_template_free(w.chat_template);
    text_tokenizer_free(w.tokenizer);
    strbuf_fini(&w.client.body);
    return 0;
}

void post_as(const struct dialect *d, const char *body)
{
    const struct serving_request q = {.dialect = d, .body = str_from(body), .key = &w.key};
    serving_on_request(&w.s, &w.client, &q);
}

void tokens(uint32_t i, uint32_t start, const char *text, enum finish_reason finish)
{
    uint32_t ids[64], n = 0;
    for (; text[n]; n++)
        ids[n] = (uint8_t)text[n];
    struct tokens_item t = {.id = w.submits[i].id,
                            .i_choice = w.submits[i].i_choice,
                            .attempt = w.submits[i].attempt,
                            .start = start,
                            .ids = {ids, n},
                            .finish = finish,
                            .stop_id = UINT32_MAX};
    struct msg_tokens m = {.items = &t, .n_items = 1};
    serving_on_tokens(&w.s, &m);
    serving_sweep(&w.s);
}

void assert_body(const char *want)
{
    struct strbuf b;
    const char *at = strbuf_str(&w.client.body).ptr, *id;
    strbuf_init(&b, 0);
    while ((id = strstr(at, w.id_prefix))) {
        size_t n = strlen(w.id_prefix);
        strbuf_append(&b, at, (size_t)(id - at) + n);
        strbuf_append_c(&b, "ID");
        at = id + n + (strncmp(id + n, "tool-", 5) == 0 ? 5 : 0) + 32;
    }
    strbuf_append_c(&b, at);
    assert_string_equal(strbuf_str(&b).ptr, want);
    strbuf_fini(&b);
}
