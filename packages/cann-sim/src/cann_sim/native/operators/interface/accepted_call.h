// What is done with a call that an operator has accepted: it is remembered where tests want its arguments, and timed where there
// is a virtual clock.
#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>

#include "given_argument.h"

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// Whether any of both is done.
extern std::atomic<bool> sees_calls;

// `arguments` is the text of the operator's arguments. Sets how long the call takes where it is 0.
void SeeCall(const char* operator_name, const char* arguments, std::initializer_list<GivenArgument> given,
             int64_t& duration);

}  // namespace cann_sim::operators
#pragma GCC visibility pop
