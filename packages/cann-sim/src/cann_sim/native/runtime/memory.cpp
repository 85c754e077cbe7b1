#include "memory.h"

#include <acl/acl_rt.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <shared_mutex>

#include "configuration.h"
#include "device.h"
#include "error_message.h"
#include "faults.h"
#include "memory_check.h"
#include "memory_file.h"
#include "written_values.h"

namespace {

using cann_sim::Device;
using cann_sim::Fail;
using cann_sim::kMemoryAlignment;
using cann_sim::MemoryPlace;

struct Range {
  size_t bytes;
  MemoryPlace place;
  Device* device;
  bool allocated;  // and not mapped or registered
  uint64_t number = 0;
  size_t guard = 0;  // bytes after it that nobody may write to
};

struct Memory {
  std::shared_mutex mutex;
  std::map<uintptr_t, Range> ranges;  // by first address
  std::map<uintptr_t, size_t> mapped_host;  // by first address
  uint64_t last_number = 0;
  std::map<const Device*, size_t> used;
  std::map<const Device*, size_t> most_used;
};

Memory& TheMemory() {
  static auto* memory = new Memory;
  return *memory;
}

// The range that holds the address, or end. With the lock held.
std::map<uintptr_t, Range>::iterator FindRange(Memory& memory, const void* address) {
  auto after = memory.ranges.upper_bound(reinterpret_cast<uintptr_t>(address));
  if (after == memory.ranges.begin()) {
    return memory.ranges.end();
  }
  --after;
  const bool inside = reinterpret_cast<uintptr_t>(address) - after->first < after->second.bytes;
  return inside ? after : memory.ranges.end();
}

// Behind each allocation, where memory is checked.
constexpr size_t kGuardBytes = 512;
constexpr int kGuard = 0xA5;

size_t RoundUpAllocation(size_t bytes) { return (bytes + kMemoryAlignment - 1) / kMemoryAlignment * kMemoryAlignment; }

aclError Allocate(const char* function, void** address, size_t bytes) {
  CANN_SIM_REQUIRE_USABLE(function);
  CANN_SIM_REQUIRE_POINTER(function, address);
  Device* device = cann_sim::CurrentDevice();
  if (device == nullptr) {
    return Fail(ACL_ERROR_RT_CONTEXT_NULL, std::string(function) + ": no device is set on this thread");
  }
  if (bytes == 0) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, std::string(function) + ": expected a size above 0");
  }
  const size_t rounded = RoundUpAllocation(bytes);
  if (const aclError error = cann_sim::InjectFault(cann_sim::Fault::kAllocation, ACL_ERROR_RT_MEMORY_ALLOCATION, function);
      error != ACL_SUCCESS) {
    return error;
  }
  if (!cann_sim::TakeMemory(*device, rounded)) {
    return cann_sim::OutOfMemory(function, *device, bytes);
  }
  cann_sim::MemoryFile& file = cann_sim::MemoryFileOf(*device);
  const size_t guard = cann_sim::configuration::ChecksMemory() ? kGuardBytes : 0;
  const std::optional<size_t> offset = file.base() == nullptr ? std::nullopt : file.Take(rounded + guard);
  if (!offset.has_value()) {
    cann_sim::GiveMemoryBack(*device, rounded);
    return Fail(ACL_ERROR_RT_MEMORY_ALLOCATION,
                std::string(function) + (file.base() == nullptr
                                             ? ": the memory of a device cannot be mapped; is there a limit of addresses "
                                               "(ulimit -v), or no memfd_create?"
                                             : ": device " + std::to_string(device->id) + " has no room for " +
                                                   std::to_string(bytes) + " bytes in one piece"));
  }
  *address = file.base() + *offset;
  cann_sim::NoteMemory(*address, rounded, MemoryPlace::kDevice, device, true);
  cann_sim::NoteNewMemory(*address, rounded);
  if (guard != 0) {
    std::memset(file.base() + *offset + rounded, kGuard, guard);
    const std::unique_lock<std::shared_mutex> lock(TheMemory().mutex);
    TheMemory().ranges[reinterpret_cast<uintptr_t>(*address)].guard = guard;
  }
  return ACL_SUCCESS;
}

aclError Free(const char* function, void* address, MemoryPlace place) {
  CANN_SIM_REQUIRE_POINTER(function, address);
  Memory& memory = TheMemory();
  Range range{};
  if (const size_t overwritten = cann_sim::OverwrittenBehind(address); overwritten != 0) {
    cann_sim::KeepMemoryMistake(std::string(function) + ": " + std::to_string(overwritten) + " bytes behind an allocation of " +
                                std::to_string(cann_sim::AllocatedBytes(address)) + " bytes were overwritten");
  }
  {
    const std::unique_lock<std::shared_mutex> lock(memory.mutex);
    const auto found = memory.ranges.find(reinterpret_cast<uintptr_t>(address));
    if (found == memory.ranges.end() || found->second.place != place || !found->second.allocated) {
      return Fail(ACL_ERROR_RT_PARAM_INVALID, std::string(function) + ": the address was not allocated by the runtime");
    }
    range = found->second;
    memory.ranges.erase(found);
  }
  cann_sim::ForgetWrittenValues(address, range.bytes);
  cann_sim::NoteFreedMemory(function, address, range.bytes);
  if (range.device == nullptr) {
    std::free(address);
    return ACL_SUCCESS;
  }
  cann_sim::MemoryFile& file = cann_sim::MemoryFileOf(*range.device);
  file.GiveBack(static_cast<size_t>(static_cast<char*>(address) - file.base()));
  cann_sim::GiveMemoryBack(*range.device, range.bytes);
  return ACL_SUCCESS;
}

}  // namespace

namespace cann_sim {

MemoryPlace PlaceOf(const void* address) {
  Memory& memory = TheMemory();
  const std::shared_lock<std::shared_mutex> lock(memory.mutex);
  const auto found = FindRange(memory, address);
  return found == memory.ranges.end() ? MemoryPlace::kUnknown : found->second.place;
}

bool IsMappedHost(const void* address) {
  Memory& memory = TheMemory();
  const std::shared_lock<std::shared_mutex> lock(memory.mutex);
  const auto number = reinterpret_cast<uintptr_t>(address);
  const auto after = memory.mapped_host.upper_bound(number);
  return after != memory.mapped_host.begin() && number - std::prev(after)->first < std::prev(after)->second;
}

Device* OwnerOf(const void* address) {
  Memory& memory = TheMemory();
  const std::shared_lock<std::shared_mutex> lock(memory.mutex);
  const auto found = FindRange(memory, address);
  return found == memory.ranges.end() ? nullptr : found->second.device;
}

bool TakeMemory(Device& device, size_t bytes) {
  Memory& memory = TheMemory();
  const std::unique_lock<std::shared_mutex> lock(memory.mutex);
  size_t& used = memory.used[&device];
  if (bytes > configuration::DeviceMemoryBytes() - used) {
    return false;
  }
  used += bytes;
  memory.most_used[&device] = std::max(memory.most_used[&device], used);
  return true;
}

void GiveMemoryBack(Device& device, size_t bytes) {
  Memory& memory = TheMemory();
  const std::unique_lock<std::shared_mutex> lock(memory.mutex);
  memory.used[&device] -= bytes;
}

size_t UsedMemory(const Device& device) {
  Memory& memory = TheMemory();
  const std::shared_lock<std::shared_mutex> lock(memory.mutex);
  const auto used = memory.used.find(&device);
  return used == memory.used.end() ? 0 : used->second;
}

size_t AllocatedBytes(const void* address) {
  Memory& memory = TheMemory();
  const std::shared_lock<std::shared_mutex> lock(memory.mutex);
  const auto found = memory.ranges.find(reinterpret_cast<uintptr_t>(address));
  return found == memory.ranges.end() || !found->second.allocated ? 0 : found->second.bytes;
}

void NoteMemory(void* address, size_t bytes, MemoryPlace place, Device* device, bool allocated) {
  Memory& memory = TheMemory();
  const std::unique_lock<std::shared_mutex> lock(memory.mutex);
  memory.ranges[reinterpret_cast<uintptr_t>(address)] = {bytes, place, device, allocated, ++memory.last_number};
}

void ForgetMemory(void* address) {
  Memory& memory = TheMemory();
  size_t bytes = 0;
  {
    const std::unique_lock<std::shared_mutex> lock(memory.mutex);
    const auto found = memory.ranges.find(reinterpret_cast<uintptr_t>(address));
    if (found == memory.ranges.end()) {
      return;
    }
    bytes = found->second.bytes;
    memory.ranges.erase(found);
  }
  NoteFreedMemory("unmapping of memory", address, bytes);
}

uint64_t AllocationOf(const void* address, size_t bytes) {
  Memory& memory = TheMemory();
  const std::shared_lock<std::shared_mutex> lock(memory.mutex);
  const uintptr_t end = reinterpret_cast<uintptr_t>(address) + bytes;
  uint64_t number = 0;
  for (auto range = FindRange(memory, address); range != memory.ranges.end(); ++range) {
    number = std::max(number, range->second.number);
    const uintptr_t range_end = range->first + range->second.bytes;
    if (range_end >= end) {
      return number;
    }
    const auto next = std::next(range);
    // Allocations are separate; only mapped memory continues.
    if (range->second.allocated || next == memory.ranges.end() || next->first != range_end || next->second.allocated) {
      return 0;
    }
  }
  return 0;
}

size_t OverwrittenBehind(const void* address) {
  Memory& memory = TheMemory();
  const std::shared_lock<std::shared_mutex> lock(memory.mutex);
  const auto range = FindRange(memory, address);
  if (range == memory.ranges.end() || range->second.guard == 0) {
    return 0;
  }
  const auto* first = reinterpret_cast<const unsigned char*>(range->first + range->second.bytes);
  return range->second.guard - static_cast<size_t>(std::count(first, first + range->second.guard, kGuard));
}

aclError OutOfMemory(const char* function, const Device& device, size_t bytes) {
  return Fail(ACL_ERROR_RT_MEMORY_ALLOCATION,
              std::string(function) + ": device " + std::to_string(device.id) + " has no " + std::to_string(bytes) +
                  " bytes left of its " + std::to_string(configuration::DeviceMemoryBytes()) +
                  " (CANN_SIM_MEMORY_GB sets the size)");
}

}  // namespace cann_sim

extern "C" {

aclError aclrtMalloc(void** address, size_t bytes, aclrtMemMallocPolicy /*policy*/) {
  return Allocate("aclrtMalloc", address, bytes);
}

aclError aclrtMallocAlign32(void** address, size_t bytes, aclrtMemMallocPolicy /*policy*/) {
  return Allocate("aclrtMallocAlign32", address, bytes);
}

aclError aclrtFree(void* address) { return Free("aclrtFree", address, MemoryPlace::kDevice); }

aclError aclrtMallocHost(void** address, size_t bytes) {
  CANN_SIM_REQUIRE_USABLE("aclrtMallocHost");
  CANN_SIM_REQUIRE_POINTER("aclrtMallocHost", address);
  const size_t rounded = (std::max<size_t>(bytes, 1) + cann_sim::kPageBytes - 1) / cann_sim::kPageBytes * cann_sim::kPageBytes;
  *address = std::aligned_alloc(cann_sim::kPageBytes, rounded);
  if (*address == nullptr) {
    return Fail(ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMallocHost: the host has no " + std::to_string(bytes) + " bytes left");
  }
  cann_sim::NoteMemory(*address, rounded, MemoryPlace::kPinnedHost, nullptr, true);
  return ACL_SUCCESS;
}

// The configuration requests locations and sizes of pages, which make no difference here.
aclError aclrtMallocHostWithCfg(void** address, uint64_t bytes, aclrtMallocConfig* /*configuration*/) {
  return aclrtMallocHost(address, bytes);
}

aclError aclrtFreeHost(void* address) { return Free("aclrtFreeHost", address, MemoryPlace::kPinnedHost); }

aclError aclrtHostRegister(void* address, uint64_t bytes, aclrtHostRegisterType /*type*/, void** device_address) {
  CANN_SIM_REQUIRE_POINTER("aclrtHostRegister", address);
  CANN_SIM_REQUIRE_POINTER("aclrtHostRegister", device_address);
  if (bytes == 0) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtHostRegister: expected a size above 0");
  }
  if (cann_sim::IsMappedHost(address)) {
    return Fail(ACL_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "aclrtHostRegister: the memory is already registered");
  }
  const MemoryPlace place = cann_sim::PlaceOf(address);
  if (place == MemoryPlace::kDevice) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtHostRegister: expected memory of the host, found memory of a device");
  }
  if (place == MemoryPlace::kUnknown) {
    cann_sim::NoteMemory(address, bytes, MemoryPlace::kPinnedHost, nullptr);
  }
  Memory& memory = TheMemory();
  const std::unique_lock<std::shared_mutex> lock(memory.mutex);
  memory.mapped_host[reinterpret_cast<uintptr_t>(address)] = bytes;
  *device_address = address;
  return ACL_SUCCESS;
}

aclError aclrtHostRegisterV2(void* address, uint64_t bytes, uint32_t /*flag*/) {
  void* device_address = nullptr;
  return aclrtHostRegister(address, bytes, ACL_HOST_REGISTER_MAPPED, &device_address);
}

aclError aclrtHostUnregister(void* address) {
  Memory& memory = TheMemory();
  const std::unique_lock<std::shared_mutex> lock(memory.mutex);
  if (memory.mapped_host.erase(reinterpret_cast<uintptr_t>(address)) == 0) {
    return Fail(ACL_ERROR_HOST_MEMORY_NOT_REGISTERED, "aclrtHostUnregister: the memory is not registered");
  }
  // Memory of aclrtMallocHost stays pinned.
  const auto found = memory.ranges.find(reinterpret_cast<uintptr_t>(address));
  if (found != memory.ranges.end() && !found->second.allocated) {
    memory.ranges.erase(found);
  }
  return ACL_SUCCESS;
}

aclError aclrtGetMemInfo(aclrtMemAttr /*attribute*/, size_t* free_bytes, size_t* total_bytes) {
  CANN_SIM_REQUIRE_POINTER("aclrtGetMemInfo", free_bytes);
  CANN_SIM_REQUIRE_POINTER("aclrtGetMemInfo", total_bytes);
  const Device* device = cann_sim::CurrentDevice();
  if (device == nullptr) {
    return Fail(ACL_ERROR_RT_CONTEXT_NULL, "aclrtGetMemInfo: no device is set on this thread");
  }
  *total_bytes = cann_sim::configuration::DeviceMemoryBytes();
  *free_bytes = *total_bytes - cann_sim::UsedMemory(*device);
  return ACL_SUCCESS;
}

// One entry: a simulated device has no other user of memory than the program.
aclError aclrtGetMemUsageInfo(int32_t id, aclrtMemUsageInfo* entries, size_t room, size_t* count) {
  CANN_SIM_REQUIRE_POINTER("aclrtGetMemUsageInfo", entries);
  CANN_SIM_REQUIRE_POINTER("aclrtGetMemUsageInfo", count);
  const Device* device = cann_sim::FindDevice(id);
  if (device == nullptr || room == 0) {
    return Fail(device == nullptr ? ACL_ERROR_RT_INVALID_DEVICEID : ACL_ERROR_RT_PARAM_INVALID,
                "aclrtGetMemUsageInfo: expected a device that exists and room for an entry");
  }
  *count = 1;
  entries[0] = {};
  std::strncpy(entries[0].name, "APP", sizeof entries[0].name - 1);
  Memory& memory = TheMemory();
  const std::unique_lock<std::shared_mutex> lock(memory.mutex);
  entries[0].curMemSize = memory.used[device];
  entries[0].memPeakSize = memory.most_used[device];
  return ACL_SUCCESS;
}

aclError aclrtPointerGetAttributes(const void* address, aclrtPtrAttributes* attributes) {
  CANN_SIM_REQUIRE_POINTER("aclrtPointerGetAttributes", attributes);
  *attributes = {};
  switch (cann_sim::PlaceOf(address)) {
    case MemoryPlace::kDevice:
      attributes->location = {static_cast<uint32_t>(cann_sim::OwnerOf(address)->id), ACL_MEM_LOCATION_TYPE_DEVICE};
      break;
    case MemoryPlace::kPinnedHost: attributes->location = {0, ACL_MEM_LOCATION_TYPE_HOST}; break;
    case MemoryPlace::kUnknown: attributes->location = {0, ACL_MEM_LOCATION_TYPE_UNREGISTERED}; break;
  }
  return ACL_SUCCESS;
}

}  // extern "C"
