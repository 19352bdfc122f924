/* Defines the option table of `cox up`, and the values that follow from the options alone.
 * cli/commands/up.c parses a command line with `up_specs` into `struct up_options`; plan.c,
 * numa.c and cluster.c read the struct. docs/reference/flags.md and the shell completion are
 * made from the table.
 * Invariants: an option has vLLM's name when vLLM has it. Every flag of vLLM that is missing
 * here is listed at the end, with advice. So vLLM's command lines are accepted, or refused with
 * a reason. The functions are pure. Strings in the struct are borrowed from the parser's result. */
#include "cli/up/plan/options.h"

#include <stdlib.h>
#include <string.h>

#include "common/options/capacity.h"
#include "common/options/kv_dtype.h"
#include "common/options/lora_module.h"
#include "common/options/rows.h"
#include "common/options/structured.h"

#define S up_options

/* Makes the row of a flag of vLLM that Coxswain lacks. The flag is ignored when it would change
 * nothing in Coxswain. It is refused when its absence would change the output. `instead` is the
 * reason, or the advice. */
#define IGNORED(nm, al, t, i)                                                                      \
    {                                                                                              \
        .name = nm, .aliases = al, .type = OPTION_IGNORED, .takes = TAKES_##t, .instead = i        \
    }
#define REFUSED(nm, al, t, ok, i)                                                                  \
    {                                                                                              \
        .name = nm, .aliases = al, .type = OPTION_REFUSED, .takes = TAKES_##t, .choices = ok,      \
        .instead = i                                                                               \
    }
#define ATTENTION   "The worker chooses the attention kernel."
#define COMPILER    "All kernels are compiled in advance, so there is no compiler to configure."
#define CONTEXT     "Context parallelism does not exist here. Use --tp and --pp to divide a model."
#define CONFIG      "The model's own config.json is used. Change the value in that file."
#define DOCS        "The gateway has no /docs page. GET /openapi.json describes the API."
#define EPLB        "The rank of each expert is fixed, so experts are never moved or copied."
#define FINGERPRINT "Answers have the version of Coxswain as system_fingerprint."
#define FRONT       "Each gateway is one event loop. Use --gateways to start more of them."
#define GRAPHS      "The worker chooses the sizes of its CUDA graphs. --enforce-eager turns them off."
#define GRAMMAR     "Structured output has one backend, llguidance."
#define HEADERS     "The gateway limits the header of a request to 32 KiB and 100 fields."
#define HOSTS       "Workers on other machines join with `cox worker`; see `cox join-token`."
#define KERNELS     "The worker chooses its kernels."
#define LOADING     "Each worker decides how it reads the weights."
#define LOGITS      "No code of users is loaded. Use logit_bias, the penalties or min_p in the request."
#define LOGS        "Use --log-level and --log-format."
#define MAMBA       "Models with Mamba layers are not supported."
#define MEDIA       "Only text is supported. Requests with images, audio or video are refused."
#define MEMORY      "Weights and KV cache stay in the memory of their device."
#define NO_CODE     "No code of a model is run."
#define NO_POOLING  "The route of a request chooses the task. /v1/embeddings gives vectors."
#define OVERLAP     "Dual-batch overlap does not exist here."
#define RANKS       "The head assigns the ranks of workers. A worker joins with `cox worker --join`."
#define RAY         "Coxswain starts its own processes and does not use Ray."
#define RENDEZVOUS                                                                                 \
    "Ranks learn each other's addresses from the head. Use --head-host and --head-port."
#define REQUEST_LOG "The access log is written only when --access-log names a file."
#define SAMPLING    "Use --generation-config with a folder that has your own generation_config.json."
#define SCHEMA      "Put \"additionalProperties\": false into the JSON schema of the request."
#define SPEC        "A draft model runs whole on the first rank of each replica."
#define SPREAD      "The head assigns requests to replicas. A load balancer can only choose a gateway."
#define STEP        "Every token is sent as soon as it is generated."
#define TEXTS       "The texts of requests and answers are never logged."
#define TOKENIZERS  "Use --tokenizer-threads to change the number of threads that tokenize."
#define TOOLS       "Parsers are built in and no other code is loaded. Use --tool-call-parser."

/* `up_specs` lists the options of `cox up`. They have vLLM's names where vLLM has them. vLLM's
 * flags that Coxswain lacks are at the end. */
const char *const up_start_names[3] = {"always", "on-demand", "asleep"};

const struct option_spec up_specs[] = {
    {.name = "model", .type = OPTION_ARGUMENT, .help = "Model to serve, the same as a bare MODEL."},
    OPT_STRING(S, host, "host", "127.0.0.1", "Address that the gateways listen on."),
    OPT_INT(S, port, "port", 1, 65535, "8000",
            "HTTP port of the first gateway. Further gateways use the next ports."),
    OPT_STRING(S, models_file, "models", NULL,
               "YAML file with several models, each with its own options. Without it, every MODEL "
               "of the command line is a model of the cluster."),
    OPT_BOOL(S, on_demand, "on-demand", NULL,
             "Start a model with the first request for it, and stop it when it is idle or when "
             "another model needs its memory."),
    OPT_INT(S, idle_timeout_s, "idle-timeout", 1, 604800, "300",
            "Seconds without a request after which an on-demand model stops."),
    OPT_INT(S, idle_sleep_level, "idle-sleep-level", 0, 2, "0",
            "Level at which the workers of an idle on-demand model sleep. 1 drops the KV cache, 2 "
            "the weights too. 0 = the workers end."),
    OPT_INT(S, models_memory, "models-memory", 0, (double)(1ull << 50), "0",
            "Bytes of memory for all models of a cluster of several models. On GPUs, the bytes of "
            "each GPU. 0 = nine tenths of the free memory."),
    OPT_INT(S, spares, "spares", 0, 16, "0",
            "Worker processes that wait for an on-demand model to start, on each GPU or NUMA node. "
            "Each one takes about 1 GiB of the GPU's memory."),
    {.name = "detach",
     .aliases = "d",
     .type = OPTION_BOOL,
     .offset = offsetof(struct S, detach),
     .help = "Run the cluster in the background, with its log in a file. The command returns when "
             "the cluster is ready or its start has failed."},
    OPT_STRING(S, name, "name", NULL,
               "Name of this cluster for `cox ps`, `cox stop`, `cox logs` and `cox scale`. "
               "Default: made from the model's name."),
    {.name = "verbose",
     .aliases = "v",
     .type = OPTION_BOOL,
     .offset = offsetof(struct S, verbose),
     .help = "Show every log line of the processes. Default: on a terminal only progress, "
             "warnings, errors and a summary; elsewhere every line."},
    OPT_INT(S, gateways, "gateways", 1, 64, "1", "Number of gateways to start."),
    OPT_INT(S, workers, "workers", 0, 1024, "0", "Number of workers to start. 0 = TP x PP x DP."),
    OPT_INT(S, prefill_workers, "prefill-workers", 0, 1024, "0",
            "Number of workers that compute prompts only (cox worker --role prefill)."),
    OPT_INT(S, decode_workers, "decode-workers", 0, 1024, "0",
            "Number of workers that continue a request after its first token (cox worker --role "
            "decode)."),
    ROW_SIZE(S, tp, "tp", "tensor-parallel-size", TP_HELP),
    ROW_SIZE(S, pp, "pp", "pipeline-parallel-size", PP_HELP),
    ROW_ELASTIC_TP(S),
    ROW_ELASTIC_TP_WAIT(S),
    ROW_SIZE(S, dp, "dp", "data-parallel-size", UP_DP_HELP),
    OPT_ENUM(S, device, "device", "auto|null|cpu|cuda", "auto", UP_DEVICE_HELP),
    OPT_INT(S, gpu, "gpu", -1, 1023, "-1",
            "Number of the first worker's GPU; further workers use the next ones. -1 = divide the "
            "GPUs of this machine among the workers."),
    OPT_FLOAT(S, gpu_memory_utilization, "gpu-memory-utilization", 0, 1, "0", UP_GPU_MEMORY_HELP),
    OPT_BOOL(S, enforce_eager, "enforce-eager", NULL, ENFORCE_EAGER_HELP),
    OPT_BOOL(S, no_early_launch, "no-early-launch", NULL, NO_EARLY_LAUNCH_HELP),
    OPT_BOOL(S, no_one_shot, "no-one-shot", NULL, NO_ONE_SHOT_HELP),
    OPT_WORDS(S, served_model_names, "served-model-name", WORDS_ARE_VALUES_BUT_ONE,
              "Names of the model in /v1/models and in requests. Answers contain the first one. "
              "Give several values or repeat the option."),
    OPT_STRING(S, chat_template, "chat-template", NULL,
               "Chat template: a file, the name of a built-in template, or the template itself in "
               "one line. Default: the model's own."),
    {.name = "max-model-len",
     .type = OPTION_INT,
     .offset = offsetof(struct S, max_model_len),
     .max = 1 << 30,
     .def = "0",
     .help = MAX_MODEL_LEN_HELP,
     .instead =
         "0 is the model's own length. The KV cache limits the tokens that run at the same time."},
    OPT_INT(S, max_num_seqs, "max-num-seqs", 0, 65536, "0", UP_MAX_NUM_SEQS_HELP),
    OPT_INT(S, max_num_batched_tokens, "max-num-batched-tokens", 0, 1 << 20, "0",
            UP_MAX_BATCHED_TOKENS_HELP),
    ROW_LONG_PREFILL(S),
    ROW_PARTIAL_PREFILLS(S),
    ROW_STEP_TARGET(S),
    ROW_PREFIX_CACHING(S),
    ROW_ASYNC_SCHEDULING(S),
    ROW_SCHEDULING_POLICY(S),
    ROW_STATS_INTERVAL(S),
    ROW_STATS_FORMAT(S),
    ROW_ENABLE_LORA(S),
    ROW_MAX_LORAS(S),
    ROWS_LORA_ROOM(S),
    ROW_LORA_MODULES(S, WORDS_ARE_VALUES_BUT_ONE),
    ROW_STEP_LOG(S),
    ROW_STEP_LOG_MAX(S),
    {.name = "max-waiting",
     .aliases = "max-num-queued-reqs",
     .type = OPTION_INT,
     .offset = offsetof(struct S, max_waiting),
     .max = 1 << 20,
     .def = "0",
     .help = "Maximum number of waiting requests. Further requests get status 429, except those of "
             "a tenant with few waiting requests. 0 = the head's default, 4096."},
    OPT_INT(S, max_waiting_per_key, "max-waiting-per-key", 0, 1 << 20, "0",
            "Maximum number of waiting requests of one API key. 0 = no limit per key."),
    ROW_MAX_REQUEST_BYTES(S),
    OPT_INT(S, block_size, "block-size", 0, 1024, "0",
            "Tokens in one KV block. 0 = the worker's default, 16."),
    OPT_INT(S, num_gpu_blocks_override, "num-gpu-blocks-override", 0, 1 << 30, "0",
            "Number of KV blocks of each worker. 0 = computed from the memory."),
    OPT_INT(S, kv_cache_memory_bytes, "kv-cache-memory-bytes", 0, (double)(1ull << 50), "0",
            "Bytes of memory for the KV cache of each worker. 0 = the device's default."),
    OPT_INT(S, grammar_room, "grammar-room", 0, (double)(1ull << 40), "0",
            "Host memory in bytes for grammars and their matchers on the sampling rank. 0 = a "
            "quarter of the free memory, at least 64Mi and at most 1Gi."),
    OPT_ENUM(S, kv_cache_dtype, "kv-cache-dtype", KV_CACHE_DTYPES, "auto", KV_CACHE_DTYPE_HELP),
    OPT_ENUM(S, load_format, "load-format",
             "auto|dummy|safetensors|gguf|pt|hf|fastsafetensors|runai_streamer|stream", "auto",
             UP_LOAD_FORMAT_HELP),
    {.name = "quantization",
     .aliases = "q",
     .type = OPTION_ENUM,
     .offset = offsetof(struct S, quantization),
     .choices = "none|int8|int4|fp8|None|gguf",
     .def = "none",
     .help = QUANTIZATION_HELP,
     .instead = "weights that are quantised already say so themselves; leave the flag out"},
    ROW_DTYPE(S),
    ROWS_SPECULATION(S),
    OPT_INT(S, threads, "threads", 0, 256, "0", UP_THREADS_HELP),
    OPT_BOOL(S, numa_bind, "numa-bind", NULL,
             "Bind the threads and the memory of each worker to one NUMA node. A worker with a GPU "
             "gets the GPU's node; workers on the CPU get the nodes in order."),
    OPT_WORDS(S, numa_bind_nodes, "numa-bind-nodes", WORDS_ARE_VALUES_BUT_ONE,
              "NUMA node of each worker, for example 0 0 1 1."),
    OPT_WORDS(S, numa_bind_cpus, "numa-bind-cpus", WORDS_ARE_VALUES_BUT_ONE,
              "CPUs of each worker, for example 0-7,32-39 8-15,40-47."),
    ROW_CPU_ISA(S),
    ROW_WEIGHTS_SHARE(S),
    OPT_STRING(S, comm_host, "comm-host", NULL,
               "Address at which ranks on other machines reach this machine. Default: the address "
               "from which this machine reaches the head."),
    OPT_INT(S, comm_port, "comm-port", 0, 65535, "0",
            "Port at which ranks on other machines reach the first worker. Further workers use the "
            "next ports. 0 = any free port."),
    OPT_INT(S, kv_port, "kv-port", -1, 65535, "0",
            "Port of the first worker to which ranks of other replicas connect to copy KV blocks. "
            "Further workers use the next ports. 0 = any free port. -1 = no port; KV blocks are "
            "not copied, and moved requests are computed again."),
    ROW_NCCL_LIBRARY(S),
    ROW_STEP_TIMEOUT(S),
    ROW_ZONE(S),
    {.name = "enable-expert-parallel",
     .aliases = "ep",
     .type = OPTION_BOOL,
     .offset = offsetof(struct S, enable_expert_parallel),
     .help = "Give each rank whole experts of a mixture-of-experts model instead of a part of each "
             "expert."},
    OPT_BOOL(S, no_shared_memory, "no-shared-memory", NULL,
             "Use sockets instead of shared memory between ranks on one machine."),
    ROW_API_KEY(S),
    OPT_FLOAT(S, shutdown_timeout_s, "shutdown-timeout", 0, 86400, "0",
              "Seconds that a stop waits for open requests. A second signal stops at once."),
    ROW_KEEP_ALIVE(S),
    ROW_CHUNK_TIMEOUT(S),
    ROW_PEER_TIMEOUT(S),
    OPT_FLOAT(S, startup_timeout_s, "startup-timeout", 0, 86400, "0",
              "Maximum seconds until the cluster serves requests. After that the start fails. 0 = "
              "no limit."),
    ROWS_ANSWERS(S),
    ROWS_STRUCTURED(S),
    OPT_BOOL(S, sagemaker, "sagemaker", NULL, SAGEMAKER_HELP),
    OPT_ENUM(S, invocations, "invocations", INVOCATIONS_FORMS, "rolling", INVOCATIONS_HELP),
    ROW_INVOCATIONS_STATUSES(S),
    ROW_MAX_BODY_BYTES(S),
    ROWS_BOUNDS(S),
    ROWS_SSL(S),
    OPT_STRING(S, uds, "uds", NULL,
               "Path of a Unix socket to listen on instead of --host and --port. The paths of "
               "further gateways end in .1, .2 and so on."),
    OPT_STRING(S, gateway_admin_host, "gateway-admin-host", "127.0.0.1",
               "Address that --gateway-admin-port listens on."),
    OPT_INT(S, gateway_admin_port, "gateway-admin-port", -1, 65535, "-1",
            "Port of the first gateway's admin routes, /metrics, /livez and /readyz. Further "
            "gateways use the next ports. -1 = these routes are at --port."),
    ROWS_FRONT(S),
    ROWS_TRACE(S),
    ROW_GENERATION_CONFIG(S),
    ROW_API_KEY_FILE(S),
    ROW_REDIS(S),
    OPT_STRING(S, head_host, "head-host", "127.0.0.1",
               "Address that the head listens on for workers and gateways."),
    OPT_INT(S, head_port, "head-port", 1, 65535, "7000",
            "Port that the head listens on for workers and gateways."),
    OPT_STRING(S, admin_host, "admin-host", "127.0.0.1",
               "Address of the dashboard and the admin API."),
    OPT_INT(S, admin_port, "admin-port", 1, 65535, "8265",
            "Port of the dashboard and the admin API."),
    OPT_BOOL(S, standby, "standby", NULL,
             "Start a second head that takes over within seconds when the first one is lost. Needs "
             "--redis."),
    OPT_INT(S, standby_port, "standby-port", 1, 65535, "6999",
            "Port of the second head at --head-host."),
    OPT_INT(S, standby_admin_port, "standby-admin-port", 1, 65535, "8266",
            "Port of the second head's dashboard and admin API at --admin-host."),
    OPT_STRING(S, cluster_name, "cluster-name", NULL,
               "Name of this cluster among those that share a Redis. Default: \"default\", or "
               "without --keys-dir a new name for each start."),
    ROW_LEASE_TTL(S),
    OPT_STRING(
        S, admin_key_file, "admin-key-file", NULL,
        "File with the keys of the admin API, one line each: KEY [NAME]. Events show the name."),
    OPT_STRING(S, state_dir, "state-dir", NULL,
               "Folder for uploaded files and batches, with a subfolder for each gateway. Without "
               "it there is no Files and Batches API."),
    ROWS_CAPACITY(S),
    OPT_BOOL(S, metrics_public, "metrics-public", NULL, "Serve /metrics without a key."),
    OPT_INT(S, worker_http_port, "worker-http-port", 1, 65535, "7001",
            "HTTP port of worker 0. Further workers use the next ports."),
    OPT_STRING(S, keys_dir, "keys-dir", NULL,
               "Folder with the cluster's keys. Default: temporary keys, which are removed when "
               "the cluster ends."),
    ROW_CACHE_DIR(S),
    ROW_OFFLINE(S, offline),
    OPT_STRING(S, revision, "revision", NULL,
               "Branch, tag or commit of a model from a hub; the same as ORG/NAME@REVISION. "
               "Default: main."),
    OPT_STRING(S, print_pids, "print-pids", NULL,
               "File with one \"name pid\" line per process, kept up to date."),
    ROW_LOG_LEVEL(S),
    ROW_LOG_FORMAT(S),
    OPT_ENUM(S, color, "color", "auto|always|never", "auto",
             "Colour the process names in front of log lines. auto: only on a terminal."),
    OPT_INT(S, vocab_size, "vocab-size", 0, 1 << 24, "0",
            "Vocabulary size of the null device. 0 = the model's."),
    OPT_INT(S, null_step_us, "null-step-us", -1, 60000000, "-1",
            "Microseconds that the null device takes for a step. -1 = the worker's default, 1000."),
    OPT_INT(
        S, null_token_us, "null-token-us", -1, 60000000, "-1",
        "Microseconds that the null device takes for each token. -1 = the worker's default, 0."),
    IGNORED("additional-config", NULL, ONE,
            "Coxswain has no plugins for hardware, which this option configures."),
    IGNORED("aggregate-engine-logging", NULL, NOTHING,
            "The head always logs one statistics line for all replicas."),
    IGNORED("all2all-backend", NULL, ONE,
            "Coxswain has one way to exchange the outputs of experts."),
    IGNORED("allow-deprecated-quantization", NULL, NOTHING,
            "Every supported format is always allowed."),
    IGNORED("allowed-local-media-path", NULL, ONE, MEDIA),
    IGNORED("allowed-media-domains", NULL, MANY, MEDIA),
    IGNORED("api-server-count", "asc", ONE, FRONT),
    IGNORED("attention-backend", NULL, ONE, ATTENTION),
    IGNORED("attention-config", NULL, ONE, ATTENTION),
    IGNORED("calculate-kv-scales", NULL, NOTHING,
            "The scales of an 8-bit KV cache are always computed."),
    REFUSED("chat-template-content-format", NULL, ONE, "auto|string",
            "The chat template always gets the content of a message as one string."),
    REFUSED("code-revision", NULL, ONE, "main", NO_CODE),
    IGNORED("collect-detailed-traces", NULL, MANY,
            "A span always has the same details. Use --otlp-traces-endpoint to get spans."),
    IGNORED("compilation-config", "cc", ONE, COMPILER),
    REFUSED("config-format", NULL, ONE, "auto|hf",
            "A model folder must have a config.json in Hugging Face's format."),
    REFUSED("convert", NULL, ONE, "auto|none", NO_POOLING),
    IGNORED("cp-kv-cache-interleave-size", NULL, ONE, CONTEXT),
    IGNORED("cpu-offload-gb", NULL, ONE, MEMORY),
    IGNORED("cuda-graph-sizes", NULL, MANY, GRAPHS),
    IGNORED("cudagraph-capture-sizes", NULL, MANY, GRAPHS),
    IGNORED("cudagraph-metrics", NULL, NOTHING, "CUDA graphs have no metrics of their own."),
    IGNORED("data-parallel-address", "dpa", ONE, RENDEZVOUS),
    IGNORED("data-parallel-backend", "dpb", ONE, RAY),
    REFUSED("data-parallel-external-lb", "dpe", NOTHING, NULL, SPREAD),
    REFUSED("data-parallel-hybrid-lb", "dph", NOTHING, NULL, SPREAD),
    REFUSED("data-parallel-multi-port-external-lb", NULL, NOTHING, NULL, SPREAD),
    REFUSED("data-parallel-rank", "dpn", ONE, "0", RANKS),
    IGNORED("data-parallel-rpc-port", "dpp", ONE, RENDEZVOUS),
    REFUSED("data-parallel-size-local", "dpl", ONE, NULL,
            "`cox up` starts all replicas of --dp on this machine. Workers on other machines join "
            "with `cox worker`."),
    REFUSED("data-parallel-start-rank", "dpr", ONE, "0", RANKS),
    IGNORED("dbo-decode-token-threshold", NULL, ONE, OVERLAP),
    IGNORED("dbo-prefill-token-threshold", NULL, ONE, OVERLAP),
    IGNORED("dcp-comm-backend", NULL, ONE, CONTEXT),
    IGNORED("dcp-kv-cache-interleave-size", NULL, ONE, CONTEXT),
    REFUSED("decode-context-parallel-size", "dcp", ONE, "1", CONTEXT),
    REFUSED("default-chat-template-kwargs", NULL, ONE, NULL,
            "Put chat_template_kwargs into each request."),
    IGNORED("default-mm-loras", NULL, ONE, MEDIA),
    IGNORED("disable-access-log-for-endpoints", NULL, ONE, REQUEST_LOG),
    IGNORED("disable-async-output-proc", NULL, NOTHING,
            "Use --no-async-scheduling to wait for the result of each step."),
    IGNORED("disable-cascade-attn", NULL, NOTHING, ATTENTION),
    IGNORED("disable-chunked-mm-input", NULL, NOTHING, MEDIA),
    IGNORED("disable-custom-all-reduce", NULL, NOTHING,
            "Use --no-one-shot to sum over ranks with NCCL only."),
    IGNORED("disable-fastapi-docs", NULL, NOTHING, DOCS),
    IGNORED("disable-frontend-multiprocessing", NULL, NOTHING,
            "The gateway and the head are always separate processes."),
    IGNORED(
        "disable-hybrid-kv-cache-manager", NULL, NOTHING,
        "Layers with full and with sliding-window attention always have KV groups of their own."),
    IGNORED("disable-log-requests", NULL, NOTHING, REQUEST_LOG),
    IGNORED("disable-log-stats", NULL, NOTHING, "Use --stats-interval 0."),
    IGNORED("disable-mm-preprocessor-cache", NULL, NOTHING, MEDIA),
    IGNORED("disable-nccl-for-dp-synchronization", NULL, NOTHING,
            "Replicas run their steps independently, so nothing synchronises them."),
    REFUSED("disable-sliding-window", NULL, NOTHING, NULL,
            "Use --max-model-len with at most the size of the window; it has the same effect."),
    IGNORED("disable-uvicorn-access-log", NULL, NOTHING, REQUEST_LOG),
    IGNORED("distributed-executor-backend", NULL, ONE, RAY),
    IGNORED("distributed-timeout-seconds", NULL, ONE,
            "Use --step-timeout, the seconds that ranks may wait for each other."),
    IGNORED("download-dir", NULL, ONE, "Use --cache-dir."),
    REFUSED("ec-transfer-config", NULL, ONE, NULL,
            "Only text is supported, so there is no encoder with a cache to transfer."),
    IGNORED("enable-chunked-prefill", NULL, NOTHING,
            "Prompts are always split; see --long-prefill-token-threshold."),
    IGNORED("enable-dbo", NULL, NOTHING, OVERLAP),
    REFUSED(
        "enable-elastic-ep", NULL, NOTHING, NULL,
        "The number of ranks that share the experts is fixed. Start another cluster to change it."),
    IGNORED("enable-ep-weight-filter", NULL, NOTHING,
            "A rank always reads only its own part of the weights."),
    IGNORED("enable-eplb", NULL, NOTHING, EPLB),
    IGNORED("enable-flashinfer-autotune", NULL, NOTHING, "Coxswain does not use FlashInfer."),
    REFUSED("enable-force-include-usage", NULL, NOTHING, NULL,
            "Put \"stream_options\": {\"include_usage\": true} into each request."),
    IGNORED("enable-layerwise-nvtx-tracing", NULL, NOTHING, "Layers have no NVTX ranges."),
    IGNORED("enable-log-deltas", NULL, NOTHING, TEXTS),
    IGNORED("enable-log-outputs", NULL, NOTHING, TEXTS),
    IGNORED("enable-log-requests", NULL, NOTHING, "Use --access-log to log one line per request."),
    IGNORED("enable-logging-iteration-details", NULL, NOTHING,
            "Use --step-log to record every step."),
    REFUSED("enable-lora-bias", NULL, NOTHING, NULL,
            "Coxswain cannot load adapters with biases. Use an adapter without them."),
    IGNORED("enable-mfu-metrics", NULL, NOTHING,
            "/metrics does not contain the number of floating-point operations."),
    IGNORED("enable-mm-embeds", NULL, NOTHING, MEDIA),
    IGNORED("enable-multimodal-encoder-data-parallel", NULL, NOTHING, MEDIA),
    IGNORED("enable-offline-docs", NULL, NOTHING, DOCS),
    IGNORED("enable-per-request-metrics", NULL, NOTHING,
            "Answers have no timings. Use --otlp-traces-endpoint to get a span of each request."),
    REFUSED("enable-prompt-embeds", NULL, NOTHING, NULL,
            "A prompt cannot be a list of embeddings. Send text or token ids."),
    IGNORED("enable-prompt-tokens-details", NULL, NOTHING,
            "The usage always has prompt_tokens_details."),
    IGNORED("enable-reasoning", NULL, NOTHING,
            "--reasoning-parser alone turns the parsing of reasoning on."),
    IGNORED("enable-return-routed-experts", NULL, NOTHING,
            "Answers cannot contain the experts that computed their tokens."),
    IGNORED("enable-server-load-tracking", NULL, NOTHING,
            "The gateway has no /load endpoint. Use the numbers of requests in /metrics."),
    REFUSED("enable-sleep-mode", NULL, NOTHING, NULL,
            "Coxswain has no sleep mode. Stop the cluster to free its memory."),
    REFUSED("enable-tokenizer-info-endpoint", NULL, NOTHING, NULL,
            "The gateway has no /tokenizer_info endpoint."),
    IGNORED("enable-tower-connector-lora", NULL, NOTHING, MEDIA),
    IGNORED("engine-use-ray", NULL, NOTHING, RAY),
    IGNORED("eplb-config", NULL, ONE, EPLB),
    IGNORED("eplb-log-balancedness", NULL, NOTHING, EPLB),
    IGNORED("eplb-step-interval", NULL, ONE, EPLB),
    IGNORED("eplb-window-size", NULL, ONE, EPLB),
    REFUSED("exclude-tools-when-tool-choice-none", NULL, NOTHING, NULL,
            "The template always gets the tools of a request."),
    IGNORED("expert-placement-strategy", NULL, ONE, EPLB),
    IGNORED("fingerprint-mode", NULL, ONE, FINGERPRINT),
    IGNORED("fingerprint-value", NULL, ONE, FINGERPRINT),
    IGNORED("fully-sharded-loras", NULL, NOTHING,
            "The matrices of an adapter are always divided among ranks in the same way."),
    REFUSED("grpc", NULL, NOTHING, NULL, "The gateway has no gRPC API. Use its HTTP API."),
    IGNORED("guided-decoding-backend", NULL, ONE, GRAMMAR),
    IGNORED("guided-decoding-disable-additional-properties", NULL, NOTHING, SCHEMA),
    IGNORED("guided-decoding-disable-fallback", NULL, NOTHING, GRAMMAR),
    IGNORED("h11-max-header-count", NULL, ONE, HEADERS),
    IGNORED("h11-max-incomplete-event-size", NULL, ONE, HEADERS),
    REFUSED("headless", NULL, NOTHING, NULL,
            "Run `cox worker` instead on a machine without a gateway; see `cox join-token`."),
    REFUSED("hf-config-path", NULL, ONE, NULL,
            "The config.json in the model's own folder is used."),
    REFUSED("hf-overrides", NULL, ONE, NULL, CONFIG),
    IGNORED("hf-token", NULL, PERHAPS_ONE, "Set HF_TOKEN, which `ps` does not show."),
    IGNORED("ignore-patterns", NULL, MANY, "Only the files that a model needs are downloaded."),
    IGNORED("interleave-mm-strings", NULL, NOTHING, MEDIA),
    REFUSED("io-processor-plugin", NULL, ONE, NULL, "Coxswain loads no plugins."),
    IGNORED("kernel-config", NULL, ONE, KERNELS),
    IGNORED("kv-cache-metrics", NULL, NOTHING,
            "/metrics does not contain the lifetimes of KV blocks."),
    IGNORED("kv-cache-metrics-sample", NULL, ONE,
            "/metrics does not contain the lifetimes of KV blocks."),
    REFUSED("kv-events-config", NULL, ONE, NULL, "The head does not publish events of KV blocks."),
    IGNORED("kv-offloading-backend", NULL, ONE, MEMORY),
    IGNORED("kv-offloading-size", NULL, ONE, MEMORY),
    IGNORED("kv-sharing-fast-prefill", NULL, NOTHING, "A prefill always computes every layer."),
    REFUSED("kv-transfer-config", NULL, ONE, NULL,
            "Use --prefill-workers and --decode-workers. KV blocks move between workers without a "
            "connector."),
    IGNORED("language-model-only", NULL, NOTHING, MEDIA),
    IGNORED("limit-mm-per-prompt", NULL, ONE, MEDIA),
    IGNORED("linear-backend", NULL, ONE, KERNELS),
    IGNORED("log-config-file", NULL, ONE, LOGS),
    IGNORED("log-error-stack", NULL, NOTHING,
            "Coxswain is written in C and has no Python stack to log."),
    REFUSED("logits-processor-pattern", NULL, ONE, NULL, LOGITS),
    REFUSED("logits-processors", NULL, MANY, NULL, LOGITS),
    REFUSED("logprobs-mode", NULL, ONE, "raw_logprobs",
            "Log-probabilities are always the model's, before temperature and penalties."),
    IGNORED("lora-dtype", NULL, ONE, "Adapters keep the number format of their files."),
    IGNORED("lora-extra-vocab-size", NULL, ONE, "An adapter cannot add tokens."),
    IGNORED("lora-target-modules", NULL, ONE, "The files of an adapter name its modules."),
    IGNORED("mamba-backend", NULL, ONE, MAMBA),
    IGNORED("mamba-block-size", NULL, ONE, MAMBA),
    IGNORED("mamba-cache-dtype", NULL, ONE, MAMBA),
    IGNORED("mamba-cache-mode", NULL, ONE, MAMBA),
    IGNORED("mamba-ssm-cache-dtype", NULL, ONE, MAMBA),
    IGNORED("master-addr", NULL, ONE, RENDEZVOUS),
    IGNORED("master-port", NULL, ONE, RENDEZVOUS),
    IGNORED("max-context-len-to-capture", NULL, ONE, GRAPHS),
    IGNORED("max-cpu-loras", NULL, ONE,
            "Adapters are kept in the memory of the device only. Use --max-loras."),
    IGNORED("max-cudagraph-capture-size", NULL, ONE, GRAPHS),
    IGNORED("max-log-len", NULL, ONE, TEXTS),
    IGNORED("max-long-partial-prefills", NULL, ONE,
            "Use --max-num-partial-prefills, which counts long and short prompts."),
    IGNORED("max-num-queued-tokens", NULL, ONE,
            "Use --max-waiting, which limits the number of waiting requests."),
    IGNORED("max-parallel-loading-workers", NULL, ONE, LOADING),
    IGNORED("max-seq-len-to-capture", NULL, ONE, GRAPHS),
    IGNORED("media-io-kwargs", NULL, ONE, MEDIA),
    REFUSED("middleware", NULL, ONE, NULL,
            "Coxswain loads no plugins. Put a reverse proxy in front."),
    IGNORED("mm-encoder-attn-backend", NULL, ONE, MEDIA),
    IGNORED("mm-encoder-attn-dtype", NULL, ONE, MEDIA),
    IGNORED("mm-encoder-only", NULL, NOTHING, MEDIA),
    IGNORED("mm-encoder-tp-mode", NULL, ONE, MEDIA),
    IGNORED("mm-processor-cache-gb", NULL, ONE, MEDIA),
    IGNORED("mm-processor-cache-type", NULL, ONE, MEDIA),
    IGNORED("mm-processor-kwargs", NULL, ONE, MEDIA),
    IGNORED("mm-shm-cache-max-object-size-mb", NULL, ONE, MEDIA),
    IGNORED("model-impl", NULL, ONE,
            "Each model has one implementation, which is part of cox-worker."),
    IGNORED("model-loader-extra-config", NULL, ONE, LOADING),
    IGNORED("moe-backend", NULL, ONE, KERNELS),
    IGNORED("multi-step-stream-outputs", NULL, NOTHING, STEP),
    REFUSED("nnodes", "n", ONE, "1", HOSTS),
    REFUSED("node-rank", "r", ONE, "0", RANKS),
    IGNORED("num-lookahead-slots", NULL, ONE, "The head assigns the slots of draft tokens."),
    IGNORED("num-redundant-experts", NULL, ONE, EPLB),
    IGNORED("num-scheduler-steps", NULL, ONE, "The head plans every step separately."),
    IGNORED("offload-backend", NULL, ONE, MEMORY),
    IGNORED("offload-group-size", NULL, ONE, MEMORY),
    IGNORED("offload-num-in-group", NULL, ONE, MEMORY),
    IGNORED("offload-prefetch-step", NULL, ONE, MEMORY),
    IGNORED("optimization-level", "O", ONE, COMPILER),
    IGNORED("override-attention-dtype", NULL, ONE,
            "The worker chooses the number format of the attention kernel."),
    REFUSED("override-generation-config", NULL, ONE, NULL, SAMPLING),
    REFUSED("override-pooler-config", NULL, ONE, NULL, "Use --pooler-config."),
    IGNORED(
        "performance-mode", NULL, ONE,
        "The scheduler and the kernels have one mode. Use --max-num-seqs and --step-target-ms."),
    IGNORED("preemption-mode", NULL, ONE, "A preempted request is always computed again."),
    REFUSED("prefill-context-parallel-size", "pcp", ONE, "1", CONTEXT),
    IGNORED("prefix-caching-hash-algo", NULL, ONE,
            "The prefix cache has one hash, and a hit also compares the token ids."),
    IGNORED("profiler-config", NULL, ONE,
            "Coxswain has no profiler to start. Use --step-log to record every step."),
    IGNORED("pt-load-map-location", NULL, ONE,
            "PyTorch does not load the weights. Each worker reads its part of them."),
    REFUSED("quantization-param-path", NULL, ONE, NULL,
            "The scales of the KV cache are computed, not read from a file."),
    IGNORED("ray-workers-use-nsight", NULL, NOTHING, RAY),
    REFUSED("reasoning-config", NULL, ONE, NULL,
            "Requests cannot limit the tokens of the reasoning alone. Use max_tokens."),
    REFUSED("reasoning-parser-plugin", NULL, ONE, NULL,
            "Parsers are built in and no other code is loaded. Use --reasoning-parser."),
    REFUSED("response-role", NULL, ONE, "assistant", "Answers always have the role assistant."),
    REFUSED("return-tokens-as-token-ids", NULL, NOTHING, NULL,
            "Put \"return_tokens_as_token_ids\": true into each request."),
    REFUSED("rope-scaling", NULL, ONE, NULL, CONFIG),
    REFUSED("rope-theta", NULL, ONE, NULL, CONFIG),
    REFUSED("runner", NULL, ONE, "auto|generate", NO_POOLING),
    IGNORED("safetensors-load-strategy", NULL, ONE, LOADING),
    IGNORED("safetensors-prefetch-block-size", NULL, ONE, LOADING),
    IGNORED("safetensors-prefetch-num-threads", NULL, ONE, LOADING),
    REFUSED("scheduler-cls", NULL, ONE, NULL,
            "The scheduler is part of cox-head and cannot be replaced."),
    IGNORED("scheduler-delay-factor", NULL, ONE, "A request joins the next step without a delay."),
    IGNORED("seed", NULL, ONE,
            "A request without a seed gets a new one each time. Set seed in the request."),
    IGNORED("show-hidden-metrics-for-version", NULL, ONE, "/metrics hides no metrics."),
    IGNORED("skip-mm-profiling", NULL, NOTHING, MEDIA),
    REFUSED("skip-tokenizer-init", NULL, NOTHING, NULL,
            "The gateway needs the tokenizer. Requests may send prompts as token ids."),
    IGNORED("specialize-active-lora", NULL, NOTHING,
            "The kernels are the same for every number of active adapters."),
    IGNORED("speculative-draft-tensor-parallel-size", NULL, ONE, SPEC),
    IGNORED("stream-interval", NULL, ONE, STEP),
    IGNORED("structured-outputs-config.backend", "structured-outputs-config.disable-fallback", ONE,
            GRAMMAR),
    IGNORED("structured-outputs-config.disable-additional-properties", NULL, ONE, SCHEMA),
    IGNORED("structured-outputs-config.enable-in-reasoning", NULL, ONE,
            "The schema applies to the answer, not to the reasoning."),
    IGNORED("structured-outputs-config.reasoning-parser", NULL, ONE, "Use --reasoning-parser."),
    IGNORED("structured-outputs-config.reasoning-parser-plugin", NULL, ONE,
            "Parsers are built in and no other code is loaded. Use --reasoning-parser."),
    IGNORED("swap-space", NULL, ONE, MEMORY),
    REFUSED("task", NULL, ONE, "auto|generate", NO_POOLING),
    REFUSED(
        "tokenizer", NULL, ONE, NULL,
        "The model's own tokenizer is used, inside a GGUF file or beside the weights in a folder."),
    REFUSED("tokenizer-mode", NULL, ONE, "auto|slow|hf",
            "Each tokenizer has one implementation, which is built in."),
    IGNORED("tokenizer-pool-extra-config", NULL, ONE, TOKENIZERS),
    IGNORED("tokenizer-pool-size", NULL, ONE, TOKENIZERS),
    IGNORED("tokenizer-pool-type", NULL, ONE, TOKENIZERS),
    REFUSED("tokenizer-revision", NULL, ONE, "main",
            "The model's own tokenizer is used. ORG/NAME@REVISION names the revision of both."),
    REFUSED("tokens-only", NULL, NOTHING, NULL,
            "The gateway always accepts and sends text. Requests may send prompts as token ids."),
    REFUSED("tool-parser-plugin", NULL, ONE, NULL, TOOLS),
    REFUSED("tool-server", NULL, ONE, NULL,
            "The gateway runs no tools. The client runs them and sends the results."),
    IGNORED("trust-remote-code", NULL, NOTHING, NO_CODE),
    IGNORED("ubatch-size", NULL, ONE, OVERLAP),
    IGNORED("use-tqdm-on-load", NULL, NOTHING, "`cox up` shows the progress of the start."),
    IGNORED("use-v2-block-manager", NULL, NOTHING, "There is one block manager."),
    IGNORED("uvicorn-log-level", NULL, ONE, "Use --log-level."),
    IGNORED("video-pruning-rate", NULL, ONE, MEDIA),
    REFUSED("weight-transfer-config", NULL, ONE, NULL,
            "Weights cannot be changed while the cluster runs. Restart the cluster instead."),
    IGNORED("worker-cls", NULL, ONE, "The worker is always cox-worker and cannot be replaced."),
    IGNORED("worker-extension-cls", NULL, ONE, "Coxswain loads no plugins."),
    IGNORED("worker-use-ray", NULL, NOTHING, RAY),
};
#undef S

const size_t up_n_specs = sizeof up_specs / sizeof up_specs[0];

static bool is_usual(const char *name, double value)
{
    for (size_t i = 0; i < up_n_specs; i++)
        if (strcmp(up_specs[i].name, name) == 0)
            return strtod(up_specs[i].def, NULL) == value;
    return false;
}

void up_options_warnings(const struct up_options *o, struct strbuf *lines)
{
    const struct {
        const char *name;
        bool is_given;
    } flags[] = {
        {"standby-port", !is_usual("standby-port", (double)o->standby_port)},
        {"standby-admin-port", !is_usual("standby-admin-port", (double)o->standby_admin_port)},
        {"cluster-name", o->cluster_name != NULL},
        {"lease-ttl", !is_usual("lease-ttl", o->lease_ttl_s)},
    };
    for (size_t i = 0; !o->standby && i < sizeof flags / sizeof *flags; i++)
        if (flags[i].is_given)
            strbuf_printf(lines,
                          "--%s has no effect without --standby (and --redis URL): one head "
                          "serves alone\n",
                          flags[i].name);
}

int64_t up_options_n_workers(const struct up_options *o)
{
    int64_t n_roles = o->prefill_workers + o->decode_workers, all = o->tp * o->pp * o->dp;
    return o->workers > 0 ? o->workers : n_roles > all ? n_roles : all;
}

/* Returns the largest number of replicas that serve at once; 0 = no limit. When workers have two
 * roles, --dp is no limit, because it could exclude all replicas of one role. */
uint32_t up_options_max_replicas(const struct up_options *o)
{
    bool has_roles = o->prefill_workers + o->decode_workers > 0;
    return o->workers > 0 && o->dp > 1 && !has_roles ? (uint32_t)o->dp : 0;
}
