#pragma once
/* Options for what gateways leave out of answers that have to have a shape
 * (gateway/outputs_config.h), for a table's owner: S is the struct that has the fields. */
#include "common/base/config.h"

#define ROWS_STRUCTURED(S)                                                                         \
    OPT_STRING(                                                                                    \
        S, structured_outputs_config, "structured-outputs-config", NULL,                           \
        "JSON, as vLLM's: disable_any_whitespace (as the flag of that name); its other keys "      \
        "change nothing here, constrained output has one backend, llguidance"),                    \
    {                                                                                              \
        .name = "disable-any-whitespace",                                                          \
        .aliases = "structured-outputs-config.disable-any-whitespace,"                             \
                   "guided-decoding-disable-any-whitespace",                                       \
        .type = OPTION_BOOL, .offset = offsetof(struct S, disable_any_whitespace),                 \
        .help = "JSON that follows a request's schema, json_object and forced calls of tools "     \
                "have no white space between tokens, unless a schema's x-guidance asks for it"     \
    }
