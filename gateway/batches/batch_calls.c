/* Does the work of the calls of /v1/batches, in OpenAI's form, on the store's thread.
 * calls.c runs each function as a job: the input is the call's body and query, and the output is
 * its JSON answer or error.
 * A function may access only its own `state_call` and the store. Store calls of one gateway
 * never overlap, because the store has a single thread. A new or ended batch is reported to the
 * runner by `has_lines` and `ended_batch`. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/json/text.h"
#include "gateway/batches/batch_calls.h"
#include "gateway/batches/runner.h"
#include "gateway/params/params.h"

enum {
    WINDOW_S = 24 * 3600,
    METADATA_MAX_PAIRS = 16,
    METADATA_MAX_NAME = 64,
    METADATA_MAX_VALUE = 512
};

/* ---- writing answers ---- */

static void write_time(struct strbuf *b, const char *name, bool there, uint64_t at_s)
{
    if (there)
        strbuf_printf(b, ",\"%s\":%llu", name, (unsigned long long)at_s);
    else
        strbuf_printf(b, ",\"%s\":null", name);
}

static void write_failure(struct strbuf *out, const struct stored_batch *b)
{
    strbuf_append_c(out, ",\"errors\":");
    if (b->state != BATCH_FAILED) {
        strbuf_append_c(out, "null");
        return;
    }
    strbuf_append_c(out,
                    "{\"object\":\"list\",\"data\":[{\"code\":\"invalid_input_file\",\"line\":");
    if (b->i_line_of_failure)
        strbuf_printf(out, "%u", b->i_line_of_failure);
    else
        strbuf_append_c(out, "null");
    strbuf_append_c(out, ",\"message\":");
    strbuf_append_json(out, str_from(b->failure));
    strbuf_append_c(out, ",\"param\":null}]}");
}

static void write_batch(struct strbuf *out, const struct stored_batch *b)
{
    static const char *const words[BATCH_STATE_COUNT] = {[BATCH_IN_PROGRESS] = "in_progress",
                                                         [BATCH_COMPLETED] = "completed",
                                                         [BATCH_FAILED] = "failed",
                                                         [BATCH_CANCELLED] = "cancelled",
                                                         [BATCH_EXPIRED] = "expired"};
    bool done = b->state == BATCH_COMPLETED;
    strbuf_append_c(out, "{\"id\":");
    strbuf_append_json(out, str_from(b->id));
    strbuf_append_c(out, ",\"object\":\"batch\",\"endpoint\":");
    strbuf_append_json(out, str_from(b->endpoint));
    write_failure(out, b);
    state_call_id(out, "input_file_id", b->input_file);
    strbuf_printf(out, ",\"completion_window\":\"24h\",\"status\":\"%s\"", words[b->state]);
    state_call_id(out, "output_file_id", b->output_file);
    state_call_id(out, "error_file_id", b->error_file);
    write_time(out, "created_at", true, b->created_s);
    write_time(out, "in_progress_at", b->state != BATCH_FAILED, b->created_s);
    write_time(out, "expires_at", true, b->expires_s);
    write_time(out, "finalizing_at", done, b->ended_s);
    write_time(out, "completed_at", done, b->ended_s);
    write_time(out, "failed_at", b->state == BATCH_FAILED, b->ended_s);
    write_time(out, "expired_at", b->state == BATCH_EXPIRED, b->ended_s);
    write_time(out, "cancelling_at", b->state == BATCH_CANCELLED, b->ended_s);
    write_time(out, "cancelled_at", b->state == BATCH_CANCELLED, b->ended_s);
    strbuf_printf(out, ",\"request_counts\":{\"total\":%u,\"completed\":%u,\"failed\":%u}",
                  b->n_lines, b->n_completed, b->n_failed);
    strbuf_append_c(out, ",\"metadata\":");
    strbuf_append_c(out, b->owned_metadata ? b->owned_metadata : "null");
    strbuf_append_c(out, "}");
}

/* ---- reading requests ---- */

static bool refuse(struct state_call *c, const char *param, const char *text)
{
    return api_error_set(&c->error, 400, param, "%s %s", param, text);
}

static bool read_metadata(struct state_call *c, json_t *m, struct stored_batch *b)
{
    static const char limits[] = "must be an object of at most 16 strings, with names of up to 64 "
                                 "bytes and values of up to 512 bytes.";
    const char *name;
    json_t *value;
    if (!m || json_is_null(m))
        return true;
    if (!json_is_object(m) || json_object_size(m) > METADATA_MAX_PAIRS)
        return refuse(c, "metadata", limits);
    json_object_foreach(m, name, value)
    {
        if (!json_is_string(value) || strlen(name) > METADATA_MAX_NAME ||
            json_string_length(value) > METADATA_MAX_VALUE)
            return refuse(c, "metadata", limits);
    }
    char *text = json_text_dump(m, JSON_COMPACT);
    b->owned_metadata = text ? mem_strdup(text) : NULL;
    free(text);
    return true;
}

static bool is_known(const char *name)
{
    static const char *const known[] = {"input_file_id", "endpoint", "completion_window",
                                        "metadata"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0)
            return true;
    return false;
}

/* Returns a member of an object as text. Returns NULL when the member is not text, or contains a
 * NUL byte. */
static const char *word_of(const json_t *o, const char *name)
{
    const json_t *v = json_object_get(o, name);
    const char *s = json_string_value(v);
    return s && strlen(s) == json_string_length(v) ? s : NULL;
}

static bool read_create(struct state_call *c, json_t *o, struct stored_batch *b)
{
    const char *name, *file = word_of(o, "input_file_id"), *endpoint = word_of(o, "endpoint"),
                      *window = word_of(o, "completion_window");
    json_t *value;
    json_object_foreach(o, name, value)
    {
        if (!is_known(name))
            return api_error_set(&c->error, 400, NULL,
                                 "A batch has no field `%.60s`: leave it out.", name);
    }
    if (!file || strlen(file) >= sizeof b->input_file)
        return refuse(c, "input_file_id", "must be the id of an uploaded file.");
    if (!endpoint || !batch_dialect(str_from(endpoint)))
        return refuse(c, "endpoint",
                      "must be /v1/chat/completions, /v1/completions or /v1/embeddings.");
    if (!window || strcmp(window, "24h") != 0)
        return refuse(c, "completion_window", "must be \"24h\".");
    snprintf(b->input_file, sizeof b->input_file, "%s", file);
    snprintf(b->endpoint, sizeof b->endpoint, "%s", endpoint);
    return read_metadata(c, json_object_get(o, "metadata"), b);
}

void batch_call_create(struct state_call *c)
{
    struct stored_batch b = {
        .tenant = c->tenant, .created_s = c->now_s, .expires_s = c->now_s + WINDOW_S};
    struct error err = {0};
    json_t *o = params_parse_json(c->body, &c->error);
    bool ok = o && read_create(c, o, &b);
    json_decref(o);
    enum status s = ok ? state_add_batch(c->all->store, &b, &err) : STATUS_INVALID;
    c->again = s == STATUS_AGAIN;
    if (s == STATUS_OK)
        write_batch(&c->answer, &b);
    else if (ok && s == STATUS_NOT_FOUND)
        api_error_set(&c->error, 404, "id", "No such File object: %s (input_file_id)",
                      b.input_file);
    else if (ok && !c->again)
        state_call_fail(c, "File object", s, &err);
    c->has_lines = s == STATUS_OK;
    stored_batch_fini(&b);
}

void batch_call_get(struct state_call *c)
{
    struct stored_batch b;
    struct error err = {0};
    enum status s = state_get_batch(c->all->store, c->tenant, c->id, &b, &err);
    if (s != STATUS_OK) {
        state_call_fail(c, "batch", s, &err);
        return;
    }
    write_batch(&c->answer, &b);
    stored_batch_fini(&b);
}

void batch_call_cancel(struct state_call *c)
{
    struct stored_batch b;
    struct error err = {0};
    enum status s =
        state_cancel_batch(c->all->store, c->tenant, c->id, c->now_s, &b, &c->ended_batch, &err);
    if (s == STATUS_OK) {
        write_batch(&c->answer, &b);
        stored_batch_fini(&b);
        return;
    }
    c->ended_batch = 0;
    if (s == STATUS_INVALID)
        api_error_set(&c->error, 409, NULL,
                      "The batch cannot be cancelled, because it has already ended.");
    else
        state_call_fail(c, "batch", s, &err);
}

struct list {
    struct strbuf *out;
    char first[STATE_ID_BYTES], last[STATE_ID_BYTES];
};

static bool add_to_list(void *ctx, const struct stored_batch *b)
{
    struct list *l = ctx;
    memcpy(l->last, b->id, sizeof l->last);
    if (l->first[0])
        strbuf_append_c(l->out, ",");
    else
        memcpy(l->first, b->id, sizeof l->first);
    write_batch(l->out, b);
    return l->out->len < STATE_LIST_BYTES;
}

void batch_call_list(struct state_call *c)
{
    struct list l = {.out = &c->answer};
    struct state_query q;
    struct error err = {0};
    bool more = false;
    if (!state_call_query(c, &q))
        return;
    strbuf_append_c(&c->answer, "{\"object\":\"list\",\"data\":[");
    enum status s = state_list_batches(c->all->store, &q, add_to_list, &l, &more, &err);
    strbuf_append_c(&c->answer, "]");
    state_call_id(&c->answer, "first_id", l.first);
    state_call_id(&c->answer, "last_id", l.last);
    strbuf_printf(&c->answer, ",\"has_more\":%s}", more ? "true" : "false");
    if (s != STATUS_OK)
        state_call_fail(c, "batch", s, &err);
}
