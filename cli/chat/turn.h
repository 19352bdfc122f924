#pragma once
/* One answer of a gateway, streamed: for `cox chat` and `cox complete`. */
#include <jansson.h>

#include "cli/client/gateway_access.h"
#include "cli/client/sse_reader.h"

struct chat_options {
    struct gateway_access gateway;
    const char *model, *system, *quick;
    double temperature, top_p;
    int64_t max_tokens, seed;
    bool completion;
    const char *history;
};

struct chat_turn {
    const struct chat_options *o;
    const char *name; /* of the command, in front of errors */
    char url[900], model[512];
    bool is_completion;
    bool prints; /* the answer, as it comes */
    bool is_dim; /* what stands around it is shown, dim: reasoning */
    struct sse_reader sse;
    struct strbuf answer, raw; /* text so far; body when it was no stream: an error */
    char finish_reason[32];
    bool is_stream, failed, in_reasoning;
    bool is_base_model; /* a chat was refused, since the model has no chat template; not printed */
    int64_t n_prompt, n_tokens; /* as the gateway counts them; -1: it does not say */
    uint64_t begin_ns, first_ns, last_ns;
};

void chat_turn_init(struct chat_turn *t, const struct chat_options *o, const char *name);
void chat_turn_fini(struct chat_turn *t);
/* The gateway's URL as people paste it, and the model: o->model, or the first that it has. */
MUST_USE enum status chat_turn_find(struct chat_turn *t, struct error *err);
/* messages: of a chat, as the API has them; else prompt. False: there is none, and stderr says why.
 * Ctrl-C ends an answer, which is none the worse: chat_turn_is_interrupted. */
bool chat_turn_run(struct chat_turn *t, const json_t *messages, const char *prompt);
/* STATUS_NOT_FOUND: the gateway lists its models, and `model` is none of them; err names them. */
MUST_USE enum status chat_turn_check_model(struct chat_turn *t, const char *model,
                                           struct error *err);
/* SIGINT from here on ends answers; no SA_RESTART, so that what reads returns. */
void chat_turn_catch_interrupts(void);
bool chat_turn_is_interrupted(void);
/* "12 tokens, 34.5 tokens/s, the first after 0.12 s"; "" when nothing came. */
void chat_turn_describe(const struct chat_turn *t, char *out, size_t size);
