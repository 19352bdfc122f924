#pragma once
/* `gateway_model` is the gateway's part of the model: files, names, tokenizer, chat template,
 * parsers of its answers, and defaults that hold for all requests. It is opened once and
 * read-only after that. */
#include "common/base/metrics.h"
#include "common/model/info/info.h"
#include "common/model/info/sampling_defaults.h"
#include "common/options/gateway.h"
#include "gateway/answer/answer_parser.h"
#include "gateway/compile/grammar_check.h"
#include "gateway/prepare/outputs_config.h"
#include "gateway/prepare/pooling.h"
#include "text/text.h"

enum { MAX_MARKERS = 32 };

struct gateway_model {
    struct model_info info;
    bool has_info;
    struct text_tokenizer *tokenizer;
    struct vocabulary vocabulary;
    struct compilers *compilers; /* compile processes; NULL with --grammar-processes 0 */
    struct grammar_check *grammars;
    struct text_template *chat_template; /* chat template of the model; NULL = none */
    /* parsers chosen by the options; NULL = none */
    const struct answer_parser *reasoning_parser, *tool_parser;
    uint32_t marker_ids[MAX_MARKERS], n_marker_ids;
    struct sampling_defaults sampling;
    struct pooler_config pooler;
    struct outputs_config outputs;
};

/* Reads the model's files. It takes up to a second for a large tokenizer, and any thread may call
 * it. `m` must be zeroed. Call `gateway_model_fini` also after a failure. `c` is borrowed. */
MUST_USE enum status gateway_model_read(struct gateway_model *m, const struct gateway_config *c,
                                        const char *cache_dir, struct error *err);
/* Makes the compilers of a model that was read. Only the loop's thread calls it. `registry` is
 * borrowed. */
void gateway_model_begin(struct gateway_model *m, const struct gateway_config *c,
                         const char *cache_dir, struct metrics *registry);
void gateway_model_fini(struct gateway_model *m);
