#include "refusal.h"

#include <acl/acl_rt.h>

#include "../../runtime/launch.h"

extern "C" aclError aclrtGetLastError(aclrtLastErrLevel level);

namespace cann_sim::operators {

int Report(int status, const std::string& message) {
  aclrtGetLastError(ACL_RT_THREAD_LEVEL);
  SetErrorMessage(message);
  return status;
}

}  // namespace cann_sim::operators
