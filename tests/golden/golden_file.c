#include "tests/golden/golden_file.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/model/files/safetensors.h"

_Noreturn void golden_die(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "FAILED: ");
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

static const json_t *get(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (!v)
        golden_die("expected.json has no \"%s\"", key);
    return v;
}

static uint32_t as_u32(const json_t *v)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX)
        golden_die("expected.json: a number where an id should be is none");
    return (uint32_t)json_integer_value(v);
}

static double as_double(const json_t *v)
{
    if (!json_is_number(v))
        golden_die("expected.json: what should be a number is none");
    return json_number_value(v);
}

static uint32_t *read_ids(const json_t *list, uint32_t *n)
{
    *n = (uint32_t)json_array_size(list);
    uint32_t *ids = mem_array(*n + 1, sizeof *ids);
    for (uint32_t i = 0; i < *n; i++)
        ids[i] = as_u32(json_array_get(list, i));
    return ids;
}

/* Reads "gaps", the differences between the two best logits of each step. When they are absent,
 * it computes them from the entries [id, logit, id, logit]. */
static double *read_gaps(const json_t *prompt, uint32_t n)
{
    const json_t *gaps = json_object_get(prompt, "gaps");
    const json_t *steps = gaps ? gaps : get(prompt, "greedy_top2");
    if (json_array_size(steps) != n)
        golden_die("expected.json: %zu gaps of %u steps", json_array_size(steps), n);
    double *out = mem_array(n + 1, sizeof *out);
    for (uint32_t i = 0; i < n; i++) {
        const json_t *s = json_array_get(steps, i);
        out[i] =
            gaps ? as_double(s) : as_double(json_array_get(s, 1)) - as_double(json_array_get(s, 3));
    }
    return out;
}

static void read_top(struct golden_prompt *p, const json_t *prompt)
{
    const json_t *list = json_object_get(prompt, "top20");
    if (!list)
        list = get(prompt, "logits_top5");
    p->n_top = (uint32_t)json_array_size(list);
    p->top = mem_array(p->n_top + 1, sizeof *p->top);
    for (uint32_t i = 0; i < p->n_top; i++) {
        const json_t *pair = json_array_get(list, i);
        p->top[i].id = as_u32(json_array_get(pair, 0));
        p->top[i].logit = as_double(json_array_get(pair, 1));
    }
}

/* Reads the tensor "NAME.what" or "SECTION.NAME.what". Returns a copy, because the file's data
 * may be unaligned. Returns NULL when there is no such tensor. */
static float *read_tensor(struct golden_file *f, const struct safetensors *s, const char *section,
                          const struct golden_prompt *p, const char *what, uint32_t n_rows)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s%s.%s", section ? section : "", section ? "." : "", p->name,
             what);
    const struct tensor *t = safetensors_find(s, name);
    if (!t)
        return NULL;
    uint64_t vocab_size = t->shape[t->n_dims - 1];
    if (t->dtype != DTYPE_F32 || (f->vocab_size > 0 && vocab_size != f->vocab_size) ||
        t->n_bytes != vocab_size * n_rows * sizeof(float))
        golden_die("expected.safetensors: %s has another shape or type", name);
    f->vocab_size = (uint32_t)vocab_size;
    float *out = mem_array(t->n_bytes, 1);
    memcpy(out, t->data, t->n_bytes);
    return out;
}

static void read_prompt(struct golden_file *f, const struct safetensors *s, const char *section,
                        const json_t *prompt, struct golden_prompt *p)
{
    p->name = json_string_value(get(prompt, "name"));
    p->ids = read_ids(get(prompt, "ids"), &p->n_ids);
    p->greedy = read_ids(get(prompt, "greedy"), &p->n_greedy);
    if (!p->name || p->n_ids == 0 || p->n_greedy == 0)
        golden_die("expected.json: a prompt without a name, ids or greedy tokens");
    p->gaps = read_gaps(prompt, p->n_greedy);
    read_top(p, prompt);
    p->last_logits = read_tensor(f, s, section, p, "last_logits", 1);
    p->logprobs = read_tensor(f, s, section, p, "logprobs", p->n_ids);
}

bool golden_file_open(struct golden_file *f, const char *folder, const char *section)
{
    char path[PATH_MAX];
    json_error_t why;
    struct error err;
    struct safetensors *s;
    *f = (struct golden_file){0};
    snprintf(path, sizeof path, "%s/expected.json", folder);
    if (access(path, R_OK) != 0)
        return false;
    f->json = json_load_file(path, JSON_ALLOW_NUL, &why);
    if (!f->json)
        golden_die("%s:%d: %s", path, why.line, why.text);
    snprintf(path, sizeof path, "%s/expected.safetensors", folder);
    if (safetensors_open(path, &s, &err) != STATUS_OK)
        golden_die("%s", err.text);
    const json_t *part = section ? get(f->json, section) : f->json;
    const json_t *prompts = get(part, "prompts");
    f->n_prompts = (uint32_t)json_array_size(prompts);
    f->prompts = mem_array(f->n_prompts + 1, sizeof *f->prompts);
    for (uint32_t i = 0; i < f->n_prompts; i++)
        read_prompt(f, s, section, json_array_get(prompts, i), &f->prompts[i]);
    safetensors_close(s);
    if (f->n_prompts == 0 || f->vocab_size == 0)
        golden_die("%s: no prompts, or no logits", folder);
    const json_t *perplexity = json_object_get(part, "perplexity");
    if (perplexity) {
        f->text_ids = read_ids(get(f->json, "perplexity_ids"), &f->n_text_ids);
        f->perplexity = as_double(get(perplexity, "ppl"));
    }
    return true;
}

void golden_file_close(struct golden_file *f)
{
    for (uint32_t i = 0; i < f->n_prompts; i++) {
        struct golden_prompt *p = &f->prompts[i];
        mem_free(p->ids);
        mem_free(p->greedy);
        mem_free(p->gaps);
        mem_free(p->top);
        mem_free(p->last_logits);
        mem_free(p->logprobs);
    }
    mem_free(f->prompts);
    mem_free(f->text_ids);
    json_decref(f->json);
    *f = (struct golden_file){0};
}
