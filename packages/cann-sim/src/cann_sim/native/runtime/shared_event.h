// An event that several processes record and wait for.
#pragma once

#include <acl/acl_rt.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "memory_file.h"
#include "stream.h"

namespace cann_sim {

// What the processes share of it, in a slot of the memory file of the process that made it. The counts never go back, also
// where a later event uses the slot, so a late wait never waits forever.
struct SharedRecords {
  std::atomic<uint64_t> asked_for;
  std::atomic<uint64_t> happened;
};

class SharedEvent {
 public:
  // A new one in the memory of the device; null where there is no room.
  static std::shared_ptr<SharedEvent> Make(Device& device);
  // The one that the handle names; null where its process does not run any more.
  static std::shared_ptr<SharedEvent> Open(const aclrtIpcEventHandle& handle);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;
  SharedEvent& operator=(const SharedEvent&) = delete;

  void Name(aclrtIpcEventHandle& handle) const;
  // Whether the latest record requested by any process has happened.
  bool IsDone() const;
  // Waits on the host, without an end where no process records.
  void Await() const;

  static Task RecordTask(std::shared_ptr<SharedEvent> event);
  static Task WaitTask(std::shared_ptr<SharedEvent> event);

 private:
  SharedEvent(const SharedRange& range, SharedRecords& records, MemoryFile* owner)
      : range_(range), records_(records), owner_(owner) {}

  const SharedRange range_;
  SharedRecords& records_;
  MemoryFile* const owner_;  // null where another process made it
};

}  // namespace cann_sim
