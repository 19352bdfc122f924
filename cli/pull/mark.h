#pragma once
/* Reads and writes the mark of an unfinished fetch: `.reference` in its folder. For `cox models`
 * and `cox rm`, the mark contains the name of the model. The mark is removed when the model is
 * published. The manifest then has the name. */
#include <stdbool.h>
#include <stddef.h>

/* Writes the mark; a failed write is ignored. */
void pull_mark_write(const char *folder, const char *reference);
void pull_mark_remove(const char *folder);
/* Reads the mark. Returns false when there is no mark, or when its text is not a reference. */
bool pull_mark_read(int folder_fd, char *out, size_t size);
