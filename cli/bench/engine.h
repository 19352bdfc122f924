#pragma once
/* Provides the server of `cox bench throughput` and `cox bench latency`. With --base-url, it is
 * a running server. Without --base-url, it is a private cluster of --model. `cox up` starts that
 * cluster on a socket and on free ports, and the cluster ends after the benchmark. */
#include "cli/base/command_line.h"
#include "cli/batch/cluster.h"
#include "cli/bench/prepare.h"
#include "common/options/kv_dtype.h"
#include "common/options/texts.h"

enum { BENCH_ENGINE_FLAGS = 14 };

struct bench_engine_options {
    struct bench_access access;
    /* values of the options in bench_engine_names, for `cox up`; NULL = not given */
    const char *flags[BENCH_ENGINE_FLAGS];
};

extern const char *const bench_engine_names[BENCH_ENGINE_FLAGS];

#define BENCH_ENGINE_FLAG(S, i, nm, al, h) BENCH_TEXT(S, engine.flags[i], nm, al, h)
/* `BENCH_ENGINE_ROWS` lists the option rows for a struct S with a bench_engine_options called
 * `engine`, in the order of bench_engine_names. */
#define BENCH_ENGINE_ROWS(S)                                                                       \
    BENCH_TEXT(                                                                                    \
        S, engine.access.model, "model", NULL,                                                     \
        "Model to start a cluster for, as with `cox up`; it ends after the benchmark. With "       \
        "--base-url, the name of the model there. Options of `cox up` may follow after --."),      \
        BENCH_ENGINE_FLAG(S, 0, "tensor-parallel-size", "tp", TP_HELP),                            \
        BENCH_ENGINE_FLAG(S, 1, "pipeline-parallel-size", "pp", PP_HELP),                          \
        BENCH_ENGINE_FLAG(S, 2, "data-parallel-size", "dp", UP_DP_HELP),                           \
        BENCH_ENGINE_FLAG(S, 3, "device", NULL, UP_DEVICE_HELP),                                   \
        BENCH_ENGINE_FLAG(S, 4, "dtype", NULL, ACTIVATION_DTYPE_HELP),                             \
        BENCH_ENGINE_FLAG(S, 5, "max-model-len", NULL, MAX_MODEL_LEN_HELP),                        \
        BENCH_ENGINE_FLAG(S, 6, "max-num-seqs", NULL, UP_MAX_NUM_SEQS_HELP),                       \
        BENCH_ENGINE_FLAG(S, 7, "max-num-batched-tokens", NULL, UP_MAX_BATCHED_TOKENS_HELP),       \
        BENCH_ENGINE_FLAG(S, 8, "gpu-memory-utilization", NULL, UP_GPU_MEMORY_HELP),               \
        BENCH_ENGINE_FLAG(S, 9, "kv-cache-dtype", NULL, KV_CACHE_DTYPE_HELP),                      \
        BENCH_ENGINE_FLAG(S, 10, "quantization", NULL, QUANTIZATION_HELP),                         \
        BENCH_ENGINE_FLAG(S, 11, "load-format", NULL, UP_LOAD_FORMAT_HELP),                        \
        BENCH_ENGINE_FLAG(S, 12, "threads", NULL, UP_THREADS_HELP),                                \
        BENCH_ENGINE_FLAG(S, 13, "speculative-config", NULL, SPECULATIVE_CONFIG_HELP)
/* `BENCH_OFFLINE_IGNORED` lists the flags of vLLM's offline scripts that have no effect here. */
#define BENCH_OFFLINE_IGNORED                                                                      \
    OPT_IGNORED("trust-remote-code", TAKES_NOTHING, "No code of a model is run."),                 \
        OPT_IGNORED("tokenizer-mode", TAKES_ONE, "Each tokenizer has one implementation."),        \
        OPT_IGNORED("enforce-eager", TAKES_NOTHING,                                                \
                    "Give it after --, as an option of `cox up`."),                                \
        OPT_IGNORED("disable-detokenize", TAKES_NOTHING, "Answers are always read as text."),      \
        OPT_IGNORED("async-engine", TAKES_NOTHING, "There is only one engine."),                   \
        OPT_IGNORED("disable-frontend-multiprocessing", TAKES_NOTHING,                             \
                    "There is only one engine."),                                                  \
        OPT_IGNORED("hf-max-batch-size", TAKES_ONE, "The hf backend does not exist here."),        \
        OPT_REFUSED("use-beam-search", TAKES_NOTHING, NULL,                                        \
                    "Leave it out: beam search is not supported."),                                \
        OPT_REFUSED("profile", TAKES_NOTHING, NULL,                                                \
                    "Leave it out: there is no profiler to start.")

/* Starts the cluster, or connects to --base-url. `words` are the words behind `--`. `extra` are
 * further options in front of them, with NULL at the end. A signal ends the wait. The caller
 * ends the cluster even when the start failed. */
MUST_USE enum status bench_engine_start(struct batch_cluster *c, struct bench_engine_options *o,
                                        const char *const *extra, const struct option_list *words,
                                        struct error *err);

/* `bench_offline` describes a benchmark whose steps `cox bench throughput` and `cox bench
 * latency` share. The steps are: start the cluster or find the server, make the prompts,
 * measure, end the cluster. */
struct bench_offline {
    const char *owner;        /* command's name: "bench latency" */
    const char *const *extra; /* further options of `cox up`, NULL at the end */
    bool is_chat;
    int64_t n; /* number of answers per prompt; answers are sampled and have full length */
    double temperature;
    void *options; /* options struct of the command, passed to `prepare` and `measure` */
    enum status (*prepare)(const void *options, const struct bench_target *target,
                           struct bench_prompts *out, struct error *err);
    enum status (*measure)(const void *options, const struct bench_target *target,
                           const struct bench_prompts *prompts, struct error *err);
};
/* Converts the status of a failed model fetch for `bench_fail`. */
enum status bench_fetch_status(enum status s, struct error *err);
MUST_USE enum status bench_offline_run(const struct bench_offline *b,
                                       struct bench_engine_options *engine,
                                       const struct option_list *words, struct error *err);
/* Parses the command line into `options` and runs the benchmark. Returns the exit code.
 * `line->max_positional` is set here. */
int bench_offline_command(int argc, char **argv, struct command_line line, void *options,
                          enum status (*run)(void *options, const struct option_list *words,
                                             struct error *err));
