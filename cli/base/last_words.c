#include "cli/base/last_words.h"

#include <stdio.h>
#include <string.h>

bool last_words_is_failure(const char *line)
{
    return strstr(line, " start_failed ") || strstr(line, "\"start_failed\"");
}

void last_words_sentence(const char *line, char *out, size_t size)
{
    static const char *const keys[] = {" error=\"", "\"error\":\"", "\"error\": \""};
    const char *at = NULL;
    size_t n = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !at; i++) {
        at = last_words_is_failure(line) ? strstr(line, keys[i]) : NULL;
        at = at ? at + strlen(keys[i]) : NULL;
    }
    if (!at) {
        snprintf(out, size, "%s", line);
        return;
    }
    for (; *at && *at != '"' && n + 1 < size; at++) {
        at += at[0] == '\\' && (at[1] == '"' || at[1] == '\\');
        out[n++] = *at;
    }
    out[n] = '\0';
}
