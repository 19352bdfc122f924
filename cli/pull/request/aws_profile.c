#include "cli/pull/request/aws_profile.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/base/str.h"

static struct str unquoted(struct str s)
{
    bool is_quoted = s.len >= 2 && s.ptr[0] == s.ptr[s.len - 1] && strchr("\"'", s.ptr[0]);
    return is_quoted ? (struct str){s.ptr + 1, s.len - 2} : s;
}

/* Returns true when the line opens the profile's section: "[profile NAME]" or "[NAME]". */
static bool is_section_of(struct str line, enum aws_file file, const char *profile)
{
    const char *end = memchr(line.ptr, ']', line.len);
    if (!end)
        return false;
    struct str name = str_trim((struct str){line.ptr + 1, (size_t)(end - line.ptr - 1)}, " \t\r");
    if (file == AWS_FILE_CREDENTIALS)
        return str_eq_c(unquoted(name), profile);
    if (str_starts(name, STR("profile ")) || str_starts(name, STR("profile\t")))
        return str_eq_c(unquoted(str_trim((struct str){name.ptr + 8, name.len - 8}, " \t\r")),
                        profile);
    return strcmp(profile, "default") == 0 && str_eq_c(name, "default");
}

/* Walks over the lines of a profile file. *found is set when the section exists. *out receives
 * the value of `key`, unless `key` is NULL. */
static void walk(struct str text, enum aws_file file, const char *profile, const char *key,
                 bool *found, char **out)
{
    bool is_inside = false;
    *found = false;
    while (text.len > 0) {
        const char *end = memchr(text.ptr, '\n', text.len);
        struct str line = {text.ptr, end ? (size_t)(end - text.ptr) : text.len};
        size_t taken = line.len + (end ? 1 : 0);
        text.ptr += taken;
        text.len -= taken;
        if (line.len == 0 || strchr("#; \t\r", line.ptr[0]))
            continue;
        if (line.ptr[0] == '[') {
            is_inside = is_section_of(line, file, profile);
            *found = *found || is_inside;
            continue;
        }
        const char *equals = memchr(line.ptr, '=', line.len);
        if (!is_inside || !key || !equals)
            continue;
        struct str name = str_trim((struct str){line.ptr, (size_t)(equals - line.ptr)}, " \t\r");
        struct str value =
            str_trim((struct str){equals + 1, line.len - (size_t)(equals - line.ptr) - 1}, " \t\r");
        if (!str_eq_c(name, key) || value.len == 0 || memchr(value.ptr, '\0', value.len))
            continue;
        mem_free(*out);
        *out = mem_strndup(value.ptr, value.len);
    }
}

bool aws_profile_is_there(struct str text, enum aws_file file, const char *profile)
{
    bool found;
    char *none = NULL;
    walk(text, file, profile, NULL, &found, &none);
    return found;
}

char *aws_profile_get(struct str text, enum aws_file file, const char *profile, const char *key)
{
    bool found;
    char *out = NULL;
    walk(text, file, profile, key, &found, &out);
    return out;
}
