#pragma once
/* Defines rows that the option tables of several programs share, so that a flag has the same
 * meaning and help everywhere. S is the struct that the table fills. */
#include "common/config/config.h"
#include "common/options/texts.h"

/* ROW_SIZE is for --tp and --pp, at most 1024, with vLLM's long name as alias. */
#define ROW_SIZE(S, field, nm, alias, h)                                                           \
    {                                                                                              \
        .name = nm, .aliases = alias, .type = OPTION_INT, .offset = offsetof(struct S, field),     \
        .min = 1, .max = 1024, .def = "1", .help = h                                               \
    }
/* ROW_CACHE_DIR is the row of --cache-dir. Its alias makes COX_CACHE name the folder for every
 * program. */
#define ROW_CACHE_DIR(S)                                                                           \
    {                                                                                              \
        .name = "cache-dir", .aliases = "cache", .type = OPTION_STRING,                            \
        .offset = offsetof(struct S, cache_dir),                                                   \
        .help = "Folder of downloaded models and compiled tokenizers. Default: "                   \
                "~/.cache/coxswain. COX_CACHE sets it for all programs."                           \
    }
#define ROW_OFFLINE(S, field)                                                                      \
    {                                                                                              \
        .name = "offline", .type = OPTION_BOOL, .offset = offsetof(struct S, field),               \
        .env = "HF_HUB_OFFLINE,TRANSFORMERS_OFFLINE",                                              \
        .help = "Download nothing: a model that is missing in the cache is an error. Default: "    \
                "`cox` downloads a missing model as `cox pull` does."                              \
    }
#define ROW_API_KEY(S)                                                                             \
    {                                                                                              \
        .name = "api-key", .type = OPTION_LIST, .offset = offsetof(struct S, api_keys),            \
        .help = "API key that requests must have. Repeat the option for several keys.",            \
        .secret = true, .env = "VLLM_API_KEY"                                                      \
    }
#define ROW_API_KEY_FILE(S)                                                                        \
    OPT_STRING(S, api_key_file, "api-key-file", NULL,                                              \
               "File with one API key per line, as KEY or sha256:HEX. After the key a line may "   \
               "contain a tenant, rate=R, tokens=N, streams=N, priority=N, slo_ttft_ms=N and "     \
               "models=A,B. # begins a comment. The gateway reads a changed file again.")
#define ROW_REDIS(S)                                                                               \
    {                                                                                              \
        .name = "redis", .type = OPTION_STRING, .offset = offsetof(struct S, redis),               \
        .help = "URL of the Redis in which all gateways share their counts for the quotas of API " \
                "keys: redis://[[USER]:PASSWORD@]HOST[:PORT][/DB] or "                             \
                "unix://[[USER]:PASSWORD@]/PATH[?db=DB]. For a URL with a password, prefer "       \
                "COX_REDIS, since other users can see a command line.",                            \
        .secret = true                                                                             \
    }
#define LEASE_TTL_MAX_S 60
#define ROW_LEASE_TTL(S)                                                                           \
    OPT_FLOAT(S, lease_ttl_s, "lease-ttl", 0.5, LEASE_TTL_MAX_S, "2",                              \
              "Seconds after which a standby may replace a head that no longer renews its lease.")
#define ROW_LONG_PREFILL(S)                                                                        \
    OPT_INT(S, long_prefill_token_threshold, "long-prefill-token-threshold", 0, 1 << 20, "0",      \
            "Maximum number of tokens of one prompt in one step. 0 = no limit on a GPU, 256 on a " \
            "CPU.")
#define ROW_PARTIAL_PREFILLS(S)                                                                    \
    OPT_INT(                                                                                       \
        S, max_partial_prefills, "max-num-partial-prefills", 0, 65536, "8",                        \
        "Maximum number of prompts that may be partly computed at the same time. 0 = no limit.")
#define ROW_STATS_INTERVAL(S)                                                                      \
    OPT_FLOAT(S, stats_interval_s, "stats-interval", -1, 86400, "-1",                              \
              "Seconds between two statistics lines in the log while requests run. 0 = no lines. " \
              "-1 = 10 seconds, or 5 with --stats-format vllm0.")
#define ROW_STATS_FORMAT(S)                                                                        \
    OPT_ENUM(S, stats_format, "stats-format", "vllm|vllm0", "vllm",                                \
             "Wording of the statistics line. vllm: as in vLLM's current engine. vllm0: as in "    \
             "vLLM's first engine.")
#define ROW_STEP_TARGET(S)                                                                         \
    OPT_INT(S, step_target_ms, "step-target-ms", -1, 60000, "-1",                                  \
            "Target time of a step in milliseconds. Prompts are split so that a step takes about " \
            "this long. 0 = no target. -1 = 250 on CPUs, no target on other devices.")
#define ROW_PREFIX_CACHING(S)                                                                      \
    OPT_BOOL(S, enable_prefix_caching, "enable-prefix-caching", "true",                            \
             "Keep the KV blocks of prompts for later requests with the same prefix.")
#define ROW_SCHEDULING_POLICY(S)                                                                   \
    OPT_ENUM(S, scheduling_policy, "scheduling-policy", "fcfs|priority", "fcfs",                   \
             "Order of waiting requests. fcfs: first come, first served. priority: requests may "  \
             "set a priority, and lower values go first.")
#define ROW_ASYNC_SCHEDULING(S)                                                                    \
    OPT_BOOL(S, async_scheduling, "async-scheduling", "true",                                      \
             "Send step k+1 to the workers before the result of step k has arrived.")
#define ROW_STEP_LOG(S)                                                                            \
    OPT_STRING(S, step_log, "step-log", NULL,                                                      \
               "File that records the input and the plans of the schedulers, for `cox replay`. "   \
               "It contains the token ids of all texts.")
#define ROW_STEP_LOG_MAX(S)                                                                        \
    OPT_INT(S, step_log_max_bytes, "step-log-max-bytes", 0, 1ll << 50, "1073741824",               \
            "Maximum size of the step log in bytes; recording stops there. 0 = no limit.")
#define ROW_GENERATION_CONFIG(S)                                                                   \
    OPT_STRING(S, generation_config, "generation-config", "vllm",                                  \
               "Source of the defaults of temperature, top_p, top_k, min_p and "                   \
               "repetition_penalty. vllm: OpenAI's defaults, but the makers' for the model demo. " \
               "auto: the model's generation_config.json. A folder: the generation_config.json "   \
               "in it.")
#define ROW_KEEP_ALIVE(S)                                                                          \
    OPT_FLOAT(S, keep_alive_s, "sse-keep-alive-interval", 0, 3600, "15",                           \
              "Seconds of silence after which a stream gets a comment line that keeps the "        \
              "connection open. 0 = never.")
#define SAGEMAKER_HELP "Answer /ping and /v1/chat/completions as DJL Serving does on SageMaker."
#define ROW_CHUNK_TIMEOUT(S)                                                                       \
    OPT_FLOAT(S, chunk_timeout_s, "chunk-timeout", 0, 86400, "0",                                  \
              "Seconds without a token after which the connection of a request is closed. 0 = no " \
              "limit.")
#define INVOCATIONS_FORMS "rolling|async|static|tgi"
#define INVOCATIONS_HELP                                                                           \
    "Behaviour of /invocations, as in DJL Serving. rolling: as with `rolling_batch=vllm`. async: " \
    "as with `async_mode`. static: as without both, with lists of inputs in static batches. tgi: " \
    "as with `tgi_compat`."
#define ROW_INVOCATIONS_STATUSES(S)                                                                \
    OPT_WORDS(S, invocations_statuses, "invocations-statuses", WORDS_ARE_VALUES,                   \
              "HTTP statuses of errors at /invocations, as NAME=STATUS. DJL's statuses are the "   \
              "defaults: bad_request=400, throttle_error=503, wlm_error=503, server_error=500, "   \
              "timeout=504.")
#define ROW_MAX_BODY_BYTES(S)                                                                      \
    OPT_INT(S, max_body_bytes, "max-body-bytes", 1024, 1 << 30, "16Mi",                            \
            "Maximum bytes of one request body. Larger bodies get status 413.")
#define ROWS_ANSWERS(S)                                                                            \
    OPT_STRING(                                                                                    \
        S, reasoning_parser, "reasoning-parser", NULL,                                             \
        "Parser that separates the model's reasoning from its answer. The names are vLLM's: "      \
        "cohere_command3, cohere_command4, deepseek_r1, deepseek_v3, deepseek_v4, deepseek_v41, "  \
        "ernie45, gemma4, glm45, glm47, granite, granite_thinking_parser, holo2, hunyuan_a13b, "   \
        "hy_v3, hy_v4, inkling, k2_horizon, kimi_k2, kimi_k3, ling3, mimo, minicpmv, minimax_m2, " \
        "minimax_m2_append_think, minimax_m3, mistral, muse, muse_glimmer, musespark1x, "          \
        "nemotron_v3, olmo3, openai_gptoss, plamo3, poolside_v1, qwen3, seed_oss, step3, "         \
        "step3p5, step5. Default: the reasoning stays in the text."),                              \
        OPT_STRING(                                                                                \
            S, tool_call_parser, "tool-call-parser", NULL,                                         \
            "Parser that finds tool calls in the model's answer. The names are vLLM's: apertus, "  \
            "cohere_command3, cohere_command4, deepseek_v3, deepseek_v31, deepseek_v32, "          \
            "deepseek_v4, deepseek_v41, dots, ernie45, functiongemma, gemma4, gigachat3, glm45, "  \
            "glm47, granite, granite-20b-fc, granite4, hermes, hunyuan_a13b, hy_v3, hy_v4, "       \
            "inkling, internlm, jamba, k2_horizon, kimi_k2, kimi_k3, lfm2, ling3, llama3_json, "   \
            "llama4_json, llama4_pythonic, longcat, mimo, minicpm5, minimax, minimax_m2, "         \
            "minimax_m3, mistral, muse, muse_glimmer, musespark1x, olmo3, openai, "                \
            "phi4_mini_json, plamo3, poolside_v1, pythonic, qwen3_coder, qwen3_json, qwen3_xml, "  \
            "seed_oss, step3, step3p5, step5, xlam. Default: tool calls stay in the text."),       \
        OPT_BOOL(S, enable_auto_tool_choice, "enable-auto-tool-choice", NULL,                      \
                 "Let the model decide whether it calls a tool (tool_choice \"auto\"). Needs "     \
                 "--tool-call-parser."),                                                           \
        OPT_BOOL(S, trust_request_chat_template, "trust-request-chat-template", NULL,              \
                 "Allow requests to contain their own chat template."),                            \
        OPT_INT(S, max_logprobs, "max-logprobs", 0, 64, "20",                                      \
                "Maximum value of logprobs, top_logprobs and prompt_logprobs in a request."),      \
        OPT_STRING(S, pooler_config, "pooler-config", NULL,                                        \
                   "Embedding settings, as vLLM's JSON. enable_chunked_processing embeds texts "   \
                   "that are longer than the context in pieces and joins their vectors. "          \
                   "max_embed_len limits the length of a text in tokens."),                        \
        OPT_ENUM(S, unknown_fields, "unknown-fields", "refuse|warn|ignore", "refuse",              \
                 "Handling of request fields that this server does not know. refuse: answer with " \
                 "status 400 and the field's name. warn: log a warning. ignore: do nothing.")
#define ROW_LOAD_FORMAT(S)                                                                         \
    OPT_ENUM(S, load_format, "load-format", "auto|dummy|safetensors|gguf|pt", "auto",              \
             "Format of the weights to read. auto: the format that the model has. dummy: random "  \
             "weights in the shapes of config.json.")
#define ROW_QUANTIZATION(S, field)                                                                 \
    OPT_ENUM(S, field, "quantization", "none|int8|int4|fp8", "none", QUANTIZATION_HELP)
#define ROW_DTYPE(S) OPT_ENUM(S, dtype, "dtype", ACTIVATION_DTYPES, "auto", ACTIVATION_DTYPE_HELP)
#define ROW_WEIGHTS_SHARE(S)                                                                       \
    OPT_STRING(S, weights_share, "weights-share", "auto", WEIGHTS_SHARE_HELP)
#define ROW_CPU_ISA(S)                                                                             \
    {                                                                                              \
        .name = "cpu-isa", .aliases = "isa", .type = OPTION_ENUM,                                  \
        .offset = offsetof(struct S, cpu_isa), .choices = "auto|scalar|avx2|avx512|neon",          \
        .def = "auto",                                                                             \
        .help = "Highest CPU instruction set that the kernels use. auto: the best one of this "    \
                "CPU, with the extensions VNNI, BF16 and AMX, or dotprod and i8mm. The other "     \
                "values use no extensions. neon is for arm64."                                     \
    }
#define ROW_NCCL_LIBRARY(S)                                                                        \
    OPT_STRING(S, nccl_library, "nccl-library", NULL,                                              \
               "NCCL library for ranks on GPUs, as a path or a name. Default: libnccl.so.2.")
#define ROW_ZONE(S)                                                                                \
    OPT_STRING(                                                                                    \
        S, zone, "zone", NULL,                                                                     \
        "Location of this host, such as its rack or zone. The head uses it to place ranks.")
#define ROW_STEP_TIMEOUT(S)                                                                        \
    OPT_INT(S, step_timeout_s, "step-timeout", 1, 3600, "60",                                      \
            "Seconds that a GPU may take for one step, and that ranks may wait for each other in " \
            "a step. A GPU or a rank that takes longer counts as failed.")
#define ROW_ELASTIC_TP(S)                                                                          \
    OPT_BOOL(S, elastic_tp, "elastic-tp", NULL,                                                    \
             "Let a replica that lost a rank, and has no spare for it, serve with a smaller "      \
             "tensor parallel size until a worker replaces the rank. Set the option for the head " \
             "and for all workers.")
#define ROW_ELASTIC_TP_WAIT(S)                                                                     \
    {                                                                                              \
        .name = "elastic-tp-wait", .type = OPTION_FLOAT,                                           \
        .offset = offsetof(struct S, elastic_tp_wait_s), .min = 0, .max = 3600, .def = "5",        \
        .help = "Seconds that a replica waits for all of its ranks before it serves with fewer. "  \
                "Needs --elastic-tp.",                                                             \
        .needs = "elastic-tp"                                                                      \
    }
#define ROW_LOG_LEVEL(S)                                                                           \
    OPT_ENUM(S, log_level, "log-level", "debug|info|warn|error", "info",                           \
             "Lowest level that is logged.")
#define ROW_LOG_FORMAT(S)                                                                          \
    OPT_ENUM(S, log_format, "log-format", "logfmt|json", "logfmt",                                 \
             "Format of the log, one event per line.")
