// Which values were written to which addresses by aclrtValueWrite, so that a wait that never ends can say what is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "order.h"

namespace cann_sim {

// Called by the lane that writes it. `known` is what has happened before.
void NoteWrittenValue(const void* address, uint64_t value, int32_t stream, const Known& known);
// What had happened before the last value was written to the address; null where order is not checked.
Known KnownByWriter(const void* address);
// The memory is freed: what was written there concerns nobody any more.
void ForgetWrittenValues(const void* address, size_t bytes);
// Names the external event at the address whose record writes `value`, and says what became of its records.
std::string DescribeExternalEvent(const void* address, uint64_t value);

}  // namespace cann_sim
