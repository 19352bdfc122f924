#include "gateway/models/model.h"

#include <string.h>

#include "common/base/log.h"
#include "common/model/info/demo.h"
#include "common/model/info/open.h"
#include "gateway/parsers/reasoning.h"
#include "gateway/parsers/tool_parsers.h"
#include "text/vocabulary.h"

enum {
    /* COMPILE_CPU_S and COMPILE_WALL_S are the most seconds of one compile, as a second
     * safeguard. Counted work (text/) and not time decides the verdict on a grammar. An accepted
     * grammar never reaches these limits on any machine that is fast enough to serve. */
    COMPILE_CPU_S = 30,
    COMPILE_WALL_S = 120,
};

static enum status open_model(struct gateway_model *m, const struct gateway_config *c,
                              const char *cache_dir, struct error *err)
{
    char why[TEXT_ERR_MAX] = "";
    if (!c->model)
        return error_set(err, STATUS_INVALID,
                         "--model is missing: give demo, null, or the path of a model");
    TRY(model_info_open(c->model, cache_dir, &m->info, err));
    m->has_info = true;
    if (text_tokenizer_open(m->info.tokenizer_path, cache_dir, &m->tokenizer, why) != TEXT_OK)
        return error_set(err, STATUS_INVALID, "cannot open the tokenizer of %s: %s", c->model, why);
    text_vocabulary(m->tokenizer, &m->vocabulary);
    /* The null model has no files, so it has no template of its own. */
    const char *override =
        !c->chat_template && m->info.format == MODEL_NULL ? "chatml" : c->chat_template;
    int s = text_template_open(m->info.path, override, m->info.family, &m->chat_template, why);
    if (s != TEXT_OK && (c->chat_template || s != TEXT_UNSUPPORTED))
        return error_set(err, STATUS_INVALID, "cannot open the chat template of %s: %s", c->model,
                         why);
    if (s != TEXT_OK)
        log_info("no_chat_template", "model=%s", log_quote(c->model));
    return STATUS_OK;
}

/* Adds the parser's markers that are special tokens of this model. Detokenizing must keep these
 * tokens, because the parser looks for them. */
static void add_markers(struct gateway_model *m, const struct answer_parser *p)
{
    for (const char *const *at = p ? p->markers : NULL; at && *at; at++) {
        uint32_t id = text_token_id(m->tokenizer, *at, strlen(*at));
        if (id != UINT32_MAX && text_token_is_special(m->tokenizer, id) &&
            m->n_marker_ids < MAX_MARKERS)
            m->marker_ids[m->n_marker_ids++] = id;
    }
}

/* `auto` and `vllm` both mean the makers' values for the model `demo`. It has no
 * generation_config.json, and many of its answers at temperature 1 are wrong (decision 0032). */
static enum status read_sampling(struct gateway_model *m, const struct gateway_config *c,
                                 struct error *err)
{
    const char *from = c->generation_config;
    const struct demo_model *demo = demo_model_find(c->model);
    bool own = strcmp(from, "auto") == 0, is_plain = strcmp(from, "vllm") == 0;
    enum status s = STATUS_OK;
    m->sampling = SAMPLING_DEFAULTS_OPENAI;
    if (demo && !demo->is_base && (own || is_plain))
        m->sampling = demo->sampling;
    else if (is_plain || (own && m->info.format != MODEL_HF))
        return STATUS_OK;
    else
        s = sampling_defaults_read(own ? m->info.path : from, &m->sampling, err);
    if (own && s == STATUS_NOT_FOUND)
        return STATUS_OK;
    if (s != STATUS_OK)
        return error_prefix(err, s, "--generation-config %s", from);
    log_info("sampling_defaults", "temperature=%g top_p=%g top_k=%lld min_p=%g repetition=%g",
             m->sampling.temperature, m->sampling.top_p, (long long)m->sampling.top_k,
             m->sampling.min_p, m->sampling.repetition_penalty);
    return STATUS_OK;
}

static enum status no_parser(const char *flag, const char *name, void (*names)(struct strbuf *out),
                             struct error *err)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    names(&b);
    enum status s =
        error_set(err, STATUS_INVALID, "--%s %s: there is no parser of this name. Choose one of %s",
                  flag, name, strbuf_str(&b).ptr);
    strbuf_fini(&b);
    return s;
}

static enum status find_parsers(struct gateway_model *m, const struct gateway_config *c,
                                struct error *err)
{
    if (c->reasoning_parser && !(m->reasoning_parser = reasoning_parser_find(c->reasoning_parser)))
        return no_parser("reasoning-parser", c->reasoning_parser, reasoning_parser_names, err);
    if (c->tool_call_parser && !(m->tool_parser = tool_parser_find(c->tool_call_parser)))
        return no_parser("tool-call-parser", c->tool_call_parser, tool_parser_names, err);
    if (c->enable_auto_tool_choice && !m->tool_parser)
        return error_set(err, STATUS_INVALID,
                         "--enable-auto-tool-choice needs --tool-call-parser, which names the form "
                         "in which the model writes tool calls");
    add_markers(m, m->reasoning_parser);
    add_markers(m, m->tool_parser);
    return STATUS_OK;
}

enum status gateway_model_read(struct gateway_model *m, const struct gateway_config *c,
                               const char *cache_dir, struct error *err)
{
    TRY(open_model(m, c, cache_dir, err));
    TRY(find_parsers(m, c, err));
    TRY(read_sampling(m, c, err));
    TRY(pooler_config_read(c->pooler_config, &m->pooler, err));
    return outputs_config_read(c->structured_outputs_config, &m->outputs, err);
}

void gateway_model_begin(struct gateway_model *m, const struct gateway_config *c,
                         const char *cache_dir, struct metrics *registry)
{
    const struct compiler_options o = {.tokenizer_path = m->info.tokenizer_path,
                                       .cache_dir = cache_dir,
                                       .memory_mib = (uint32_t)(c->grammar_memory >> 20),
                                       .cpu_s = COMPILE_CPU_S,
                                       .wall_s = COMPILE_WALL_S,
                                       .metrics = registry};
    if (c->grammar_processes > 0)
        m->compilers = compilers_new(&o);
    m->grammars = grammar_check_new(m->tokenizer, m->compilers);
}

void gateway_model_fini(struct gateway_model *m)
{
    if (m->chat_template)
        text_template_free(m->chat_template);
    grammar_check_free(m->grammars);
    compilers_free(m->compilers);
    if (m->tokenizer)
        text_tokenizer_free(m->tokenizer);
    if (m->has_info)
        model_info_fini(&m->info);
}
