#pragma once
/* The table of all fields that a request may hold. */
#include "gateway/fields/field.h"

/* Returns a row, in the order of reading and documentation. */
const struct field *fields_at(size_t i); /* NULL after the last row */
