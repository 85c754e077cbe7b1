// Waiting for and writing of values in device memory. torch_npu makes external events of them where they exist, so the
// library is built twice, with and without this file: CANN_SIM_EXTERNAL_EVENTS chooses.

#include <acl/acl_rt.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "error_message.h"
#include "monitor.h"
#include "submission.h"
#include "written_values.h"

namespace {

bool Holds(uint64_t found, uint64_t value, uint32_t condition) {
  switch (condition) {
    case ACL_STREAM_WAIT_VALUE_GEQ: return static_cast<int64_t>(found - value) >= 0;
    case ACL_STREAM_WAIT_VALUE_EQ: return found == value;
    case ACL_STREAM_WAIT_VALUE_AND: return (found & value) != 0;
    default: return ~(found | value) != 0;
  }
}

// With a short value it is small enough for a function to hold without memory of its own. Events are written once for every
// layer of every step, and memory that another thread frees costs more than the rest of the call.
template <typename Value>
std::function<void()> Writing(void* address, Value value, int32_t stream) {
  return [=] {
    cann_sim::TheMonitor().Update([=] {
      cann_sim::NoteWrittenValue(address, value, stream, cann_sim::TellKnown());
      __atomic_store_n(static_cast<uint64_t*>(address), uint64_t{value}, __ATOMIC_SEQ_CST);
    });
  };
}

}  // namespace

extern "C" {

aclError aclrtValueWrite(void* address, uint64_t value, uint32_t /*flag*/, aclrtStream handle) {
  CANN_SIM_FIND_STREAM(stream, "aclrtValueWrite", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtValueWrite", address);
  std::function<void()> write = value <= std::numeric_limits<uint32_t>::max()
                                    ? Writing(address, static_cast<uint32_t>(value), stream->id)
                                    : Writing(address, value, stream->id);
  return cann_sim::Submit("aclrtValueWrite", *stream,
                          cann_sim::MakeTask(cann_sim::TaskKind::kValueWrite, std::move(write),
                                             reinterpret_cast<uintptr_t>(address)));
}

aclError aclrtValueWait(void* address, uint64_t value, uint32_t condition, aclrtStream handle) {
  CANN_SIM_FIND_STREAM(stream, "aclrtValueWait", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtValueWait", address);
  if (condition > ACL_STREAM_WAIT_VALUE_NOR) {
    return cann_sim::Fail(ACL_ERROR_RT_PARAM_INVALID,
                          "aclrtValueWait: expected a flag of 0 to 3, found " + std::to_string(condition));
  }
  return cann_sim::Submit("aclrtValueWait", *stream, cann_sim::MakeTask(cann_sim::TaskKind::kValueWait, [=] {
                            const auto what = [=] { return cann_sim::DescribeExternalEvent(address, value); };
                            cann_sim::Known known;
                            cann_sim::TheMonitor().Wait(what, [=, &known] {
                              if (!Holds(__atomic_load_n(static_cast<uint64_t*>(address), __ATOMIC_SEQ_CST), value,
                                         condition)) {
                                return false;
                              }
                              known = cann_sim::KnownByWriter(address);
                              return true;
                            });
                            cann_sim::TakeKnown(known);
                          }, reinterpret_cast<uintptr_t>(address), cann_sim::kEntriesOfWait));
}

}  // extern "C"
