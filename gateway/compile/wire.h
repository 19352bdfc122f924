#pragma once
/* The frames between the gateway and its compile processes (compilers.h, child.h): a header of
 * fixed size, then two texts. Both ends are one program on one machine, so numbers are in the
 * machine's byte order. Each end checks every byte that it reads, because a compile process has
 * run a client's source and may send anything. Plain values; any thread. */
#include "common/base/str.h"
#include "text/text.h"

enum compile_what {
    COMPILE_GRAMMAR = 1, /* text: the source; code: an `enum text_grammar_kind` */
    COMPILE_TEMPLATE,    /* text: the template; more: its context; number: Unix time in seconds */
    /* code: an `enum text_status`. text: its words, or the rendered text. number: 1 when the
     * template had errors and was not rendered. */
    COMPILE_VERDICT,
    COMPILE_DIED, /* code: the signal that ended the process, or 0 */
    COMPILE_WHAT_COUNT
};

/* Largest texts in bytes. A job's texts are no longer than the body that they come from. */
enum { COMPILE_MAX_SOURCE = 256 << 20, COMPILE_MAX_RENDERED = 64 << 20 };

struct compile_frame { /* one frame; its texts are borrowed */
    enum compile_what what;
    int32_t code;
    int64_t number;
    struct str text, more;
    uint32_t cpu_us; /* answers: processor time in µs, reported by the process itself */
};

enum { COMPILE_HEADER_BYTES = 40 };
/* Writes the header. On the wire the frame's texts follow it. */
void compile_frame_header(const struct compile_frame *f, unsigned char out[COMPILE_HEADER_BYTES]);

/* Reads one frame from pieces of any size. */
struct compile_reader {
    bool is_childs; /* true: reads a verdict or the end of a process; false: reads a job */
    struct compile_frame frame;
    size_t n_header;
    unsigned char header[COMPILE_HEADER_BYTES];
    struct strbuf texts;
    size_t n_texts; /* bytes that the header announced */
};
void compile_reader_init(struct compile_reader *r, bool is_childs);
void compile_reader_fini(struct compile_reader *r);
/* Returns STATUS_AGAIN when more bytes are needed; then all given bytes were used. Returns
 * STATUS_OK when the frame is complete and valid until fini. Returns STATUS_PROTOCOL when the
 * bytes are no frame, and STATUS_NO_MEMORY when the texts find no memory. */
MUST_USE enum status compile_reader_feed(struct compile_reader *r, struct str bytes,
                                         size_t *n_used);
