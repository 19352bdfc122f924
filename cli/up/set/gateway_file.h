#pragma once
/* Writes the file from which the gateways of a set read its models (docs/develop/many-models.md,
 * "The set is a file"). */
#include "cli/up/set/types.h"
#include "common/base/status.h"
#include "common/base/str.h"

/* `set_shown` is what the gateways learn of a model besides its entry in the set. */
struct set_shown {
    const char *model; /* MODEL for the gateways: the tokenizer and chat template */
    const char *head;  /* HOST:PORT of the head */
    /* seconds that a request waits for a replica; 0 = the gateways' own --queue-timeout */
    uint32_t queue_timeout_s;
    const char *failed; /* why the supervisor gave up on the model; "" or NULL = it did not */
};

/* Appends the file's text. The function is pure. */
void set_gateway_file_text(const struct up_set *set, const struct set_shown *shown,
                           struct strbuf *out);
/* Writes the file under another name and renames it, because the gateways may read it now. */
MUST_USE enum status set_gateway_file_write(const char *path, const struct up_set *set,
                                            const struct set_shown *shown, struct error *err);
