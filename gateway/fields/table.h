#pragma once
/* Provides the table of all fields that a request may hold. */
#include "gateway/fields/field.h"

/* Returns row i, in the order of reading and documentation. */
const struct field *fields_at(size_t i); /* returns NULL after the last row */
