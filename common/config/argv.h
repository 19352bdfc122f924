#pragma once
/* The command line: what is an option, what its value, what an argument. Single thread. */
#include "common/config/set.h"

/* One value of the command line, until its turn comes. */
struct setting {
    size_t i_spec;
    struct str value, as; /* as: the option as it was typed, "--tensor-parallel-size" */
};

/* argv on its way into settings; settings has room for argc of them. */
struct argv_scan {
    int argc, i;
    char *const *argv;
    struct setting *settings;
    size_t n_settings;
    const char *config_file;         /* of --config, or NULL */
    const struct option_spec *words; /* whose values bare words are at this place, or NULL */
    struct str as;                   /* the last option as it was typed */
    size_t i_lent;                   /* 1 + the last setting that may be an argument; 0: none */
};

/* Splits argv into settings and positional arguments. */
MUST_USE enum status config_scan_argv(struct config_parser *p, struct argv_scan *a);
/* "--served-model-name a b MODEL": the last word becomes the argument when there is no other. */
void config_give_back(struct config_parser *p, struct argv_scan *a);

/* How many words of argv from argv[i] on belong to the option that argv[i] names: itself, its
 * value, further values of a list. 0: argv[i] is no option of the table (--help and --config are
 * none). */
size_t config_count_words(const struct option_spec *specs, size_t n_specs, int argc,
                          char *const *argv, int i);
