#pragma once
/* Shows a request to its handler, from http_handlers.on_request until its answer. Views are
 * valid as long as the request. Only the loop thread calls these functions. */
#include "common/base/str.h"
#include "common/http/message/service.h"

struct str http_method(const struct http_request *r);
/* Returns the path without the query, not decoded. */
struct str http_path(const struct http_request *r);
struct str http_query(const struct http_request *r);
/* Returns the requested HOST[:PORT], from the request's target or else from its Host header.
 * Returns "" when there is neither. */
struct str http_authority(const struct http_request *r);
struct str http_header(const struct http_request *r,
                       /* ignores the case of the name; returns "" when the header is absent */
                       const char *name);
/* Reads field i as the client sent it. Returns false when there are fewer fields. */
bool http_header_at(const struct http_request *r, uint32_t i, struct str *name, struct str *value);
struct str http_body(const struct http_request *r);
/* Returns the result of http_handlers.look. 0 = the body is small, and nobody looked at it. */
size_t http_looked(const struct http_request *r);
/* Sets *uid to the user of the process at the other end of a Unix socket. Returns false for any
 * other connection. */
bool http_peer_uid(const struct http_request *r, uint32_t *uid);
/* Gives the body to the caller, who frees it with mem_free. http_body is then empty. A large
 * body is not copied, because a copy takes the loop a millisecond per megabyte. Returns NULL
 * when the body is empty. The bytes stay charged until http_release_body, or until the answer is
 * written. */
char *http_take_body(struct http_request *r);
/* Frees the body's bytes and their charge before the answer is written. Call this from
 * on_request on, when the body is no longer needed. Bytes from http_take_body still belong to
 * the code that took them. */
void http_release_body(struct http_request *r);
/* Charges bytes that the handler derives from the body and keeps until the answer is written.
 * Call this at most once, from on_request on. The bytes have a budget of their own. Up to 16 KiB
 * are not charged. Returns STATUS_AGAIN when the tenant's share is used up now: refuse the
 * request with 503. Returns STATUS_LIMIT when the bytes exceed the largest possible share:
 * refuse with 413. */
MUST_USE enum status http_hold(struct http_request *r, uint64_t bytes);
void http_set_user(struct http_request *r, void *user); /* sets the state of the handler */
void *http_get_user(const struct http_request *r);
/* Sets a second pointer of the request for on_answered, which frees it. */
void http_set_note(struct http_request *r, void *note);
void *http_get_note(const struct http_request *r);

/* Sets the tenant that is charged for the request's body and answer. Before this call, and with
 * tenant 0, the client's address is charged instead. Call it in body_max, before the body is
 * charged, and in on_request. */
void http_set_tenant(struct http_request *r, uint64_t tenant);

/* Sets the request's id, which is "" before. An id longer than HTTP_ID_MAX is cut. */
void http_set_id(struct http_request *r, const char *id);
const char *http_get_id(const struct http_request *r);
/* Adds a header to the request's next answer, whole or stream. A header beyond HTTP_ADDED_MAX
 * bytes in total, or with a line break, is left out. */
void http_add_header(struct http_request *r, const char *name, const char *value);
