#pragma once
/* `gateway_options` holds the options of cox-gateway: one table, parsed once in main, const
 * afterwards. */
#include "common/options/bounds.h"
#include "common/options/front.h"
#include "common/options/ssl.h"
#include "common/options/trace.h"

/* The values have the same order as INVOCATIONS_FORMS (rows.h). */
enum invocations_form {
    INVOCATIONS_ROLLING,
    INVOCATIONS_ASYNC,
    INVOCATIONS_STATIC,
    INVOCATIONS_TGI
};

struct gateway_config {
    const char *model, *chat_template, *cache_dir;
    const char *models; /* path of the file of models; NULL = one model, from the other options */
    struct option_list served_model_names;
    const char *head, *keys_dir;
    bool insecure, allow_remote_insecure;
    const char *host, *admin_host, *uds;
    int64_t port, admin_port; /* ports to listen on; admin_port -1 = no separate port */
    struct option_list api_keys;
    const char *api_key_file, *redis;
    bool metrics_public;
    int64_t max_body_bytes, max_connections, max_open_choices;
    int64_t tokenizer_threads, tokenizer_queue, grammar_processes, grammar_memory;
    double queue_timeout_s, head_timeout_s, pause_timeout_s, shutdown_timeout_s, shutdown_delay_s;
    double keep_alive_s, chunk_timeout_s;
    int log_level, log_format;
    const char *admin_key_file;
    const char *state_dir;
    int64_t max_state_bytes, batch_lines;
    struct bounds_options bounds;
    struct front_options front;
    struct trace_options trace;
    struct ssl_options ssl;
    const char *generation_config;
    const char *reasoning_parser, *tool_call_parser, *pooler_config;
    const char *structured_outputs_config;
    bool enable_auto_tool_choice, trust_request_chat_template, disable_any_whitespace;
    int64_t max_logprobs;
    int unknown_fields; /* value of enum unknown_fields */
    int invocations;    /* value of enum invocations_form */
    struct option_list invocations_statuses;
    bool sagemaker;
    /* true = fetch no model; for `cox gateway` only, because cox-gateway never fetches a model */
    bool offline;
};

extern const struct option_spec gateway_options[];
extern const size_t n_gateway_options;
