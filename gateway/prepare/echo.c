#include "gateway/prepare/echo.h"

#include <string.h>

#include "common/base/mem.h"
#include "gateway/generation/generation.h"

static bool cannot(struct api_error *e, const char *why)
{
    return api_error_set(e, 400, "prompt", "prompt cannot be decoded for echo: %s", why);
}

/* Decodes the prompt's ids into `text`. `offsets` is NULL when the caller needs no offsets. */
static bool decode(const struct text_tokenizer *t, bool skip_special, const struct prompt *p,
                   struct strbuf *text, uint32_t *offsets, struct api_error *e)
{
    char why[TEXT_ERR_MAX] = "";
    struct text_decoder *d = text_decoder_new(t, skip_special, NULL, 0);
    bool ok = d != NULL;
    uint32_t n_chars = 0;
    for (uint32_t i = 0; ok && i < p->n_ids; i++) {
        const char *delta = "";
        size_t len = 0;
        ok = text_decoder_push(d, p->ids[i], &delta, &len, why) == TEXT_OK;
        if (ok)
            strbuf_append(text, delta, len);
        if (offsets) {
            offsets[i] = n_chars;
            n_chars += generation_count_chars((struct str){delta, len});
        }
    }
    text_decoder_free(d);
    return ok || cannot(e, why[0] ? why : "the server has no memory for it");
}

bool echo_text(const struct text_tokenizer *t, bool skip_special, struct prompt *out,
               struct api_error *e)
{
    struct strbuf text;
    strbuf_init(&text, 0);
    bool ok = decode(t, skip_special, out, &text, NULL, e);
    if (ok) {
        mem_free((void *)out->text.ptr);
        out->text = (struct str){mem_strndup(strbuf_str(&text).ptr, text.len), text.len};
        out->is_decoded = true;
    }
    strbuf_fini(&text);
    return ok;
}

/* Returns how many bytes of the remaining client text belong to an id. Text that the tokenizer
 * added (a <bos>, a space in front) counts as 0. When the tokenizer changed the text, for
 * instance to lower case, characters are counted instead of bytes. */
static size_t length_in(const struct text_tokenizer *t, uint32_t id, struct str rest)
{
    struct str b = {0};
    b.ptr = (const char *)text_token_bytes(t, id, &b.len);
    if (!b.ptr || b.len == 0)
        return 0;
    if (b.len <= rest.len && memcmp(b.ptr, rest.ptr, b.len) == 0)
        return b.len;
    if (text_token_is_special(t, id))
        return 0;
    if (b.ptr[0] == ' ' && b.len - 1 <= rest.len && memcmp(b.ptr + 1, rest.ptr, b.len - 1) == 0)
        return b.len - 1;
    size_t n = 0;
    for (uint32_t n_chars = generation_count_chars(b); n_chars > 0 && n < rest.len; n_chars--)
        for (n++; n < rest.len && ((unsigned char)rest.ptr[n] & 0xC0) == 0x80;)
            n++;
    return n;
}

/* Sets the offset of each id. All ids within one character have that character's offset. */
static void align(const struct text_tokenizer *t, struct prompt *p)
{
    struct str rest = p->text;
    uint32_t n_chars = 0, n_begun = 0;
    for (uint32_t i = 0; i < p->n_ids; i++) {
        p->offsets[i] = n_chars;
        size_t n = length_in(t, p->ids[i], rest);
        n_begun += generation_count_chars((struct str){rest.ptr, n});
        rest = (struct str){rest.ptr + n, rest.len - n};
        bool whole = rest.len == 0 || ((unsigned char)*rest.ptr & 0xC0) != 0x80;
        n_chars = whole || n_begun == 0 ? n_begun : n_begun - 1;
    }
}

bool echo_offsets(const struct text_tokenizer *t, bool skip_special, struct prompt *out,
                  struct api_error *e)
{
    struct strbuf text;
    out->offsets = mem_try_array(out->n_ids, sizeof *out->offsets);
    if (!out->offsets)
        return cannot(e, "the server has no memory for it");
    if (!out->is_decoded) {
        align(t, out);
        return true;
    }
    strbuf_init(&text, 0);
    bool ok = decode(t, skip_special, out, &text, out->offsets, e);
    strbuf_fini(&text);
    return ok;
}
