#include "common/options/gateway.h"

#include "common/options/bounds.h"
#include "common/options/capacity.h"
#include "common/options/front.h"
#include "common/options/rows.h"
#include "common/options/structured.h"

#define S gateway_config

const struct option_spec gateway_options[] = {
    OPT_STRING(S, model, "model", NULL, MODEL_HELP),
    OPT_WORDS(S, served_model_names, "served-model-name", WORDS_ARE_VALUES,
              "Names of the model in /v1/models and in requests. Answers contain the first one. "
              "Give several values or repeat the option. Default: the model's own name."),
    OPT_STRING(
        S, models, "models", NULL,
        "YAML file with several models, each with its head, or URL of a Redis with this text in "
        "the key cox:models, as for --redis; # and another key may follow. The gateway reads the "
        "text again when it changes. It replaces --model, --served-model-name and --head."),
    OPT_STRING(S, chat_template, "chat-template", NULL,
               "Chat template: a file, the name of a built-in template, or the template itself in "
               "one line. Default: the model's own."),
    ROW_CACHE_DIR(S),
    ROW_OFFLINE(S, offline),
    OPT_STRING(S, head, "head", "127.0.0.1:7000",
               "HOST:PORT of the head. Separate several heads with commas: A:7000,B:7000."),
    OPT_STRING(S, keys_dir, "keys-dir", NULL,
               "Folder with the files gateway.key, gateway.pub and head.pub."),
    OPT_BOOL(S, insecure, "insecure", NULL,
             "Use no encryption and no keys. Allowed with a head on this machine only."),
    OPT_BOOL(S, allow_remote_insecure, "allow-remote-insecure", NULL,
             "Allow --insecure with a head on another machine."),
    OPT_STRING(S, host, "host", "127.0.0.1", "Address to listen on."),
    OPT_INT(S, port, "port", 0, 65535, "8000", "HTTP port. 0 = any free port."),
    OPT_STRING(S, uds, "uds", NULL,
               "Path of a Unix socket to listen on instead of --host and --port."),
    ROW_API_KEY(S),
    ROW_API_KEY_FILE(S),
    ROW_REDIS(S),
    OPT_STRING(S, admin_key_file, "admin-key-file", NULL,
               "File with the keys of the calls that load and unload adapters, one line each: KEY "
               "[NAME]. Without it these calls do not exist."),
    OPT_STRING(S, admin_host, "admin-host", "127.0.0.1", "Address that --admin-port listens on."),
    OPT_INT(S, admin_port, "admin-port", -1, 65535, "-1",
            "Port of the admin routes, /metrics, /livez and /readyz. 0 = any free port. -1 = these "
            "routes are at --port."),
    OPT_BOOL(S, metrics_public, "metrics-public", NULL,
             "Serve /metrics without a key, even when requests need one or --admin-port is set."),
    ROW_MAX_BODY_BYTES(S),
    ROWS_BOUNDS(S),
    OPT_STRING(S, state_dir, "state-dir", NULL,
               "Folder for uploaded files and batches. Each gateway needs its own. Without it "
               "there is no Files and Batches API."),
    ROWS_CAPACITY(S),
    OPT_FLOAT(S, shutdown_timeout_s, "shutdown-timeout", 0, 86400, "3600",
              "Seconds that open requests may continue after SIGTERM. Send SIGKILL at least ten "
              "seconds later, because open streams are first told that they have ended."),
    OPT_FLOAT(S, shutdown_delay_s, "shutdown-delay", 0, 3600, "0",
              "Seconds after SIGTERM in which requests are still accepted while the probes already "
              "fail, for a slow load balancer. --shutdown-timeout begins after it."),
    ROW_KEEP_ALIVE(S),
    ROW_CHUNK_TIMEOUT(S),
    ROWS_ANSWERS(S),
    ROWS_STRUCTURED(S),
    OPT_BOOL(S, sagemaker, "sagemaker", NULL, SAGEMAKER_HELP),
    OPT_ENUM(S, invocations, "invocations", INVOCATIONS_FORMS, "rolling", INVOCATIONS_HELP),
    ROW_INVOCATIONS_STATUSES(S),
    ROWS_SSL(S),
    ROWS_FRONT(S),
    ROWS_TRACE(S),
    ROW_GENERATION_CONFIG(S),
    ROW_LOG_LEVEL(S),
    ROW_LOG_FORMAT(S),
};
#undef S

const size_t n_gateway_options = sizeof gateway_options / sizeof *gateway_options;
