/* Turns bytes into a checked frame of compile processes. A header is checked before memory for
 * its texts is allocated. The texts grow as bytes arrive, so an announced length alone costs
 * nothing. */
#include "gateway/compile/wire.h"

#include <string.h>

#define MAGIC 0x43584d50u /* first number of a frame: "CXMP" in ASCII */

struct header {
    uint32_t magic, what;
    int32_t code;
    uint32_t cpu_us;
    int64_t number;
    uint64_t n_text, n_more;
};
_Static_assert(sizeof(struct header) == COMPILE_HEADER_BYTES, "no padding");

void compile_frame_header(const struct compile_frame *f, unsigned char out[COMPILE_HEADER_BYTES])
{
    const struct header h = {.magic = MAGIC,
                             .what = (uint32_t)f->what,
                             .code = f->code,
                             .cpu_us = f->cpu_us,
                             .number = f->number,
                             .n_text = f->text.len,
                             .n_more = f->more.len};
    memcpy(out, &h, sizeof h);
}

void compile_reader_init(struct compile_reader *r, bool is_childs)
{
    *r = (struct compile_reader){.is_childs = is_childs};
    strbuf_init(&r->texts, 2 * (size_t)COMPILE_MAX_SOURCE + 1);
}

void compile_reader_fini(struct compile_reader *r)
{
    strbuf_fini(&r->texts);
}

static bool is_job(const struct header *h)
{
    if (h->n_text > COMPILE_MAX_SOURCE || h->n_more > COMPILE_MAX_SOURCE || h->cpu_us != 0)
        return false;
    if (h->what == COMPILE_GRAMMAR)
        return h->code >= TEXT_GRAMMAR_JSON_SCHEMA && h->code <= TEXT_GRAMMAR_AFTER_REASONING &&
               h->n_more == 0 && h->number == 0;
    return h->what == COMPILE_TEMPLATE && h->code == 0;
}

static bool is_answer(const struct header *h)
{
    if (h->n_more != 0)
        return false;
    if (h->what == COMPILE_DIED)
        return h->code >= 0 && h->code < 128 && h->n_text == 0 && h->number == 0;
    return h->what == COMPILE_VERDICT &&
           (h->number == 0 || (h->number == 1 && h->code != TEXT_OK)) && h->code >= TEXT_OK &&
           h->code <= TEXT_INTERNAL &&
           h->n_text <= (h->code == TEXT_OK ? COMPILE_MAX_RENDERED : TEXT_ERR_MAX);
}

static enum status read_header(struct compile_reader *r)
{
    struct header h;
    memcpy(&h, r->header, sizeof h);
    if (h.magic != MAGIC || !(r->is_childs ? is_answer(&h) : is_job(&h)))
        return STATUS_PROTOCOL;
    r->frame = (struct compile_frame){.what = (enum compile_what)h.what,
                                      .code = h.code,
                                      .number = h.number,
                                      .text = {NULL, h.n_text},
                                      .more = {NULL, h.n_more},
                                      .cpu_us = h.cpu_us};
    r->n_texts = h.n_text + h.n_more;
    return STATUS_OK;
}

static enum status finish(struct compile_reader *r)
{
    const char *texts = strbuf_str(&r->texts).ptr;
    r->frame.text.ptr = texts;
    r->frame.more.ptr = texts + r->frame.text.len;
    return str_utf8_valid(r->frame.text) == r->frame.text.len &&
                   str_utf8_valid(r->frame.more) == r->frame.more.len
               ? STATUS_OK
               : STATUS_PROTOCOL;
}

enum status compile_reader_feed(struct compile_reader *r, struct str bytes, size_t *n_used)
{
    size_t n = COMPILE_HEADER_BYTES - r->n_header;
    *n_used = 0;
    if (n > 0) {
        n = bytes.len < n ? bytes.len : n;
        if (n > 0)
            memcpy(r->header + r->n_header, bytes.ptr, n);
        r->n_header += n;
        *n_used = n;
        if (r->n_header < COMPILE_HEADER_BYTES)
            return STATUS_AGAIN;
        TRY(read_header(r));
    }
    n = r->n_texts - r->texts.len;
    if (n > bytes.len - *n_used)
        n = bytes.len - *n_used;
    if (n > 0 && !strbuf_append(&r->texts, bytes.ptr + *n_used, n))
        return STATUS_NO_MEMORY;
    *n_used += n;
    return r->texts.len < r->n_texts ? STATUS_AGAIN : finish(r);
}
