// AllToAll: each rank gives each rank a share of its own, of equal or of different sizes.

#include <cstring>
#include <vector>

#include "../runtime/counters.h"
#include "elements.h"
#include "exchange.h"
#include "launch_collective.h"
#include "message.h"

namespace {

using namespace cann_sim::collectives;
using cann_sim::MemoryAccess;

// What this rank gives to, or takes from, each rank.
struct Shares {
  char* buffer;
  HcclDataType type;
  std::vector<uint64_t> counts;
  std::vector<uint64_t> starts;  // in elements

  char* at(uint32_t rank) const { return buffer + starts[rank] * SizeOf(type); }
  size_t bytes(uint32_t rank) const { return counts[rank] * SizeOf(type); }
};

Shares EqualShares(const void* buffer, uint64_t count, HcclDataType type, uint32_t ranks) {
  Shares shares{static_cast<char*>(const_cast<void*>(buffer)), type, std::vector<uint64_t>(ranks, count), {}};
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    shares.starts.push_back(rank * count);
  }
  return shares;
}

// The arrays are the caller's, and are read before the call returns.
Shares GivenShares(const void* buffer, const void* counts, const void* starts, HcclDataType type, uint32_t ranks) {
  const auto* const count = static_cast<const uint64_t*>(counts);
  const auto* const start = static_cast<const uint64_t*>(starts);
  return {static_cast<char*>(const_cast<void*>(buffer)), type, {count, count + ranks}, {start, start + ranks}};
}

HcclResult CheckShares(const char* function, const Communicator& communicator, const Shares& given, const Shares& taken) {
  const uint32_t own = communicator.rank;
  if (given.bytes(own) == taken.bytes(own)) {
    return HCCL_SUCCESS;
  }
  return Refuse(HCCL_E_PARA, std::string(function) + ": " + communicator.Describe() + ": gives itself " +
                                 Elements{given.counts[own], given.type}.Describe() + " and takes " +
                                 Elements{taken.counts[own], taken.type}.Describe());
}

std::vector<MessageRequest> MessagesOf(const std::shared_ptr<Communicator>& communicator, const Shares& given,
                                       const Shares& taken) {
  std::vector<MessageRequest> messages;
  for (uint32_t rank = 0; rank < communicator->ranks; ++rank) {
    if (rank != communicator->rank) {
      messages.push_back({communicator, true, rank, given.at(rank), given.counts[rank], given.type});
      messages.push_back({communicator, false, rank, taken.at(rank), taken.counts[rank], taken.type});
    }
  }
  return messages;
}

void AllToAll(const char* function, Communicator& communicator, const Shares& given, const Shares& taken,
              const std::vector<MessageRequest>& messages) {
  const uint32_t own = communicator.rank;
  size_t bytes = 0;
  for (uint32_t rank = 0; rank < communicator.ranks; ++rank) {
    bytes += given.bytes(rank);
  }
  cann_sim::CountCollective(bytes);
  std::memmove(taken.at(own), given.at(own), given.bytes(own));
  if (communicator.ranks > 1) {
    // The sizes of shares may differ between ranks; each message checks its own.
    Exchange(communicator, function, NameOf(given.type)).Meet();
    ExchangeMessages(function, messages);
  }
}

HcclResult Launch(const char* function, const std::shared_ptr<Communicator>& communicator, Shares given, Shares taken,
                  aclrtStream stream) {
  HCCL_RETURN_IF_REFUSED(CheckShares(function, *communicator, given, taken));
  std::vector<MessageRequest> messages = MessagesOf(communicator, given, taken);
  std::vector<MemoryAccess> accesses = AccessesOf(messages);
  accesses.push_back(MemoryAccess::Bytes("given", given.at(communicator->rank), given.bytes(communicator->rank), false));
  accesses.push_back(MemoryAccess::Bytes("taken", taken.at(communicator->rank), taken.bytes(communicator->rank), true));
  return LaunchCollective(function, stream, std::move(accesses), [=] { AllToAll(function, *communicator, given, taken, messages); });
}

}  // namespace

HCCL_EXPORT HcclResult HcclAlltoAll(const void* from, uint64_t count, HcclDataType type, const void* into,
                                    uint64_t into_count, HcclDataType into_type, HcclComm comm, aclrtStream stream) {
  constexpr const char* kFunction = "HcclAlltoAll";
  HCCL_RETURN_IF_REFUSED(CheckMoved(kFunction, type));
  HCCL_RETURN_IF_REFUSED(CheckMoved(kFunction, into_type));
  HCCL_FIND_COMMUNICATOR(communicator, kFunction, comm);
  return Launch(kFunction, communicator, EqualShares(from, count, type, communicator->ranks),
                EqualShares(into, into_count, into_type, communicator->ranks), stream);
}

HCCL_EXPORT HcclResult HcclAlltoAllV(const void* from, const void* counts, const void* starts, HcclDataType type,
                                     const void* into, const void* into_counts, const void* into_starts,
                                     HcclDataType into_type, HcclComm comm, aclrtStream stream) {
  constexpr const char* kFunction = "HcclAlltoAllV";
  HCCL_REQUIRE_POINTER(kFunction, counts);
  HCCL_REQUIRE_POINTER(kFunction, starts);
  HCCL_REQUIRE_POINTER(kFunction, into_counts);
  HCCL_REQUIRE_POINTER(kFunction, into_starts);
  HCCL_RETURN_IF_REFUSED(CheckMoved(kFunction, type));
  HCCL_RETURN_IF_REFUSED(CheckMoved(kFunction, into_type));
  HCCL_FIND_COMMUNICATOR(communicator, kFunction, comm);
  return Launch(kFunction, communicator, GivenShares(from, counts, starts, type, communicator->ranks),
                GivenShares(into, into_counts, into_starts, into_type, communicator->ranks), stream);
}
