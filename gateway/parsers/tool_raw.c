/* Parses an answer that a grammar forces to be a single call of a custom tool: all of its text
 * is the tool's input. */
#include "gateway/parsers/tool_raw.h"
#include "gateway/answer/answer.h"
#include "gateway/answer/literal_scan.h"

enum { STEP_BEGIN, STEP_TEXT, STEP_END };

static size_t feed(const struct answer_parser *p, struct parser_state *s, struct str text, bool end,
                   struct answer *a)
{
    /* When the grammar ended an answer without text, it is a call with empty input. An answer
     * that was cut has not reached its call, and may have been cut within its reasoning. */
    if (s->step == STEP_BEGIN && (text.len > 0 || (end && !a->is_cut))) {
        s->i_call = answer_call(a, a->rules->raw_name);
        answer_arguments(a, s->i_call, STR("{\"input\": \""));
        s->step = STEP_TEXT;
    }
    if (s->step == STEP_TEXT && text.len > 0)
        literal_give_text(a, s->i_call, text);
    if (s->step == STEP_TEXT && end) {
        answer_arguments(a, s->i_call, STR("\"}"));
        s->step = STEP_END;
    }
    return text.len;
}

static const char *const no_marks[] = {NULL};

const struct answer_parser tool_parser_raw = {.name = "raw", .markers = no_marks, .feed = feed};
