/* Shows a request to its handler. Contains views into the parser's message, and the settings
 * that a handler makes for the request. */
#include "common/http/server/request.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/mem.h"
#include "common/http/conn/address.h"
#include "common/http/conn/charge.h"
#include "common/http/conn/state.h"

struct str http_method(const struct http_request *r)
{
    return http_parser_message(conn_of(r)->parser)->method;
}

struct str http_path(const struct http_request *r)
{
    struct str path = http_parser_message(conn_of(r)->parser)->path;
    const char *root = conn_of(r)->server->root_path;
    size_t n = root ? strlen(root) : 0;
    while (n > 0 && root[n - 1] == '/')
        n--;
    if (n > 0 && path.len > n && memcmp(path.ptr, root, n) == 0 && path.ptr[n] == '/')
        return (struct str){path.ptr + n, path.len - n};
    return path;
}

struct str http_query(const struct http_request *r)
{
    return http_parser_message(conn_of(r)->parser)->query;
}

struct str http_authority(const struct http_request *r)
{
    return http_parser_message(conn_of(r)->parser)->authority;
}

bool http_peer_uid(const struct http_request *r, uint32_t *uid)
{
    const struct conn *c = conn_of(r);
    struct ucred peer;
    socklen_t n = sizeof peer;
    uv_os_fd_t fd;
    if (!c->server->is_unix || uv_fileno(&c->io.handle, &fd) != 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) != 0)
        return false;
    *uid = peer.uid;
    return true;
}

struct str http_body(const struct http_request *r)
{
    const struct conn *c = conn_of(r);
    return c->decoded.ptr ? c->decoded : http_parser_message(c->parser)->body;
}

size_t http_looked(const struct http_request *r)
{
    return conn_of(r)->looked;
}

char *http_take_body(struct http_request *r)
{
    struct conn *c = conn_of(r);
    char *owned = (char *)c->decoded.ptr;
    c->taken_body_bytes += http_body(r).len;
    c->decoded = (struct str){0};
    if (owned) /* the caller gets the decoded body, and the compressed body is no longer needed */
        mem_free(http_parser_take_body(c->parser));
    return owned ? owned : http_parser_take_body(c->parser);
}

struct str http_header(const struct http_request *r, const char *name)
{
    const struct http_message *m = http_parser_message(conn_of(r)->parser);
    for (uint32_t i = 0; i < m->n_fields; i++)
        if (http_field_is(&m->fields[i], name))
            return m->fields[i].value;
    return STR("");
}

bool http_header_at(const struct http_request *r, uint32_t i, struct str *name, struct str *value)
{
    const struct http_message *m = http_parser_message(conn_of(r)->parser);
    if (i >= m->n_fields)
        return false;
    *name = m->fields[i].name;
    *value = m->fields[i].value;
    return true;
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

/* Frees the request's body. A small buffer is kept for the connection's next request. */
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

void http_set_user(struct http_request *r, void *user)
{
    r->user = user;
}

void *http_get_user(const struct http_request *r)
{
    return r->user;
}

void http_set_note(struct http_request *r, void *note)
{
    r->note = note;
}

void *http_get_note(const struct http_request *r)
{
    return r->note;
}

void http_set_tenant(struct http_request *r, uint64_t tenant)
{
    conn_of(r)->tenant = tenant;
}

void http_set_id(struct http_request *r, const char *id)
{
    struct conn *c = conn_of(r);
    snprintf(c->id, sizeof c->id, "%s", id);
}

const char *http_get_id(const struct http_request *r)
{
    return conn_of(r)->id;
}

void http_add_header(struct http_request *r, const char *name, const char *value)
{
    struct strbuf *b = &conn_of(r)->added;
    if (!strpbrk(name, "\r\n") && !strpbrk(value, "\r\n") &&
        b->len + strlen(name) + strlen(value) + 4 <= HTTP_ADDED_MAX)
        strbuf_printf(b, "%s: %s\r\n", name, value);
}
