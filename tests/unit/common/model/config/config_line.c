/* Reads bytes as a model's file and writes the configuration as one line. Also writes seeds for
 * the fuzzer. The tests of model_config include this file. */
#include "common/model/config/config.h"
#include "tests/unit/common/model/put_file.c"

static char dir[64];

static int setup(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/cox-config-test-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    return rmdir(dir);
}

/* Writes `bytes` to dir/name and opens it as a model of this format and family. */
static enum status read_bytes(enum model_format format, const char *family, const char *name,
                              struct str bytes, struct model_config *c, struct error *err)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    put_file(dir, name, bytes);
    struct model_info m = {.format = format,
                           .path = format == MODEL_HF ? dir : path,
                           .family = (char *)family,
                           .max_model_len = 2048,
                           .vocab_size = 512};
    enum status s = model_config_read(&m, c, err);
    assert_int_equal(unlink(path), 0);
    return s;
}

static void put_rope(struct strbuf *b, const char *name, const struct rope_config *r,
                     uint32_t head_dim)
{
    strbuf_printf(b, " %s %g", name, r->theta);
    if (r->n_rot != head_dim)
        strbuf_printf(b, " over %u", r->n_rot);
    if (r->scaling == ROPE_DYNAMIC)
        strbuf_printf(b, " dynamic %g of %g", r->factor, r->original_max_len);
    if (r->scaling == ROPE_YARN)
        strbuf_printf(b, " yarn %g of %g %g %g%s", r->factor, r->original_max_len, r->beta_fast,
                      r->beta_slow, r->truncate ? "" : " exact");
    if (r->scaling == ROPE_LONGROPE)
        strbuf_printf(b, " longrope of %g %g", r->original_max_len, (double)r->long_factors[7]);
    if (r->attention_factor > 0)
        strbuf_printf(b, " *%g", r->attention_factor);
    if (r->scaling == ROPE_LINEAR)
        strbuf_printf(b, " linear %g", r->factor);
    if (r->scaling == ROPE_LLAMA3)
        strbuf_printf(b, " llama3 %g %g %g %g", r->factor, r->low_freq_factor, r->high_freq_factor,
                      r->original_max_len);
}

static void describe_moe(struct strbuf *b, const struct moe_config *m, uint32_t n_layers)
{
    static const char *const scores[] = {"softmax", "of chosen", "sigmoid"};
    strbuf_printf(b, " moe %u of %u*%u +%u", m->n_chosen, m->n_experts, m->width, m->shared_width);
    if (m->n_groups > 0)
        strbuf_printf(b, " groups %u of %u%s", m->n_groups_chosen, m->n_groups,
                      m->groups_by_two ? " by two" : "");
    strbuf_printf(b, " %s *%g%s%s%s%s ", scores[m->scores], (double)m->factor,
                  m->normalise ? " normalised" : "", m->choice_bias ? " choice_bias" : "",
                  m->router_bias ? " router_bias" : "", m->shared_gate ? " shared_gate" : "");
    for (uint32_t i = 0; i < n_layers; i++)
        strbuf_append_c(b, m->layer_has[i] ? "m" : "d");
}

/* Writes a configuration as one line. */
static void describe(struct strbuf *b, const struct model_config *c)
{
    strbuf_printf(b, "%s L%u %u/%u h%u/%u*%u v%u eps %g %s", c->family, c->n_layers, c->hidden,
                  c->intermediate, c->n_heads, c->n_kv_heads, c->head_dim, c->vocab_size,
                  (double)c->norm_eps, c->activation == MODEL_SILU ? "silu" : "gelu");
    put_rope(b, "rope", &c->rope, c->head_dim);
    put_rope(b, "local", &c->rope_local, c->head_dim);
    strbuf_printf(b, " 1/scale^2 %.4g",
                  1 / ((double)c->attention_scale * (double)c->attention_scale));
    if (c->attention_softcap > 0 || c->final_softcap > 0)
        strbuf_printf(b, " cap %g %g", (double)c->attention_softcap, (double)c->final_softcap);
    if (c->window > 0) {
        strbuf_printf(b, " window %u ", c->window);
        for (uint32_t i = 0; i < c->n_layers; i++)
            strbuf_append_c(b, c->layer_is_window[i] ? "w" : "F");
    }
    if (c->moe.n_experts > 0)
        describe_moe(b, &c->moe, c->n_layers);
    if (c->mla.kv_rank > 0)
        strbuf_printf(b, " mla %u %u %u+%u %u", c->mla.q_rank, c->mla.kv_rank, c->mla.nope,
                      c->mla.rope, c->mla.v);
    if (c->quant.method != QUANT_NONE)
        strbuf_printf(b, " quant %d g%u %ux%u", c->quant.method, c->quant.group,
                      c->quant.block_rows, c->quant.block_columns);
    strbuf_printf(b, "%s%s%s%s%s", c->sinks ? " sinks" : "", c->tied_embedding ? " tied" : "",
                  c->attention_bias ? " attention_bias" : "",
                  c->attention_out_bias ? " out_bias" : "", c->mlp_bias ? " mlp_bias" : "");
}

static void check_line(const char *name, const struct model_config *c, const char *want)
{
    struct strbuf got;
    strbuf_init(&got, 0);
    describe(&got, c);
    if (strcmp(got.ptr, want) != 0)
        fail_msg("%s:\n got %s\nwant %s", name, got.ptr, want);
    strbuf_fini(&got);
}

static void write_seed(const char *folder, const char *kind, size_t i, const struct strbuf *b)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%02zu", kind, i);
    put_file(folder, name, strbuf_str(b));
}
