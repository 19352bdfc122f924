#pragma once
/* Grammars, which the sampling rank compiles before a request with one is admitted
 * (docs/develop/protocol.md, "Grammars"): a part of messages.h. */
#include <stdbool.h>

#include "common/base/status.h"
#include "common/base/str.h"

enum grammar_kind {
    GRAMMAR_NONE,
    GRAMMAR_JSON_SCHEMA,
    GRAMMAR_REGEX,
    GRAMMAR_LARK,
    GRAMMAR_STRUCTURAL_TAG,  /* JSON: which schema begins at which text */
    GRAMMAR_AFTER_REASONING, /* JSON: another kind and source, and which markers reason before it */
    GRAMMAR_COUNT
};

/* With `on` the rank compiles the source beside its steps and answers GrammarDone; it keeps what it
 * compiled until the same id comes without `on`, or the epoch ends. The id is the head's, for one
 * (kind, source) of one epoch. One that comes twice is answered twice. */
struct msg_grammar {
    uint64_t term_epoch, id;
    bool on;
    enum grammar_kind kind; /* with `on`; so is */
    struct str source;
};
struct msg_grammar_done {
    uint64_t term_epoch, id;
    enum status status; /* STATUS_INVALID, STATUS_LIMIT: the source's fault; text says why */
    struct str text;
    /* The rank's memory that the grammar takes, that the matcher of a sequence with it begins with,
     * and the room for all of both; 0: the rank does not say (grammar_room.h). */
    uint64_t bytes, matcher_bytes, room_bytes;
};
