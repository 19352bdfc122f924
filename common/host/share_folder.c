#include "common/host/share_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool share_folder_wanted(const char *option)
{
    return option && strcmp(option, "off") != 0;
}

enum status share_folder_open(const char *option, int *fd, struct error *err)
{
    char path[PATH_MAX];
    struct stat st;
    const char *parent = strcmp(option, "auto") == 0 ? "/dev/shm" : option;
    int n = snprintf(path, sizeof path, "%s/coxswain-weights-%u", parent, (unsigned)geteuid());
    *fd = -1;
    if (n < 0 || (size_t)n >= sizeof path)
        return error_set(err, STATUS_INVALID, "--weights-share: the path is too long");
    if (mkdir(path, 0700) == 0 || errno == EEXIST)
        *fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0)
        return error_set(err, STATUS_IO,
                         "cannot make or open the folder %s: %s. Give --weights-share a folder "
                         "that this user may write to",
                         path, strerror(errno));
    if (fstat(*fd, &st) == 0 && st.st_uid == geteuid() && (st.st_mode & 0077) == 0)
        return STATUS_OK;
    close(*fd);
    *fd = -1;
    return error_set(err, STATUS_DENIED,
                     "the folder %s belongs to another user, or other users may use it. Remove it, "
                     "or give --weights-share another folder",
                     path);
}
