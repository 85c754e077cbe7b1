// A process of this machine, distinguished from a later one with the same number.
#pragma once

#include <cstdint>

namespace cann_sim::collectives {

struct Process {
  int32_t number;
  uint64_t start;  // in clock ticks since the machine started
};

Process ThisProcess();
// False also if it has ended and its parent has not read its status yet.
bool IsAlive(const Process& process);

}  // namespace cann_sim::collectives
