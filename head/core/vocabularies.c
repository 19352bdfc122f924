/* Compares vocabularies at each Hello of a gateway and at each tick. The registry is the only
 * state, so nothing must be updated when workers join, leave or change their model. The cost is
 * one comparison of 256 bytes for each worker and each gateway, 20 times a second. */
#include "head/core/vocabularies.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/str.h"
#include "head/core/gateways.h"

#define REFUSED_SHOWN_NS (10 * NS_PER_S) /* a refused gateway tries again every second */

enum { DISTINCT_MAX = 8 };

/* Holds the distinct vocabularies of workers with the current model. There is one, unless the
 * files of the model changed between two starts. */
struct served_vocabularies {
    const struct worker *of[DISTINCT_MAX];
    uint32_t n;
};

static void find_served(const struct head_core *h, struct served_vocabularies *out)
{
    out->n = 0;
    if (!h->cluster.has_config)
        return;
    for (const struct worker *w = h->cluster.workers; w && out->n < DISTINCT_MAX; w = w->next) {
        uint32_t i = 0;
        if (w->vocabulary.n_tokens == 0 || !cluster_config_fits(&h->cluster, w))
            continue;
        while (i < out->n &&
               memcmp(&out->of[i]->vocabulary, &w->vocabulary, sizeof w->vocabulary) != 0)
            i++;
        if (i == out->n)
            out->of[out->n++] = w;
    }
}

static enum status compare(const struct served_vocabularies *served, const struct vocabulary *v,
                           const char *model, const char *node, struct error *err)
{
    for (uint32_t i = 0; i < served->n; i++)
        if (vocabulary_is_same(v, &served->of[i]->vocabulary))
            return STATUS_OK;
    if (served->n == 0)
        return STATUS_OK;
    const struct worker *w = served->of[0];
    return error_set(
        err, STATUS_UNSUPPORTED,
        "the gateway on %.64s has another model's vocabulary: %.64s with %u tokens, but the "
        "workers serve %.64s with %u tokens. Start the gateway with the workers' model",
        node, model, v->n_tokens, w->desc.model, w->vocabulary.n_tokens);
}

static void remember(struct head_core *h, uint64_t instance, const char *text)
{
    struct refused_gateway *oldest = &h->refused[0];
    for (uint32_t i = 0; i < REFUSED_GATEWAYS; i++) {
        struct refused_gateway *x = &h->refused[i];
        if (x->at_ns && x->instance == instance) {
            oldest = x;
            break;
        }
        if (x->at_ns < oldest->at_ns)
            oldest = x;
    }
    oldest->instance = instance;
    oldest->at_ns = h->now_ns;
    snprintf(oldest->text, sizeof oldest->text, "%s", text);
}

enum status vocabularies_check_hello(struct head_core *h, const struct msg_hello *m,
                                     struct error *err)
{
    struct served_vocabularies served;
    char model[65], node[65];
    if (m->role != ROLE_GATEWAY || !m->has_vocabulary)
        return STATUS_OK;
    find_served(h, &served);
    str_copy(model, sizeof model, m->model);
    str_copy(node, sizeof node, m->node);
    enum status s = compare(&served, &m->vocabulary, model, node, err);
    if (s != STATUS_OK)
        remember(h, m->instance, err->text);
    return s;
}

static void refuse(struct head_core *h, struct gateway_peer *g, const char *text)
{
    struct peer *peer = g->peer;
    struct msg m = {.type = MSG_GOODBYE, .goodbye = {.text = str_from(text)}};
    remember(h, g->instance, text);
    events_add(&h->events, h->now_ns, LOG_WARN, "gateway_refused", "instance=%016llx text=%s",
               (unsigned long long)g->instance, log_quote(text));
    /* if this message is lost, the answer to the gateway's next Hello has the reason */
    (void)!peers_send(&h->peers, peer, &m);
    peers_close_session(&h->peers, peer);
    gateways_on_lost(h, g, true);
    peers_remove(&h->peers, peer);
}

void vocabularies_tick(struct head_core *h)
{
    struct served_vocabularies served;
    struct error err = {0};
    if (h->n_gateways == 0)
        return;
    find_served(h, &served);
    for (uint32_t i = 0; i < GATEWAYS_MAX && served.n > 0; i++) {
        struct gateway_peer *g = h->gateways[i];
        if (g && g->peer && g->vocabulary.n_tokens > 0 &&
            compare(&served, &g->vocabulary, g->model, g->node, &err) != STATUS_OK)
            refuse(h, g, err.text);
    }
}

const char *vocabularies_refused(const struct head_core *h, uint32_t i)
{
    const struct refused_gateway *x = &h->refused[i];
    return x->at_ns && h->now_ns - x->at_ns < REFUSED_SHOWN_NS ? x->text : NULL;
}
