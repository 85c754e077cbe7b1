// What the simulated device says of itself: an Ascend 910B1.

#include <acl/acl_rt.h>
#include <unistd.h>

#include <cstring>

#include "configuration.h"
#include "device.h"
#include "error_message.h"

namespace {

using cann_sim::Fail;

constexpr int64_t kCubeCores = 24;
constexpr int64_t kVectorCores = 48;
constexpr int64_t kLevel2CacheBytes = 192LL << 20;

aclError CheckDevice(const char* function, int32_t id) {
  return cann_sim::FindDevice(id) != nullptr
             ? ACL_SUCCESS
             : Fail(ACL_ERROR_RT_INVALID_DEVICEID, std::string(function) + ": there is no device " + std::to_string(id));
}

aclError CoresOf(const char* function, aclrtDevResLimitType type, uint32_t* value) {
  CANN_SIM_REQUIRE_POINTER(function, value);
  *value = static_cast<uint32_t>(type == ACL_RT_DEV_RES_CUBE_CORE ? kCubeCores : kVectorCores);
  return ACL_SUCCESS;
}

}  // namespace

extern "C" {

const char* aclrtGetSocName() { return "Ascend910B1"; }

aclError aclGetDeviceCapability(uint32_t device, aclDeviceInfo info, int64_t* value) {
  CANN_SIM_REQUIRE_POINTER("aclGetDeviceCapability", value);
  switch (info) {
    case ACL_DEVICE_INFO_AI_CORE_NUM: *value = kCubeCores; break;
    case ACL_DEVICE_INFO_VECTOR_CORE_NUM: *value = kVectorCores; break;
    case ACL_DEVICE_INFO_L2_SIZE: *value = kLevel2CacheBytes; break;
    default:
      return Fail(ACL_ERROR_INVALID_PARAM, "aclGetDeviceCapability: unknown information " + std::to_string(info));
  }
  return CheckDevice("aclGetDeviceCapability", static_cast<int32_t>(device));
}

aclError aclrtGetDeviceInfo(uint32_t device, aclrtDevAttr attribute, int64_t* value) {
  CANN_SIM_REQUIRE_POINTER("aclrtGetDeviceInfo", value);
  switch (attribute) {
    case ACL_DEV_ATTR_AICORE_CORE_NUM:
    case ACL_DEV_ATTR_CUBE_CORE_NUM: *value = kCubeCores; break;
    case ACL_DEV_ATTR_VECTOR_CORE_NUM: *value = kVectorCores; break;
    case ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE:
      *value = static_cast<int64_t>(cann_sim::configuration::DeviceMemoryBytes());
      break;
    case ACL_DEV_ATTR_L2_CACHE_SIZE: *value = kLevel2CacheBytes; break;
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
  *count = std::size(attributes);
  return ACL_SUCCESS;
}

// 1 for infinities and NaN and for bfloat16; 0 for compiling operators when they are called.
aclError aclGetCannAttribute(aclCannAttr attribute, int32_t* value) {
  CANN_SIM_REQUIRE_POINTER("aclGetCannAttribute", value);
  *value = attribute == ACL_CANN_ATTR_INF_NAN || attribute == ACL_CANN_ATTR_BF16;
  return ACL_SUCCESS;
}

aclError aclrtGetDeviceResLimit(int32_t /*device*/, aclrtDevResLimitType type, uint32_t* value) {
  return CoresOf("aclrtGetDeviceResLimit", type, value);
}

aclError aclrtGetStreamResLimit(aclrtStream /*stream*/, aclrtDevResLimitType type, uint32_t* value) {
  return CoresOf("aclrtGetStreamResLimit", type, value);
}

aclError aclrtGetResInCurrentThread(aclrtDevResLimitType type, uint32_t* value) {
  return CoresOf("aclrtGetResInCurrentThread", type, value);
}

aclError aclrtDeviceGetUuid(int32_t device, aclrtUuid* uuid) {
  CANN_SIM_REQUIRE_POINTER("aclrtDeviceGetUuid", uuid);
  std::memset(uuid, 0, sizeof *uuid);
  std::memcpy(uuid, &device, sizeof device);
  return CheckDevice("aclrtDeviceGetUuid", device);
}

aclError aclrtDeviceGetBareTgid(int32_t* process) {
  CANN_SIM_REQUIRE_POINTER("aclrtDeviceGetBareTgid", process);
  *process = getpid();
  return ACL_SUCCESS;
}

}  // extern "C"
