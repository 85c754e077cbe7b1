// Settings of collectives. torch_npu sets the deterministic mode here with every change of its own, whether or not there are
// collectives; it has no effect on anything else. The collectives themselves are looked up by name and absent, so that
// torch_npu says which one it did not find.

#include <cstdint>

// HcclResult HcclSetConfig(HcclConfig, HcclConfigValue); the value is a union of one int32_t.
extern "C" __attribute__((visibility("default"))) int HcclSetConfig(int /*setting*/, int32_t /*value*/) { return 0; }
