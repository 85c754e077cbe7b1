// Messages between HcclGroupStart and HcclGroupEnd of a host thread: those of one stream go as one batch.
#pragma once

#include <acl/acl_base_rt.h>

#include <vector>

#include "message.h"

namespace cann_sim::collectives {

// Whether the calling thread has started a group.
bool GroupIsOpen();
// Adds the messages to the batch of the stream. The batch has its place in the stream from its first message on, so that
// an event that is recorded inside the group comes after it; it begins when the group ends.
HcclResult AddToGroup(aclrtStream stream, std::vector<MessageRequest> messages);

}  // namespace cann_sim::collectives
