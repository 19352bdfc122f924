#include "common/model/gguf/gguf.h"

#include "common/model/gguf/split.h"

enum status gguf_open(const char *path, struct gguf **out, struct error *err)
{
    TRY(gguf_open_part(path, out, err));
    enum status s = gguf_join(*out, err);
    if (s != STATUS_OK) {
        gguf_close(*out);
        *out = NULL;
    }
    return s;
}
