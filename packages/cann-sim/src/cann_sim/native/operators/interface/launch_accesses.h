// Which memory a call touches, as its tensors say, for the memory check of the runtime.
#pragma once

#include <c10/core/ScalarType.h>

#include <vector>

#include "../../runtime/memory_access.h"
#include "object_model.h"

#pragma GCC visibility push(default)
namespace cann_sim::operators {

// A call begins on this thread.
void BeginAccesses();
// The call has this tensor; `name` is in static memory. Nothing is noted of a tensor without elements.
void NoteAccess(const aclTensor& tensor, c10::ScalarType dtype, const char* name);
// The tensor of that name, the latest noted, is an output.
void NoteWritten(const char* name);
// What was noted since the call began. Which aclnn tensors are written says written_arguments.h.
std::vector<MemoryAccess> TakeAccesses(const char* operator_name);

}  // namespace cann_sim::operators
#pragma GCC visibility pop
