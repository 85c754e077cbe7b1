// Barrier: the stream continues when the streams of all ranks have reached it.

#include "../runtime/counters.h"
#include "exchange.h"
#include "launch_collective.h"

HCCL_EXPORT HcclResult HcclBarrier(HcclComm comm, aclrtStream stream) {
  constexpr const char* kFunction = "HcclBarrier";
  HCCL_FIND_COMMUNICATOR(communicator, kFunction, comm);
  return cann_sim::collectives::LaunchCollective(kFunction, stream, {}, [=] {
    cann_sim::CountCollective(0);
    if (communicator->ranks > 1) {
      cann_sim::collectives::Exchange(*communicator, kFunction, "no data").Meet();
    }
  });
}
