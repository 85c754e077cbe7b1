// Broadcast: every rank gets what the root has.

#include <cstring>

#include "../runtime/counters.h"
#include "elements.h"
#include "exchange.h"
#include "launch_collective.h"
#include "named_rank.h"

namespace {

using namespace cann_sim::collectives;
using cann_sim::MemoryAccess;

void Broadcast(Communicator& communicator, char* buffer, const Elements& elements, uint32_t root) {
  const bool is_root = communicator.rank == root;
  cann_sim::CountCollective(is_root ? elements.bytes() : 0);
  if (communicator.ranks == 1) {
    return;
  }
  const size_t size = SizeOf(elements.type);
  Exchange exchange(communicator, "HcclBroadcast", elements.Describe() + ", from root " + std::to_string(root));
  ForEachChunk(elements, 1, [&](size_t first, size_t count) {
    if (is_root) {
      std::memcpy(exchange.own_window(), buffer + first * size, count * size);
    }
    exchange.Meet();
    if (!is_root) {
      std::memcpy(buffer + first * size, exchange.window(root), count * size);
    }
    exchange.NextChunk();
  });
}

}  // namespace

HCCL_EXPORT HcclResult HcclBroadcast(void* buffer, uint64_t count, HcclDataType type, uint32_t root, HcclComm comm,
                                     aclrtStream stream) {
  constexpr const char* kFunction = "HcclBroadcast";
  if (count == 0) {
    return HCCL_SUCCESS;
  }
  HCCL_REQUIRE_POINTER(kFunction, buffer);
  HCCL_RETURN_IF_REFUSED(CheckMoved(kFunction, type));
  HCCL_FIND_COMMUNICATOR(communicator, kFunction, comm);
  HCCL_RETURN_IF_REFUSED(CheckRank(kFunction, "root", *communicator, root));
  const bool writes = communicator->rank != root;
  return LaunchCollective(kFunction, stream, {MemoryAccess::Bytes("buffer", buffer, Elements{count, type}.bytes(), writes)},
                          [=] { Broadcast(*communicator, static_cast<char*>(buffer), {count, type}, root); });
}
