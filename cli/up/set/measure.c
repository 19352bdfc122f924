/* Measures the memory of models with `cox plan --json`.
 * A worker's command line becomes that of cox-worker's mode `plan`: the options that `cox plan`
 * knows are copied, so both see the same model. All processes run at the same time on a loop of
 * their own, which ends with the last one.
 * Invariants: the answer of a process is bounded, and every number in it is checked before use. */
#include "cli/up/set/measure.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/config/lookup.h"
#include "common/loop/child.h"
#include "common/options/plan.h"

enum { ANSWER_MAX_BYTES = 256 << 10, WHY_BYTES = 512 };
#define BYTES_MAX (1ull << 50)

/* `measured` is one running process. */
struct measured {
    struct loop *loop;
    struct loop_child *process;
    const char *argv[UP_ARGV_MAX + 8];
    struct strbuf answer;
    char why[WHY_BYTES]; /* last line on stderr */
    int64_t status;
    uint32_t *n_running;
};

/* ---- the answer ---- */

static bool read_bytes(const json_t *o, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(o, key);
    json_int_t n = json_integer_value(v);
    *out = json_is_integer(v) && n >= 0 ? (uint64_t)n : 0;
    return json_is_integer(v) && n >= 0 && *out <= BYTES_MAX;
}

/* Adds a rank. The largest rank decides, since one worker may get any rank. */
static bool add_rank(const json_t *rank, struct set_need *need, uint64_t *kv_bytes)
{
    uint64_t weights, activations, comm, lora, kv;
    if (!read_bytes(rank, "weights_bytes", &weights) ||
        !read_bytes(rank, "activation_bytes", &activations) ||
        !read_bytes(rank, "comm_bytes", &comm) || !read_bytes(rank, "lora_bytes", &lora) ||
        !read_bytes(rank, "kv_bytes", &kv))
        return false;
    uint64_t other = activations + comm + lora;
    need->weights_bytes = weights > need->weights_bytes ? weights : need->weights_bytes;
    need->other_bytes = other > need->other_bytes ? other : need->other_bytes;
    *kv_bytes = kv > *kv_bytes ? kv : *kv_bytes;
    return true;
}

enum status set_measure_read(const char *json, struct set_need *need, uint64_t *device_bytes,
                             struct error *err)
{
    json_error_t unread;
    json_t *plan = json_loads(json, JSON_REJECT_DUPLICATES, &unread);
    const json_t *ranks = json_object_get(plan, "ranks"), *rank;
    uint64_t per_token, length, block;
    size_t i;
    bool is_whole = read_bytes(plan, "kv_bytes_per_token", &per_token) &&
                    read_bytes(plan, "max_model_len", &length) && length <= 1u << 30 &&
                    read_bytes(plan, "block_size", &block) && block <= 1u << 20 &&
                    read_bytes(plan, "memory_bytes", device_bytes) && json_array_size(ranks) > 0;
    need->kv_wanted_bytes = 0;
    json_array_foreach(ranks, i, rank)
    {
        is_whole = is_whole && add_rank(rank, need, &need->kv_wanted_bytes);
    }
    is_whole = is_whole && (per_token == 0 || length + block <= BYTES_MAX / per_token);
    if (is_whole) {
        /* `per_token` is the sum over all ranks, which hold equal parts */
        uint64_t least = per_token * (length + block) / json_array_size(ranks);
        need->kv_least_bytes = need->kv_wanted_bytes > 0 && least > need->kv_wanted_bytes
                                   ? need->kv_wanted_bytes
                                   : least;
        if (need->kv_wanted_bytes == 0) /* the model does not fit into the memory of one worker */
            need->kv_wanted_bytes = least;
    }
    json_decref(plan);
    return is_whole ? STATUS_OK
                    : error_set(err, STATUS_PROTOCOL,
                                "the memory of the model %s cannot be planned: `cox plan` gave no "
                                "usable answer",
                                need->name);
}

/* ---- the processes ---- */

static void on_line(void *ctx, struct loop_child *c, const char *line, size_t n, bool is_stderr)
{
    struct measured *m = ctx;
    if (is_stderr && n > 0)
        snprintf(m->why, sizeof m->why, "%.*s", (int)n, line);
    else if (!is_stderr)
        (void)strbuf_append(&m->answer, line, n);
}

static void on_exit_of(void *ctx, struct loop_child *c, int64_t status, int term_signal)
{
    struct measured *m = ctx;
    m->status = term_signal ? -1 : status;
    loop_child_free(c);
    m->process = NULL;
    if (--*m->n_running == 0)
        loop_stop(m->loop);
}

/* Returns true for an option that both cox-worker and `cox plan` have. --gpu names a GPU's number
 * for a worker, and its kind for a plan. */
static const struct option_spec *shared_option(const char *word)
{
    size_t i = strncmp(word, "--", 2) == 0
                   ? config_find(plan_specs, plan_n_specs, str_from(word + 2))
                   : plan_n_specs;
    bool is_other = strcmp(word, "--gpu") == 0 || strcmp(word, "--device") == 0 ||
                    strcmp(word, "--dtype") == 0 || strcmp(word, "--served-model-name") == 0 ||
                    strcmp(word, "--vocab-size") == 0;
    return i < plan_n_specs && !is_other ? &plan_specs[i] : NULL;
}

static void make_argv(const struct set_measure_ask *ask, bool on_gpus, struct measured *m)
{
    const struct up_child *w = ask->worker;
    uint32_t n = 0;
    m->argv[n++] = ask->program ? ask->program : w->argv[0];
    m->argv[n++] = "plan";
    m->argv[n++] = "--json";
    for (uint32_t i = 1; i < w->n_args; i++) {
        const struct option_spec *spec = shared_option(w->argv[i]);
        if (!spec)
            continue;
        m->argv[n++] = w->argv[i];
        if (spec->type != OPTION_BOOL && i + 1 < w->n_args)
            m->argv[n++] = w->argv[++i];
    }
    if (on_gpus) {
        m->argv[n++] = "--device";
        m->argv[n++] = "cuda";
    }
    m->argv[n++] = "--";
    m->argv[n++] = ask->model;
    m->argv[n] = NULL;
}

static enum status run_all(const struct set_measure_ask *asks, uint32_t n, bool on_gpus,
                           struct measured *all, struct loop *loop, struct error *err)
{
    uint32_t n_running = 0;
    enum status s = STATUS_OK;
    for (uint32_t i = 0; i < n && s == STATUS_OK; i++) {
        struct measured *m = &all[i];
        m->loop = loop;
        m->n_running = &n_running;
        if (!asks[i].has_weights)
            continue;
        make_argv(&asks[i], on_gpus, m);
        const struct loop_child_options o = {
            .argv = m->argv, .on_line = on_line, .on_exit = on_exit_of, .ctx = m};
        s = loop_child_spawn(loop, &o, &m->process, err);
        n_running += s == STATUS_OK;
    }
    if (n_running > 0)
        loop_run(loop);
    return s;
}

static enum status take_answer(const struct set_measure_ask *ask, const struct measured *m,
                               struct set_need *need, uint64_t *device_bytes, struct error *err)
{
    static const char prefix[] = "cox plan: ";
    const char *why =
        strncmp(m->why, prefix, sizeof prefix - 1) == 0 ? m->why + sizeof prefix - 1 : m->why;
    need->n_workers = ask->has_weights ? ask->n_workers : 0;
    if (!ask->has_weights)
        return STATUS_OK;
    if (m->status != 0 && m->status != 1) /* 1 = the model does not fit, and the sizes are known */
        return error_set(err, STATUS_INVALID, "the memory of the model %s cannot be planned: %s",
                         need->name, why[0] ? why : "`cox plan` has crashed");
    return set_measure_read(m->answer.ptr ? m->answer.ptr : "", need, device_bytes, err);
}

enum status set_measure(const struct set_measure_ask *asks, uint32_t n, bool on_gpus,
                        struct set_need *needs, uint64_t *device_bytes, struct error *err)
{
    struct measured *all = mem_zalloc((n ? n : 1) * sizeof *all);
    struct loop *loop = NULL;
    enum status s = loop_new(&loop, err);
    for (uint32_t i = 0; i < n; i++)
        strbuf_init(&all[i].answer, ANSWER_MAX_BYTES);
    if (s == STATUS_OK)
        s = run_all(asks, n, on_gpus, all, loop, err);
    for (uint32_t i = 0; i < n && s == STATUS_OK; i++) {
        uint64_t bytes = 0;
        s = take_answer(&asks[i], &all[i], &needs[i], &bytes, err);
        *device_bytes = bytes > *device_bytes ? bytes : *device_bytes;
    }
    if (loop)
        loop_free(loop);
    for (uint32_t i = 0; i < n; i++)
        strbuf_fini(&all[i].answer);
    mem_free(all);
    return s;
}
