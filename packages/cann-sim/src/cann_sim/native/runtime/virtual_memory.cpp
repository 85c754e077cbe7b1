// Address ranges and physical memory mapped into them, which the caching allocator's expandable segments are made of.

#include <acl/acl_rt.h>
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <optional>

#include "device.h"
#include "error_message.h"
#include "faults.h"
#include "memory.h"
#include "memory_file.h"

namespace {

using cann_sim::Device;
using cann_sim::Fail;
using cann_sim::MemoryPlace;

constexpr size_t kGranularity = 2UL << 20;  // of physical memory, in bytes

// Physical memory: a range of the memory file of a device, or of that of the host, of this process or of another.
struct PhysicalMemory {
  Device* device;          // null for memory of the host
  cann_sim::MemoryFile* source;  // that the range was taken from; null where another process did
  int file;
  size_t offset;
  size_t bytes;
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

// 22 bits of process, 4 of device, then offset and size in units of 2 MiB: 20 and 18 bits.
uint64_t Pack(const cann_sim::SharedRange& range) {
  return static_cast<uint64_t>(range.process) << 42 | static_cast<uint64_t>(range.device) << 38 |
         range.offset / kGranularity << 18 | range.bytes / kGranularity;
}

cann_sim::SharedRange Unpack(uint64_t packed) {
  return {static_cast<int32_t>(packed >> 42), static_cast<int32_t>(packed >> 38 & 0xf), (packed >> 18 & 0xfffff) * kGranularity,
          (packed & 0x3ffff) * kGranularity};
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

// The least and the recommended are one: physical memory comes in pages of 2 MiB, whatever its attributes.
aclError aclrtMemGetAllocationGranularity(aclrtPhysicalMemProp* properties, aclrtMemGranularityOptions /*option*/,
                                          size_t* granularity) {
  CANN_SIM_REQUIRE_POINTER("aclrtMemGetAllocationGranularity", properties);
  CANN_SIM_REQUIRE_POINTER("aclrtMemGetAllocationGranularity", granularity);
  *granularity = kGranularity;
  return ACL_SUCCESS;
}

aclError aclrtMallocPhysical(aclrtDrvMemHandle* handle, size_t bytes, const aclrtPhysicalMemProp* properties,
                             uint64_t /*flags*/) {
  CANN_SIM_REQUIRE_USABLE("aclrtMallocPhysical");
  CANN_SIM_REQUIRE_POINTER("aclrtMallocPhysical", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtMallocPhysical", properties);
  const bool on_device = properties->location.type == ACL_MEM_LOCATION_TYPE_DEVICE;
  Device* device = on_device ? cann_sim::FindDevice(static_cast<int32_t>(properties->location.id)) : nullptr;
  if (on_device && device == nullptr) {
    return Fail(ACL_ERROR_RT_INVALID_DEVICEID,
                "aclrtMallocPhysical: there is no device " + std::to_string(properties->location.id));
  }
  if (const aclError error =
          cann_sim::InjectFault(cann_sim::Fault::kAllocation, ACL_ERROR_RT_MEMORY_ALLOCATION, "aclrtMallocPhysical");
      error != ACL_SUCCESS) {
    return error;
  }
  if (on_device && !cann_sim::TakeMemory(*device, bytes)) {
    return cann_sim::OutOfMemory("aclrtMallocPhysical", *device, bytes);
  }
  cann_sim::MemoryFile& source = on_device ? cann_sim::MemoryFileOf(*device) : cann_sim::HostMemoryFile();
  const std::optional<size_t> offset = source.Take(bytes, kGranularity);
  if (!offset.has_value()) {
    if (on_device) {
      cann_sim::GiveMemoryBack(*device, bytes);
    }
    return Fail(ACL_ERROR_RT_MEMORY_ALLOCATION,
                "aclrtMallocPhysical: there are no " + std::to_string(bytes) + " bytes of memory left");
  }
  *handle = new PhysicalMemory{device, &source, source.file(), *offset, bytes};
  return ACL_SUCCESS;
}

aclError aclrtFreePhysical(aclrtDrvMemHandle handle) {
  CANN_SIM_REQUIRE_POINTER("aclrtFreePhysical", handle);
  auto* memory = static_cast<PhysicalMemory*>(handle);
  if (memory->source == nullptr) {
    close(memory->file);
  } else {
    memory->source->GiveBack(memory->offset);
    if (memory->device != nullptr) {
      cann_sim::GiveMemoryBack(*memory->device, memory->bytes);
    }
  }
  delete memory;
  return ACL_SUCCESS;
}

aclError aclrtMapMem(void* address, size_t bytes, size_t offset, aclrtDrvMemHandle handle, uint64_t /*flags*/) {
  CANN_SIM_REQUIRE_POINTER("aclrtMapMem", address);
  CANN_SIM_REQUIRE_POINTER("aclrtMapMem", handle);
  auto* memory = static_cast<PhysicalMemory*>(handle);
  if (offset > memory->bytes || bytes > memory->bytes - offset ||
      mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory->file,
           static_cast<off_t>(memory->offset + offset)) == MAP_FAILED) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMapMem: the physical memory cannot be mapped at this address");
  }
  Put(TheVirtualMemory().mapped, address, bytes);
  cann_sim::NoteMemory(address, bytes, memory->device == nullptr ? MemoryPlace::kPinnedHost : MemoryPlace::kDevice,
                       memory->device);
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

// Who may use the memory: every device of a process may.
aclError aclrtMemSetAccess(void* address, size_t /*bytes*/, aclrtMemAccessDesc* descriptions, size_t /*count*/) {
  CANN_SIM_REQUIRE_POINTER("aclrtMemSetAccess", address);
  CANN_SIM_REQUIRE_POINTER("aclrtMemSetAccess", descriptions);
  return ACL_SUCCESS;
}

// The handle says which process, device, offset and size, so that nothing has to be looked up in the exporter.
aclError aclrtMemExportToShareableHandle(aclrtDrvMemHandle handle, aclrtMemHandleType /*type*/, uint64_t /*flags*/,
                                         uint64_t* shareable) {
  CANN_SIM_REQUIRE_POINTER("aclrtMemExportToShareableHandle", handle);
  CANN_SIM_REQUIRE_POINTER("aclrtMemExportToShareableHandle", shareable);
  const auto* memory = static_cast<PhysicalMemory*>(handle);
  if (memory->source == nullptr || memory->device == nullptr || memory->bytes % kGranularity != 0) {
    return Fail(ACL_ERROR_RT_FEATURE_NOT_SUPPORT, "aclrtMemExportToShareableHandle: expected memory of a device of this "
                                                  "process in units of 2 MiB");
  }
  *shareable = Pack({getpid(), memory->device->id, memory->offset, memory->bytes});
  return ACL_SUCCESS;
}

aclError aclrtMemImportFromShareableHandle(uint64_t shareable, int32_t id, aclrtDrvMemHandle* handle) {
  CANN_SIM_REQUIRE_USABLE("aclrtMemImportFromShareableHandle");
  CANN_SIM_REQUIRE_POINTER("aclrtMemImportFromShareableHandle", handle);
  Device* device = cann_sim::FindDevice(id);
  if (device == nullptr) {
    return Fail(ACL_ERROR_RT_INVALID_DEVICEID,
                "aclrtMemImportFromShareableHandle: there is no device " + std::to_string(id));
  }
  const cann_sim::SharedRange range = Unpack(shareable);
  const int file = cann_sim::OpenMemoryFile(range.process, range.device);
  if (file < 0) {
    return Fail(ACL_ERROR_RT_PARAM_INVALID, "aclrtMemImportFromShareableHandle: process " + std::to_string(range.process) +
                                                ", which exported the memory, does not run any more");
  }
  *handle = new PhysicalMemory{device, nullptr, file, range.offset, range.bytes};
  return ACL_SUCCESS;
}

// Any process may import.
aclError aclrtMemSetPidToShareableHandle(uint64_t /*shareable*/, int32_t* processes, size_t /*count*/) {
  CANN_SIM_REQUIRE_POINTER("aclrtMemSetPidToShareableHandle", processes);
  return ACL_SUCCESS;
}

}  // extern "C"
