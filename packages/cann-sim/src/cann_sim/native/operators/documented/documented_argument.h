// What the device's operators accept, as CANN's documents and the sources of its operator library say: for each tensor
// argument the dtypes, the numbers of dimensions, the formats, and whether it has to be contiguous. CANN_SIM_OPERATOR checks
// every call against it before the operator's body runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "../interface/given_argument.h"

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// One tensor argument, or each tensor of a list.
struct DocumentedArgument {
  const char* name;
  uint64_t data_types;  // a bit for each aclDataType
  uint16_t ranks;       // a bit for each number of dimensions
  uint8_t layouts;      // a bit for plain formats, for FRACTAL_NZ, and for tensors that are not contiguous
};

// The tensor arguments of an operator in their order.
struct DocumentedOperator {
  const DocumentedArgument* arguments;
  size_t count;
};

// Refuses the first tensor that the device's operator does not accept. A null pointer is left to the operator.
void RequireDocumented(const DocumentedOperator& documented, std::initializer_list<GivenArgument> given);

}  // namespace cann_sim::operators
#pragma GCC visibility pop
