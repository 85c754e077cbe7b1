// Making, destroying, synchronising and querying streams and devices.

#include <acl/acl_rt.h>

#include <chrono>

#include "capture.h"
#include "counters.h"
#include "device.h"
#include "error_message.h"
#include "faults.h"
#include "submission.h"

namespace {

using cann_sim::Device;
using cann_sim::Fail;
using cann_sim::Stream;

aclError CreateStream(const char* function, aclrtStream* handle, uint32_t priority) {
  CANN_SIM_REQUIRE_USABLE(function);
  CANN_SIM_REQUIRE_POINTER(function, handle);
  Device* device = cann_sim::CurrentDevice();
  if (device == nullptr) {
    return Fail(ACL_ERROR_RT_CONTEXT_NULL, std::string(function) + ": no device is set on this thread");
  }
  if (const aclError error = cann_sim::InjectFault(cann_sim::Fault::kStream, ACL_ERROR_RT_NO_STREAM_RESOURCE, function);
      error != ACL_SUCCESS) {
    *handle = nullptr;
    return error;
  }
  *handle = device->CreateStream(priority);
  if (*handle == nullptr) {
    return Fail(ACL_ERROR_RT_NO_STREAM_RESOURCE,
                std::string(function) + ": the stream resource of device " + std::to_string(device->id) +
                    " is insufficient; destroy graphs or streams (CANN_SIM_STREAMS sets the limit)");
  }
  return ACL_SUCCESS;
}

aclError Synchronize(const char* function, aclrtStream handle, int32_t milliseconds) {
  CANN_SIM_FIND_STREAM(stream, function, handle);
  if (const aclError error = cann_sim::RefuseWhileCapturing(function, *stream, "a synchronisation"); error != ACL_SUCCESS) {
    return error;
  }
  ++cann_sim::TheCounters().synchronisations;
  return stream->Synchronize(milliseconds);
}

aclError SynchronizeDevice(const char* function, int32_t milliseconds) {
  CANN_SIM_REQUIRE_USABLE(function);
  Device* device = cann_sim::CurrentDevice();
  if (device == nullptr) {
    return Fail(ACL_ERROR_RT_CONTEXT_NULL, std::string(function) + ": no device is set on this thread");
  }
  const std::vector<Stream*> streams = device->Streams();
  for (Stream* stream : streams) {
    if (const aclError error = cann_sim::RefuseWhileCapturing(function, *stream, "a device synchronisation");
        error != ACL_SUCCESS) {
      return error;
    }
  }
  ++cann_sim::TheCounters().synchronisations;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  aclError result = ACL_SUCCESS;
  for (Stream* stream : streams) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    const int32_t limit = milliseconds < 0 ? -1 : static_cast<int32_t>(std::max<int64_t>(left.count(), 0));
    const aclError error = stream->Synchronize(limit);
    result = result == ACL_SUCCESS ? error : result;
  }
  return result;
}

aclError Destroy(const char* function, aclrtStream handle, bool drain) {
  CANN_SIM_REQUIRE_POINTER(function, handle);
  CANN_SIM_FIND_STREAM(stream, function, handle);
  if (const aclError error = cann_sim::RefuseWhileCapturing(function, *stream, "destroying the stream");
      error != ACL_SUCCESS) {
    return error;
  }
  const aclError error = drain ? stream->Synchronize(-1) : ACL_SUCCESS;
  stream->device.DestroyStream(*stream);
  return error;
}

}  // namespace

extern "C" {

aclError aclrtGetStreamAvailableNum(uint32_t* count) {
  CANN_SIM_REQUIRE_USABLE("aclrtGetStreamAvailableNum");
  CANN_SIM_REQUIRE_POINTER("aclrtGetStreamAvailableNum", count);
  Device* device = cann_sim::CurrentDevice();
  if (device == nullptr) {
    return Fail(ACL_ERROR_RT_CONTEXT_NULL, "aclrtGetStreamAvailableNum: no device is set on this thread");
  }
  *count = static_cast<uint32_t>(device->FreeStreams());
  return ACL_SUCCESS;
}

aclError aclrtCreateStream(aclrtStream* stream) { return CreateStream("aclrtCreateStream", stream, 0); }

aclError aclrtCreateStreamWithConfig(aclrtStream* stream, uint32_t priority, uint32_t /*flag*/) {
  return CreateStream("aclrtCreateStreamWithConfig", stream, priority);
}

aclError aclrtDestroyStream(aclrtStream stream) { return Destroy("aclrtDestroyStream", stream, true); }

aclError aclrtDestroyStreamForce(aclrtStream stream) { return Destroy("aclrtDestroyStreamForce", stream, false); }

aclError aclrtSynchronizeStream(aclrtStream stream) { return Synchronize("aclrtSynchronizeStream", stream, -1); }

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t milliseconds) {
  return Synchronize("aclrtSynchronizeStreamWithTimeout", stream, milliseconds);
}

aclError aclrtSynchronizeDevice() { return SynchronizeDevice("aclrtSynchronizeDevice", -1); }

aclError aclrtSynchronizeDeviceWithTimeout(int32_t milliseconds) {
  return SynchronizeDevice("aclrtSynchronizeDeviceWithTimeout", milliseconds);
}

aclError aclrtStreamQuery(aclrtStream handle, aclrtStreamStatus* status) {
  CANN_SIM_FIND_STREAM(stream, "aclrtStreamQuery", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtStreamQuery", status);
  if (const aclError error = cann_sim::RefuseWhileCapturing("aclrtStreamQuery", *stream, "a query"); error != ACL_SUCCESS) {
    return error;
  }
  cann_sim::TheSchedule().HostPoint(1);
  *status = stream->Idle() ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
  return ACL_SUCCESS;
}

aclError aclrtStreamGetId(aclrtStream handle, int32_t* id) {
  CANN_SIM_FIND_STREAM(stream, "aclrtStreamGetId", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtStreamGetId", id);
  *id = stream->id;
  return ACL_SUCCESS;
}

// To stop at a failure is a matter of the context, which is the device: one stream that requests it does so for all.
aclError aclrtSetStreamFailureMode(aclrtStream handle, uint64_t mode) {
  CANN_SIM_FIND_STREAM(stream, "aclrtSetStreamFailureMode", handle);
  if (mode > ACL_STOP_ON_FAILURE) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtSetStreamFailureMode: expected 0 or 1 on stream " +
                                                std::to_string(stream->id) + ", found " + std::to_string(mode));
  }
  if (mode == ACL_STOP_ON_FAILURE) {
    stream->device.stop.AskFor();
  }
  return ACL_SUCCESS;
}

// The following settings have no effect on what a simulated device computes; they are accepted.

aclError aclrtSetStreamAttribute(aclrtStream handle, aclrtStreamAttr /*attribute*/, aclrtStreamAttrValue* value) {
  CANN_SIM_FIND_STREAM(stream, "aclrtSetStreamAttribute", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtSetStreamAttribute", value);
  return ACL_SUCCESS;
}

aclError aclrtSetStreamOverflowSwitch(aclrtStream handle, uint32_t /*flag*/) {
  CANN_SIM_FIND_STREAM(stream, "aclrtSetStreamOverflowSwitch", handle);
  return ACL_SUCCESS;
}

aclError aclrtGetStreamOverflowSwitch(aclrtStream handle, uint32_t* flag) {
  CANN_SIM_FIND_STREAM(stream, "aclrtGetStreamOverflowSwitch", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtGetStreamOverflowSwitch", flag);
  *flag = 0;
  return ACL_SUCCESS;
}

aclError aclrtSetOpWaitTimeout(uint32_t /*seconds*/) { return ACL_SUCCESS; }

aclError aclrtSetOpExecuteTimeOut(uint32_t /*seconds*/) { return ACL_SUCCESS; }

// A device answers with the next limit that its clock can measure; here any can be.
aclError aclrtSetOpExecuteTimeOutV2(uint64_t microseconds, uint64_t* actual) {
  CANN_SIM_REQUIRE_POINTER("aclrtSetOpExecuteTimeOutV2", actual);
  *actual = microseconds;
  return ACL_SUCCESS;
}

aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
  return mode == ACL_RT_OVERFLOW_MODE_INFNAN
             ? ACL_SUCCESS
             : Fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                    "aclrtSetDeviceSatMode: only the mode that keeps infinities and NaN is simulated");
}

}  // extern "C"
