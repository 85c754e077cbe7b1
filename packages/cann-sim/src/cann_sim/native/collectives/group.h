// What a host thread collects between HcclGroupStart and HcclGroupEnd.
#pragma once

#include <acl/acl_base_rt.h>

#include <functional>
#include <vector>

#include "message.h"

namespace cann_sim::collectives {

bool GroupIsOpen();
void AddToGroup(const char* function, aclrtStream stream, std::function<void()> run);
void AddToGroup(aclrtStream stream, std::vector<MessageRequest> messages);

}  // namespace cann_sim::collectives
