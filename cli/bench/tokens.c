/* Converts text to token ids and back, so that prompts get the requested lengths.
 * `bench_tokens_open` chooses one of three sources: a tokenizer file, or the server's /tokenize
 * and /detokenize. Without both, each word is one token, with a warning. dataset.c uses these
 * functions to count tokens and to make random text.
 * Invariants: random ids are chosen from `pool`, which has the ids of common words. Each call
 * checks for an interrupt. The caller owns the returned ids and texts. Only one thread calls
 * these functions. */
#include "cli/bench/tokens.h"

#include <stdio.h>
#include <string.h>

#include "cli/base/command_line.h"
#include "cli/bench/interrupt.h"
#include "common/base/mem.h"
#include "text/text.h"

enum { MAX_IDS = 1 << 24, N_MENDS = 10 };

struct bench_tokens {
    enum bench_tokens_kind kind;
    const struct bench_target *target;
    struct text_tokenizer *file;
    struct bench_ids pool; /* ids of common words; random prompts consist of these ids */
};

static const char words[] =
    "the of and to in is that for it as was with be by on not he his but at are this have from or "
    "had an they which one you were all her she there would their we him been has when who will no "
    "more if out so up said what its about than into them can only other time new some could these "
    "two may first then do any like my now over such our man me even most made after also did many "
    "off before must well back through years where much your way down should because long each "
    "just state those people how little good world make very year still see own work men day get "
    "here old life both between being under three never know same last another while us might "
    "great go come since against right came take used himself few house use place during high "
    "without again home around small however found part school every does got united left number "
    "course war until always away something fact water though less public put think almost hand "
    "enough far took head yet system better set told nothing night end why called eyes find going "
    "look asked later point knew next city give group toward days young let room word name side";

/* ---- a token per word ---- */

static struct str next_word(struct str *rest)
{
    while (rest->len > 0 && strchr(" \t\r\n", rest->ptr[0])) {
        rest->ptr++;
        rest->len--;
    }
    struct str w = {rest->ptr, 0};
    while (w.len < rest->len && !strchr(" \t\r\n", rest->ptr[w.len]))
        w.len++;
    rest->ptr += w.len;
    rest->len -= w.len;
    return w;
}

/* Returns the id of a word in `words`; 0 for any other word. */
static uint32_t word_id(struct str word)
{
    struct str rest = STR(words);
    uint32_t id = 0;
    for (struct str w; (w = next_word(&rest)).len > 0; id++)
        if (str_eq(w, word))
            return id;
    return 0;
}

static struct bench_ids encode_words(struct str text)
{
    struct bench_ids ids = {.ids = mem_array(text.len / 2 + 1, sizeof *ids.ids)};
    for (struct str w; (w = next_word(&text)).len > 0;)
        ids.ids[ids.n++] = word_id(w);
    return ids;
}

static void decode_words(const struct bench_ids *ids, struct strbuf *out)
{
    for (size_t i = 0; i < ids->n; i++) {
        struct str rest = STR(words), w = next_word(&rest);
        for (uint32_t k = 0; k < ids->ids[i]; k++)
            w = next_word(&rest);
        if (i > 0)
            strbuf_append_c(out, " ");
        strbuf_append_str(out, w);
    }
}

/* ---- the server's tokenizer ---- */

/* Calls /tokenize or /detokenize. Any status except 200 is an error. */
static enum status ask(const struct bench_tokens *t, const char *path, json_t *owned_body,
                       json_t **answer, struct error *err)
{
    char why[320];
    int code = 0;
    enum status s = bench_target_ask(t->target, path, owned_body, &code, answer, err);
    json_decref(owned_body);
    TRY(s);
    if (code == 200 && *answer)
        return STATUS_OK;
    bench_error_text(*answer, why, sizeof why);
    json_decref(*answer);
    *answer = NULL;
    return error_set(err, code == 401 || code == 403 ? STATUS_DENIED : STATUS_UNSUPPORTED,
                     "cannot use the server's tokenizer: %s%s answered with status %d%s%s",
                     t->target->base, path, code, why[0] ? ": " : "", why);
}

static enum status encode_there(const struct bench_tokens *t, struct str text,
                                struct bench_ids *out, struct error *err)
{
    json_t *j = NULL, *body = json_object();
    json_object_set_new(body, "model", json_string(t->target->model));
    json_object_set_new(body, "prompt", json_stringn(text.ptr, text.len));
    json_object_set_new(body, "add_special_tokens", json_false());
    TRY(ask(t, "/tokenize", body, &j, err));
    const json_t *list = json_object_get(j, "tokens");
    if (!json_is_array(list)) {
        json_decref(j);
        return error_set(err, STATUS_UNSUPPORTED,
                         "cannot use the server's tokenizer: the answer of %s/tokenize has no "
                         "\"tokens\". Give --tokenizer FILE",
                         t->target->base);
    }
    out->n = json_array_size(list);
    out->ids = mem_array(out->n + 1, sizeof *out->ids);
    for (size_t i = 0; i < out->n; i++)
        out->ids[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    json_decref(j);
    return STATUS_OK;
}

static enum status decode_there(const struct bench_tokens *t, const struct bench_ids *ids,
                                struct strbuf *out, struct error *err)
{
    json_t *j = NULL, *list = json_array(), *body = json_object();
    for (size_t i = 0; i < ids->n; i++)
        json_array_append_new(list, json_integer(ids->ids[i]));
    json_object_set_new(body, "model", json_string(t->target->model));
    json_object_set_new(body, "tokens", list);
    TRY(ask(t, "/detokenize", body, &j, err));
    const json_t *text = json_object_get(j, "prompt");
    if (text)
        strbuf_append(out, json_string_value(text), json_string_length(text));
    bool fine = json_is_string(text);
    json_decref(j);
    return fine ? STATUS_OK
                : error_set(err, STATUS_UNSUPPORTED,
                            "cannot use the server's tokenizer: the answer of %s/detokenize has no "
                            "\"prompt\". Give --tokenizer FILE",
                            t->target->base);
}

/* ---- a tokenizer file ---- */

static enum status encode_here(const struct bench_tokens *t, struct str text, struct bench_ids *out,
                               struct error *err)
{
    char why[TEXT_ERR_MAX];
    uint32_t *ids = NULL;
    size_t n = 0;
    /* text.h does not accept NULL, so an empty text becomes "" */
    const char *at = text.ptr ? text.ptr : "";
    if (text_encode(t->file, at, text.len, false, MAX_IDS, &ids, &n, why) != TEXT_OK)
        return error_set(err, STATUS_INVALID, "the tokenizer of --tokenizer failed: %.400s", why);
    out->ids = mem_array(n + 1, sizeof *ids);
    if (n > 0)
        memcpy(out->ids, ids, n * sizeof *ids);
    out->n = n;
    text_free(ids);
    return STATUS_OK;
}

static enum status decode_here(const struct bench_tokens *t, const struct bench_ids *ids,
                               struct strbuf *out, struct error *err)
{
    char why[TEXT_ERR_MAX], *text = NULL;
    size_t len = 0;
    if (text_decode(t->file, ids->ids, ids->n, true, &text, &len, why) != TEXT_OK)
        return error_set(err, STATUS_INVALID, "the tokenizer of --tokenizer failed: %.400s", why);
    strbuf_append(out, text, len);
    text_free(text);
    return STATUS_OK;
}

/* ---- all ways ---- */

enum status bench_tokens_encode(const struct bench_tokens *t, struct str text,
                                struct bench_ids *out, struct error *err)
{
    *out = (struct bench_ids){0};
    /* many prompts or a slow server take long, so the user may interrupt */
    if (bench_is_interrupted())
        return error_set(err, STATUS_CLOSED, "the command was interrupted by a signal");
    switch (t->kind) {
    case BENCH_TOKENS_FILE:
        return encode_here(t, text, out, err);
    case BENCH_TOKENS_SERVER:
        return encode_there(t, text, out, err);
    default:
        *out = encode_words(text);
        return STATUS_OK;
    }
}

static enum status decode(const struct bench_tokens *t, const struct bench_ids *ids,
                          struct strbuf *out, struct error *err)
{
    strbuf_reset(out);
    switch (t->kind) {
    case BENCH_TOKENS_FILE:
        return decode_here(t, ids, out, err);
    case BENCH_TOKENS_SERVER:
        return decode_there(t, ids, out, err);
    default:
        decode_words(ids, out);
        return STATUS_OK;
    }
}

enum status bench_tokens_count(const struct bench_tokens *t, struct str text, uint32_t *n,
                               struct error *err)
{
    struct bench_ids ids;
    enum status s = bench_tokens_encode(t, text, &ids, err);
    *n = (uint32_t)ids.n;
    mem_free(ids.ids);
    return s;
}

enum status bench_tokens_draw(const struct bench_tokens *t, struct rng *r,
                              const struct bench_ids *prefix, uint32_t n, char **owned_text,
                              uint32_t *n_got, struct error *err)
{
    struct strbuf text;
    struct bench_ids ids = {.ids = mem_array((size_t)n + 1, sizeof *ids.ids)};
    enum status s = STATUS_OK;
    strbuf_init(&text, 0);
    if (prefix && prefix->n > 0) {
        ids.n = prefix->n < n ? prefix->n : n;
        memcpy(ids.ids, prefix->ids, ids.n * sizeof *ids.ids);
    }
    for (int i = 0; s == STATUS_OK && i < N_MENDS; i++) {
        while (ids.n < n)
            ids.ids[ids.n++] = t->pool.ids[rng_below(r, t->pool.n)];
        struct bench_ids again = {0};
        s = decode(t, &ids, &text, err);
        if (s == STATUS_OK)
            s = bench_tokens_encode(t, strbuf_str(&text), &again, err);
        *n_got = (uint32_t)again.n;
        ids.n = again.n < n ? again.n : n;
        if (again.n > 0)
            memcpy(ids.ids, again.ids, ids.n * sizeof *ids.ids);
        mem_free(again.ids);
        if (*n_got == n)
            break;
    }
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] == '\0')
            text.ptr[i] = ' ';
    *owned_text = s == STATUS_OK ? mem_strndup(text.ptr ? text.ptr : "", text.len) : NULL;
    strbuf_fini(&text);
    mem_free(ids.ids);
    return s;
}

/* Finds out whether the server has /tokenize and /detokenize. A server that does not know these
 * calls is not an error. The function returns other errors to the caller. */
static enum status try_server(struct bench_tokens *t, struct error *err)
{
    struct strbuf text;
    struct error why = {0};
    t->kind = BENCH_TOKENS_SERVER;
    strbuf_init(&text, 0);
    enum status s = bench_tokens_encode(t, STR(words), &t->pool, &why);
    if (s == STATUS_OK)
        s = decode(t, &t->pool, &text, &why);
    strbuf_fini(&text);
    if (s != STATUS_UNSUPPORTED) {
        if (s != STATUS_OK)
            *err = why;
        return s;
    }
    char line[700];
    snprintf(line, sizeof line,
             "%s. Prompts are made from words, and each word counts as one token. For exact "
             "counts, give --tokenizer FILE",
             why.text);
    command_warn(t->target->owner, line);
    mem_free(t->pool.ids);
    t->kind = BENCH_TOKENS_WORDS;
    t->pool = encode_words(STR(words));
    return STATUS_OK;
}

enum status bench_tokens_open(struct bench_tokens **out, const char *path,
                              const struct bench_target *target, struct error *err)
{
    char why[TEXT_ERR_MAX];
    struct bench_tokens *t = mem_zalloc(sizeof *t);
    enum status s;
    t->target = target;
    if (!path)
        s = try_server(t, err);
    else if (text_tokenizer_open(path, NULL, &t->file, why) != TEXT_OK)
        s = error_set(err, STATUS_INVALID, "cannot open --tokenizer %.200s: %.250s", path, why);
    else
        s = bench_tokens_encode(t, STR(words), &t->pool, err);
    if (s == STATUS_OK && t->pool.n == 0)
        s = error_set(err, STATUS_PROTOCOL,
                      "the tokenizer cannot be used for prompts: it makes no tokens from English "
                      "words. Give another --tokenizer");
    if (s != STATUS_OK) {
        bench_tokens_close(t);
        return s;
    }
    *out = t;
    return STATUS_OK;
}

void bench_tokens_close(struct bench_tokens *t)
{
    if (!t)
        return;
    if (t->file)
        text_tokenizer_free(t->file);
    mem_free(t->pool.ids);
    mem_free(t);
}

enum bench_tokens_kind bench_tokens_kind(const struct bench_tokens *t)
{
    return t->kind;
}
