// Attributes of a compiled operator.
#pragma once

#include <map>
#include <string>

#include "../operators/compiled/compiled_call.h"

// torch_npu makes the attributes in the thread that calls the torch operator, also where a task queue executes the compiled
// one in another thread. So this is where the asking operator can still be found.
struct aclopAttr {
  std::string asked_by;
  std::map<std::string, cann_sim::CompiledAttribute> values;
};
