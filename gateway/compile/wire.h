#pragma once
/* The frames between the gateway and its compile processes (compilers.h, child.h): a header
 * of fixed size, then two texts. Both ends are one program on one machine, so numbers are in the
 * machine's own order. Each end checks each byte that it reads: a compile process has run what a
 * client wrote, and may say anything. Plain values; any thread. */
#include "common/base/str.h"
#include "text/text.h"

enum compile_what {
    COMPILE_GRAMMAR = 1, /* text: the source; code: enum text_grammar_kind */
    COMPILE_TEMPLATE,    /* text: the template; more: the context; number: now, as a Unix time */
    /* code: enum text_status; text: its words, or the text that was rendered; number: 1 when the
     * template could not be read, and so was not rendered */
    COMPILE_VERDICT,
    COMPILE_DIED, /* code: the signal that ended the process, or 0 */
    COMPILE_WHAT_COUNT
};

/* Bytes. A job's texts are no longer than the body that they come from. */
enum { COMPILE_MAX_SOURCE = 256 << 20, COMPILE_MAX_RENDERED = 64 << 20 };

struct compile_frame { /* texts are borrowed */
    enum compile_what what;
    int32_t code;
    int64_t number;
    struct str text, more;
    uint32_t cpu_us; /* of an answer: processor time of its process, which says so itself */
};

enum { COMPILE_HEADER_BYTES = 40 };
/* The header precedes the frame's texts on the wire. */
void compile_frame_header(const struct compile_frame *f, unsigned char out[COMPILE_HEADER_BYTES]);

/* Reads one frame from pieces of any size. */
struct compile_reader {
    bool is_childs; /* it comes from a compile process: a verdict or its end; else a job */
    struct compile_frame frame;
    size_t n_header;
    unsigned char header[COMPILE_HEADER_BYTES];
    struct strbuf texts;
    size_t n_texts; /* bytes that the header has announced */
};
void compile_reader_init(struct compile_reader *r, bool is_childs);
void compile_reader_fini(struct compile_reader *r);
/* STATUS_AGAIN: more is wanted; *n_used is all of it. STATUS_OK: frame is whole, and valid until
 * fini. STATUS_PROTOCOL: this is no frame. STATUS_NO_MEMORY: there is none for its texts. */
MUST_USE enum status compile_reader_feed(struct compile_reader *r, struct str bytes,
                                         size_t *n_used);
