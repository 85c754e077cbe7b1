// Which values were written to which addresses by aclrtValueWrite, so that a wait that never ends can say what is missing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cann_sim {

void NoteWrittenValue(const void* address, uint64_t value, int32_t stream);
// The memory is freed: what was written there concerns nobody any more.
void ForgetWrittenValues(const void* address, size_t bytes);
// Names the external event at the address whose record writes `value`, and says what became of its records.
std::string DescribeExternalEvent(const void* address, uint64_t value);

}  // namespace cann_sim
