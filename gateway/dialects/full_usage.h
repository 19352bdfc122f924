#pragma once
/* Writes what a request used in the cluster, for clients that ask for it. All dialects have the
 * same member. */
#include "gateway/prepare/dialect.h"

/* Appends ,"coxswain":{…} to a usage object, if the client asked for it. */
void full_usage_append(struct strbuf *out, const struct answer_usage *u);
