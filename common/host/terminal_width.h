#pragma once
/* The width of a terminal in columns, as it is now; 0: fd is no terminal, or it does not say. */
unsigned terminal_width(int fd);
