/* Implements `cox flags --man [COMMAND]`: writes a manual page from the tables that --help and
 * flags.md also use. scripts/man writes all manual pages into a folder. */
#include "cli/commands/documents/man.h"

#include <ctype.h>
#include <string.h>

#include "cli/commands/list.h"
#include "common/base/version.h"

/* Appends a text with its special characters escaped for roff. These are a backslash, and a dot
 * or a quote at the beginning of a line. A plain "-" is escaped too: roff would print a hyphen,
 * which a shell does not accept as "-". */
static void append_text(struct strbuf *b, const char *text)
{
    if (*text == '.' || *text == '\'')
        strbuf_append_c(b, "\\&");
    for (; *text; text++) {
        if (*text == '\\')
            strbuf_append_c(b, "\\e");
        else if (*text == '-')
            strbuf_append_c(b, "\\-");
        else
            strbuf_append(b, text, 1);
    }
}

static void append_line(struct strbuf *b, const char *macro, const char *text)
{
    strbuf_append_c(b, macro);
    append_text(b, text);
    strbuf_append_c(b, "\n");
}

/* Appends the page's name: "cox-bench-serve" for "bench serve", "cox" for NULL. */
static void append_name(struct strbuf *b, const struct command *c, bool in_capitals)
{
    struct strbuf name;
    strbuf_init(&name, 0);
    strbuf_printf(&name, "cox%s%s", c ? "-" : "", c ? c->name : "");
    for (char *p = name.ptr; *p; p++)
        *p = (char)(*p == ' ' ? '-' : in_capitals ? toupper((unsigned char)*p) : *p);
    append_text(b, name.ptr);
    strbuf_fini(&name);
}

static void write_title(struct strbuf *b, const struct command *c, const char *what)
{
    size_t n = strlen(what);
    strbuf_append_c(b, ".\\\" Written by `cox flags --man`.\n.TH ");
    append_name(b, c, true);
    strbuf_printf(b, " 1 \"\" \"Coxswain %s\" \"Coxswain\"\n.SH NAME\n", COX_VERSION);
    append_name(b, c, false);
    strbuf_append_c(b, " \\- ");
    append_text(b, what);
    b->len -= what[n - 1] == '.'; /* the NAME line of a manual page has no full stop at its end */
    strbuf_append_c(b, "\n.SH SYNOPSIS\n.B cox");
    strbuf_printf(b, "%s%s\n", c ? " " : "", c ? c->name : "");
    append_line(b, "", c ? c->arguments : "COMMAND [OPTION...]");
}

static void write_option(struct strbuf *b, const struct option_spec *s)
{
    struct strbuf text;
    strbuf_init(&text, 0);
    strbuf_append_c(b, ".TP\n\\fB\\-\\-");
    append_text(b, s->name);
    strbuf_printf(b, "\\fR\\fI%s\\fR\n", help_value_word(s));
    strbuf_append_c(&text, s->help);
    help_append_facts(&text, s);
    append_line(b, "", text.ptr);
    strbuf_fini(&text);
}

static void write_options(struct strbuf *b, const struct command *c)
{
    const struct option_spec *s;
    strbuf_append_c(b, ".SH OPTIONS\n");
    for (size_t i = 0; !c->groups && i < *c->n_specs; i++)
        if (help_is_listed(&c->specs[i]))
            write_option(b, &c->specs[i]);
    for (const struct option_group *g = c->groups; g && g->key; g++)
        for (size_t i = 0; (s = help_option_at(g, c->specs, *c->n_specs, i, NULL)); i++) {
            if (i == 0)
                append_line(b, ".SS ", g->title);
            write_option(b, s);
        }
    if (c->groups)
        strbuf_append_c(b, ".SS Configuration and help\n");
    for (size_t i = 0; help_built_in(i); i++)
        write_option(b, help_built_in(i));
}

static void write_commands(struct strbuf *b, const struct command_table *t)
{
    char name[32];
    strbuf_append_c(b, ".SH COMMANDS\n");
    for (const struct command_section *s = t->sections; s->title; s++) {
        append_line(b, ".SS ", s->title);
        for (const char *at = s->names; *at; at += strspn(at, " ")) {
            size_t n = strcspn(at, " ");
            str_copy(name, sizeof name, (struct str){at, n});
            const struct command *c = command_find(t, name);
            append_line(b, ".TP\n.B ", name);
            append_line(b, "", c ? c->help : "");
            at += n;
        }
    }
}

static const char ending[] =
    ".SH ENVIRONMENT\n"
    "Each option can be set as COX_<OPTION>: capitals, with underscores for dashes.\n"
    "The command line wins over the environment, and the environment over the file of\n"
    "\\fB\\-\\-config\\fR.\n"
    ".SH EXIT STATUS\n"
    "0 success, 1 failure, 2 wrong usage or configuration.\n"
    ".SH SEE ALSO\n";

void man_write(const struct command_table *t, const struct command *c, struct strbuf *out)
{
    const char *sep = "";
    write_title(out, c, c ? c->help : "LLM inference on a cluster");
    if (c && c->specs)
        write_options(out, c);
    if (!c)
        write_commands(out, t);
    strbuf_append_c(out, ending);
    if (c)
        strbuf_append_c(out, ".BR cox (1)");
    for (size_t i = 0; i < t->n && !c; i++) {
        if (!t->rows[i].help)
            continue;
        strbuf_printf(out, "%s.BR ", sep);
        append_name(out, &t->rows[i], false);
        strbuf_append_c(out, " (1)");
        sep = ",\n";
    }
    strbuf_append_c(out, "\n");
}
