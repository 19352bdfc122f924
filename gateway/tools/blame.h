#pragma once
/* Finds the tool for which no grammar can be made, when a call is forced. The search takes about
 * as long as compiling the whole grammar once more: the list is halved until one tool is left.
 * The compile limit in `grammar_asker` holds for the whole search. The search may run on any
 * thread. */
#include "gateway/compile/grammar_check.h"
#include "gateway/params/params.h"

/* Explains an error `e` which says that the grammar of the tools in `p` was refused. The new
 * text names the tool and has the reason, with positions in the tool's own schema. When no
 * single tool is the cause, the text says that instead. `e` becomes PREPARE_WANTS_COMPILING when
 * a compile is needed and not allowed here. `e` is unchanged when a compile gave no verdict. */
void tool_blame(struct grammar_check *c, struct grammar_asker *a, const struct params *p,
                struct api_error *e);
