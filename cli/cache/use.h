#pragma once
/* Finds a process of this machine that uses a model of the cache. A process uses a model when
 * its maps in /proc show a file of the model. A program of Coxswain also uses the model when its
 * command line names the model. Processes that this user may not inspect are not counted. */
#include <stdbool.h>
#include <stddef.h>

/* Returns true when a process has mapped files below `folder`, or a program of Coxswain was
 * started with that reference and cache folder. `who` receives the process's name and number. */
bool cache_is_in_use(const char *cache_dir, const char *folder, const char *reference, char *who,
                     size_t size);
