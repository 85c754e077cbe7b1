// Copying and setting memory, at once or in the order of a stream.

#include <acl/acl_rt.h>

#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "capture.h"
#include "clock/virtual_time.h"
#include "counters.h"
#include "device.h"
#include "error_message.h"
#include "memory.h"
#include "memory_check.h"
#include "monitor.h"
#include "submission.h"

namespace {

using cann_sim::Fail;
using cann_sim::MakeTask;
using cann_sim::MemoryAccess;
using cann_sim::MemoryPlace;
using cann_sim::PlaceOf;
using cann_sim::Stream;
using cann_sim::StreamState;
using cann_sim::TaskKind;

aclError CheckSize(const char* function, size_t room, size_t bytes) {
  if (bytes <= room) {
    return ACL_SUCCESS;
  }
  return Fail(ACL_ERROR_RT_PARAM_INVALID, std::string(function) + ": " + std::to_string(bytes) +
                                              " bytes do not fit into a destination of " + std::to_string(room));
}

aclError CheckPlace(const char* function, const char* what, const void* address, bool on_device) {
  if ((PlaceOf(address) == MemoryPlace::kDevice) == on_device || (on_device && cann_sim::IsMappedHost(address))) {
    return ACL_SUCCESS;
  }
  return Fail(ACL_ERROR_RT_PARAM_INVALID, std::string(function) + ": the kind of copy says that the " + what + " is " +
                                              (on_device ? "device" : "host") + " memory, which it is not");
}

aclError CheckPlaces(const char* function, const void* destination, const void* source, aclrtMemcpyKind kind) {
  if (kind == ACL_MEMCPY_DEFAULT || kind == ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE) {
    return ACL_SUCCESS;
  }
  const bool to_device = kind != ACL_MEMCPY_HOST_TO_HOST && kind != ACL_MEMCPY_DEVICE_TO_HOST;
  const bool from_device = kind != ACL_MEMCPY_HOST_TO_HOST && kind != ACL_MEMCPY_HOST_TO_DEVICE;
  const aclError error = CheckPlace(function, "destination", destination, to_device);
  return error != ACL_SUCCESS ? error : CheckPlace(function, "source", source, from_device);
}

// In virtual time; 0 where there is none.
int64_t TimeOfCopy(const void* destination, const void* source, size_t bytes) {
  return cann_sim::clock::kIsOn
             ? cann_sim::clock::CopyTime(
                   bytes, PlaceOf(destination) != MemoryPlace::kDevice || PlaceOf(source) != MemoryPlace::kDevice)
             : 0;
}

std::vector<MemoryAccess> AccessesOfCopy(void* destination, const void* source, size_t bytes) {
  return {MemoryAccess::Bytes("source", source, bytes, false), MemoryAccess::Bytes("destination", destination, bytes, true)};
}

// What the host would do with memory that the device still uses.
aclError CheckHostAccess(const char* function, std::vector<MemoryAccess> accesses) {
  const std::string mistake = cann_sim::FindHostMistake(function, std::move(accesses));
  return mistake.empty() ? ACL_SUCCESS : Fail(ACL_ERROR_RT_AICORE_EXCEPTION, mistake);
}

// Gives a copy or a set of memory to the stream.
aclError SubmitAccess(const char* function, Stream& stream, TaskKind kind, std::vector<MemoryAccess> accesses,
                      std::function<void()> run) {
  const bool captured = stream.state.load() == StreamState::kCapturing;
  return cann_sim::Submit(function, stream,
                          MakeTask(kind, cann_sim::Checked(function, std::move(accesses), captured, std::move(run))));
}

void Count(size_t bytes, bool blocking) {
  cann_sim::Counters& counters = cann_sim::TheCounters();
  ++counters.copies;
  counters.blocking_copies += blocking ? 1 : 0;
  counters.copied_bytes += bytes;
}

aclError CopyNow(const char* function, void* destination, size_t room, const void* source, size_t bytes,
                 aclrtMemcpyKind kind) {
  CANN_SIM_REQUIRE_USABLE(function);
  CANN_SIM_REQUIRE_POINTER(function, destination);
  CANN_SIM_REQUIRE_POINTER(function, source);
  aclError error = cann_sim::RefuseBlockingCall(function);
  error = error != ACL_SUCCESS ? error : CheckSize(function, room, bytes);
  error = error != ACL_SUCCESS ? error : CheckPlaces(function, destination, source, kind);
  error = error != ACL_SUCCESS ? error : CheckHostAccess(function, AccessesOfCopy(destination, source, bytes));
  if (error != ACL_SUCCESS) {
    return error;
  }
  Count(bytes, true);
  {
    const cann_sim::clock::HostWait waiting;
    std::memmove(destination, source, bytes);
  }
  cann_sim::clock::Spend(TimeOfCopy(destination, source, bytes));
  cann_sim::TheMonitor().MemoryChanged();
  return ACL_SUCCESS;
}

// A copy from or to pageable memory cannot run behind the host's back: the stream is drained and the copy done at once.
aclError CopyPageable(const char* function, Stream& stream, void* destination, size_t room, const void* source,
                      size_t bytes, aclrtMemcpyKind kind) {
  if (stream.state.load() == StreamState::kCapturing) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, std::string(function) + ": a copy of pageable host memory cannot be captured on stream " +
                                                std::to_string(stream.id) + "; use pinned memory");
  }
  aclError error = stream.Synchronize(-1);
  error = error != ACL_SUCCESS ? error : CopyNow(function, destination, room, source, bytes, kind);
  return error == ACL_ERROR_RT_CAPTURE_MODE_NOT_SUPPORT ? ACL_ERROR_RT_CAPTURE_MODE_BLOCK_ASYNC : error;
}

aclError CopyInStream(const char* function, void* destination, size_t room, const void* source, size_t bytes,
                      aclrtMemcpyKind kind, aclrtStream handle) {
  CANN_SIM_FIND_STREAM(stream, function, handle);
  CANN_SIM_REQUIRE_POINTER(function, destination);
  CANN_SIM_REQUIRE_POINTER(function, source);
  aclError error = CheckSize(function, room, bytes);
  error = error != ACL_SUCCESS ? error : CheckPlaces(function, destination, source, kind);
  if (error != ACL_SUCCESS) {
    return error;
  }
  if (PlaceOf(destination) == MemoryPlace::kUnknown || PlaceOf(source) == MemoryPlace::kUnknown) {
    return CopyPageable(function, *stream, destination, room, source, bytes, kind);
  }
  error = SubmitAccess(function, *stream, TaskKind::kMemoryCopy, AccessesOfCopy(destination, source, bytes),
                       [=, time = TimeOfCopy(destination, source, bytes)] {
                         std::memmove(destination, source, bytes);
                         cann_sim::clock::Spend(time);
                       });
  if (error == ACL_SUCCESS) {
    Count(bytes, false);
  }
  return error;
}

// The copies of a batch in turn, to the first that is refused, whose number is written to `failed`.
template <class Copy>
aclError CopyBatch(const char* function, size_t count, size_t* failed, const Copy& copy) {
  CANN_SIM_REQUIRE_POINTER(function, failed);
  *failed = SIZE_MAX;
  for (size_t index = 0; index < count; ++index) {
    if (const aclError error = copy(index); error != ACL_SUCCESS) {
      *failed = index;
      return error;
    }
  }
  return ACL_SUCCESS;
}

}  // namespace

extern "C" {

aclError aclrtMemcpy(void* destination, size_t room, const void* source, size_t bytes, aclrtMemcpyKind kind) {
  return CopyNow("aclrtMemcpy", destination, room, source, bytes, kind);
}

aclError aclrtMemcpyAsync(void* destination, size_t room, const void* source, size_t bytes, aclrtMemcpyKind kind,
                          aclrtStream stream) {
  return CopyInStream("aclrtMemcpyAsync", destination, room, source, bytes, kind, stream);
}

aclError aclrtMemcpyAsyncWithCondition(void* destination, size_t room, const void* source, size_t bytes,
                                       aclrtMemcpyKind kind, aclrtStream stream) {
  return CopyInStream("aclrtMemcpyAsyncWithCondition", destination, room, source, bytes, kind, stream);
}

// The places that the attributes name are those of the addresses.
aclError aclrtMemcpyBatch(void** destinations, size_t* rooms, void** sources, size_t* sizes, size_t count,
                          aclrtMemcpyBatchAttr* /*attributes*/, size_t* /*indexes*/, size_t /*attribute_count*/,
                          size_t* failed) {
  return CopyBatch("aclrtMemcpyBatch", count, failed, [&](size_t index) {
    return CopyNow("aclrtMemcpyBatch", destinations[index], rooms[index], sources[index], sizes[index], ACL_MEMCPY_DEFAULT);
  });
}

aclError aclrtMemcpyBatchAsync(void** destinations, size_t* rooms, void** sources, size_t* sizes, size_t count,
                               aclrtMemcpyBatchAttr* /*attributes*/, size_t* /*indexes*/, size_t /*attribute_count*/,
                               size_t* failed, aclrtStream stream) {
  return CopyBatch("aclrtMemcpyBatchAsync", count, failed, [&](size_t index) {
    return CopyInStream("aclrtMemcpyBatchAsync", destinations[index], rooms[index], sources[index], sizes[index],
                        ACL_MEMCPY_DEFAULT, stream);
  });
}

aclError aclrtMemset(void* address, size_t room, int32_t value, size_t bytes) {
  CANN_SIM_REQUIRE_USABLE("aclrtMemset");
  CANN_SIM_REQUIRE_POINTER("aclrtMemset", address);
  aclError error = cann_sim::RefuseBlockingCall("aclrtMemset");
  error = error != ACL_SUCCESS ? error : CheckSize("aclrtMemset", room, bytes);
  error = error != ACL_SUCCESS ? error : CheckHostAccess("aclrtMemset", {MemoryAccess::Bytes("destination", address, bytes, true)});
  if (error == ACL_SUCCESS) {
    std::memset(address, value, bytes);
    cann_sim::TheMonitor().MemoryChanged();
  }
  return error;
}

aclError aclrtMemsetAsync(void* address, size_t room, int32_t value, size_t bytes, aclrtStream handle) {
  CANN_SIM_FIND_STREAM(stream, "aclrtMemsetAsync", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtMemsetAsync", address);
  if (const aclError error = CheckSize("aclrtMemsetAsync", room, bytes); error != ACL_SUCCESS) {
    return error;
  }
  return SubmitAccess("aclrtMemsetAsync", *stream, TaskKind::kMemorySet,
                      {MemoryAccess::Bytes("destination", address, bytes, true)},
                      [=, time = cann_sim::clock::CopyTime(bytes / 2, false)] {
                        std::memset(address, value, bytes);
                        cann_sim::clock::Spend(time);
                      });
}

// A hint for the cache: nothing that a simulated device could do.
aclError aclrtCmoAsync(void* /*source*/, size_t /*bytes*/, aclrtCmoType /*type*/, aclrtStream handle) {
  CANN_SIM_FIND_STREAM(stream, "aclrtCmoAsync", handle);
  return ACL_SUCCESS;
}

}  // extern "C"
