/* Writes shell completion for bash, zsh and fish from the commands' option tables.
 * `cox completion SHELL` calls `completion_write`, which walks the table of commands and appends
 * one script to a buffer. `cmd_completion` prints the script.
 * Invariants: the tables are the only source, so a script knows every listed option and its
 * aliases. Help texts are quoted for the shell. Only options with a help text are listed. All
 * functions are pure, except for `cmd_completion`. */
#include "cli/commands/completion.h"

#include <stdio.h>
#include <string.h>

#include "cli/base/command_line.h"
#include "cli/commands/command.h"
#include "cli/commands/list.h"

/* Appends a description for use inside single quotes. */
static void append_quoted(struct strbuf *b, const char *s)
{
    for (; *s; s++) {
        if (*s == '\'')
            strbuf_append_c(b, "'\\''");
        /* the characters that separate fields in zsh are left out */
        else if (*s != ':' && *s != '[' && *s != ']')
            strbuf_append(b, s, 1);
    }
}

/* Returns true for an option that --help lists. Unsupported flags of vLLM have no help text. */
static bool is_listed(const struct option_spec *s)
{
    return s->help != NULL;
}

/* Returns the second word of the command's name, "serve" for "bench serve". Returns NULL for a
 * name of one word. */
static const char *second_word(const struct command *c)
{
    const char *space = strchr(c->name, ' ');
    return space ? space + 1 : NULL;
}

/* Returns true when the name of `c` is the first word of the name of `of`. For example, "bench"
 * is the first word of "bench serve". */
static bool is_parent(const struct command *c, const struct command *of)
{
    size_t n = strlen(c->name);
    return strncmp(of->name, c->name, n) == 0 && of->name[n] == ' ';
}

/* Appends the second words of all subcommands of a command, such as " serve throughput". */
static void append_seconds(const struct command_table *t, struct strbuf *b, const struct command *c)
{
    for (size_t i = 0; i < t->n; i++)
        if (is_parent(c, &t->rows[i]))
            strbuf_printf(b, " %s", second_word(&t->rows[i]));
}

static bool has_seconds(const struct command_table *t, const struct command *c)
{
    for (size_t i = 0; i < t->n; i++)
        if (is_parent(c, &t->rows[i]))
            return true;
    return false;
}

/* `spelling` describes one spelling of an option: "tp", "tensor-parallel-size",
 * "no-async-scheduling". */
struct spelling {
    const struct option_spec *s;
    char name[64];
    bool negated;
};

/* `built_in` lists options that every command accepts and that are in no table. */
static const struct option_spec built_in[] = {
    {.name = "config", .type = OPTION_STRING, .help = "YAML file with options"},
    {.name = "help", .type = OPTION_BOOL, .help = "show the options"},
};
enum { N_BUILT_IN = sizeof built_in / sizeof built_in[0] };

/* Finds the i-th spelling of a command's options. Returns false when there are no more
 * spellings. */
static bool spelling_at(const struct command *c, size_t i, struct spelling *out)
{
    for (size_t k = 0; k < *c->n_specs + N_BUILT_IN; k++) {
        const struct option_spec *s = k < *c->n_specs ? &c->specs[k] : &built_in[k - *c->n_specs];
        if (!is_listed(s))
            continue;
        for (const char *a = s->name; a; a = a == s->name ? s->aliases : strchr(a, ',')) {
            a += *a == ',';
            if (i-- == 0) {
                *out = (struct spelling){.s = s};
                snprintf(out->name, sizeof out->name, "%.*s", (int)strcspn(a, ","), a);
                return true;
            }
        }
        bool on = s->type == OPTION_BOOL && s->def && strcmp(s->def, "true") == 0;
        if (on && i-- == 0) {
            *out = (struct spelling){.s = s, .negated = true};
            snprintf(out->name, sizeof out->name, "no-%s", s->name);
            return true;
        }
    }
    return false;
}

static bool takes_value(const struct option_spec *s)
{
    return s->type != OPTION_BOOL;
}

static bool takes_number(const struct option_spec *s)
{
    return s->type == OPTION_INT || s->type == OPTION_FLOAT;
}

/* Appends the choices "auto|cpu|cuda" as words: "auto cpu cuda". */
static void append_words(struct strbuf *b, const char *choices)
{
    for (const char *c = choices; *c; c++)
        strbuf_append(b, *c == '|' ? " " : c, 1);
}

static void write_bash_command(const struct command_table *t, struct strbuf *b,
                               const struct command *c)
{
    struct spelling x;
    strbuf_printf(b, "        '%s')\n            case $prev in\n", c->name);
    for (size_t k = 0; c->specs && spelling_at(c, k, &x); k++) {
        if (!takes_value(x.s))
            continue;
        strbuf_printf(b, "            --%s) ", x.name);
        if (x.s->type == OPTION_ENUM) {
            strbuf_append_c(b, "words='");
            append_words(b, x.s->choices);
            strbuf_append_c(b, "' ;;\n");
        } else {
            strbuf_append_c(b, "return ;;\n"); /* -o default completes file names */
        }
    }
    strbuf_append_c(b, "            *) words='");
    for (size_t k = 0; c->specs && spelling_at(c, k, &x); k++)
        strbuf_printf(b, "%s--%s", k ? " " : "", x.name);
    append_seconds(t, b, c);
    strbuf_append_c(b, "' ;;\n            esac ;;\n");
}

static void write_bash(const struct command_table *t, struct strbuf *b)
{
    strbuf_append_c(b, "# cox completion bash; use: source <(cox completion bash)\n_cox() {\n"
                       "    local cur=${COMP_WORDS[COMP_CWORD]} words= i=$COMP_CWORD\n"
                       "    # bash splits --flag=value at the =\n"
                       "    if [ \"$cur\" = = ]; then cur=; i=$((i + 1)); fi\n"
                       "    local prev=${COMP_WORDS[i - 1]}\n"
                       "    if [ \"$prev\" = = ]; then prev=${COMP_WORDS[i - 2]}; fi\n"
                       "    COMPREPLY=()\n"
                       "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        words='");
    for (size_t i = 0; i < t->n; i++)
        if (t->rows[i].help && !second_word(&t->rows[i]))
            strbuf_printf(b, "%s ", t->rows[i].name);
    strbuf_append_c(b, "'\n    else\n        local command=${COMP_WORDS[1]}\n"
                       "        if [ \"$COMP_CWORD\" -gt 2 ]; then\n"
                       "            case \"$command ${COMP_WORDS[2]}\" in\n            none");
    for (size_t i = 0; i < t->n; i++)
        if (second_word(&t->rows[i]))
            strbuf_printf(b, "|'%s'", t->rows[i].name);
    strbuf_append_c(b, ") command=\"$command ${COMP_WORDS[2]}\" ;;\n            esac\n        fi\n"
                       "        case $command in\n");
    for (size_t i = 0; i < t->n; i++)
        if (t->rows[i].specs || has_seconds(t, &t->rows[i]))
            write_bash_command(t, b, &t->rows[i]);
    strbuf_append_c(b, "        completion) words='bash zsh fish' ;;\n        esac\n    fi\n"
                       "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n"
                       "complete -o default -F _cox cox\n");
}

static void write_zsh_option(struct strbuf *b, const struct spelling *x)
{
    const struct option_spec *s = x->s;
    strbuf_printf(b, " \\\n        '%s--%s%s[%s", s->type == OPTION_LIST ? "*" : "", x->name,
                  takes_value(s) ? "=" : "", x->negated ? "not: " : "");
    append_quoted(b, s->help);
    strbuf_append_c(b, "]");
    if (s->type == OPTION_ENUM) {
        strbuf_append_c(b, ":value:(");
        append_words(b, s->choices);
        strbuf_append_c(b, ")");
    } else if (takes_value(s)) {
        strbuf_append_c(b, takes_number(s) ? ":number: " : ":value:_files");
    }
    strbuf_append_c(b, "'");
}

static void write_zsh(const struct command_table *t, struct strbuf *b)
{
    struct spelling x;
    strbuf_append_c(b, "#compdef cox\n# cox completion zsh > a folder of $fpath/_cox\n_cox() {\n"
                       "    local -a list\n    if (( CURRENT == 2 )); then\n        list=(\n");
    for (size_t i = 0; i < t->n; i++) {
        if (!t->rows[i].help || second_word(&t->rows[i]))
            continue;
        strbuf_printf(b, "            '%s:", t->rows[i].name);
        append_quoted(b, t->rows[i].help);
        strbuf_append_c(b, "'\n");
    }
    strbuf_append_c(b, "        )\n        _describe command list\n        return\n    fi\n"
                       "    local command=$words[2]\n"
                       "    if (( CURRENT > 3 )); then\n        case \"$command $words[3]\" in\n"
                       "        none");
    for (size_t i = 0; i < t->n; i++)
        if (second_word(&t->rows[i]))
            strbuf_printf(b, "|'%s'", t->rows[i].name);
    strbuf_append_c(b, ") command=\"$command $words[3]\" ;;\n        esac\n    fi\n"
                       "    case $command in\n");
    for (size_t i = 0; i < t->n; i++)
        if (has_seconds(t, &t->rows[i]) && !t->rows[i].specs) {
            strbuf_printf(b, "    '%s') _values command", t->rows[i].name);
            append_seconds(t, b, &t->rows[i]);
            strbuf_append_c(b, " ;;\n");
        }
    for (size_t i = 0; i < t->n; i++) {
        if (!t->rows[i].specs)
            continue;
        strbuf_printf(b, "    '%s') _arguments", t->rows[i].name);
        for (size_t k = 0; spelling_at(&t->rows[i], k, &x); k++)
            write_zsh_option(b, &x);
        if (has_seconds(t, &t->rows[i])) {
            strbuf_append_c(b, " '1:command:(");
            append_seconds(t, b, &t->rows[i]);
            strbuf_append_c(b, " )'");
        }
        strbuf_append_c(b, " '*:file:_files' ;;\n");
    }
    strbuf_append_c(b,
                    "    completion) _values shell bash zsh fish ;;\n    *) _files ;;\n    esac\n"
                    "}\n"
                    /* zsh calls the function when it loads the script from $fpath; a sourced
                     * script registers the function */
                    "if [[ $funcstack[1] == _cox ]]; then\n    _cox \"$@\"\nelse\n"
                    "    compdef _cox cox\nfi\n");
}

static void write_fish_option(struct strbuf *b, const struct command *c, const struct spelling *x)
{
    const struct option_spec *s = x->s;
    const char *second = second_word(c);
    strbuf_printf(b, "complete -c cox -n '__fish_seen_subcommand_from %.*s",
                  (int)strcspn(c->name, " "), c->name);
    if (second)
        strbuf_printf(b, "; and __fish_seen_subcommand_from %s", second);
    strbuf_printf(b, "' -l %s", x->name);
    if (s->type == OPTION_ENUM) {
        strbuf_append_c(b, " -x -a '");
        append_words(b, s->choices);
        strbuf_append_c(b, "'");
    } else if (takes_value(s)) {
        strbuf_append_c(b, takes_number(s) ? " -x" : " -r");
    }
    strbuf_printf(b, " -d '%s", x->negated ? "not: " : "");
    append_quoted(b, s->help);
    strbuf_append_c(b, "'\n");
}

static void write_fish(const struct command_table *t, struct strbuf *b)
{
    struct spelling x;
    strbuf_append_c(b, "# cox completion fish | source\n");
    for (size_t i = 0; i < t->n; i++) {
        const struct command *c = &t->rows[i];
        if (!c->help)
            continue;
        const char *second = second_word(c);
        if (second)
            strbuf_printf(b, "complete -c cox -n '__fish_seen_subcommand_from %.*s' -f -a %s -d '",
                          (int)(second - 1 - c->name), c->name, second);
        else
            strbuf_printf(b, "complete -c cox -n __fish_use_subcommand -f -a %s -d '", c->name);
        append_quoted(b, c->help);
        strbuf_append_c(b, "'\n");
        for (size_t k = 0; c->specs && spelling_at(c, k, &x); k++)
            write_fish_option(b, c, &x);
    }
    strbuf_append_c(b, "complete -c cox -n '__fish_seen_subcommand_from completion' -f "
                       "-a 'bash zsh fish'\n");
}

bool completion_write(const struct command_table *t, const char *shell, struct strbuf *out)
{
    static const struct {
        const char *name;
        void (*write)(const struct command_table *t, struct strbuf *b);
    } shells[] = {{"bash", write_bash}, {"zsh", write_zsh}, {"fish", write_fish}};
    for (size_t i = 0; i < sizeof shells / sizeof shells[0]; i++)
        if (strcmp(shells[i].name, shell) == 0) {
            shells[i].write(t, out);
            return true;
        }
    return false;
}

int cmd_completion(const struct command_table *t, int argc, char **argv)
{
    struct strbuf b;
    int code = EXIT_USAGE;
    strbuf_init(&b, 0);
    if (argc == 2 && strncmp(argv[1], "--help", 6) == 0) {
        strbuf_append_c(&b, "usage: cox completion bash|zsh|fish\n");
        code = command_print(&b);
    } else if (argc == 2 && completion_write(t, argv[1], &b)) {
        code = command_print(&b);
    } else {
        fprintf(stderr, "cox completion: the shell is missing or unknown; usage: cox completion "
                        "bash|zsh|fish\n");
    }
    strbuf_fini(&b);
    return code;
}
