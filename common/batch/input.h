#pragma once
/* Reads the lines of a batch's input file, in the format of OpenAI and vLLM:
 *   {"custom_id":"…","method":"POST","url":"/v1/chat/completions","body":{…}}
 * The gateway's /v1/batches and `cox run-batch` use it. The functions are pure and may run on
 * any thread. */
#include "common/base/str.h"

struct batch_input_line {
    /* parts of the request; owned_body is compact JSON */
    char *owned_custom_id, *owned_url, *owned_body;
    size_t custom_id_len, body_len;
};

/* Takes the next line of *rest that is not blank, without its line end. Returns false when there
 * is no such line. *i_line counts all lines, from 1. */
bool batch_input_next(struct str *rest, struct str *line, uint32_t *i_line);
/* Reads one line into `out`. Returns false when the line is refused. `why` then holds the reason
 * and `out` is empty. An empty `url` allows any endpoint. */
bool batch_input_read(struct str line, const char *url, struct batch_input_line *out,
                      char why[200]);
/* Returns the custom_id of a line that batch_input_read refuses. The caller frees the id with
 * mem_free. Returns NULL when the id cannot be read. */
char *batch_input_id(struct str line);
void batch_input_line_fini(struct batch_input_line *l);
