// What cuda_runtime.h asks of the host compiler's configuration when it is not nvcc that compiles:
// nothing. See host_defines.h.
#pragma once
