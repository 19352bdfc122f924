#pragma once
/* Reads the options of speculative decoding, in the form of vLLM's flags: one JSON text, or a
 * flag for each of its keys. `cox up` takes them for its workers, cox-worker for itself. */
#include "common/config/config.h"
#include "common/options/texts.h"

#define SPECULATION_MAX_TOKENS  16
#define SPECULATION_MAX_LOOKUP  64
#define SPECULATION_MODEL_BYTES 1024

/* `speculation_options` holds the options as the user gave them. A program's options contain
 * this struct as `speculation`. */
struct speculation_options {
    const char *config;         /* JSON text; NULL = none */
    const char *method, *model; /* method and draft model; NULL = not given */
    /* numbers of the flags; 0 = not given */
    int64_t n_tokens, lookup_max, lookup_min, disable_by_batch_size;
};

/* ROWS_SPECULATION holds the rows of these options. S is the struct that the table fills. */
#define ROWS_SPECULATION(S)                                                                        \
    {.name = "speculative-config",                                                                 \
     .aliases = "sc",                                                                              \
     .type = OPTION_STRING,                                                                        \
     .offset = offsetof(struct S, speculation.config),                                             \
     .help = SPECULATIVE_CONFIG_HELP,                                                              \
     .json = true},                                                                                \
        {.name = "spec-method",                                                                    \
         .type = OPTION_STRING,                                                                    \
         .offset = offsetof(struct S, speculation.method),                                         \
         .help = "Method of speculative decoding. ngram: propose the tokens that followed the "    \
                 "same tokens earlier in the sequence. draft_model: a model proposes tokens, see " \
                 "--spec-model. Default: no speculative decoding."},                               \
        {.name = "spec-model",                                                                     \
         .aliases = "speculative-model",                                                           \
         .type = OPTION_STRING,                                                                    \
         .offset = offsetof(struct S, speculation.model),                                          \
         .help = "Small model with the same vocabulary that proposes draft tokens. Takes the "     \
                 "same values as --model."},                                                       \
        {.name = "num-speculative-tokens",                                                         \
         .aliases = "spec-tokens",                                                                 \
         .type = OPTION_INT,                                                                       \
         .offset = offsetof(struct S, speculation.n_tokens),                                       \
         .max = SPECULATION_MAX_TOKENS,                                                            \
         .def = "0",                                                                               \
         .help = "Number of draft tokens per sequence and step. 0 = none, or the number in "       \
                 "--speculative-config."},                                                         \
        {.name = "ngram-prompt-lookup-max",                                                        \
         .type = OPTION_INT,                                                                       \
         .offset = offsetof(struct S, speculation.lookup_max),                                     \
         .max = SPECULATION_MAX_LOOKUP,                                                            \
         .def = "0",                                                                               \
         .help = "Longest run of tokens that the ngram method searches for. 0 = 16."},             \
        {.name = "ngram-prompt-lookup-min",                                                        \
         .type = OPTION_INT,                                                                       \
         .offset = offsetof(struct S, speculation.lookup_min),                                     \
         .max = SPECULATION_MAX_LOOKUP,                                                            \
         .def = "0",                                                                               \
         .help = "Shortest run of tokens that the ngram method searches for. 0 = 2, or the "       \
                 "longest run if that is shorter."},                                               \
    {                                                                                              \
        .name = "speculative-disable-by-batch-size", .type = OPTION_INT,                           \
        .offset = offsetof(struct S, speculation.disable_by_batch_size), .max = 65536, .def = "0", \
        .help = "Maximum number of sequences in a step with draft tokens. Larger steps have no "   \
                "draft tokens. 0 = choose automatically."                                          \
    }

enum speculation_method { SPECULATION_NGRAM, SPECULATION_DRAFT_MODEL };

/* `speculation` holds the settings in force. */
struct speculation {
    uint32_t n_tokens;               /* draft tokens per sequence and step; 0 = off */
    uint32_t lookup_max, lookup_min; /* lengths of n-grams; 0 with another method */
    uint32_t max_seqs; /* most sequences of a step that has draft tokens; 0 = not given */
    enum speculation_method method;
    char model[SPECULATION_MODEL_BYTES]; /* draft model; "" with another method */
};

/* Computes the settings; flags override the JSON's keys. Returns STATUS_INVALID or
 * STATUS_UNSUPPORTED, with an error text that names the wrong value. */
MUST_USE enum status speculation_read(const struct speculation_options *o, struct speculation *out,
                                      struct error *err);
