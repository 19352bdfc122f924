#include "common/base/userinfo.h"

#include <string.h>

/* `ends` lists the characters that end an authority. A password must percent-encode them. */
static const char ends[] = "/?# \t\"'<>";

void userinfo_hide(char *text)
{
    for (char *at = strstr(text, "://"); at; at = strstr(at, "://")) {
        at += 3;
        char *last = NULL;
        for (char *c = at; *c && !strchr(ends, *c); c++)
            last = *c == '@' ? c : last;
        if (last)
            memset(at, '*', (size_t)(last - at));
    }
}
