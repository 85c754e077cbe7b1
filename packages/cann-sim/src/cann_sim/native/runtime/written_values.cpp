#include "written_values.h"

#include <map>
#include <mutex>

#include "hexadecimal.h"

namespace {

struct Writes {
  uint64_t count = 0;
  int32_t last_stream = 0;
};

struct WrittenValues {
  std::mutex mutex;
  std::map<uintptr_t, cann_sim::Known> known;  // by address, if order is tracked
  std::map<uintptr_t, std::map<uint64_t, Writes>> by_address;
};

WrittenValues& TheWrittenValues() {
  static auto* values = new WrittenValues;
  return *values;
}

}  // namespace

namespace cann_sim {

void NoteWrittenValue(const void* address, uint64_t value, int32_t stream, const Known& known) {
  WrittenValues& values = TheWrittenValues();
  const std::lock_guard<std::mutex> lock(values.mutex);
  Writes& writes = values.by_address[reinterpret_cast<uintptr_t>(address)][value];
  ++writes.count;
  writes.last_stream = stream;
  if (known != nullptr) {
    values.known[reinterpret_cast<uintptr_t>(address)] = known;
  }
}

Known KnownByWriter(const void* address) {
  if (!OrderIsTold()) {
    return nullptr;
  }
  WrittenValues& values = TheWrittenValues();
  const std::lock_guard<std::mutex> lock(values.mutex);
  const auto found = values.known.find(reinterpret_cast<uintptr_t>(address));
  return found == values.known.end() ? nullptr : found->second;
}

void ForgetWrittenValues(const void* address, size_t bytes) {
  WrittenValues& values = TheWrittenValues();
  const std::lock_guard<std::mutex> lock(values.mutex);
  const auto first = reinterpret_cast<uintptr_t>(address);
  values.known.erase(values.known.lower_bound(first), values.known.lower_bound(first + bytes));
  values.by_address.erase(values.by_address.lower_bound(first), values.by_address.lower_bound(first + bytes));
}

std::string DescribeExternalEvent(const void* address, uint64_t value) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  const std::string event = "the external event at " + Hexadecimal(number);
  WrittenValues& values = TheWrittenValues();
  const std::lock_guard<std::mutex> lock(values.mutex);
  const auto found = values.by_address.find(number);
  const auto writes = found == values.by_address.end() ? std::map<uint64_t, Writes>::const_iterator{}
                                                       : found->second.find(value);
  if (found == values.by_address.end() || writes == found->second.end()) {
    return event + ", which was never recorded";
  }
  return event + ", which was not recorded again: its " + std::to_string(writes->second.count) +
         " record(s), the last on stream " + std::to_string(writes->second.last_stream) +
         ", were used up by earlier waits or fell together";
}

}  // namespace cann_sim
