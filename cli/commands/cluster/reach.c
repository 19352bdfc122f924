/* Reaches the head, or tells where this user's clusters are. */
#include "cli/commands/cluster/reach.h"

#include "cli/up/local/find.h"

bool reach_head(struct admin_access *o, const char *command, bool tell)
{
    if (admin_follow(o, command, tell))
        return true;
    local_cluster_hint(command, "address", o->address);
    return false;
}
