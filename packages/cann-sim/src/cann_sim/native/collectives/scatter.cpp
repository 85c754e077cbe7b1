// Scatter: each rank gets its share of what the root has.

#include <cstring>

#include "../runtime/counters.h"
#include "elements.h"
#include "exchange.h"
#include "launch_collective.h"
#include "named_rank.h"

namespace {

using namespace cann_sim::collectives;
using cann_sim::MemoryAccess;

void Scatter(Communicator& communicator, const char* from, char* into, const Elements& share, uint32_t root) {
  const bool is_root = communicator.rank == root;
  cann_sim::CountCollective(is_root ? share.bytes() * communicator.ranks : 0);
  if (communicator.ranks == 1) {
    std::memmove(into, from, share.bytes());
    return;
  }
  const size_t size = SizeOf(share.type);
  Exchange exchange(communicator, "HcclScatter", share.Describe() + " a rank, from root " + std::to_string(root));
  ForEachChunk(share, communicator.ranks, [&](size_t first, size_t count) {
    for (uint32_t rank = 0; is_root && rank < communicator.ranks; ++rank) {
      std::memcpy(exchange.own_window() + rank * count * size, from + (rank * share.count + first) * size, count * size);
    }
    exchange.Meet();
    std::memcpy(into + first * size, exchange.window(root) + communicator.rank * count * size, count * size);
    exchange.NextChunk();
  });
}

}  // namespace

HCCL_EXPORT HcclResult HcclScatter(void* from, void* into, uint64_t count, HcclDataType type, uint32_t root, HcclComm comm,
                                   aclrtStream stream) {
  constexpr const char* kFunction = "HcclScatter";
  if (count == 0) {
    return HCCL_SUCCESS;
  }
  HCCL_REQUIRE_POINTER(kFunction, into);
  HCCL_RETURN_IF_REFUSED(CheckMoved(kFunction, type));
  HCCL_FIND_COMMUNICATOR(communicator, kFunction, comm);
  HCCL_RETURN_IF_REFUSED(CheckRank(kFunction, "root", *communicator, root));
  if (communicator->rank == root) {
    HCCL_REQUIRE_POINTER(kFunction, from);
  }
  std::vector<MemoryAccess> accesses = {MemoryAccess::Bytes("into", into, Elements{count, type}.bytes(), true)};
  if (communicator->rank == root) {
    accesses.push_back(MemoryAccess::Bytes("from", from, communicator->ranks * Elements{count, type}.bytes(), false));
  }
  return LaunchCollective(kFunction, stream, std::move(accesses), [=] {
    Scatter(*communicator, static_cast<const char*>(from), static_cast<char*>(into), {count, type}, root);
  });
}
