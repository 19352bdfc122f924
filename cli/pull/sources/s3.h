#pragma once
/* The files that a bucket has of a model: ListObjectsV2 of S3, or of what speaks it
 * (--aws-endpoint-url, then with the bucket in the path). Files lie directly below the prefix,
 * named as a hub names them. */
#include "cli/pull/files/list.h"
#include "cli/pull/files/source.h"
#include "common/model/info/ref.h"

/* endpoint: NULL for Amazon's own. */
MUST_USE enum status pull_s3_list(const struct pull_source *source, const struct model_ref *r,
                                  const char *endpoint, const char *region, struct pull_list *l,
                                  struct error *err);
