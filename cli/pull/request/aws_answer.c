#include "cli/pull/request/aws_answer.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/base/mem.h"

enum { WORD_MAX = 8192 };

void aws_answer_fini(struct aws_answer *a)
{
    mem_free(a->id);
    mem_free(a->secret);
    mem_free(a->session);
    *a = (struct aws_answer){0};
}

/* Returns true for printable ASCII without spaces. The text is sent in a header, so other
 * characters are refused. */
static bool is_word(struct str s)
{
    if (s.len == 0 || s.len > WORD_MAX)
        return false;
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] <= ' ' || s.ptr[i] > '~' || s.ptr[i] == '<' || s.ptr[i] == '&')
            return false;
    return true;
}

/* Parses "2026-11-24T18:10:45Z", with or without a fraction of a second. */
static bool read_time(struct str s, int64_t *out)
{
    struct tm tm = {0};
    char text[48];
    int n = 0;
    if (s.len >= sizeof text)
        return false;
    memcpy(text, s.ptr, s.len);
    text[s.len] = '\0';
    if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec, &n) != 6)
        return false;
    const char *rest = text + n;
    if (*rest == '.')
        rest += 1 + strspn(rest + 1, "0123456789");
    if (strcmp(rest, "Z") != 0 && strcmp(rest, "+00:00") != 0)
        return false;
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *out = (int64_t)timegm(&tm);
    return *out > 0;
}

static bool take(struct str id, struct str secret, struct str session, struct str expires,
                 struct aws_answer *out)
{
    *out = (struct aws_answer){0};
    if (!is_word(id) || !is_word(secret) || (session.len && !is_word(session)) ||
        (expires.len && !read_time(expires, &out->expires_s)))
        return false;
    out->id = mem_strndup(id.ptr, id.len);
    out->secret = mem_strndup(secret.ptr, secret.len);
    out->session = session.len ? mem_strndup(session.ptr, session.len) : NULL;
    return true;
}

/* Returns the text between <NAME> and the next <, without the whitespace around it. */
static struct str element(struct str text, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i + n + 2 <= text.len; i++) {
        const char *at = text.ptr + i;
        if (at[0] != '<' || memcmp(at + 1, name, n) != 0 || at[n + 1] != '>')
            continue;
        const char *begin = at + n + 2, *all = text.ptr + text.len;
        const char *end = memchr(begin, '<', (size_t)(all - begin));
        while (end && begin < end && strchr(" \t\r\n", *begin))
            begin++;
        while (end && end > begin && strchr(" \t\r\n", end[-1]))
            end--;
        return end ? (struct str){begin, (size_t)(end - begin)} : (struct str){0};
    }
    return (struct str){0};
}

bool aws_answer_read_xml(struct str text, struct aws_answer *out)
{
    return take(element(text, "AccessKeyId"), element(text, "SecretAccessKey"),
                element(text, "SessionToken"), element(text, "Expiration"), out);
}

static struct str member(const json_t *o, const char *name)
{
    return str_from(json_string_value(json_object_get(o, name)));
}

bool aws_answer_read_json(struct str text, struct aws_answer *out)
{
    json_t *o = json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES, NULL);
    bool ok = take(member(o, "AccessKeyId"), member(o, "SecretAccessKey"), member(o, "Token"),
                   member(o, "Expiration"), out);
    json_decref(o);
    return ok;
}

void aws_answer_problem(struct str text, char *out, size_t size)
{
    json_t *o = json_loadb(text.ptr, text.len, 0, NULL);
    struct str word = o ? member(o, "code") : element(text, "Code");
    size_t n = 0;
    while (n < word.len && (size_t)n + 1 < size &&
           strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", word.ptr[n]))
        n++;
    snprintf(out, size, "%.*s", (int)n, word.len ? word.ptr : "");
    json_decref(o);
}
