#include "worker/program.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "worker/build.h"
#include "worker/comm/comm.h"

static const struct {
    const char *name;
    void (*write)(struct program *p);
} families[] = {{"llama", family_llama}, {"gemma3", family_gemma3}};
enum { N_FAMILIES = sizeof families / sizeof families[0] };

void tensor_name_format(const struct tensor_name *t, enum model_format format, uint32_t layer,
                        char out[TENSOR_NAME_MAX])
{
    const char *pattern = format == MODEL_GGUF ? t->gguf : t->hf;
    const char *at = pattern ? strstr(pattern, "%u") : NULL;
    if (!at)
        snprintf(out, TENSOR_NAME_MAX, "%s", pattern ? pattern : "");
    else
        snprintf(out, TENSOR_NAME_MAX, "%.*s%u%s", (int)(at - pattern), pattern, layer, at + 2);
}

/* One group for the layers that see everything, one for the window's. */
static void place_layers(struct program *p)
{
    const struct model_config *c = p->config;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        uint32_t window = c->layer_is_window[l] ? c->window : 0, g = 0;
        while (g < p->n_kv_groups && p->kv_groups[g].window != window)
            g++;
        if (g == p->n_kv_groups)
            p->kv_groups[p->n_kv_groups++] = (struct kv_layers){.window = window};
        p->kv_group_of[l] = g;
        p->kv_groups[g].n_layers++;
    }
}

/* Whole panels of outputs for each rank: nothing is padded but the end, and every piece is aligned
 * to a cache line. */
enum { VOCAB_UNIT = 16 };

static uint32_t cut_vocab(uint32_t vocab_size, uint32_t tp)
{
    uint64_t share = ((uint64_t)vocab_size + tp - 1) / tp;
    return tp == 1 ? vocab_size : (uint32_t)((share + VOCAB_UNIT - 1) / VOCAB_UNIT * VOCAB_UNIT);
}

static bool cut_is_even(const struct model_config *c, uint32_t tp)
{
    bool kv_ok = c->n_kv_heads % tp == 0 || tp % c->n_kv_heads == 0;
    return kv_ok && c->n_heads % tp == 0 && c->intermediate % tp == 0;
}

/* "1, 2, 4": for who asked for another number. */
static void even_cuts(const struct model_config *c, char out[64])
{
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t tp = 1; tp <= COMM_MAX_RANKS && n + 4 < 64; tp++)
        if (cut_is_even(c, tp))
            n += (size_t)snprintf(out + n, 64 - n, "%s%u", n ? ", " : "", tp);
}

static enum status check_cut(const struct model_config *c, uint32_t tp, struct error *err)
{
    char possible[64];
    even_cuts(c, possible);
    if (!cut_is_even(c, tp))
        return error_set(err, STATUS_UNSUPPORTED,
                         "--tp %u: %u heads, %u KV heads and %u inner dimensions cannot be cut "
                         "into %u equal parts, but into %s",
                         tp, c->n_heads, c->n_kv_heads, c->intermediate, tp, possible);
    if ((uint64_t)cut_vocab(c->vocab_size, tp) * (tp - 1) >= c->vocab_size)
        return error_set(err, STATUS_UNSUPPORTED,
                         "--tp %u: a vocabulary of %u, cut into equal multiples of %d, leaves "
                         "nothing for rank %u: take fewer ranks",
                         tp, c->vocab_size, VOCAB_UNIT, tp - 1);
    return STATUS_OK;
}

struct vocab_part program_vocab_part(const struct program *p, uint32_t rank)
{
    uint32_t first = rank * p->vocab_per_rank, left = p->config->vocab_size - first;
    return (struct vocab_part){first, left < p->vocab_per_rank ? left : p->vocab_per_rank};
}

enum status program_build(const struct model_config *config, uint32_t tp, uint32_t rank,
                          struct program **out, struct error *err)
{
    int i = 0;
    while (i < N_FAMILIES && strcmp(families[i].name, config->family) != 0)
        i++;
    if (i == N_FAMILIES)
        return error_set(err, STATUS_UNSUPPORTED, "no runner for models of the family %s",
                         config->family);
    TRY(check_cut(config, tp, err));
    struct program *p = mem_zalloc(sizeof *p);
    p->config = config;
    p->tp = tp;
    p->rank = rank;
    p->n_heads = config->n_heads / tp;
    p->n_kv_heads = config->n_kv_heads > tp ? config->n_kv_heads / tp : 1;
    p->vocab_per_rank = cut_vocab(config->vocab_size, tp);
    p->widths[REG_X] = p->widths[REG_H] = config->hidden;
    p->widths[REG_Q] = p->widths[REG_A] = p->n_heads * config->head_dim;
    p->widths[REG_K] = p->widths[REG_V] = p->n_kv_heads * config->head_dim;
    p->widths[REG_GATE] = p->widths[REG_UP] = config->intermediate / tp;
    place_layers(p);
    families[i].write(p);
    *out = p;
    return STATUS_OK;
}

void program_free(struct program *p)
{
    if (!p)
        return;
    for (uint32_t i = 0; i < p->n_ropes; i++)
        mem_free(p->ropes[i].inv);
    mem_free(p->ops);
    mem_free(p->weights);
    mem_free(p);
}
