/* `cox flags`: writes the option tables as docs/reference/flags.md, or as JSON.
 * deploy/helm/schema makes the Helm chart's schema from the JSON. */
#include "cli/commands/flags.h"

#include <stdio.h>
#include <string.h>

#include "cli/base/command_line.h"
#include "cli/commands/list.h"
#include "common/config/lookup.h"
#include "common/config/set.h"

/* ---- docs/reference/flags.md ---- */

static void write_choices(struct strbuf *b, const char *choices)
{
    for (const char *c = choices; *c; c++)
        strbuf_printf(b, "%s%c", *c == '|' ? "\\" : "", *c);
}

/* "`--name`, `--alias`, `-x`" */
static void write_names(struct strbuf *b, const struct option_spec *s)
{
    strbuf_printf(b, "`--%s`", s->name);
    for (const char *a = s->aliases; a && *a; a += strcspn(a, ",") + (strchr(a, ',') != NULL)) {
        int n = (int)strcspn(a, ",");
        bool is_short = n <= 3 && (s->type == OPTION_IGNORED || s->type == OPTION_REFUSED);
        strbuf_printf(b, ", `%s%.*s`", is_short ? "-" : "--", n, a);
    }
}

static void write_row(struct strbuf *b, const struct option_spec *s)
{
    strbuf_append_c(b, "| ");
    write_names(b, s);
    strbuf_printf(b, " | %s | ", s->def ? s->def : "");
    if (s->type == OPTION_ENUM)
        write_choices(b, s->choices);
    else if ((s->type == OPTION_INT || s->type == OPTION_FLOAT) && s->max > s->min)
        strbuf_printf(b, "%.16g … %.16g", s->min, s->max);
    strbuf_printf(b, " | %s |\n", s->help);
}

static void write_flags_of_vllm(const struct command_table *t, struct strbuf *b)
{
    strbuf_append_c(
        b,
        "\n## vLLM's flags that are not here\n\nA command line of `vllm serve` works with `cox up` "
        "and `cox serve`. What is not in the table of `cox up` above is in this one: *ignored* "
        "flags have no meaning here, are taken as vLLM takes them and warned about once; *refused* "
        "ones would change what is served, and end the start with what to do instead, unless "
        "their value (last column) asks for what is done anyway. The same holds in a `--config` "
        "file. Any other unknown flag is an error that names the nearest known one.\n\n"
        "| flag | here | instead, or why | taken with |\n|---|---|---|---|\n");
    const struct command *up = command_find(t, "up");
    for (size_t k = 0; k < *up->n_specs; k++) {
        const struct option_spec *s = &up->specs[k];
        if (s->type != OPTION_IGNORED && s->type != OPTION_REFUSED)
            continue;
        strbuf_append_c(b, "| ");
        write_names(b, s);
        strbuf_printf(b, " | %s | %s | ", s->type == OPTION_IGNORED ? "ignored" : "refused",
                      s->instead ? s->instead : "");
        if (s->type == OPTION_REFUSED && s->choices)
            write_choices(b, s->choices);
        strbuf_append_c(b, " |\n");
    }
}

void flags_write_markdown(const struct command_table *t, struct strbuf *b)
{
    strbuf_append_c(
        b, "# Flags\n\nWritten by `cox flags` from the option tables; "
           "tests/unit/cli/commands/command_test.c compares. Every option is also "
           "`COX_<OPTION>` in the environment and a key of the YAML file given with "
           "`--config` (underscores for dashes); the command line wins, then the "
           "environment, then the file. `cox head`, `cox worker` and `cox gateway` are the "
           "programs `cox-head`, `cox-worker` and `cox-gateway`.\n");
    for (size_t i = 0; i < t->n; i++) {
        const struct command *c = &t->rows[i];
        if (!c->specs || !c->help || strcmp(c->name, "serve") == 0)
            continue;
        strbuf_printf(b,
                      "\n## cox %s\n\n%s.\n\n| flag | default | values | meaning |\n"
                      "|---|---|---|---|\n",
                      c->name, c->help);
        for (size_t k = 0; k < *c->n_specs; k++)
            /* options of Coxswain; unsupported flags of vLLM are listed below */
            if (c->specs[k].help)
                write_row(b, &c->specs[k]);
    }
    write_flags_of_vllm(t, b);
}

/* ---- JSON ---- */

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

/* Appends an option by its name in a --config file, with underscores. */
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

void flags_write_json(const struct command_table *t, struct strbuf *b)
{
    static const char *const programs[] = {"head", "worker", "gateway"};
    strbuf_append_c(b, "{");
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        const struct command *c = command_find(t, programs[i]);
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

int cmd_flags(const struct command_table *t, int argc, char **argv)
{
    struct strbuf b;
    bool json = argc == 2 && strcmp(argv[1], "--json") == 0;
    if (argc > 1 && !json) {
        fprintf(stderr, "usage: cox flags [--json]\n");
        return EXIT_USAGE;
    }
    strbuf_init(&b, 0);
    if (json)
        flags_write_json(t, &b);
    else
        flags_write_markdown(t, &b);
    int code = command_print(&b);
    strbuf_fini(&b);
    return code;
}
