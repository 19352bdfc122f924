#pragma once
/* Rows that the option tables of several programs share, so that a flag has the same meaning and
 * help everywhere. S is the struct that the table fills. */
#include "common/config/config.h"

/* --tp and --pp, at most 1024, with vLLM's long name as alias. */
#define ROW_SIZE(S, field, nm, alias, h)                                                           \
    {                                                                                              \
        .name = nm, .aliases = alias, .type = OPTION_INT, .offset = offsetof(struct S, field),     \
        .min = 1, .max = 1024, .def = "1", .help = h                                               \
    }
/* The alias makes COX_CACHE name the folder for every program. */
#define ROW_CACHE_DIR(S)                                                                           \
    {                                                                                              \
        .name = "cache-dir", .aliases = "cache", .type = OPTION_STRING,                            \
        .offset = offsetof(struct S, cache_dir),                                                   \
        .help = "models and compiled tokenizers; default: ~/.cache/coxswain (COX_CACHE)"           \
    }
#define ROW_API_KEY(S)                                                                             \
    {                                                                                              \
        .name = "api-key", .type = OPTION_LIST, .offset = offsetof(struct S, api_keys),            \
        .help = "key that requests must carry; repeatable", .secret = true, .env = "VLLM_API_KEY"  \
    }
#define ROW_API_KEY_FILE(S)                                                                        \
    OPT_STRING(S, api_key_file, "api-key-file", NULL,                                              \
               "file with a line per key, read again when it changes: KEY or sha256:HEX, then "    \
               "[tenant] [rate=R] [tokens=N] [streams=N] [priority=N] [models=A,B]; # begins a "   \
               "comment")
#define ROW_REDIS(S)                                                                               \
    {                                                                                              \
        .name = "redis", .type = OPTION_STRING, .offset = offsetof(struct S, redis),               \
        .help = "a Redis in which gateways count for keys together: "                              \
                "redis://[[USER]:PASSWORD@]HOST[:PORT][/DB] or "                                   \
                "unix://[[USER]:PASSWORD@]/PATH[?db=DB] (with a password better: COX_REDIS)",      \
        .secret = true                                                                             \
    }
#define LEASE_TTL_MAX_S 60
#define ROW_LEASE_TTL(S)                                                                           \
    OPT_FLOAT(S, lease_ttl_s, "lease-ttl", 0.5, LEASE_TTL_MAX_S, "2",                              \
              "seconds after which a head that is gone may be followed by one that waits")
#define ROW_LONG_PREFILL(S)                                                                        \
    OPT_INT(S, long_prefill_token_threshold, "long-prefill-token-threshold", 0, 1 << 20, "0",      \
            "most tokens of one prompt in one step; 0: the budget, on a CPU 256")
#define ROW_PARTIAL_PREFILLS(S)                                                                    \
    OPT_INT(S, max_partial_prefills, "max-num-partial-prefills", 0, 65536, "8",                    \
            "prompts that are partly computed at once; 0: as many as there is room for")
#define ROW_STATS_INTERVAL(S)                                                                      \
    OPT_FLOAT(S, stats_interval_s, "stats-interval", -1, 86400, "-1",                              \
              "seconds between stats lines in the log while something runs; 0: none; -1: 10, "     \
              "with vllm0 5")
#define ROW_STATS_FORMAT(S)                                                                        \
    OPT_ENUM(S, stats_format, "stats-format", "vllm|vllm0", "vllm",                                \
             "words of the stats line: vLLM's, or those of its first engine")
#define ROW_STEP_TARGET(S)                                                                         \
    OPT_INT(                                                                                       \
        S, step_target_ms, "step-target-ms", -1, 60000, "-1",                                      \
        "milliseconds: prompts are cut so that a step takes about this long, on every device; "    \
        "0: off; -1: 250 on CPUs, elsewhere off")
#define ROW_PREFIX_CACHING(S)                                                                      \
    OPT_BOOL(S, enable_prefix_caching, "enable-prefix-caching", "true",                            \
             "keep the KV blocks of prompts for later requests")
#define ROW_SCHEDULING_POLICY(S)                                                                   \
    OPT_ENUM(S, scheduling_policy, "scheduling-policy", "fcfs|priority", "fcfs",                   \
             "priority: requests may say theirs, lower is sooner; fcfs: they may not")
#define ROW_ASYNC_SCHEDULING(S)                                                                    \
    OPT_BOOL(S, async_scheduling, "async-scheduling", "true",                                      \
             "send step k+1 before the result of step k")
#define ROW_STEP_LOG(S)                                                                            \
    OPT_STRING(S, step_log, "step-log", NULL,                                                      \
               "file for all that the schedulers are told and plan, for cox replay: it holds the " \
               "token ids of all texts")
#define ROW_STEP_LOG_MAX(S)                                                                        \
    OPT_INT(S, step_log_max_bytes, "step-log-max-bytes", 0, 1ll << 50, "1073741824",               \
            "the step log ends at this size; 0: no bound")
#define ROW_GENERATION_CONFIG(S)                                                                   \
    OPT_STRING(                                                                                    \
        S, generation_config, "generation-config", "vllm",                                         \
        "where temperature, top_p, top_k, min_p and repetition_penalty of requests that do "       \
        "not say them come from: vllm: OpenAI's; auto: the model's "                               \
        "generation_config.json; or the folder of one")
#define ROW_KEEP_ALIVE(S)                                                                          \
    OPT_FLOAT(S, keep_alive_s, "sse-keep-alive-interval", 0, 3600, "15",                           \
              "seconds of silence after which a stream gets a comment line; 0: none")
#define SAGEMAKER_HELP "/ping and /v1/chat/completions answer as DJL Serving does on SageMaker"
#define ROW_CHUNK_TIMEOUT(S)                                                                       \
    OPT_FLOAT(S, chunk_timeout_s, "chunk-timeout", 0, 86400, "0",                                  \
              "seconds without a token after which a request's connection is closed; 0: none")
#define INVOCATIONS_FORMS "rolling|async|static|tgi"
#define INVOCATIONS_HELP                                                                           \
    "how /invocations answers: as DJL Serving does with rolling_batch=vllm, with async_mode, "     \
    "with "                                                                                        \
    "neither (lists, static batches), or with tgi_compat"
#define ROW_INVOCATIONS_STATUSES(S)                                                                \
    OPT_WORDS(S, invocations_statuses, "invocations-statuses", WORDS_ARE_VALUES,                   \
              "statuses of /invocations in place of DJL's: bad_request=400, throttle_error=503, "  \
              "wlm_error=503, server_error=500, timeout=504")
#define ROW_MAX_BODY_BYTES(S)                                                                      \
    OPT_INT(S, max_body_bytes, "max-body-bytes", 1024, 1 << 30, "16Mi",                            \
            "larger request bodies get 413")
#define ROWS_ANSWERS(S)                                                                            \
    OPT_STRING(                                                                                    \
        S, reasoning_parser, "reasoning-parser", NULL,                                             \
        "how the model marks its reasoning, by vLLM's names: cohere_command3, cohere_command4, "   \
        "deepseek_r1, deepseek_v3, deepseek_v4, deepseek_v41, ernie45, gemma4, glm45, glm47, "     \
        "granite, granite_thinking_parser, holo2, hunyuan_a13b, hy_v3, hy_v4, inkling, "           \
        "k2_horizon, kimi_k2, kimi_k3, ling3, mimo, minicpmv, minimax_m2, "                        \
        "minimax_m2_append_think, minimax_m3, mistral, muse, muse_glimmer, musespark1x, "          \
        "nemotron_v3, olmo3, openai_gptoss, plamo3, poolside_v1, qwen3, seed_oss, step3, "         \
        "step3p5, step5; default: it stays in the text"),                                          \
        OPT_STRING(                                                                                \
            S, tool_call_parser, "tool-call-parser", NULL,                                         \
            "how the model writes calls of tools, by vLLM's names: apertus, cohere_command3, "     \
            "cohere_command4, deepseek_v3, deepseek_v31, deepseek_v32, deepseek_v4, "              \
            "deepseek_v41, dots, ernie45, functiongemma, gemma4, gigachat3, glm45, glm47, "        \
            "granite, granite-20b-fc, granite4, hermes, hunyuan_a13b, hy_v3, hy_v4, inkling, "     \
            "internlm, jamba, k2_horizon, kimi_k2, kimi_k3, lfm2, ling3, llama3_json, "            \
            "llama4_json, llama4_pythonic, longcat, mimo, minicpm5, minimax, minimax_m2, "         \
            "minimax_m3, mistral, muse, muse_glimmer, musespark1x, olmo3, openai, "                \
            "phi4_mini_json, plamo3, poolside_v1, pythonic, qwen3_coder, qwen3_json, qwen3_xml, "  \
            "seed_oss, step3, step3p5, step5, xlam"),                                              \
        OPT_BOOL(S, enable_auto_tool_choice, "enable-auto-tool-choice", NULL,                      \
                 "requests may leave it to the model whether it calls a tool; needs "              \
                 "--tool-call-parser"),                                                            \
        OPT_BOOL(S, trust_request_chat_template, "trust-request-chat-template", NULL,              \
                 "requests may bring a chat template of their own"),                               \
        OPT_INT(S, max_logprobs, "max-logprobs", 0, 64, "20",                                      \
                "the most that a request may ask for as logprobs, top_logprobs or "                \
                "prompt_logprobs"),                                                                \
        OPT_STRING(S, pooler_config, "pooler-config", NULL,                                        \
                   "JSON, as vLLM's: enable_chunked_processing (texts longer than the context "    \
                   "are embedded in pieces, whose vectors are joined), max_embed_len"),            \
        OPT_ENUM(S, unknown_fields, "unknown-fields", "refuse|warn|ignore", "refuse",              \
                 "what becomes of a request's fields that nobody knows; refuse: 400 by name")
#define ROW_LOAD_FORMAT(S)                                                                         \
    OPT_ENUM(S, load_format, "load-format", "auto|dummy|safetensors|gguf|pt", "auto",              \
             "which weights are read; dummy: none, they are random, as config.json says they are")
#define QUANTIZATION_HELP                                                                          \
    "what the matrices of a model in float32, float16 or bfloat16 are made into when they are "    \
    "loaded: int8 and int4 in blocks of 32, fp8 (e4m3) with a scale for each output"
#define ROW_QUANTIZATION(S, field)                                                                 \
    OPT_ENUM(S, field, "quantization", "none|int8|int4|fp8", "none", QUANTIZATION_HELP)
#define ROW_DTYPE(S) OPT_ENUM(S, dtype, "dtype", ACTIVATION_DTYPES, "auto", ACTIVATION_DTYPE_HELP)
#define ROW_CPU_ISA(S)                                                                             \
    {                                                                                              \
        .name = "cpu-isa", .aliases = "isa", .type = OPTION_ENUM,                                  \
        .offset = offsetof(struct S, cpu_isa), .choices = "auto|scalar|avx2|avx512|neon",          \
        .def = "auto",                                                                             \
        .help = "of a CPU, the highest instruction set that kernels use (neon: of arm64); auto: "  \
                "the best that it has, and VNNI, BF16 and AMX, or dotprod and i8mm, which the "    \
                "others leave out"                                                                 \
    }
#define ROW_NCCL_LIBRARY(S)                                                                        \
    OPT_STRING(S, nccl_library, "nccl-library", NULL,                                              \
               "the NCCL that ranks on GPUs talk by, a path or a name; default: libnccl.so.2")
#define ROW_ZONE(S)                                                                                \
    OPT_STRING(S, zone, "zone", NULL, "where this host is, for placement (rack, zone)")
#define ROW_STEP_TIMEOUT(S)                                                                        \
    OPT_INT(S, step_timeout_s, "step-timeout", 1, 3600, "60",                                      \
            "seconds that a GPU may take for a step, and that ranks may wait for each other in "   \
            "one, before they are given up")
#define GPU_MEMORY_HELP "of a GPU's memory a worker takes, what others have taken left out"
#define ENFORCE_EAGER_HELP                                                                         \
    "a GPU's passes are enqueued operator by operator, and none is recorded (no CUDA graphs)"
#define NO_ONE_SHOT_HELP                                                                           \
    "ranks on GPUs of one host leave small sums to NCCL as well, and none to memory that they "    \
    "map "                                                                                         \
    "from each other: slower, to find out what a fault is of"
#define NO_EARLY_LAUNCH_HELP                                                                       \
    "a GPU's kernels never begin before the one in front has ended (no programmatic dependent "    \
    "launch): slower, to find out what a fault is of"
#define ROW_ELASTIC_TP(S)                                                                          \
    OPT_BOOL(                                                                                      \
        S, elastic_tp, "elastic-tp", NULL,                                                         \
        "a group without spares that lost a rank serves with a smaller TP meanwhile (head and "    \
        "workers)")
#define ROW_ELASTIC_TP_WAIT(S)                                                                     \
    {                                                                                              \
        .name = "elastic-tp-wait", .type = OPTION_FLOAT,                                           \
        .offset = offsetof(struct S, elastic_tp_wait_s), .min = 0, .max = 3600, .def = "5",        \
        .help = "--elastic-tp: seconds that a group waits for all of its ranks",                   \
        .needs = "elastic-tp"                                                                      \
    }
#define ROW_ENABLE_LORA(S)                                                                         \
    OPT_BOOL(S, enable_lora, "enable-lora", NULL, "LoRA adapters can be loaded while it runs")
#define ROW_MAX_LORAS(S)                                                                           \
    OPT_INT(                                                                                       \
        S, max_loras, "max-loras", 1, 64, "1",                                                     \
        "adapters that are loaded at once; one that takes the place of another needs one more")
#define ROW_LORA_MODULES(S, words)                                                                 \
    OPT_WORDS(                                                                                     \
        S, lora_modules, "lora-modules", words,                                                    \
        "NAME=FOLDER of each adapter to load at the start, or vLLM's JSON with name and path")
#define ROWS_LORA_ROOM(S)                                                                          \
    OPT_INT(S, max_lora_rank, "max-lora-rank", 1, 512, "16", "largest rank of an adapter"),        \
        OPT_STRING(S, lora_root, "lora-root", NULL,                                                \
                   "folder below which adapters are read, and nowhere else")
#define ROW_LOG_LEVEL(S)                                                                           \
    OPT_ENUM(S, log_level, "log-level", "debug|info|warn|error", "info", "least level logged")
#define ROW_LOG_FORMAT(S)                                                                          \
    OPT_ENUM(S, log_format, "log-format", "logfmt|json", "logfmt", "one event a line")
