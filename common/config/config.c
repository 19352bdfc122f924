/* Parses the configuration in four passes of ascending precedence: defaults, file, environment,
 * flags. argv is split into settings first (argv.c), since it names the file. Every string in
 * the config struct is a copy in one arena, which config_fini frees. */
#include "common/config/config.h"

#include "common/base/mem.h"
#include "common/config/argv.h"
#include "common/config/environment.h"
#include "common/config/lookup.h"
#include "common/config/yaml.h"

static enum status apply_defaults(struct config_parser *p)
{
    struct config_origin from = {.source = CONFIG_FROM_DEFAULT};
    for (size_t i = 0; i < p->n_specs; i++) {
        const struct option_spec *s = &p->specs[i];
        if (!s->def || config_is_foreign(s))
            continue;
        if (s->type == OPTION_LIST)
            TRY(config_set_comma_list(p, i, s->def, from));
        else
            TRY(config_set(p, i, str_from(s->def), from));
    }
    return STATUS_OK;
}

static bool is_off(const struct config_parser *p, const struct option_spec *s)
{
    const char *field = (const char *)p->out + s->offset;
    if (s->type == OPTION_BOOL)
        return !*(const bool *)(const void *)field;
    const char *text = s->type == OPTION_STRING ? *(const char *const *)(const void *)field : "x";
    return !text || !text[0];
}

/* Warns about an option that was given while the option in its `needs` is off. */
static void warn_of_the_useless(struct config_parser *p)
{
    for (size_t i = 0; i < p->n_specs; i++) {
        const struct option_spec *s = &p->specs[i];
        if (!s->needs || p->set_by[i] == CONFIG_FROM_DEFAULT)
            continue;
        size_t k = config_find(p->specs, p->n_specs, str_from(s->needs));
        /* the line in the file is no longer known, so the text names the flag */
        bool env = p->set_by[i] == CONFIG_FROM_ENV;
        struct config_origin from = {.source = env ? CONFIG_FROM_ENV : CONFIG_FROM_FLAG};
        if (k < p->n_specs && is_off(p, &p->specs[k]))
            config_warn(p, "%s has no effect without %s", config_origin_text(p, s->name, from),
                        config_origin_text(p, s->needs, from));
    }
}

static enum status parse_all(struct config_parser *p, struct argv_scan *a, char *const *environ_)
{
    TRY(config_scan_argv(p, a));
    TRY(apply_defaults(p));
    if (p->res->help || p->res->version)
        return STATUS_OK;
    const char *file = a->config_file ? a->config_file : config_find_file_in_environment(environ_);
    if (file)
        TRY(config_read_file(p, file));
    TRY(config_apply_foreign_environment(p, environ_));
    TRY(config_apply_environment(p, environ_));
    config_give_back(p, a);
    for (size_t i = 0; i < a->n_settings; i++)
        TRY(config_set(
            p, a->settings[i].i_spec, a->settings[i].value,
            (struct config_origin){.source = CONFIG_FROM_FLAG, .as = a->settings[i].as}));
    config_warn_of_foreign_keys(p, environ_);
    warn_of_the_useless(p);
    return STATUS_OK;
}

enum status config_parse(const struct option_spec *specs, size_t n_specs, int argc,
                         char *const *argv, char *const *environ_, void *out,
                         struct config_result *res, struct error *err)
{
    struct arena *strings = mem_zalloc(sizeof *strings);
    arena_init(strings, 0);
    *res = (struct config_result){.owned = strings};
    struct config_parser p = {
        .specs = specs, .n_specs = n_specs, .out = out, .res = res, .strings = strings, .err = err};
    p.set_by = mem_array(n_specs, sizeof *p.set_by);
    struct argv_scan a = {.argc = argc, .argv = argv};
    a.settings = mem_array((size_t)(argc > 0 ? argc : 0), sizeof *a.settings);
    enum status s = parse_all(&p, &a, environ_);
    mem_free(p.set_by);
    mem_free(a.settings);
    if (s != STATUS_OK)
        config_fini(res);
    return s;
}

static enum status apply(struct config_parser *p, const struct config_pair *pairs, size_t n,
                         const char *file)
{
    for (size_t i = 0; i < n; i++) {
        const struct config_origin from = {
            .source = CONFIG_FROM_FILE, .file = file, .line = pairs[i].line};
        const size_t i_spec = config_find(p->specs, p->n_specs, pairs[i].name);
        if (i_spec == p->n_specs)
            return config_unknown(p, pairs[i].name, from);
        TRY(config_set(p, i_spec, pairs[i].value, from));
    }
    return STATUS_OK;
}

enum status config_apply(const struct option_spec *specs, size_t n_specs,
                         const struct config_pair *pairs, size_t n_pairs, const char *file,
                         void *out, struct config_result *res, struct error *err)
{
    struct arena *strings = mem_zalloc(sizeof *strings);
    arena_init(strings, 0);
    *res = (struct config_result){.owned = strings};
    struct config_parser p = {
        .specs = specs, .n_specs = n_specs, .out = out, .res = res, .strings = strings, .err = err};
    p.set_by = mem_array(n_specs, sizeof *p.set_by);
    enum status s = apply(&p, pairs, n_pairs, file);
    mem_free(p.set_by);
    if (s != STATUS_OK)
        config_fini(res);
    return s;
}

void config_fini(struct config_result *res)
{
    if (res->owned) {
        arena_fini(res->owned);
        mem_free(res->owned);
    }
    *res = (struct config_result){0};
}
