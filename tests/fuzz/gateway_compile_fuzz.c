/* Fuzzes the frames of compile processes, in pieces and whole. A process reads a job, and the
 * gateway reads the frames of a process that may send anything. The first byte selects the
 * reader and the size of the pieces. An accepted frame must be written again as the same bytes.
 * A small job is run as in a compile process, and the gateway reads the result. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "gateway/compile/child.h"

enum { RUN_MAX_BYTES = 2048 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum status read_in_pieces(struct compile_reader *r, struct str bytes, size_t piece,
                                  size_t *n_read)
{
    enum status s = STATUS_AGAIN;
    *n_read = 0;
    while (s == STATUS_AGAIN && *n_read < bytes.len) {
        size_t n = bytes.len - *n_read < piece ? bytes.len - *n_read : piece, n_used = 0;
        s = compile_reader_feed(r, (struct str){bytes.ptr + *n_read, n}, &n_used);
        assert(n_used <= n && (s != STATUS_AGAIN || n_used == n));
        *n_read += n_used;
    }
    return s;
}

static const struct text_vocabulary *vocabulary(void)
{
    static struct text_vocabulary *v;
    struct text_tokenizer *t = NULL;
    char err[TEXT_ERR_MAX];
    if (!v) {
        int rc = text_tokenizer_open("builtin:bytes", NULL, &t, err);
        assert(rc == TEXT_OK);
        rc = text_vocabulary_new(t, &v, err);
        assert(rc == TEXT_OK);
        text_tokenizer_free(t);
    }
    return v;
}

static void run(const struct compile_frame *job)
{
    unsigned char header[COMPILE_HEADER_BYTES];
    struct compile_frame verdict;
    struct compile_reader r;
    struct strbuf out;
    size_t n_used;
    strbuf_init(&out, COMPILE_MAX_RENDERED);
    compile_run(vocabulary(), job, &out, &verdict);
    assert(verdict.code != TEXT_INTERNAL);
    compile_frame_header(&verdict, header);
    compile_reader_init(&r, true);
    enum status s = compile_reader_feed(&r, (struct str){(char *)header, sizeof header}, &n_used);
    assert(s == (verdict.text.len > 0 ? STATUS_AGAIN : STATUS_OK));
    if (s == STATUS_AGAIN)
        s = compile_reader_feed(&r, verdict.text, &n_used);
    assert(s == STATUS_OK && r.frame.code == verdict.code);
    compile_reader_fini(&r);
    strbuf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct compile_reader pieces, whole;
    size_t n_pieces, n_whole;
    if (size < 1)
        return 0;
    const struct str bytes = {(const char *)data + 1, size - 1};
    compile_reader_init(&pieces, data[0] & 1);
    compile_reader_init(&whole, data[0] & 1);
    const enum status s = read_in_pieces(&pieces, bytes, 1 + data[0] / 2, &n_pieces);
    assert(read_in_pieces(&whole, bytes, size, &n_whole) == s && n_whole == n_pieces);
    if (s == STATUS_OK) {
        const struct compile_frame *f = &whole.frame;
        unsigned char header[COMPILE_HEADER_BYTES];
        compile_frame_header(f, header);
        assert(memcmp(header, bytes.ptr, sizeof header) == 0);
        assert(sizeof header + f->text.len + f->more.len == n_whole);
        assert(f->text.len == 0 ||
               memcmp(f->text.ptr, bytes.ptr + sizeof header, f->text.len) == 0);
        if (!(data[0] & 1) && n_whole <= RUN_MAX_BYTES)
            run(f);
    }
    compile_reader_fini(&pieces);
    compile_reader_fini(&whole);
    return 0;
}
