#include "common/options/gateway.h"

#include "common/options/bounds.h"
#include "common/options/capacity.h"
#include "common/options/front.h"
#include "common/options/model.h"
#include "common/options/rows.h"
#include "common/options/structured.h"

#define S gateway_config

const struct option_spec gateway_options[] = {
    OPT_STRING(S, model, "model", NULL, MODEL_HELP),
    OPT_WORDS(
        S, served_model_names, "served-model-name", WORDS_ARE_VALUES,
        "names in /v1/models and in requests, the first one in answers; several, or repeated; "
        "default: the model's own"),
    OPT_STRING(
        S, chat_template, "chat-template", NULL,
        "file, name of a built-in template, or the template in one line; default: the model's "
        "own"),
    ROW_CACHE_DIR(S),
    ROW_OFFLINE(S, offline),
    OPT_STRING(S, head, "head", "127.0.0.1:7000",
               "the head's HOST:PORT; of several heads all, A:7000,B:7000"),
    OPT_STRING(S, keys_dir, "keys-dir", NULL, "folder with gateway.key, gateway.pub and head.pub"),
    OPT_BOOL(S, insecure, "insecure", NULL, "no encryption, no keys: a head on this machine only"),
    OPT_BOOL(S, allow_remote_insecure, "allow-remote-insecure", NULL,
             "--insecure to a head on another machine"),
    OPT_STRING(S, host, "host", "127.0.0.1", "address to listen on"),
    OPT_INT(S, port, "port", 0, 65535, "8000", "HTTP port; 0: any free one"),
    OPT_STRING(S, uds, "uds", NULL,
               "path of a Unix socket to listen on in place of --host and --port"),
    ROW_API_KEY(S),
    ROW_API_KEY_FILE(S),
    ROW_REDIS(S),
    OPT_STRING(S, admin_key_file, "admin-key-file", NULL,
               "File with the keys of the calls that load and unload adapters, a line each: KEY "
               "[NAME]. Without it there are no such calls."),
    OPT_STRING(S, admin_host, "admin-host", "127.0.0.1", "address of --admin-port"),
    OPT_INT(S, admin_port, "admin-port", -1, 65535, "-1",
            "port for admin routes, /metrics, /livez and /readyz; 0: any free one; -1: they are at "
            "--port"),
    OPT_BOOL(S, metrics_public, "metrics-public", NULL,
             "/metrics needs no key even when requests do, or --admin-port is set"),
    ROW_MAX_BODY_BYTES(S),
    ROWS_BOUNDS(S),
    OPT_STRING(S, state_dir, "state-dir", NULL,
               "folder of uploaded files and batches; each gateway has its own; without it there "
               "are none"),
    ROWS_CAPACITY(S),
    OPT_FLOAT(S, shutdown_timeout_s, "shutdown-timeout", 0, 86400, "3600",
              "Seconds that open requests may go on after SIGTERM (default 3600). Whoever sends "
              "SIGKILL later has to wait about ten seconds longer: open streams are then told that "
              "they were ended."),
    OPT_FLOAT(
        S, shutdown_delay_s, "shutdown-delay", 0, 3600, "0",
        "seconds after SIGTERM in which requests are still taken while probes say no already, "
        "for a balancer that hears of it late; --shutdown-timeout begins behind them"),
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
