#pragma once
/* Reports to the head that `cox up` changed the number of workers, and which user asked for the
 * change. The head records an event (POST /api/scaled). The call blocks, so it runs on a thread
 * of its own. When the head does not answer, the thread retries for some seconds. */
#include <stdint.h>

struct scale_note;
/* Starts the thread. `admin` is HOST:PORT of the head's admin API. `key_file` is its
 * --admin-key-file, or NULL. Both strings are borrowed. */
struct scale_note *scale_note_new(const char *admin, const char *key_file);
/* Queues a report about one change. `uid` is the user who requested the change. The thread finds
 * the user's name. */
void scale_note_tell(struct scale_note *n, uint32_t was, uint32_t workers, uint32_t uid);
/* Ends the thread and drops reports that were not sent. Accepts NULL. */
void scale_note_free(struct scale_note *n);
