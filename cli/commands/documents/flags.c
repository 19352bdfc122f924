/* Implements `cox flags`, which prints the option tables as documents: docs/reference/flags.md,
 * environment.md, JSON, and manual pages. deploy/helm/schema makes the chart's schema from the
 * JSON.
 *
 * Data flow: command_table -> row by row -> strbuf -> stdout.
 * Invariants: every option in a document is read from a table. The same tables always give the
 * same bytes, because tests compare the committed pages with them. */
#include "cli/commands/documents/flags.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/base/command_line.h"
#include "cli/commands/documents/environment.h"
#include "cli/commands/documents/man.h"
#include "cli/commands/list.h"
#include "common/config/lookup.h"

enum { PAGE_WIDTH = 156 }; /* width of a line in columns, without the "<br>" at its end */

void flags_variable_of(const struct option_spec *s, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "COX_%s", s->name);
    for (char *c = out; *c && n > 0; c++)
        *c = (char)(*c == '-' || *c == '.' ? '_' : toupper((unsigned char)*c));
}

/* ---- docs/reference/flags.md ---- */

static void write_choices(struct strbuf *b, const char *choices)
{
    for (const char *c = choices; *c; c++)
        strbuf_printf(b, "%s%c", *c == '|' ? "\\" : "", *c);
}

/* Writes the spellings of an option: "`--name`, `--alias`, `-x`". */
static void write_names(struct strbuf *b, const struct option_spec *s)
{
    strbuf_printf(b, "`--%s`", s->name);
    for (const char *a = s->aliases; a && *a; a += strcspn(a, ",") + (strchr(a, ',') != NULL)) {
        int n = (int)strcspn(a, ",");
        bool is_short = n <= 3 && (s->type == OPTION_IGNORED || s->type == OPTION_REFUSED);
        strbuf_printf(b, ", `%s%.*s`", is_short || n == 1 ? "-" : "--", n, a);
    }
}

/* Writes the names "a,b" as "`PREFIXa`, `PREFIXb`". An option of one letter gets "-" instead of
 * the prefix. */
static void write_list(struct strbuf *b, const char *names, const char *prefix, bool is_option)
{
    const char *sep = "";
    for (struct str item; config_next_item(&names, &item); sep = ", ") {
        strbuf_printf(b, "%s`%s", sep, is_option && item.len == 1 ? "-" : prefix);
        strbuf_append_str(b, item);
        strbuf_append_c(b, "`");
    }
}

static void write_environment(struct strbuf *b, const struct option_spec *s)
{
    char name[CONFIG_NAME_MAX + 8];
    flags_variable_of(s, name, sizeof name);
    strbuf_printf(b, "environment `%s`", name);
    if (s->env) {
        strbuf_append_c(b, ", ");
        write_list(b, s->env, "", false);
    }
}

/* Writes the facts that follow an option's text: "default `256` · values 1 to 65536 · aliases …
 * · environment …". */
static void write_facts(struct strbuf *b, const struct option_spec *s)
{
    bool is_on = s->type == OPTION_BOOL && s->def && strcmp(s->def, "true") == 0;
    if (is_on)
        strbuf_printf(b, "default on, `--no-%s` turns it off · ", s->name);
    else if (s->def && *s->def && !s->secret)
        strbuf_printf(b, "default `%s` · ", s->def);
    if (s->type == OPTION_ENUM)
        for (size_t i = 0; config_choice(s->choices, i).len; i++)
            strbuf_printf(b, "%s`" STR_FMT "`", i ? ", " : "values ",
                          STR_ARG(config_choice(s->choices, i)));
    if (help_has_range(s)) {
        strbuf_append_c(b, s->max < HELP_RANGE_MAX ? "values " : "");
        help_append_range(b, s);
    }
    if (s->type == OPTION_ENUM || help_has_range(s))
        strbuf_append_c(b, " · ");
    if (s->aliases) {
        strbuf_append_c(b, strchr(s->aliases, ',') ? "aliases " : "alias ");
        write_list(b, s->aliases, "--", true);
        strbuf_append_c(b, " · ");
    }
    write_environment(b, s);
}

/* Writes the anchor of an option: for "bench serve" it begins with "cox-bench-serve". */
static void write_anchor(struct strbuf *b, const char *command, const char *option)
{
    strbuf_append_c(b, "<a id=\"cox-");
    for (const char *c = command; *c; c++)
        strbuf_append(b, *c == ' ' ? "-" : c, 1);
    strbuf_printf(b, "-%s\"></a>", option);
}

static void write_option(struct strbuf *b, const struct command *c, const struct option_spec *s)
{
    struct strbuf facts;
    strbuf_init(&facts, 0);
    write_facts(&facts, s);
    strbuf_append_c(b, "- ");
    write_anchor(b, c->name, s->name);
    strbuf_printf(b, "**`--%s`**<br>\n  ", s->name);
    help_wrap(b, s->help, 2, 2, PAGE_WIDTH, true);
    b->len--; /* this removes the newline after the last help line */
    strbuf_append_c(b, "<br>\n  ");
    help_wrap(b, facts.ptr, 2, 2, PAGE_WIDTH, true);
    strbuf_fini(&facts);
}

static void write_command(struct strbuf *b, const struct command *c)
{
    const struct option_spec *s;
    strbuf_printf(b, "\n## cox %s\n\n%s Usage: `cox %s %s`.\n", c->name, c->help, c->name,
                  c->arguments);
    if (!c->groups)
        strbuf_append_c(b, "\n");
    for (size_t k = 0; !c->groups && k < *c->n_specs; k++)
        if (help_is_listed(&c->specs[k]))
            write_option(b, c, &c->specs[k]);
    for (const struct option_group *g = c->groups; g && g->key; g++)
        for (size_t i = 0; (s = help_option_at(g, c->specs, *c->n_specs, i, NULL)); i++) {
            if (i == 0)
                strbuf_printf(b, "\n### Options of cox %s: %s\n\n", c->name, g->title);
            write_option(b, c, s);
        }
}

static void write_flags_of_vllm(const struct command_table *t, struct strbuf *b)
{
    strbuf_append_c(
        b, "\n## vLLM's flags that are not here\n\n"
           "A command line of `vllm serve` works with `cox up` and `cox serve`. This table has the "
           "flags of vLLM that `cox up` does not have. An\n*ignored* flag has no effect; `cox` "
           "prints one warning. A *refused* flag would change what is served: the start ends with "
           "an error that says what\nto do instead. A refused flag passes with a value of the "
           "last column, since the behaviour is the same. The same rules hold in a `--config` "
           "file. Any\nother unknown flag is an error that names the nearest known one.\n\n"
           "| flag | here | instead, or why | accepted with |\n|---|---|---|---|\n");
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

static const char beginning[] =
    "# Flags\n\n"
    "This page is for readers who look for one option: it lists every option of every command, "
    "with its default and its values. `cox COMMAND --help`\nshows the most important options of "
    "a command, and `cox COMMAND --help=all` shows all of them. `cox flags` prints this page from "
    "the option tables.\n\n"
    "There are three places for an option:\n\n"
    "1. the command line: `--max-num-seqs 64`,\n"
    "2. the environment: `COX_MAX_NUM_SEQS=64`,\n"
    "3. the YAML file given with `--config FILE`: `max_num_seqs: 64`.\n\n"
    "The command line wins over the environment, and the environment over the file. Numbers may "
    "end with k, m or g (powers of 1000) or with Ki, Mi or Gi\n(powers of 1024). "
    "[Environment variables](environment.md) lists the variables that have other names.\n\n"
    "`cox head`, `cox worker` and `cox gateway` are the programs `cox-head`, `cox-worker` and "
    "`cox-gateway`. `cox serve` has the options of `cox up`.\n";

void flags_write_markdown(const struct command_table *t, struct strbuf *b)
{
    strbuf_append_c(b, beginning);
    for (size_t i = 0; i < t->n; i++) {
        const struct command *c = &t->rows[i];
        if (c->specs && c->help && strcmp(c->name, "serve") != 0)
            write_command(b, c);
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

/* Appends an option as JSON. Its name has underscores, as in a --config file. */
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

/* Finds the command whose name follows --man, such as "bench serve". *found NULL means `cox`
 * itself. Returns false when no listed command has that name. */
static bool find_command(const struct command_table *t, int argc, char **argv,
                         const struct command **found)
{
    char name[64] = "";
    *found = NULL;
    for (int i = 2; i < argc; i++)
        snprintf(name + strlen(name), sizeof name - strlen(name), "%s%.25s", i > 2 ? " " : "",
                 argv[i]);
    if (argc > 2)
        *found = command_find(t, name);
    return argc == 2 || (*found && (*found)->help);
}

int cmd_flags(const struct command_table *t, int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    const struct command *c;
    struct strbuf b;
    strbuf_init(&b, 0);
    if (argc == 1)
        flags_write_markdown(t, &b);
    else if (argc == 2 && strcmp(what, "--json") == 0)
        flags_write_json(t, &b);
    else if (argc == 2 && strcmp(what, "--environment") == 0)
        environment_write_markdown(t, &b);
    else if (argc <= 4 && strcmp(what, "--man") == 0 && find_command(t, argc, argv, &c))
        man_write(t, c, &b);
    else
        fprintf(stderr, "usage: cox flags [--json | --environment | --man [COMMAND]]\n");
    int code = b.len > 0 ? command_print(&b) : EXIT_USAGE;
    strbuf_fini(&b);
    return code;
}
