#include "launch_collective.h"

#include <utility>

#include "../runtime/launch.h"

namespace cann_sim::collectives {

HcclResult LaunchCollective(const char* function, aclrtStream stream, std::vector<MemoryAccess> accesses,
                            std::function<void()> run) {
  auto met = [run = std::move(run)] {
    MeetOtherProcesses();
    run();
    MeetOtherProcesses();
  };
  return LaunchKernel(stream, {function, std::move(met), 0, std::move(accesses)}) == ACL_SUCCESS ? HCCL_SUCCESS : HCCL_E_RUNTIME;
}

}  // namespace cann_sim::collectives
