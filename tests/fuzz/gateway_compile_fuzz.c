/* Frames of compile processes, in pieces and whole: what a process reads of a job, and what the
 * gateway reads of a process that may say anything. First byte: whose frame it is, and how large
 * the pieces are. What is accepted is written again as the same bytes. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "gateway/compile_wire.h"

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
    }
    compile_reader_fini(&pieces);
    compile_reader_fini(&whole);
    return 0;
}
