#pragma once
/* `cox up` tells its head that it changed the number of workers, and on whose behalf: the head
 * makes an event of it (POST /api/scaled). A thread of its own asks, since the call blocks; a head
 * that does not answer is asked again for some seconds. */
#include <stdint.h>

struct scale_note;
/* admin: HOST:PORT of the head's admin API; key_file: its --admin-key-file, or NULL. Both are
 * borrowed. */
struct scale_note *scale_note_new(const char *admin, const char *key_file);
/* uid: the user who asked; the thread looks up its name. */
void scale_note_tell(struct scale_note *n, uint32_t was, uint32_t workers, uint32_t uid);
/* Gives up on what has not been told. NULL is fine. */
void scale_note_free(struct scale_note *n);
