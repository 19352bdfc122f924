#pragma once
/* The table of fields, all of its parts: what a request may hold. */
#include "gateway/fields/field.h"

/* All of them, in the order in which they are read and documented. */
const struct field *fields_at(size_t i); /* NULL behind the last */
