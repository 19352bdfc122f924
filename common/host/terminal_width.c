#include "common/host/terminal_width.h"

#include <sys/ioctl.h>

unsigned terminal_width(int fd)
{
    struct winsize w;
    return ioctl(fd, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}
