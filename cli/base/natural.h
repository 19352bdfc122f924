#pragma once
/* Compares strings in natural order: digits inside a name count as a number, so worker-2 comes
 * before worker-10. Pure. */

/* Returns a value below, equal to or above 0, as strcmp does, for the natural order of the two
 * strings. */
int natural_compare(const char *a, const char *b);
