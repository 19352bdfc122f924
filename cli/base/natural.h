#pragma once
/* Compares strings in natural order: a run of digits inside a name counts as a number, so
 * worker-2 comes before worker-10. The function is pure and may run on any thread. */

/* Returns a value below, equal to or above 0, as strcmp does, when `a` is before, the same as or
 * after `b` in natural order. */
int natural_compare(const char *a, const char *b);
