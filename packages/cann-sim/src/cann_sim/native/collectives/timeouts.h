// How long ranks wait for each other.
#pragma once

#include "interface.h"

namespace cann_sim::collectives {

struct Timeouts {
  double connect_seconds;  // HCCL_CONNECT_TIMEOUT, default 120: for the ranks to make a communicator
  double exec_seconds;     // HCCL_EXEC_TIMEOUT, default 1836: for the ranks to come to a collective; 0 is no limit
};

// Reads them. HCCL_E_PARA where one is no number.
HcclResult ReadTimeouts(const char* function, Timeouts& timeouts);

}  // namespace cann_sim::collectives
