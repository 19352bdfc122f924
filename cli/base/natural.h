#pragma once
/* Natural order of strings: digits inside of a name count as a number, so worker-2 comes before
 * worker-10. Pure. */

/* Returns a value below, equal to or above 0, as strcmp does. */
int natural_compare(const char *a, const char *b);
