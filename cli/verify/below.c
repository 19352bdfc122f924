#include "cli/verify/below.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "common/base/mem.h"

enum { NAME_BYTES = 256, CHUNK = 256 << 10 };
#define UNPACKED_MAX ((int64_t)64 << 20) /* maximum bytes of a compressed page, unpacked */

/* Opens the folder `name` in the folder `at`, and closes `at`, unless it is `root`. */
static int enter(int root, int at, const char *name)
{
    struct stat st;
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), e = errno;
    /* a link gives ENOTDIR here, as a file does */
    if (fd < 0 && e == ENOTDIR && fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        e = S_ISLNK(st.st_mode) ? ELOOP : ENOENT;
    if (at != root)
        close(at);
    errno = e;
    return fd;
}

static int open_regular(int at, const char *name)
{
    struct stat st;
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), e = errno;
    if (fd < 0) {
        errno = e == ENXIO ? EISDIR : e; /* a socket gives ENXIO */
        return -1;
    }
    e = fstat(fd, &st) != 0                    ? errno
        : !S_ISREG(st.st_mode)                 ? EISDIR
        : (int64_t)st.st_size > BELOW_FILE_MAX ? EFBIG
                                               : 0;
    if (e == 0)
        return fd;
    close(fd);
    errno = e;
    return -1;
}

int below_open(int root, struct str path)
{
    char name[NAME_BYTES];
    int at = root;
    for (;;) {
        const char *slash = path.len ? memchr(path.ptr, '/', path.len) : NULL;
        size_t n = slash ? (size_t)(slash - path.ptr) : path.len;
        if (n == 0 || n >= sizeof name) {
            if (at != root)
                close(at);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(name, path.ptr, n);
        name[n] = '\0';
        if (!slash)
            break;
        at = enter(root, at, name);
        if (at < 0)
            return -1;
        path = (struct str){slash + 1, path.len - n - 1};
    }
    int fd = open_regular(at, name), e = errno;
    if (at != root)
        close(at);
    errno = e;
    return fd;
}

const char *below_reason(int os_error)
{
    switch (os_error) {
    case ENOENT:
        return "is missing";
    case ELOOP:
        return "is a symbolic link, or is in a folder that is one";
    case EISDIR:
        return "is not a regular file";
    case EFBIG:
        return "is larger than any file of a package";
    default:
        return NULL;
    }
}

enum status below_read(int fd, size_t max, struct strbuf *out, struct error *err)
{
    char chunk[4096];
    ssize_t n = 0;
    size_t all = 0;
    while ((n = read(fd, chunk, sizeof chunk)) > 0) {
        all += (size_t)n;
        if (all > max || !strbuf_append(out, chunk, (size_t)n))
            return error_set(err, STATUS_LIMIT, "it has more than %zu bytes", max);
    }
    return n < 0 ? error_set(err, STATUS_IO, "it cannot be read: %s", strerror(errno)) : STATUS_OK;
}

static enum status add_plain(int fd, struct digest *d, char *chunk, struct error *err)
{
    int64_t all = 0;
    ssize_t n = 0;
    while ((n = read(fd, chunk, CHUNK)) > 0) {
        all += n;
        if (all > BELOW_FILE_MAX) /* the file grows while it is read */
            return error_set(err, STATUS_LIMIT, "it %s", below_reason(EFBIG));
        if (!digest_add(d, chunk, (size_t)n))
            return error_set(err, STATUS_INTERNAL, "OpenSSL cannot compute SHA-256");
    }
    return n < 0 ? error_set(err, STATUS_IO, "it cannot be read: %s", strerror(errno)) : STATUS_OK;
}

static enum status add_unpacked(int fd, struct digest *d, char *chunk, struct error *err)
{
    int64_t all = 0;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), n = 0;
    gzFile z = copy < 0 ? NULL : gzdopen(copy, "rb");
    if (!z) {
        if (copy >= 0)
            close(copy);
        return error_set(err, STATUS_IO, "it cannot be unpacked");
    }
    enum status s = STATUS_OK;
    while (s == STATUS_OK && (n = gzread(z, chunk, CHUNK)) > 0) {
        all += n;
        if (all > UNPACKED_MAX)
            s = error_set(err, STATUS_LIMIT, "it %s", below_reason(EFBIG));
        else if (!digest_add(d, chunk, (size_t)n))
            s = error_set(err, STATUS_INTERNAL, "OpenSSL cannot compute SHA-256");
    }
    /* gzclose reports a file that ends too early */
    if ((gzclose(z) != Z_OK || n < 0) && s == STATUS_OK)
        s = error_set(err, STATUS_IO, "it cannot be unpacked");
    return s;
}

enum status below_sha256(int fd, bool is_gzip, char hex[DIGEST_HEX_MAX], struct error *err)
{
    struct digest *d = digest_new(DIGEST_SHA256);
    if (!d)
        return error_set(err, STATUS_UNSUPPORTED,
                         "OpenSSL has no SHA-256 here. Use OpenSSL's default provider");
    char *chunk = mem_alloc(CHUNK);
    enum status s = is_gzip ? add_unpacked(fd, d, chunk, err) : add_plain(fd, d, chunk, err);
    hex[0] = '\0';
    if (s == STATUS_OK)
        digest_end(d, hex);
    mem_free(chunk);
    digest_free(d);
    if (s == STATUS_OK && hex[0] == '\0')
        return error_set(err, STATUS_INTERNAL, "OpenSSL cannot compute SHA-256");
    return s;
}
