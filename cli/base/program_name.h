#pragma once
/* Keeps the name that this program was called by: `cox`, or `vllm` through a link of that name.
 * The main thread sets the name at most once, before a command runs. */
#include <stdbool.h>

void program_name_set_vllm(void);
bool program_is_vllm(void);
const char *program_name(void); /* Returns "cox" or "vllm", for usage lines. */
