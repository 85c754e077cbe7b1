#include "timeouts.h"

#include <cstdlib>

namespace {

using cann_sim::collectives::Refuse;

HcclResult ReadSeconds(const char* function, const char* name, double fallback, double& seconds) {
  const char* const text = std::getenv(name);
  if (text == nullptr || *text == '\0') {
    seconds = fallback;
    return HCCL_SUCCESS;
  }
  char* end = nullptr;
  seconds = std::strtod(text, &end);
  if (*end == '\0' && seconds >= 0) {
    return HCCL_SUCCESS;
  }
  return Refuse(HCCL_E_PARA, std::string(function) + ": environment variable " + name + ": expected seconds, found '" + text + "'");
}

}  // namespace

namespace cann_sim::collectives {

HcclResult ReadTimeouts(const char* function, Timeouts& timeouts) {
  HCCL_RETURN_IF_REFUSED(ReadSeconds(function, "HCCL_CONNECT_TIMEOUT", 120, timeouts.connect_seconds));
  return ReadSeconds(function, "HCCL_EXEC_TIMEOUT", 1836, timeouts.exec_seconds);
}

}  // namespace cann_sim::collectives
