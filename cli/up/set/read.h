#pragma once
/* Reads the models of a set, from the command line (A, NAME=B) or from the file of --models. */
#include "cli/up/set/types.h"
#include "common/base/arena.h"
#include "common/base/status.h"
#include "common/base/str.h"

/* `set_input` is a parsed command line. Its options hold for every model, and the options of a
 * model in the file override them. All pointers are borrowed. */
struct set_input {
    int argc;
    char *const *argv, *const *environ_;
    const struct option_spec *specs;
    size_t n_specs;
    const struct up_options *options;
    const struct option_list *models; /* models of the command line; empty with --models */
};

/* Reads the set. The strings are on the arena. The caller calls up_set_free in every case, with a
 * zeroed set before. STATUS_INVALID: the text names the model, and the line of the file. */
MUST_USE enum status up_set_read(const struct set_input *in, struct arena *arena,
                                 struct up_set *out, struct error *err);
/* Reads the set again from `yaml`, which is the text of a file of --models. `file` is for
 * errors; NULL = the text is no file, so an error names no line. */
MUST_USE enum status up_set_read_again(const struct set_input *in, const char *file,
                                       struct str yaml, struct arena *arena, struct up_set *out,
                                       struct error *err);
/* Reads the text of a file of --models, at most 1 MiB. The caller frees `out` in every case. */
MUST_USE enum status up_set_text(const char *file, struct strbuf *out, struct error *err);
/* Appends the models of a command line as the text of a file of --models. */
void up_set_write(const struct up_set *set, struct strbuf *out);
void up_set_free(struct up_set *s);
/* Returns true when the word is NAME=MODEL. A path that exists, or that has a slash or a colon
 * before the '=', is a MODEL. */
bool up_set_is_named(const char *word);
/* Returns true when a command line names a set: several models, NAME=MODEL, --models, or a model
 * on demand. */
bool up_set_is_wanted(const struct up_options *o, const struct option_list *models);
