#include "cli/view/answer.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define INTEGER_MAX 9007199254740992.0 /* INTEGER_MAX is 2^53; no head sends a larger integer */

const char *answer_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s && s[0] ? s : "-";
}

long long answer_integer(const json_t *o, const char *key)
{
    double v = json_number_value(json_object_get(o, key));
    return (long long)(v > INTEGER_MAX ? INTEGER_MAX : v < -INTEGER_MAX ? -INTEGER_MAX : v);
}

double answer_number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

bool answer_state_is(const json_t *o, const char *state)
{
    return strcmp(answer_text(o, "state"), state) == 0;
}

void answer_state(const json_t *worker, char *out, size_t size)
{
    const json_t *loaded = json_object_get(worker, "loaded");
    if (json_is_number(loaded))
        snprintf(out, size, "%s %.0f %%", answer_text(worker, "state"),
                 100 * json_number_value(loaded));
    else
        snprintf(out, size, "%s", answer_text(worker, "state"));
}

void answer_hide_controls(struct strbuf *b, size_t from)
{
    for (size_t i = from; i < b->len; i++)
        if (((uint8_t)b->ptr[i] < 0x20 && b->ptr[i] != '\n') || b->ptr[i] == 0x7F)
            b->ptr[i] = '?';
}
