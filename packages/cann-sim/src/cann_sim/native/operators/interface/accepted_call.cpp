#include "accepted_call.h"

#include "../../runtime/launch.h"
#include "../cost/call_work.h"
#include "../coverage/call_recorder.h"

namespace cann_sim::operators {

std::atomic<bool> sees_calls{KernelsAreTimed()};

void SeeCall(const char* operator_name, const char* arguments, std::initializer_list<GivenArgument> given,
             int64_t& duration) {
  if (KernelsAreTimed() && duration == 0) {
    duration = KernelTime(WorkOfCall(operator_name, arguments, given));
  }
  if (records_calls.load(std::memory_order_relaxed)) {
    RecordCall(operator_name, given);
  }
}

}  // namespace cann_sim::operators
