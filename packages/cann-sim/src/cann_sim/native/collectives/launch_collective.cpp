#include "launch_collective.h"

#include <utility>

#include "../runtime/launch.h"

namespace cann_sim::collectives {

HcclResult LaunchCollective(const char* function, aclrtStream stream, std::function<void()> run) {
  return LaunchKernel(stream, {function, std::move(run)}) == ACL_SUCCESS ? HCCL_SUCCESS : HCCL_E_RUNTIME;
}

}  // namespace cann_sim::collectives
