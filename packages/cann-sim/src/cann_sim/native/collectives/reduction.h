// The arithmetic of reductions.
#pragma once

#include "interface.h"

namespace cann_sim::collectives {

// into[i] = into[i] <reduction> from[i], rounded to the type. Integers wrap around. Any alignment.
void Reduce(void* into, const void* from, size_t count, HcclDataType type, HcclReduceOp reduction);

}  // namespace cann_sim::collectives
