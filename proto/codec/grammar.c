/* Maps the messages of grammar.proto to plain structs and back. These messages order the
 * compilation of grammars before they are needed. */
#include "proto/codec/ops.h"
#include "proto/grammar.pb-c.h"

static ProtobufCMessage *put_grammar(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Grammar, grammar);
    p->term_epoch = m->grammar.term_epoch;
    p->id = m->grammar.id;
    p->on = m->grammar.on;
    p->kind = (uint32_t)m->grammar.kind;
    p->source = wire_put_str(m->grammar.source);
    return &p->base;
}

static void get_grammar(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Grammar *p = (const Cox__Grammar *)base;
    m->grammar = (struct msg_grammar){.term_epoch = p->term_epoch,
                                      .id = p->id,
                                      .on = p->on != 0,
                                      .kind = (enum grammar_kind)p->kind,
                                      .source = wire_get_str(p->source)};
}

static ProtobufCMessage *put_grammar_done(struct wire *w, const struct msg *m)
{
    WIRE_PUT(GrammarDone, grammar_done);
    p->term_epoch = m->grammar_done.term_epoch;
    p->id = m->grammar_done.id;
    p->status = (uint32_t)m->grammar_done.status;
    p->text = wire_put_text(m->grammar_done.text);
    p->bytes = m->grammar_done.bytes;
    p->matcher_bytes = m->grammar_done.matcher_bytes;
    p->room_bytes = m->grammar_done.room_bytes;
    return &p->base;
}

static void get_grammar_done(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__GrammarDone *p = (const Cox__GrammarDone *)base;
    m->grammar_done = (struct msg_grammar_done){.term_epoch = p->term_epoch,
                                                .id = p->id,
                                                .status = (enum status)p->status,
                                                .text = wire_get_str(p->text),
                                                .bytes = p->bytes,
                                                .matcher_bytes = p->matcher_bytes,
                                                .room_bytes = p->room_bytes};
}

const struct codec_ops codec_grammar_ops[MSG_TYPE_COUNT] = {
    WIRE_ROW(GRAMMAR, grammar, PROTO_MAX_GRAMMAR_BYTES + CODEC_SMALL_BYTES),
    WIRE_ROW(GRAMMAR_DONE, grammar_done, CODEC_SMALL_BYTES),
};
