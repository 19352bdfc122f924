#pragma once
/* One row of an option table: its name, its type, where its value goes, and what is allowed. Plain
 * data, usually static const. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

enum option_type {
    OPTION_BOOL,   /* bool; `--x`, `--no-x`, `--x=true` */
    OPTION_INT,    /* int64_t, with min and max; accepts k, m, g and Ki, Mi, Gi suffixes */
    OPTION_FLOAT,  /* double, with min and max */
    OPTION_STRING, /* const char *, owned by the config; NULL when there is no default */
    OPTION_ENUM,   /* int, index into choices "a|b|c" */
    OPTION_LIST, /* struct option_list, repeatable flag; YAML list; comma list in the environment */
    OPTION_ARGUMENT, /* the bare argument by name ("--model X"): goes to positional */
    OPTION_IGNORED,  /* a vLLM flag with no meaning here: accepted, one warning */
    OPTION_REFUSED, /* a vLLM flag that would change what is served: an error that says `instead` */
    OPTION_TYPE_COUNT
};

/* Bare words after a list's value: arguments of the program; values too, as vLLM takes them; or
 * values, but the last one, when the program would have no argument otherwise. */
enum option_words { WORDS_ARE_ARGUMENTS, WORDS_ARE_VALUES, WORDS_ARE_VALUES_BUT_ONE };

/* The values that follow a flag of vLLM's. A switch may have true or false behind it, as older ones
 * took. */
enum option_takes { TAKES_NOTHING, TAKES_ONE, TAKES_PERHAPS_ONE, TAKES_MANY };

struct option_list {
    const char **items; /* owned by the config */
    size_t n_items;
};

struct option_spec {
    const char *name;    /* "max-num-seqs" */
    const char *aliases; /* other spellings, comma separated: "tensor-parallel-size"; or NULL */
    enum option_type type;
    size_t offset;           /* into the config struct; unused for OPTION_IGNORED */
    double min, max;         /* OPTION_INT, OPTION_FLOAT */
    const char *def;         /* as it would be typed; NULL = zero */
    const char *choices;     /* OPTION_ENUM: "auto|cpu|cuda"; OPTION_REFUSED: values that pass */
    const char *help;        /* one line; NULL hides the row from --help */
    const char *env;         /* its names in somebody else's standard, comma separated, the first
                              * counts before the next; COX_<OPTION> before all; or NULL */
    bool secret;             /* never printed or logged */
    bool json;               /* OPTION_STRING: a JSON object; in YAML a mapping will do */
    enum option_words words; /* OPTION_LIST */
    enum option_takes takes; /* OPTION_IGNORED, OPTION_REFUSED */
    const char *instead; /* what to do instead: vLLM's flags; of others, when a value is wrong */
    const char *needs;   /* a row that is a switch or a text: given while that one is off, a warning
                          * says that this one does nothing; or NULL */
};

#define OPT_INT(S, field, nm, lo, hi, d, h)                                                        \
    {                                                                                              \
        .name = nm, .type = OPTION_INT, .offset = offsetof(struct S, field), .min = lo, .max = hi, \
        .def = d, .help = h                                                                        \
    }
#define OPT_FLOAT(S, field, nm, lo, hi, d, h)                                                      \
    {                                                                                              \
        .name = nm, .type = OPTION_FLOAT, .offset = offsetof(struct S, field), .min = lo,          \
        .max = hi, .def = d, .help = h                                                             \
    }
#define OPT_STRING(S, field, nm, d, h)                                                             \
    {                                                                                              \
        .name = nm, .type = OPTION_STRING, .offset = offsetof(struct S, field), .def = d,          \
        .help = h                                                                                  \
    }
#define OPT_BOOL(S, field, nm, d, h)                                                               \
    {                                                                                              \
        .name = nm, .type = OPTION_BOOL, .offset = offsetof(struct S, field), .def = d, .help = h  \
    }
#define OPT_ENUM(S, field, nm, ch, d, h)                                                           \
    {                                                                                              \
        .name = nm, .type = OPTION_ENUM, .offset = offsetof(struct S, field), .choices = ch,       \
        .def = d, .help = h                                                                        \
    }
#define OPT_LIST(S, field, nm, h)                                                                  \
    {                                                                                              \
        .name = nm, .type = OPTION_LIST, .offset = offsetof(struct S, field), .help = h            \
    }
#define OPT_WORDS(S, field, nm, w, h)                                                              \
    {                                                                                              \
        .name = nm, .type = OPTION_LIST, .offset = offsetof(struct S, field), .words = w,          \
        .help = h                                                                                  \
    }
#define OPT_IGNORED(nm, t, i)                                                                      \
    {                                                                                              \
        .name = nm, .type = OPTION_IGNORED, .takes = t, .instead = i                               \
    }
#define OPT_REFUSED(nm, t, ok, i)                                                                  \
    {                                                                                              \
        .name = nm, .type = OPTION_REFUSED, .takes = t, .choices = ok, .instead = i                \
    }

/* The results of parsing besides the config struct. */
struct config_result {
    struct option_list positional; /* arguments that are no option, in order */
    struct option_list warnings;   /* one text each: ignored vLLM flags, deprecated spellings */
    bool help, version;            /* --help / --version was given: caller prints and ends with 0 */
    const char *help_topic;        /* TOPIC in --help=TOPIC; or NULL. Points into argv */
    void *owned;                   /* every string handed out; config_fini frees it */
};
