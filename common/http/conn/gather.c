/* Gathers the bytes of streams while the loop runs its callbacks, and writes them when the turn
 * ends. So a message with tokens of hundreds of streams, or two such messages in one turn, cause
 * one write for each connection. All bytes are in one buffer: an open stream has no buffer of
 * its own, and a token needs no allocation.
 *
 * The hook is a uv_idle that is active only while bytes are gathered. It runs before the poll. A
 * uv_prepare hook would be worse: its bytes are written after the next poll, which then does not
 * wait. */
#include "common/http/conn/gather.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/http/conn/output.h"
#include "common/http/conn/state.h"

enum { BYTES_KEEP = 1 << 20, BYTES_MAX = 16 << 20, LIST_MIN = 64, PIECES_AT_ONCE = 16 };

static void write_conn(struct http_gather *g, struct conn *c)
{
    uv_buf_t bufs[PIECES_AT_ONCE];
    uint32_t i = c->first_piece, n = 0;
    c->first_piece = c->last_piece = 0;
    c->gathered_bytes = 0;
    for (; i; i = g->pieces[i - 1].next) {
        const struct http_piece *p = &g->pieces[i - 1];
        if (n == PIECES_AT_ONCE) {
            conn_write_pieces(c, bufs, n);
            n = 0;
        }
        bufs[n++] = uv_buf_init(g->bytes.ptr + p->at, (unsigned)p->n);
    }
    if (n > 0)
        conn_write_pieces(c, bufs, n);
}

static void write_all(struct http_gather *g)
{
    for (uint32_t i = 0; i < g->n_conns; i++)
        if (g->conns[i])
            write_conn(g, g->conns[i]);
    strbuf_trim(&g->bytes, BYTES_KEEP);
    strbuf_reset(&g->bytes);
    g->n_pieces = 0;
}

/* Writes everything before it makes a callback, because the end of an answer may start the next
 * request. */
static void on_flush(uv_idle_t *h)
{
    struct http_gather *g = &((struct http_server *)h->data)->gather;
    uint32_t n = g->n_conns;
    write_all(g);
    struct conn **told = g->conns;
    g->conns = g->told;
    g->told = told;
    g->n_conns = 0;
    uv_idle_stop(h);
    for (uint32_t i = 0; i < n; i++)
        if (told[i])
            told[i]->i_gathered = 0;
    /* A connection that a callback closed stays allocated until the loop frees it, which happens
     * after this function. */
    for (uint32_t i = 0; i < n; i++)
        if (told[i] && told[i]->state != CONN_CLOSING)
            told[i]->server->calls->flushed(told[i]);
}

static void on_flush_closed(uv_handle_t *h)
{
    http_server_release(h->data);
}

void gather_open(struct http_server *s)
{
    strbuf_init(&s->gather.bytes, (size_t)2 * BYTES_MAX);
    uv_idle_init(s->listener.handle.loop, &s->gather.flush);
    s->gather.flush.data = s;
    s->open_handles++;
}

void gather_close(struct http_server *s)
{
    write_all(&s->gather);
    uv_close((uv_handle_t *)&s->gather.flush, on_flush_closed);
}

void gather_fini(struct http_server *s)
{
    strbuf_fini(&s->gather.bytes);
    mem_free(s->gather.pieces);
    mem_free(s->gather.conns);
    mem_free(s->gather.told);
}

static void add_conn(struct http_gather *g, struct conn *c)
{
    if (g->n_conns == g->cap_conns) {
        g->cap_conns = g->cap_conns ? 2 * g->cap_conns : LIST_MIN;
        g->conns = mem_realloc(g->conns, g->cap_conns * sizeof(struct conn *));
        g->told = mem_realloc(g->told, g->cap_conns * sizeof(struct conn *));
    }
    g->conns[g->n_conns++] = c;
    c->i_gathered = g->n_conns;
}

static void add_piece(struct http_gather *g, struct conn *c)
{
    if (g->n_pieces == g->cap_pieces) {
        g->cap_pieces = g->cap_pieces ? 2 * g->cap_pieces : LIST_MIN;
        g->pieces = mem_realloc(g->pieces, g->cap_pieces * sizeof *g->pieces);
    }
    g->pieces[g->n_pieces++] = (struct http_piece){.at = g->bytes.len};
    if (c->last_piece)
        g->pieces[c->last_piece - 1].next = g->n_pieces;
    else
        c->first_piece = g->n_pieces;
    c->last_piece = g->n_pieces;
}

void gather_add(struct conn *c, struct str bytes)
{
    struct http_gather *g = &c->server->gather;
    if (bytes.len > BYTES_MAX - g->bytes.len)
        write_all(g);
    if (g->n_conns == 0)
        uv_idle_start(&g->flush, on_flush);
    if (!c->i_gathered)
        add_conn(g, c);
    if (bytes.len > BYTES_MAX) {
        uv_buf_t buf = uv_buf_init((char *)bytes.ptr, (unsigned)bytes.len);
        conn_write_pieces(c, &buf, 1);
        return;
    }
    if (!c->last_piece || c->last_piece != g->n_pieces)
        add_piece(g, c);
    strbuf_append_str(&g->bytes, bytes);
    g->pieces[c->last_piece - 1].n += bytes.len;
    c->gathered_bytes += bytes.len;
}

void gather_drop(struct conn *c)
{
    if (c->i_gathered)
        c->server->gather.conns[c->i_gathered - 1] = NULL;
    c->i_gathered = c->first_piece = c->last_piece = 0;
    c->gathered_bytes = 0;
}
