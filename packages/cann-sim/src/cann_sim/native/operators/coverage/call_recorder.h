// Remembers what the operators were given, so that tests can make the same calls again with one thing changed.
#pragma once

#include <atomic>
#include <initializer_list>

#include "../interface/given_argument.h"

#pragma GCC visibility push(default)
namespace cann_sim::operators {

extern std::atomic<bool> records_calls;

// Keeps a call that the operator has accepted: the latest for each combination of dtypes.
void RecordCall(const char* operator_name, std::initializer_list<GivenArgument> given);

}  // namespace cann_sim::operators
#pragma GCC visibility pop
