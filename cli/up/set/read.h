#pragma once
/* Reads the models of a set, from the command line (A, NAME=B) or from the file of --models. */
#include "cli/up/set/types.h"
#include "common/base/arena.h"
#include "common/base/status.h"

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
void up_set_free(struct up_set *s);
/* Returns true when the word is NAME=MODEL. A path that exists, or that has a slash or a colon
 * before the '=', is a MODEL. */
bool up_set_is_named(const char *word);
/* Returns true when a command line names a set: several models, NAME=MODEL, --models, or a model
 * on demand. */
bool up_set_is_wanted(const struct up_options *o, const struct option_list *models);
