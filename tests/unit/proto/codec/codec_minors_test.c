/* Tests messages from a newer minor version. Unknown fields are skipped in each message and in
 * each nested message. Each message type states the minor version that introduced it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "proto/codec/ops.h"
#include "tests/unit/proto/codec/codec_fixture.h"
#include "tests/unit/proto/codec/message_gen.c"

/* `end_of_minor` has the end of the types that each minor version knows. A new type belongs to a
 * new minor version: raise PROTOCOL_MINOR, set the type's row in proto/messages.c, and add an
 * entry here. */
static const enum msg_type end_of_minor[] = {MSG_KV_TRANSFER, MSG_GRAMMAR, MSG_GRAMMAR,
                                             MSG_GRAMMAR,     MSG_SLEEP,   MSG_TYPE_COUNT,
                                             MSG_TYPE_COUNT};
_Static_assert(MSG_KV_TRANSFER == 30 && MSG_GRAMMAR == 32 && MSG_SLEEP == 34 &&
                   MSG_TYPE_COUNT == 36,
               "a new type: see end_of_minor");

static void test_every_type_says_its_minor(void **state)
{
    int t = MSG_NONE + 1;
    assert_int_equal(sizeof end_of_minor / sizeof *end_of_minor, PROTOCOL_MINOR + 1);
    for (unsigned minor = 0; minor <= PROTOCOL_MINOR; minor++)
        for (; t < (int)end_of_minor[minor]; t++)
            assert_int_equal(msg_since_minor((enum msg_type)t), minor);
    assert_int_equal(t, MSG_TYPE_COUNT);
    assert_true(msg_since_minor(MSG_TYPE_COUNT) > UINT8_MAX);
}

/* ---- fields ---- */

static void *alloc_on(void *arena, size_t size)
{
    return arena_try_alloc(arena, size ? size : 1);
}

static void free_nothing(void *arena, void *p)
{
}

static const struct codec_ops *ops_of(enum msg_type t)
{
    static const struct codec_ops *const tables[] = {
        codec_cluster_ops, codec_engine_ops,  codec_step_ops, codec_adapter_ops,
        codec_kv_ops,      codec_grammar_ops, codec_sleep_ops};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (tables[i][t].descriptor)
            return &tables[i][t];
    fail_msg("%s is in no table", msg_type_name(t));
    return NULL;
}

/* Adds an unknown field of each wire type to p and to all messages inside. Returns the number of
 * messages. */
static uint32_t add_unknown(ProtobufCMessage *p)
{
    static uint8_t eight[8] = {1, 2, 3}, varint[] = {0x96, 0x01}, text[] = "\x05newer";
    static ProtobufCMessageUnknownField fields[] = {
        {1000, PROTOBUF_C_WIRE_TYPE_VARINT, sizeof varint, varint},
        {1001, PROTOBUF_C_WIRE_TYPE_64BIT, 8, eight},
        {1002, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED, sizeof text - 1, text},
        {1003, PROTOBUF_C_WIRE_TYPE_32BIT, 4, eight},
    };
    uint32_t n = 1;
    for (unsigned i = 0; i < p->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &p->descriptor->fields[i];
        if (f->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        void *at = (char *)p + f->offset;
        if (f->label != PROTOBUF_C_LABEL_REPEATED) {
            ProtobufCMessage *one = *(ProtobufCMessage **)at;
            n += one ? add_unknown(one) : 0;
            continue;
        }
        size_t n_items;
        memcpy(&n_items, (char *)p + f->quantifier_offset, sizeof n_items);
        for (size_t k = 0; k < n_items; k++)
            n += add_unknown((*(ProtobufCMessage ***)at)[k]);
    }
    p->unknown_fields = fields;
    p->n_unknown_fields = sizeof fields / sizeof *fields;
    return n;
}

/* Rewrites the frame as a later minor version would send it, with `front` before all other
 * fields. Returns the number of messages in it. */
static uint32_t make_newer(struct fixture *f, enum msg_type t, struct str front)
{
    ProtobufCAllocator a = {alloc_on, free_nothing, &f->gen};
    size_t n_body = f->frame.len - FRAME_HEADER_BYTES;
    ProtobufCMessage *p = protobuf_c_message_unpack(
        ops_of(t)->descriptor, &a, n_body, (const uint8_t *)f->frame.ptr + FRAME_HEADER_BYTES);
    assert_non_null(p);
    uint32_t n_messages = add_unknown(p);
    uint32_t n = (uint32_t)(protobuf_c_message_get_packed_size(p) + front.len);
    f->frame.len = FRAME_HEADER_BYTES;
    assert_true(strbuf_append(&f->frame, front.ptr, front.len));
    assert_non_null(strbuf_extend(&f->frame, n - front.len));
    protobuf_c_message_pack(p, (uint8_t *)f->frame.ptr + FRAME_HEADER_BYTES + front.len);
    f->frame.ptr[3] = PROTOCOL_MINOR + 1;
    memcpy(f->frame.ptr + 24, &n, sizeof n); /* the machines of the tests are little-endian */
    return n_messages;
}

static void test_fields_of_a_newer_minor_are_skipped(void **state)
{
    struct fixture *f = *state;
    struct rng r = {0x21};
    static const struct str fronts[] = {{"", 0}, {"\xC2\x3E\x03new", 6}, {"\xC0\x3E\x01", 3}};
    uint32_t n_inner = 0;
    for (int t = MSG_NONE + 1; t < MSG_TYPE_COUNT; t++) {
        for (int i = 0; i < 60; i++) {
            struct msg m, back;
            struct error err = {0};
            arena_reset(&f->gen);
            gen_message(&r, &f->gen, (enum msg_type)t, &m);
            encode(f, &m, 5, 6);
            size_t n = f->frame.len;
            n_inner += make_newer(f, (enum msg_type)t, fronts[i % 3]) - 1;
            assert_true(f->frame.len > n + 16);
            if (decode(f, &back, &err) != STATUS_OK)
                fail_msg("%s: %s", msg_type_name(m.type), err.text);
            const char *d = diff_message(&m, &back);
            if (d)
                fail_msg("%s #%d: %s differs", msg_type_name(m.type), i, d);
        }
    }
    assert_true(n_inner > 1000); /* nested messages were among them */
}

/* Skipped bytes count against the budget. A frame that has only such bytes costs no more than
 * its size allows. */
static void test_skipping_is_bounded(void **state)
{
    struct fixture *f = *state;
    struct msg m = {.type = MSG_PLAN}, out;
    struct error err;
    encode(f, &m, 1, 1);
    for (uint32_t i = 0; i < 40000; i++)
        assert_true(strbuf_append(&f->frame, "\xC0\x3E\x00", 3));
    uint32_t n = (uint32_t)f->frame.len - FRAME_HEADER_BYTES;
    memcpy(f->frame.ptr + 24, &n, sizeof n);
    assert_int_equal(decode(f, &out, &err), STATUS_OK);
    assert_true(f->in.used_bytes <= PROTO_DECODE_BASE_BYTES + n * PROTO_DECODE_FACTOR);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_every_type_says_its_minor),
        T(test_fields_of_a_newer_minor_are_skipped),
        T(test_skipping_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
