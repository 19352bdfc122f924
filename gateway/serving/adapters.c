/* Keeps the gateway's list of LoRA adapters, and handles the two calls that load and unload an
 * adapter.
 * The head sends the names (`gateway_adapters_on_names`). A call of a client becomes an order to
 * the head, and the head's answer becomes the HTTP answer.
 * At most ADAPTER_CALLS_MAX calls are open. Each call ends with exactly one answer: by the head,
 * by a timeout or by the loss of the link. Only the loop thread calls these functions, and time
 * is an argument. */
#include "gateway/serving/adapters.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "gateway/params/params.h"

/* ---- names ---- */

static void forget_names(struct gateway_adapters *a)
{
    while (a->n_names > 0) {
        mem_free(a->names[--a->n_names]);
        mem_free(a->paths[a->n_names]);
    }
}

void gateway_adapters_fini(struct gateway_adapters *a)
{
    forget_names(a);
}

const char *gateway_adapters_find(const struct gateway_adapters *a, struct str name)
{
    for (uint32_t i = 0; i < a->n_names; i++)
        if (str_eq_c(name, a->names[i]))
            return a->names[i];
    return NULL;
}

void gateway_adapters_on_names(struct gateway_adapters *a, const struct msg_adapters *m)
{
    forget_names(a);
    for (uint32_t i = 0; i < m->n && i < PROTO_MAX_ADAPTERS; i++) {
        const struct str name = m->list[i].name, path = m->list[i].path;
        a->names[i] = mem_strndup(name.ptr, name.len);
        a->paths[i] = path.len > 0 ? mem_strndup(path.ptr, path.len) : mem_strdup(a->names[i]);
        a->n_names++;
    }
}

/* ---- calls ---- */

static void fail(const struct gateway_adapters *a, void *reply, int http_status, const char *param,
                 const char *text)
{
    struct api_error e = {.retry_after_s = http_status == 503 ? 1 : 0};
    api_error_set(&e, http_status, param, "%s", text);
    reply_error(a->ops, reply, NULL, &e);
}

static struct adapter_call *free_call(struct gateway_adapters *a)
{
    for (uint32_t i = 0; i < ADAPTER_CALLS_MAX; i++)
        if (!a->calls[i].reply)
            return &a->calls[i];
    return NULL;
}

/* Returns true for the model's own names. Requests with such a name go to the model, so an
 * adapter of that name would never be used. The head may have fewer of these names than this
 * gateway. */
static bool is_taken(const struct gateway_adapters *a, struct str name)
{
    size_t i = 0;
    while (i < a->n_taken && !str_eq_c(name, a->taken[i]))
        i++;
    return i < a->n_taken;
}

/* Returns the first unknown field of a body, or NULL. The fields are vLLM's. `lora_int_id` is
 * vLLM's own number and is ignored here. */
static const char *unknown_key(const json_t *body)
{
    static const char *const known[] = {"lora_name", "lora_path", "load_inplace", "lora_int_id"};
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)body, key, value)
    {
        bool found =
            json_is_null(value) || (json_is_false(value) && strcmp(key, "is_3d_lora_weight") == 0);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found = found || strcmp(key, known[i]) == 0;
        if (!found)
            return key;
    }
    return NULL;
}

/* Reads the order from the call's body. Returns false when the order is wrong and was answered. */
static bool read_order(const struct gateway_adapters *a, void *reply, const json_t *body, bool on,
                       struct msg_adapter_order *m)
{
    const json_t *name = json_object_get(body, "lora_name");
    const json_t *path = json_object_get(body, "lora_path");
    const json_t *in_place = json_object_get(body, "load_inplace");
    const char *wrong =
        !json_is_string(name) || json_string_length(name) == 0              ? "lora_name"
        : on && (!json_is_string(path) || json_string_length(path) == 0)    ? "lora_path"
        : in_place && !json_is_null(in_place) && !json_is_boolean(in_place) ? "load_inplace"
                                                                            : NULL;
    const char *unknown = unknown_key(body);
    if (unknown) {
        char text[96];
        snprintf(text, sizeof text, "There is no field `%.40s`: leave it out.", unknown);
        fail(a, reply, 400, unknown, text);
        return false;
    }
    if (wrong) {
        char text[96];
        snprintf(text, sizeof text, "%s must be %s.", wrong,
                 strcmp(wrong, "load_inplace") == 0 ? "a boolean" : "a string that is not empty");
        fail(a, reply, 400, wrong, text);
        return false;
    }
    m->name = params_json_str(name);
    if (on && is_taken(a, m->name)) {
        fail(a, reply, 400, "lora_name",
             "lora_name is already a name of the model itself. Choose another name.");
        return false;
    }
    if (on)
        m->path = params_json_str(path);
    m->in_place = on && json_is_true(in_place);
    return true;
}

static void send_order(struct gateway_adapters *a, void *reply, const struct msg_adapter_order *m,
                       uint64_t now_ns)
{
    struct adapter_call *call = free_call(a);
    if (!call) {
        fail(a, reply, 503, NULL,
             "Too many adapters are being loaded or unloaded. Try again later.");
        return;
    }
    enum status s = a->send(a->engine, m);
    if (s != STATUS_OK) {
        fail(a, reply, s == STATUS_AGAIN ? 503 : 400, NULL,
             s == STATUS_AGAIN ? "The cluster's head cannot be reached: try again later."
                               : "lora_name or lora_path is too long.");
        return;
    }
    *call =
        (struct adapter_call){.ticket = m->ticket, .since_ns = now_ns, .on = m->on, .reply = reply};
    snprintf(call->name, sizeof call->name, STR_FMT,
             (int)(m->name.len < sizeof call->name ? m->name.len : sizeof call->name - 1),
             m->name.ptr);
}

void gateway_adapters_call(struct gateway_adapters *a, void *reply, bool on, struct str body,
                           const char *by, uint64_t now_ns)
{
    struct api_error e = {0};
    json_t *json = params_parse_json(body, &e);
    struct msg_adapter_order m = {.ticket = ++a->n_tickets, .on = on, .by = str_from(by)};
    if (!json)
        reply_error(a->ops, reply, NULL, &e);
    else if (read_order(a, reply, json, on, &m))
        send_order(a, reply, &m, now_ns);
    json_decref(json);
}

static void answer(struct gateway_adapters *a, struct adapter_call *call, enum status s,
                   const char *text)
{
    void *reply = call->reply;
    call->reply = NULL;
    if (s != STATUS_OK) {
        int code = s == STATUS_NOT_FOUND ? 404
                   : s == STATUS_AGAIN   ? 503
                   : s == STATUS_TIMEOUT ? 504
                                         : 400;
        fail(a, reply, code, s == STATUS_NOT_FOUND && !call->on ? "lora_name" : NULL, text);
        return;
    }
    char said[400];
    int n = snprintf(said, sizeof said, "Success: LoRA adapter '%s' %s successfully.", call->name,
                     call->on ? "added" : "removed");
    a->ops->respond(reply, 200, (struct str){said, (size_t)n}, 0);
}

void gateway_adapters_on_answer(struct gateway_adapters *a, const struct msg_adapter_answer *m)
{
    char text[400];
    snprintf(text, sizeof text, STR_FMT, (int)(m->text.len < 399 ? m->text.len : 399),
             m->text.len ? m->text.ptr : "");
    for (uint32_t i = 0; i < ADAPTER_CALLS_MAX; i++)
        if (a->calls[i].reply && a->calls[i].ticket == m->ticket)
            answer(a, &a->calls[i], m->status, text);
}

bool gateway_adapters_on_abort(struct gateway_adapters *a, const void *reply)
{
    for (uint32_t i = 0; i < ADAPTER_CALLS_MAX; i++)
        if (a->calls[i].reply == reply) {
            a->calls[i].reply = NULL;
            return true;
        }
    return false;
}

void gateway_adapters_on_link_lost(struct gateway_adapters *a)
{
    for (uint32_t i = 0; i < ADAPTER_CALLS_MAX; i++)
        if (a->calls[i].reply)
            answer(a, &a->calls[i], STATUS_AGAIN,
                   "The connection to the head was lost before it answered. Look in /v1/models "
                   "whether the adapter is loaded.");
}

bool gateway_adapters_has_calls(const struct gateway_adapters *a)
{
    bool any = false;
    for (uint32_t i = 0; i < ADAPTER_CALLS_MAX; i++)
        any |= a->calls[i].reply != NULL;
    return any;
}

void gateway_adapters_tick(struct gateway_adapters *a, uint64_t now_ns)
{
    for (uint32_t i = 0; i < ADAPTER_CALLS_MAX; i++)
        if (a->calls[i].reply && now_ns - a->calls[i].since_ns >= ADAPTER_CALL_TIMEOUT_NS)
            answer(a, &a->calls[i], STATUS_TIMEOUT,
                   "The adapter takes longer than five minutes. Look in /v1/models to see when it "
                   "is ready.");
}
