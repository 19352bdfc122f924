#pragma once
/* Streams one answer of a gateway, for `cox chat` and `cox complete`. */
#include <jansson.h>

#include "cli/client/gateway_access.h"
#include "cli/client/sse_reader.h"
#include "common/model/info/demo.h"

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
    const char *name; /* command's name, in front of errors */
    char url[900], model[512];
    bool is_completion;
    bool prints; /* the answer is printed while it arrives */
    bool is_dim; /* reasoning is shown too, in dim text */
    struct sse_reader sse;
    /* answer: text so far; raw: body of an answer that is not a stream, such as an error */
    struct strbuf answer, raw;
    char finish_reason[32];
    bool is_stream, failed, in_reasoning;
    const struct demo_model *demo; /* demo model that the gateway serves, by its list of models */
    /* the chat was refused because the model has no chat template; not printed */
    bool is_base_model;
    int64_t n_prompt, n_tokens; /* tokens by the gateway's count; -1 = not reported */
    uint64_t begin_ns, first_ns, last_ns;
};

void chat_turn_init(struct chat_turn *t, const struct chat_options *o, const char *name);
void chat_turn_fini(struct chat_turn *t);
/* Parses the gateway's URL, which may end with /v1, and finds the model: o->model, or the first
 * model that the gateway lists. */
MUST_USE enum status chat_turn_find(struct chat_turn *t, struct error *err);
/* Runs one request. `messages` are those of a chat, in the API's form. Without `messages`, the
 * request completes `prompt`. Returns false when there is no answer. The reason is on stderr.
 * Ctrl-C ends an answer early. The text received until then stays valid
 * (`chat_turn_is_interrupted`). */
bool chat_turn_run(struct chat_turn *t, const json_t *messages, const char *prompt);
/* Checks that the gateway has the model. STATUS_NOT_FOUND: the gateway lists its models, and
 * `model` is not among them, and err names them. */
MUST_USE enum status chat_turn_check_model(struct chat_turn *t, const char *model,
                                           struct error *err);
/* Installs a handler for SIGINT that ends the current answer. SA_RESTART is not set, so that a
 * blocking read returns. */
void chat_turn_catch_interrupts(void);
bool chat_turn_is_interrupted(void);
/* Formats "12 tokens, 34.5 tokens/s, the first after 0.12 s". The result is "" when no token
 * arrived. */
void chat_turn_describe(const struct chat_turn *t, char *out, size_t size);
