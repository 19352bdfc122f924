/* Defines the fields of OpenAI and vLLM that are not supported. A field that changes no answer
 * is accepted. All others are refused by name. */
#include "common/json/text.h"
#include "gateway/fields/rows.h"
#include "gateway/tools/set.h"

#define LATER    "is not supported by this server"
#define NO_MEDIA "is not supported by this server: its models accept and return text only"
#define NO_MOVES "is not supported by this server: only the cluster itself moves KV caches"

/* Leaves web search out of the tools. This row must follow tools. */
static bool parse_web_search_options(struct params *p, const json_t *v,
                                     const struct field_context *c)
{
    if (!json_text_is_object(v))
        return field_wrong_type(c->e, c->name, "an object", v);
    tool_set_leave_out(p, "web_search", NULL);
    return true;
}

static const struct field rows[] = {
    ROW_HARMLESS("user", GENERATES | EMBEDDINGS, "the server does not use it"),
    ROW_HARMLESS("safety_identifier", GENERATES, "the server does not use it"),
    ROW_HARMLESS("metadata", GENERATES | MESSAGES, "the server stores no requests or answers"),
    ROW_HARMLESS("service_tier", GENERATES | MESSAGES, "there is only one tier"),
    ROW_HARMLESS("session_id", GENERATES, "requests are routed by prefix"),
    ROW_HARMLESS("prompt_cache_key", GENERATES, "the prefix cache does not need it"),
    ROW_HARMLESS("prompt_cache_retention", GENERATES, "prefixes stay cached while there is room"),
    ROW_HARMLESS("prediction", CHAT, "a hint for speed"),
    ROW_HARMLESS("spaces_between_special_tokens", BOTH, "the tokens themselves contain the spaces"),
    ROW_HARMLESS("store", BOTH, "the server stores no requests or answers"),
    ROW_ONLY("modalities", CHAT, "[\"text\"]", "answers are text only"),
    ROW_ONLY("verbosity", CHAT, "\"low\"|\"medium\"|\"high\"", "the models do not read it"),
    ROW_ONLY("length_penalty", BOTH, "1|1.0", "it belongs to beam search, which is not supported"),
    ROW_ONLY("early_stopping", BOTH, "false", "it belongs to beam search, which is not supported"),
    ROW_REFUSE("use_beam_search", BOTH, LATER),
    ROW_REFUSE("suffix", TEXT, LATER),
    ROW_REFUSE("echo", CHAT, LATER ": use continue_final_message"),
    ROW_REFUSE("prompt_embeds", TEXT, LATER ": use prompt"),
    ROW_REFUSE("logprob_token_ids", BOTH, LATER),
    ROW_REFUSE("repetition_detection", GENERATES, LATER),
    ROW_REFUSE("thinking_token_budget", GENERATES, LATER),
    ROW_HARMLESS("guided_decoding_backend", BOTH, "there is only one backend"),
    ROW_REFUSE("guided_whitespace_pattern", BOTH, LATER),
    ROW_REFUSE("structural_tag", BOTH, LATER ": use response_format"),
    ROW_REFUSE("functions", CHAT, LATER ": use tools"),
    ROW_ONLY("function_call", CHAT, "\"none\"|\"auto\"", "use tool_choice"),
    ROW_CUSTOM(web_search_options, CHAT, "left out, like all tools of a provider's server"),
    ROW_REFUSE("audio", CHAT, NO_MEDIA),
    ROW_REFUSE("mm_processor_kwargs", GENERATES | EMBEDDINGS | TOKENIZE, NO_MEDIA),
    ROW_REFUSE("media_io_kwargs", GENERATES | TOKENIZE, NO_MEDIA),
    ROW_REFUSE("mm_payload", GENERATES | MESSAGES, NO_MEDIA),
    ROW_REFUSE("return_mm_kwargs", GENERATES | MESSAGES, NO_MEDIA),
    ROW_REFUSE("return_token_offsets", BOTH, LATER),
    ROW_ONLY("routed_experts_prompt_start", BOTH, "0", "answers do not name experts"),
    ROW_ONLY("padding", EMBEDDINGS, "\"do_not_pad\"", "inputs are never padded"),
    ROW_REFUSE("kv_transfer_params", GENERATES | MESSAGES, NO_MOVES),
    ROW_REFUSE("ec_transfer_params", GENERATES | MESSAGES, NO_MOVES),
    ROW_REFUSE("vllm_xargs", GENERATES | MESSAGES, LATER ": it has no extensions"),
    ROW_REFUSE("watermarking", GENERATES | MESSAGES, LATER),
    ROW_REFUSE("logits_processors", BOTH, LATER ": it does not run code of clients"),
};

FIELD_TABLE(refused);
