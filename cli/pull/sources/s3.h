#pragma once
/* Lists the files of a model in a bucket: ListObjectsV2 of S3, or of a server with its API
 * (--aws-endpoint-url, with the bucket in the path). The files lie directly below the prefix and
 * have the names of a hub. */
#include "cli/pull/files/list.h"
#include "cli/pull/files/source.h"
#include "common/model/info/ref.h"

/* `endpoint` is NULL for Amazon's own. */
MUST_USE enum status pull_s3_list(const struct pull_source *source, const struct model_ref *r,
                                  const char *endpoint, const char *region, struct pull_list *l,
                                  struct error *err);
