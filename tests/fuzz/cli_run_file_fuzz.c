/* Fuzzes run files. Any file must be read without a crash, with a line for each error. The valid
 * options must be options that `cox up` reads again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cli/run/file/file.h"
#include "cli/run/file/options.h"
#include "cli/run/file/problems.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arena arena;
    struct run_file f;
    struct run_problems p;
    struct strbuf out;
    arena_init(&arena, 0);
    strbuf_init(&out, 0);
    run_problems_init(&p);
    run_file_parse((struct str){(const char *)data, size}, &arena, &f, &p);
    run_problems_print(&p, "f", &out);
    if ((p.n > 0) != (out.len > 0))
        abort();
    strbuf_reset(&out);
    if (p.n == 0) {
        struct yaml_node *root;
        struct yaml_mark at;
        struct error err;
        if (!f.name.s || (!f.model.s && f.commands.n == 0))
            abort();
        for (size_t i = 0; i < f.imports.n; i++)
            if (!f.imports.items[i].path || !f.imports.items[i].what ||
                f.imports.items[i].what[0] == '-')
                abort();
        run_file_options(&f, &out);
        if (yaml_tree_parse(strbuf_str(&out), &arena, &root, &at, &err) != STATUS_OK)
            abort();
    }
    run_file_fini(&f);
    run_problems_fini(&p);
    strbuf_fini(&out);
    arena_fini(&arena);
    return 0;
}
