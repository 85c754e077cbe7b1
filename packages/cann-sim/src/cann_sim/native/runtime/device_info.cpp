// What the simulated device says of itself.

#include <acl/acl_rt.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "configuration.h"
#include "device.h"
#include "error_message.h"
#include "memory.h"
#include "soc.h"

namespace {

using cann_sim::Fail;
using cann_sim::TheSoc;

aclError CheckDevice(const char* function, int32_t id) {
  return cann_sim::FindDevice(id) != nullptr
             ? ACL_SUCCESS
             : Fail(ACL_ERROR_RT_INVALID_DEVICEID, std::string(function) + ": there is no device " + std::to_string(id));
}

}  // namespace

extern "C" {

const char* aclrtGetSocName() { return TheSoc().name; }

aclError aclGetDeviceCapability(uint32_t device, aclDeviceInfo info, int64_t* value) {
  CANN_SIM_REQUIRE_POINTER("aclGetDeviceCapability", value);
  switch (info) {
    case ACL_DEVICE_INFO_AI_CORE_NUM: *value = TheSoc().cube_cores; break;
    case ACL_DEVICE_INFO_VECTOR_CORE_NUM: *value = TheSoc().vector_cores; break;
    case ACL_DEVICE_INFO_L2_SIZE: *value = TheSoc().level_2_cache_bytes; break;
    default:
      return Fail(ACL_ERROR_INVALID_PARAM, "aclGetDeviceCapability: unknown information " + std::to_string(info));
  }
  return CheckDevice("aclGetDeviceCapability", static_cast<int32_t>(device));
}

aclError aclrtGetDeviceInfo(uint32_t device, aclrtDevAttr attribute, int64_t* value) {
  CANN_SIM_REQUIRE_POINTER("aclrtGetDeviceInfo", value);
  switch (attribute) {
    case ACL_DEV_ATTR_AICORE_CORE_NUM:
    case ACL_DEV_ATTR_CUBE_CORE_NUM: *value = TheSoc().cube_cores; break;
    case ACL_DEV_ATTR_VECTOR_CORE_NUM: *value = TheSoc().vector_cores; break;
    case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE:
      *value = static_cast<int64_t>(cann_sim::configuration::DeviceMemoryBytes());
      break;
    case ACL_DEV_ATTR_L2_CACHE_SIZE: *value = TheSoc().level_2_cache_bytes; break;
    case ACL_DEV_ATTR_PHY_CHIP_ID: *value = device; break;
    case ACL_DEV_ATTR_IS_VIRTUAL: *value = 0; break;
    default:
      return Fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT,
                  "aclrtGetDeviceInfo: attribute " + std::to_string(attribute) + " is not simulated");
  }
  return CheckDevice("aclrtGetDeviceInfo", static_cast<int32_t>(device));
}

aclError aclGetCannAttributeList(const aclCannAttr** list, size_t* count) {
  CANN_SIM_REQUIRE_POINTER("aclGetCannAttributeList", list);
  CANN_SIM_REQUIRE_POINTER("aclGetCannAttributeList", count);
  static const aclCannAttr attributes[] = {ACL_CANN_ATTR_INF_NAN, ACL_CANN_ATTR_BF16};
  *list = attributes;
  *count = std::size(attributes) - (TheSoc().is_inference_product ? 1 : 0);
  return ACL_SUCCESS;
}

// 1 for infinities and NaN, and for bfloat16 where the SoC has it; 0 for compiling operators when they are called.
aclError aclGetCannAttribute(aclCannAttr attribute, int32_t* value) {
  CANN_SIM_REQUIRE_POINTER("aclGetCannAttribute", value);
  *value = attribute == ACL_CANN_ATTR_INF_NAN || (attribute == ACL_CANN_ATTR_BF16 && !TheSoc().is_inference_product);
  return ACL_SUCCESS;
}

aclError aclrtDeviceGetUuid(int32_t device, aclrtUuid* uuid) {
  CANN_SIM_REQUIRE_POINTER("aclrtDeviceGetUuid", uuid);
  std::memset(uuid, 0, sizeof *uuid);
  std::memcpy(uuid, &device, sizeof device);
  return CheckDevice("aclrtDeviceGetUuid", device);
}

// A device that has work is fully used, as far as can be said.
aclError aclrtGetDeviceUtilizationRate(int32_t id, aclrtUtilizationInfo* information) {
  CANN_SIM_REQUIRE_POINTER("aclrtGetDeviceUtilizationRate", information);
  cann_sim::Device* device = cann_sim::FindDevice(id);
  if (device == nullptr) {
    return CheckDevice("aclrtGetDeviceUtilizationRate", id);
  }
  const std::vector<cann_sim::Stream*> streams = device->Streams();
  const bool busy = std::any_of(streams.begin(), streams.end(), [](cann_sim::Stream* stream) { return !stream->Idle(); });
  const size_t total = cann_sim::configuration::DeviceMemoryBytes();
  information->cubeUtilization = busy ? 100 : 0;
  information->vectorUtilization = busy ? 100 : 0;
  information->aicpuUtilization = 0;
  information->memoryUtilization = static_cast<int32_t>(cann_sim::UsedMemory(*device) * 100 / total);
  return ACL_SUCCESS;
}

aclError aclrtDeviceGetBareTgid(int32_t* process) {
  CANN_SIM_REQUIRE_POINTER("aclrtDeviceGetBareTgid", process);
  *process = getpid();
  return ACL_SUCCESS;
}

}  // extern "C"
