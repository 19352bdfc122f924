#include "common/config/print.h"

#include <string.h>

#include "common/base/log.h"
#include "common/config/hide.h"
#include "common/config/lookup.h"

static void append_text(struct strbuf *b, const struct option_spec *s, const char *text)
{
    struct strbuf shown;
    strbuf_init(&shown, 0);
    config_append_url(&shown, str_from(text));
    strbuf_append_json(b, s->secret ? STR("***") : strbuf_str(&shown));
    strbuf_fini(&shown);
}

static void print_value(struct strbuf *b, const struct option_spec *s, const void *config)
{
    const char *field = (const char *)config + s->offset;
    const struct option_list *list = (const void *)field;
    const char *text = NULL;
    switch (s->type) {
    case OPTION_BOOL:
        strbuf_append_c(b, *(const bool *)(const void *)field ? "true" : "false");
        break;
    case OPTION_INT:
        strbuf_printf(b, "%lld", (long long)*(const int64_t *)(const void *)field);
        break;
    case OPTION_FLOAT:
        strbuf_printf(b, "%.15g", *(const double *)(const void *)field);
        break;
    case OPTION_STRING:
        text = *(const char *const *)(const void *)field;
        if (text)
            append_text(b, s, text);
        else
            strbuf_append_c(b, "null");
        break;
    case OPTION_ENUM:
        strbuf_append_json(b,
                           config_choice(s->choices, (size_t) * (const int *)(const void *)field));
        break;
    case OPTION_LIST:
        strbuf_append_c(b, "[");
        for (size_t i = 0; i < list->n_items; i++) {
            strbuf_append_c(b, i ? ", " : "");
            append_text(b, s, list->items[i]);
        }
        strbuf_append_c(b, "]");
        break;
    case OPTION_ARGUMENT:
    case OPTION_IGNORED:
    case OPTION_REFUSED:
    case OPTION_TYPE_COUNT:
        break;
    }
}

void config_print_yaml(struct strbuf *b, const struct option_spec *specs, size_t n_specs,
                       const void *config)
{
    for (size_t i = 0; i < n_specs; i++) {
        if (config_is_foreign(&specs[i]) || specs[i].type == OPTION_ARGUMENT)
            continue;
        for (const char *c = specs[i].name; *c; c++)
            strbuf_append(b, *c == '-' ? "_" : c, 1);
        strbuf_append_c(b, ": ");
        print_value(b, &specs[i], config);
        strbuf_append_c(b, "\n");
    }
}

void config_log(const struct option_spec *specs, size_t n_specs, const void *config)
{
    struct strbuf b;
    if (!log_enabled(LOG_DEBUG))
        return;
    strbuf_init(&b, 0);
    config_print_yaml(&b, specs, n_specs, config);
    char *rest = b.ptr;
    for (char *line; rest && (line = strsep(&rest, "\n")) && line[0];)
        log_debug("option", "yaml=%s", log_quote(line));
    strbuf_fini(&b);
}
