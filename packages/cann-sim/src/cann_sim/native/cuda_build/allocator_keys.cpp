// Lets torch_npu be loaded with a CUDA build of torch.
//
// Each back end of torch registers the keys that its allocator adds to PYTORCH_ALLOC_CONF in one set, when its library is
// loaded, and a key that is in the set already ends the process. A CUDA build registers CUDA's, and torch_npu from 2.10.0.post7
// on has some of the same names. The back end that is loaded last has the parser, so after torch_npu CUDA's keys have no
// meaning: they are removed before it is loaded, and those of a CPU build of torch remain.
//
// The linker loads, and initialises, what this library needs before it: torch's CUDA library has registered its keys when the
// constructor runs. libtorch_npu.so needs a library that needs this one (see native_library.py), so it registers later.

#include <c10/core/AllocatorConfig.h>

#include <string>
#include <unordered_set>

namespace {

// The keys of CUDA's allocator: `keys` inside c10::cuda::CUDACachingAllocator::CUDAAllocatorConfig::getKeys(), as libc10_cuda.so
// of torch 2.10 to 2.14 exports it. The function has no symbol of its own, and its header needs those of CUDA.
extern "C" const std::unordered_set<std::string> cuda_keys asm(
    "_ZZN3c104cuda20CUDACachingAllocator19CUDAAllocatorConfig7getKeysB5cxx11EvE4keys");

__attribute__((constructor)) void TakeOutCudaKeys() {
  for (const std::string& key : cuda_keys) {
    c10::CachingAllocator::AcceleratorAllocatorConfig::getMutableKeys().erase(key);
  }
}

}  // namespace
