/* The option table of `cox up`, and the values that follow from the options alone.
 * cli/commands/up.c parses a command line with `up_specs` into `struct up_options`; plan.c, numa.c
 * and cluster.c read it. docs/reference/flags.md and the shell completion are made from the table.
 * Invariants: an option has vLLM's name when vLLM has it. Every flag of vLLM that is missing here
 * is listed at the end, with advice, so that its command lines are understood. Pure; strings in
 * the struct are borrowed from the parser's result. */
#include "cli/up/plan/options.h"

#include <stdlib.h>
#include <string.h>

#include "common/options/capacity.h"
#include "common/options/kv_dtype.h"
#include "common/options/model.h"
#include "common/options/peer_timeout.h"
#include "common/options/rows.h"
#include "common/options/structured.h"

#define S up_options

/* Flags of vLLM that are not supported. A flag without effect here is ignored. A flag whose
 * absence would change the answers is refused. Each row says what to use instead. */
#define IGNORED(nm, al, t, i)                                                                      \
    {                                                                                              \
        .name = nm, .aliases = al, .type = OPTION_IGNORED, .takes = TAKES_##t, .instead = i        \
    }
#define REFUSED(nm, al, t, ok, i)                                                                  \
    {                                                                                              \
        .name = nm, .aliases = al, .type = OPTION_REFUSED, .takes = TAKES_##t, .choices = ok,      \
        .instead = i                                                                               \
    }
#define ADAPTERS   "adapters keep their files' numbers, and are of PEFT's usual kind"
#define CONFIG     "the model is read as its own files describe it"
#define EXPERTS    "experts stay where they are, and are computed one way"
#define FRONT      "the gateway is one event loop; --gateways starts more of them"
#define GPU        "it tunes another engine's GPU kernels or compiler"
#define GRAMMAR    "constrained output has one backend here, llguidance"
#define HOSTS      "workers of other machines join with cox worker, see cox join-token"
#define LOCAL      "a MODEL that is missing is fetched as by cox pull, into --cache-dir"
#define LOGS       "see --log-level and --log-format"
#define MEDIA      "text only; requests with images, audio or video are refused"
#define MEMORY     "weights and KV cache are in main memory"
#define METRICS    "see /metrics and cox events"
#define NO_POOLING "no pooling, only generation"
#define SAMPLING   "give a folder with your own generation_config.json as --generation-config"
#define SPEC       "a draft model runs whole, on the first rank of each group"
#define SPREAD     "the head schedules all groups"
#define TOOLS      "parsers are built in, and no code is loaded; see --tool-call-parser"

/* The options have vLLM's names when vLLM has them. Unsupported flags of vLLM are at the end. */
const struct option_spec up_specs[] = {
    {.name = "model", .type = OPTION_ARGUMENT, .help = "the same as a bare MODEL"},
    OPT_STRING(S, host, "host", "127.0.0.1", "address the gateways listen on"),
    OPT_INT(S, port, "port", 1, 65535, "8000", "HTTP port; further gateways take the next ones"),
    {.name = "detach",
     .aliases = "d",
     .type = OPTION_BOOL,
     .offset = offsetof(struct S, detach),
     .help = "Run the cluster in the background, with its log in a file; the command returns when "
             "the cluster serves, or with the error."},
    OPT_STRING(
        S, name, "name", NULL,
        "Name of this cluster for `cox ps`, `cox stop`, `cox logs` and `cox scale` (default: "
        "made of the model's name)."),
    {.name = "verbose",
     .aliases = "v",
     .type = OPTION_BOOL,
     .offset = offsetof(struct S, verbose),
     .help = "Show every line of the processes' logs on a terminal too (default there: progress, "
             "warnings, errors and a summary; elsewhere every line)."},
    OPT_INT(S, gateways, "gateways", 1, 64, "1", "gateways to start"),
    OPT_INT(S, workers, "workers", 0, 1024, "0", "workers to start; 0: TP x PP x DP"),
    OPT_INT(S, prefill_workers, "prefill-workers", 0, 1024, "0",
            "of these, workers whose groups compute prompts (cox worker --role prefill)"),
    OPT_INT(S, decode_workers, "decode-workers", 0, 1024, "0",
            "of these, workers whose groups take over behind the first token (--role decode)"),
    ROW_SIZE(S, tp, "tp", "tensor-parallel-size", "ranks that share every layer"),
    ROW_SIZE(S, pp, "pp", "pipeline-parallel-size", "stages that share the layers out"),
    ROW_ELASTIC_TP(S),
    ROW_ELASTIC_TP_WAIT(S),
    ROW_SIZE(S, dp, "dp", "data-parallel-size",
             "Number of groups that serve side by side (default 1). Beside --workers, 2 or more: "
             "workers that are left over are spares."),
    OPT_ENUM(S, device, "device", "auto|null|cpu|cuda", "auto",
             "what computes; auto: a GPU where there is one, else cpu; null for the model null"),
    OPT_INT(S, gpu, "gpu", -1, 1023, "-1",
            "the GPU of the first worker, then counting up; -1: this machine's, shared out"),
    OPT_FLOAT(S, gpu_memory_utilization, "gpu-memory-utilization", 0, 1, "0",
              "part " GPU_MEMORY_HELP "; 0: as cox worker"),
    OPT_BOOL(S, enforce_eager, "enforce-eager", NULL, ENFORCE_EAGER_HELP),
    OPT_BOOL(S, no_early_launch, "no-early-launch", NULL, NO_EARLY_LAUNCH_HELP),
    OPT_BOOL(S, no_one_shot, "no-one-shot", NULL, NO_ONE_SHOT_HELP),
    OPT_WORDS(
        S, served_model_names, "served-model-name", WORDS_ARE_VALUES_BUT_ONE,
        "names in /v1/models and in requests, the first one in answers; several, or repeated"),
    OPT_STRING(S, chat_template, "chat-template", NULL,
               "file, name of a built-in template, or the template in one line"),
    {.name = "max-model-len",
     .type = OPTION_INT,
     .offset = offsetof(struct S, max_model_len),
     .max = 1 << 30,
     .def = "0",
     .help = "0: the model's own",
     .instead = "0 is the model's own length; as many tokens as there is memory for run at once"},
    OPT_INT(S, max_num_seqs, "max-num-seqs", 0, 65536, "0",
            "sequence budget of one step; 0: as cox head"),
    OPT_INT(S, max_num_batched_tokens, "max-num-batched-tokens", 0, 1 << 20, "0",
            "token budget of one step; 0: as cox head"),
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
     .help = "requests that may wait; more are answered 429, but those of a tenant that has few "
             "there; 0: as cox head"},
    OPT_INT(S, max_waiting_per_key, "max-waiting-per-key", 0, 1 << 20, "0",
            "the same for each API key; 0: one key may fill the queue"),
    ROW_MAX_REQUEST_BYTES(S),
    OPT_INT(S, block_size, "block-size", 0, 1024, "0", "tokens of a KV block; 0: as cox worker"),
    OPT_INT(S, num_gpu_blocks_override, "num-gpu-blocks-override", 0, 1 << 30, "0",
            "KV blocks per worker; 0: from the memory"),
    OPT_INT(S, kv_cache_memory_bytes, "kv-cache-memory-bytes", 0, (double)(1ull << 50), "0",
            "memory for the KV cache per worker; 0: the device's default"),
    OPT_INT(S, grammar_room, "grammar-room", 0, (double)(1ull << 40), "0",
            "host memory that grammars, and the matchers of answers with one, may take on the "
            "sampling rank; 0: a quarter of what is free, 64Mi to 1Gi"),
    OPT_ENUM(S, kv_cache_dtype, "kv-cache-dtype", KV_CACHE_DTYPES, "auto", KV_CACHE_DTYPE_HELP),
    OPT_ENUM(S, load_format, "load-format",
             "auto|dummy|safetensors|gguf|pt|hf|fastsafetensors|runai_streamer|stream", "auto",
             "which weights are read; dummy: none, they are random, as config.json says they are; "
             "stream (runai_streamer): of a model elsewhere (s3://, hf:, https:) straight into "
             "memory, without a disk; hf and fastsafetensors are vLLM's and mean auto"),
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
    OPT_INT(S, threads, "threads", 0, 256, "0",
            "each worker's threads of the host, that compute on a CPU or pack weights for a GPU; "
            "0: this "
            "machine's cores, shared out"),
    OPT_BOOL(
        S, numa_bind, "numa-bind", NULL,
        "each worker keeps to one NUMA node with threads and memory: the GPU's, else in order, "
        "as evenly as they go"),
    OPT_WORDS(S, numa_bind_nodes, "numa-bind-nodes", WORDS_ARE_VALUES_BUT_ONE,
              "the node of each worker, as in 0 0 1 1"),
    OPT_WORDS(S, numa_bind_cpus, "numa-bind-cpus", WORDS_ARE_VALUES_BUT_ONE,
              "the CPUs of each worker, as in 0-7,32-39 8-15,40-47"),
    ROW_CPU_ISA(S),
    OPT_STRING(S, comm_host, "comm-host", NULL,
               "this machine's address for ranks elsewhere; default: that of the way to the head"),
    OPT_INT(S, comm_port, "comm-port", 0, 65535, "0",
            "port for ranks elsewhere, of the first worker, then counting up; 0: any"),
    OPT_INT(S, kv_port, "kv-port", -1, 65535, "0",
            "port other groups' ranks come to for KV blocks, of the first worker, then counting "
            "up; 0: any; -1: none, requests that move are computed again"),
    ROW_NCCL_LIBRARY(S),
    ROW_STEP_TIMEOUT(S),
    ROW_ZONE(S),
    {.name = "enable-expert-parallel",
     .aliases = "ep",
     .type = OPTION_BOOL,
     .offset = offsetof(struct S, enable_expert_parallel),
     .help = "ranks have whole experts of a mixture, not a part of each"},
    OPT_BOOL(S, no_shared_memory, "no-shared-memory", NULL,
             "ranks of this machine talk through sockets too"),
    ROW_API_KEY(S),
    OPT_FLOAT(S, shutdown_timeout_s, "shutdown-timeout", 0, 86400, "0",
              "seconds that a stop waits for open requests; a second signal ends at once"),
    ROW_KEEP_ALIVE(S),
    ROW_CHUNK_TIMEOUT(S),
    ROW_PEER_TIMEOUT(S),
    OPT_FLOAT(S, startup_timeout_s, "startup-timeout", 0, 86400, "0",
              "seconds until requests are served, or it ends with an error; 0: it goes on trying"),
    ROWS_ANSWERS(S),
    ROWS_STRUCTURED(S),
    OPT_BOOL(S, sagemaker, "sagemaker", NULL, SAGEMAKER_HELP),
    OPT_ENUM(S, invocations, "invocations", INVOCATIONS_FORMS, "rolling", INVOCATIONS_HELP),
    ROW_INVOCATIONS_STATUSES(S),
    ROW_MAX_BODY_BYTES(S),
    ROWS_BOUNDS(S),
    ROWS_SSL(S),
    OPT_STRING(S, uds, "uds", NULL,
               "path of a Unix socket to listen on in place of --host and --port; further gateways "
               "add .1, .2, ..."),
    OPT_STRING(S, gateway_admin_host, "gateway-admin-host", "127.0.0.1",
               "address of --gateway-admin-port"),
    OPT_INT(S, gateway_admin_port, "gateway-admin-port", -1, 65535, "-1",
            "port of the gateways' admin routes, /metrics, /livez and /readyz; further gateways "
            "take the next ones; -1: they are at --port"),
    ROWS_FRONT(S),
    ROWS_TRACE(S),
    ROW_GENERATION_CONFIG(S),
    ROW_API_KEY_FILE(S),
    ROW_REDIS(S),
    OPT_STRING(S, head_host, "head-host", "127.0.0.1", "address workers and gateways connect to"),
    OPT_INT(S, head_port, "head-port", 1, 65535, "7000", "its port"),
    OPT_STRING(S, admin_host, "admin-host", "127.0.0.1", "address of the dashboard and admin API"),
    OPT_INT(S, admin_port, "admin-port", 1, 65535, "8265", "its port"),
    OPT_BOOL(S, standby, "standby", NULL,
             "a second head that waits, and serves within seconds when the first is lost; with "
             "--redis"),
    OPT_INT(S, standby_port, "standby-port", 1, 65535, "6999",
            "port of the second head at --head-host"),
    OPT_INT(S, standby_admin_port, "standby-admin-port", 1, 65535, "8266",
            "port of its dashboard and admin API at --admin-host"),
    OPT_STRING(S, cluster_name, "cluster-name", NULL,
               "which cluster of those that share a Redis; default: \"default\", and with "
               "throw-away keys a name of its own, as no other head can be of such a cluster"),
    ROW_LEASE_TTL(S),
    OPT_STRING(
        S, admin_key_file, "admin-key-file", NULL,
        "File with the keys of the admin API, a line each: KEY [NAME]; events say the name."),
    OPT_STRING(
        S, state_dir, "state-dir", NULL,
        "folder of uploaded files and batches, in it one per gateway; without it there are none"),
    ROWS_CAPACITY(S),
    OPT_BOOL(S, metrics_public, "metrics-public", NULL, "/metrics without a key"),
    OPT_INT(S, worker_http_port, "worker-http-port", 1, 65535, "7001",
            "HTTP port of worker 0; the others take the next ones"),
    OPT_STRING(S, keys_dir, "keys-dir", NULL,
               "folder of the cluster's keys; default: throw-away keys, removed at the end"),
    ROW_CACHE_DIR(S),
    ROW_OFFLINE(S, offline),
    OPT_STRING(S, revision, "revision", NULL,
               "Branch, tag or commit of a hub's MODEL, as ORG/NAME@REVISION names it (default: "
               "main)."),
    OPT_STRING(S, print_pids, "print-pids", NULL,
               "file with a \"name pid\" line per process, kept up to date"),
    ROW_LOG_LEVEL(S),
    ROW_LOG_FORMAT(S),
    OPT_ENUM(S, color, "color", "auto|always|never", "auto", "coloured names before log lines"),
    OPT_INT(S, vocab_size, "vocab-size", 0, 1 << 24, "0",
            "null device: vocabulary; 0: the model's"),
    OPT_INT(S, null_step_us, "null-step-us", -1, 60000000, "-1",
            "null device: time of a step, microseconds; -1: as cox worker"),
    OPT_INT(S, null_token_us, "null-token-us", -1, 60000000, "-1",
            "null device: time of each token run; -1: as cox worker"),
    IGNORED("additional-config", NULL, ONE, NULL),
    IGNORED("aggregate-engine-logging", NULL, NOTHING, LOGS),
    IGNORED("all2all-backend", NULL, ONE, EXPERTS),
    IGNORED("allow-deprecated-quantization", NULL, NOTHING, NULL),
    IGNORED("allowed-local-media-path", NULL, ONE, MEDIA),
    IGNORED("allowed-media-domains", NULL, MANY, MEDIA),
    IGNORED("api-server-count", "asc", ONE, FRONT),
    IGNORED("attention-backend", NULL, ONE, GPU),
    IGNORED("attention-config", NULL, ONE, GPU),
    IGNORED("calculate-kv-scales", NULL, NOTHING, GPU),
    REFUSED("chat-template-content-format", NULL, ONE, "auto|string",
            "the parts of a message reach the template as one text"),
    REFUSED("code-revision", NULL, ONE, "main", "no code of a model is run"),
    IGNORED("collect-detailed-traces", NULL, MANY, METRICS),
    IGNORED("compilation-config", "cc", ONE, GPU),
    REFUSED("config-format", NULL, ONE, "auto|hf",
            "a model folder has a config.json as Hugging Face writes it"),
    REFUSED("convert", NULL, ONE, "auto|none", NO_POOLING),
    IGNORED("cp-kv-cache-interleave-size", NULL, ONE, NULL),
    IGNORED("cpu-offload-gb", NULL, ONE, MEMORY),
    IGNORED("cuda-graph-sizes", NULL, MANY, GPU),
    IGNORED("cudagraph-capture-sizes", NULL, MANY, GPU),
    IGNORED("cudagraph-metrics", NULL, NOTHING, GPU),
    IGNORED("data-parallel-address", "dpa", ONE, HOSTS),
    IGNORED("data-parallel-backend", "dpb", ONE, SPREAD),
    REFUSED("data-parallel-external-lb", "dpe", NOTHING, NULL, SPREAD),
    REFUSED("data-parallel-hybrid-lb", "dph", NOTHING, NULL, SPREAD),
    REFUSED("data-parallel-multi-port-external-lb", NULL, NOTHING, NULL, SPREAD),
    REFUSED("data-parallel-rank", "dpn", ONE, "0", HOSTS),
    IGNORED("data-parallel-rpc-port", "dpp", ONE, HOSTS),
    REFUSED("data-parallel-size-local", "dpl", ONE, NULL, HOSTS),
    REFUSED("data-parallel-start-rank", "dpr", ONE, "0", HOSTS),
    IGNORED("dbo-decode-token-threshold", NULL, ONE, EXPERTS),
    IGNORED("dbo-prefill-token-threshold", NULL, ONE, EXPERTS),
    IGNORED("dcp-comm-backend", NULL, ONE, NULL),
    IGNORED("dcp-kv-cache-interleave-size", NULL, ONE, NULL),
    REFUSED("decode-context-parallel-size", "dcp", ONE, "1", "--tp and --pp share a model out"),
    REFUSED("default-chat-template-kwargs", NULL, ONE, NULL,
            "put chat_template_kwargs into the request"),
    IGNORED("default-mm-loras", NULL, ONE, ADAPTERS),
    IGNORED("disable-access-log-for-endpoints", NULL, ONE, LOGS),
    IGNORED("disable-async-output-proc", NULL, NOTHING, "see --async-scheduling"),
    IGNORED("disable-cascade-attn", NULL, NOTHING, GPU),
    IGNORED("disable-chunked-mm-input", NULL, NOTHING, MEDIA),
    IGNORED("disable-custom-all-reduce", NULL, NOTHING, GPU),
    IGNORED("disable-fastapi-docs", NULL, NOTHING, "there are no such pages"),
    IGNORED("disable-frontend-multiprocessing", NULL, NOTHING, FRONT),
    IGNORED("disable-hybrid-kv-cache-manager", NULL, NOTHING, NULL),
    IGNORED("disable-log-requests", NULL, NOTHING, LOGS),
    IGNORED("disable-log-stats", NULL, NOTHING, "--stats-interval 0 leaves the line out"),
    IGNORED("disable-mm-preprocessor-cache", NULL, NOTHING, MEDIA),
    IGNORED("disable-nccl-for-dp-synchronization", NULL, NOTHING, SPREAD),
    REFUSED("disable-sliding-window", NULL, NOTHING, NULL,
            "--max-model-len, up to the size of the window, has the same effect"),
    IGNORED("disable-uvicorn-access-log", NULL, NOTHING, LOGS),
    IGNORED("distributed-executor-backend", NULL, ONE, SPREAD),
    IGNORED("distributed-timeout-seconds", NULL, ONE, SPREAD),
    IGNORED("download-dir", NULL, ONE, LOCAL),
    REFUSED("ec-transfer-config", NULL, ONE, NULL,
            "prompts and answers are computed by the same workers"),
    IGNORED("enable-chunked-prefill", NULL, NOTHING,
            "prompts are always cut; see --long-prefill-token-threshold"),
    IGNORED("enable-dbo", NULL, NOTHING, EXPERTS),
    REFUSED("enable-elastic-ep", NULL, NOTHING, NULL,
            "start another cluster with other sizes instead"),
    IGNORED("enable-ep-weight-filter", NULL, NOTHING, EXPERTS),
    IGNORED("enable-eplb", NULL, NOTHING, EXPERTS),
    IGNORED("enable-flashinfer-autotune", NULL, NOTHING, GPU),
    REFUSED("enable-force-include-usage", NULL, NOTHING, NULL,
            "put \"stream_options\": {\"include_usage\": true} into the request"),
    IGNORED("enable-layerwise-nvtx-tracing", NULL, NOTHING, GPU),
    IGNORED("enable-log-deltas", NULL, NOTHING, LOGS),
    IGNORED("enable-log-outputs", NULL, NOTHING, LOGS),
    IGNORED("enable-log-requests", NULL, NOTHING, LOGS),
    IGNORED("enable-logging-iteration-details", NULL, NOTHING, LOGS),
    REFUSED("enable-lora-bias", NULL, NOTHING, NULL, ADAPTERS),
    IGNORED("enable-mfu-metrics", NULL, NOTHING, METRICS),
    IGNORED("enable-mm-embeds", NULL, NOTHING, MEDIA),
    IGNORED("enable-multimodal-encoder-data-parallel", NULL, NOTHING, MEDIA),
    IGNORED("enable-offline-docs", NULL, NOTHING, "there are no such pages"),
    IGNORED("enable-per-request-metrics", NULL, NOTHING, METRICS),
    REFUSED("enable-prompt-embeds", NULL, NOTHING, NULL, "a prompt is text or token ids"),
    IGNORED("enable-prompt-tokens-details", NULL, NOTHING,
            "usage always has prompt_tokens_details"),
    IGNORED("enable-reasoning", NULL, NOTHING, "--reasoning-parser alone does it"),
    IGNORED("enable-return-routed-experts", NULL, NOTHING, EXPERTS),
    IGNORED("enable-server-load-tracking", NULL, NOTHING, FRONT),
    REFUSED("enable-sleep-mode", NULL, NOTHING, NULL,
            "start another cluster with other sizes instead"),
    REFUSED("enable-tokenizer-info-endpoint", NULL, NOTHING, NULL, "the API is OpenAI's over HTTP"),
    IGNORED("enable-tower-connector-lora", NULL, NOTHING, ADAPTERS),
    IGNORED("engine-use-ray", NULL, NOTHING, SPREAD),
    IGNORED("eplb-config", NULL, ONE, EXPERTS),
    IGNORED("eplb-log-balancedness", NULL, NOTHING, EXPERTS),
    IGNORED("eplb-step-interval", NULL, ONE, EXPERTS),
    IGNORED("eplb-window-size", NULL, ONE, EXPERTS),
    REFUSED("exclude-tools-when-tool-choice-none", NULL, NOTHING, NULL,
            "the template is shown the tools of a request whatever its tool_choice says"),
    IGNORED("expert-placement-strategy", NULL, ONE, EXPERTS),
    IGNORED("fingerprint-mode", NULL, ONE, NULL),
    IGNORED("fingerprint-value", NULL, ONE, NULL),
    IGNORED("fully-sharded-loras", NULL, NOTHING, ADAPTERS),
    REFUSED("grpc", NULL, NOTHING, NULL, "the API is OpenAI's over HTTP"),
    IGNORED("guided-decoding-backend", NULL, ONE, GRAMMAR),
    IGNORED("guided-decoding-disable-additional-properties", NULL, NOTHING, GRAMMAR),
    IGNORED("guided-decoding-disable-fallback", NULL, NOTHING, GRAMMAR),
    IGNORED("h11-max-header-count", NULL, ONE, FRONT),
    IGNORED("h11-max-incomplete-event-size", NULL, ONE, FRONT),
    REFUSED("headless", NULL, NOTHING, NULL, HOSTS),
    REFUSED("hf-config-path", NULL, ONE, NULL, CONFIG),
    REFUSED("hf-overrides", NULL, ONE, NULL, CONFIG),
    IGNORED("hf-token", NULL, PERHAPS_ONE, "set HF_TOKEN, which `ps` does not show"),
    IGNORED("ignore-patterns", NULL, MANY, LOCAL),
    IGNORED("interleave-mm-strings", NULL, NOTHING, MEDIA),
    REFUSED("io-processor-plugin", NULL, ONE, NULL, "there are no plugins"),
    IGNORED("kernel-config", NULL, ONE, GPU),
    IGNORED("kv-cache-metrics", NULL, NOTHING, METRICS),
    IGNORED("kv-cache-metrics-sample", NULL, ONE, METRICS),
    REFUSED("kv-events-config", NULL, ONE, NULL, METRICS),
    IGNORED("kv-offloading-backend", NULL, ONE, MEMORY),
    IGNORED("kv-offloading-size", NULL, ONE, MEMORY),
    IGNORED("kv-sharing-fast-prefill", NULL, NOTHING, NULL),
    REFUSED("kv-transfer-config", NULL, ONE, NULL,
            "--prefill-workers and --decode-workers say which workers compute what; KV blocks go "
            "from one to the other without a connector"),
    IGNORED("language-model-only", NULL, NOTHING, MEDIA),
    IGNORED("limit-mm-per-prompt", NULL, ONE, MEDIA),
    IGNORED("linear-backend", NULL, ONE, GPU),
    IGNORED("log-config-file", NULL, ONE, LOGS),
    IGNORED("log-error-stack", NULL, NOTHING, LOGS),
    REFUSED("logits-processor-pattern", NULL, ONE, NULL,
            "a request has logit_bias, penalties, min_p and the like"),
    REFUSED("logits-processors", NULL, MANY, NULL,
            "a request has logit_bias, penalties, min_p and the like"),
    REFUSED("logprobs-mode", NULL, ONE, "raw_logprobs",
            "log-probabilities are those of the model, before temperature and penalties"),
    IGNORED("lora-dtype", NULL, ONE, ADAPTERS),
    IGNORED("lora-extra-vocab-size", NULL, ONE, ADAPTERS),
    IGNORED("lora-target-modules", NULL, ONE, ADAPTERS),
    IGNORED("mamba-backend", NULL, ONE, GPU),
    IGNORED("mamba-block-size", NULL, ONE, GPU),
    IGNORED("mamba-cache-dtype", NULL, ONE, GPU),
    IGNORED("mamba-cache-mode", NULL, ONE, GPU),
    IGNORED("mamba-ssm-cache-dtype", NULL, ONE, GPU),
    IGNORED("master-addr", NULL, ONE, HOSTS),
    IGNORED("master-port", NULL, ONE, HOSTS),
    IGNORED("max-context-len-to-capture", NULL, ONE, GPU),
    IGNORED("max-cpu-loras", NULL, ONE, ADAPTERS),
    IGNORED("max-cudagraph-capture-size", NULL, ONE, GPU),
    IGNORED("max-log-len", NULL, ONE, LOGS),
    IGNORED("max-long-partial-prefills", NULL, ONE, "see --long-prefill-token-threshold"),
    IGNORED("max-num-queued-tokens", NULL, ONE, "--max-waiting bounds the requests that wait"),
    IGNORED("max-parallel-loading-workers", NULL, ONE, LOCAL),
    IGNORED("max-seq-len-to-capture", NULL, ONE, GPU),
    IGNORED("media-io-kwargs", NULL, ONE, MEDIA),
    REFUSED("middleware", NULL, ONE, NULL, "there are no plugins; put a reverse proxy in front"),
    IGNORED("mm-encoder-attn-backend", NULL, ONE, MEDIA),
    IGNORED("mm-encoder-attn-dtype", NULL, ONE, MEDIA),
    IGNORED("mm-encoder-only", NULL, NOTHING, MEDIA),
    IGNORED("mm-encoder-tp-mode", NULL, ONE, MEDIA),
    IGNORED("mm-processor-cache-gb", NULL, ONE, MEDIA),
    IGNORED("mm-processor-cache-type", NULL, ONE, MEDIA),
    IGNORED("mm-processor-kwargs", NULL, ONE, MEDIA),
    IGNORED("mm-shm-cache-max-object-size-mb", NULL, ONE, MEDIA),
    IGNORED("model-impl", NULL, ONE, NULL),
    IGNORED("model-loader-extra-config", NULL, ONE, LOCAL),
    IGNORED("moe-backend", NULL, ONE, EXPERTS),
    IGNORED("multi-step-stream-outputs", NULL, NOTHING, "every token is sent as it comes"),
    REFUSED("nnodes", "n", ONE, "1", HOSTS),
    REFUSED("node-rank", "r", ONE, "0", HOSTS),
    IGNORED("num-lookahead-slots", NULL, ONE, "the head grants the slots of draft tokens"),
    IGNORED("num-redundant-experts", NULL, ONE, EXPERTS),
    IGNORED("num-scheduler-steps", NULL, ONE, "every token is sent as it comes"),
    IGNORED("offload-backend", NULL, ONE, MEMORY),
    IGNORED("offload-group-size", NULL, ONE, MEMORY),
    IGNORED("offload-num-in-group", NULL, ONE, MEMORY),
    IGNORED("offload-prefetch-step", NULL, ONE, MEMORY),
    IGNORED("optimization-level", "O", ONE, GPU),
    IGNORED("override-attention-dtype", NULL, ONE, GPU),
    REFUSED("override-generation-config", NULL, ONE, NULL, SAMPLING),
    REFUSED("override-pooler-config", NULL, ONE, NULL, "--pooler-config"),
    IGNORED("performance-mode", NULL, ONE, GPU),
    IGNORED("preemption-mode", NULL, ONE, "every token is sent as it comes"),
    REFUSED("prefill-context-parallel-size", "pcp", ONE, "1", "--tp and --pp share a model out"),
    IGNORED("prefix-caching-hash-algo", NULL, ONE, NULL),
    IGNORED("profiler-config", NULL, ONE, METRICS),
    IGNORED("pt-load-map-location", NULL, ONE, LOCAL),
    REFUSED("quantization-param-path", NULL, ONE, NULL, CONFIG),
    IGNORED("ray-workers-use-nsight", NULL, NOTHING, GPU),
    REFUSED("reasoning-config", NULL, ONE, NULL, "there is no budget for reasoning alone"),
    REFUSED("reasoning-parser-plugin", NULL, ONE, NULL,
            "parsers are built in, and no code is loaded; see --reasoning-parser"),
    REFUSED("response-role", NULL, ONE, "assistant", "answers have the role assistant"),
    REFUSED("return-tokens-as-token-ids", NULL, NOTHING, NULL,
            "put \"return_tokens_as_token_ids\": true into the request"),
    REFUSED("rope-scaling", NULL, ONE, NULL, CONFIG),
    REFUSED("rope-theta", NULL, ONE, NULL, CONFIG),
    REFUSED("runner", NULL, ONE, "auto|generate", NO_POOLING),
    IGNORED("safetensors-load-strategy", NULL, ONE, LOCAL),
    IGNORED("safetensors-prefetch-block-size", NULL, ONE, LOCAL),
    IGNORED("safetensors-prefetch-num-threads", NULL, ONE, LOCAL),
    REFUSED("scheduler-cls", NULL, ONE, NULL, "the scheduler is part of cox-head"),
    IGNORED("scheduler-delay-factor", NULL, ONE, "every token is sent as it comes"),
    IGNORED("seed", NULL, ONE,
            "a request without a seed draws anew each time; give seed in the request"),
    IGNORED("show-hidden-metrics-for-version", NULL, ONE, METRICS),
    IGNORED("skip-mm-profiling", NULL, NOTHING, MEDIA),
    REFUSED("skip-tokenizer-init", NULL, NOTHING, NULL,
            "the gateway needs the tokenizer; requests may send prompts as token ids"),
    IGNORED("specialize-active-lora", NULL, NOTHING, ADAPTERS),
    IGNORED("speculative-draft-tensor-parallel-size", NULL, ONE, SPEC),
    IGNORED("stream-interval", NULL, ONE, "every token is sent as it comes"),
    IGNORED("structured-outputs-config.backend",
            "structured-outputs-config.disable-additional-properties,"
            "structured-outputs-config.disable-fallback,"
            "structured-outputs-config.enable-in-reasoning,"
            "structured-outputs-config.reasoning-parser,"
            "structured-outputs-config.reasoning-parser-plugin",
            ONE, GRAMMAR),
    IGNORED("swap-space", NULL, ONE, MEMORY),
    REFUSED("task", NULL, ONE, "auto|generate", NO_POOLING),
    REFUSED("tokenizer", NULL, ONE, NULL,
            "the tokenizer of the model is used: a GGUF file has it inside, a folder beside it"),
    REFUSED("tokenizer-mode", NULL, ONE, "auto|slow|hf", "the tokenizer of the model is used"),
    IGNORED("tokenizer-pool-extra-config", NULL, ONE, FRONT),
    IGNORED("tokenizer-pool-size", NULL, ONE, FRONT),
    IGNORED("tokenizer-pool-type", NULL, ONE, FRONT),
    REFUSED("tokenizer-revision", NULL, ONE, "main",
            "the model's own tokenizer is used: ORG/NAME@REVISION names both"),
    REFUSED("tokens-only", NULL, NOTHING, NULL, "the API is OpenAI's over HTTP"),
    REFUSED("tool-parser-plugin", NULL, ONE, NULL, TOOLS),
    REFUSED("tool-server", NULL, ONE, NULL, TOOLS),
    IGNORED("trust-remote-code", NULL, NOTHING, "no code of a model is run"),
    IGNORED("ubatch-size", NULL, ONE, EXPERTS),
    IGNORED("use-tqdm-on-load", NULL, NOTHING, NULL),
    IGNORED("use-v2-block-manager", NULL, NOTHING, NULL),
    IGNORED("uvicorn-log-level", NULL, ONE, LOGS),
    IGNORED("video-pruning-rate", NULL, ONE, MEDIA),
    REFUSED("weight-transfer-config", NULL, ONE, NULL, "weights change with a new start"),
    IGNORED("worker-cls", NULL, ONE, NULL),
    IGNORED("worker-extension-cls", NULL, ONE, NULL),
    IGNORED("worker-use-ray", NULL, NOTHING, SPREAD),
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

/* Returns the largest number of replicas that serve at once. With workers of two roles, --dp
 * alone would leave one role out. */
uint32_t up_options_max_replicas(const struct up_options *o)
{
    bool has_roles = o->prefill_workers + o->decode_workers > 0;
    return o->workers > 0 && o->dp > 1 && !has_roles ? (uint32_t)o->dp : 0;
}
