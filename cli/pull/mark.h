#pragma once
/* `.reference` in the folder of a fetch that is not done: the model whose parts these are, for `cox
 * models` and `cox rm`. It is gone when the model is published, whose manifest says the same. */
#include <stdbool.h>
#include <stddef.h>

void pull_mark_write(const char *folder, const char *reference); /* without it all works, too */
void pull_mark_remove(const char *folder);
/* False: there is none, or it is no reference. */
bool pull_mark_read(int folder_fd, char *out, size_t size);
