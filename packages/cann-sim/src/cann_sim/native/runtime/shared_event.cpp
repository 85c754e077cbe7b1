#include "shared_event.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

#include "device.h"
#include "error_message.h"
#include "event.h"
#include "outside_work.h"

namespace {

using cann_sim::SharedRange;
using cann_sim::SharedRecords;

// Other processes cannot wake a wait, so it looks again and again.
constexpr std::chrono::microseconds kInterval{200};

void AwaitCount(const SharedRecords& records, uint64_t count) {
  const cann_sim::OutsideWork outside([] { return "waits for an event of another process"; });
  while (records.happened.load() < count) {
    cann_sim::OutsideWork::CheckProcess();
    std::this_thread::sleep_for(kInterval);
  }
}

}  // namespace

namespace cann_sim {

std::shared_ptr<SharedEvent> SharedEvent::Make(Device& device) {
  MemoryFile& file = MemoryFileOf(device);
  const std::optional<size_t> slot = file.base() == nullptr ? std::nullopt : file.TakeSlot();
  if (!slot.has_value()) {
    return nullptr;
  }
  auto& records = *reinterpret_cast<SharedRecords*>(file.base() + *slot);
  const uint64_t highest = std::max(records.asked_for.load(), records.happened.load());
  records.asked_for.store(highest);
  records.happened.store(highest);
  return std::shared_ptr<SharedEvent>(
      new SharedEvent({getpid(), device.id, *slot, sizeof(SharedRecords)}, records, &file));
}

std::shared_ptr<SharedEvent> SharedEvent::Open(const aclrtIpcEventHandle& handle) {
  unsigned process = 0;
  unsigned device = 0;
  size_t slot = 0;
  if (std::sscanf(handle.reserved, "cs:%x:%x:%zx", &process, &device, &slot) != 3) {
    return nullptr;
  }
  const SharedRange range{static_cast<int32_t>(process), static_cast<int32_t>(device), slot, sizeof(SharedRecords)};
  void* mapped = MapSharedRange(range);
  return mapped == nullptr
             ? nullptr
             : std::shared_ptr<SharedEvent>(new SharedEvent(range, *static_cast<SharedRecords*>(mapped), nullptr));
}

SharedEvent::~SharedEvent() {
  if (owner_ == nullptr) {
    UnmapSharedRange(&records_, range_);
    return;
  }
  records_.happened.store(records_.asked_for.load());
  owner_->GiveSlotBack(range_.offset);
}

void SharedEvent::Name(aclrtIpcEventHandle& handle) const {
  std::memset(&handle, 0, sizeof handle);
  std::snprintf(handle.reserved, sizeof handle.reserved, "cs:%x:%x:%zx", static_cast<unsigned>(range_.process),
                static_cast<unsigned>(range_.device), range_.offset);
}

bool SharedEvent::IsDone() const { return records_.happened.load() >= records_.asked_for.load(); }

void SharedEvent::Await() const {
  AwaitCount(records_, records_.asked_for.load());
  MeetOtherProcesses();
}

Task SharedEvent::RecordTask(std::shared_ptr<SharedEvent> event) {
  const uint64_t count = ++event->records_.asked_for;
  return MakeTask(TaskKind::kEventRecord, [event = std::move(event), count] {
    MeetOtherProcesses();
    uint64_t happened = event->records_.happened.load();
    while (happened < count && !event->records_.happened.compare_exchange_weak(happened, count)) {
    }
  });
}

Task SharedEvent::WaitTask(std::shared_ptr<SharedEvent> event) {
  const uint64_t count = event->records_.asked_for.load();
  return MakeTask(TaskKind::kEventWait,
                  [event = std::move(event), count] {
                    AwaitCount(event->records_, count);
                    MeetOtherProcesses();
                  });
}

aclError CreateSharedEvent(aclrtEvent* event, uint32_t flags) {
  CANN_SIM_REQUIRE_USABLE("aclrtCreateEventExWithFlag");
  CANN_SIM_REQUIRE_POINTER("aclrtCreateEventExWithFlag", event);
  if (flags != ACL_EVENT_IPC) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtCreateEventExWithFlag: ACL_EVENT_IPC goes with no other flag, found " +
                                                std::to_string(flags));
  }
  Device* device = CurrentDevice();
  if (device == nullptr) {
    return Fail(ACL_ERROR_RT_CONTEXT_NULL, "aclrtCreateEventExWithFlag: no device is set on this thread");
  }
  std::shared_ptr<SharedEvent> shared = SharedEvent::Make(*device);
  if (shared == nullptr) {
    return Fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtCreateEventExWithFlag: there is no memory left to share the event in");
  }
  *event = new Event(flags, true, std::move(shared));
  return ACL_SUCCESS;
}

}  // namespace cann_sim

extern "C" {

aclError aclrtIpcGetEventHandle(aclrtEvent handle, aclrtIpcEventHandle* name) {
  CANN_SIM_REQUIRE_POINTER("aclrtIpcGetEventHandle", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtIpcGetEventHandle", name);
  const cann_sim::Event& event = *static_cast<cann_sim::Event*>(handle);
  if (event.shared == nullptr) {
    return cann_sim::Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtIpcGetEventHandle: expected an event made with ACL_EVENT_IPC");
  }
  event.shared->Name(*name);
  return ACL_SUCCESS;
}

aclError aclrtIpcOpenEventHandle(aclrtIpcEventHandle name, aclrtEvent* event) {
  CANN_SIM_REQUIRE_USABLE("aclrtIpcOpenEventHandle");
  CANN_SIM_REQUIRE_POINTER("aclrtIpcOpenEventHandle", event);
  std::shared_ptr<cann_sim::SharedEvent> shared = cann_sim::SharedEvent::Open(name);
  if (shared == nullptr) {
    return cann_sim::Fail(ACL_ERROR_RT_PARAM_INVALID,
                "aclrtIpcOpenEventHandle: expected the handle of an event of a process that still runs");
  }
  *event = new cann_sim::Event(ACL_EVENT_IPC, true, std::move(shared));
  return ACL_SUCCESS;
}

}  // extern "C"
