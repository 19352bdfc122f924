#pragma once
/* Defines rows for structured answers: the white space that gateways leave out of them
 * (gateway/prepare/outputs_config.h), and the processes and memory that compile their grammars
 * (gateway/compile/compilers.h). S has a member of each name. */
#include "common/config/config.h"

#define ROWS_STRUCTURED(S)                                                                         \
    OPT_STRING(S, structured_outputs_config, "structured-outputs-config", NULL,                    \
               "Settings of structured output, as vLLM's JSON. Only disable_any_whitespace has "   \
               "an effect; the backend is always llguidance."),                                    \
        {.name = "disable-any-whitespace",                                                         \
         .aliases = "structured-outputs-config.disable-any-whitespace,"                            \
                    "guided-decoding-disable-any-whitespace",                                      \
         .type = OPTION_BOOL,                                                                      \
         .offset = offsetof(struct S, disable_any_whitespace),                                     \
         .help =                                                                                   \
             "Generate JSON without white space between tokens, for JSON schemas, json_object "    \
             "and forced tool calls. The member x-guidance of a schema overrides this option."},   \
        OPT_INT(S, grammar_processes, "grammar-processes", 0, 32, "2",                             \
                "Number of processes that compile grammars and the chat templates of requests. 0 " \
                "= compile in the gateway itself, for debugging."),                                \
        OPT_INT(S, grammar_memory, "grammar-memory", 64 << 20, INT64_C(64) << 30, "640Mi",         \
                "Bytes of memory that one grammar process may use beyond its size at the start. "  \
                "A request whose grammar needs more gets status 503.")
