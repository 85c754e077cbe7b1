// AllGather: every rank gets what all ranks give, in the order of the ranks.

#include <cstring>

#include "../runtime/counters.h"
#include "elements.h"
#include "exchange.h"
#include "launch_collective.h"

namespace {

using namespace cann_sim::collectives;
using cann_sim::MemoryAccess;

void AllGather(Communicator& communicator, const char* from, char* into, const Elements& share) {
  cann_sim::CountCollective(share.bytes());
  if (communicator.ranks == 1) {
    std::memmove(into, from, share.bytes());
    return;
  }
  const size_t size = SizeOf(share.type);
  Exchange exchange(communicator, "HcclAllGather", share.Describe() + " a rank");
  ForEachChunk(share, 1, [&](size_t first, size_t count) {
    std::memcpy(exchange.own_window(), from + first * size, count * size);
    exchange.Meet();
    for (uint32_t rank = 0; rank < communicator.ranks; ++rank) {
      std::memcpy(into + (rank * share.count + first) * size, exchange.window(rank), count * size);
    }
    exchange.NextChunk();
  });
}

}  // namespace

HCCL_EXPORT HcclResult HcclAllGather(void* from, void* into, uint64_t count, HcclDataType type, HcclComm comm,
                                     aclrtStream stream) {
  constexpr const char* kFunction = "HcclAllGather";
  if (count == 0) {
    return HCCL_SUCCESS;
  }
  HCCL_REQUIRE_POINTER(kFunction, from);
  HCCL_REQUIRE_POINTER(kFunction, into);
  HCCL_RETURN_IF_REFUSED(CheckMoved(kFunction, type));
  HCCL_FIND_COMMUNICATOR(communicator, kFunction, comm);
  return LaunchCollective(kFunction, stream, {MemoryAccess::Bytes("from", from, Elements{count, type}.bytes(), false),
                                               MemoryAccess::Bytes("into", into, communicator->ranks * Elements{count, type}.bytes(), true)}, [=] {
    AllGather(*communicator, static_cast<const char*>(from), static_cast<char*>(into), {count, type});
  });
}
