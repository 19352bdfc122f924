/* The option tables as JSON: what deploy/helm/schema makes the chart's schema of. */
#include <stdio.h>
#include <string.h>

#include "cli/commands/completion.h"
#include "common/config/lookup.h"
#include "common/config/set.h"

static const char *const type_names[OPTION_TYPE_COUNT] = {
    [OPTION_BOOL] = "bool",     [OPTION_INT] = "int",   [OPTION_FLOAT] = "float",
    [OPTION_STRING] = "string", [OPTION_ENUM] = "enum", [OPTION_LIST] = "list",
};

static void append_member(struct strbuf *b, const char *name, const char *value)
{
    if (!value)
        return;
    strbuf_printf(b, ", \"%s\": ", name);
    strbuf_append_json(b, str_from(value));
}

static void append_choices(struct strbuf *b, const char *choices)
{
    strbuf_append_c(b, ", \"choices\": [");
    for (size_t i = 0;; i++) {
        struct str c = config_choice(choices, i);
        if (c.len == 0)
            break;
        strbuf_append_c(b, i ? ", " : "");
        strbuf_append_json(b, c);
    }
    strbuf_append_c(b, "]");
}

/* By its name in a file: underscores. */
static void append_option(struct strbuf *b, const struct option_spec *s)
{
    strbuf_append_c(b, "{\"name\": \"");
    for (const char *c = s->name; *c; c++)
        strbuf_append(b, *c == '-' ? "_" : c, 1);
    strbuf_append_c(b, "\"");
    append_member(b, "type", type_names[s->type]);
    append_member(b, "default", s->secret ? NULL : s->def);
    append_member(b, "help", s->help);
    if (s->type == OPTION_ENUM)
        append_choices(b, s->choices);
    if ((s->type == OPTION_INT || s->type == OPTION_FLOAT) && s->max > s->min)
        strbuf_printf(b, ", \"min\": %.16g, \"max\": %.16g", s->min, s->max);
    strbuf_printf(b, ", \"secret\": %s}", s->secret ? "true" : "false");
}

void flags_write_json(struct strbuf *b)
{
    static const char *const programs[] = {"head", "worker", "gateway"};
    strbuf_append_c(b, "{");
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        const struct command *c = command_find(programs[i]);
        const char *sep = "\n    ";
        strbuf_printf(b, "%s\n  \"%s\": [", i ? "," : "", c->name);
        for (size_t k = 0; k < *c->n_specs; k++) {
            if (!c->specs[k].help || !type_names[c->specs[k].type])
                continue;
            strbuf_append_c(b, sep);
            append_option(b, &c->specs[k]);
            sep = ",\n    ";
        }
        strbuf_append_c(b, "\n  ]");
    }
    strbuf_append_c(b, "\n}\n");
}
