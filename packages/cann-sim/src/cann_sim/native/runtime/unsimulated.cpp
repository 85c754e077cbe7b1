// The declarations of these functions are left out on purpose: only their names matter here.

#include "unsimulated.h"

CANN_SIM_UNSIMULATED(aclmdlFinalizeDump);
CANN_SIM_UNSIMULATED(aclmdlInitDump);
CANN_SIM_UNSIMULATED(aclmdlSetDump);
CANN_SIM_UNSIMULATED(aclopStartDumpArgs);
CANN_SIM_UNSIMULATED(aclopStopDumpArgs);
CANN_SIM_UNSIMULATED(aclrtBinaryGetFunction);
CANN_SIM_UNSIMULATED(aclrtBinaryLoadFromData);
// Of vLLM-Ascend's allocator, for threads without a device: a context of its own is more than a device.
CANN_SIM_UNSIMULATED(aclrtCreateContext);
CANN_SIM_UNSIMULATED(aclrtGetFunctionAddr);
CANN_SIM_UNSIMULATED(rtDevBinaryRegister);
CANN_SIM_UNSIMULATED(rtFunctionRegister);
CANN_SIM_UNSIMULATED(rtGetC2cCtrlAddr);
CANN_SIM_UNSIMULATED(rtKernelLaunch);
