#pragma once
/* The order in which people count: digits inside of names are numbers, so that worker-2 comes
 * before worker-10. Pure. */

/* As strcmp. */
int natural_compare(const char *a, const char *b);
