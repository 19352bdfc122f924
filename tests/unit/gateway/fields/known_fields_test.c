/* Tests that no field of OpenAI's, Anthropic's or vLLM's requests is silently ignored. Each
 * field of their schemas is refused by name, is documented as harmless in
 * docs/reference/openai.md, or has an effect. The lists of fields are from the openai package
 * 3.52, the anthropic package 2.12 and vLLM 0.32. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/fields/read.h"
#include "gateway/fields/table.h"

static const struct schema {
    enum api_kind kind;
    const char *example; /* smallest valid body of the API */
    const char *fields;  /* names of the fields, separated by spaces */
} schemas[] = {
    {API_COMPLETIONS, "{\"prompt\":\"a\"}", /* fields of OpenAI's completions */
     "best_of echo frequency_penalty logit_bias logprobs max_tokens model n presence_penalty "
     "prompt seed stop stream stream_options suffix temperature top_p user"},
    {API_COMPLETIONS, "{\"prompt\":\"a\"}", /* fields that vLLM adds to completions */
     "add_special_tokens allowed_token_ids bad_words cache_salt ec_transfer_params echo "
     "frequency_penalty ignore_eos include_stop_str_in_output kv_transfer_params length_penalty "
     "logit_bias logprob_token_ids logprobs max_tokens min_p min_tokens mm_payload model n "
     "presence_penalty priority prompt prompt_embeds prompt_logprobs repetition_detection "
     "repetition_penalty request_id response_format return_mm_kwargs return_token_ids "
     "return_token_offsets return_tokens_as_token_ids routed_experts_prompt_start seed session_id "
     "skip_special_tokens spaces_between_special_tokens stop stop_token_ids stream "
     "stream_interval stream_options structured_outputs suffix temperature thinking_token_budget "
     "top_k top_p truncate_prompt_tokens truncation_side use_beam_search user vllm_xargs "
     "watermarking guided_json guided_regex guided_choice guided_grammar "
     "guided_decoding_backend guided_whitespace_pattern logits_processors"},
    {API_CHAT, "{\"messages\":[]}", /* fields of OpenAI's chat */
     "audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens "
     "max_tokens messages metadata modalities model moderation n parallel_tool_calls prediction "
     "presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention "
     "reasoning_effort response_format safety_identifier seed service_tier stop store stream "
     "stream_options temperature tool_choice tools top_logprobs top_p user verbosity "
     "web_search_options"},
    {API_CHAT, "{\"messages\":[]}", /* fields that vLLM adds to chat */
     "add_generation_prompt add_special_tokens allowed_token_ids bad_words cache_salt "
     "chat_template chat_template_kwargs continue_final_message documents ec_transfer_params echo "
     "frequency_penalty ignore_eos include_reasoning include_stop_str_in_output "
     "kv_transfer_params length_penalty logit_bias logprob_token_ids logprobs "
     "max_completion_tokens max_tokens media_io_kwargs messages min_p min_tokens mm_payload "
     "mm_processor_kwargs model n parallel_tool_calls presence_penalty priority prompt_logprobs "
     "reasoning_effort repetition_detection repetition_penalty request_id response_format "
     "return_mm_kwargs return_prompt_text return_token_ids return_token_offsets "
     "return_tokens_as_token_ids routed_experts_prompt_start seed session_id skip_special_tokens "
     "spaces_between_special_tokens stop stop_token_ids stream stream_interval stream_options "
     "structured_outputs temperature thinking_token_budget tool_choice tools top_k top_logprobs "
     "top_p truncate_prompt_tokens truncation_side use_beam_search user vllm_xargs watermarking"},
    {API_RESPONSES, "{\"input\":\"a\"}", /* fields of OpenAI's responses */
     "access_programs background background_options context_management conversation image include "
     "input "
     "instructions max_output_tokens max_tool_calls metadata model moderation parallel_tool_calls "
     "previous_response_id prompt prompt_cache_key prompt_cache_options prompt_cache_retention "
     "reasoning safety_identifier service_tier store stream stream_options temperature text "
     "tool_choice tools top_logprobs top_p truncation user"},
    {API_RESPONSES, "{\"input\":\"a\"}", /* fields that vLLM adds to responses */
     "background cache_salt chat_template_kwargs ec_transfer_params enable_response_messages "
     "frequency_penalty ignore_eos include include_reasoning include_stop_str_in_output input "
     "instructions kv_transfer_params logit_bias max_output_tokens max_tool_calls media_io_kwargs "
     "metadata min_p mm_payload mm_processor_kwargs model parallel_tool_calls presence_penalty "
     "previous_input_messages previous_response_id priority prompt prompt_cache_key reasoning "
     "repetition_penalty request_id return_mm_kwargs seed service_tier session_id "
     "skip_special_tokens stop stop_token_ids store stream structured_outputs temperature text "
     "tool_choice tools top_k top_logprobs top_p truncation user vllm_xargs watermarking"},
    {API_EMBEDDINGS, "{\"input\":\"a\"}",
     "add_special_tokens cache_salt dimensions embed_dtype encoding_format endianness input "
     "mm_processor_kwargs model padding priority request_id truncate_prompt_tokens "
     "truncation_side use_activation user"},
    {API_MESSAGES, "{\"messages\":[],\"max_tokens\":3}", /* fields of Anthropic's messages */
     "billing_policy cache_control compaction container context_management diagnostics "
     "fallback_credit_token fallbacks inference_geo max_tokens mcp_servers messages metadata "
     "model output_config output_format service_tier speed stop_sequences stream system thinking "
     "thread tool_choice tools user_profile_id workspace_id temperature top_k top_p"},
    {API_MESSAGES, "{\"messages\":[],\"max_tokens\":3}", /* fields that vLLM adds to messages */
     "cache_salt chat_template_kwargs ec_transfer_params kv_transfer_params mm_payload "
     "return_mm_kwargs vllm_xargs watermarking"},
    {API_COUNT_TOKENS, "{\"messages\":[]}",
     "cache_control chat_template_kwargs messages model output_config speed system thinking "
     "tool_choice tools user_profile_id workspace_id"},
    {API_TOKENIZE, "{\"prompt\":\"a\"}",
     "add_generation_prompt add_special_tokens chat_template chat_template_kwargs "
     "continue_final_message media_io_kwargs messages mm_processor_kwargs model prompt "
     "return_token_strs tools"},
    {API_DETOKENIZE, "{\"tokens\":[]}", "model tokens"},
};

static const struct field *row_of(enum api_kind kind, const char *name)
{
    const struct field *f;
    for (size_t i = 0; (f = fields_at(i)); i++)
        if (f->kinds & kind && strcmp(f->name, name) == 0)
            return f;
    fail_msg("%s is in no row of %d: it would be a field that nobody knows", name, (int)kind);
    return NULL;
}

/* Reads the example into `out`. When `owned_value` is set, it becomes the value of the field
 * `name`. */
static bool read_with(const struct schema *s, const char *name, json_t *owned_value,
                      struct params *out, struct api_error *e)
{
    static const struct params_policy policy = {
        .max_logprobs = 20, .auto_tools = true, .trust_chat_template = true};
    *e = (struct api_error){0};
    json_t *body = json_loads(s->example, 0, NULL);
    if (owned_value)
        json_object_set_new(body, name, owned_value);
    return params_init(out, s->kind, body, &policy, e);
}

/* Returns true when the body gets a 400 and the error's `param` is `name` or a member of this
 * field. */
static bool is_refused(const struct schema *s, const char *name, json_t *owned_value)
{
    struct params p;
    struct api_error e;
    bool taken = read_with(s, name, owned_value, &p, &e);
    params_fini(&p);
    return !taken && e.http_status == 400 && strncmp(e.param, name, strlen(name)) == 0 &&
           !strstr(e.message, "There is no field");
}

/* Returns a value that the field may have and that is not its default. */
static json_t *other_value(const struct field *f, const struct params *base)
{
    const char *at = (const char *)base + f->offset;
    switch (f->type) {
    case FIELD_BOOL:
        return json_boolean(!*(const bool *)at);
    case FIELD_INT:
    case FIELD_U32:
        return json_integer(f->max > 7 ? 7 : (json_int_t)f->max);
    case FIELD_FLOAT:
        return json_real(f->min + (f->max - f->min) / 8);
    case FIELD_STR:
        return json_string("7");
    default:
        return f->want == JSON_ARRAY    ? json_pack("[s]", "7")
               : f->want == JSON_OBJECT ? json_pack("{s:s}", "7", "7")
                                        : json_string("7");
    }
}

static size_t size_of(const struct field *f)
{
    return f->type == FIELD_BOOL    ? sizeof(bool)
           : f->type == FIELD_INT   ? sizeof(int64_t)
           : f->type == FIELD_U32   ? sizeof(uint32_t)
           : f->type == FIELD_FLOAT ? sizeof(double)
           : f->type == FIELD_STR   ? sizeof(struct str)
                                    : sizeof(json_t *);
}

static void check_effect(const struct schema *s, const struct field *f)
{
    struct params base, with;
    struct api_error e;
    assert_true(read_with(s, NULL, NULL, &base, &e));
    /* the read may fail, because the field may need another field */
    (void)!read_with(s, f->name, other_value(f, &base), &with, &e);
    if (memcmp((char *)&base + f->offset, (char *)&with + f->offset, size_of(f)) == 0)
        fail_msg("%s of %d is taken and changes nothing", f->name, (int)s->kind);
    params_fini(&base);
    params_fini(&with);
}

/* Checks that a field with its own parser checks its value: the parser must refuse 7 or the
 * string "\x01". */
static void check_parser(const struct schema *s, const char *name)
{
    if (!is_refused(s, name, json_integer(7)) && !is_refused(s, name, json_string("\x01")))
        fail_msg("%s of %d takes anything", name, (int)s->kind);
}

static void check_field(const struct schema *s, const char *name)
{
    const struct field *f = row_of(s->kind, name);
    struct params p;
    struct api_error e;
    switch (f->type) {
    case FIELD_REFUSE:
    case FIELD_ONLY:
        if (!is_refused(s, name, json_string("anything")))
            fail_msg("%s of %d is not refused by its name", name, (int)s->kind);
        break;
    case FIELD_HARMLESS:
        assert_true(f->why && strlen(f->why) > 5); /* docs/reference/openai.md shows this reason */
        assert_true(read_with(s, name, json_string("anything"), &p, &e));
        params_fini(&p);
        break;
    case FIELD_CUSTOM:
        check_parser(s, name);
        break;
    default:
        check_effect(s, f);
    }
}

static void test_no_field_is_silently_ignored(void **state)
{
    size_t n = 0;
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        char all[2048], *save = NULL;
        snprintf(all, sizeof all, "%s", schemas[i].fields);
        assert_true(strlen(schemas[i].fields) < sizeof all);
        for (char *name = strtok_r(all, " ", &save); name; name = strtok_r(NULL, " ", &save), n++)
            check_field(&schemas[i], name);
    }
    assert_true(n >= 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_field_is_silently_ignored)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
