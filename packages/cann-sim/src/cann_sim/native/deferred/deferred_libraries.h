// Libraries that a first start does not wait for: they are compiled after it, and loaded when a function of theirs is called.
#pragma once

#include <string>

#pragma GCC visibility push(default)
namespace cann_sim {

// The function of this name in the first deferred library that defines it, or null where none does. Waits for libraries that are
// not compiled yet, and lets them be compiled where nobody does that. Throws std::runtime_error where one cannot be made.
void* FindDeferred(const char* name);

}  // namespace cann_sim
#pragma GCC visibility pop
