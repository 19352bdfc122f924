#pragma once
/* Defines a setting: one value on its way into the config struct. A setting has its row, its
 * text, and its origin for error texts. The passes (file, environment, command line) call
 * config_set for each setting. Only common/config includes this header. Only one thread calls
 * these functions. */
#include "common/base/arena.h"
#include "common/config/option.h"

enum { CONFIG_FILE_MAX = 1 << 20, CONFIG_VALUE_MAX = 64 * 1024, CONFIG_ITEMS_MAX = 4096 };

/* `config_source` lists the origins of a value, in ascending precedence. */
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
    struct arena *strings;      /* arena of all strings, in res->owned */
    enum config_source *set_by; /* for each row, the highest source that has set the option */
    bool argument_typed;        /* an argument was typed on the command line */
    struct error *err;
};

struct config_origin {
    enum config_source source;
    const char *file; /* CONFIG_FROM_FILE: path of the file */
    size_t line;
    bool one_dash; /* CONFIG_FROM_FLAG: the flag was typed as -x */
    struct str as; /* whole spelling at the origin, such as "-tp"; empty = the row's name */
};

/* Checks the text and writes its value into the struct. For a list the function appends one
 * item. */
MUST_USE enum status config_set(struct config_parser *p, size_t i_spec, struct str value,
                                struct config_origin from);
/* Calls config_set for each item of "a,b,c". Blanks around secret items are removed. */
MUST_USE enum status config_set_comma_list(struct config_parser *p, size_t i_spec, const char *text,
                                           struct config_origin from);
MUST_USE enum status config_unknown(struct config_parser *p, struct str name,
                                    struct config_origin from);
/* Returns the origin of a value for people: "--max-num-seqs", "COX_MAX_NUM_SEQS" or "f.yaml:3:
 * max_num_seqs". */
const char *config_origin_text(struct config_parser *p, const char *name,
                               struct config_origin from);
/* Returns the name as the user wrote it at that origin, without the file and line. */
const char *config_spelled(struct config_parser *p, struct str name, struct config_origin from);
void config_list_add(struct config_parser *p, struct option_list *l, struct str item);
bool config_parse_bool(struct str v, bool *out);
void config_warn(struct config_parser *p, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* CONFIG_KEY_ENDS lists the characters that a key cannot begin or end with, because an HTTP
 * header cannot carry them. */
#define CONFIG_KEY_ENDS "\r\n \t"
