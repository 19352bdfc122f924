#pragma once
/* Defines the options that the benchmarks share, and the functions that connect to a server and
 * make the prompts. Flags have vLLM's names (vllm bench, benchmark_*.py). */
#include "cli/bench/dataset.h"
#include "cli/bench/target.h"
#include "common/config/config.h"

struct bench_access {
    struct gateway_access gateway; /* `url` is NULL without --base-url */
    const char *host, *model, *served_model_name, *tokenizer;
    int64_t port;
};

#define BENCH_TEXT(S, field, nm, al, h)                                                            \
    {                                                                                              \
        .name = nm, .aliases = al, .type = OPTION_STRING, .offset = offsetof(struct S, field),     \
        .help = h                                                                                  \
    }
/* `BENCH_ACCESS_ROWS` lists option rows; `at` is the path of a bench_access in the struct S. */
#define BENCH_ACCESS_ROWS(S, at)                                                                   \
    BENCH_TEXT(S, at.gateway.url, "base-url", "url",                                               \
               "URL of the server, which can be any server with OpenAI's API. Default: "           \
               "http://HOST:PORT."),                                                               \
        OPT_STRING(S, at.host, "host", "127.0.0.1", "Address of the server, without --base-url."), \
        OPT_INT(S, at.port, "port", 1, 65535, "8000", "Port of the server, without --base-url."),  \
        OPT_STRING(S, at.gateway.cacert, "cacert", NULL,                                           \
                   "File with the certificate authority of the server (PEM), for https."),         \
        OPT_STRING(                                                                                \
            S, at.gateway.cert, "cert", NULL,                                                      \
            "File with a client certificate for a server that requires one (PEM), for https."),    \
        OPT_STRING(S, at.gateway.key, "key", NULL,                                                 \
                   "File with the private key of --cert (PEM). Default: the key is in --cert."),   \
        OPT_STRING(S, at.gateway.uds, "uds", NULL, "Path of the server's Unix socket."),           \
        {.name = "api-key",                                                                        \
         .type = OPTION_STRING,                                                                    \
         .offset = offsetof(struct S, at.gateway.api_key),                                         \
         .env = "VLLM_API_KEY,OPENAI_API_KEY",                                                     \
         .help = "API key of the server. Prefer COX_API_KEY, VLLM_API_KEY or OPENAI_API_KEY, "     \
                 "since other users can see a command line.",                                      \
         .secret = true},                                                                          \
        OPT_STRING(S, at.tokenizer, "tokenizer", NULL,                                             \
                   "Tokenizer that counts prompts: a file, a folder or a GGUF file. Default: "     \
                   "--model if it has one, else the server's /tokenize.")

/* `BENCH_DATASET_ROWS` lists option rows for a struct S with a bench_dataset_options called
 * `dataset`. */
#define BENCH_DATASET_ROWS(S, n_default)                                                           \
    {.name = "dataset-name",                                                                       \
     .type = OPTION_ENUM,                                                                          \
     .offset = offsetof(struct S, dataset.kind),                                                   \
     .choices = BENCH_DATASET_NAMES,                                                               \
     .def = "auto",                                                                                \
     .help = "Source of the prompts. auto: the format of --dataset-path decides; without a file, " \
             "random.",                                                                            \
     .instead = "prompts of another dataset can be given as JSON lines with --dataset-path"},      \
        BENCH_TEXT(S, dataset.path, "dataset-path", "dataset",                                     \
                   "File of prompts: ShareGPT's JSON, a poem (sonnet), or lines of {\"prompt\"[, " \
                   "\"output_tokens\"]}."),                                                        \
        OPT_INT(S, dataset.n_prompts, "num-prompts", 1, 1 << 22, n_default,                        \
                "Number of requests."),                                                            \
        OPT_INT(S, dataset.seed, "seed", 0, 9007199254740992.0, "0",                               \
                "Seed of the prompts and the arrivals."),                                          \
        OPT_INT(S, dataset.input_len, "input-len", -1, 1 << 24, "-1",                              \
                "Tokens in each prompt of the random and sonnet datasets. -1 = the value of the "  \
                "dataset's own option."),                                                          \
        OPT_INT(S, dataset.output_len, "output-len", -1, 1 << 24, "-1",                            \
                "Tokens in each answer, for every dataset. -1 = the value of the dataset's own "   \
                "option."),                                                                        \
        OPT_INT(S, dataset.random_input_len, "random-input-len", 1, 1 << 24, "1024",               \
                "Tokens in each prompt of the random dataset."),                                   \
        OPT_INT(S, dataset.random_output_len, "random-output-len", 1, 1 << 24, "128",              \
                "Tokens in each answer of the random dataset."),                                   \
        OPT_FLOAT(                                                                                 \
            S, dataset.random_range_ratio, "random-range-ratio", 0, 0.999, "0",                    \
            "Spread R of both lengths: they are sampled from LEN * (1 - R) to LEN * (1 + R)."),    \
        {.name = "random-prefix-len",                                                              \
         .aliases = "prefix-len",                                                                  \
         .type = OPTION_INT,                                                                       \
         .offset = offsetof(struct S, dataset.random_prefix_len),                                  \
         .max = 1 << 24,                                                                           \
         .def = "0",                                                                               \
         .help = "Tokens at the start of each prompt that are the same in all prompts."},          \
        OPT_INT(S, dataset.sharegpt_output_len, "sharegpt-output-len", -1, 1 << 24, "-1",          \
                "Tokens in each answer of the ShareGPT dataset. -1 = as many as the answer in "    \
                "the file."),                                                                      \
        OPT_INT(S, dataset.sonnet_input_len, "sonnet-input-len", 1, 1 << 24, "550",                \
                "Maximum tokens in each prompt of the sonnet dataset."),                           \
        OPT_INT(S, dataset.sonnet_output_len, "sonnet-output-len", 1, 1 << 24, "150",              \
                "Tokens in each answer of the sonnet dataset."),                                   \
        OPT_INT(S, dataset.sonnet_prefix_len, "sonnet-prefix-len", 0, 1 << 24, "200",              \
                "Tokens that all prompts of the sonnet dataset share."),                           \
        OPT_INT(S, dataset.custom_output_len, "custom-output-len", -1, 1 << 24, "-1",              \
                "Tokens in each answer of the custom dataset. -1 = the line's output_tokens, or "  \
                "256."),                                                                           \
        OPT_BOOL(S, dataset.disable_shuffle, "disable-shuffle", NULL,                              \
                 "Keep the order of the prompts in the file."),                                    \
        OPT_BOOL(S, dataset.no_oversample, "no-oversample", NULL,                                  \
                 "Send fewer requests if the file has fewer prompts, instead of the same prompts " \
                 "again.")

/* Opens `target`, waits up to ready_s seconds for a server that is not there yet, and finds its
 * model's name. With a negative ready_s, it waits -ready_s seconds, but a closed loopback port
 * is an error at once. `owner` is the command's name, such as "bench serve". */
MUST_USE enum status bench_connect(struct bench_target *target, const struct bench_access *a,
                                   const char *endpoint, bool is_chat, double ready_s,
                                   const char *owner, struct error *err);
/* Makes the prompts. `a->tokenizer` decides how tokens are counted. */
MUST_USE enum status bench_prepare(struct bench_prompts *out, const struct bench_target *target,
                                   const struct bench_access *a,
                                   const struct bench_dataset_options *o, struct error *err);
/* Writes the error as one line to stderr. Returns the exit code. */
int bench_fail(const char *owner, enum status s, const struct error *err);
