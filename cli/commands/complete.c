/* Implements `cox complete`: a model at a gateway continues a text from the command line or from
 * stdin. The command is meant for pipes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/chat/turn.h"
#include "cli/client/gateway_access.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "cli/up/local/find.h"

struct complete_options {
    struct gateway_access gateway;
    const char *model;
    double temperature, top_p;
    int64_t max_tokens, seed;
    bool json;
};

enum { TEXT_MAX = 8 << 20 };

#define S complete_options
const struct option_spec complete_specs[] = {
    {.name = "text",
     .aliases = "quick,q",
     .type = OPTION_ARGUMENT,
     .help = "Text to continue, the same as a bare TEXT."},
    GATEWAY_ACCESS_ROWS(S),
    {.name = "model",
     .aliases = "model-name",
     .type = OPTION_STRING,
     .offset = offsetof(struct S, model),
     .help = "Name of the model. Default: the first model that the gateway serves."},
    OPT_INT(S, max_tokens, "max-tokens", 0, 1 << 24, "0",
            "Maximum number of tokens in an answer. 0 = the gateway's default."),
    OPT_FLOAT(S, temperature, "temperature", -1, 10, "-1",
              "Sampling temperature. -1 = the gateway's default."),
    OPT_FLOAT(S, top_p, "top-p", -1, 1, "-1",
              "Probability mass of the tokens to sample from. -1 = the gateway's default."),
    OPT_INT(S, seed, "seed", -1, 9007199254740992.0, "-1",
            "Seed of the sampling. -1 = a new one each time."),
    OPT_BOOL(S, json, "json", NULL,
             "Print one line of JSON at the end: text, finish_reason, usage, seconds."),
};
#undef S
const size_t complete_n_specs = sizeof complete_specs / sizeof complete_specs[0];

/* Reads stdin to its end, without the last newline that echo appends. */
static enum status read_stdin(struct strbuf *out, struct error *err)
{
    char block[4096];
    ssize_t n;
    while ((n = read(STDIN_FILENO, block, sizeof block)) != 0) {
        if (n < 0 && errno != EINTR)
            return error_set(err, STATUS_IO, "cannot read the text from stdin: %s",
                             strerror(errno));
        if (chat_turn_is_interrupted())
            return error_set(err, STATUS_CLOSED, "the command was stopped by a signal");
        if (n > 0 && !strbuf_append(out, block, (size_t)n))
            return error_set(
                err, STATUS_INVALID,
                "the text from stdin has more than %d MiB, the limit. Send a shorter text",
                TEXT_MAX >> 20);
    }
    if (out->len > 0 && out->ptr[out->len - 1] == '\n')
        out->ptr[--out->len] = '\0';
    return STATUS_OK;
}

static enum status find_text(const struct config_result *res, struct strbuf *out, struct error *err)
{
    if (res->positional.n_items > 0)
        strbuf_append_c(out, res->positional.items[0]);
    else if (isatty(STDIN_FILENO) == 1)
        return error_set(err, STATUS_INVALID,
                         "the text is missing: run `cox complete \"TEXT\"`, or `… | cox complete`");
    else
        TRY(read_stdin(out, err));
    struct str text = strbuf_str(out);
    if (text.len == 0)
        return error_set(err, STATUS_INVALID,
                         "the text to complete is empty. Give at least one character");
    if (str_utf8_valid(text) != text.len || memchr(text.ptr, '\0', text.len))
        return error_set(err, STATUS_INVALID,
                         "the text to complete is not UTF-8. Convert it to UTF-8");
    return STATUS_OK;
}

static void print_json(const struct chat_turn *t)
{
    json_t *usage = json_object(), *root = json_object();
    if (t->n_prompt >= 0)
        json_object_set_new(usage, "prompt_tokens", json_integer(t->n_prompt));
    if (t->n_tokens >= 0)
        json_object_set_new(usage, "completion_tokens", json_integer(t->n_tokens));
    json_object_set_new(root, "model", json_string(t->model));
    json_object_set_new(root, "text", json_string(strbuf_str(&t->answer).ptr));
    json_object_set_new(root, "finish_reason",
                        t->finish_reason[0] ? json_string(t->finish_reason) : json_null());
    json_object_set_new(root, "usage", usage);
    if (t->first_ns > 0) {
        json_object_set_new(root, "ttft_seconds",
                            json_real((double)(t->first_ns - t->begin_ns) / 1e9));
        json_object_set_new(root, "seconds", json_real((double)(t->last_ns - t->begin_ns) / 1e9));
    }
    (void)json_dumpf(root, stdout, JSON_COMPACT);
    json_decref(root);
}

static int complete(const struct complete_options *o, struct chat_turn *t, const char *text)
{
    struct error err = {0};
    if (chat_turn_find(t, &err) != STATUS_OK) {
        fprintf(stderr, "cox complete: %s\n", err.text);
        if (err.status == STATUS_IO)
            local_cluster_hint("complete", "url", o->gateway.url);
        return EXIT_FAILED;
    }
    t->prints = !o->json;
    bool ok = chat_turn_run(t, NULL, text);
    if (o->json && ok && !chat_turn_is_interrupted())
        print_json(t);
    if (!o->json || ok)
        putchar('\n');
    return ok && !chat_turn_is_interrupted() ? EXIT_FINE : EXIT_FAILED;
}

int cmd_complete(int argc, char **argv)
{
    struct complete_options o = {0};
    struct config_result res;
    struct chat_turn t;
    struct strbuf text;
    struct error err = {0};
    int code;
    const struct command_line line = {.usage = "cox complete [TEXT] [OPTION...]",
                                      .specs = complete_specs,
                                      .n_specs = complete_n_specs,
                                      .max_positional = 1};
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        const struct chat_options c = {.gateway = o.gateway,
                                       .model = o.model,
                                       .temperature = o.temperature,
                                       .top_p = o.top_p,
                                       .max_tokens = o.max_tokens,
                                       .seed = o.seed};
        chat_turn_catch_interrupts();
        strbuf_init(&text, TEXT_MAX);
        chat_turn_init(&t, &c, "complete");
        enum status s = find_text(&res, &text, &err);
        if (s != STATUS_OK) {
            fprintf(stderr, "cox complete: %s\n", err.text);
            code = s == STATUS_INVALID ? EXIT_USAGE : EXIT_FAILED;
        } else {
            code = complete(&o, &t, strbuf_str(&text).ptr);
        }
        chat_turn_fini(&t);
        strbuf_fini(&text);
    }
    config_fini(&res);
    return code;
}
