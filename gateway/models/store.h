#pragma once
/* `models_store` keeps the set of models in Redis, so that gateways on several hosts share it. One
 * key holds the same text as a file of --models. The store asks for the text twice a second and
 * passes on each new one. Without Redis nothing changes, and edits are refused. Only the loop
 * thread calls these functions. */
#include "common/loop/loop.h"
#include "gateway/models/edit.h"

struct models_store;
struct models_store_options {
    struct loop *loop;
    const char *url; /* a URL of Redis, then # and the key if it is not cox:models */
    /* Receives a text that differs from the last one. */
    void (*on_text)(void *ctx, struct str text);
    void *ctx;
};
/* Returns true when --models names a Redis and no file. */
bool models_store_is_url(const char *models);
MUST_USE enum status models_store_open(const struct models_store_options *o,
                                       struct models_store **out, struct error *err);
/* Ends the open edits with an error. `s` may be NULL. Never call it from a callback of the loop. */
void models_store_close(struct models_store *s);
/* Returns the name of the key, for error texts; it contains no password. */
const char *models_store_label(const struct models_store *s);
void models_store_look(struct models_store *s); /* called every 500 ms */

/* Starts a change. The texts are copied, and `item` gets a reference. Returns STATUS_AGAIN, without
 * a call of `done`, while Redis is away or too many changes are open. */
MUST_USE enum status models_store_edit(struct models_store *s, const struct models_edit *e,
                                       struct error *err);
/* Forgets the client of an edit, which goes on. Returns false when no edit has this reply. */
bool models_store_on_abort(struct models_store *s, const void *reply);
