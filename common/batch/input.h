#pragma once
/* The lines of a batch's input file, OpenAI's and vLLM's:
 *   {"custom_id":"…","method":"POST","url":"/v1/chat/completions","body":{…}}
 * For the gateway's /v1/batches and for `cox run-batch`. Pure; any thread. */
#include "common/base/str.h"

struct batch_input_line {
    char *owned_custom_id, *owned_url, *owned_body; /* body: compact JSON */
    size_t custom_id_len, body_len;
};

/* The next line of *rest that is not blank, without its end; false: there is none. *i_line counts
 * all lines, from 1. */
bool batch_input_next(struct str *rest, struct str *line, uint32_t *i_line);
/* False: why says it, and out holds nothing. url "": any. */
bool batch_input_read(struct str line, const char *url, struct batch_input_line *out,
                      char why[200]);
/* The custom_id of a line that batch_input_read refuses, for mem_free; NULL: it cannot be read. */
char *batch_input_id(struct str line);
void batch_input_line_fini(struct batch_input_line *l);
