// How many cores a device, a stream or a thread may use. A simulated device computes the same with any number; the limits
// are stored and returned, because operators and engines plan by them.

#include <acl/acl_rt.h>

#include <array>
#include <map>
#include <mutex>
#include <optional>

#include "device.h"
#include "error_message.h"
#include "soc.h"

namespace {

using cann_sim::Device;
using cann_sim::Fail;
using cann_sim::Stream;

int64_t CoresOf(aclrtDevResLimitType type) {
  return type == ACL_RT_DEV_RES_CUBE_CORE ? cann_sim::TheSoc().cube_cores : cann_sim::TheSoc().vector_cores;
}

using Limits = std::array<std::optional<uint32_t>, 2>;  // by type; empty where none is set

struct ResourceLimits {
  std::mutex mutex;
  std::map<const Device*, Limits> by_device;
  std::map<const Stream*, Limits> by_stream;
};

ResourceLimits& TheResourceLimits() {
  static auto* limits = new ResourceLimits;
  return *limits;
}

thread_local const Stream* stream_in_use = nullptr;

aclError CheckType(const char* function, aclrtDevResLimitType type) {
  return type == ACL_RT_DEV_RES_CUBE_CORE || type == ACL_RT_DEV_RES_VECTOR_CORE
             ? ACL_SUCCESS
             : Fail(ACL_ERROR_RT_PARAM_INVALID,
                    std::string(function) + ": expected the type 0 or 1, found " + std::to_string(type));
}

aclError Check(const char* function, aclrtDevResLimitType type, uint32_t value) {
  const aclError error = CheckType(function, type);
  if (error != ACL_SUCCESS || value <= CoresOf(type)) {
    return error;
  }
  return Fail(ACL_ERROR_RT_PARAM_INVALID, std::string(function) + ": expected at most " + std::to_string(CoresOf(type)) +
                                              " cores, found " + std::to_string(value));
}

aclError FindDeviceOrFail(const char* function, int32_t id, Device*& device) {
  device = cann_sim::FindDevice(id);
  return device != nullptr ? ACL_SUCCESS
                           : Fail(ACL_ERROR_RT_INVALID_DEVICEID,
                                  std::string(function) + ": there is no device " + std::to_string(id));
}

template <class Key>
std::optional<uint32_t> FindLimit(const std::map<const Key*, Limits>& limits, const Key* key, aclrtDevResLimitType type) {
  const auto found = limits.find(key);
  return found == limits.end() ? std::nullopt : found->second[type];
}

// What is set for the stream, else for its device, else all cores.
uint32_t Effective(const Stream* stream, const Device& device, aclrtDevResLimitType type) {
  ResourceLimits& limits = TheResourceLimits();
  const std::lock_guard<std::mutex> lock(limits.mutex);
  std::optional<uint32_t> value = stream == nullptr ? std::nullopt : FindLimit(limits.by_stream, stream, type);
  if (!value.has_value()) {
    value = FindLimit(limits.by_device, &device, type);
  }
  return value.value_or(static_cast<uint32_t>(CoresOf(type)));
}

}  // namespace

extern "C" {

aclError aclrtSetDeviceResLimit(int32_t id, aclrtDevResLimitType type, uint32_t value) {
  Device* device = nullptr;
  aclError error = FindDeviceOrFail("aclrtSetDeviceResLimit", id, device);
  error = error != ACL_SUCCESS ? error : Check("aclrtSetDeviceResLimit", type, value);
  if (error == ACL_SUCCESS) {
    const std::lock_guard<std::mutex> lock(TheResourceLimits().mutex);
    TheResourceLimits().by_device[device][type] = value;
  }
  return error;
}

aclError aclrtGetDeviceResLimit(int32_t id, aclrtDevResLimitType type, uint32_t* value) {
  CANN_SIM_REQUIRE_POINTER("aclrtGetDeviceResLimit", value);
  Device* device = nullptr;
  aclError error = FindDeviceOrFail("aclrtGetDeviceResLimit", id, device);
  error = error != ACL_SUCCESS ? error : CheckType("aclrtGetDeviceResLimit", type);
  if (error == ACL_SUCCESS) {
    *value = Effective(nullptr, *device, type);
  }
  return error;
}

aclError aclrtResetDeviceResLimit(int32_t id) {
  Device* device = nullptr;
  const aclError error = FindDeviceOrFail("aclrtResetDeviceResLimit", id, device);
  if (error == ACL_SUCCESS) {
    const std::lock_guard<std::mutex> lock(TheResourceLimits().mutex);
    TheResourceLimits().by_device.erase(device);
  }
  return error;
}

aclError aclrtSetStreamResLimit(aclrtStream handle, aclrtDevResLimitType type, uint32_t value) {
  CANN_SIM_FIND_STREAM(stream, "aclrtSetStreamResLimit", handle);
  const aclError error = Check("aclrtSetStreamResLimit", type, value);
  if (error == ACL_SUCCESS) {
    const std::lock_guard<std::mutex> lock(TheResourceLimits().mutex);
    TheResourceLimits().by_stream[stream][type] = value;
  }
  return error;
}

aclError aclrtGetStreamResLimit(aclrtStream handle, aclrtDevResLimitType type, uint32_t* value) {
  CANN_SIM_FIND_STREAM(stream, "aclrtGetStreamResLimit", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtGetStreamResLimit", value);
  const aclError error = CheckType("aclrtGetStreamResLimit", type);
  if (error == ACL_SUCCESS) {
    *value = Effective(stream, stream->device, type);
  }
  return error;
}

aclError aclrtResetStreamResLimit(aclrtStream handle) {
  CANN_SIM_FIND_STREAM(stream, "aclrtResetStreamResLimit", handle);
  const std::lock_guard<std::mutex> lock(TheResourceLimits().mutex);
  TheResourceLimits().by_stream.erase(stream);
  return ACL_SUCCESS;
}

aclError aclrtUseStreamResInCurrentThread(aclrtStream handle) {
  CANN_SIM_FIND_STREAM(stream, "aclrtUseStreamResInCurrentThread", handle);
  stream_in_use = stream;
  return ACL_SUCCESS;
}

aclError aclrtUnuseStreamResInCurrentThread(aclrtStream handle) {
  CANN_SIM_FIND_STREAM(stream, "aclrtUnuseStreamResInCurrentThread", handle);
  if (stream_in_use == stream) {
    stream_in_use = nullptr;
  }
  return ACL_SUCCESS;
}

aclError aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t* value) {
  CANN_SIM_REQUIRE_POINTER("aclrtGetResInCurrentThread", value);
  if (const aclError error = CheckType("aclrtGetResInCurrentThread", type); error != ACL_SUCCESS) {
    return error;
  }
  const Device* device = cann_sim::CurrentDevice();
  if (device == nullptr) {
    return Fail(ACL_ERROR_RT_CONTEXT_NULL, "aclrtGetResInCurrentThread: no device is set on this thread");
  }
  *value = Effective(stream_in_use, *device, type);
  return ACL_SUCCESS;
}

}  // extern "C"
