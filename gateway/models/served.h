#pragma once
/* Opens, describes and ends a model of a gateway (state.h). Requests that arrive while a model is
 * OPENING wait in its serving. Only the loop thread calls these functions; the files are read on a
 * thread of the set. */
#include "gateway/models/state.h"

/* state of a model for clients, the value of "state" in /v1/models */
enum served_state { STATE_LOADING, STATE_SERVING, STATE_ASLEEP, STATE_FAILED };

/* Makes a model from an entry and begins to read its files. Never fails: a fault becomes the phase
 * FAILED. */
struct served_model *served_model_new(const struct served_world *w,
                                      const struct models_file_entry *e);
/* Makes the only model of a gateway without --models, from the gateway's own options, and reads
 * its files on this thread. *out is set also after a failure. */
MUST_USE enum status served_model_own(const struct served_world *w, struct served_model **out,
                                      struct error *err);
/* Opens a failed model again after a pause, which grows up to a minute: another process may be
 * downloading its files, or writing its keys. */
void served_model_try_again(struct served_model *m);
/* Sets the names of the model. names[0] must be its name. */
void served_model_rename(struct served_model *m, const char *const *names, uint32_t n);
/* Sets why the model cannot serve, as the file says; NULL = it can. */
void served_model_mark(struct served_model *m, const char *reason);
/* Returns why the model cannot serve, or NULL. */
const char *served_model_failure(const struct served_model *m);
/* Returns the state, and sets *why to a text for clients; "" for SERVING. */
enum served_state served_model_state(const struct served_model *m, const char **why);
const char *served_state_name(enum served_state s);
/* Returns true when requests may be sent to the model, perhaps to wait there. */
bool served_model_healthy(const struct served_model *m, const char **why);
/* Takes the model out of service: its open requests go on, and no new ones come. */
void served_model_leave(struct served_model *m);
/* Returns true when the model can be freed: it leaves and no request or thread needs it. */
bool served_model_is_gone(const struct served_model *m);
void served_model_free(struct served_model *m);
