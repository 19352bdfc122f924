#include "gateway/prepare/outputs_config.h"

#include <string.h>

#include "gateway/base/json_flag.h"
#include "proto/limits.h"

#define FLAG "--structured-outputs-config"

static enum status read_member(const char *key, const json_t *v, void *to, struct error *err)
{
    struct outputs_config *out = to;
    static const char *const idle[] = {"backend",          "disable_additional_properties",
                                       "disable_fallback", "enable_in_reasoning",
                                       "reasoning_parser", "reasoning_parser_plugin"};
    if (strcmp(key, "disable_any_whitespace") == 0) {
        out->compact = json_is_true(v);
        return json_is_boolean(v)
                   ? STATUS_OK
                   : error_set(err, STATUS_INVALID, FLAG ": %s must be true or false", key);
    }
    for (size_t i = 0; i < sizeof idle / sizeof *idle; i++)
        if (strcmp(key, idle[i]) == 0)
            return STATUS_OK;
    return error_set(err, STATUS_INVALID,
                     FLAG ": unknown key %.40s. The only key with an effect is "
                          "disable_any_whitespace; vLLM's other keys are accepted and ignored",
                     key);
}

enum status outputs_config_read(const char *json, struct outputs_config *out, struct error *err)
{
    *out = (struct outputs_config){0};
    return json_flag_read(FLAG, json, read_member, out, err);
}

static struct str behind_blanks(struct str s)
{
    while (s.len && strchr(" \t\r\n", s.ptr[0]) && s.ptr[0])
        s = (struct str){s.ptr + 1, s.len - 1};
    return s;
}

/* Adds a member in front and leaves the client's text unchanged, because its numbers may be
 * longer than a JSON library can keep. When a member occurs twice, the last one is valid. The
 * client's own member therefore wins. */
bool outputs_make_compact(struct params *p, struct api_error *e)
{
    static const char member[] = "{\"x-guidance\":{\"whitespace_flexible\":false}";
    const size_t n = sizeof member - 1;
    struct str s = behind_blanks(p->sampling.grammar);
    bool is_object = s.len && s.ptr[0] == '{';
    if (p->sampling.grammar_kind != GRAMMAR_JSON_SCHEMA ||
        !(is_object || str_starts(s, STR("true"))))
        return true;
    s = is_object ? behind_blanks((struct str){s.ptr + 1, s.len - 1}) : STR("}");
    bool has_members = s.len > 0 && s.ptr[0] != '}';
    char *out = arena_try_array(&p->arena, s.len + n + 1, 1);
    if (!out)
        return api_error_set(e, 400, p->grammar_field,
                             "%s is too long: the server has no memory for its %zu bytes.",
                             p->grammar_field, p->sampling.grammar.len);
    if (s.len + n + 1 > PROTO_MAX_GRAMMAR_BYTES)
        return api_error_set(e, 400, p->grammar_field,
                             "%s is too long: it has %zu bytes, and this server accepts at most "
                             "%zu, because it adds a rule against white space.",
                             p->grammar_field, p->sampling.grammar.len,
                             (size_t)PROTO_MAX_GRAMMAR_BYTES - n - 1);
    memcpy(out, member, n);
    out[n] = ',';
    memcpy(out + n + has_members, s.ptr, s.len);
    p->sampling.grammar = (struct str){out, n + has_members + s.len};
    return true;
}
