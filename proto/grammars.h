#pragma once
/* Defines the messages about grammars, a part of messages.h. The sampling rank compiles a
 * grammar before a request that uses it is admitted (docs/develop/protocol.md, "Grammars"). */
#include <stdbool.h>

#include "common/base/status.h"
#include "common/base/str.h"

enum grammar_kind {
    GRAMMAR_NONE,
    GRAMMAR_JSON_SCHEMA,
    GRAMMAR_REGEX,
    GRAMMAR_LARK,
    /* the source is JSON: triggers in the text, and the schema that begins at each of them */
    GRAMMAR_STRUCTURAL_TAG,
    /* The source is JSON: another kind with its source, and the markers of the reasoning that
     * precedes the answer. */
    GRAMMAR_AFTER_REASONING,
    GRAMMAR_COUNT
};

/* Orders a rank to compile or to drop a grammar. With `on`, the rank compiles the source beside
 * its steps and answers GrammarDone. It keeps the result until it receives the same id without
 * `on`, or until the epoch ends. The head chooses the id for one (kind, source) in one epoch. An
 * id that is sent twice is answered twice. */
struct msg_grammar {
    uint64_t term_epoch, id;
    bool on;
    enum grammar_kind kind; /* kind of grammar; `kind` and `source` are set with `on` */
    struct str source;
};
struct msg_grammar_done {
    uint64_t term_epoch, id;
    /* STATUS_INVALID and STATUS_LIMIT mean that the source is at fault; `text` says why. */
    enum status status;
    struct str text;
    /* These fields describe memory of the rank: bytes of the grammar, bytes that a matcher
     * starts with, and the memory for all grammars and matchers. 0 = the rank does not report it
     * (grammar_room.h). */
    uint64_t bytes, matcher_bytes, room_bytes;
};
