// A process of this machine, told from a later one with the same number.
#pragma once

#include <cstdint>

namespace cann_sim::collectives {

struct Process {
  int32_t number;
  uint64_t start;  // in clock ticks since the machine started
};

Process ThisProcess();
// False also where it has ended and its parent has not asked for its status yet.
bool IsAlive(const Process& process);

}  // namespace cann_sim::collectives
