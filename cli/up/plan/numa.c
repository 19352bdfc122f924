#include "cli/up/plan/numa.h"

#include <stdio.h>
#include <string.h>

#include "cli/up/plan/options.h"
#include "common/options/worker.h"

/* Returns the number of workers that compute. Spares only wait, so they get no cores. */
static uint32_t n_computing(const struct up_options *o, int64_t n_workers)
{
    uint32_t replica_ranks = (uint32_t)(o->tp * o->pp), n = (uint32_t)n_workers,
             spares = n % replica_ranks;
    uint32_t most = up_options_max_replicas(o) * replica_ranks;
    n = n > spares ? n - spares : n;
    return most > 0 && n > most ? most : n;
}

struct up_numa up_numa_of(const struct up_options *o, const struct up_place *place,
                          int64_t n_workers)
{
    return (struct up_numa){.o = o,
                            .place = place,
                            .n_workers = (uint32_t)n_workers,
                            .n_computing = n_computing(o, n_workers),
                            .n_in_order = n_computing(o, up_options_n_workers(o))};
}

bool up_numa_is_wanted(const struct up_options *o)
{
    return o->numa_bind || o->numa_bind_nodes.n_items > 0 || o->numa_bind_cpus.n_items > 0;
}

/* Returns true when the worker finds its NUMA node itself, which is its GPU's node. */
static bool finds_itself(const struct up_numa *u)
{
    return u->o->device == UP_DEVICE_CUDA || !u->place->numa || u->place->numa->n_nodes == 0;
}

static struct numa_words words_of(const struct up_options *o, uint32_t i)
{
    const struct option_list *nodes = &o->numa_bind_nodes, *cpus = &o->numa_bind_cpus;
    return (struct numa_words){"--numa-bind-nodes", i < nodes->n_items ? nodes->items[i] : NULL,
                               "--numa-bind-cpus", i < cpus->n_items ? cpus->items[i] : NULL};
}

/* Finds the node and the CPUs of worker i. STATUS_NOT_FOUND: the node and CPUs are unknown until
 * the worker runs. */
static enum status bind_worker(const struct up_numa *u, uint32_t i, struct numa_binding *out,
                               struct error *err)
{
    static const struct numa unknown;
    const struct up_place *p = u->place;
    struct numa_words w = words_of(u->o, i);
    *out = (struct numa_binding){.node = -1};
    if (w.node || w.cpus)
        return p->numa
                   ? numa_bind_to(p->numa, &p->allowed, &w, out, err)
                   : error_set(
                         err, STATUS_NOT_FOUND,
                         "%s cannot be used: the worker runs on another machine. Remove the option",
                         w.node ? w.node_flag : w.cpus_flag);
    return numa_bind_any(finds_itself(u) ? &unknown : p->numa, &p->allowed, i, u->n_in_order, out,
                         err);
}

static enum status check_length(const char *flag, const struct option_list *l, uint32_t n_workers,
                                struct error *err)
{
    if (l->n_items == 0 || l->n_items >= n_workers)
        return STATUS_OK;
    return error_set(
        err, STATUS_INVALID,
        "%s has %zu %s for %u workers. Give one entry for each worker, separated by blanks", flag,
        l->n_items, l->n_items == 1 ? "entry" : "entries", n_workers);
}

enum status up_numa_check(const struct up_numa *u, struct error *err)
{
    TRY(check_length("--numa-bind-nodes", &u->o->numa_bind_nodes, u->n_workers, err));
    TRY(check_length("--numa-bind-cpus", &u->o->numa_bind_cpus, u->n_workers, err));
    for (uint32_t i = 0; up_numa_is_wanted(u->o) && i < u->n_workers; i++) {
        struct numa_binding b;
        enum status s = bind_worker(u, i, &b, err);
        if (s != STATUS_OK && s != STATUS_NOT_FOUND)
            return error_prefix(err, s, "worker %u", i);
    }
    return STATUS_OK;
}

void up_numa_flags(const struct up_numa *u, uint32_t i, struct up_numa_flags *out)
{
    struct numa_words w = words_of(u->o, i);
    struct numa_binding b;
    *out = (struct up_numa_flags){.node = w.node, .cpus = w.cpus};
    if (!up_numa_is_wanted(u->o) || w.node || w.cpus)
        return;
    out->node = "auto";
    if (bind_worker(u, i, &b, NULL) == STATUS_OK) {
        snprintf(out->node_text, sizeof out->node_text, "%d", b.node);
        out->node = out->node_text;
    }
}

/* Returns the number of CPUs that worker i is bound to and no other computing worker uses.
 * Returns 0 when the worker is not bound, or when its binding is unknown. */
static uint32_t own_cpus(const struct up_numa *u, uint32_t i)
{
    struct numa_binding own, other;
    uint32_t n_sharing = 0;
    if (!up_numa_is_wanted(u->o) || bind_worker(u, i, &own, NULL) != STATUS_OK)
        return 0;
    for (uint32_t k = 0; k < u->n_computing; k++) {
        cpu_set_t both;
        if (bind_worker(u, k, &other, NULL) != STATUS_OK)
            continue;
        CPU_AND(&both, &own.cpus, &other.cpus);
        n_sharing += CPU_COUNT(&both) > 0;
    }
    uint32_t n = (uint32_t)CPU_COUNT(&own.cpus) / (n_sharing > 0 ? n_sharing : 1);
    return n > 0 ? n : 1;
}

uint32_t up_numa_threads(const struct up_numa *u, uint32_t i)
{
    uint32_t own = own_cpus(u, i), share = u->place->n_cores / u->n_computing;
    bool has_quota = u->place->n_cores < (uint32_t)CPU_COUNT(&u->place->allowed);
    if (own > 0 && (!has_quota || own < share))
        share = own;
    return share < 1 ? 1 : share > WORKER_MAX_THREADS ? WORKER_MAX_THREADS : share;
}
