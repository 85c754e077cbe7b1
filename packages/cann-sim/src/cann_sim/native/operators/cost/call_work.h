// What a call of an operator does, by the names and shapes of its arguments, for the virtual clock. Operators that know better
// say so in their plan, as attention does by its lengths.
#pragma once

#include <initializer_list>

#include "../../runtime/launch.h"
#include "../interface/given_argument.h"

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// `arguments` is the text of the operator's arguments, "(Tensor, self), (Scalar, other)", in static memory.
//
// A product of matrices reads its right-hand side from the memory of the device, as a weight, and has operations; of experts as
// many are read as there are rows, at most all. Gathers and scatters move the rows that they move, caches are read and written
// where rows are, and everything else moves all its tensors once.
Work WorkOfCall(const char* operator_name, const char* arguments, std::initializer_list<GivenArgument> given);

}  // namespace cann_sim::operators
#pragma GCC visibility pop
