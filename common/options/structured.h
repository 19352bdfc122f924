#pragma once
/* Rows for structured answers: the white space that gateways leave out of them
 * (gateway/prepare/outputs_config.h), and the processes and memory that compile their grammars
 * (gateway/compile/compilers.h). S has a member of each name. */
#include "common/config/config.h"

#define ROWS_STRUCTURED(S)                                                                         \
    OPT_STRING(                                                                                    \
        S, structured_outputs_config, "structured-outputs-config", NULL,                           \
        "JSON, as vLLM's: disable_any_whitespace (as the flag of that name); its other keys "      \
        "change nothing here, constrained output has one backend, llguidance"),                    \
        {.name = "disable-any-whitespace",                                                         \
         .aliases = "structured-outputs-config.disable-any-whitespace,"                            \
                    "guided-decoding-disable-any-whitespace",                                      \
         .type = OPTION_BOOL,                                                                      \
         .offset = offsetof(struct S, disable_any_whitespace),                                     \
         .help = "JSON that follows a request's schema, json_object and forced calls of tools "    \
                 "have no white space between tokens, unless a schema's x-guidance asks for it"},  \
        OPT_INT(S, grammar_processes, "grammar-processes", 0, 32, "2",                             \
                "processes that compile grammars and requests' own chat templates at a time; 0: "  \
                "in the gateway itself, for debugging"),                                           \
        OPT_INT(S, grammar_memory, "grammar-memory", 64 << 20, INT64_C(64) << 30, "640Mi",         \
                "memory that one of them may take beyond what it begins with, a backstop: what "   \
                "a grammar may cost is counted and the same everywhere; more is a 503")
