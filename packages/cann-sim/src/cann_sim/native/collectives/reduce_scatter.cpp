// ReduceScatter: each rank gets its share of the reduction of what all ranks give.

#include <cstring>

#include "../runtime/counters.h"
#include "elements.h"
#include "exchange.h"
#include "launch_collective.h"

namespace {

using namespace cann_sim::collectives;
using cann_sim::MemoryAccess;

// `share` is what one rank gets; each gives as many for every rank.
void ReduceScatter(Communicator& communicator, const char* from, char* into, const Elements& share, HcclReduceOp reduction) {
  cann_sim::CountCollective(share.bytes() * communicator.ranks);
  if (communicator.ranks == 1) {
    std::memmove(into, from, share.bytes());
    return;
  }
  const size_t size = SizeOf(share.type);
  Exchange exchange(communicator, "HcclReduceScatter", share.Describe() + " a rank, " + NameOf(reduction));
  ForEachChunk(share, communicator.ranks, [&](size_t first, size_t count) {
    for (uint32_t rank = 0; rank < communicator.ranks; ++rank) {
      std::memcpy(exchange.own_window() + rank * count * size, from + (rank * share.count + first) * size, count * size);
    }
    exchange.Meet();
    // A result may overlap this rank's share of the input, which has been read.
    exchange.ReduceWindows(communicator.rank * count * size, into + first * size, count, share.type, reduction);
    exchange.NextChunk();
  });
}

}  // namespace

HCCL_EXPORT HcclResult HcclReduceScatter(void* from, void* into, uint64_t count, HcclDataType type, HcclReduceOp reduction,
                                         HcclComm comm, aclrtStream stream) {
  constexpr const char* kFunction = "HcclReduceScatter";
  if (count == 0) {
    return HCCL_SUCCESS;
  }
  HCCL_REQUIRE_POINTER(kFunction, from);
  HCCL_REQUIRE_POINTER(kFunction, into);
  HCCL_RETURN_IF_REFUSED(CheckReduced(kFunction, type, reduction));
  HCCL_FIND_COMMUNICATOR(communicator, kFunction, comm);
  return LaunchCollective(kFunction, stream, {MemoryAccess::Bytes("from", from, communicator->ranks * Elements{count, type}.bytes(), false),
                                               MemoryAccess::Bytes("into", into, Elements{count, type}.bytes(), true)}, [=] {
    ReduceScatter(*communicator, static_cast<const char*>(from), static_cast<char*>(into), {count, type}, reduction);
  });
}
