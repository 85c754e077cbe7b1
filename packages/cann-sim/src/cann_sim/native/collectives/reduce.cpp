// Reduce: the root gets the reduction of what all ranks give. On the other ranks the result is not written.

#include <cstring>

#include "../runtime/counters.h"
#include "elements.h"
#include "exchange.h"
#include "launch_collective.h"
#include "named_rank.h"

namespace {

using namespace cann_sim::collectives;
using cann_sim::MemoryAccess;

void ReduceToRoot(Communicator& communicator, const char* from, char* into, const Elements& elements, HcclReduceOp reduction,
                  uint32_t root) {
  cann_sim::CountCollective(elements.bytes());
  if (communicator.ranks == 1) {
    std::memmove(into, from, elements.bytes());
    return;
  }
  const size_t size = SizeOf(elements.type);
  Exchange exchange(communicator, "HcclReduce", elements.Describe() + ", " + NameOf(reduction) + ", to root " + std::to_string(root));
  ForEachChunk(elements, 1, [&](size_t first, size_t count) {
    std::memcpy(exchange.own_window(), from + first * size, count * size);
    exchange.Meet();
    if (communicator.rank == root) {
      exchange.ReduceWindows(0, into + first * size, count, elements.type, reduction);
    }
    exchange.NextChunk();
  });
}

}  // namespace

HCCL_EXPORT HcclResult HcclReduce(void* from, void* into, uint64_t count, HcclDataType type, HcclReduceOp reduction,
                                  uint32_t root, HcclComm comm, aclrtStream stream) {
  constexpr const char* kFunction = "HcclReduce";
  if (count == 0) {
    return HCCL_SUCCESS;
  }
  HCCL_REQUIRE_POINTER(kFunction, from);
  HCCL_REQUIRE_POINTER(kFunction, into);
  HCCL_RETURN_IF_REFUSED(CheckReduced(kFunction, type, reduction));
  HCCL_FIND_COMMUNICATOR(communicator, kFunction, comm);
  HCCL_RETURN_IF_REFUSED(CheckRank(kFunction, "root", *communicator, root));
  std::vector<MemoryAccess> accesses = {MemoryAccess::Bytes("from", from, Elements{count, type}.bytes(), false)};
  if (communicator->rank == root) {
    accesses.push_back(MemoryAccess::Bytes("into", into, Elements{count, type}.bytes(), true));
  }
  return LaunchCollective(kFunction, stream, std::move(accesses), [=] {
    ReduceToRoot(*communicator, static_cast<const char*>(from), static_cast<char*>(into), {count, type}, reduction, root);
  });
}
