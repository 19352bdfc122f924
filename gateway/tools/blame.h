#pragma once
/* The search for the tool that a forced call's grammar cannot be made of. Takes about as long as
 * compiling the grammar once more: the list is halved until one tool is left, and a's bound of
 * compiles holds for all of it. Any thread. */
#include "gateway/compile/grammar_check.h"
#include "gateway/params/params.h"

/* The grammar of p's tools is refused by e, whose text becomes one that names the tool, and says
 * why with places in the tool's own schema. Where none of them alone is the cause, e says that as
 * well. Where a part has to be compiled and may not be here, e is PREPARE_WANTS_COMPILING; where
 * one was not compiled, e stays. */
void tool_blame(struct grammar_check *c, struct grammar_asker *a, const struct params *p,
                struct api_error *e);
