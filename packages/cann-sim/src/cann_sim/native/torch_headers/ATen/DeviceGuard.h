// Stands before torch's header of this name, of which the headers of functions of lists need only what follows.
#pragma once

#include <ATen/core/IListRef.h>
