#pragma once
/* A request as its handler sees it, from http_handlers.on_request until its answer. Views live as
 * long as the request. Loop thread only. */
#include "common/base/str.h"
#include "common/http/message/service.h"

struct str http_method(const struct http_request *r);
struct str http_path(const struct http_request *r); /* without the query, not decoded */
struct str http_query(const struct http_request *r);
/* HOST[:PORT] that the request is for: its target's, or else its Host header; "": it says none. */
struct str http_authority(const struct http_request *r);
struct str http_header(const struct http_request *r,
                       const char *name); /* case-insensitive, or "" */
/* Field i, as it came. False: there are not so many. */
bool http_header_at(const struct http_request *r, uint32_t i, struct str *name, struct str *value);
struct str http_body(const struct http_request *r);
/* Sets *uid to the user of the process at the other end of a Unix socket. False: the connection is
 * of another kind. */
bool http_peer_uid(const struct http_request *r, uint32_t *uid);
/* The body's bytes, which become the caller's, to be freed with mem_free: a large one is given away
 * without a copy, which takes the loop a millisecond a megabyte. http_body is empty then. NULL: it
 * was empty before. They count on until http_release_body, or until the answer is written. */
char *http_take_body(struct http_request *r);
/* From on_request on: nobody reads the body any more, its bytes are freed (those that were taken
 * are by who took them), and none of its room is held for as long as the answer takes. */
void http_release_body(struct http_request *r);
/* From on_request on: the request holds so many bytes more, made of its body, until its answer is
 * written. They take of a room of their own; up to 16 KiB are free. To be called once.
 * STATUS_AGAIN: its tenant has no room now, and the request is to be refused with a 503;
 * STATUS_LIMIT: it would never have, with a 413. */
MUST_USE enum status http_hold(struct http_request *r, uint64_t bytes);
void http_set_user(struct http_request *r, void *user); /* the handler's own state */
void *http_get_user(const struct http_request *r);
/* Beside it, what on_answered is to find; freed there. */
void http_set_note(struct http_request *r, void *note);
void *http_get_note(const struct http_request *r);

/* The request's body and answer take the room of this tenant; 0, as it is until it is set: the
 * client's address. To be said in body_max, before the body takes its room, and in on_request. */
void http_set_tenant(struct http_request *r, uint64_t tenant);

/* A name for the request, "" until one is set. Longer ones than HTTP_ID_MAX are cut. */
void http_set_id(struct http_request *r, const char *id);
const char *http_get_id(const struct http_request *r);
/* On whatever answer it gets. What goes beyond HTTP_ADDED_MAX or is no header is left out. */
void http_add_header(struct http_request *r, const char *name, const char *value);
