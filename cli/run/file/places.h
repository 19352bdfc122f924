#pragma once
/* The parts of a run file that say what lies where: imports, exports, volumes. */
#include "cli/run/file/reader.h"

void run_read_imports(struct run_reader *r, const struct yaml_node *v, void *ctx);
void run_read_exports(struct run_reader *r, const struct yaml_node *v, void *ctx);
void run_read_volumes(struct run_reader *r, const struct yaml_node *v, void *ctx);
void run_check_places(struct run_reader *r);
/* "/code" of "/code/"; NULL and a problem: not absolute, "..", "/" itself. */
const char *run_read_path(struct run_reader *r, const char *text, struct yaml_mark at);

/* Whether an artifact is imported and exported at one path: then the place is the volume itself. */
bool run_file_keeps(const struct run_file *f, const struct run_import *im);
/* The place where Hugging Face's programs of a container look for models (~/.cache/huggingface),
 * where the file brings or keeps one. NULL: it does not, or says itself what HF_HOME is. */
const char *run_file_hf_home(const struct run_file *f);
/* Does path lie at or below an import or a volume? */
bool run_file_brings(const struct run_file *f, const char *path);
