#pragma once
/* Reads the parts of a run file that contain paths: imports, exports and volumes. */
#include "cli/run/file/reader.h"

void run_read_imports(struct run_reader *r, const struct yaml_node *v, void *ctx);
void run_read_exports(struct run_reader *r, const struct yaml_node *v, void *ctx);
void run_read_volumes(struct run_reader *r, const struct yaml_node *v, void *ctx);
void run_check_places(struct run_reader *r);
/* Returns "/code" for "/code/". Returns NULL and adds a problem for a path that is not absolute,
 * contains "..", or is "/". */
const char *run_read_path(struct run_reader *r, const char *text, struct yaml_mark at);

/* Returns true when an artifact is imported and exported at the same path. The path is then the
 * volume itself, and no files are copied. */
bool run_file_keeps(const struct run_file *f, const struct run_import *im);
/* Returns the path ~/.cache/huggingface when the run file imports or keeps that folder, where
 * Hugging Face's programs in a container search for models. Returns NULL for any other file, and
 * when the file's `env` sets HF_HOME. */
const char *run_file_hf_home(const struct run_file *f);
/* Returns true when the path is the place of an import or a volume, or below one. */
bool run_file_brings(const struct run_file *f, const char *path);
