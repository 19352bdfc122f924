#pragma once
/* Finds the process that uses a model of the cache. A process uses a model of the cache when /proc
 * shows a file of the model in its maps, or when it is a program of Coxswain whose command line
 * names the model. Processes that this user may not look at are not counted. */
#include <stdbool.h>
#include <stddef.h>

/* Is there a process of this machine that has files below folder mapped, or one of Coxswain's that
 * was started for that reference and cache? who: its name and number. */
bool cache_is_in_use(const char *cache_dir, const char *folder, const char *reference, char *who,
                     size_t size);
