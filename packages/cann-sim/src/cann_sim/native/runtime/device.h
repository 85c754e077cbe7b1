// Devices of the process and the one that is current on each thread.
#pragma once

#include <acl/acl_rt.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "stream.h"

namespace cann_sim {

struct Device {
  explicit Device(int32_t id) : id(id) {}

  const int32_t id;
  std::atomic<bool> active{false};  // once it was current on some thread
  DeviceStop stop;

  Stream& DefaultStream();
  // Null where the stream limit is reached.
  Stream* CreateStream(uint32_t priority);
  // The worker of the stream ends; the object stays, so that later use of the handle is refused and not undefined.
  void DestroyStream(Stream& stream);
  std::vector<Stream*> Streams();
  size_t BusyStreams();
  // Ends the naps of workers that have tasks.
  void WakeWorkers();

  // Whether it stopped at a failure, or hangs and this was reported to the host.
  bool MustRestart();
  // Ends the tasks that run, drops those that were given, and lets the device work again after a failure.
  void AbortTasks();

  // Streams that captured graphs hold, which count towards the limit. False where the limit is reached.
  bool HoldGraphStream();
  void ReleaseGraphStream();
  // Streams that can still be created or captured.
  size_t FreeStreams();

 private:
  std::mutex mutex_;
  Stream* default_stream_ = nullptr;
  std::vector<Stream*> streams_;
  std::vector<Stream*> destroyed_;
  size_t graph_streams_ = 0;
  int32_t next_stream_id_ = 0;
};

// The device of the thread, or null before aclrtSetDevice.
Device* CurrentDevice();
// The device with this number, or null where there is none.
Device* FindDevice(int32_t id);
// How many streams of all devices have tasks, those among them that were destroyed while a task of theirs ran.
size_t BusyStreams();
// Lets the workers of all streams of all devices end.
void StopStreams();

}  // namespace cann_sim
