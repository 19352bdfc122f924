#pragma once
/* `.reference` in the folder of an unfinished fetch names the model of the parts, for `cox
 * models` and `cox rm`. It is removed when the model is published; the manifest then has the
 * name. */
#include <stdbool.h>
#include <stddef.h>

void pull_mark_write(const char *folder, const char *reference); /* a failed write is ignored */
void pull_mark_remove(const char *folder);
/* Reads the mark. Returns false when there is none, or when it is no reference. */
bool pull_mark_read(int folder_fd, char *out, size_t size);
