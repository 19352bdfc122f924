#include "cli/chat/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 16 << 20, MESSAGES_MAX = 10000 };

static bool is_message(const json_t *m)
{
    static const char *const roles[] = {"system", "user", "assistant"};
    const char *role = json_string_value(json_object_get(m, "role"));
    for (size_t i = 0; role && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(role, roles[i]) == 0)
            return json_is_string(json_object_get(m, "content")) && json_object_size(m) == 2;
    return false;
}

enum status chat_file_load(const char *path, json_t **messages, struct error *err)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX) {
        enum status s = fd < 0
                            ? error_set(err, STATUS_IO, "cannot open %s: %s", path, strerror(errno))
                            : error_set(err, STATUS_INVALID,
                                        "%s is not a regular file of at most %d MiB. Give a "
                                        "conversation that /save has written",
                                        path, FILE_MAX >> 20);
        if (fd >= 0)
            (void)close(fd);
        return s;
    }
    json_t *root = json_loadfd(fd, JSON_REJECT_DUPLICATES, NULL);
    (void)close(fd);
    json_t *list = json_object_get(root, "messages");
    bool ok = json_is_array(list) && json_array_size(list) <= MESSAGES_MAX;
    for (size_t i = 0; ok && i < json_array_size(list); i++)
        ok = is_message(json_array_get(list, i));
    if (ok)
        *messages = json_incref(list);
    json_decref(root);
    return ok ? STATUS_OK
              : error_set(err, STATUS_INVALID,
                          "%s is not a conversation: it must contain {\"messages\": [{\"role\": …, "
                          "\"content\": …}, …]}, as /save writes it",
                          path);
}

static enum status check_overwrite(const char *path, struct error *err)
{
    struct stat st;
    json_t *there = NULL;
    if (lstat(path, &st) != 0)
        return STATUS_OK;
    if (chat_file_load(path, &there, err) != STATUS_OK)
        return error_set(err, STATUS_EXISTS,
                         "%s exists already and is not a conversation. Give another name", path);
    json_decref(there);
    return STATUS_OK;
}

enum status chat_file_save(const char *path, const char *model, const json_t *messages,
                           struct error *err)
{
    char fresh[PATH_MAX];
    int n = snprintf(fresh, sizeof fresh, "%s.new-%d", path, (int)getpid());
    if (n < 0 || n >= PATH_MAX)
        return error_set(
            err, STATUS_INVALID,
            "cannot save the conversation: the file's path is too long. Choose a shorter path");
    TRY(check_overwrite(path, err));
    json_t *root = json_pack("{s:s, s:O}", "model", model, "messages", messages);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool ok = root && fd >= 0 && json_dumpfd(root, fd, JSON_INDENT(1)) == 0;
    int saved = errno;
    if (fd >= 0 && close(fd) != 0 && ok) {
        ok = false;
        saved = errno;
    }
    json_decref(root);
    if (ok && rename(fresh, path) != 0) {
        ok = false;
        saved = errno;
    }
    if (!ok && fd >= 0)
        (void)unlink(fresh);
    return ok ? STATUS_OK : error_set(err, STATUS_IO, "cannot write %s: %s", path, strerror(saved));
}
