#include "cli/up/plan/plan.h"

#include <assert.h>
#include <unistd.h>

#include "cli/up/plan/gateway.h"
#include "cli/up/plan/head.h"
#include "cli/up/plan/numa.h"
#include "cli/up/plan/options.h"
#include "cli/up/plan/worker.h"
#include "common/model/info/info.h"
#include "common/model/info/ref.h"
#include "common/options/head.h"
#include "common/options/worker.h"

/* Checks the numbers of prefill and decode workers. All ranks of a replica have the same role. */
static enum status check_roles(const struct up_options *o, int64_t n_workers, struct error *err)
{
    int64_t replica_ranks = o->tp * o->pp, n_roles = o->prefill_workers + o->decode_workers;
    if (n_roles > n_workers)
        return error_set(
            err, STATUS_INVALID,
            "--workers %lld is too few: --prefill-workers and --decode-workers together need %lld",
            (long long)n_workers, (long long)n_roles);
    if (o->prefill_workers % replica_ranks != 0 || o->decode_workers % replica_ranks != 0)
        return error_set(err, STATUS_INVALID,
                         "--prefill-workers %lld and --decode-workers %lld must be multiples of "
                         "the %lld x %lld ranks of a replica, whose ranks all have one role",
                         (long long)o->prefill_workers, (long long)o->decode_workers,
                         (long long)o->tp, (long long)o->pp);
    return STATUS_OK;
}

static enum status check(const struct up_options *o, int64_t n_workers, struct error *err)
{
    int64_t replica_ranks = o->tp * o->pp;
    struct speculation speculation;
    /* an invalid value is reported once here, not by each worker */
    TRY(speculation_read(&o->speculation, &speculation, err));
    TRY(check_roles(o, n_workers, err));
    if (o->standby && !o->redis)
        return error_set(
            err, STATUS_INVALID,
            "--standby requires --redis URL: Redis stores which of the two heads serves");
    if (o->cluster_name && !cluster_name_is_valid(o->cluster_name))
        return error_set(
            err, STATUS_INVALID,
            "--cluster-name %s is invalid: use 1 to %u letters, digits, '.', '_' and '-'",
            o->cluster_name, CLUSTER_NAME_MAX);
    if (o->enable_lora && !o->lora_root)
        return error_set(err, STATUS_INVALID,
                         "--enable-lora requires --lora-root FOLDER: adapters are read only from "
                         "folders below it");
    if (o->lora_modules.n_items > 0 && !o->enable_lora)
        return error_set(err, STATUS_INVALID,
                         "--lora-modules requires --enable-lora: add this option");
    if (o->lora_modules.n_items > UP_MAX_LORAS)
        return error_set(
            err, STATUS_INVALID,
            "--lora-modules names %zu adapters: at most %u are allowed. Remove some of them",
            o->lora_modules.n_items, UP_MAX_LORAS);
    if (o->served_model_names.n_items > UP_MAX_NAMES)
        return error_set(
            err, STATUS_INVALID,
            "--served-model-name has %zu names: at most %u are allowed. Remove some of them",
            o->served_model_names.n_items, UP_MAX_NAMES);
    if (n_workers > 1024)
        return error_set(err, STATUS_INVALID,
                         "%lld workers are too many for one machine: at most 1024 are allowed. "
                         "Start fewer workers",
                         (long long)n_workers);
    if (o->dp > 1 && n_workers < replica_ranks * o->dp)
        return error_set(
            err, STATUS_INVALID, "--workers %lld is too few for %lld replicas of %lld x %lld ranks",
            (long long)n_workers, (long long)o->dp, (long long)o->tp, (long long)o->pp);
    if (o->port + o->gateways > 65536 || o->gateway_admin_port + o->gateways > 65536 ||
        o->worker_http_port + n_workers > 65536 || o->comm_port + n_workers > 65536 ||
        o->kv_port + n_workers > 65536)
        return error_set(err, STATUS_INVALID,
                         "a process would need a port above 65535: choose a lower --port, "
                         "--gateway-admin-port, --worker-http-port, --comm-port or --kv-port");
    return STATUS_OK;
}

/* Returns an earlier listener with the same port as listener k of child i. Returns NULL when
 * there is no such listener. */
static const struct up_listener *meets(const struct up_plan *plan, uint32_t i, uint32_t k)
{
    uint16_t port = plan->children[i].listeners[k].port;
    for (uint32_t j = 0; j <= i; j++) {
        const struct up_child *c = &plan->children[j];
        for (uint32_t m = 0; m < (j == i ? k : c->n_listeners); m++)
            if (c->listeners[m].port == port)
                return &c->listeners[m];
    }
    return NULL;
}

/* Two addresses may share a port, but such a plan is more likely a mistake. */
enum status up_plan_check_ports(const struct up_plan *plan, struct error *err)
{
    for (uint32_t i = 0; i < plan->n_children; i++)
        for (uint32_t k = 0; k < plan->children[i].n_listeners; k++) {
            const struct up_listener *a = meets(plan, i, k), *b = &plan->children[i].listeners[k];
            if (a)
                return error_set(
                    err, STATUS_INVALID,
                    "port %u would be used by both %s and %s. Choose another port with %s or %s",
                    a->port, a->what, b->what, a->flag, b->flag);
        }
    return STATUS_OK;
}

/* Returns the served name: the name in the options, or else the model's own name. */
static const char *served_name(struct up_builder *b)
{
    struct str name = model_name_of(b->model);
    struct model_ref r;
    struct error unread;
    const char *out = up_text(b, STR_FMT, STR_ARG(name));
    if (b->o->served_model_names.n_items > 0)
        return b->o->served_model_names.items[0];
    if (model_ref_parse(b->model, &r, &unread) != STATUS_OK)
        return out;
    if (model_ref_is_remote(&r) && !(r.is_plain && access(b->model, F_OK) == 0))
        out = up_text(b, "%s", r.name);
    model_ref_fini(&r);
    return out;
}

enum status up_plan_worker(const struct up_options *o, const char *model,
                           const struct up_place *place, struct arena *arena, uint32_t i,
                           const struct up_child **out, struct error *err)
{
    struct up_builder b = {o, model, place, arena, i + 1};
    const struct up_numa numa = up_numa_of(o, place, i + 1);
    TRY(check(o, i + 1, err));
    TRY(up_numa_check(&numa, err));
    struct up_child *c = arena_try_array(arena, 1, sizeof *c);
    assert(c);
    up_build_worker(&b, c, i);
    c->model = place->model;
    *out = c;
    return STATUS_OK;
}

enum status up_plan_build(const struct up_options *o, const char *model,
                          const struct up_place *place, struct arena *arena, struct up_plan *out,
                          struct error *err)
{
    int64_t n_workers = up_options_n_workers(o);
    struct up_builder b = {o, model, place, arena, n_workers};
    const struct up_numa numa = up_numa_of(o, place, n_workers);
    TRY(check(o, n_workers, err));
    TRY(up_numa_check(&numa, err));
    uint32_t n_heads = o->standby ? 2 : 1, n_gateways = place->model ? 0 : (uint32_t)o->gateways;
    uint32_t n = n_heads + n_gateways + (uint32_t)n_workers, i_child = 0;
    *out = (struct up_plan){.children = arena_try_array(arena, n, sizeof *out->children),
                            .n_children = n,
                            .n_workers = (uint32_t)n_workers,
                            .model_name = served_name(&b)};
    assert(out->children);
    for (uint32_t i = 0; i < n_heads; i++)
        up_build_head(&b, &out->children[i_child++], i > 0);
    for (uint32_t i = 0; i < n_gateways; i++)
        up_build_gateway(&b, &out->children[i_child++], i);
    for (uint32_t i = 0; i < (uint32_t)n_workers; i++)
        up_build_worker(&b, &out->children[i_child++], i);
    for (uint32_t i = 0; i < n; i++)
        out->children[i].model = place->model;
    return up_plan_check_ports(out, err);
}

void up_plan_gateways(const struct up_options *o, const struct up_place *place, struct arena *arena,
                      struct up_child *out)
{
    struct up_builder b = {.o = o, .place = place, .arena = arena};
    for (uint32_t i = 0; i < (uint32_t)o->gateways; i++)
        up_build_gateway(&b, &out[i], i);
}
