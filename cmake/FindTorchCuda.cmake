# Finds a CUDA build of torch in the environment the package is installed into, without importing it.
#
# Sets TorchCuda_FOUND, TorchCuda_WHY (when not found), TorchCuda_ROOT, TorchCuda_VERSION,
# TorchCuda_CUDA, TorchCuda_CUDA_INCLUDE, TorchCuda_CXX11_ABI, TorchCuda_PYBIND11_BUILD_ABI, the target TorchCuda::headers, and
# TorchCuda_RECORD: all of it as a JSON object, for the build record (see write_build_info below).

# uv and `python -m build` compile in an environment of their own: there, name the one to look into.
set(GPUMEMTRACE_TORCH_PYTHON "" CACHE FILEPATH
  "The Python interpreter whose torch the hook is built for (default: the one it is built with)")
set(probe_python "${GPUMEMTRACE_TORCH_PYTHON}")
if(NOT probe_python)
  set(probe_python "${Python_EXECUTABLE}")
endif()

execute_process(
  COMMAND ${probe_python} -I ${CMAKE_CURRENT_LIST_DIR}/probe_torch.py
  OUTPUT_VARIABLE TorchCuda_RECORD
  ERROR_VARIABLE probe_error
  RESULT_VARIABLE probe_result)
if(NOT probe_result EQUAL 0)
  message(FATAL_ERROR "${probe_python} could not look for torch: ${probe_error}")
endif()

string(JSON TorchCuda_FOUND GET "${TorchCuda_RECORD}" found)
if(TorchCuda_FOUND)
  foreach(key IN ITEMS root version cuda cuda_include cxx11_abi pybind11_build_abi)
    string(TOUPPER ${key} upper)
    string(JSON TorchCuda_${upper} GET "${TorchCuda_RECORD}" ${key})
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
  # Else torch would not take our allocator for one of its own type.
  if(TorchCuda_PYBIND11_BUILD_ABI)
    target_compile_definitions(TorchCuda::headers INTERFACE
      PYBIND11_BUILD_ABI="${TorchCuda_PYBIND11_BUILD_ABI}")
  endif()
else()
  string(JSON TorchCuda_WHY GET "${TorchCuda_RECORD}" why)
  message(WARNING "The torch hook and the simulated GPU are not built: ${TorchCuda_WHY}. "
    "Reading traces works; to trace, install a CUDA build of torch and install gpumemtrace again.")
endif()

# write_build_info(<file>): the build record that gpumemtrace/build_info.py reads, so that a later
# error can say which torch this build is for, or why it has no hook.
function(write_build_info file)
  string(JSON record SET "{}" torch "${TorchCuda_RECORD}")
  string(JSON record SET "${record}" compiler "\"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\"")
  string(JSON record SET "${record}" build_type "\"${CMAKE_BUILD_TYPE}\"")
  file(WRITE ${file} "${record}\n")
endfunction()
