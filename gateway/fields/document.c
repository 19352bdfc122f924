/* Writes docs/reference/openai.md from the table of fields. */
#include <string.h>

#include "gateway/fields/document.h"
#include "gateway/fields/table.h"

#define HEAD                                                                                       \
    "# Fields of requests\n\n"                                                                     \
    "This page is for developers of clients: it lists every request field of OpenAI, Anthropic "   \
    "and vLLM, and what the gateway does with it.\n\n"                                             \
    "- A field is used, accepted without effect (`harmless`), or refused with a 400 that names "   \
    "it.\n"                                                                                        \
    "- A refused field is accepted while it is null, false or empty.\n"                            \
    "- A field that is not on this page is a 400. `--unknown-fields warn` or `ignore` lets it "    \
    "pass.\n"                                                                                      \
    "- `null` means the same as an absent field.\n"                                                \
    "- The column `since` names the version that introduced the behaviour.\n\n"                    \
    "`cox-gateway fields` writes this page from the table in `gateway/fields/`.\n\n"

/* `columns` lists the dialects with rows in the table. Each dialect has a column. */
static const struct {
    enum api_kind kind;
    const char *name;
} columns[] = {{API_COMPLETIONS, "completions"}, {API_CHAT, "chat"},
               {API_RESPONSES, "responses"},     {API_EMBEDDINGS, "embeddings"},
               {API_MESSAGES, "messages"},       {API_COUNT_TOKENS, "count_tokens"},
               {API_TOKENIZE, "tokenize"},       {API_DETOKENIZE, "detokenize"}};

static void append_number(struct strbuf *out, double d)
{
    if (d == -0x1p63 || d == 0x1p63)
        strbuf_append_c(out, d < 0 ? "-2^63" : "2^63");
    else
        strbuf_printf(out, "%.10g", d);
}

static void append_range(struct strbuf *out, const char *what, const struct field *f)
{
    strbuf_printf(out, "%s, ", what);
    if (f->above_min) {
        strbuf_append_c(out, "above ");
        append_number(out, f->min);
        strbuf_append_c(out, " to ");
    } else {
        append_number(out, f->min);
        strbuf_append_c(out, " to ");
    }
    append_number(out, f->max);
}

static void append_holds(struct strbuf *out, const struct field *f)
{
    switch (f->type) {
    case FIELD_BOOL:
        strbuf_append_c(out, "boolean");
        break;
    case FIELD_INT:
    case FIELD_U32:
        append_range(out, "integer", f);
        break;
    case FIELD_FLOAT:
        append_range(out, "number", f);
        break;
    case FIELD_STR:
        strbuf_printf(out, "string, up to %g bytes", f->max);
        break;
    case FIELD_JSON:
        strbuf_append_c(out, f->want == JSON_ARRAY    ? "list"
                             : f->want == JSON_OBJECT ? "object"
                             : f->want == JSON_STRING ? "string"
                                                      : "");
        break;
    case FIELD_ONLY:
        strbuf_append_c(out, "`");
        for (const char *c = f->only; *c; c++)
            strbuf_append_c(out, *c == '|' ? "` or `" : (char[]){*c, 0});
        strbuf_append_c(out, "`");
        break;
    case FIELD_CUSTOM:
    case FIELD_HARMLESS:
    case FIELD_REFUSE:
        break;
    }
}

static void append_fate(struct strbuf *out, const struct field *f)
{
    switch (f->type) {
    case FIELD_HARMLESS:
        strbuf_printf(out, "harmless: %s", f->why);
        break;
    case FIELD_ONLY:
        strbuf_printf(out, "harmless; anything else is refused: %s", f->why);
        break;
    case FIELD_REFUSE:
        strbuf_printf(out, "refused: %s", f->why);
        break;
    default:
        strbuf_append_c(out, f->why ? "used: " : "used");
        strbuf_append_c(out, f->why ? f->why : "");
    }
}

void fields_document(struct strbuf *out)
{
    const struct field *f;
    size_t n = sizeof columns / sizeof *columns;
    strbuf_append_c(out, HEAD "| field |");
    for (size_t k = 0; k < n; k++)
        strbuf_printf(out, " %s |", columns[k].name);
    strbuf_append_c(out, " holds | effect | since |\n|---|---|---|---|");
    for (size_t k = 0; k < n; k++)
        strbuf_append_c(out, "---|");
    strbuf_append_c(out, "\n");
    for (size_t i = 0; (f = fields_at(i)); i++) {
        strbuf_printf(out, "| `%s` |", f->name);
        for (size_t k = 0; k < n; k++)
            strbuf_append_c(out, f->kinds & columns[k].kind ? " x |" : "  |");
        strbuf_append_c(out, " ");
        append_holds(out, f);
        strbuf_append_c(out, " | ");
        append_fate(out, f);
        strbuf_printf(out, " | %s |\n", f->since);
    }
}
