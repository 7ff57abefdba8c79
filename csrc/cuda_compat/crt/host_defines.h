// CUDA's runtime wheel ships cuda_runtime_api.h but not crt/: for a host compiler these macros,
// all of which only decorate declarations, are what its headers need. A full toolkit's own
// crt/host_defines.h is found first where there is one.
#pragma once

#define CUDARTAPI
#define CUDARTAPI_CDECL
#define CUDART_CB
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __managed__
#define __grid_constant__
#define __device_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __cudart_builtin__
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
#define __specialization_static static
