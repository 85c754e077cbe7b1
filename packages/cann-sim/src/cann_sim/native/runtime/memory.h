// Device and pinned host memory. Both are plain memory of the process; what is where is kept, and so is how much.
#pragma once

#include <acl/acl_base_rt.h>

#include <cstddef>
#include <cstdint>

namespace cann_sim {

struct Device;

constexpr size_t kMemoryAlignment = 512;  // of device memory, in bytes

enum class MemoryPlace : uint8_t { kUnknown, kDevice, kPinnedHost };

// Where the address lies. Memory of which the runtime knows nothing is pageable host memory.
MemoryPlace PlaceOf(const void* address);
// The device that owns the address, or null.
Device* OwnerOf(const void* address);

// Takes bytes out of the device's memory; false where they are not there.
bool TakeMemory(Device& device, size_t bytes);
void GiveMemoryBack(Device& device, size_t bytes);
// Notes that [address, address + bytes) is at the place. The range of an address that is forgotten was noted as a whole.
void NoteMemory(void* address, size_t bytes, MemoryPlace place, Device* device);
void ForgetMemory(void* address);

aclError OutOfMemory(const char* function, const Device& device, size_t bytes);

}  // namespace cann_sim
