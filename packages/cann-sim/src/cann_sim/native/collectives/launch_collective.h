// How a collective becomes a kernel of a stream.
#pragma once

#include <acl/acl_base_rt.h>

#include <functional>
#include <memory>
#include <vector>

#include "../runtime/memory_access.h"
#include "communicator.h"

namespace cann_sim::collectives {

// Gives the work to the stream, which runs it in its order, or records it where the stream is captured. `function` is in
// static memory, `accesses` are the memory of this rank that it reads and writes.
HcclResult LaunchCollective(const char* function, aclrtStream stream, std::vector<MemoryAccess> accesses,
                            std::function<void()> run);

}  // namespace cann_sim::collectives

// At the beginning of a collective.
#define HCCL_FIND_COMMUNICATOR(variable, function, handle)                                          \
  const std::shared_ptr<::cann_sim::collectives::Communicator> variable =                           \
      ::cann_sim::collectives::FindCommunicator(function, handle);                                  \
  if (variable == nullptr) {                                                                        \
    return HCCL_E_PARA;                                                                             \
  }
