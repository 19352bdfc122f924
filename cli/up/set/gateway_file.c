#include "cli/up/set/gateway_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX_BYTES = 1 << 20, PATH_BYTES = 4096 };

static void add_text(struct strbuf *out, const char *key, const char *value)
{
    strbuf_printf(out, "  %s: ", key);
    strbuf_append_json(out, str_from(value));
    strbuf_append_c(out, "\n");
}

/* JSON is also YAML, so texts are quoted as JSON strings. */
void set_gateway_file_text(const struct up_set *set, const struct set_shown *shown,
                           struct strbuf *out)
{
    /* the gateways' admin API changes no file that another program writes again */
    strbuf_append_c(out, "managed_by: \"cox up\"\nmodels:\n");
    for (uint32_t i = 0; i < set->n; i++) {
        const struct set_model *m = &set->models[i];
        strbuf_append_c(out, "- name: ");
        strbuf_append_json(out, str_from(m->name));
        strbuf_append_c(out, "\n");
        if (m->names.n_items > 1)
            strbuf_append_c(out, "  aliases: [");
        for (size_t k = 1; k < m->names.n_items; k++) {
            strbuf_append_c(out, k > 1 ? ", " : "");
            strbuf_append_json(out, str_from(m->names.items[k]));
        }
        if (m->names.n_items > 1)
            strbuf_append_c(out, "]\n");
        add_text(out, "model", shown[i].model);
        add_text(out, "head", shown[i].head);
        if (shown[i].queue_timeout_s > 0)
            strbuf_printf(out, "  queue_timeout: %u\n", shown[i].queue_timeout_s);
        for (uint32_t k = 0; k < m->n_settings; k++)
            strbuf_printf(out, "  %s: %s\n", m->settings[k].key, m->settings[k].json);
        if (shown[i].failed && shown[i].failed[0]) {
            strbuf_append_c(out, "  state: failed\n");
            add_text(out, "reason", shown[i].failed);
        }
    }
    if (set->routes)
        strbuf_printf(out, "routes: %s\n", set->routes);
}

static bool write_all(int fd, struct str text)
{
    for (size_t done = 0; done < text.len;) {
        ssize_t n = write(fd, text.ptr + done, text.len - done);
        if (n < 0 && errno != EINTR)
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

enum status set_gateway_file_write(const char *path, const struct up_set *set,
                                   const struct set_shown *shown, struct error *err)
{
    char fresh[PATH_BYTES];
    struct strbuf text;
    int n = snprintf(fresh, sizeof fresh, "%s.new", path);
    int fd = n > 0 && (size_t)n < sizeof fresh
                 ? open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)
                 : -1;
    strbuf_init(&text, TEXT_MAX_BYTES);
    set_gateway_file_text(set, shown, &text);
    bool is_written = fd >= 0 && write_all(fd, strbuf_str(&text));
    if (fd >= 0)
        is_written = close(fd) == 0 && is_written;
    strbuf_fini(&text);
    if (is_written && rename(fresh, path) == 0)
        return STATUS_OK;
    int why = errno;
    if (fd >= 0)
        (void)unlink(fresh);
    return error_set(err, STATUS_IO, "cannot write the models of the gateways to %s: %s", path,
                     strerror(why));
}
