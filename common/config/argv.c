/* Splits a command line for config_parse. The input is argv; the output is settings (row, value,
 * spelling) and positional arguments. The values are applied later, after the file and the
 * environment, because flags override them.
 * An option may be spelt with dashes or underscores, by an alias, with no- in front, or as a
 * vLLM flag with a dotted key. `words` names the list option that takes the bare words that
 * follow. Only positional arguments are copied. Settings borrow from argv. Only one thread calls
 * these functions. */
#include "common/config/argv.h"

#include <string.h>

#include "common/config/lookup.h"

static enum status needs_value(struct config_parser *p, const struct argv_scan *a)
{
    return error_set(p->err, STATUS_INVALID, "the option " STR_FMT " needs a value",
                     STR_ARG(a->as));
}

/* Takes the value of the current option: the text after '=', or the next argument when that is
 * not an option. */
static enum status take_value(struct config_parser *p, struct argv_scan *a, const char *equals,
                              struct str *out)
{
    if (equals) {
        *out = str_from(equals + 1);
        return STATUS_OK;
    }
    if (a->i + 1 >= a->argc || strncmp(a->argv[a->i + 1], "--", 2) == 0)
        return needs_value(p, a);
    *out = str_from(a->argv[++a->i]);
    return STATUS_OK;
}

static void add_setting(struct argv_scan *a, size_t i_spec, struct str value)
{
    a->settings[a->n_settings++] = (struct setting){i_spec, value, a->as};
}

/* Returns true when the word may be the value of the option before it. A negative number may. */
static bool is_value(const char *word)
{
    return word[0] != '-' || word[1] == '\0' || word[1] == '.' ||
           (word[1] >= '0' && word[1] <= '9');
}

/* `typed` describes one argument that starts with a dash, before its row of the table is known. */
struct typed {
    struct str name;
    const char *equals;   /* position of the '=' in front of its own value; or NULL */
    const char *attached; /* value directly after a one-letter name ("-O3"); or NULL */
    bool one_dash, negated, dotted;
};

/* Returns the row of a vLLM flag, or n_specs when the name is not a vLLM flag. Such a flag may
 * have a field's key after a dot: --speculative-config.method ngram. */
static size_t find_foreign(const struct config_parser *p, struct str name)
{
    size_t i = config_find(p->specs, p->n_specs, name);
    return i < p->n_specs && config_is_foreign(&p->specs[i]) ? i : p->n_specs;
}

/* Returns the row of an option in any of its spellings, or n_specs when there is no such option. */
static size_t find_typed(const struct config_parser *p, struct typed *t)
{
    size_t i = config_find(p->specs, p->n_specs, t->name);
    if (i < p->n_specs)
        return i;
    if (str_starts(t->name, STR("no-")) || str_starts(t->name, STR("no_"))) {
        i = config_find_negated(p->specs, p->n_specs, t->name);
        t->negated = i < p->n_specs && !t->equals;
        return t->negated ? i : p->n_specs;
    }
    const char *dot = memchr(t->name.ptr, '.', t->name.len);
    i = dot ? find_foreign(p, (struct str){t->name.ptr, (size_t)(dot - t->name.ptr)}) : p->n_specs;
    if (i < p->n_specs) {
        t->dotted = true;
        return i;
    }
    i = t->one_dash && t->name.len > 1 ? find_foreign(p, (struct str){t->name.ptr, 1}) : p->n_specs;
    if (i < p->n_specs)
        t->attached = t->name.ptr + 1;
    return i;
}

static enum status scan_foreign(struct config_parser *p, struct argv_scan *a,
                                const struct option_spec *s, const struct typed *t)
{
    const char *next = a->i + 1 < a->argc ? a->argv[a->i + 1] : NULL;
    struct str value = STR("true");
    bool on;
    if (t->negated) {
        value = STR("false");
    } else if (t->attached || t->equals) {
        value = str_from(t->attached ? t->attached : t->equals + 1);
    } else if (s->takes == TAKES_NOTHING && !t->dotted) {
        bool word = next && strspn(next, "01") == 0 && config_parse_bool(str_from(next), &on);
        value = word ? str_from(a->argv[++a->i]) : value;
    } else if (next && is_value(next)) {
        value = str_from(a->argv[++a->i]);
        a->words = s->takes == TAKES_MANY ? s : NULL;
    } else if (s->takes != TAKES_PERHAPS_ONE) {
        return needs_value(p, a);
    }
    add_setting(a, (size_t)(s - p->specs), value);
    return STATUS_OK;
}

/* Handles --config, --help and --version. Any other name is unknown. */
static enum status scan_built_in(struct config_parser *p, struct argv_scan *a,
                                 const struct typed *t)
{
    struct str value = {0};
    if (str_eq_c(t->name, "config")) {
        TRY(take_value(p, a, t->equals, &value));
        a->config_file = value.ptr;
        return STATUS_OK;
    }
    p->res->help |= str_eq_c(t->name, "help") || str_eq_c(t->name, "h");
    p->res->help_topic = p->res->help && t->equals ? t->equals + 1 : NULL;
    p->res->version |= str_eq_c(t->name, "version");
    if (p->res->help || p->res->version)
        return STATUS_OK;
    return config_unknown(
        p, t->name, (struct config_origin){.source = CONFIG_FROM_FLAG, .one_dash = t->one_dash});
}

/* Returns true when the name has a key after a dot. Such an option takes a value, even a switch:
 * --structured-outputs-config.disable_x true. */
static bool has_dot(struct str name)
{
    return memchr(name.ptr, '.', name.len) != NULL;
}

static bool is_word_of_switch(const char *word)
{
    bool on;
    return config_parse_bool(str_from(word), &on);
}

static enum status scan_option(struct config_parser *p, struct argv_scan *a)
{
    struct typed t = {.one_dash = a->argv[a->i][1] != '-'};
    const char *arg = a->argv[a->i] + (t.one_dash ? 1 : 2);
    t.equals = strchr(arg, '=');
    t.name = (struct str){arg, t.equals ? (size_t)(t.equals - arg) : strlen(arg)};
    a->as = (struct str){a->argv[a->i], (size_t)(arg - a->argv[a->i]) + t.name.len};
    size_t i = find_typed(p, &t);
    if (i == p->n_specs)
        return scan_built_in(p, a, &t);
    const struct option_spec *s = &p->specs[i];
    if (config_is_foreign(s))
        return scan_foreign(p, a, s, &t);
    struct str value = t.negated ? STR("false") : STR("true");
    if (s->type != OPTION_BOOL) {
        TRY(take_value(p, a, t.equals, &value));
        if (s->words != WORDS_ARE_ARGUMENTS && !t.equals)
            a->words = s;
    } else if (t.equals) {
        value = str_from(t.equals + 1);
    } else if (has_dot(t.name) && a->i + 1 < a->argc && is_word_of_switch(a->argv[a->i + 1])) {
        value = str_from(a->argv[++a->i]);
    }
    if (s->type == OPTION_ARGUMENT)
        config_list_add(p, &p->res->positional, value);
    else
        add_setting(a, i, value);
    return STATUS_OK;
}

static void scan_word(struct config_parser *p, struct argv_scan *a, const char *word)
{
    if (!a->words) {
        config_list_add(p, &p->res->positional, str_from(word));
        return;
    }
    if (a->words->words == WORDS_ARE_VALUES_BUT_ONE || config_is_foreign(a->words))
        a->i_lent = a->n_settings + 1;
    add_setting(a, (size_t)(a->words - p->specs), str_from(word));
}

void config_give_back(struct config_parser *p, struct argv_scan *a)
{
    if (a->i_lent == 0 || p->res->positional.n_items > 0)
        return;
    struct str word = a->settings[a->i_lent - 1].value;
    config_list_add(p, &p->res->positional, word);
    a->n_settings--;
    for (size_t i = a->i_lent - 1; i < a->n_settings; i++)
        a->settings[i] = a->settings[i + 1];
}

size_t config_count_words(const struct option_spec *specs, size_t n_specs, int argc,
                          char *const *argv, int i)
{
    struct error ignored = {0};
    struct config_result res = {0};
    struct arena strings;
    struct setting setting;
    struct config_parser p = {
        .specs = specs, .n_specs = n_specs, .res = &res, .strings = &strings, .err = &ignored};
    struct argv_scan a = {.argc = argc, .argv = argv, .i = i, .settings = &setting};
    struct typed t = {.one_dash = argv[i][1] != '-'};
    if (argv[i][0] != '-' || argv[i][1] == '\0')
        return 0;
    const char *name = argv[i] + (t.one_dash ? 1 : 2);
    t.equals = strchr(name, '=');
    t.name = (struct str){name, t.equals ? (size_t)(t.equals - name) : strlen(name)};
    if (find_typed(&p, &t) == n_specs)
        return 0;
    arena_init(&strings, 0);
    /* false = the value is missing; another call reports that */
    bool is_whole = scan_option(&p, &a) == STATUS_OK;
    arena_fini(&strings);
    int end = a.i + 1;
    while (is_whole && a.words && end < argc && is_value(argv[end]))
        end++;
    return (size_t)(end - i);
}

enum status config_scan_argv(struct config_parser *p, struct argv_scan *a)
{
    bool options_ended = false;
    for (a->i = 1; a->i < a->argc && !p->res->help && !p->res->version; a->i++) {
        const char *arg = a->argv[a->i];
        bool ends = !options_ended && strcmp(arg, "--") == 0;
        bool option = !ends && !options_ended && arg[0] == '-' && arg[1] != '\0';
        if (ends || option)
            a->words = NULL;
        options_ended = options_ended || ends;
        if (option)
            TRY(scan_option(p, a));
        else if (!ends)
            scan_word(p, a, arg);
    }
    p->argument_typed = p->res->positional.n_items > 0;
    return STATUS_OK;
}
