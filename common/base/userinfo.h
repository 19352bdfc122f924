#pragma once
/* USER:PASSWORD@ of URLs must not appear in a log, an error text or a command line. */

/* Overwrites USER:PASSWORD with stars in every URL of the text (RFC 3986, 3.2.1). */
void userinfo_hide(char *text);
