/* Charges the memory that a connection holds for its client to the server's budgets. There are
 * budgets for large bodies, for small bodies with headers and bytes sent ahead, for trees that
 * handlers built from bodies, and for answers. Requests without a tenant have a separate budget
 * for small bodies and headers, so that unauthenticated clients cannot use up the tenants'
 * budget. */
#include "common/http/conn/charge.h"

#include "common/base/mem.h"
#include "common/http/conn/address.h"
#include "common/http/conn/state.h"

void conn_release_rooms(struct conn *c)
{
    struct http_server *s = c->server;
    room_set(&s->bodies, &c->body, 0, 0);
    room_set(&s->kept, &c->kept, 0, 0);
    room_set(&s->strangers, &c->strange, 0, 0);
    room_set(&s->trees, &c->tree, 0, 0);
    c->announced = c->taken_body_bytes = 0;
}

void conn_charge_answer(struct conn *c)
{
    uint64_t held = c->queued_bytes + c->gathered_bytes;
    if (held <= HTTP_SMALL_ANSWER_BYTES)
        held = 0;
    if (held != c->answer.bytes)
        room_set(&c->server->answers, &c->answer, conn_tenant(c), held);
}

/* Returns the bytes of a body. Its announced length is used. When no length is announced, the
 * bytes received so far are used. The decoded bytes are added. */
uint64_t conn_body_bytes(const struct conn *c, uint64_t announced)
{
    const uint64_t held = http_parser_held_bytes(c->parser);
    return (announced > held ? announced : held) + c->decoded.len;
}

/* Charges a large body to its budget. Small bodies have another budget, and very small bodies
 * are not charged, because a few uploads that never end must not block all other clients. */
static bool charge_large(struct conn *c)
{
    struct room *bodies = &c->server->bodies;
    uint64_t held = conn_body_bytes(c, c->announced);
    if (held <= HTTP_SMALL_BODY_BYTES)
        held = 0;
    if (held > c->body.bytes && !room_has(bodies, conn_tenant(c), held - c->body.bytes))
        return false;
    if (held != c->body.bytes)
        room_set(bodies, &c->body, conn_tenant(c), held);
    return true;
}

/* Returns the bytes that the connection's requests hold beside a large body. While `pending` is
 * being parsed, the parser has its bytes. */
static uint64_t kept_bytes(const struct conn *c)
{
    uint64_t kept = http_parser_head_bytes(c->parser) + (c->processing ? 0 : c->pending.len);
    if (c->body.bytes == 0)
        kept += http_parser_held_bytes(c->parser) + c->decoded.len + c->taken_body_bytes;
    return kept <= HTTP_FREE_BYTES ? 0 : kept;
}

void conn_charge_kept(struct conn *c)
{
    const uint64_t kept = kept_bytes(c);
    if (kept == 0 && c->kept.bytes == 0 && c->strange.bytes == 0)
        return;
    room_set(&c->server->kept, &c->kept, c->tenant, c->tenant ? kept : 0);
    room_set(&c->server->strangers, &c->strange, conn_address(c), c->tenant ? 0 : kept);
}

bool conn_charge_body(struct conn *c)
{
    if (!charge_large(c))
        return false;
    const uint64_t kept = kept_bytes(c), had = c->tenant ? c->kept.bytes : c->strange.bytes;
    const struct room *room = c->tenant ? &c->server->kept : &c->server->strangers;
    if (kept > had && !room_has(room, conn_tenant(c), kept - had))
        return false;
    conn_charge_kept(c);
    return true;
}

void conn_forget_decoded(struct conn *c)
{
    mem_free((void *)c->decoded.ptr);
    c->decoded = (struct str){0};
}
