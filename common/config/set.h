#pragma once
/* Shared by config*.c only. A setting is one value on its way into the config struct: which row,
 * the text, and where it was written, for the error texts. Single thread. */
#include "common/base/arena.h"
#include "common/config/config.h"

enum { CONFIG_FILE_MAX = 1 << 20, CONFIG_VALUE_MAX = 64 * 1024, CONFIG_ITEMS_MAX = 4096 };

/* Ascending precedence. */
enum config_source {
    CONFIG_FROM_DEFAULT,
    CONFIG_FROM_FILE,
    CONFIG_FROM_ENV,
    CONFIG_FROM_FLAG,
    CONFIG_SOURCE_COUNT
};

struct config_parser {
    const struct option_spec *specs;
    size_t n_specs;
    void *out;
    struct config_result *res;
    struct arena *strings;      /* res->owned */
    enum config_source *set_by; /* per row: the highest source that has set it */
    bool argument_typed;        /* the command line has a bare argument */
    struct error *err;
};

struct config_origin {
    enum config_source source;
    const char *file; /* CONFIG_FROM_FILE */
    size_t line;
    bool one_dash; /* CONFIG_FROM_FLAG: typed as -x */
    struct str as; /* the spelling there, whole: "-tp", "HF_HUB_OFFLINE"; empty: the row's name */
};

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

/* Row of a name as typed (dashes or underscores, alias or not); n_specs when there is none. */
size_t config_find(const struct option_spec *specs, size_t n_specs, struct str name);
/* Row of the switch that "no-X" turns off; n_specs when it is none. */
size_t config_find_negated(const struct option_spec *specs, size_t n_specs, struct str name);
/* Checks the text and writes it into the struct. A list gets one item more. */
MUST_USE enum status config_set(struct config_parser *p, size_t i_spec, struct str value,
                                struct config_origin from);
MUST_USE enum status config_unknown(struct config_parser *p, struct str name,
                                    struct config_origin from);
/* The origin of a value for people: "--max-num-seqs", "COX_MAX_NUM_SEQS", "f.yaml:3: max_num_seqs".
 */
const char *config_origin_text(struct config_parser *p, const char *name,
                               struct config_origin from);
void config_list_add(struct config_parser *p, struct option_list *l, struct str item);
bool config_parse_bool(struct str v, bool *out);
/* vLLM's option, not ours: ignored or refused. */
bool config_is_foreign(const struct option_spec *s);
/* Reads a YAML file: a mapping of option names to scalars or lists of scalars. */
MUST_USE enum status config_read_file(struct config_parser *p, const char *path);
/* i-th alternative of "a|b|c"; an empty str past the end. */
struct str config_choice(const char *choices, size_t i);
