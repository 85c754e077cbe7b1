#include "monitor.h"

namespace cann_sim {

Monitor& TheMonitor() {
  static auto* monitor = new Monitor;
  return *monitor;
}

}  // namespace cann_sim
