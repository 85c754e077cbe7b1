#include "task.h"

#include <stdexcept>

#include "faults.h"

namespace cann_sim {

const char* NameOf(TaskKind kind) {
  switch (kind) {
    case TaskKind::kKernel: return "KERNEL";
    case TaskKind::kMemoryCopy: return "MEMCPY_ASYNC";
    case TaskKind::kMemorySet: return "MEMSET_ASYNC";
    case TaskKind::kEventRecord: return "EVENT_RECORD";
    case TaskKind::kEventWait: return "EVENT_WAIT";
    case TaskKind::kEventReset: return "EVENT_RESET";
    case TaskKind::kValueWrite: return "MEM_WRITE_VALUE";
    case TaskKind::kValueWait: return "MEM_WAIT_VALUE";
    case TaskKind::kHostFunction: return "HOSTFUNC_CALLBACK";
    case TaskKind::kCondition: return "CONDITION_OP";
    case TaskKind::kReplay: return "MODEL_EXECUTE";
    case TaskKind::kTaskUpdate: return "TASK_UPDATE";
  }
  return "UNKNOWN";
}

void FailOnPurpose(const Task& task) {
  if (task.kind == TaskKind::kKernel && FaultIsDue(Fault::kRun, task.name)) {
    throw std::runtime_error(DescribeFault(Fault::kRun, task.name));
  }
}

}  // namespace cann_sim
