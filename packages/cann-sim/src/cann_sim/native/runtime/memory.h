// Device and pinned host memory. Both are memory of the process; what is where is kept, and so is how much.
#pragma once

#include <acl/acl_base_rt.h>

#include <cstddef>
#include <cstdint>

namespace cann_sim {

struct Device;

constexpr size_t kMemoryAlignment = 512;  // of device memory, in bytes

enum class MemoryPlace : uint8_t { kUnknown, kDevice, kPinnedHost };

// The location of the address. Memory unknown to the runtime is pageable host memory.
MemoryPlace PlaceOf(const void* address);
// Whether the address is memory of the host that aclrtHostRegister mapped into the devices.
bool IsMappedHost(const void* address);
// The device that owns the address, or null.
Device* OwnerOf(const void* address);

// Takes bytes out of the device's memory; false where they are not there.
bool TakeMemory(Device& device, size_t bytes);
void GiveMemoryBack(Device& device, size_t bytes);
size_t UsedMemory(const Device& device);
// The size of the allocation that begins at the address; 0 where none does.
size_t AllocatedBytes(const void* address);
// The allocation or mapping that contains the whole range, by a unique number; of adjacent mapped memory
// the latest. 0 where the range is not all the runtime's.
uint64_t AllocationOf(const void* address, size_t bytes);
// How many of the bytes after the allocation of the address, where memory is checked, are not as they were.
size_t OverwrittenBehind(const void* address);
// Notes that [address, address + bytes) is at the place. The range of an address that is forgotten was noted as a whole.
// `allocated` says that it is freed by aclrtFree or aclrtFreeHost.
void NoteMemory(void* address, size_t bytes, MemoryPlace place, Device* device, bool allocated = false);
void ForgetMemory(void* address);

aclError OutOfMemory(const char* function, const Device& device, size_t bytes);

}  // namespace cann_sim
