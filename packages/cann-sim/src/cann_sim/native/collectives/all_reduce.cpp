// AllReduce: every rank gets the reduction of what all ranks give. Each rank reduces one share of it, in the order of the
// ranks, and passes it to the others, so all have the same bits.

#include <cstring>
#include <vector>

#include "../runtime/counters.h"
#include "elements.h"
#include "exchange.h"
#include "launch_collective.h"

namespace {

using namespace cann_sim::collectives;
using cann_sim::MemoryAccess;

// The share of the rank's in a chunk.
struct Share {
  Share(size_t count, uint32_t rank, uint32_t ranks) : begin(count * rank / ranks), end(count * (rank + 1) / ranks) {}
  size_t begin;
  size_t end;
};

// Replaces this rank's share in its own window by the reduction.
void ReduceShare(Exchange& exchange, const Communicator& communicator, size_t count, HcclDataType type, HcclReduceOp reduction) {
  const Share share(count, communicator.rank, communicator.ranks);
  const size_t offset = share.begin * SizeOf(type);
  const size_t length = share.end - share.begin;
  std::vector<char> sum(length * SizeOf(type));
  exchange.ReduceWindows(offset, sum.data(), length, type, reduction);
  std::memcpy(exchange.own_window() + offset, sum.data(), sum.size());
}

void AllReduce(Communicator& communicator, const char* from, char* into, const Elements& elements, HcclReduceOp reduction) {
  cann_sim::CountCollective(elements.bytes());
  if (communicator.ranks == 1) {
    std::memmove(into, from, elements.bytes());
    return;
  }
  const size_t size = SizeOf(elements.type);
  Exchange exchange(communicator, "HcclAllReduce", elements.Describe() + ", " + NameOf(reduction));
  ForEachChunk(elements, 1, [&](size_t first, size_t count) {
    std::memcpy(exchange.own_window(), from + first * size, count * size);
    exchange.Meet();
    ReduceShare(exchange, communicator, count, elements.type, reduction);
    exchange.Meet();
    for (uint32_t rank = 0; rank < communicator.ranks; ++rank) {
      const Share share(count, rank, communicator.ranks);
      std::memcpy(into + (first + share.begin) * size, exchange.window(rank) + share.begin * size,
                  (share.end - share.begin) * size);
    }
    exchange.NextChunk();
  });
}

}  // namespace

HCCL_EXPORT HcclResult HcclAllReduce(void* from, void* into, uint64_t count, HcclDataType type, HcclReduceOp reduction,
                                     HcclComm comm, aclrtStream stream) {
  constexpr const char* kFunction = "HcclAllReduce";
  if (count == 0) {
    return HCCL_SUCCESS;
  }
  HCCL_REQUIRE_POINTER(kFunction, from);
  HCCL_REQUIRE_POINTER(kFunction, into);
  HCCL_RETURN_IF_REFUSED(CheckReduced(kFunction, type, reduction));
  HCCL_FIND_COMMUNICATOR(communicator, kFunction, comm);
  return LaunchCollective(kFunction, stream, {MemoryAccess::Bytes("from", from, Elements{count, type}.bytes(), false),
                                               MemoryAccess::Bytes("into", into, Elements{count, type}.bytes(), true)}, [=] {
    AllReduce(*communicator, static_cast<const char*>(from), static_cast<char*>(into), {count, type}, reduction);
  });
}
