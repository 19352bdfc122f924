#pragma once
/* Holds the arenas and buffers of one link, and passes frames through them, for the tests of the
 * codec. It defines functions: include it once in a program, after cmocka.h. */
#include <stdlib.h>

#include "proto/codec/codec.h"

struct fixture {
    struct arena gen, scratch, in;
    struct strbuf frame;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    arena_init(&f->gen, 0);
    arena_init(&f->scratch, 0);
    arena_init(&f->in, 64u << 20);
    strbuf_init(&f->frame, FRAME_MAX_BYTES);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    arena_fini(&f->gen);
    arena_fini(&f->scratch);
    arena_fini(&f->in);
    strbuf_fini(&f->frame);
    free(f);
    return 0;
}

static void encode(struct fixture *f, const struct msg *m, uint64_t session, uint64_t seq)
{
    strbuf_reset(&f->frame);
    assert_int_equal(codec_encode(m, session, seq, &f->scratch, &f->frame), STATUS_OK);
}

static enum status decode(struct fixture *f, struct msg *out, struct error *err)
{
    struct frame_header h;
    enum status s = frame_parse_header(strbuf_str(&f->frame), &h, err);
    arena_reset(&f->in);
    return s == STATUS_OK ? codec_decode(strbuf_str(&f->frame), &h, &f->in, out, err) : s;
}

/* Makes a frame of the type with a body from elsewhere. */
static inline void make_frame(struct fixture *f, enum msg_type type, const char *body, size_t n)
{
    struct msg any = {.type = MSG_CREDIT};
    encode(f, &any, 1, 1);
    f->frame.len = FRAME_HEADER_BYTES;
    f->frame.ptr[4] = (char)type;
    f->frame.ptr[24] = (char)n;
    assert_true(n < 128 && strbuf_append(&f->frame, body, n));
}

static inline void expect_refused(struct fixture *f, const char *name, const struct msg *m)
{
    strbuf_reset(&f->frame);
    if (codec_encode(m, 1, 1, &f->scratch, &f->frame) != STATUS_INVALID)
        fail_msg("%s was encoded", name);
    assert_int_equal(f->frame.len, 0);
}
