#pragma once
/* Defines the frames between the gateway and its compile processes (compilers.h, child.h). A
 * frame is a header of fixed size and then two texts. Both ends run the same program on one
 * machine, so numbers are in the machine's byte order. Each end checks every byte that it reads,
 * because a compile process has run a client's source and may send anything. Frames are plain
 * values, usable on any thread. */
#include "common/base/str.h"
#include "text/text.h"

enum compile_what {
    COMPILE_GRAMMAR = 1, /* job; `text`: source, `code`: an `enum text_grammar_kind` */
    /* job; `text`: template, `more`: its context, `number`: Unix time in seconds */
    COMPILE_TEMPLATE,
    /* In an answer with the verdict, `code` is an `enum text_status`. `text` holds the status's
     * text, or the rendered text. `number` is 1 when the template had errors and was not
     * rendered. */
    COMPILE_VERDICT,
    COMPILE_DIED, /* end of a process; `code`: the signal that ended it, or 0 */
    COMPILE_WHAT_COUNT
};

/* These limits are the largest texts in bytes. A job's texts are no longer than the request's
 * body. */
enum { COMPILE_MAX_SOURCE = 256 << 20, COMPILE_MAX_RENDERED = 64 << 20 };

struct compile_frame { /* one frame; its texts are borrowed */
    enum compile_what what;
    int32_t code;
    int64_t number;
    struct str text, more;
    uint32_t cpu_us; /* in answers: processor time in µs, reported by the process itself */
};

enum { COMPILE_HEADER_BYTES = 40 };
/* Writes the header of a frame. On the wire the frame's texts follow the header. */
void compile_frame_header(const struct compile_frame *f, unsigned char out[COMPILE_HEADER_BYTES]);

/* `compile_reader` reads one frame from pieces of any size. */
struct compile_reader {
    bool is_childs; /* true: reads a verdict or the end of a process; false: reads a job */
    struct compile_frame frame;
    size_t n_header;
    unsigned char header[COMPILE_HEADER_BYTES];
    struct strbuf texts;
    size_t n_texts; /* bytes of both texts that the header announced */
};
void compile_reader_init(struct compile_reader *r, bool is_childs);
void compile_reader_fini(struct compile_reader *r);
/* Feeds bytes to the reader. Returns STATUS_AGAIN when more bytes are needed. Then all given
 * bytes were used. Returns STATUS_OK when the frame is complete. It is valid until
 * `compile_reader_fini`. Returns STATUS_PROTOCOL when the bytes are not a frame, and
 * STATUS_NO_MEMORY when there is no memory for the texts. */
MUST_USE enum status compile_reader_feed(struct compile_reader *r, struct str bytes,
                                         size_t *n_used);
