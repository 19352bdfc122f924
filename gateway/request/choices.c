#include "gateway/request/choices.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "gateway/parsers/tool_parsers.h"
#include "gateway/parsers/tool_raw.h"

/* Chooses the parsers for the answers, and the special tokens that these parsers need to see. */
static void choose_parsers(struct api_request *r)
{
    const struct serving_options *o = &r->s->o;
    const struct params *p = &r->prepared.params;
    r->answer_rules = (struct answer_rules){
        .tool_list = p->tools,
        .drop_reasoning = !p->include_reasoning,
        .one_call = !p->parallel_tool_calls,
        .call_prefix = r->dialect->call_prefix,
        .n_call_id = o->tool_parser ? o->tool_parser->n_id : 0,
        .raw_name = p->tool_name,
        .id_hi = r->id.hi,
        .id_lo = r->id.lo,
    };
    if (!r->dialect->call_prefix)
        return;
    /* with these grammars an answer may contain reasoning first */
    if (p->sampling.grammar_kind == GRAMMAR_NONE ||
        p->sampling.grammar_kind == GRAMMAR_AFTER_REASONING)
        r->answer_rules.reasoning = o->model.reasoning;
    if (p->tools && p->tool_choice != TOOL_CHOICE_NONE)
        r->answer_rules.tools = p->tool_choice != TOOL_CHOICE_REQUIRED ? o->tool_parser
                                : p->answer_is_input                   ? &tool_parser_raw
                                                                       : &tool_parser_list;
    if (!r->answer_rules.reasoning && !r->answer_rules.tools)
        return;
    r->rules.marker_ids = o->marker_ids;
    r->rules.n_marker_ids = p->skip_special_tokens ? o->n_marker_ids : 0;
}

/* Requests prompt log-probabilities in the first choice of a prompt. The answers of all choices
 * contain them. */
static void want_prompt_logprobs(struct api_request *r, struct api_choice *c,
                                 const struct prompt *prompt)
{
    const struct params *p = &r->prepared.params;
    if (p->sampling.n_prompt_logprobs < 0)
        return;
    if (c->i_choice % p->n_generated == 0)
        prompt_logprobs_init(&c->g.prompt_logprobs, prompt->n_ids, p->sampling.n_prompt_logprobs);
    if (p->echo && p->logprobs >= 0)
        c->g.n_chars = generation_count_chars(prompt->text);
}

struct forbidden api_request_forbidden(const struct api_request *r)
{
    const struct params *p = &r->prepared.params;
    struct forbidden f = {.params = &p->sampling};
    if (!p->ignore_eos)
        f.eos_ids = (struct u32_span){r->s->o.eos_ids, r->s->o.n_eos_ids};
    return f;
}

void api_request_make_choices(struct api_request *r)
{
    struct params *p = &r->prepared.params;
    const struct forbidden f = api_request_forbidden(r);
    /* A forced tool call is JSON that a grammar ends. A stop string within it would leave
     * arguments that no client can parse. */
    const bool is_call = p->tools && p->tool_choice == TOOL_CHOICE_REQUIRED && !p->answer_is_input;
    stop_set_init(&r->stops, p->stops, is_call ? 0 : p->n_stops);
    r->rules = (struct generation_rules){
        .tokenizer = r->s->o.model.tokenizer,
        .stops = &r->stops,
        .skip_special = p->skip_special_tokens,
        .include_stop = p->include_stop_str_in_output,
        .min_tokens = p->sampling.min_tokens,
        .want_logprobs = p->want_logprobs || (p->kind == API_COMPLETIONS && p->logprobs >= 0),
        .keep_said = r->dialect->repeats_text && p->stream,
        .prompt_only = p->prompt_only,
    };
    if (r->s->o.checks_tokens && forbidden_any(&f))
        r->rules.forbidden = f;
    choose_parsers(r);
    if (p->request_id.len > 0)
        snprintf(r->id_text, sizeof r->id_text, "%s" STR_FMT, r->dialect->id_prefix,
                 (int)p->request_id.len, p->request_id.ptr);
    r->n_choices = r->prepared.prompts.n * p->n_generated;
    r->choices = mem_array(r->n_choices, sizeof *r->choices);
    for (uint32_t i = 0; i < r->n_choices; i++) {
        const struct prompt *prompt = &r->prepared.prompts.items[i / p->n_generated];
        r->choices[i].owner = r;
        r->choices[i].i_choice = i;
        generation_init(&r->choices[i].g, &r->rules, prompt->ids, prompt->n_ids);
        answer_init(&r->choices[i].answer, &r->answer_rules, i, prompt);
        want_prompt_logprobs(r, &r->choices[i], prompt);
    }
}
