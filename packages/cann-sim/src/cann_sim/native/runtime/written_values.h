// Which values were written to which addresses by aclrtValueWrite, so that a wait that never ends can say what is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "order.h"

namespace cann_sim {

// Called by the lane that writes it. `known` is what has happened before.
void NoteWrittenValue(const void* address, uint64_t value, int32_t stream, const Known& known);

// Of the last value that was written to an address; only where order is checked.
struct LastWrite {
  Known known;        // what had happened before it
  bool twice = false;  // the same value was there already, and no wait had taken it
};
LastWrite LastWriteTo(const void* address);
// The memory is freed: what was written there concerns nobody any more.
void ForgetWrittenValues(const void* address, size_t bytes);
// "the external event at 0x55d0"
std::string NameOfExternalEvent(const void* address);
// Says that `event` was recorded twice before one wait, and what that means.
std::string DescribeLostRecord(const std::string& event);
// Names the external event at the address whose record writes `value`, and says what became of its records.
std::string DescribeExternalEvent(const void* address, uint64_t value);

}  // namespace cann_sim
