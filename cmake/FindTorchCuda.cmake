# Finds a CUDA build of torch in the environment the package is installed into, without importing it.
#
# Sets TorchCuda_FOUND, TorchCuda_WHY (when not found), TorchCuda_ROOT, TorchCuda_VERSION,
# TorchCuda_CUDA, TorchCuda_CUDA_INCLUDE, TorchCuda_CXX11_ABI, and the target TorchCuda::headers.

execute_process(
  COMMAND ${Python_EXECUTABLE} -I ${CMAKE_CURRENT_LIST_DIR}/probe_torch.py
  OUTPUT_VARIABLE probe_output
  ERROR_VARIABLE probe_error
  RESULT_VARIABLE probe_result)
if(NOT probe_result EQUAL 0)
  set(TorchCuda_FOUND FALSE)
  set(TorchCuda_WHY "probing for torch failed: ${probe_error}")
else()
  string(JSON TorchCuda_FOUND GET "${probe_output}" found)
  if(TorchCuda_FOUND)
    foreach(key IN ITEMS root version cuda cuda_include cxx11_abi)
      string(TOUPPER ${key} upper)
      string(JSON TorchCuda_${upper} GET "${probe_output}" ${key})
    endforeach()
    message(STATUS "torch ${TorchCuda_VERSION} at ${TorchCuda_ROOT}, CUDA headers in ${TorchCuda_CUDA_INCLUDE}")
    add_library(TorchCuda::headers INTERFACE IMPORTED)
    target_include_directories(TorchCuda::headers SYSTEM INTERFACE
      ${TorchCuda_ROOT}/include
      ${TorchCuda_ROOT}/include/torch/csrc/api/include
      ${TorchCuda_CUDA_INCLUDE})
    # Wheels ship cuda_runtime_api.h without crt/; ours is the last place to look.
    target_include_directories(TorchCuda::headers SYSTEM INTERFACE ${CMAKE_SOURCE_DIR}/csrc/cuda_compat)
    target_compile_definitions(TorchCuda::headers INTERFACE
      _GLIBCXX_USE_CXX11_ABI=${TorchCuda_CXX11_ABI})
  else()
    string(JSON TorchCuda_WHY GET "${probe_output}" why)
  endif()
endif()
if(NOT TorchCuda_FOUND)
  message(WARNING "The torch hook and the simulated GPU are not built: ${TorchCuda_WHY}. "
    "Reading traces works; to trace, install a CUDA build of torch and install gpumemtrace again.")
endif()
