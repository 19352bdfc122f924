/* What people and programs see of a plan, and cox-worker's mode that prints it. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/config.h"
#include "common/base/version.h"
#include "common/model/file_guard.h"
#include "common/model/model_info.h"
#include "worker/plan.h"

extern char **environ;

enum { EXIT_FITS = 0, EXIT_DOES_NOT_FIT = 1, EXIT_USAGE = 2 };

static double mib(uint64_t n)
{
    return (double)n / (1 << 20);
}

/* ---- text ---- */

/* Blocks that every rank has: the head gives no more. */
static uint32_t least(const struct plan *p, uint32_t i_group, bool most)
{
    uint32_t n = UINT32_MAX;
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        const struct plan_rank *r = &p->ranks[i];
        uint32_t own = most ? r->most_blocks[i_group] : r->kv_groups[i_group].n_blocks;
        n = own < n ? own : n;
    }
    return n;
}

/* Of the stage that has most of the group's layers. */
static const struct kv_group *largest(const struct plan *p, uint32_t i_group)
{
    const struct kv_group *g = &p->ranks[0].kv_groups[i_group];
    for (uint32_t i = 1; i < p->n_ranks; i++)
        if (p->ranks[i].kv_groups[i_group].bytes_per_block > g->bytes_per_block)
            g = &p->ranks[i].kv_groups[i_group];
    return g;
}

static void print_group(const struct plan *p, uint32_t i_group, struct strbuf *out)
{
    const struct kv_group *g = largest(p, i_group);
    uint32_t n = least(p, i_group, false), most = least(p, i_group, true);
    strbuf_printf(out, "KV cache     %s, %llu bytes a token, %llu a block of %u tokens",
                  p->kv_dtype, (unsigned long long)(g->bytes_per_block / g->block_tokens),
                  (unsigned long long)g->bytes_per_block, g->block_tokens);
    if (g->window_tokens > 0)
        strbuf_printf(out, " (layers with a window of %u)", g->window_tokens);
    strbuf_printf(out,
                  "\nblocks       %u are taken (%llu tokens), %u is the most that fit (%llu "
                  "tokens)\n",
                  n, (unsigned long long)n * g->block_tokens, most,
                  (unsigned long long)most * g->block_tokens);
}

void plan_print(const struct plan *p, struct strbuf *out)
{
    strbuf_printf(out, "%s\n", p->model);
    strbuf_printf(out, "model        %s, most weights %s, up to %u tokens a sequence (by %s)\n\n",
                  p->family, p->dtype, p->max_model_len,
                  p->is_gguf ? "the file's header" : "config.json alone");
    strbuf_printf(out, "%s%4s %12s %12s %12s %12s %12s %12s   MiB\n", p->pp > 1 ? "stage " : "",
                  "rank", "weights", "activations", "collectives", "adapters", "KV cache", "total");
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        const struct plan_rank *r = &p->ranks[i];
        if (p->pp > 1)
            strbuf_printf(out, "%5u ", r->stage);
        strbuf_printf(out, "%4u %12.1f %12.1f %12.1f %12.1f %12.1f %12.1f\n", r->rank,
                      mib(r->weights_bytes), mib(r->activation_bytes), mib(r->comm_bytes),
                      mib(r->lora_bytes), mib(r->kv_bytes), mib(r->total_bytes));
    }
    strbuf_append_c(out, "\n");
    for (uint32_t g = 0; g < p->ranks[0].n_kv_groups; g++)
        print_group(p, g, out);
    strbuf_printf(out, "memory       %.1f MiB for each rank%s\n", mib(p->memory_bytes),
                  p->memory_found ? ", of what is free here (--memory-bytes says another)" : "");
    strbuf_printf(out, "fits         %s\n", plan_fits(p) ? "yes" : "no");
    for (uint32_t i = 0; i < p->n_ranks; i++)
        if (!p->ranks[i].fits)
            strbuf_printf(out, "  rank %u: %s\n", i, p->ranks[i].reason.text);
}

/* ---- JSON ---- */

static void print_rank_json(const struct plan_rank *r, struct strbuf *out)
{
    strbuf_printf(out,
                  "{\"rank\":%u,\"stage\":%u,\"weights_bytes\":%llu,\"activation_bytes\":%llu,"
                  "\"comm_bytes\":%llu,\"lora_bytes\":%llu,\"kv_bytes\":%llu,\"total_bytes\":%llu,"
                  "\"kv_groups\":[",
                  r->rank, r->stage, (unsigned long long)r->weights_bytes,
                  (unsigned long long)r->activation_bytes, (unsigned long long)r->comm_bytes,
                  (unsigned long long)r->lora_bytes, (unsigned long long)r->kv_bytes,
                  (unsigned long long)r->total_bytes);
    for (uint32_t i = 0; i < r->n_kv_groups; i++) {
        const struct kv_group *g = &r->kv_groups[i];
        strbuf_printf(out,
                      "%s{\"window_tokens\":%u,\"block_tokens\":%u,\"bytes_per_token\":%llu,"
                      "\"bytes_per_block\":%llu,\"n_blocks\":%u,\"most_blocks\":%u}",
                      i ? "," : "", g->window_tokens, g->block_tokens,
                      (unsigned long long)(g->bytes_per_block / g->block_tokens),
                      (unsigned long long)g->bytes_per_block, g->n_blocks, r->most_blocks[i]);
    }
    strbuf_printf(out, "],\"fits\":%s", r->fits ? "true" : "false");
    if (!r->fits) {
        strbuf_append_c(out, ",\"reason\":");
        strbuf_append_json(out, str_from(r->reason.text));
    }
    strbuf_append_c(out, "}");
}

void plan_print_json(const struct plan *p, struct strbuf *out)
{
    strbuf_append_c(out, "{\"model\":");
    strbuf_append_json(out, str_from(p->model));
    strbuf_printf(out,
                  ",\"family\":\"%s\",\"dtype\":\"%s\",\"kv_cache_dtype\":\"%s\","
                  "\"tensor_parallel_size\":%u,\"pipeline_parallel_size\":%u,\"max_model_len\":%u,"
                  "\"block_size\":%u,"
                  "\"threads\":%u,\"memory_bytes\":%llu,\"fits\":%s,\"ranks\":[",
                  p->family, p->dtype, p->kv_dtype, p->tp, p->pp, p->max_model_len, p->block_tokens,
                  p->n_threads, (unsigned long long)p->memory_bytes,
                  plan_fits(p) ? "true" : "false");
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        strbuf_append_c(out, i ? "," : "");
        print_rank_json(&p->ranks[i], out);
    }
    strbuf_append_c(out, "]}\n");
}

/* ---- the mode ---- */

static int fail(const struct error *err)
{
    fprintf(stderr, "cox plan: %s\n", err->text);
    return EXIT_USAGE;
}

static int show(struct strbuf *b, int code)
{
    fwrite(b->ptr, 1, b->len, stdout);
    fflush(stdout);
    strbuf_fini(b);
    return code;
}

static int plan_model(const char *model, struct plan_options *o)
{
    char cache_dir[4096];
    struct error err = {0};
    struct strbuf b;
    struct plan p;
    model_cache_dir(NULL, getenv("HOME"), cache_dir, sizeof cache_dir);
    if (!o->worker.cache_dir)
        o->worker.cache_dir = cache_dir;
    enum status s = plan_make(model, o, &p, &err);
    if (s != STATUS_OK) {
        plan_fini(&p);
        return fail(&err);
    }
    strbuf_init(&b, 0);
    if (o->json)
        plan_print_json(&p, &b);
    else
        plan_print(&p, &b);
    int code = show(&b, plan_fits(&p) ? EXIT_FITS : EXIT_DOES_NOT_FIT);
    plan_fini(&p);
    return code;
}

static int with_options(struct plan_options *o, const struct config_result *res)
{
    struct error err = {0};
    struct strbuf b;
    strbuf_init(&b, 0);
    if (res->help)
        config_print_help(&b, "cox plan MODEL [OPTION...]", plan_specs, plan_n_specs);
    else if (res->version)
        strbuf_printf(&b, "cox %s\n", COX_VERSION);
    if (b.len > 0)
        return show(&b, EXIT_FITS);
    for (size_t i = 0; i < res->warnings.n_items; i++)
        fprintf(stderr, "cox plan: warning: %s\n", res->warnings.items[i]);
    if (res->positional.n_items == 1)
        return plan_model(res->positional.items[0], o);
    error_set(&err, STATUS_INVALID,
              "which model? usage: cox plan MODEL [OPTION...]; MODEL is demo, a GGUF file or a "
              "model folder");
    return fail(&err);
}

int plan_main(int argc, char **argv)
{
    struct plan_options o = {0};
    struct config_result res = {0};
    struct error err = {0};
    file_guard_install();
    enum status s = config_parse(plan_specs, plan_n_specs, argc, argv, environ, &o, &res, &err);
    int code = s == STATUS_OK ? with_options(&o, &res) : fail(&err);
    config_fini(&res);
    return code;
}
