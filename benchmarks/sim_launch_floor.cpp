// The floor of bench_sim_launch.py: an operator library whose functions return 0 where the benchmark says so.
//
// It replaces libopapi.so. Each operator that is measured is a jump through a pointer, which leads either
// to the simulated function or to one that returns 0, so that both are measured in one process. Every other function is
// found in the simulated library, which this one depends on under another name.

#include <dlfcn.h>

#if defined(__x86_64__)
#define JUMP_THROUGH(POINTER) "jmp *" POINTER "(%rip)\n"
#elif defined(__aarch64__)
#define JUMP_THROUGH(POINTER) "adrp x16, " POINTER "\nldr x16, [x16, #:lo12:" POINTER "]\nbr x16\n"
#else
#error "the floor of bench_sim_launch.py knows the jumps of x86-64 and aarch64 only"
#endif

#define FOR_EACH_FUNCTION(APPLY)                   \
  APPLY(aclnnAdd)                                  \
  APPLY(aclnnAddGetWorkspaceSize)                  \
  APPLY(aclnnMul)                                  \
  APPLY(aclnnMulGetWorkspaceSize)                  \
  APPLY(aclnnRmsNorm)                              \
  APPLY(aclnnRmsNormGetWorkspaceSize)              \
  APPLY(aclnnFusedInferAttentionScoreV3)           \
  APPLY(aclnnFusedInferAttentionScoreV3GetWorkspaceSize)

#define DEFINE(FUNCTION)                                                             \
  extern "C" __attribute__((visibility("hidden"))) void* target_##FUNCTION;          \
  void* target_##FUNCTION = nullptr;                                                 \
  asm(".text\n.globl " #FUNCTION "\n.type " #FUNCTION ", @function\n" #FUNCTION ":\n" \
      JUMP_THROUGH("target_" #FUNCTION) ".size " #FUNCTION ", .-" #FUNCTION "\n");

FOR_EACH_FUNCTION(DEFINE)

namespace {

int return_zero() { return 0; }

}  // namespace

// Leads the operators to functions that return 0, or to those of the library. Returns how many it found.
extern "C" int floor_choose(const char* library, int zero) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  int found = 0;
#define CHOOSE(FUNCTION)                                                                                \
  target_##FUNCTION = zero != 0 ? reinterpret_cast<void*>(&return_zero) : dlsym(handle, #FUNCTION);     \
  found += target_##FUNCTION != nullptr;
  if (handle != nullptr) {
    FOR_EACH_FUNCTION(CHOOSE)
  }
  return found;
}
