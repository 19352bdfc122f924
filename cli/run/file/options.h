#pragma once
/* Reads the parts of a run file that become options of `cox up`: `options`, `resources` and
 * `ports`. */
#include "cli/run/file/reader.h"

void run_read_options(struct run_reader *r, const struct yaml_node *v, void *ctx);
void run_read_resources(struct run_reader *r, const struct yaml_node *v, void *ctx);
/* Adds to the run's options one that follows from `resources` or `ports`, unless `options` sets
 * it. */
void run_add_option(struct run_reader *r, struct yaml_mark at, const char *from, const char *name,
                    const char *json);
void run_check_options(struct run_reader *r);
bool run_is_quantity(const char *s);

/* Appends the options as a --config file of `cox up`, one member per line. */
void run_file_options(const struct run_file *f, struct strbuf *out);
