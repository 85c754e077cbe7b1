// Which tensors of an operator its kernel writes.
#pragma once

#include <cstdint>

namespace cann_sim::operators {

enum class WrittenArgument : uint8_t {
  kNo,
  kWhole,
  kInPlace,  // it is read first
  kPart,     // which part, the values of other arguments say
};

// By the names of CANN's documents, which end the names of outputs in "Out" and those of tensors that are changed in place in
// "Ref", and by a table of those that do not. The operators' tests with CANN_SIM_MEMORY_CHECK=full, which refuses a kernel that
// changes another argument, show an entry that is missing.
WrittenArgument HowWritten(const char* operator_name, const char* argument);

}  // namespace cann_sim::operators
