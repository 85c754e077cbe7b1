#include "exchange.h"

#include <algorithm>
#include <cstring>

#include "data_type.h"
#include "reduction.h"

namespace {

template <size_t size>
void Fill(char (&field)[size], const std::string& text) {
  const size_t length = std::min(text.size(), size - 1);
  std::memcpy(field, text.data(), length);
  field[length] = '\0';
}

}  // namespace

namespace cann_sim::collectives {

Exchange::Exchange(Communicator& communicator, const char* operation, const std::string& details)
    : communicator_(communicator),
      what_(std::string(operation) + " of " + details),
      outside_([this] { return "waits for the other ranks in " + what_; }),
      lock_(communicator.collective) {
  communicator.CheckUsable();
  RankSlot& slot = communicator.segment().slot(communicator.rank);
  const uint64_t number = slot.operations.load() + 1;
  Description& description = slot.descriptions[number % 2];
  Fill(description.operation, operation);
  Fill(description.details, details);
  slot.operations.store(number);
}

char* Exchange::window(uint32_t rank) {
  return communicator_.segment().window(rank, static_cast<uint32_t>(communicator_.round % 2));
}

void Exchange::ReduceWindows(size_t offset, char* into, size_t count, HcclDataType type, HcclReduceOp reduction) {
  std::memcpy(into, window(0) + offset, count * SizeOf(type));
  for (uint32_t rank = 1; rank < communicator_.ranks; ++rank) {
    Reduce(into, window(rank) + offset, count, type, reduction);
  }
}

void Exchange::Meet() {
  SharedSegment& segment = communicator_.segment();
  const uint64_t step = ++segment.slot(communicator_.rank).steps;
  segment.Notify();
  communicator_.Await(what_, [&] {
    std::vector<uint32_t> missing;
    for (uint32_t rank = 0; rank < communicator_.ranks; ++rank) {
      if (segment.slot(rank).steps.load() < step) {
        missing.push_back(rank);
      }
    }
    return missing;
  });
  if (!met_) {
    met_ = true;
    CheckDescriptions();
  }
}

void Exchange::CheckDescriptions() const {
  SharedSegment& segment = communicator_.segment();
  const uint64_t number = segment.slot(communicator_.rank).operations.load();
  const Description& own = segment.slot(communicator_.rank).descriptions[number % 2];
  bool equal = true;
  std::string all;
  for (uint32_t rank = 0; rank < communicator_.ranks; ++rank) {
    const Description& other = segment.slot(rank).descriptions[number % 2];
    equal = equal && segment.slot(rank).operations.load() >= number &&
            std::strcmp(own.operation, other.operation) == 0 && std::strcmp(own.details, other.details) == 0;
    all += (rank == 0 ? "rank " : ", rank ") + std::to_string(rank) + ": " + other.operation + " of " + other.details;
  }
  if (!equal) {
    communicator_.FailAndThrow("the ranks are at different collectives: " + all);
  }
}

}  // namespace cann_sim::collectives
