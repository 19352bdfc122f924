#include "gateway/serving/cluster.h"

#include "common/base/log.h"

/* This text contains no names, because any client may read a probe's answer. The log has the
 * names. */
#define OTHER_MODEL                                                                                \
    "the head refuses this gateway: the gateway's model has another vocabulary than the workers' " \
    "model"

uint32_t serving_max_model_len(const struct serving *s)
{
    uint32_t ours = s->o.model.max_model_len, heads = s->cluster.max_model_len;
    return heads && heads < ours ? heads : ours;
}

bool serving_is_of_another_model(const struct serving *s)
{
    return !s->cluster.link_up && s->cluster.refused == STATUS_UNSUPPORTED;
}

bool serving_healthy(const struct serving *s, const char **why)
{
    *why = s->draining                      ? "the gateway is shutting down"
           : serving_is_of_another_model(s) ? OTHER_MODEL
           : !s->cluster.link_up && s->cluster.refused != STATUS_OK
               ? "the head refuses this gateway: the gateway's log gives the reason"
           : !s->cluster.link_up ? "no connection to the head"
           : s->cluster.n_replicas_ready == 0 && s->cluster.start_s == 0 ? "no replica is ready"
                                                                         : "";
    return **why == '\0';
}

void serving_on_cluster(struct serving *s, const struct msg_cluster *m)
{
    if (m->n_replicas_ready > 0)
        s->cluster.replica_lost_ns = 0;
    else if (s->cluster.n_replicas_ready > 0 || !s->cluster.known)
        s->cluster.replica_lost_ns = serving_now(s);
    if (!s->cluster.known || m->n_replicas_ready != s->cluster.n_replicas_ready)
        log_info("cluster_changed", "groups_ready=%u groups=%u workers=%u", m->n_replicas_ready,
                 m->n_replicas, m->n_workers);
    if (m->vocab_size && m->vocab_size < s->o.model.policy.vocab_size)
        log_warn("vocabulary_differs", "gateway=%u cluster=%u", s->o.model.policy.vocab_size,
                 m->vocab_size);
    serving_metrics_cluster(&s->metrics, m);
    s->cluster.max_loras = m->load.max_loras;
    s->cluster.known = true;
    s->cluster.n_replicas_ready = m->n_replicas_ready;
    s->cluster.n_workers = m->n_workers;
    s->cluster.start_s = m->start_s;
    s->cluster.gives_prompt_logprobs = m->gives_prompt_logprobs;
    s->cluster.one_class = m->one_class;
    s->cluster.max_model_len = m->max_model_len;
}

void serving_on_refused(struct serving *s, enum status status)
{
    s->cluster.refused = status;
}
