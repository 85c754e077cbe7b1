// The operator calls of the process: what ran, by dtypes, what was refused, and what is missing.
// CANN_SIM_COVERAGE names a file that has it at every moment.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace cann_sim::operators {

// Dtypes of the tensors of one call, a bit for each c10::ScalarType.
using Dtypes = uint64_t;

// Begins a call on this thread, whose tensors then note their dtypes.
void BeginCall();
void NoteDtype(c10::ScalarType dtype);
Dtypes DtypesOfCall();

void NoteLaunch(const char* operator_name, Dtypes dtypes);
// `asked_by` is the torch operator, or empty where it is unknown.
void NoteRefusal(const char* operator_name, const std::string& reason, const std::string& asked_by);
void NoteMissing(const std::string& operator_name, const std::string& asked_by);

}  // namespace cann_sim::operators
