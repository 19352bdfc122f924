#pragma once
/* The server of `cox bench throughput` and `latency`: a private cluster of --model, started as `cox
 * up` does and ended with the benchmark, on a socket and on ports that nobody has; or, with
 * --base-url, one that runs. */
#include "cli/base/command_line.h"
#include "cli/batch/cluster.h"
#include "cli/bench/prepare.h"

enum { BENCH_ENGINE_FLAGS = 14 };

struct bench_engine_options {
    struct bench_access access;
    const char
        *flags[BENCH_ENGINE_FLAGS]; /* bench_engine_names' values, for cox up; NULL: not given */
};

extern const char *const bench_engine_names[BENCH_ENGINE_FLAGS];

#define BENCH_ENGINE_FLAG(S, i, nm, al)                                                            \
    BENCH_TEXT(S, engine.flags[i], nm, al,                                                         \
               "Option of the cluster that the benchmark starts; see `cox up --help=all`.")
/* S has a bench_engine_options called engine. The order is bench_engine_names'. */
#define BENCH_ENGINE_ROWS(S)                                                                       \
    BENCH_TEXT(                                                                                    \
        S, engine.access.model, "model", NULL,                                                     \
        "Model to start a cluster for, as with `cox up`; it ends after the benchmark. With "       \
        "--base-url, the name of the model there. Options of `cox up` may follow after --."),      \
        BENCH_ENGINE_FLAG(S, 0, "tensor-parallel-size", "tp"),                                     \
        BENCH_ENGINE_FLAG(S, 1, "pipeline-parallel-size", "pp"),                                   \
        BENCH_ENGINE_FLAG(S, 2, "data-parallel-size", "dp"),                                       \
        BENCH_ENGINE_FLAG(S, 3, "device", NULL), BENCH_ENGINE_FLAG(S, 4, "dtype", NULL),           \
        BENCH_ENGINE_FLAG(S, 5, "max-model-len", NULL),                                            \
        BENCH_ENGINE_FLAG(S, 6, "max-num-seqs", NULL),                                             \
        BENCH_ENGINE_FLAG(S, 7, "max-num-batched-tokens", NULL),                                   \
        BENCH_ENGINE_FLAG(S, 8, "gpu-memory-utilization", NULL),                                   \
        BENCH_ENGINE_FLAG(S, 9, "kv-cache-dtype", NULL),                                           \
        BENCH_ENGINE_FLAG(S, 10, "quantization", NULL),                                            \
        BENCH_ENGINE_FLAG(S, 11, "load-format", NULL), BENCH_ENGINE_FLAG(S, 12, "threads", NULL),  \
        BENCH_ENGINE_FLAG(S, 13, "speculative-config", NULL)
/* Flags of vLLM's offline scripts that mean nothing here. */
#define BENCH_OFFLINE_IGNORED                                                                      \
    OPT_IGNORED("trust-remote-code", TAKES_NOTHING, "No code of a model is run."),                 \
        OPT_IGNORED("tokenizer-mode", TAKES_ONE, "There is only one mode."),                       \
        OPT_IGNORED("enforce-eager", TAKES_NOTHING,                                                \
                    "Give it after --, as an option of `cox up`."),                                \
        OPT_IGNORED("disable-detokenize", TAKES_NOTHING, "Answers are always read as text."),      \
        OPT_IGNORED("async-engine", TAKES_NOTHING, "There is only one engine."),                   \
        OPT_IGNORED("disable-frontend-multiprocessing", TAKES_NOTHING,                             \
                    "There is only one engine."),                                                  \
        OPT_IGNORED("hf-max-batch-size", TAKES_ONE, "This backend does not exist here."),          \
        OPT_REFUSED("use-beam-search", TAKES_NOTHING, NULL,                                        \
                    "Leave it out: beam search is not supported."),                                \
        OPT_REFUSED("profile", TAKES_NOTHING, NULL,                                                \
                    "Leave it out: there is no profiler to start.")

/* words: what stands behind --; extra: further options, before them, NULL at the end. Signals end
 * what waits. In each case end it. */
MUST_USE enum status bench_engine_start(struct batch_cluster *c, struct bench_engine_options *o,
                                        const char *const *extra, const struct option_list *words,
                                        struct error *err);

/* The part that throughput and latency share: the cluster is started or the server found, prompts
 * are made and measured, the cluster is ended. */
struct bench_offline {
    const char *owner;        /* "bench latency" */
    const char *const *extra; /* as above */
    bool is_chat;
    int64_t n; /* answers per prompt, drawn, none of them short */
    double temperature;
    void *options; /* theirs, which the two get */
    enum status (*prepare)(const void *options, const struct bench_target *target,
                           struct bench_prompts *out, struct error *err);
    enum status (*measure)(const void *options, const struct bench_target *target,
                           const struct bench_prompts *prompts, struct error *err);
};
/* The status of a fetch of the model, for bench_fail. */
enum status bench_fetch_status(enum status s, struct error *err);
MUST_USE enum status bench_offline_run(const struct bench_offline *b,
                                       struct bench_engine_options *engine,
                                       const struct option_list *words, struct error *err);
/* Parses into options, runs; the exit code. line's bound of positional words is set here. */
int bench_offline_command(int argc, char **argv, struct command_line line, void *options,
                          enum status (*run)(void *options, const struct option_list *words,
                                             struct error *err));
