#pragma once
/* Hides the USER:PASSWORD@ of URLs, which must not appear in a log, an error text or a command
 * line. */

/* Overwrites USER:PASSWORD with stars in every URL of the text (RFC 3986, 3.2.1). */
void userinfo_hide(char *text);
