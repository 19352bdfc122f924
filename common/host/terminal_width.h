#pragma once
/* Returns the current width of a terminal in columns. Returns 0 when fd is not a terminal or its
 * width is unknown. */
unsigned terminal_width(int fd);
