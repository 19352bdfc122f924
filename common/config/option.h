#pragma once
/* Describes one row of an option table: its name, its type, the place of its value, and the
 * allowed values. The rows are plain data, usually static const. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/str.h"

enum option_type {
    OPTION_BOOL,   /* a bool; typed as `--x`, `--no-x` or `--x=true` */
    OPTION_INT,    /* an int64_t, with min and max; accepts k, m, g and Ki, Mi, Gi suffixes */
    OPTION_FLOAT,  /* a double, with min and max */
    OPTION_STRING, /* a const char *, owned by the config; NULL without a default */
    OPTION_ENUM,   /* an int, the index into choices "a|b|c" */
    /* a struct option_list; a repeatable flag, a YAML list, or a comma list in the environment */
    OPTION_LIST,
    OPTION_ARGUMENT, /* the bare argument as a flag ("--model X"); stored in `positional` */
    OPTION_IGNORED,  /* a vLLM flag without meaning here; accepted with one warning */
    /* a vLLM flag that would change the answers; an error, with the advice in `instead` */
    OPTION_REFUSED,
    OPTION_TYPE_COUNT
};

/* `option_words` is the meaning of bare words after a list's value. They are arguments of the
 * program, or further values (as in vLLM). With the third meaning the last word is the argument
 * when the program would otherwise have none, and the others are values. */
enum option_words { WORDS_ARE_ARGUMENTS, WORDS_ARE_VALUES, WORDS_ARE_VALUES_BUT_ONE };

/* `option_takes` is the number of values after a vLLM flag. A switch may be followed by true or
 * false, as in older vLLM versions. */
enum option_takes { TAKES_NOTHING, TAKES_ONE, TAKES_PERHAPS_ONE, TAKES_MANY };

struct option_list {
    const char **items; /* array of the items, owned by the config */
    size_t n_items;
};

struct option_spec {
    const char *name;    /* name with dashes, such as "max-num-seqs" */
    const char *aliases; /* other spellings, comma-separated: "tensor-parallel-size"; or NULL */
    enum option_type type;
    size_t offset;       /* place in the config struct; unused for OPTION_IGNORED */
    double min, max;     /* OPTION_INT, OPTION_FLOAT: allowed range */
    const char *def;     /* default, as it would be typed; NULL = zero */
    const char *choices; /* OPTION_ENUM: "auto|cpu|cuda"; OPTION_REFUSED: accepted values */
    const char *help;    /* text for --help, one line; NULL hides the row */
    /* Names of the environment variables that other standards use for the option,
     * comma-separated, the most important first; or NULL. COX_<OPTION> overrides all of them. */
    const char *env;
    bool secret;             /* true = the value is never printed or logged */
    bool json;               /* OPTION_STRING: a JSON object; YAML may use a mapping */
    enum option_words words; /* OPTION_LIST only */
    enum option_takes takes; /* OPTION_IGNORED, OPTION_REFUSED only */
    /* Advice for the user: for a vLLM flag the replacement, for other options the text after a
     * wrong value. */
    const char *instead;
    /* Name of a switch or text option that this option depends on; or NULL. A warning says that
     * this option has no effect while the switch or text is not set. */
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

/* `config_result` holds the results of parsing other than the config struct. */
struct config_result {
    struct option_list positional; /* arguments that are not options, in order */
    struct option_list warnings;   /* texts of warnings, such as that of an ignored vLLM flag */
    bool help, version;     /* --help or --version was given: print it and exit with code 0 */
    const char *help_topic; /* TOPIC in --help=TOPIC; or NULL. It points into argv */
    void *owned;            /* memory of all strings; config_fini frees it */
};
