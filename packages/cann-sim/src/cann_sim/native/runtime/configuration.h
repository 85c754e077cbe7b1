// What the environment chooses, read once at the first use of each value.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cann_sim::configuration {

uint32_t DeviceCount();       // CANN_SIM_DEVICES, default 1
size_t DeviceMemoryBytes();   // CANN_SIM_MEMORY_GB, default 8 GiB a device
size_t StreamLimit();         // CANN_SIM_STREAMS, default 2048 a device
double DeadlockSeconds();     // CANN_SIM_DEADLOCK_SECONDS, default 10
bool KernelsAreNull();        // CANN_SIM_KERNELS=null
bool LogsMissingFunctions();  // CANN_SIM_LOG has "missing" or "all"
bool LogsEverything();        // CANN_SIM_LOG has "all"

}  // namespace cann_sim::configuration
