#include "bench/large_cluster/send.h"

#include "bench/die.h"
#include "bench/large_cluster/wire.h"
#include "proto/codec/codec.h"

void scale_send(struct scale *s, uint32_t i_peer, const struct msg *m)
{
    struct link *l = &s->peers[i_peer].link;
    strbuf_reset(&s->frame);
    if (codec_encode(m, l->session, link_next_seq(l), &s->encode, &s->frame) != STATUS_OK)
        bench_die("cannot encode a %s", msg_type_name(m->type));
    if (m->type != MSG_HELLO && !link_is_free(m->type) && !link_can_send(l, s->frame.len))
        bench_die("no credit for a %s", msg_type_name(m->type));
    scale_wire_send(s->wire, i_peer, strbuf_str(&s->frame));
    link_sent(l, m->type, s->frame.len);
}
