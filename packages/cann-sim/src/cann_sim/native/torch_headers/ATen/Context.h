// Stands before torch's header of this name, which every header of an ATen function includes and none of them uses: a quarter
// of the lines that the compiler would read.
#pragma once
