#pragma once
/* The option table for people: what `--help` and `--help=TOPIC` print. Single thread. */
#include "common/base/str.h"
#include "common/config/option.h"

/* A group of options. One list of groups may serve several tables: names that a table lacks are
 * left out there. */
struct option_group {
    const char *key;   /* "kv-cache", as --help=kv-cache has it; NULL ends the list */
    const char *title; /* "KV cache" */
    const char *names; /* options, blank separated, in the order of the help; a '*' behind a name
                        * marks one that `--help` alone shows */
};

struct help {
    const char *usage; /* "cox-head [OPTION...]" */
    const struct option_spec *specs;
    size_t n_specs;
    const struct option_group *groups; /* NULL: a short table, which is listed whole */
    const char *topic; /* TOPIC in --help=TOPIC: "all", a group's key, a part of a name */
    unsigned width;    /* columns of a line */
};

/* STATUS_NOT_FOUND: the topic is no group's key and no option's name has it. */
MUST_USE enum status help_write(struct strbuf *b, const struct help *h, struct error *err);
/* Prints the same on stdout, as wide as the terminal; width is not read. An error goes to stderr.
 * Returns the exit code: 0, or 2 for a topic that does not exist. */
int help_print(const struct help *h);

/* ---- for documents ---- */

enum { HELP_SHORT_TABLE = 30 }; /* a longer table has groups */
#define HELP_RANGE_MAX 1e9      /* from here on an upper bound tells nobody anything */

/* The options that --help lists: vLLM's, and rows without a text, are not among them. */
bool help_is_listed(const struct option_spec *s);
/* Appends the words of text from column `at` of a line on, and ends the line; further lines begin
 * at `indent`. In Markdown no line begins with a word that would begin a list or a title. */
void help_wrap(struct strbuf *b, const char *text, size_t at, size_t indent, size_t width,
               bool is_markdown);
const char *help_value_word(const struct option_spec *s); /* " N", " TEXT"; "" of a switch */
/* " (default 256; 1 to 65536; also --alias)", or nothing */
void help_append_facts(struct strbuf *b, const struct option_spec *s);
/* --config, --help, --version, which every table has besides; NULL past the end. */
const struct option_spec *help_built_in(size_t i);
/* A number with bounds that are worth saying; "1 to 65536", "at least 64Mi". */
bool help_has_range(const struct option_spec *s);
void help_append_range(struct strbuf *b, const struct option_spec *s);
/* The i-th listed option of a group, in the group's order; NULL past the end. is_common may be
 * NULL. */
const struct option_spec *help_option_at(const struct option_group *g,
                                         const struct option_spec *specs, size_t n_specs, size_t i,
                                         bool *is_common);
