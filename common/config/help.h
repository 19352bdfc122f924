#pragma once
/* Prints the option table for people, for `--help` and `--help=TOPIC`. Only one thread calls
 * these functions. */
#include "common/base/str.h"
#include "common/config/option.h"

/* `option_group` names a group of options. One list of groups may serve several tables: names
 * that a table lacks are left out there. */
struct option_group {
    /* name of the group in --help=kv-cache, such as "kv-cache"; NULL ends the list */
    const char *key;
    const char *title; /* title for people, such as "KV cache" */
    /* names of the options, separated by blanks, in the order of the help; a '*' after a name
     * marks an option that `--help` alone shows */
    const char *names;
};

struct help {
    const char *usage; /* usage line, such as "cox-head [OPTION...]" */
    const struct option_spec *specs;
    size_t n_specs;
    /* groups of the table; NULL = a short table, all of whose options are listed */
    const struct option_group *groups;
    /* TOPIC in --help=TOPIC: "all", a group's key, or a part of an option's name */
    const char *topic;
    unsigned width; /* width of a line in columns */
};

/* Writes the help into `b`. Returns STATUS_NOT_FOUND when the topic is neither a group's key nor
 * a part of an option's name. */
MUST_USE enum status help_write(struct strbuf *b, const struct help *h, struct error *err);
/* Prints the help on stdout, as wide as the terminal. `width` is not read. Errors are written to
 * stderr. Returns the exit code: 0, or 2 for a topic that does not exist. */
int help_print(const struct help *h);

/* ---- for documents ---- */

enum { HELP_SHORT_TABLE = 30 }; /* most options of a table without groups */
/* HELP_RANGE_MAX is the lowest upper bound that the help leaves out. Such a bound does not limit
 * any practical value. */
#define HELP_RANGE_MAX 1e9

/* Returns true when --help lists the option. vLLM's options and rows without a text are not
 * listed. */
bool help_is_listed(const struct option_spec *s);
/* Appends the words of `text` to a line that has `at` columns already, and ends the line.
 * Further lines begin at column `indent`. In Markdown no line begins with a word that would
 * begin a list or a title. */
void help_wrap(struct strbuf *b, const char *text, size_t at, size_t indent, size_t width,
               bool is_markdown);
/* Returns the value's placeholder, such as " N" or " TEXT". Returns "" for a switch. */
const char *help_value_word(const struct option_spec *s);
/* Appends a text such as " (default 256; 1 to 65536; also --alias)", or nothing. */
void help_append_facts(struct strbuf *b, const struct option_spec *s);
/* Returns the i-th of the options that every table has in addition: --config, --help, --version.
 * Returns NULL past the end. */
const struct option_spec *help_built_in(size_t i);
/* Returns true when the option is a number with bounds that the help should show, such as "1 to
 * 65536" or "at least 64Mi". */
bool help_has_range(const struct option_spec *s);
void help_append_range(struct strbuf *b, const struct option_spec *s);
/* Returns the i-th listed option of a group, in the group's order, or NULL past the end.
 * is_common may be NULL. */
const struct option_spec *help_option_at(const struct option_group *g,
                                         const struct option_spec *specs, size_t n_specs, size_t i,
                                         bool *is_common);
