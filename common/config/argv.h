#pragma once
/* Splits the command line into options, their values and arguments. Only one thread calls these
 * functions. */
#include "common/config/set.h"

/* `setting` holds one value of the command line until the file and the environment have been
 * applied. */
struct setting {
    size_t i_spec;
    struct str value, as; /* `as` is the option as the user typed it: "--tensor-parallel-size" */
};

/* `argv_scan` is the state while argv is split into settings. `settings` has space for argc of
 * them. */
struct argv_scan {
    int argc, i;
    char *const *argv;
    struct setting *settings;
    size_t n_settings;
    const char *config_file;         /* value of --config; or NULL */
    const struct option_spec *words; /* option that takes the bare words that follow; or NULL */
    struct str as;                   /* the last option as the user typed it */
    size_t i_lent; /* 1 + index of the last setting that may be the argument; 0 = none */
};

/* Splits argv into settings and positional arguments. */
MUST_USE enum status config_scan_argv(struct config_parser *p, struct argv_scan *a);
/* Makes the last word of "--served-model-name a b MODEL" the argument when there is no other
 * argument. */
void config_give_back(struct config_parser *p, struct argv_scan *a);

/* Returns how many words of argv belong to the option at argv[i]: the option itself, its value,
 * and further values of a list. Returns 0 when argv[i] is not an option of the table, for
 * example --help or --config. */
size_t config_count_words(const struct option_spec *specs, size_t n_specs, int argc,
                          char *const *argv, int i);
