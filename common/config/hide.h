#pragma once
/* Removes secrets from command lines and texts. */
#include "common/base/str.h"
#include "common/config/option.h"

/* Overwrites secrets in argv itself, which `ps` shows to every user: values of secret options,
 * USER:PASSWORD of URLs, join tokens. main calls the function after config_parse. argv's strings
 * must be writable, and cannot be passed on to another program afterwards. */
void config_hide(const struct option_spec *specs, size_t n_specs, int argc, char **argv);
/* Appends a text that may be a URL, for people to read. USER:PASSWORD is replaced by stars. */
void config_append_url(struct strbuf *b, struct str text);
