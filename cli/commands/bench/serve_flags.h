#pragma once
/* Lists flags of `vllm bench serve` that have no effect here, or that would change the measured
 * values. The table has each flag by name, so that vLLM's command lines are accepted or an error
 * gives the reason. */
#include "common/config/config.h"

#define BENCH_NO_DATASET "It is an option of a dataset that is not supported; see --dataset-name."
#define BENCH_NO_MEDIA   "Only text is supported, no images, audio or video."
#define BENCH_NO_TRACE                                                                             \
    "The timed_trace dataset is not supported. Use --request-rate or --ramp-up-strategy."
#define BENCH_OTHER_DATASET(nm) OPT_IGNORED(nm, TAKES_ONE, BENCH_NO_DATASET)

#define BENCH_SERVE_FOREIGN                                                                        \
    OPT_IGNORED("trust-remote-code", TAKES_NOTHING, "No code of a model is run."),                 \
        OPT_IGNORED("tokenizer-mode", TAKES_ONE, "Each tokenizer has one implementation."),        \
        OPT_IGNORED("skip-tokenizer-init", TAKES_NOTHING,                                          \
                    "Without --tokenizer the server counts the prompt tokens."),                   \
        OPT_IGNORED("skip-chat-template", TAKES_NOTHING,                                           \
                    "The client never applies a chat template."),                                  \
        OPT_IGNORED("no-stream", TAKES_NOTHING,                                                    \
                    "It affects datasets of a hub only. Answers are always streamed."),            \
        OPT_IGNORED("no-reranker", TAKES_NOTHING, BENCH_NO_DATASET),                               \
        OPT_IGNORED("custom-ensure-client-side-data", TAKES_NOTHING, BENCH_NO_MEDIA),              \
        OPT_IGNORED("enable-multimodal-chat", TAKES_NOTHING, BENCH_NO_MEDIA),                      \
        OPT_IGNORED("plot-timeline", TAKES_NOTHING, "Use --plot FILE.svg to draw the latencies."), \
        OPT_IGNORED("plot-dataset-stats", TAKES_NOTHING,                                           \
                    "Use --plot FILE.svg to draw the latencies."),                                 \
        OPT_IGNORED("timeline-itl-thresholds", TAKES_ONE,                                          \
                    "Use --plot FILE.svg to draw the latencies."),                                 \
        BENCH_OTHER_DATASET("asr-max-audio-len-sec"),                                              \
        BENCH_OTHER_DATASET("asr-min-audio-len-sec"), BENCH_OTHER_DATASET("bfcl-categories"),      \
        BENCH_OTHER_DATASET("blazedit-max-distance"),                                              \
        BENCH_OTHER_DATASET("blazedit-min-distance"), BENCH_OTHER_DATASET("hf-name"),              \
        BENCH_OTHER_DATASET("hf-output-len"), BENCH_OTHER_DATASET("hf-split"),                     \
        BENCH_OTHER_DATASET("hf-subset"), BENCH_OTHER_DATASET("prefix-repetition-num-prefixes"),   \
        BENCH_OTHER_DATASET("prefix-repetition-output-len"),                                       \
        BENCH_OTHER_DATASET("prefix-repetition-prefix-len"),                                       \
        BENCH_OTHER_DATASET("prefix-repetition-suffix-len"),                                       \
        BENCH_OTHER_DATASET("random-mm-base-items-per-request"),                                   \
        BENCH_OTHER_DATASET("random-mm-bucket-config"),                                            \
        BENCH_OTHER_DATASET("random-mm-limit-mm-per-prompt"),                                      \
        BENCH_OTHER_DATASET("random-mm-num-mm-items-range-ratio"),                                 \
        BENCH_OTHER_DATASET("spec-bench-category"), BENCH_OTHER_DATASET("spec-bench-output-len"),  \
        BENCH_OTHER_DATASET("speed-bench-category"),                                               \
        BENCH_OTHER_DATASET("speed-bench-dataset-subset"),                                         \
        BENCH_OTHER_DATASET("speed-bench-output-len"),                                             \
        BENCH_OTHER_DATASET("timed-trace-chunk-hash-size"),                                        \
        BENCH_OTHER_DATASET("timed-trace-label-hash-ids"),                                         \
        BENCH_OTHER_DATASET("timed-trace-label-input-length"),                                     \
        BENCH_OTHER_DATASET("timed-trace-label-output-length"),                                    \
        BENCH_OTHER_DATASET("timed-trace-label-timestamp"),                                        \
        BENCH_OTHER_DATASET("timed-trace-sec-multiplier"),                                         \
        OPT_REFUSED("self-timed", TAKES_NOTHING, NULL, BENCH_NO_TRACE),                            \
        OPT_REFUSED("random-batch-size", TAKES_ONE, "1",                                           \
                    "Leave it out: each request has one prompt."),                                 \
        OPT_REFUSED("probe-request-rate", TAKES_ONE, "0|0.0",                                      \
                    "Leave it out: run a second `cox bench serve --request-rate R "                \
                    "--random-output-len 1` at the same time."),                                   \
        OPT_REFUSED("chat-template-kwargs", TAKES_ONE, NULL,                                       \
                    "The template is the server's. Use --backend openai-chat --extra-body "        \
                    "'{\"chat_template_kwargs\": {...}}'."),                                       \
        OPT_REFUSED("use-beam-search", TAKES_NOTHING, NULL,                                        \
                    "Leave it out: beam search is not supported."),                                \
        OPT_REFUSED("profile", TAKES_NOTHING, NULL,                                                \
                    "Leave it out: the server has no profiler to start.")
