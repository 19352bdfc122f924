#pragma once
/* Changes the set of models for the admin API, as a text or in the file of --models. An edit is
 * checked as a whole set before it replaces the old one at once, so a reader sees the set before or
 * after it. The set is written as JSON, which is YAML, so comments are lost. The functions block
 * for a short read and write of at most 1 MiB. */
#include <jansson.h>

#include "common/base/status.h"
#include "common/base/str.h"

enum models_edit_kind {
    MODELS_SET,    /* add the entry, or replace the one of this name */
    MODELS_REMOVE, /* remove the entry */
    MODELS_ALIASES /* change the entry's aliases */
};

/* `models_edit` is one change of the set by an admin. */
struct models_edit {
    enum models_edit_kind kind;
    const char *list; /* "models" or "routes"; borrowed for ever */
    char *name, *by;  /* name of the entry; name of the admin's key */
    /* MODELS_SET: the new entry, whose member "name" is set here.
     * MODELS_ALIASES: lists of names, {"add": [...], "remove": [...]} */
    json_t *item;
    void *reply; /* the client that waits for the end; NULL = it has disconnected */
    /* Called once, when the set was changed (STATUS_OK) or could not be. STATUS_AGAIN means that
     * Redis cannot be reached. */
    void (*done)(void *ctx, const struct models_edit *e, enum status s, const struct error *err);
    void *ctx;
};

/* Appends the text after the edit to `out`, which must have the limit MODELS_FILE_MAX. An empty
 * text is a set without models.
 * STATUS_NOT_FOUND: there is no such entry or alias. STATUS_INVALID: the set would have an error.
 * STATUS_EXISTS: a program owns the set (its member "managed_by"). The text of an error is for the
 * client. */
MUST_USE enum status models_text_edit(struct str text, const struct models_edit *e,
                                      struct strbuf *out, struct error *err);
/* Does the same in the file at `path`. STATUS_IO: the file cannot be read or written. */
MUST_USE enum status models_file_edit(const char *path, const struct models_edit *e,
                                      struct error *err);
