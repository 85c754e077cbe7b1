// The data types and reductions of collectives on Atlas A2.
#pragma once

#include <cstddef>

#include "interface.h"

namespace cann_sim::collectives {

// Bytes of an element; of the types that CheckMoved takes.
size_t SizeOf(HcclDataType type);
std::string NameOf(HcclDataType type);
std::string NameOf(HcclReduceOp reduction);

// Whether the device moves elements of the type. The refusal has code HCCL_E_NOT_SUPPORT.
HcclResult CheckMoved(const char* function, HcclDataType type);
// Whether the device reduces them so. It takes prod of neither int16 nor bfloat16.
HcclResult CheckReduced(const char* function, HcclDataType type, HcclReduceOp reduction);

}  // namespace cann_sim::collectives
