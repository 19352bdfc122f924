#include "cli/up/plan/gateway.h"

#include <string.h>

static const char *const invocations_forms[] = {"rolling", "async", "static", "tgi"};

static void flags_of_bounds(struct up_builder *b, struct up_child *c)
{
    const struct bounds_options *o = &b->o->bounds;
    up_flag_int(b, c, "--max-body-bytes", b->o->max_body_bytes);
    up_flag_int(b, c, "--max-body-bytes-total", o->max_body_bytes_total);
    up_flag_int(b, c, "--max-answer-bytes-total", o->max_answer_bytes_total);
    up_flag_int(b, c, "--min-transfer-rate", o->min_transfer_rate);
    up_flag(c, "--transfer-timeout", up_text(b, "%.15g", o->transfer_timeout_s));
    up_flag_of_list(b, c, "--allowed-hosts", &o->allowed_hosts);
}

static void flags_of_capacity(struct up_builder *b, struct up_child *c)
{
    const struct up_options *o = b->o;
    up_flag_int(b, c, "--max-state-bytes", o->max_state_bytes);
    up_flag_int(b, c, "--batch-lines", o->batch_lines);
    up_flag_int(b, c, "--max-connections", o->max_connections);
    up_flag_int(b, c, "--max-open-choices", o->max_open_choices);
    up_flag_int(b, c, "--tokenizer-threads", o->tokenizer_threads);
    up_flag_int(b, c, "--tokenizer-queue", o->tokenizer_queue);
    up_flag(c, "--queue-timeout", up_text(b, "%.15g", o->queue_timeout_s));
    up_flag(c, "--head-timeout", up_text(b, "%.15g", o->head_timeout_s));
    up_flag(c, "--pause-timeout", up_text(b, "%.15g", o->pause_timeout_s));
}

static void flags_of_front(struct up_builder *b, struct up_child *c)
{
    const struct front_options *f = &b->o->front;
    up_flag_of_list(b, c, "--allowed-origins", &f->allowed_origins);
    up_flag_of_list(b, c, "--allowed-methods", &f->allowed_methods);
    up_flag_of_list(b, c, "--allowed-headers", &f->allowed_headers);
    if (f->allow_credentials)
        up_arg(c, "--allow-credentials");
    if (f->request_id_headers)
        up_arg(c, "--enable-request-id-headers");
    up_flag(c, "--root-path", f->root_path);
    up_flag(c, "--access-log", f->access_log);
    if (f->no_chat_page)
        up_arg(c, "--no-chat-page");
}

/* Writes the options of tracing. The private key's password is passed in the environment, as API
 * keys are. */
static void flags_of_trace(struct up_builder *b, struct up_child *c)
{
    const struct trace_options *t = &b->o->trace;
    if (!t->endpoint)
        return;
    /* an endpoint that contains a user name is passed in the environment
     * (up_machine_export_secrets) */
    if (!strchr(t->endpoint, '@'))
        up_flag(c, "--otlp-traces-endpoint", t->endpoint);
    up_flag(c, "--otlp-service-name", t->service_name);
    up_flag(c, "--otlp-sampling", up_text(b, "%.17g", t->sampling));
}

static void flags_of_ssl(struct up_builder *b, struct up_child *c)
{
    const struct ssl_options *s = &b->o->ssl;
    up_flag(c, "--ssl-certfile", s->certfile);
    up_flag(c, "--ssl-keyfile", s->keyfile);
    up_flag(c, "--ssl-ca-certs", s->ca_certs);
    up_flag(c, "--ssl-ciphers", s->ciphers);
    if (s->cert_reqs > 0)
        up_flag_int(b, c, "--ssl-cert-reqs", s->cert_reqs);
    if (!s->refresh)
        up_arg(c, "--no-enable-ssl-refresh");
}

static void flags_of_listeners(struct up_builder *b, struct up_child *c, uint32_t i)
{
    const struct up_options *o = b->o;
    if (o->uds) {
        up_flag(c, "--uds", i == 0 ? o->uds : up_text(b, "%s.%u", o->uds, i));
    } else {
        up_listens(b, c, "", "--port", o->host, o->port + i);
        up_flag(c, "--host", o->host);
        up_flag_int(b, c, "--port", o->port + i);
    }
    /* The option is always written, because COX_ADMIN_PORT in the environment is the head's
     * port. */
    int64_t admin_port = o->gateway_admin_port + (o->gateway_admin_port > 0 ? i : 0);
    up_flag_int(b, c, "--admin-port", admin_port);
    if (admin_port < 0)
        return;
    up_listens(b, c, "'s admin API", "--gateway-admin-port", o->gateway_admin_host, admin_port);
    up_flag(c, "--admin-host", o->gateway_admin_host);
}

void up_build_gateway(struct up_builder *b, struct up_child *c, uint32_t i)
{
    const struct up_options *o = b->o;
    c->role = UP_GATEWAY;
    c->name = up_text(b, "gateway-%u", i);
    up_common(b, c, "cox-gateway");
    if (b->place->models_file) {
        up_flag(c, "--models", b->place->models_file);
    } else {
        up_flag(c, "--model", b->model);
        up_flag(c, "--head", up_heads(b));
    }
    flags_of_listeners(b, c, i);
    flags_of_ssl(b, c);
    flags_of_trace(b, c);
    up_flag(c, "--cache-dir", o->cache_dir);
    up_flag(c, "--chat-template", o->chat_template);
    up_flag(c, "--api-key-file", o->api_key_file);
    if (o->enable_lora)
        up_flag(c, "--admin-key-file", o->admin_key_file);
    if (o->state_dir)
        up_flag(c, "--state-dir", up_text(b, "%s/gateway-%u", o->state_dir, i));
    if (o->shutdown_timeout_s > 0)
        up_flag(c, "--shutdown-timeout", up_text(b, "%.15g", o->shutdown_timeout_s));
    up_flag(c, "--sse-keep-alive-interval", up_text(b, "%.15g", o->keep_alive_s));
    up_flag(c, "--reasoning-parser", o->reasoning_parser);
    up_flag(c, "--pooler-config", o->pooler_config);
    up_flag(c, "--structured-outputs-config", o->structured_outputs_config);
    if (o->disable_any_whitespace)
        up_arg(c, "--disable-any-whitespace");
    up_flag_int(b, c, "--grammar-processes", o->grammar_processes);
    up_flag_int(b, c, "--grammar-memory", o->grammar_memory);
    up_flag(c, "--tool-call-parser", o->tool_call_parser);
    if (o->enable_auto_tool_choice)
        up_arg(c, "--enable-auto-tool-choice");
    if (o->trust_request_chat_template)
        up_arg(c, "--trust-request-chat-template");
    up_flag_int(b, c, "--max-logprobs", o->max_logprobs);
    if (o->unknown_fields)
        up_flag(c, "--unknown-fields", o->unknown_fields == 1 ? "warn" : "ignore");
    if (o->sagemaker)
        up_arg(c, "--sagemaker");
    if (o->invocations)
        up_flag(c, "--invocations", invocations_forms[o->invocations]);
    for (size_t k = 0; k < o->invocations_statuses.n_items; k++)
        up_flag(c, "--invocations-statuses", o->invocations_statuses.items[k]);
    if (o->chunk_timeout_s > 0)
        up_flag(c, "--chunk-timeout", up_text(b, "%.15g", o->chunk_timeout_s));
    flags_of_bounds(b, c);
    flags_of_capacity(b, c);
    flags_of_front(b, c);
    up_flag(c, "--generation-config", o->generation_config);
    if (!b->place->models_file)
        up_flags_of_names(b, c);
    /* --api-key is passed in the environment, since every user can read a command line */
}
