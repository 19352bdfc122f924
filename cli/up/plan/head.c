#include "cli/up/plan/head.h"

static const char *const stats_formats[] = {"vllm", "vllm0"};
static const char *const scheduling_policies[] = {"fcfs", "priority"};

/* Writes the options of the lease. The heads inherit the Redis address as COX_REDIS, because it
 * may contain a password. A single head needs no Redis. */
static void flags_of_lease(struct up_builder *b, struct up_child *c)
{
    const struct up_options *o = b->o;
    if (!o->standby) {
        up_flag(c, "--redis", o->redis ? "" : NULL);
        return;
    }
    const char *own = b->place->own_name ? b->place->own_name : "default";
    up_flag(c, "--cluster-name", o->cluster_name ? o->cluster_name : own);
    up_flag(c, "--lease-ttl", up_text(b, "%.15g", o->lease_ttl_s));
}

/* Writes the options of one model of several. The supervisor knows the workers, so GET /scale has
 * an answer at once. */
static void flags_of_demand(struct up_builder *b, struct up_child *c)
{
    if (b->place->model > 0)
        up_flag(c, "--scale-settle-s", "0");
    if (b->o->start == UP_START_ALWAYS)
        return;
    up_flag(c, "--scale-min", "0");
    up_arg(c, "--wake-by-order");
    up_flag_int(b, c, "--scale-idle-s", b->o->idle_timeout_s);
    up_flag_int(b, c, "--scale-start-s", UP_DEMAND_START_S);
}

void up_build_head(struct up_builder *b, struct up_child *c, bool is_second)
{
    const struct up_options *o = b->o;
    c->role = UP_HEAD;
    c->name = is_second             ? "standby"
              : b->place->model_tag ? up_text(b, "head-%s", b->place->model_tag)
                                    : "head";
    int64_t port = is_second ? o->standby_port : o->head_port;
    int64_t admin_port = is_second ? o->standby_admin_port : o->admin_port;
    up_listens(b, c, "", is_second ? "--standby-port" : "--head-port", o->head_host, port);
    up_listens(b, c, "'s admin API", is_second ? "--standby-admin-port" : "--admin-port",
               o->admin_host, admin_port);
    up_common(b, c, "cox-head");
    up_flag(c, "--host", o->head_host);
    up_flag_int(b, c, "--port", port);
    up_flag(c, "--admin-host", o->admin_host);
    up_flag_int(b, c, "--admin-port", admin_port);
    up_flag(c, "--admin-key-file", o->admin_key_file);
    flags_of_lease(b, c);
    flags_of_demand(b, c);
    up_flag_int(b, c, "--tp", o->tp);
    up_flag_int(b, c, "--pp", o->pp);
    up_flag_if(b, c, "--max-groups", up_options_max_replicas(o));
    up_flag(c, "--peer-timeout", up_text(b, "%.15g", o->peer_timeout_s));
    if (o->elastic_tp) {
        up_arg(c, "--elastic-tp");
        up_flag(c, "--elastic-tp-wait", up_text(b, "%.15g", o->elastic_tp_wait_s));
    }
    if (o->served_model_names.n_items > 0)
        up_flag(c, "--model", o->served_model_names.items[0]);
    up_flags_of_names(b, c);
    up_flag_if(b, c, "--max-num-seqs", o->max_num_seqs);
    up_flag_if(b, c, "--max-num-batched-tokens", o->max_num_batched_tokens);
    up_flag_if(b, c, "--max-waiting", o->max_waiting);
    up_flag_if(b, c, "--max-waiting-per-key", o->max_waiting_per_key);
    up_flag_int(b, c, "--max-request-bytes", o->max_request_bytes);
    up_flag_if(b, c, "--long-prefill-token-threshold", o->long_prefill_token_threshold);
    up_flag_int(b, c, "--step-target-ms", o->step_target_ms);
    if (!o->enable_prefix_caching)
        up_arg(c, "--no-enable-prefix-caching");
    if (!o->async_scheduling)
        up_arg(c, "--no-async-scheduling");
    up_flag(c, "--scheduling-policy", scheduling_policies[o->scheduling_policy]);
    up_flag_int(b, c, "--max-num-partial-prefills", o->max_partial_prefills);
    up_flag(c, "--stats-interval", up_text(b, "%.15g", o->stats_interval_s));
    up_flag(c, "--stats-format", stats_formats[o->stats_format]);
    up_flags_of_adapters(b, c);
    for (size_t i = 0; i < o->lora_modules.n_items; i++)
        up_flag(c, "--lora-modules", o->lora_modules.items[i]);
    up_flag(c, "--step-log",
            o->step_log && is_second ? up_text(b, "%s.standby", o->step_log) : o->step_log);
    up_flag_int(b, c, "--step-log-max-bytes", o->step_log_max_bytes);
}
