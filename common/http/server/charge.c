/* A connection holds memory for its client, which the server's rooms count: large bodies; small
 * ones with heads and bytes that were sent ahead; the trees that handlers made of bodies; and
 * answers. A request without a tenant has a room of its own for small bodies and heads, so that
 * strangers cannot fill that of the tenants. */
#include <stdio.h>

#include "common/base/mem.h"
#include "common/http/server/state.h"

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

/* The body counts with the length that it announces or, without one, with the bytes that have come
 * so far, and with those that it was decoded to. */
static uint64_t body_bytes(const struct conn *c, uint64_t announced)
{
    const uint64_t held = http_parser_held_bytes(c->parser);
    return (announced > held ? announced : held) + c->decoded.len;
}

/* Asks for the room of this request's body, where it is large. Small ones have another room, and
 * very small ones are free: a few uploads that never end must not shut out everybody. */
static bool charge_large(struct conn *c)
{
    struct room *bodies = &c->server->bodies;
    uint64_t held = body_bytes(c, c->announced);
    if (held <= HTTP_SMALL_BODY_BYTES)
        held = 0;
    if (held > c->body.bytes && !room_has(bodies, conn_tenant(c), held - c->body.bytes))
        return false;
    if (held != c->body.bytes)
        room_set(bodies, &c->body, conn_tenant(c), held);
    return true;
}

/* Its requests hold these, beside a large body. Bytes that the parser was fed are not in pending.
 */
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

void conn_refuse_for_room(struct conn *c)
{
    const uint64_t wanted = body_bytes(c, http_parser_announced(c->parser));
    const uint64_t most = room_most(&c->server->bodies);
    char text[200];
    c->server->counts.refused_bodies++;
    if (wanted <= most) {
        conn_refuse(c, 503,
                    "There is no room for this request: too many bytes of requests are held, of "
                    "yours or of all: try again in a moment");
        return;
    }
    snprintf(text, sizeof text,
             "The request body is too large: with what it is decoded to it takes %llu bytes, and "
             "this server holds at most %llu for one client",
             (unsigned long long)wanted, (unsigned long long)most);
    conn_refuse(c, 413, text);
}

enum status http_hold(struct http_request *r, uint64_t bytes)
{
    struct conn *c = conn_of(r);
    struct room *trees = &c->server->trees;
    if (bytes <= HTTP_FREE_BYTES)
        return STATUS_OK;
    if (room_has(trees, conn_tenant(c), bytes)) {
        room_set(trees, &c->tree, conn_tenant(c), bytes);
        return STATUS_OK;
    }
    c->server->counts.refused_bodies++;
    return bytes > room_most(trees) ? STATUS_LIMIT : STATUS_AGAIN;
}

/* A small buffer stays, for the connection's next request. */
void http_release_body(struct http_request *r)
{
    struct conn *c = conn_of(r);
    if (http_parser_held_bytes(c->parser) > HTTP_FREE_BYTES)
        mem_free(http_parser_take_body(c->parser));
    conn_forget_decoded(c);
    room_set(&c->server->bodies, &c->body, 0, 0);
    c->announced = c->taken_body_bytes = 0;
    conn_charge_kept(c);
}
