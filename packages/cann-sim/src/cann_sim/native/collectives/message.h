// Messages from one rank to another. A send ends when the other rank has received, as on a device; messages of one call run
// concurrently.
#pragma once

#include <acl/acl_base_rt.h>

#include <memory>
#include <vector>

#include "../runtime/memory_access.h"
#include "communicator.h"

namespace cann_sim::collectives {

struct MessageRequest {
  std::shared_ptr<Communicator> communicator;
  bool sends;     // else it receives
  uint32_t peer;  // may be this rank itself, where the call has both directions
  char* buffer;   // in device memory
  size_t count;
  HcclDataType type;
};

// Moves all of them; called by a kernel. Messages of one direction between two ranks go in their order. Throws DeviceFailure.
void ExchangeMessages(const char* function, const std::vector<MessageRequest>& requests);

// The same, counted.
void RunMessages(const char* function, const std::vector<MessageRequest>& requests);

// The memory of this rank that the messages read and write.
std::vector<MemoryAccess> AccessesOf(const std::vector<MessageRequest>& requests);

// Gives the exchange to the stream, or adds it to the group of the calling thread. `function` is in static memory.
HcclResult LaunchMessages(const char* function, aclrtStream stream, std::vector<MessageRequest> requests);

}  // namespace cann_sim::collectives
