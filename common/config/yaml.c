/* Reads the file of --config: one document, one mapping, scalars and lists of scalars.
 * config_read_file reads the whole file first, with a bound, so that libyaml never waits on a
 * pipe. libyaml's events are then passed to config_set, which copies the values.
 * A flat option table needs no anchors, tags or nested values. The reader refuses them and names
 * their line. An option with a JSON text may be a mapping, which is turned into that text. Only
 * one thread calls these functions. */
#include "common/config/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "common/base/mem.h"
#include "common/config/lookup.h"

enum { JSON_DEPTH_MAX = 16 };

struct yaml_reader {
    yaml_parser_t yaml;
    yaml_event_t event; /* the current event; deleted by next() */
    struct config_parser *p;
    const char *path;
};

static enum status next(struct yaml_reader *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->yaml, &r->event))
        return STATUS_OK;
    memset(&r->event, 0, sizeof r->event);
    return error_set(r->p->err, STATUS_INVALID, "%s:%zu: the file is not valid YAML: %s", r->path,
                     r->yaml.problem_mark.line + 1, r->yaml.problem ? r->yaml.problem : "?");
}

static enum status complain(struct yaml_reader *r, const char *what)
{
    return error_set(r->p->err, STATUS_INVALID, "%s:%zu: the file is not valid: %s", r->path,
                     r->event.start_mark.line + 1, what);
}

static struct str scalar(const struct yaml_reader *r)
{
    return (struct str){(const char *)r->event.data.scalar.value, r->event.data.scalar.length};
}

static bool is_null(const struct yaml_reader *r)
{
    struct str v = scalar(r);
    return r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (v.len == 0 || str_eq_c(v, "~") || str_eq_c(v, "null"));
}

/* Skips a whole value that may be nested. The value belongs to another program's option, which
 * has no meaning here. */
static enum status skip_value(struct yaml_reader *r)
{
    size_t depth = 0;
    for (;;) {
        yaml_event_type_t t = r->event.type;
        depth += t == YAML_SEQUENCE_START_EVENT || t == YAML_MAPPING_START_EVENT;
        depth -= t == YAML_SEQUENCE_END_EVENT || t == YAML_MAPPING_END_EVENT;
        if (depth == 0)
            return STATUS_OK;
        TRY(next(r));
    }
}

static size_t n_digits(struct str v, size_t from)
{
    size_t n = 0;
    while (from + n < v.len && v.ptr[from + n] >= '0' && v.ptr[from + n] <= '9')
        n++;
    return n;
}

/* Returns true when the text is a number in JSON's form. YAML has other forms of numbers, which
 * become texts. */
static bool is_json_number(struct str v)
{
    size_t at = v.len && v.ptr[0] == '-', n = n_digits(v, at);
    if (n == 0 || (n > 1 && v.ptr[at] == '0'))
        return false;
    at += n;
    if (at < v.len && v.ptr[at] == '.') {
        n = n_digits(v, at + 1);
        at += 1 + n;
        if (n == 0)
            return false;
    }
    if (at < v.len && (v.ptr[at] == 'e' || v.ptr[at] == 'E')) {
        at++;
        at += at < v.len && (v.ptr[at] == '+' || v.ptr[at] == '-');
        n = n_digits(v, at);
        at += n;
        if (n == 0)
            return false;
    }
    return at == v.len;
}

static void append_scalar(const struct yaml_reader *r, struct strbuf *b)
{
    struct str v = scalar(r);
    bool plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (is_null(r))
        strbuf_append_c(b, "null");
    else if (plain && (str_eq_c(v, "true") || str_eq_c(v, "false") || is_json_number(v)))
        strbuf_append_str(b, v);
    else
        strbuf_append_json(b, v);
}

/* Appends the current value as JSON, with all that it contains. */
static enum status append_json(struct yaml_reader *r, struct strbuf *b, size_t depth)
{
    bool list = r->event.type == YAML_SEQUENCE_START_EVENT;
    if (r->event.type == YAML_SCALAR_EVENT) {
        append_scalar(r, b);
        return STATUS_OK;
    }
    if (!list && r->event.type != YAML_MAPPING_START_EVENT)
        return complain(r, "expected a value here");
    if (depth == JSON_DEPTH_MAX)
        return complain(r, "this value is nested too deeply; use fewer levels");
    yaml_event_type_t end = list ? YAML_SEQUENCE_END_EVENT : YAML_MAPPING_END_EVENT;
    strbuf_append_c(b, list ? "[" : "{");
    for (size_t n = 0;; n++) {
        TRY(next(r));
        if (r->event.type == end)
            break;
        strbuf_append_c(b, n ? "," : "");
        if (!list) {
            if (r->event.type != YAML_SCALAR_EVENT)
                return complain(r, "expected the name of a key here");
            strbuf_append_json(b, scalar(r));
            strbuf_append_c(b, ":");
            TRY(next(r));
        }
        TRY(append_json(r, b, depth + 1));
    }
    strbuf_append_c(b, list ? "]" : "}");
    return STATUS_OK;
}

static enum status read_json(struct yaml_reader *r, size_t i_spec, struct config_origin from)
{
    struct strbuf b;
    strbuf_init(&b, CONFIG_VALUE_MAX);
    enum status s = append_json(r, &b, 0);
    if (s == STATUS_OK && b.failed)
        s = error_set(r->p->err, STATUS_LIMIT,
                      "%s: the value is longer than %d bytes, the limit. Use a shorter value",
                      config_origin_text(r->p, r->p->specs[i_spec].name, from), CONFIG_VALUE_MAX);
    if (s == STATUS_OK)
        s = config_set(r->p, i_spec, strbuf_str(&b), from);
    strbuf_fini(&b);
    return s;
}

/* Reads the value of a switch that has no- in front of its name. The value false leaves the
 * switch unchanged. */
static enum status read_negated(struct yaml_reader *r, size_t i_spec, struct config_origin from)
{
    bool off = false;
    TRY(next(r));
    if (r->event.type != YAML_SCALAR_EVENT || (!is_null(r) && !config_parse_bool(scalar(r), &off)))
        return complain(r, "expected true or false here");
    return off ? config_set(r->p, i_spec, STR("false"), from) : STATUS_OK;
}

static enum status read_value(struct yaml_reader *r, size_t i_spec, struct config_origin from)
{
    TRY(next(r));
    bool wants_list = r->p->specs[i_spec].type == OPTION_LIST;
    if (r->event.type == YAML_SCALAR_EVENT)
        return is_null(r) ? STATUS_OK : config_set(r->p, i_spec, scalar(r), from);
    if (config_is_foreign(&r->p->specs[i_spec])) {
        TRY(skip_value(r));
        return config_set(r->p, i_spec, STR(""), from);
    }
    if (r->p->specs[i_spec].json && r->event.type == YAML_MAPPING_START_EVENT)
        return read_json(r, i_spec, from);
    if (r->event.type != YAML_SEQUENCE_START_EVENT || !wants_list)
        return complain(r, wants_list                 ? "expected a list of plain values here"
                           : r->p->specs[i_spec].json ? "expected a mapping or a plain value here"
                                                      : "expected a plain value here");
    enum status s;
    while ((s = next(r)) == STATUS_OK && r->event.type != YAML_SEQUENCE_END_EVENT) {
        if (r->event.type != YAML_SCALAR_EVENT)
            return complain(r, "a list can contain only plain values");
        from.line = r->event.start_mark.line + 1;
        TRY(config_set(r->p, i_spec, scalar(r), from));
    }
    return s;
}

static enum status read_mapping(struct yaml_reader *r, bool *seen)
{
    struct config_parser *p = r->p;
    enum status s;
    while ((s = next(r)) == STATUS_OK && r->event.type != YAML_MAPPING_END_EVENT) {
        if (r->event.type != YAML_SCALAR_EVENT)
            return complain(r, "expected the name of an option here");
        struct config_origin from = {
            .source = CONFIG_FROM_FILE, .file = r->path, .line = r->event.start_mark.line + 1};
        size_t i = config_find(p->specs, p->n_specs, scalar(r));
        bool negated = i == p->n_specs;
        if (negated)
            i = config_find_negated(p->specs, p->n_specs, scalar(r));
        if (i == p->n_specs)
            return config_unknown(p, scalar(r), from);
        if (seen[i])
            return error_set(p->err, STATUS_INVALID,
                             "%s: this file sets the option twice; remove one of the two",
                             config_origin_text(p, p->specs[i].name, from));
        seen[i] = true;
        TRY(negated ? read_negated(r, i, from) : read_value(r, i, from));
    }
    return s;
}

static enum status read_document(struct yaml_reader *r, bool *seen)
{
    do
        TRY(next(r));
    while (r->event.type == YAML_STREAM_START_EVENT || r->event.type == YAML_DOCUMENT_START_EVENT);
    if (r->event.type == YAML_STREAM_END_EVENT)
        return STATUS_OK; /* an empty file sets nothing */
    if (r->event.type == YAML_SCALAR_EVENT && is_null(r))
        TRY(next(r));
    else if (r->event.type != YAML_MAPPING_START_EVENT)
        return complain(r, "the file must consist of lines option_name: value");
    else {
        TRY(read_mapping(r, seen));
        TRY(next(r));
    }
    TRY(next(r)); /* next() moves past the end of the document */
    if (r->event.type != YAML_STREAM_END_EVENT)
        return complain(r, "the file has more than one YAML document; keep only one");
    return STATUS_OK;
}

static enum status read_whole(struct config_parser *p, const char *path, struct strbuf *text)
{
    char chunk[16384];
    FILE *f = fopen(path, "rbe");
    if (!f)
        return error_set(p->err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO,
                         "cannot open the configuration file %s: %s", path, strerror(errno));
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) > 0;)
        if (!strbuf_append(text, chunk, n))
            break;
    bool bad = ferror(f) != 0;
    fclose(f);
    if (text->failed)
        return error_set(
            p->err, STATUS_LIMIT,
            "the configuration file %s is larger than the limit of %d bytes. Use a shorter file",
            path, CONFIG_FILE_MAX);
    return bad ? error_set(p->err, STATUS_IO, "cannot read the configuration file %s to its end",
                           path)
               : STATUS_OK;
}

enum status config_read_file(struct config_parser *p, const char *path)
{
    struct strbuf text;
    strbuf_init(&text, CONFIG_FILE_MAX);
    enum status s = read_whole(p, path, &text);
    struct yaml_reader r = {.p = p, .path = path};
    if (s == STATUS_OK && !yaml_parser_initialize(&r.yaml))
        s = error_set(
            p->err, STATUS_NO_MEMORY,
            "cannot read the configuration file: there is not enough memory for the YAML parser");
    if (s == STATUS_OK) {
        bool *seen = mem_array(p->n_specs, sizeof *seen);
        struct str bytes = strbuf_str(&text);
        yaml_parser_set_input_string(&r.yaml, (const unsigned char *)bytes.ptr, bytes.len);
        s = read_document(&r, seen);
        mem_free(seen);
        yaml_event_delete(&r.event);
        yaml_parser_delete(&r.yaml);
    }
    strbuf_fini(&text);
    return s;
}
