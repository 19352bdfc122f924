#pragma once
/* Secrets are taken out of command lines and texts here. */
#include "common/base/str.h"
#include "common/config/option.h"

/* Overwrites secrets of the command line where they stand, which `ps` shows to everybody: values of
 * secret rows, USER:PASSWORD of URLs, tokens of workers. After config_parse, in main: argv's
 * strings are to be writable, and are of no use to another program any more. */
void config_hide(const struct option_spec *specs, size_t n_specs, int argc, char **argv);
/* A text that may be a URL, for people: USER:PASSWORD of it become ***. */
void config_append_url(struct strbuf *b, struct str text);
