// What the runtime did since the process began, for tests and benchmarks.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "launch.h"

namespace cann_sim {

struct Counters {
  std::atomic<uint64_t> launches{0};          // kernel launches outside captures and task updates
  std::atomic<uint64_t> captured_launches{0};  // kernel launches recorded into a graph
  std::atomic<uint64_t> updated_launches{0};   // kernel launches that replaced a task of a graph
  std::atomic<uint64_t> task_updates{0};       // pairs of task update begin and end that succeeded
  std::atomic<uint64_t> captures{0};           // captures that ended with a graph
  std::atomic<uint64_t> replays{0};            // requested replays
  std::atomic<uint64_t> replayed_kernels{0};   // kernels that ran inside replays
  std::atomic<uint64_t> synchronisations{0};   // calls that made the host wait for the device
  std::atomic<uint64_t> copies{0};             // requested memory copies, including captured ones
  std::atomic<uint64_t> blocking_copies{0};    // those of them that made the host wait
  std::atomic<uint64_t> copied_bytes{0};
  std::atomic<uint64_t> collectives{0};       // collectives, sends and receipts that began to run, in replays too
  std::atomic<uint64_t> collective_bytes{0};  // what they read of this process's memory
};

Counters& TheCounters();
// Counts the name, in static memory, of a kernel launch of any of the three sorts.
void CountLaunch(const char* name);
// Called by a collective when it runs.
CANN_SIM_EXPORT void CountCollective(uint64_t bytes);

}  // namespace cann_sim
