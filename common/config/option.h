#pragma once
/* One row of an option table: its name, its type, the place of its value, and the allowed
 * values. Plain data, usually static const. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

enum option_type {
    OPTION_BOOL,     /* bool; `--x`, `--no-x`, `--x=true` */
    OPTION_INT,      /* int64_t, with min and max; accepts k, m, g and Ki, Mi, Gi suffixes */
    OPTION_FLOAT,    /* double, with min and max */
    OPTION_STRING,   /* const char *, owned by the config; NULL without a default */
    OPTION_ENUM,     /* int, index into choices "a|b|c" */
    OPTION_LIST,     /* struct option_list; repeatable flag, YAML list, comma list in env */
    OPTION_ARGUMENT, /* the bare argument as a flag ("--model X"); goes to `positional` */
    OPTION_IGNORED,  /* a vLLM flag without meaning here; accepted with one warning */
    OPTION_REFUSED,  /* a vLLM flag that would change the answers; an error with `instead` */
    OPTION_TYPE_COUNT
};

/* Meaning of bare words after a list's value. They are arguments of the program, or further
 * values (as in vLLM), or values except for the last one when the program would otherwise have
 * no argument. */
enum option_words { WORDS_ARE_ARGUMENTS, WORDS_ARE_VALUES, WORDS_ARE_VALUES_BUT_ONE };

/* Number of values that follow a vLLM flag. A switch may have true or false behind it, as in
 * older vLLM versions. */
enum option_takes { TAKES_NOTHING, TAKES_ONE, TAKES_PERHAPS_ONE, TAKES_MANY };

struct option_list {
    const char **items; /* owned by the config */
    size_t n_items;
};

struct option_spec {
    const char *name;    /* with dashes: "max-num-seqs" */
    const char *aliases; /* other spellings, comma-separated: "tensor-parallel-size"; or NULL */
    enum option_type type;
    size_t offset;       /* place in the config struct; unused for OPTION_IGNORED */
    double min, max;     /* OPTION_INT, OPTION_FLOAT: allowed range */
    const char *def;     /* default, as it would be typed; NULL = zero */
    const char *choices; /* OPTION_ENUM: "auto|cpu|cuda"; OPTION_REFUSED: accepted values */
    const char *help;    /* one line; NULL hides the row from --help */
    /* Names of the option in other standards, comma-separated, the most important first; or NULL.
     * COX_<OPTION> wins over all of them. */
    const char *env;
    bool secret;             /* never printed or logged */
    bool json;               /* OPTION_STRING: a JSON object; YAML may use a mapping */
    enum option_words words; /* OPTION_LIST only */
    enum option_takes takes; /* OPTION_IGNORED, OPTION_REFUSED only */
    /* Advice: for a vLLM flag the replacement, for others the text after a wrong value. */
    const char *instead;
    /* Name of a switch or text option that this option depends on; or NULL. A warning says that
     * this option has no effect while the other one is off. */
    const char *needs;
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

/* Results of parsing other than the config struct. */
struct config_result {
    struct option_list positional; /* arguments that are not options, in order */
    struct option_list warnings;   /* one text each, such as an ignored vLLM flag */
    bool help, version;            /* --help or --version was given: print it and end with 0 */
    const char *help_topic;        /* TOPIC in --help=TOPIC; or NULL. Points into argv */
    void *owned;                   /* memory of all strings; config_fini frees it */
};
