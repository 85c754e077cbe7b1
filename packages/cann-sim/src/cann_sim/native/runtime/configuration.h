// What the environment chooses, read once at the first use of each value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace cann_sim::configuration {

uint32_t DeviceCount();       // CANN_SIM_DEVICES, default 1
size_t DeviceMemoryBytes();   // CANN_SIM_MEMORY_GB, default 8 GiB a device
size_t StreamLimit();         // CANN_SIM_STREAMS, default 2048 a device
std::string SocName();        // CANN_SIM_SOC, default "Ascend910B1"
double DeadlockSeconds();     // CANN_SIM_DEADLOCK_SECONDS, default 1.5
bool KernelsAreNull();        // CANN_SIM_KERNELS=null
bool ChecksUpdates();         // unless CANN_SIM_UPDATE_CHECK=off, or kernels do nothing
bool ChecksMemory();          // CANN_SIM_MEMORY_CHECK=on or full, unless kernels do nothing
bool ChecksMemoryFully();     // CANN_SIM_MEMORY_CHECK=full, the same
std::string ScheduleText();    // CANN_SIM_SCHEDULE, default "free"
std::string ClockText();       // CANN_SIM_CLOCK, default empty: no virtual clock
std::string TraceFileName();    // CANN_SIM_TRACE, default empty: no trace
std::string FaultsText();      // CANN_SIM_FAULTS, default empty
bool LogsMissingFunctions();  // CANN_SIM_LOG has "missing" or "all"
bool LogsEverything();        // CANN_SIM_LOG has "all"

// Ends the process, because of what is wrong with an environment variable.
[[noreturn]] void Refuse(const char* name, const std::string& wrong);

}  // namespace cann_sim::configuration
