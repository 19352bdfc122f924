/* The tool parsers by name: each family has a file of its own. */
#include <string.h>

#include "gateway/answer_parser.h"
#include "gateway/tool_hermes.h"

static const struct answer_parser *const parsers[] = {&tool_parser_hermes};

const struct answer_parser *tool_parser_find(const char *name)
{
    for (size_t i = 0; i < sizeof parsers / sizeof *parsers; i++)
        if (strcmp(parsers[i]->name, name) == 0)
            return parsers[i];
    return NULL;
}

void tool_parser_names(struct strbuf *out)
{
    for (size_t i = 0; i < sizeof parsers / sizeof *parsers; i++)
        strbuf_printf(out, i ? ", %s" : "%s", parsers[i]->name);
}
