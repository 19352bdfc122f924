#pragma once
/* USER:PASSWORD@ of URLs, which is nobody's business in a log, an error or a command line. */

/* Overwrites them with stars, in every URL of the text (RFC 3986, 3.2.1). */
void userinfo_hide(char *text);
