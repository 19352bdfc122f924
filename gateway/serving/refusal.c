#include "gateway/serving/refusal.h"

#include "gateway/serving/cluster.h"

void refusal_failed(const struct serving *s, struct api_error *e)
{
    e->retry_after_s = 30;
    api_error_set(e, 503, NULL, "The model `%s` cannot serve: %s", s->o.served_names[0],
                  s->failure);
}

bool serving_refuses(const struct serving *s, struct api_error *e)
{
    uint64_t down_ns = serving_now(s) - s->cluster.link_changed_ns;
    if (s->over)
        api_error_set(e, 503, NULL, SHUTTING_DOWN);
    else if (s->failure)
        refusal_failed(s, e);
    else if (serving_is_of_another_model(s))
        api_error_set(e, 503, NULL, OTHER_MODEL_SORRY);
    else if (!s->cluster.link_up && !s->awaits_model && down_ns > s->o.head_timeout_ns)
        api_error_set(e, 503, NULL, "The cluster's head cannot be reached: try again later.");
    else if (s->n_open_choices >= s->o.max_open_choices)
        api_error_set(e, 503, NULL, "The server has too many open requests: try again later.");
    if (e->http_status && e->retry_after_s == 0)
        e->retry_after_s = 1;
    return e->http_status != 0;
}
