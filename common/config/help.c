/* Prints `--help`. A long table has groups. `--help` alone shows the options that are marked as
 * common, and `--help=all` shows all options. `--help=TOPIC` shows one group, or the options
 * whose names or aliases contain TOPIC.
 *
 * Data flow: help_print chooses the width from the terminal. help_write appends the usage line,
 * the rows of the chosen options and the closing lines to a buffer, and help_print writes the
 * buffer to stdout. A row has the option's name and value in the first column. The second column
 * has the text and the facts (default, range, choices, aliases), wrapped to the width.
 *
 * Invariants: an option that is not listed (help_is_listed) has no row, and no default value of a
 * secret option is printed. Nothing is written to stdout before the whole text is complete, so a
 * wrong topic prints only an error. The functions change no table. */
#include "common/config/help.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/config/lookup.h"
#include "common/host/terminal_width.h"

enum { TEXT_COLUMN = 30, LONG_TEXT = 240, WIDTH_MIN = 60, WIDTH_MAX = 120, WIDTH_OF_PIPE = 100 };

static const struct option_spec built_in[] = {
    {.name = "config",
     .type = OPTION_STRING,
     .help = "YAML file with options. Their names have underscores, as in max_num_seqs: 64."},
    {.name = "help",
     .type = OPTION_BOOL,
     .help = "Show this text. --help=all shows every option, --help=WORD one group of options or "
             "the options that have WORD in their names."},
    {.name = "version", .type = OPTION_BOOL, .help = "Show the version."},
};
enum { N_BUILT_IN = sizeof built_in / sizeof *built_in };

const struct option_spec *help_built_in(size_t i)
{
    return i < N_BUILT_IN ? &built_in[i] : NULL;
}

bool help_is_listed(const struct option_spec *s)
{
    return s->help && !config_is_foreign(s);
}

static bool next_name(const char **at, struct str *name, bool *is_common)
{
    *at += strspn(*at, " ");
    name->ptr = *at;
    name->len = strcspn(*at, " *");
    *at += name->len;
    *is_common = **at == '*';
    *at += *is_common;
    return name->len > 0;
}

const struct option_spec *help_option_at(const struct option_group *g,
                                         const struct option_spec *specs, size_t n_specs, size_t i,
                                         bool *is_common)
{
    struct str name;
    bool common;
    for (const char *at = g->names; next_name(&at, &name, &common);)
        for (size_t k = 0; k < n_specs; k++)
            if (str_eq_c(name, specs[k].name) && help_is_listed(&specs[k]) && i-- == 0) {
                if (is_common)
                    *is_common = common;
                return &specs[k];
            }
    return NULL;
}

/* ---- one row ---- */

const char *help_value_word(const struct option_spec *s)
{
    switch (s->type) {
    case OPTION_INT:
    case OPTION_FLOAT:
        return " N";
    case OPTION_STRING:
    case OPTION_ARGUMENT:
        return " TEXT";
    case OPTION_LIST:
        return " TEXT...";
    case OPTION_ENUM:
        return " WORD";
    case OPTION_BOOL:
    case OPTION_IGNORED:
    case OPTION_REFUSED:
    case OPTION_TYPE_COUNT:
        break;
    }
    return "";
}

bool help_has_range(const struct option_spec *s)
{
    bool is_number = s->type == OPTION_INT || s->type == OPTION_FLOAT;
    return is_number && s->min < s->max && (s->max < HELP_RANGE_MAX || s->min > 0);
}

void help_append_facts(struct strbuf *b, const struct option_spec *s)
{
    const char *sep = " (";
    bool is_on = s->type == OPTION_BOOL && s->def && strcmp(s->def, "true") == 0;
    if (is_on)
        strbuf_printf(b, "%sdefault on, --no-%s turns it off", sep, s->name);
    else if (s->def && *s->def && !s->secret)
        strbuf_printf(b, "%sdefault %s", sep, s->def);
    sep = is_on || (s->def && *s->def && !s->secret) ? "; " : sep;
    if (help_has_range(s)) {
        strbuf_append_c(b, sep);
        help_append_range(b, s);
        sep = "; ";
    }
    if (s->type == OPTION_ENUM) {
        strbuf_printf(b, "%sone of ", sep);
        for (const char *c = s->choices; *c; c++)
            strbuf_append_c(b, *c == '|' ? ", " : (char[]){*c, '\0'});
        sep = "; ";
    }
    const char *sep_alias = sep;
    for (const char *a = s->aliases; a && *a; a += *a == ',') {
        int n = (int)strcspn(a, ",");
        strbuf_printf(b, "%s%s%s%.*s", sep_alias, a == s->aliases ? "also " : "",
                      n == 1 ? "-" : "--", n, a);
        a += n;
        sep_alias = ", ";
    }
    if (*sep_alias != ' ')
        strbuf_append_c(b, ")");
}

void help_append_range(struct strbuf *b, const struct option_spec *s)
{
    bool is_mib = s->min >= 1 << 20 && fmod(s->min, 1 << 20) == 0;
    if (s->max < HELP_RANGE_MAX)
        strbuf_printf(b, "%.16g to %.16g", s->min, s->max);
    else
        strbuf_printf(b, "at least %.16g%s", is_mib ? s->min / (1 << 20) : s->min,
                      is_mib ? "Mi" : "");
}

/* Returns true for a word such as "-", "#" or "16.", which Markdown reads as a mark at the
 * beginning of a line. */
static bool is_mark(const char *word, size_t n)
{
    size_t digits = strspn(word, "0123456789");
    return (n == 1 && strchr("-+*#", *word)) ||
           (digits > 0 && digits + 1 == n && word[n - 1] == '.');
}

void help_wrap(struct strbuf *b, const char *text, size_t at, size_t indent, size_t width,
               bool is_markdown)
{
    bool is_first = true;
    for (const char *w = text + strspn(text, " "); *w; w += strspn(w, " ")) {
        size_t n = strcspn(w, " "), shown = 0;
        for (size_t i = 0; i < n; i++)
            shown += ((unsigned char)w[i] & 0xC0) != 0x80;
        if (!is_first && at + 1 + shown > width && !(is_markdown && is_mark(w, n))) {
            strbuf_printf(b, "\n%*s", (int)indent, "");
            at = indent;
        } else if (!is_first) {
            strbuf_append_c(b, " ");
            at++;
        }
        strbuf_append(b, w, n);
        at += shown;
        is_first = false;
        w += n;
    }
    strbuf_append_c(b, "\n");
}

/* Appends an option's text. A long text is cut after its first sentence where only the common
 * options are shown. */
static void append_text(struct strbuf *b, const struct option_spec *s, bool is_short)
{
    const char *end = strstr(s->help, ". ");
    if (is_short && end && strlen(s->help) > LONG_TEXT)
        strbuf_append(b, s->help, (size_t)(end + 1 - s->help));
    else
        strbuf_append_c(b, s->help);
}

static void write_option(struct strbuf *b, const struct option_spec *s, size_t width, bool is_short)
{
    struct strbuf text;
    size_t start = b->len;
    strbuf_printf(b, "  --%s%s", s->name, help_value_word(s));
    size_t used = b->len - start;
    if (used + 2 > TEXT_COLUMN)
        strbuf_printf(b, "\n%*s", TEXT_COLUMN, "");
    else
        strbuf_printf(b, "%*s", (int)(TEXT_COLUMN - used), "");
    strbuf_init(&text, 0);
    append_text(&text, s, is_short);
    help_append_facts(&text, s);
    help_wrap(b, text.ptr, TEXT_COLUMN, TEXT_COLUMN, width, false);
    strbuf_fini(&text);
}

static void write_title(struct strbuf *b, const char *title)
{
    strbuf_printf(b, "%s%s:\n", b->ptr[b->len - 2] == '\n' ? "" : "\n", title);
}

/* ---- what is shown ---- */

static size_t count_listed(const struct help *h)
{
    size_t n = 0;
    for (size_t i = 0; i < h->n_specs; i++)
        n += help_is_listed(&h->specs[i]);
    return n + N_BUILT_IN;
}

/* Writes one group and returns the number of options that it has written. */
static size_t write_group(struct strbuf *b, const struct help *h, const struct option_group *g,
                          bool common_only)
{
    size_t n = 0;
    bool is_common;
    const struct option_spec *s;
    for (size_t i = 0; (s = help_option_at(g, h->specs, h->n_specs, i, &is_common)); i++) {
        if (common_only && !is_common)
            continue;
        if (n++ == 0)
            write_title(b, g->title);
        write_option(b, s, h->width, common_only);
    }
    return n;
}

static void write_built_in(struct strbuf *b, const struct help *h)
{
    if (h->groups)
        write_title(b, "Configuration and help");
    for (size_t i = 0; i < N_BUILT_IN; i++)
        write_option(b, &built_in[i], h->width, false);
}

/* Returns the program's name: "cox bench serve" for the usage "cox bench serve [OPTION...]". */
static struct str program_of(const char *usage)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz-";
    size_t end = 0, at = 0;
    while (usage[at] != '-' && strspn(usage + at, letters) > 0) {
        size_t n = strspn(usage + at, letters);
        if (usage[at + n] != ' ' && usage[at + n] != '\0')
            break;
        end = at + n;
        at = end + (usage[end] == ' ');
    }
    return (struct str){usage, end};
}

static void append_keys(struct strbuf *b, const struct help *h)
{
    const char *sep = "";
    for (const struct option_group *g = h->groups; g && g->key; g++) {
        if (!help_option_at(g, h->specs, h->n_specs, 0, NULL))
            continue;
        strbuf_printf(b, "%s%s", sep, g->key);
        sep = ", ";
    }
}

/* Writes the last lines of the help: the other topics, and where options can be set. */
static void write_end(struct strbuf *b, const struct help *h, bool common_only)
{
    struct strbuf text;
    struct str program = program_of(h->usage);
    strbuf_init(&text, 0);
    strbuf_append_c(b, "\n");
    if (common_only) {
        strbuf_printf(&text,
                      "`" STR_FMT " --help=all` lists all %zu options, `" STR_FMT
                      " --help=GROUP` lists one group: ",
                      STR_ARG(program), count_listed(h), STR_ARG(program));
        append_keys(&text, h);
        strbuf_append_c(&text, ".");
        help_wrap(b, text.ptr, 0, 0, h->width, false);
        strbuf_append_c(b, "\n");
    }
    help_wrap(
        b,
        "Every option can also be set in the environment as COX_<OPTION> and in the --config "
        "file. The command line wins over the environment, and the environment over the file.",
        0, 0, h->width, false);
    strbuf_fini(&text);
}

static bool has_word(const char *names, const char *word)
{
    size_t n = strlen(word);
    for (; names && *names; names++) {
        size_t i = 0;
        while (i < n && (names[i] == word[i] || (names[i] == '-' && word[i] == '_')))
            i++;
        if (i == n)
            return true;
    }
    return false;
}

static enum status write_topic(struct strbuf *b, const struct help *h, struct error *err)
{
    const char *word = h->topic + strspn(h->topic, "-");
    struct strbuf keys;
    size_t n = 0;
    for (const struct option_group *g = h->groups; g && g->key && n == 0; g++)
        if (strcmp(g->key, word) == 0)
            n = write_group(b, h, g, false);
    for (size_t i = 0, all = n == 0 && *word; all && i < h->n_specs; i++)
        if (help_is_listed(&h->specs[i]) &&
            (has_word(h->specs[i].name, word) || has_word(h->specs[i].aliases, word))) {
            write_option(b, &h->specs[i], h->width, false);
            n++;
        }
    if (n > 0)
        return STATUS_OK;
    strbuf_init(&keys, 0);
    append_keys(&keys, h);
    error_set(err, STATUS_NOT_FOUND,
              "--help=%.40s: no option has this in its name%s%s. --help=all lists all options.",
              h->topic, keys.len ? ", and no group has this name. The groups are " : "",
              keys.len ? keys.ptr : "");
    strbuf_fini(&keys);
    return STATUS_NOT_FOUND;
}

/* Writes the options that are in no group. A test of the tables checks that there are no such
 * options. */
static void write_rest(struct strbuf *b, const struct help *h)
{
    size_t n = 0;
    for (size_t i = 0; i < h->n_specs; i++) {
        bool found = !help_is_listed(&h->specs[i]);
        for (const struct option_group *g = h->groups; g->key && !found; g++) {
            const struct option_spec *s;
            for (size_t k = 0; !found && (s = help_option_at(g, h->specs, h->n_specs, k, NULL));
                 k++)
                found = s == &h->specs[i];
        }
        if (found)
            continue;
        if (n++ == 0)
            write_title(b, "Other options");
        write_option(b, &h->specs[i], h->width, false);
    }
}

enum status help_write(struct strbuf *b, const struct help *h, struct error *err)
{
    bool all = h->topic && strcmp(h->topic, "all") == 0;
    strbuf_printf(b, "Usage: %s\n\n", h->usage);
    if (h->topic && *h->topic && !all)
        return write_topic(b, h, err);
    for (const struct option_group *g = h->groups; g && g->key; g++)
        (void)write_group(b, h, g, !all);
    if (h->groups && all)
        write_rest(b, h);
    for (size_t i = 0; !h->groups && i < h->n_specs; i++)
        if (help_is_listed(&h->specs[i]))
            write_option(b, &h->specs[i], h->width, false);
    write_built_in(b, h);
    write_end(b, h, h->groups && !all);
    return STATUS_OK;
}

int help_print(const struct help *h)
{
    struct help shown = *h;
    struct error err = {0};
    struct strbuf b;
    unsigned n = terminal_width(STDOUT_FILENO);
    shown.width = n == 0          ? WIDTH_OF_PIPE
                  : n < WIDTH_MIN ? WIDTH_MIN
                  : n > WIDTH_MAX ? WIDTH_MAX
                                  : n;
    strbuf_init(&b, 0);
    enum status s = help_write(&b, &shown, &err);
    if (s == STATUS_OK)
        fwrite(b.ptr, 1, b.len, stdout);
    else
        fprintf(stderr, STR_FMT ": %s\n", STR_ARG(program_of(h->usage)), err.text);
    strbuf_fini(&b);
    return s == STATUS_OK ? 0 : 2;
}
