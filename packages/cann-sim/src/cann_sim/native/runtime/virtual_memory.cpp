// Address ranges and physical memory mapped into them, which the caching allocator's expandable segments are made of.

#include <acl/acl_rt.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "device.h"
#include "error_message.h"
#include "faults.h"
#include "memory.h"

namespace {

using cann_sim::Device;
using cann_sim::Fail;
using cann_sim::MemoryPlace;

// Physical memory of a device: a file in memory, which can be mapped more than once.
struct PhysicalMemory {
  Device& device;
  size_t bytes;
  int file;
};

struct VirtualMemory {
  std::mutex mutex;
  std::map<void*, size_t> reserved;
  std::map<void*, size_t> mapped;
};

VirtualMemory& TheVirtualMemory() {
  static auto* memory = new VirtualMemory;
  return *memory;
}

// Takes the entry out; 0 where there is none.
size_t Take(std::map<void*, size_t>& entries, void* address) {
  const std::lock_guard<std::mutex> lock(TheVirtualMemory().mutex);
  const auto found = entries.find(address);
  if (found == entries.end()) {
    return 0;
  }
  const size_t bytes = found->second;
  entries.erase(found);
  return bytes;
}

void Put(std::map<void*, size_t>& entries, void* address, size_t bytes) {
  const std::lock_guard<std::mutex> lock(TheVirtualMemory().mutex);
  entries[address] = bytes;
}

}  // namespace

extern "C" {

aclError aclrtReserveMemAddress(void** address, size_t bytes, size_t /*alignment*/, void* wanted, uint64_t /*flags*/) {
  CANN_SIM_REQUIRE_USABLE("aclrtReserveMemAddress");
  CANN_SIM_REQUIRE_POINTER("aclrtReserveMemAddress", address);
  void* range = mmap(wanted, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) {
    return Fail(ACL_ERROR_RT_MEMORY_ALLOCATION,
                "aclrtReserveMemAddress: the process has no " + std::to_string(bytes) + " bytes of addresses left");
  }
  Put(TheVirtualMemory().reserved, range, bytes);
  *address = range;
  return ACL_SUCCESS;
}

aclError aclrtReleaseMemAddress(void* address) {
  const size_t bytes = Take(TheVirtualMemory().reserved, address);
  if (bytes == 0) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtReleaseMemAddress: the address range was not reserved");
  }
  munmap(address, bytes);
  return ACL_SUCCESS;
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t bytes, const aclrtPhysicalMemProp* properties,
                             uint64_t /*flags*/) {
  CANN_SIM_REQUIRE_USABLE("aclrtMallocPhysical");
  CANN_SIM_REQUIRE_POINTER("aclrtMallocPhysical", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtMallocPhysical", properties);
  Device* device = cann_sim::FindDevice(static_cast<int32_t>(properties->location.id));
  if (properties->location.type != ACL_MEM_LOCATION_TYPE_DEVICE || device == nullptr) {
    return Fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "aclrtMallocPhysical: only memory of a device is simulated");
  }
  if (const aclError error =
          cann_sim::InjectFault(cann_sim::Fault::kAllocation, ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMallocPhysical");
      error != ACL_SUCCESS) {
    return error;
  }
  if (!cann_sim::TakeMemory(*device, bytes)) {
    return cann_sim::OutOfMemory("aclrtMallocPhysical", *device, bytes);
  }
  const int file = memfd_create("cann-sim", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    if (file >= 0) {
      close(file);
    }
    cann_sim::GiveMemoryBack(*device, bytes);
    return cann_sim::OutOfMemory("aclrtMallocPhysical", *device, bytes);
  }
  *handle = new PhysicalMemory{*device, bytes, file};
  return ACL_SUCCESS;
}

aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
  CANN_SIM_REQUIRE_POINTER("aclrtFreePhysical", handle);
  auto* memory = static_cast<PhysicalMemory*>(handle);
  cann_sim::GiveMemoryBack(memory->device, memory->bytes);
  close(memory->file);
  delete memory;
  return ACL_SUCCESS;
}

aclError aclrtMapMem(void* address, size_t bytes, size_t offset, aclrtDrvMemHandle handle, uint64_t /*flags*/) {
  CANN_SIM_REQUIRE_POINTER("aclrtMapMem", address);
  CANN_SIM_REQUIRE_POINTER("aclrtMapMem", handle);
  auto* memory = static_cast<PhysicalMemory*>(handle);
  if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory->file, static_cast<off_t>(offset)) ==
      MAP_FAILED) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMapMem: the physical memory cannot be mapped at this address");
  }
  Put(TheVirtualMemory().mapped, address, bytes);
  cann_sim::NoteMemory(address, bytes, MemoryPlace::kDevice, &memory->device);
  return ACL_SUCCESS;
}

aclError aclrtUnmapMem(void* address) {
  const size_t bytes = Take(TheVirtualMemory().mapped, address);
  if (bytes == 0) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtUnmapMem: nothing is mapped at this address");
  }
  cann_sim::ForgetMemory(address);
  mmap(address, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  return ACL_SUCCESS;
}

}  // extern "C"
