/* Opens a zip archive in memory. The directory at the end of the file is read once into a table.
 * Each member's own header, before its data, has the offset of the data. The table is sorted by
 * offset, which shows overlaps. An array of pointers sorted by name shows duplicates and serves
 * look-ups.
 * No byte is read before its offset and length were checked against the file, and numbers are
 * added only where they cannot overflow. The object owns its tables. Names and data point into
 * the caller's bytes. The object is immutable after the open. */
#include "common/model/files/zip.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a zip's numbers are read as they lie");

enum {
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    MAX_MEMBERS = 1 << 20,
    MAX_NAME_BYTES = 1 << 10,
    FLAG_ENCRYPTED = 1 | 1 << 6 | 1 << 13,
    EXTRA_ZIP64 = 1,
};
#define END_MAGIC     0x06054B50u
#define LOCATOR_MAGIC 0x07064B50u
#define END64_MAGIC   0x06064B50u
#define ENTRY_MAGIC   0x02014B50u
#define LOCAL_MAGIC   0x04034B50u

struct entry {
    struct zip_member member; /* the member must be first, because callers get a pointer to it */
    /* offsets in the file: start of the member's header, and end of its data */
    uint64_t begin, end;
};

struct zip {
    char *path;
    const uint8_t *bytes;
    uint64_t n_bytes;
    uint64_t directory, directory_end; /* offsets in the file: start and end of the directory */
    uint64_t n_entries;
    struct entry *entries; /* table of the members, sorted by offset */
    const struct entry **by_name;
};

static uint16_t load_u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint32_t load_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t load_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static enum status wrong(const struct zip *z, struct str member, struct error *err,
                         const char *what)
{
    return error_set(err, STATUS_INVALID, "%s: member " STR_FMT ": %s", z->path, STR_ARG(member),
                     what);
}

/* ---- the end of the archive ---- */

/* Returns true when a number of the short record equals the long record's number, or refers to
 * it with `unknown`. */
static bool agrees(uint64_t small, uint64_t unknown, uint64_t large)
{
    return small == unknown || small == large;
}

/* Reads the zip64 end record. The short and the long record must describe the same archive. */
static enum status read_end64(struct zip *z, uint64_t end, struct error *err)
{
    const uint8_t *e = z->bytes + end, *locator = e - LOCATOR_BYTES;
    uint64_t at = load_u64(locator + 8), room = end - LOCATOR_BYTES;
    if (at > room || room - at < END64_BYTES || load_u32(z->bytes + at) != END64_MAGIC ||
        load_u64(z->bytes + at + 4) != room - at - 12 || load_u32(locator + 16) > 1)
        return error_set(err, STATUS_INVALID,
                         "the zip archive %s is damaged: its zip64 directory is not at the stated "
                         "place. Fetch the file again",
                         z->path);
    const uint8_t *r = z->bytes + at;
    uint64_t n = load_u64(r + 32), size = load_u64(r + 40), directory = load_u64(r + 48);
    if (load_u32(r + 16) != 0 || load_u32(r + 20) != 0 || load_u64(r + 24) != n ||
        !agrees(load_u16(e + 10), UINT16_MAX, n) || !agrees(load_u32(e + 12), UINT32_MAX, size) ||
        !agrees(load_u32(e + 16), UINT32_MAX, directory))
        return error_set(err, STATUS_INVALID,
                         "the zip archive %s is damaged: its two directories contradict each "
                         "other. Fetch the file again",
                         z->path);
    z->n_entries = n;
    z->directory = directory;
    z->directory_end = at;
    if (directory > at || size != at - directory)
        return error_set(err, STATUS_INVALID,
                         "the zip archive %s is damaged: its directory is outside the file. Fetch "
                         "the file again",
                         z->path);
    return STATUS_OK;
}

static enum status read_end(struct zip *z, struct error *err)
{
    if (z->n_bytes < END_BYTES || load_u32(z->bytes + z->n_bytes - END_BYTES) != END_MAGIC)
        return error_set(
            err, STATUS_INVALID,
            "%s does not end as a zip archive does. Check that the download is complete", z->path);
    uint64_t end = z->n_bytes - END_BYTES;
    const uint8_t *e = z->bytes + end;
    if (load_u16(e + 20) != 0 || load_u16(e + 4) != load_u16(e + 6) ||
        load_u16(e + 8) != load_u16(e + 10))
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s is a zip archive of several disks, which Coxswain does not support. "
                         "Save it again with torch.save",
                         z->path);
    if (end >= LOCATOR_BYTES && load_u32(e - LOCATOR_BYTES) == LOCATOR_MAGIC)
        return read_end64(z, end, err);
    uint64_t size = load_u32(e + 12);
    z->n_entries = load_u16(e + 10);
    z->directory = load_u32(e + 16);
    z->directory_end = end;
    if (z->directory > end || size != end - z->directory)
        return error_set(err, STATUS_INVALID,
                         "the zip archive %s is damaged: its directory is outside the file. Fetch "
                         "the file again",
                         z->path);
    return STATUS_OK;
}

/* ---- one member ---- */

/* Reads the sizes and offsets that do not fit in 32 bits from an extra field, in this order. */
static enum status read_extra64(const struct zip *z, struct str name, struct str extra,
                                uint64_t *const values[3], struct error *err)
{
    const uint8_t *p = (const uint8_t *)extra.ptr, *end = p + extra.len;
    bool found = false;
    for (; end - p >= 4 && !found; p += 4 + load_u16(p + 2)) {
        size_t n = load_u16(p + 2), used = 0;
        if (n > (size_t)(end - p) - 4)
            break;
        if (load_u16(p) != EXTRA_ZIP64)
            continue;
        found = true;
        for (int i = 0; i < 3; i++) {
            if (*values[i] != UINT32_MAX)
                continue;
            if (n - used < 8)
                return wrong(z, name, err, "its zip64 field is too short");
            *values[i] = load_u64(p + 4 + used);
            used += 8;
        }
    }
    return STATUS_OK;
}

/* Finds the member's data after its own header, which must exist and have the same name. */
static enum status place(const struct zip *z, struct entry *e, uint64_t n_bytes, struct error *err)
{
    struct str name = e->member.name;
    if (e->begin > z->directory || z->directory - e->begin < LOCAL_BYTES)
        return wrong(z, name, err, "it begins after the end of the data");
    const uint8_t *h = z->bytes + e->begin;
    uint64_t n_name = load_u16(h + 26), n_head = LOCAL_BYTES + n_name + load_u16(h + 28);
    if (load_u32(h) != LOCAL_MAGIC)
        return wrong(z, name, err, "it has no header at the place that the directory states");
    if (n_head > z->directory - e->begin || n_bytes > z->directory - e->begin - n_head)
        return error_set(
            err, STATUS_INVALID,
            "%s: member " STR_FMT
            " ends after the end of the data (%llu bytes from byte %llu). Fetch the file again",
            z->path, STR_ARG(name), (unsigned long long)n_bytes, (unsigned long long)e->begin);
    if (!str_eq(name, (struct str){(const char *)h + LOCAL_BYTES, n_name}))
        return wrong(z, name, err, "its header has a different name than the directory");
    if (load_u16(h + 8) != 0)
        return wrong(
            z, name, err,
            "its header says that it is compressed, but the directory says that it is not");
    e->member.data = h + n_head;
    e->member.n_bytes = n_bytes;
    e->end = e->begin + n_head + n_bytes;
    return STATUS_OK;
}

/* Reads the entry of the directory at offset *at and moves *at past it. */
static enum status read_entry(const struct zip *z, uint64_t *at, struct entry *e, struct error *err)
{
    uint64_t room = z->directory_end - *at;
    const uint8_t *p = z->bytes + *at;
    if (room < ENTRY_BYTES || load_u32(p) != ENTRY_MAGIC)
        return error_set(
            err, STATUS_INVALID,
            "the zip archive %s is damaged: its directory is incomplete. Fetch the file again",
            z->path);
    uint64_t n_name = load_u16(p + 28), n_extra = load_u16(p + 30);
    uint64_t n = ENTRY_BYTES + n_name + n_extra + load_u16(p + 32);
    if (n > room || n_name == 0 || n_name > MAX_NAME_BYTES)
        return error_set(err, STATUS_INVALID,
                         "the zip archive %s has a member whose name has %llu bytes, which is not "
                         "allowed. Fetch the file again",
                         z->path, (unsigned long long)n_name);
    struct str name = {(const char *)p + ENTRY_BYTES, n_name};
    struct str extra = {name.ptr + n_name, n_extra};
    uint64_t packed = load_u32(p + 20), n_bytes = load_u32(p + 24);
    e->member.name = name;
    e->begin = load_u32(p + 42);
    *at += n;
    if (memchr(name.ptr, 0, n_name))
        return wrong(z, name, err, "its name contains a NUL");
    if (load_u16(p + 8) & FLAG_ENCRYPTED)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "%s: member " STR_FMT
            " is encrypted, which Coxswain does not support. Save it without encryption",
            z->path, STR_ARG(name));
    if (load_u16(p + 10) != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s: member " STR_FMT
                         " is compressed (method %u), but Coxswain reads only uncompressed "
                         "members. Save it again with torch.save",
                         z->path, STR_ARG(name), load_u16(p + 10));
    TRY(read_extra64(z, name, extra, (uint64_t *const[]){&n_bytes, &packed, &e->begin}, err));
    if (packed != n_bytes)
        return wrong(z, name, err, "it is not compressed, but has two different sizes");
    return place(z, e, n_bytes, err);
}

/* ---- the table ---- */

static int compare_places(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

static int compare_names(const void *a, const void *b)
{
    return str_compare((*(const struct entry *const *)a)->member.name,
                       (*(const struct entry *const *)b)->member.name);
}

static enum status check_places(const struct zip *z, struct error *err)
{
    for (uint64_t i = 1; i < z->n_entries; i++) {
        const struct entry *before = &z->entries[i - 1], *e = &z->entries[i];
        if (e->begin < before->end)
            return error_set(err, STATUS_INVALID,
                             "%s: the members " STR_FMT " and " STR_FMT
                             " overlap. Fetch the file again",
                             z->path, STR_ARG(before->member.name), STR_ARG(e->member.name));
    }
    return STATUS_OK;
}

static enum status index_names(struct zip *z, struct error *err)
{
    for (uint64_t i = 0; i < z->n_entries; i++)
        z->by_name[i] = &z->entries[i];
    qsort(z->by_name, z->n_entries, sizeof *z->by_name, compare_names);
    for (uint64_t i = 1; i < z->n_entries; i++)
        if (str_eq(z->by_name[i - 1]->member.name, z->by_name[i]->member.name))
            return error_set(err, STATUS_INVALID,
                             "%s contains the member " STR_FMT " twice. Fetch the file again",
                             z->path, STR_ARG(z->by_name[i]->member.name));
    return STATUS_OK;
}

static enum status parse(struct zip *z, struct error *err)
{
    TRY(read_end(z, err));
    uint64_t room = (z->directory_end - z->directory) / ENTRY_BYTES, at = z->directory;
    if (z->n_entries > room || z->n_entries > MAX_MEMBERS)
        return error_set(err, STATUS_INVALID,
                         "the zip archive %s states %llu members, but its directory has room for "
                         "%llu (at most %d are allowed). Fetch the file again",
                         z->path, (unsigned long long)z->n_entries, (unsigned long long)room,
                         MAX_MEMBERS);
    z->entries = mem_try_array(z->n_entries + 1, sizeof *z->entries);
    z->by_name = mem_try_array(z->n_entries + 1, sizeof *z->by_name);
    if (!z->entries || !z->by_name)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for the directory of the zip archive %s. Free memory "
                         "on this machine",
                         z->path);
    for (uint64_t i = 0; i < z->n_entries; i++)
        TRY(read_entry(z, &at, &z->entries[i], err));
    if (at != z->directory_end)
        return error_set(err, STATUS_INVALID,
                         "the zip archive %s is damaged: its directory is longer than its %llu "
                         "members. Fetch the file again",
                         z->path, (unsigned long long)z->n_entries);
    qsort(z->entries, z->n_entries, sizeof *z->entries, compare_places);
    TRY(check_places(z, err));
    return index_names(z, err);
}

/* ---- opening and queries ---- */

enum status zip_open_memory(const void *bytes, size_t n, const char *name, struct zip **out,
                            struct error *err)
{
    struct zip *z = mem_zalloc(sizeof *z);
    *out = NULL;
    z->path = mem_strdup(name);
    z->bytes = bytes;
    z->n_bytes = n;
    enum status s = parse(z, err);
    if (s != STATUS_OK) {
        zip_close(z);
        return s;
    }
    *out = z;
    return STATUS_OK;
}

void zip_close(struct zip *z)
{
    if (!z)
        return;
    mem_free(z->entries);
    mem_free(z->by_name);
    mem_free(z->path);
    mem_free(z);
}

uint64_t zip_n_members(const struct zip *z)
{
    return z->n_entries;
}

const struct zip_member *zip_member_at(const struct zip *z, uint64_t i)
{
    return i < z->n_entries ? &z->entries[i].member : NULL;
}

const struct zip_member *zip_find(const struct zip *z, struct str name)
{
    struct entry wanted = {.member.name = name};
    const struct entry *p = &wanted;
    const struct entry **hit =
        bsearch(&p, z->by_name, z->n_entries, sizeof *z->by_name, compare_names);
    return hit ? &(*hit)->member : NULL;
}

struct str zip_directory(const struct zip *z)
{
    return (struct str){(const char *)z->bytes + z->directory, z->n_bytes - z->directory};
}
